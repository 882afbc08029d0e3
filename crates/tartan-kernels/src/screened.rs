//! Rows scored while it is chosen from them: products of 8-bit copies first, exact scores of those that may pass.
//!
//! Pairs that the bound of [`screen`](crate::screen) does not rule out are computed by the fused multiply-adds of
//! [`product`], one after the other from the first position to the last: the same bits that a tile of products has. So
//! what is chosen does not depend on what was screened, and a tile may stop to screen wherever that does not pay.

use std::cell::Cell;
use std::ops::Range;

use crate::dense::finish::{self, UnitRows};
use crate::keeper::{scan, Best, Offers, Places, ProductChooser, Score, TileContext};
use crate::product::{self, Scalar, CHAINS};
use crate::screen::panel::{round_up, Side, LANES, ROWS};
use crate::screen::pass::{pack, Bounds, Columns, Group};
use crate::screen::{find, Screen};

/// Norm of rows whose inner products are screened, at most.
/// By format: products of two are below 1e36, and float32 ends at 3.4e38.
const LONGEST: f64 = 1e18;

/// What becomes of the products of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowMetric {
    /// Unit rows; see [`finish::finish_cosine`].
    Cosine,
    /// Rows as they are.
    Inner,
    /// Rows that end in their squared norms; see [`finish::finish_euclidean`].
    Euclidean {
        /// Whether distances are roots.
        root: bool,
    },
}

/// Rows that are computed without a look at the bound after a few of them had too many pairs that it did not rule out.
/// By judgement: enough to pay for the transposed columns, few enough that bars rise in between. `tartan bench vectors
/// parts=screen` holds the time.
const STRIPE: usize = 1024;

/// One in this many pairs may be looked at; of more, the float product of all is faster.
/// Measured: a pair costs about as much as 25 of a tile of float products, and 40 of a pass. `tartan bench vectors
/// parts=screen` holds the time.
const RARE: usize = 48;

/// 2^-24, the unit of float32.
/// By format.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// What may underflow in a position.
/// By format: float32 rounds what is below 2^-126 to multiples of 2^-149; this is 2^-140.
const TINY: f64 = f32::MIN_POSITIVE as f64 / (1 << 14) as f64;

/// Take into the best of rows and columns what belongs there, and write no score that is not kept.
///
/// Returns false if a score is NaN, which only says that the tile is to be looked at in another way. What was taken
/// stays; taking it again changes nothing.
///
/// # Panics
///
/// If shapes disagree, items are out of range, or there is no kernel for products (`product::available`).
pub fn choose_rows<T: Score + Scalar>(
    (left, right): (&[&[T]], &[&[T]]),
    metric: RowMetric,
    frame: TileContext<'_>,
    (rows, columns): (&Best<T>, Option<&Best<T>>),
    screen: Option<&Screen>,
) -> bool {
    frame.check(left.len(), right.len());
    let offers = Offers::new(frame, (left.len(), right.len()), rows, columns);
    let chooser = Chooser {
        metric: Exact::new(metric, left, right),
        left,
        right,
        frame,
        bars: &offers.bars,
        row_bar: |r| offers.row_bar(r),
        visit: |r, c, key, bar| offers.offer(r, c, key, bar).0,
        numbers: true,
    };
    chooser.run(screen)
}

/// Return the scores as good as `limit` or better, with their places; None if a score is NaN. See [`choose_rows`].
pub fn rows_beyond<T: Score + Scalar>(
    (left, right): (&[&[T]], &[&[T]]),
    metric: RowMetric,
    frame: TileContext<'_>,
    limit: T,
    screen: Option<&Screen>,
) -> Option<(Places, Vec<T>)> {
    frame.check(left.len(), right.len());
    let limit = if frame.largest {
        limit.negative()
    } else {
        limit
    };
    let (mut places, mut scores) = (Places::default(), Vec::new());
    let none = vec![Cell::new(T::BEST); right.len()];
    let chooser = Chooser {
        metric: Exact::new(metric, left, right),
        left,
        right,
        frame,
        bars: &none,
        row_bar: |_| limit,
        visit: |r, c, key: T, bar| {
            if key <= bar && frame.counts(r, c) {
                places.push(r, c);
                scores.push(if frame.largest { key.negative() } else { key });
            }
            bar
        },
        numbers: true,
    };
    chooser.run(screen).then_some((places, scores))
}

/// The last step of exact scores, and what of it the bound must know.
enum Exact<'a, T> {
    Cosine(UnitRows<'a, T>),
    Inner,
    Euclidean { root: bool },
}

