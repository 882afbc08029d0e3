//! A tile of rows of bits: sorted by their numbers of bits, screened, and what is left scored and chosen from.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::bits::heads::{choose_order, Heads, WIDTHS, WORDS};
use crate::bits::pass::{Bounds, LANES, ROWS};
use crate::bits::{common, pass, BitMetric, BitScreen, MOST_WORDS};
use crate::keeper::{Best, Offers, Places, Score, TileContext};

/// Pairs that may pass before they are looked at, so that bars rise.
/// By judgement: some hundreds of rows near in number of bits set the bar of a row that has none. `tartan bench bits`
/// holds the time.
const FLUSH: usize = 512;

/// Pairs of heads that are tested before a tile may go over to wider ones, or to whole rows.
/// By judgement: a part in 500 of a wide tile.
const TRIAL: usize = 1 << 13;

/// Words that a pair in a panel may have for the time of a look at one pair alone.
/// Measured: 0.02 ns a word in a panel of AVX-512, some 30 ns a look. `tartan bench bits` holds the time.
const LOOK_WORDS: usize = 1500;

/// Take into the best of rows and columns what belongs there: rows of bits that end in one more word.
///
/// Returns false if rows are too long or not as long as those of other tiles, or large distances are wanted; then nothing was looked at.
///
/// # Panics
///
/// If shapes disagree, or items are out of range.
pub fn choose_bits<T: Score>(
    (left, right): (&[&[u64]], &[&[u64]]),
    metric: BitMetric,
    frame: TileContext<'_>,
    (rows, columns): (&Best<T>, Option<&Best<T>>),
    screen: &BitScreen,
) -> bool {
    frame.check(left.len(), right.len());
    let offers = Offers::new(frame, (left.len(), right.len()), rows, columns);
    let chooser = Chooser {
        metric,
        left,
        right,
        frame,
        bars: &offers.bars,
        row_bar: |r| offers.row_bar(r),
        visit: |r, c, key, bar| {
            offers.offer(r, c, key, bar);
        },
        screen,
    };
    chooser.run()
}

/// Return the distances as small as `limit` or smaller, with their places; None as [`choose_bits`] returns false.
pub fn bits_beyond<T: Score>(
    (left, right): (&[&[u64]], &[&[u64]]),
    metric: BitMetric,
    frame: TileContext<'_>,
    limit: T,
    screen: &BitScreen,
) -> Option<(Places, Vec<T>)> {
    frame.check(left.len(), right.len());
    let (mut places, mut scores) = (Places::default(), Vec::new());
    let none = vec![Cell::new(T::BEST); right.len()];
    let chooser = Chooser {
        metric,
        left,
        right,
        frame,
        bars: &none,
        row_bar: |_| limit,
        visit: |r, c, key: T, _| {
            places.push(r, c);
            scores.push(key);
        },
        screen,
    };
    chooser.run().then_some((places, scores))
}

/// Rows of a tile in the order of their numbers of bits.
struct Sorted {
    heads: Heads,
    order: Vec<usize>,
}

impl Sorted {
    fn new(heads: Heads) -> Self {
        let mut order: Vec<usize> = (0..heads.ones.len()).collect();
        order.sort_by_key(|&at| heads.ones[at]);
        Sorted { heads, order }
    }
}

/// Columns side by side, panel by panel.
struct Panels {
    /// Words of 32 bits that are counted.
    width: usize,
    words: Vec<[u32; LANES]>,
    bounds: Vec<Bounds<LANES>>,
    /// Least share and largest extra of each panel, or looser ones.
    limits: Vec<(f32, f32)>,
    /// Which width of heads they have; past the last one they are whole rows.
    level: usize,
}

/// Visits all pairs of a tile whose distance may reach the bar of their row or column.
struct Chooser<'a, T, B, V> {
    metric: BitMetric,
    left: &'a [&'a [u64]],
    right: &'a [&'a [u64]],
    frame: TileContext<'a>,
    bars: &'a [Cell<T>],
    row_bar: B,
    visit: V,
    screen: &'a BitScreen,
}

