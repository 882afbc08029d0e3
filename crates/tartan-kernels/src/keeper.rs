//! What a reduced run keeps of a matrix: chosen from each tile while it is in the cache, against running bars.
//!
//! [`Best`] remembers the k best scores of each item of a range, in any order of arrival and from any number of
//! threads. The k-th best is the item's *bar*: a score beyond it is dropped after one vector comparison. Bars only
//! rise, so what is dropped is never missed. [`choose`] reads a tile once for its rows and its columns, [`beyond`]
//! against one limit.
//!
//! Preference is by *key*, the score or, where large scores are good, its negative; the smaller index wins ties.
//! NaN is never chosen. An infinite key counts as the largest finite one, so that it still beats no score.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::dense::finish::{are_numbers, UnitRows};
use crate::dense::CpuVectors;
use crate::product::{self, Consumer, Scalar};

#[cfg(test)]
mod tests;

/// Code of a pair whose score counts.
pub const DONE: u8 = 1;

/// Items that share a lock.
/// By judgement: fewer locks than items, and more than threads ever meet at. `tartan bench vectors parts=top` holds the
/// time.
const GROUP: usize = 64;

/// Scores that are compared before one looks whether any of them passes.
/// By arithmetic: four vectors of 16 float32, between which one branch is not felt. `tartan bench vectors parts=top`
/// holds the time.
const LANES: usize = 64;

const NO_ID: u32 = u32::MAX;

/// f32 or f64.
pub trait Score: Copy + PartialOrd + Send + Sync {
    #[doc(hidden)]
    const WORST: Self;
    #[doc(hidden)]
    const BEST: Self;
    #[doc(hidden)]
    const LARGEST: Self;
    #[doc(hidden)]
    fn from_f64(value: f64) -> Self;
    #[doc(hidden)]
    fn to_f64(self) -> f64;
    #[doc(hidden)]
    fn negative(self) -> Self;
}

macro_rules! score {
    ($real:ty) => {
        impl Score for $real {
            const WORST: Self = <$real>::INFINITY;
            const BEST: Self = <$real>::NEG_INFINITY;
            const LARGEST: Self = <$real>::MAX;
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $real
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn negative(self) -> Self {
                -self
            }
        }
    };
}

score!(f32);
score!(f64);

/// Which pairs of a matrix a tile holds.
#[derive(Clone, Copy)]
pub struct Tile<'a, T> {
    /// Scores, row by row.
    pub scores: &'a [&'a [T]],
    /// Codes of the same shape; only pairs that are [`DONE`] count. None for all.
    pub codes: Option<&'a [&'a [u8]]>,
    /// Indices of the items of the first pair.
    pub corner: (usize, usize),
    /// Whether large scores are good.
    pub largest: bool,
    /// Whether an item compared with itself is passed over.
    pub skip_self: bool,
}

impl<'a, T> Tile<'a, T> {
    fn check(&self) {
        let width = self.scores.first().map_or(0, |row| row.len());
        let codes = self.codes.unwrap_or(&[]);
        let rows = self.scores.len() == codes.len() || self.codes.is_none();
        let equal = self.scores.iter().all(|row| row.len() == width)
            && codes.iter().all(|row| row.len() == width);
        assert!(rows && equal, "scores and codes differ in shape");
    }

    fn frame(&self) -> TileContext<'a> {
        TileContext {
            codes: self.codes,
            corner: self.corner,
            largest: self.largest,
            skip_self: self.skip_self,
        }
    }
}

/// What is known of the pairs of a tile beside their scores; see [`Tile`].
#[derive(Clone, Copy)]
pub struct TileContext<'a> {
    pub codes: Option<&'a [&'a [u8]]>,
    pub corner: (usize, usize),
    pub largest: bool,
    pub skip_self: bool,
}