impl<'a, T: Score + Scalar> Exact<'a, T> {
    fn new(metric: RowMetric, left: &'a [&'a [T]], right: &'a [&'a [T]]) -> Self {
        match metric {
            RowMetric::Cosine => Exact::Cosine(UnitRows::new(left, right)),
            RowMetric::Inner => Exact::Inner,
            RowMetric::Euclidean { root } => Exact::Euclidean { root },
        }
    }

    /// Values at the end of a row that are not multiplied.
    fn trailing(&self) -> usize {
        match self {
            Exact::Cosine(_) | Exact::Inner => 0,
            Exact::Euclidean { .. } => 1,
        }
    }

    /// Whether the pass takes products with the other sign: where good scores are those of small products.
    fn turns(&self, largest: bool) -> bool {
        match self {
            Exact::Inner => !largest,
            _ => largest,
        }
    }

    /// Turn the product of a pair into its score.
    #[inline(always)]
    fn finish(&self, (row, left): (usize, &[T]), (column, right): (usize, &[T]), product: T) -> T {
        match self {
            Exact::Cosine(unit) => {
                let mut score = [product];
                unit.finish(row, column, &mut score);
                score[0]
            }
            Exact::Inner => product,
            Exact::Euclidean { root } => finish::finish_euclidean_pair(left, right, *root, product),
        }
    }

    /// The bar of the bound: a score reaches `key` only if the exact sum of products p, with the sign of the pass, is
    /// such that p + shift + bar is not below the goal. See [`Exact::goal`] and [`Exact::shift`].
    ///
    /// - cosine: fl(1 - p) <= key needs 1 - p <= key + u |key|, or rows that may be equal, at 1 - p <= `near`.
    ///   fl(1 - p) >= b needs 1 - p >= b - u |b|; where b <= 0 everything is.
    /// - Euclidean: the float score's square is |x|^2 + |y|^2 - 2 p but for 4 u of the norms (which goal and shift pay),
    ///   or the sum of squared differences but for 150 u of itself, and a root adds 2 u.
    /// - inner products: p is the score, and the key is p or -p. Rows so long that a product may leave float32 reach any
    ///   goal ([`LONGEST`]).
    fn bar(&self, key: T, near: f64, largest: bool) -> f32 {
        let key = Score::to_f64(key);
        let found = match (self, largest) {
            // A column without a bar of its own; the sums below would be no numbers.
            (Exact::Cosine(_), true) | (Exact::Inner, _) if key == f64::NEG_INFINITY => key,
            (Exact::Cosine(_), false) => {
                let key = if key > near { key } else { near };
                key + 16.0 * UNIT * key.abs() + 4.0 * UNIT
            }
            (Exact::Cosine(_), true) if -key <= 0.0 => f64::INFINITY,
            (Exact::Cosine(_), true) => key + 16.0 * UNIT * key.abs() + 4.0 * UNIT,
            (Exact::Inner, _) => key + 16.0 * UNIT * key.abs(),
            (Exact::Euclidean { root }, false) => {
                let square = if *root && key > 0.0 { key * key } else { key };
                square / 2.0 * (1.0 + 256.0 * UNIT)
            }
            (Exact::Euclidean { .. }, true) if -key <= 0.0 => f64::INFINITY,
            (Exact::Euclidean { root }, true) => {
                let square = if *root { key * key } else { -key };
                -square / 2.0 * (1.0 - 256.0 * UNIT)
            }
        };
        if found.is_nan() {
            f32::INFINITY
        } else {
            round_up(found)
        }
    }

    fn near(&self, row: usize) -> f64 {
        match self {
            Exact::Cosine(unit) => Score::to_f64(unit.near(row)),
            Exact::Inner | Exact::Euclidean { .. } => 0.0,
        }
    }

    /// What the left side must reach for a row.
    fn goal(&self, row: &[T], largest: bool) -> f32 {
        let (exact, width) = match self {
            Exact::Cosine(_) => (if largest { -1.0 } else { 1.0 }, row.len()),
            Exact::Inner if is_too_long(row) => return f32::NEG_INFINITY,
            Exact::Inner => (0.0, row.len()),
            Exact::Euclidean { .. } => {
                let half = Score::to_f64(row[row.len() - 1]) / 2.0;
                (if largest { -half } else { half }, row.len() - 1)
            }
        };
        let goal = exact - 16.0 * UNIT * f64::abs(exact) - width as f64 * TINY;
        if goal.is_nan() {
            f32::NEG_INFINITY
        } else {
            -round_up(-goal)
        }
    }

    /// What a column adds to the left side.
    fn shift(&self, column: &[T], largest: bool) -> f32 {
        match self {
            Exact::Cosine(_) => 0.0,
            Exact::Inner if is_too_long(column) => f32::INFINITY,
            Exact::Inner => 0.0,
            Exact::Euclidean { .. } => {
                let half = Score::to_f64(column[column.len() - 1]) / 2.0;
                let shift = if largest { half } else { -half };
                round_up(shift + 16.0 * UNIT * half)
            }
        }
    }
}