impl<T, B, V> Chooser<'_, T, B, V>
where
    T: Score,
    B: Fn(usize) -> T,
    V: FnMut(usize, usize, T, T),
{
    fn run(mut self) -> bool {
        let length = |row: &&[u64]| row.len();
        let width = self.left.first().or(self.right.first()).map_or(1, length);
        let equal = self
            .left
            .iter()
            .chain(self.right)
            .all(|row| row.len() == width);
        assert!(equal && width > 0, "rows differ in length");
        if self.frame.largest || width > MOST_WORDS {
            return false;
        }
        if self.left.is_empty() || self.right.is_empty() {
            return true;
        }
        let (known, order) = self
            .screen
            .order
            .get_or_init(|| (width, choose_order(self.right)));
        if *known != width {
            return false;
        }
        let corner = self.frame.corner;
        let left = Sorted::new(self.screen.heads(corner.0, self.left, order));
        let right = Sorted::new(self.screen.heads(corner.1, self.right, order));
        let counted = self.screen_tile(&left, &right, (width - 1) * 2);
        let all = match self.frame.codes {
            None => self.left.len() * self.right.len(),
            Some(codes) => {
                let done = |row: &&[u8]| {
                    row.iter()
                        .filter(|&&code| code == crate::keeper::DONE)
                        .count()
                };
                codes.iter().map(done).sum()
            }
        };
        self.screen.note(all - counted.min(all), counted);
        true
    }

    /// Look at all pairs of a tile of rows of so many words of 32 bits; return how many were scored.
    fn screen_tile(&mut self, left: &Sorted, right: &Sorted, n_words: usize) -> usize {
        let begin = self.screen.narrow.load(Ordering::Relaxed).saturating_sub(1);
        let mut panels = self.panels(right, begin, n_words);
        let (mut counted, mut tested, mut passed) = (0, 0, 0);
        let (mut words, mut found) = (vec![[0; ROWS]; n_words.max(WORDS)], Vec::new());
        for rows in left.order.chunks(ROWS) {
            let narrow = passed * LOOK_WORDS > tested * panels.width;
            if tested > TRIAL && narrow && panels.level < WIDTHS.len() {
                panels = self.panels(right, panels.level + 1, n_words);
                (tested, passed) = (0, 0);
            }
            self.pack(left, rows, &panels, &mut words);
            let mut bounds = self.row_bounds(left, rows, panels.level);
            let ones = |at: usize| left.heads.ones[rows[at]];
            let (fewest, most) = (ones(0) as f32, ones(rows.len() - 1) as f32);
            let middle = panels
                .bounds
                .partition_point(|panel| panel.ones[LANES - 1] < fewest);
            let mut loosest = bounds.loosest();
            for panel in (middle..panels.bounds.len()).chain((0..middle).rev()) {
                let columns = &panels.bounds[panel];
                let numbers = (columns.ones[0], columns.ones[LANES - 1]);
                if rules_out_all(loosest, (fewest, most), panels.limits[panel], numbers) {
                    continue;
                }
                let own = &panels.words[panel * panels.width..][..panels.width];
                let masks = pass(
                    self.screen.level(),
                    &words[..panels.width],
                    own,
                    &bounds,
                    columns,
                );
                let before = found.len();
                for (row, mask) in masks.iter().take(rows.len()).enumerate() {
                    let mut rest = *mask;
                    while rest != 0 {
                        let column = panel * LANES + rest.trailing_zeros() as usize;
                        if column < right.order.len() {
                            found.push((rows[row], right.order[column], column));
                        }
                        rest &= rest - 1;
                    }
                }
                if loosest.0 > 0.0 {
                    tested += ROWS * LANES;
                    passed += found.len() - before;
                }
                if found.len() >= FLUSH {
                    counted += self.look(&mut found, &mut panels, (left, right));
                    bounds = self.row_bounds(left, rows, panels.level);
                    loosest = bounds.loosest();
                }
            }
            counted += self.look(&mut found, &mut panels, (left, right));
        }
        self.screen.narrow.store(panels.level, Ordering::Relaxed);
        counted
    }

    /// Score pairs that may pass, and visit those that do; return how many there were.
    fn look(
        &mut self,
        found: &mut Vec<(usize, usize, usize)>,
        panels: &mut Panels,
        (left, right): (&Sorted, &Sorted),
    ) -> usize {
        let mut n_scored = 0;
        for (r, c, place) in found.drain(..) {
            if !self.frame.counts(r, c) {
                continue;
            }
            n_scored += 1;
            let (row, column) = (self.left[r], self.right[c]);
            let last = row.len() - 1;
            let shared = common(self.screen.level(), &row[..last], &column[..last]);
            let ones = (left.heads.ones[r], right.heads.ones[c]);
            let key = T::from_f64(self.metric.score(ones, shared, row[last]));
            let (bar, other) = ((self.row_bar)(r), self.bars[c].get());
            if key <= bar || key <= other {
                (self.visit)(r, c, key, bar);
                let (share, extra) = self.limits(self.bars[c].get(), row[last]);
                let columns = &mut panels.bounds[place / LANES];
                columns.share[place % LANES] = share;
                columns.extra[place % LANES] = extra;
                panels.limits[place / LANES] = columns.loosest();
            }
        }
        n_scored
    }

    /// Lay columns side by side: heads of a width, or whole rows of so many words of 32 bits.
    fn panels(&self, right: &Sorted, level: usize, n_words: usize) -> Panels {
        let heads = WIDTHS.get(level).filter(|&&width| width < n_words);
        let (width, level) = heads.map_or((n_words, WIDTHS.len()), |&width| (width, level));
        let n_panels = right.order.len().div_ceil(LANES);
        let mut found = Panels {
            width,
            words: vec![[0; LANES]; n_panels * width],
            bounds: vec![Bounds::NONE; n_panels],
            limits: Vec::new(),
            level,
        };
        for (at, &c) in right.order.iter().enumerate() {
            let (panel, lane) = (at / LANES, at % LANES);
            let words = &mut found.words[panel * width..][..width];
            lay(words, lane, &right.heads, c, self.right[c], level);
            let bounds = &mut found.bounds[panel];
            // Lanes behind the last column have its number of bits, so that panels ascend; nobody looks at their pairs.
            for lane in lane..LANES {
                bounds.ones[lane] = right.heads.ones[c] as f32;
            }
            bounds.rest[lane] = right.heads.rest[c]
                .get(level)
                .map_or(0, |&rest| rest as i32);
            let last = self.right[c][self.right[c].len() - 1];
            (bounds.share[lane], bounds.extra[lane]) = self.limits(self.bars[c].get(), last);
        }
        found.limits = found.bounds.iter().map(Bounds::loosest).collect();
        found
    }

    /// Lay some rows side by side.
    fn pack(&self, left: &Sorted, rows: &[usize], panels: &Panels, words: &mut [[u32; ROWS]]) {
        for (at, &r) in rows.iter().enumerate() {
            let words = &mut words[..panels.width];
            lay(words, at, &left.heads, r, self.left[r], panels.level);
        }
    }

    fn row_bounds(&self, left: &Sorted, rows: &[usize], level: usize) -> Bounds<ROWS> {
        let mut bounds = Bounds::NONE;
        for (at, &r) in rows.iter().enumerate() {
            let last = self.left[r][self.left[r].len() - 1];
            bounds.ones[at] = left.heads.ones[r] as f32;
            bounds.rest[at] = left.heads.rest[r].get(level).map_or(0, |&rest| rest as i32);
            (bounds.share[at], bounds.extra[at]) = self.limits((self.row_bar)(r), last);
        }
        bounds
    }

    /// Share and extra of pairs whose distance reaches a bar; see the module.
    #[inline(always)]
    fn limits(&self, bar: T, length: u64) -> (f32, f32) {
        /// Of a share. By arithmetic: as the module says.
        const LESS: f64 = 1.0 - 1.0 / (1 << 19) as f64;
        /// Of a distance. By arithmetic: as the module says.
        const MORE: f64 = 1.0 / (1 << 22) as f64;
        let bar = bar.to_f64();
        if bar < 0.0 {
            return (4.0, -1.0);
        }
        let bar = if bar < 1.0 {
            (bar + MORE).min(1.0)
        } else {
            1.0
        }; // and 1 for NaN
        let trust = f64::from(self.screen.trust);
        match self.metric {
            BitMetric::Jaccard => (((1.0 - bar) / (2.0 - bar) * LESS / trust) as f32, 0.0),
            BitMetric::Hamming if bar >= 1.0 => (0.0, length as f32),
            BitMetric::Hamming => (
                (LESS / 2.0 / trust) as f32,
                (bar * length as f64 / 2.0 / trust) as f32,
            ),
        }
    }
}

/// Put the words of a row into a lane.
#[inline(always)]
fn lay<const N: usize>(
    words: &mut [[u32; N]],
    lane: usize,
    heads: &Heads,
    at: usize,
    row: &[u64],
    level: usize,
) {
    if level == WIDTHS.len() {
        for (pair, &word) in words.chunks_exact_mut(2).zip(row) {
            pair[0][lane] = word as u32;
            pair[1][lane] = (word >> 32) as u32;
        }
    } else {
        for (place, &word) in words.iter_mut().zip(&heads.words[at]) {
            place[lane] = word;
        }
    }
}

/// Whether numbers of bits alone rule out all pairs of some rows, which have `fewest` to `most`, and a panel.
///
/// The distance of rows with unlike numbers of bits is smallest where these are nearest.
#[inline(always)]
fn rules_out_all(
    rows: (f32, f32),
    (fewest, most): (f32, f32),
    columns: (f32, f32),
    (low, high): (f32, f32),
) -> bool {
    let (a, b) = if most < low {
        (most, low)
    } else if high < fewest {
        (fewest, high)
    } else {
        return false;
    };
    a.min(b) + rows.1.max(columns.1) < rows.0.min(columns.0) * (a + b)
}