impl TileContext<'_> {
    #[inline(always)]
    pub(crate) fn counts(&self, row: usize, column: usize) -> bool {
        let itself = self.skip_self && self.corner.0 + row == self.corner.1 + column;
        !itself && self.codes.is_none_or(|codes| codes[row][column] == DONE)
    }

    /// Whether any pair of a block counts.
    pub(crate) fn counts_any(&self, rows: Range<usize>, columns: Range<usize>) -> bool {
        product::any_has(self.codes, DONE, rows, columns)
    }

    pub(crate) fn check(&self, n_rows: usize, n_columns: usize) {
        let fits = |codes: &[&[u8]]| {
            codes.len() == n_rows && codes.iter().all(|row| row.len() == n_columns)
        };
        assert!(
            self.codes.is_none_or(fits),
            "rows and codes differ in shape"
        );
    }
}

/// Positions in a tile, of rows and of columns side by side.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub rows: Vec<i64>,
    pub columns: Vec<i64>,
}

impl Places {
    #[inline(always)]
    pub(crate) fn push(&mut self, row: usize, column: usize) {
        self.rows.push(row as i64);
        self.columns.push(column as i64);
    }
}

/// Pairs with their scores.
#[derive(Debug, PartialEq)]
pub struct ScoredPairs<T> {
    pub items: Vec<i64>,
    pub ids: Vec<i64>,
    pub scores: Vec<T>,
}

impl<T> Default for ScoredPairs<T> {
    fn default() -> Self {
        let (items, ids, scores) = Default::default();
        ScoredPairs { items, ids, scores }
    }
}

/// The running k best of each of some consecutive items.
pub struct Best<T> {
    first: usize,
    k: usize,
    n_items: usize,
    /// The key that a score must reach, as bits of an f64; what is worse cannot be among the best.
    bars: Vec<AtomicU64>,
    groups: Vec<Mutex<Ranks<T>>>,
}

/// Keys and other ends of the best pairs of a group of items, k a piece, best first.
struct Ranks<T> {
    keys: Vec<T>,
    ids: Vec<u32>,
}

impl<T: Score> Best<T> {
    /// Nothing is known of items `first .. first + n_items` yet.
    pub fn new(first: usize, n_items: usize, k: usize) -> Self {
        assert!(k > 0, "k must be positive");
        let group = |start: usize| {
            let count = GROUP.min(n_items - start) * k;
            Mutex::new(Ranks {
                keys: vec![T::WORST; count],
                ids: vec![NO_ID; count],
            })
        };
        let worst = f64::INFINITY.to_bits();
        Best {
            first,
            k,
            n_items,
            bars: (0..n_items).map(|_| AtomicU64::new(worst)).collect(),
            groups: (0..n_items).step_by(GROUP).map(group).collect(),
        }
    }

    /// Whether all items `start .. start + count` are known here.
    pub fn covers(&self, start: usize, count: usize) -> bool {
        start >= self.first && start + count <= self.first + self.n_items
    }

    /// Whether pairs (items[m], ids[m]) are among the best of their items.
    pub fn holds(&self, items: &[i64], ids: &[i64]) -> Vec<bool> {
        let pair = |(&item, &id): (&i64, &i64)| {
            let at = item as usize - self.first;
            let group = self.lock(at);
            let start = at % GROUP * self.k;
            group.ids[start..start + self.k].contains(&(id as u32))
        };
        items.iter().zip(ids).map(pair).collect()
    }

    /// The best pairs of some items whose other end lies in a range, in the order of the items and best first.
    pub fn pairs(&self, items: Range<usize>, ids: Range<usize>, largest: bool) -> ScoredPairs<T> {
        assert!(self.covers(items.start, items.len()), "items out of range");
        let mut found = ScoredPairs::default();
        for item in items {
            let at = item - self.first;
            let group = self.lock(at);
            let start = at % GROUP * self.k;
            for place in start..start + self.k {
                let (key, id) = (group.keys[place], group.ids[place]);
                if id != NO_ID && ids.contains(&(id as usize)) {
                    found.items.push(item as i64);
                    found.ids.push(i64::from(id));
                    found
                        .scores
                        .push(if largest { key.negative() } else { key });
                }
            }
        }
        found
    }