/// Whether the products of a row may leave float32, in which the bound is computed.
fn is_too_long<T: Score>(row: &[T]) -> bool {
    let squares = row
        .iter()
        .map(|&value| Score::to_f64(value) * Score::to_f64(value));
    let square: f64 = squares.sum();
    square.partial_cmp(&(LONGEST * LONGEST)) != Some(std::cmp::Ordering::Less)
}

/// Visits all pairs of a tile whose key may reach the bar of their row or column.
struct Chooser<'a, T, B, V> {
    metric: Exact<'a, T>,
    left: &'a [&'a [T]],
    right: &'a [&'a [T]],
    frame: TileContext<'a>,
    bars: &'a [Cell<T>],
    row_bar: B,
    visit: V,
    /// Whether no score was NaN.
    numbers: bool,
}

impl<T, B, V> Chooser<'_, T, B, V>
where
    T: Score + Scalar,
    B: Fn(usize) -> T,
    V: FnMut(usize, usize, T, T) -> T,
{
    fn run(mut self, screen: Option<&Screen>) -> bool {
        let width = self.left.first().map_or(0, |row| row.len())
            - self.metric.trailing().min(self.left.len());
        match screen.filter(|screen| screen.takes(width) && !self.right.is_empty()) {
            Some(screen) => self.screen(screen, width),
            None => self.compute(0..self.left.len()),
        }
        self.numbers
    }

    /// Score all pairs of some rows.
    fn compute(&mut self, rows: Range<usize>) {
        let Chooser {
            left,
            right,
            frame,
            bars,
            ..
        } = *self;
        let (metric, row_bar, visit) = (&self.metric, &self.row_bar, &mut self.visit);
        match metric {
            Exact::Cosine(_) | Exact::Inner => {
                let unit = match metric {
                    Exact::Cosine(unit) => Some(unit),
                    _ => None,
                };
                let mut chooser = ProductChooser {
                    first: rows.start,
                    frame,
                    bars,
                    unit,
                    row_bar,
                    visit,
                    numbers: true,
                };
                product::tile(&left[rows], right, &mut chooser);
                self.numbers &= chooser.numbers;
            }
            Exact::Euclidean { root } => {
                let n = rows.len() * right.len();
                let mut scores = T::scratch().take();
                scores.resize(n.max(scores.len()), T::default());
                let mut out: Vec<&mut [T]> = scores[..n].chunks_mut(right.len().max(1)).collect();
                finish::products(&left[rows.clone()], right, &mut out);
                finish::finish_euclidean(&left[rows.clone()], right, *root, &mut out);
                for (row, scores) in rows.zip(&out) {
                    self.numbers &= scores
                        .iter()
                        .all(|score| score.partial_cmp(score).is_some());
                    let visit = &mut |c, key, bar| visit(row, c, key, bar);
                    scan(scores, row_bar(row), bars, frame.largest, visit);
                }
                if scores.capacity() * size_of::<T>() <= product::KEPT_BYTES {
                    T::scratch().set(scores);
                }
            }
        }
    }

    fn screen(&mut self, screen: &Screen, width: usize) {
        let (n_rows, corner) = (self.left.len(), self.frame.corner);
        let left = screen.side(corner.0, self.left, width);
        let right = screen.side(corner.1, self.right, width);
        let mut columns = self.columns(&right);
        let (mut found, mut words) = (
            Vec::new(),
            vec![[0; ROWS]; screen.copied(width).div_ceil(4)],
        );
        let (mut looked_at, mut screened, mut unscreened, mut row) = (0, 0, 0, 0);
        let most = (ROWS * right.len / RARE).max(2 * CHAINS);
        while row < n_rows {
            let height = ROWS.min(n_rows - row);
            pack(&left, row, height, screen.level(), &mut words);
            let group = Group {
                words: &words,
                bounds: self.bounds(&left, row, height),
                height,
            };
            let wanted = |panel| {
                self.frame.codes.is_none()
                    || self
                        .frame
                        .counts_any(row..row + height, right.rows_of(panel))
            };
            found.clear();
            if find(
                screen.level(),
                &group,
                &right,
                &columns,
                (&wanted, most),
                &mut found,
            ) {
                looked_at += self.look(row, &found, &right, &mut columns);
                screened += height * right.len;
                row += height;
            } else {
                let rows = row..n_rows.min(row + STRIPE);
                unscreened += rows.len() * right.len;
                row = rows.end;
                self.compute(rows);
                columns = self.columns(&right);
            }
        }
        let largest = if screened > 0 {
            largest_bound(&left, &right)
        } else {
            0.0
        };
        let tally = screen.tally();
        tally.note(screened - looked_at, looked_at, largest);
        tally
            .unscreened
            .fetch_add(unscreened as u64, std::sync::atomic::Ordering::Relaxed);
    }

    /// Compute pairs that may pass, and visit them; return how many.
    fn look(
        &mut self,
        first: usize,
        found: &[(u32, u32)],
        side: &Side<'_>,
        columns: &mut [Columns],
    ) -> usize {
        let place = |&(row, column): &(u32, u32)| (first + row as usize, column as usize);
        let mut n_computed = 0;
        let mut counted = found
            .iter()
            .map(place)
            .filter(|&(r, c)| self.frame.counts(r, c))
            .peekable();
        let trailing = self.metric.trailing();
        let (left, right) = (self.left, self.right);
        while counted.peek().is_some() {
            let mut few = [(0, 0); CHAINS];
            let mut n_few = 0;
            for pair in counted.by_ref().take(CHAINS) {
                few[n_few] = pair;
                n_few += 1;
            }
            let absent = few[0];
            few[n_few..].fill(absent);
            let heads = few.map(|(r, _)| &left[r][..left[r].len() - trailing]);
            let others = few.map(|(_, c)| &right[c][..right[c].len() - trailing]);
            // SAFETY: `product::tile`, which these follow, panics without; `run` is for machines that have it.
            let products = unsafe { T::chains(heads, others) };
            for (&(r, c), &product) in few[..n_few].iter().zip(&products) {
                let score = self.metric.finish((r, left[r]), (c, right[c]), product);
                self.numbers &= score.partial_cmp(&score).is_some();
                let key = if self.frame.largest {
                    score.negative()
                } else {
                    score
                };
                let bar = (self.row_bar)(r);
                if key <= bar || key <= self.bars[c].get() {
                    (self.visit)(r, c, key, bar);
                    let at = side.skipped + c;
                    let bar = self.metric.bar(self.bars[c].get(), 0.0, self.frame.largest);
                    columns[at / LANES].bar[at % LANES] = bar;
                }
            }
            n_computed += n_few;
        }
        n_computed
    }

    /// What the bound needs of a few rows.
    fn bounds(&self, side: &Side<'_>, first: usize, height: usize) -> [Bounds; ROWS] {
        let mut bounds = [Bounds::default(); ROWS];
        for (r, bounds) in bounds.iter_mut().enumerate().take(height) {
            let (panel, lane) = side.place(first + r);
            let (largest, row) = (self.frame.largest, first + r);
            let scale = panel.scale[lane];
            *bounds = Bounds {
                scale: if self.metric.turns(largest) {
                    -scale
                } else {
                    scale
                },
                error: panel.error[lane],
                copy: panel.copy[lane],
                bar: self
                    .metric
                    .bar((self.row_bar)(row), self.metric.near(row), largest),
                goal: self.metric.goal(self.left[row], largest),
                tail: panel.tail[lane],
            };
        }
        bounds
    }

    /// What the bound needs of the columns; what is no column of the tile reaches no goal.
    fn columns(&self, side: &Side<'_>) -> Vec<Columns> {
        let absent = Columns {
            scale: [0.0; LANES],
            reach: [0.0; LANES],
            error: [f32::NEG_INFINITY; LANES],
            shift: [0.0; LANES],
            bar: [f32::NEG_INFINITY; LANES],
            tail: [0.0; LANES],
        };
        let mut columns = vec![absent; side.panels.len()];
        for (c, column) in self.right.iter().enumerate() {
            let at = side.skipped + c;
            let (panel, place, lane) = (
                &side.panels[at / LANES],
                &mut columns[at / LANES],
                at % LANES,
            );
            place.scale[lane] = panel.scale[lane];
            place.reach[lane] = panel.reach[lane];
            place.tail[lane] = panel.tail[lane];
            place.error[lane] = panel.error[lane];
            place.shift[lane] = self.metric.shift(column, self.frame.largest);
            place.bar[lane] = self.metric.bar(self.bars[c].get(), 0.0, self.frame.largest);
        }
        columns
    }
}

/// The largest bound of the error of a product of two sides, of the rows that can be compared.
fn largest_bound(left: &Side<'_>, right: &Side<'_>) -> f32 {
    let most = |side: &Side<'_>| {
        let mut most = [0.0_f32; 4];
        for row in 0..side.len {
            let (panel, lane) = side.place(row);
            let values = [panel.error, panel.reach, panel.copy, panel.tail].map(|of| of[lane]);
            if values.iter().all(|value| value.is_finite()) {
                most = std::array::from_fn(|at| most[at].max(values[at]));
            }
        }
        most
    };
    let ([error, _, copy, tail], [other, reach, _, rest]) = (most(left), most(right));
    error * reach + copy * other + tail * rest
}