    fn bar(&self, at: usize) -> T {
        T::from_f64(f64::from_bits(self.bars[at].load(Ordering::Relaxed)))
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Ranks<T>> {
        // A panic elsewhere leaves whole ranks behind: nothing here panics between two writes.
        self.groups[at / GROUP]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Take (key, id) into the best of an item if it belongs there; return whether it does, and the bar then.
    fn offer(&self, at: usize, key: T, id: u32) -> (bool, T) {
        let rank = |key: T| if key > T::LARGEST { T::LARGEST } else { key };
        let ranks_before = |other: T, other_id: u32| {
            rank(key) < rank(other) || (rank(key) == rank(other) && id < other_id)
        };
        let mut group = self.lock(at);
        let start = at % GROUP * self.k;
        let Ranks { keys, ids } = &mut *group;
        let (keys, ids) = (
            &mut keys[start..start + self.k],
            &mut ids[start..start + self.k],
        );
        let last = self.k - 1;
        if !ranks_before(keys[last], ids[last]) {
            return (ids[last] == id, self.bar(at));
        }
        if ids.contains(&id) {
            return (true, self.bar(at)); // a pair that comes again counts once
        }
        let mut place = last;
        while place > 0 && ranks_before(keys[place - 1], ids[place - 1]) {
            place -= 1;
        }
        keys.copy_within(place..last, place + 1);
        ids.copy_within(place..last, place + 1);
        (keys[place], ids[place]) = (key, id);
        // Infinite keys are ranked as the largest finite one: a bar there must let them pass.
        let bar = if keys[last] < T::LARGEST {
            keys[last]
        } else {
            T::WORST
        };
        self.bars[at].store(bar.to_f64().to_bits(), Ordering::Relaxed);
        (true, bar)
    }
}

/// The best that the scores of a tile are offered to, and the bars of its columns.
pub(crate) struct Offers<'a, T> {
    frame: TileContext<'a>,
    rows: &'a Best<T>,
    columns: Option<&'a Best<T>>,
    pub(crate) bars: Vec<Cell<T>>,
}

impl<'a, T: Score> Offers<'a, T> {
    pub(crate) fn new(
        frame: TileContext<'a>,
        (n_rows, n_columns): (usize, usize),
        rows: &'a Best<T>,
        columns: Option<&'a Best<T>>,
    ) -> Self {
        let (row, column) = frame.corner;
        assert!(rows.covers(row, n_rows), "rows out of range");
        let covered = columns.is_none_or(|best| best.covers(column, n_columns));
        assert!(covered, "columns out of range");
        let bar = |c: usize| columns.map_or(T::BEST, |best| best.bar(column + c - best.first));
        Offers {
            frame,
            rows,
            columns,
            bars: (0..n_columns).map(|c| Cell::new(bar(c))).collect(),
        }
    }

    #[inline(always)]
    pub(crate) fn row_bar(&self, r: usize) -> T {
        self.rows.bar(self.frame.corner.0 + r - self.rows.first)
    }

    /// Offer one score that reaches a bar; return the bar of its row then, and whether row and column keep it.
    pub(crate) fn offer(&self, r: usize, c: usize, key: T, bar: T) -> (T, bool, bool) {
        if !self.frame.counts(r, c) {
            return (bar, false, false);
        }
        let (row, column) = (self.frame.corner.0 + r, self.frame.corner.1 + c);
        let mut by_column = false;
        if let Some(best) = self.columns.filter(|_| key <= self.bars[c].get()) {
            let (kept, bar) = best.offer(column - best.first, key, row as u32);
            self.bars[c].set(bar);
            by_column = kept;
        }
        if key > bar {
            return (bar, false, by_column);
        }
        let (kept, bar) = self.rows.offer(row - self.rows.first, key, column as u32);
        (bar, kept, by_column)
    }
}

/// Choose from a tile what is among the best of its rows and, where `columns` is given, of its columns so far.
///
/// What is returned may have been beaten since: [`Best::holds`] tells.
pub fn choose<T: Score>(
    tile: Tile<'_, T>,
    rows: &Best<T>,
    columns: Option<&Best<T>>,
) -> (Places, Places) {
    tile.check();
    let width = tile.scores.first().map_or(0, |row| row.len());
    let offers = Offers::new(tile.frame(), (tile.scores.len(), width), rows, columns);
    let mut found = (Places::default(), Places::default());
    for (r, scores) in tile.scores.iter().enumerate() {
        let bar = offers.row_bar(r);
        scan(
            scores,
            bar,
            &offers.bars,
            tile.largest,
            &mut |c, key, bar| {
                let (bar, by_row, by_column) = offers.offer(r, c, key, bar);
                if by_row {
                    found.0.push(r, c);
                }
                if by_column {
                    found.1.push(r, c);
                }
                bar
            },
        );
    }
    found
}

/// Turns products into cosine distances and visits those that reach the bar of their row or column.
pub(crate) struct ProductChooser<'a, T, B, V> {
    /// The row of the tile that is the first here.
    pub(crate) first: usize,
    pub(crate) frame: TileContext<'a>,
    pub(crate) bars: &'a [Cell<T>],
    /// What makes distances of the products; None: they are scores as they are.
    pub(crate) unit: Option<&'a UnitRows<'a, T>>,
    pub(crate) row_bar: B,
    pub(crate) visit: V,
    /// Whether no score was NaN.
    pub(crate) numbers: bool,
}

impl<T, B, V> Consumer<T> for ProductChooser<'_, T, B, V>
where
    T: Score + Scalar,
    B: Fn(usize) -> T,
    V: FnMut(usize, usize, T, T) -> T,
{
    #[inline(always)]
    fn wants(&self, rows: Range<usize>, columns: Range<usize>) -> bool {
        self.frame
            .counts_any(self.first + rows.start..self.first + rows.end, columns)
    }

    #[inline(always)]
    fn take(&mut self, row: usize, first: usize, products: &mut [T]) {
        let row = self.first + row;
        self.numbers &= match self.unit {
            Some(unit) => unit.finish(row, first, products),
            None => are_numbers(products),
        };
        let bar = (self.row_bar)(row);
        let bars = &self.bars[first..first + products.len()];
        let visit = &mut |c, key, bar| (self.visit)(row, first + c, key, bar);
        if self.frame.largest {
            scan_with::<T, true>(products, bar, bars, visit);
        } else {
            scan_with::<T, false>(products, bar, bars, visit);
        }
    }
}

/// Choose from a tile the scores that are as good as `limit` or better, row by row.
pub fn beyond<T: Score>(tile: Tile<'_, T>, limit: T) -> Places {
    tile.check();
    let width = tile.scores.first().map_or(0, |row| row.len());
    let (frame, largest) = (tile.frame(), tile.largest);
    let limit = if largest { limit.negative() } else { limit };
    let mut found = Places::default();
    let none = vec![Cell::new(T::BEST); width];
    for (r, scores) in tile.scores.iter().enumerate() {
        scan(scores, limit, &none, largest, &mut |c, key, bar| {
            // A score of -inf reaches the bars of columns, which are not asked for.
            if key <= bar && frame.counts(r, c) {
                found.push(r, c);
            }
            bar
        });
    }
    found
}

/// Visit the scores of a row whose key reaches the bar of the row or of their column; a visit returns the row's new
/// bar.
pub(crate) fn scan<T: Score>(
    scores: &[T],
    bar: T,
    columns: &[Cell<T>],
    largest: bool,
    visit: &mut impl FnMut(usize, T, T) -> T,
) {
    match (CpuVectors::widest(), largest) {
        // SAFETY: `widest` found every feature that this level is compiled for.
        #[cfg(target_arch = "x86_64")]
        (CpuVectors::Avx512, true) => unsafe {
            scan_avx512::<T, true>(scores, bar, columns, visit)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (CpuVectors::Avx512, false) => unsafe {
            scan_avx512::<T, false>(scores, bar, columns, visit)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (CpuVectors::Avx2, true) => unsafe { scan_avx2::<T, true>(scores, bar, columns, visit) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (CpuVectors::Avx2, false) => unsafe { scan_avx2::<T, false>(scores, bar, columns, visit) },
        (_, true) => scan_with::<T, true>(scores, bar, columns, visit),
        (_, false) => scan_with::<T, false>(scores, bar, columns, visit),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,popcnt")]
fn scan_avx512<T: Score, const LARGEST: bool>(
    scores: &[T],
    bar: T,
    columns: &[Cell<T>],
    visit: &mut impl FnMut(usize, T, T) -> T,
) {
    scan_with::<T, LARGEST>(scores, bar, columns, visit);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,popcnt")]
fn scan_avx2<T: Score, const LARGEST: bool>(
    scores: &[T],
    bar: T,
    columns: &[Cell<T>],
    visit: &mut impl FnMut(usize, T, T) -> T,
) {
    scan_with::<T, LARGEST>(scores, bar, columns, visit);
}

#[inline(always)]
fn scan_with<T: Score, const LARGEST: bool>(
    scores: &[T],
    mut bar: T,
    columns: &[Cell<T>],
    visit: &mut impl FnMut(usize, T, T) -> T,
) {
    let key_of = |score: T| if LARGEST { score.negative() } else { score };
    let blocks = scores.chunks(LANES).zip(columns.chunks(LANES));
    for (block, (scores, columns)) in blocks.enumerate() {
        let mut hits = 0_u32;
        for (&score, column) in scores.iter().zip(columns) {
            let column = column.get();
            let limit = if bar > column { bar } else { column };
            hits += u32::from(key_of(score) <= limit);
        }
        if hits == 0 {
            continue;
        }
        for (lane, (&score, column)) in scores.iter().zip(columns).enumerate() {
            let key = key_of(score);
            if key <= bar || key <= column.get() {
                bar = visit(block * LANES + lane, key, bar);
            }
        }
    }
}

/// Positions of the k best of each group of entries, sorted by group, key and id.
///
/// Entry m belongs to `groups[m]`, all in `first .. first + n_groups`. NaN is never among the best. O(m) time for
/// the grouping and O(m log) for the order inside groups.
pub fn first_of_groups<T: Score>(
    groups: &[i64],
    ids: &[i64],
    scores: &[T],
    span: (i64, usize),
    k: usize,
    largest: bool,
) -> Vec<i64> {
    let (first, n_groups) = span;
    let key_of = |at: u32| {
        let score = scores[at as usize];
        let key = if largest { score.negative() } else { score };
        if key > T::LARGEST {
            T::LARGEST
        } else {
            key
        }
    };
    let counted = |at: &usize| scores[*at].partial_cmp(&scores[*at]).is_some();
    let mut ends = vec![0_usize; n_groups + 1];
    for at in (0..scores.len()).filter(counted) {
        ends[(groups[at] - first) as usize + 1] += 1;
    }
    for group in 0..n_groups {
        ends[group + 1] += ends[group];
    }
    let mut next = ends.clone();
    let mut ordered = vec![0_u32; ends[n_groups]];
    for at in (0..scores.len()).filter(counted) {
        let place = &mut next[(groups[at] - first) as usize];
        ordered[*place] = at as u32;
        *place += 1;
    }
    let mut found = Vec::new();
    for group in 0..n_groups {
        let members = &mut ordered[ends[group]..ends[group + 1]];
        let by_key = |a: &u32, b: &u32| {
            let by_id = ids[*a as usize].cmp(&ids[*b as usize]);
            key_of(*a)
                .partial_cmp(&key_of(*b))
                .expect("no NaN")
                .then(by_id)
        };
        if members.len() > k {
            members.select_nth_unstable_by(k, by_key);
        }
        let kept = members.len().min(k);
        members[..kept].sort_unstable_by(by_key);
        found.extend(members[..kept].iter().map(|&at| i64::from(at)));
    }
    found
}
