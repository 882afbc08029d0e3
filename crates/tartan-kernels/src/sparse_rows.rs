//! Distances of rows of which most values are 0: cosine of unit rows, Jaccard of the positions that are set.
//!
//! A row comes as words of one length: its positions, ascending, and words of ones behind the last; for cosine then as
//! many words with the bits of the values. Columns of a tile are taken [`PANEL`] at a time and turned into lists: which
//! of them have a position, with which value. A row of the left side then meets the lists of its own positions from the
//! first to the last, and adds to one sum for each column of the panel. Positions that many columns have are kept as
//! vectors with zeros, which is quicker to add than a list.
//!
//! A sum is made by fused multiply-adds in the order of positions, and what is 0 changes no sum: so the product of two
//! rows has the bits that [`product`](crate::product) gives the same rows with all their zeros, and depends neither on
//! the tile nor on which lists are vectors.

use std::cell::Cell;

use crate::bits::BitMetric;
use crate::dense::listed::ListedPairs;
use crate::dense::{CpuVectors, Real};

/// Columns that are turned into lists together.
/// By judgement: 512 sums stay in the first cache, lists and vectors of some hundred positions in the second. `tartan
/// bench vectors parts=sparse` holds the time.
pub(crate) const PANEL: usize = 512;

/// A position that one in so many columns of a panel has is kept as a vector.
/// By judgement: a sum of a list takes a cycle or two, and so do 16 of a vector with what is loaded for them.
const SHARE: usize = 16;

/// In place of the length of a list that is a vector.
const DENSE: u32 = u32::MAX;

/// Positions of a row are below this; what is behind its last one is not.
/// By judgement: a thread keeps 8 bytes for each, 128 MB for this many.
pub const MOST_POSITIONS: usize = 1 << 24;

/// A word of a prepared row, and the number that it may hold: u32 with f32, u64 with f64.
pub trait Word: Copy + Eq + Send + Sync {
    /// The number.
    type Value: Weight;
    #[doc(hidden)]
    fn position(self) -> Option<u32>;
    #[doc(hidden)]
    fn value(self) -> Self::Value;
}

/// f32 or f64.
pub trait Weight: Real {
    #[doc(hidden)]
    fn fused(self, other: Self, sum: Self) -> Self;
}

macro_rules! word {
    ($word:ty, $value:ty) => {
        impl Word for $word {
            type Value = $value;
            #[inline(always)]
            fn position(self) -> Option<u32> {
                u32::try_from(self)
                    .ok()
                    .filter(|&position| (position as usize) < MOST_POSITIONS)
            }
            #[inline(always)]
            fn value(self) -> $value {
                <$value>::from_bits(self)
            }
        }

        impl Weight for $value {
            #[inline(always)]
            fn fused(self, other: Self, sum: Self) -> Self {
                self.mul_add(other, sum)
            }
        }
    };
}

word!(u32, f32);
word!(u64, f64);

/// Rows one after the other, without what is behind them.
struct Rows<T> {
    ends: Vec<usize>,
    positions: Vec<u32>,
    values: Vec<T>,
}

impl<T: Real> Rows<T> {
    /// Read words; `value` returns that of a place in a row.
    ///
    /// # Panics
    ///
    /// If positions of a row do not ascend.
    fn new<W: Word>(
        rows: &[&[W]],
        width: impl Fn(&[W]) -> usize,
        value: impl Fn(&[W], usize) -> T,
    ) -> Self {
        let mut found = Rows {
            ends: vec![0],
            positions: Vec::new(),
            values: Vec::new(),
        };
        for row in rows {
            let first = found.positions.len();
            let some = row[..width(row)].iter().map_while(|word| word.position());
            found.positions.extend(some);
            let own = &found.positions[first..];
            assert!(own.is_sorted_by(|a, b| a < b), "positions ascend");
            found.values.extend((0..own.len()).map(|at| value(row, at)));
            found.ends.push(found.positions.len());
        }
        found
    }

    /// Rows with values, those of the second half of the words.
    fn weighted<W: Word<Value = T>>(rows: &[&[W]]) -> Self {
        Self::new(
            rows,
            |row| row.len() / 2,
            |row, at| row[row.len() / 2 + at].value(),
        )
    }

    /// Rows of positions alone, all of value 1.
    fn plain<W: Word>(rows: &[&[W]]) -> Self {
        Self::new(rows, <[W]>::len, |_, _| T::from_f64(1.0))
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn row(&self, at: usize) -> (&[u32], &[T]) {
        let range = self.ends[at]..self.ends[at + 1];
        (&self.positions[range.clone()], &self.values[range])
    }

    fn count(&self, at: usize) -> usize {
        self.ends[at + 1] - self.ends[at]
    }
}

/// Where the list of a position begins and how long it is.
type Span = (u32, u32);

thread_local! {
    /// Of all positions, empty between tiles: a thread has them for its next tile.
    static SPANS: Cell<Vec<Span>> = const { Cell::new(Vec::new()) };
}

/// Columns side by side, a list for each position that one of them has.
struct Lists<T> {
    spans: Vec<Span>,
    /// Positions that have a list.
    known: Vec<u32>,
    columns: Vec<u16>,
    values: Vec<T>,
}

impl<T: Weight> Lists<T> {
    fn new(sides: [&Rows<T>; 2]) -> Self {
        let last = sides.iter().flat_map(|rows| &rows.positions).max();
        let mut spans = SPANS.take();
        let n_positions = last.map_or(0, |&last| last as usize + 1);
        spans.resize(n_positions.max(spans.len()), (0, 0));
        Lists {
            spans,
            known: Vec::new(),
            columns: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Take the lists of some columns, at most [`PANEL`], in place of those that are there.
    fn fill(&mut self, rows: &Rows<T>, first: usize, n_columns: usize) {
        self.clear();
        for &position in &rows.positions[rows.ends[first]..rows.ends[first + n_columns]] {
            let span = &mut self.spans[position as usize];
            if span.1 == 0 {
                self.known.push(position);
            }
            span.1 += 1;
        }
        let mut total = 0;
        for &position in &self.known {
            let span = &mut self.spans[position as usize];
            let (begin, length) = (total, span.1 as usize);
            let is_dense = length * SHARE > PANEL;
            total += if is_dense { PANEL } else { length };
            *span = (begin as u32, if is_dense { DENSE } else { 0 });
        }
        self.columns.resize(total, 0);
        self.values.resize(total, T::default());
        for column in 0..n_columns {
            let (positions, values) = rows.row(first + column);
            for (&position, &value) in positions.iter().zip(values) {
                let span = &mut self.spans[position as usize];
                if span.1 == DENSE {
                    self.values[span.0 as usize + column] = value;
                } else {
                    let at = (span.0 + span.1) as usize;
                    (self.columns[at], self.values[at]) = (column as u16, value);
                    span.1 += 1;
                }
            }
        }
    }

    fn clear(&mut self) {
        for position in self.known.drain(..) {
            self.spans[position as usize] = (0, 0);
        }
        self.columns.clear();
        self.values.clear();
    }
}

/// Add the products of one row with the columns of the lists to their sums.
#[inline(always)]
fn add_row<T: Weight>(
    lists: &Lists<T>,
    (positions, values): (&[u32], &[T]),
    sums: &mut [T; PANEL],
) {
    for (&position, &value) in positions.iter().zip(values) {
        let (begin, length) = lists.spans[position as usize];
        let begin = begin as usize;
        if length == DENSE {
            let column = &lists.values[begin..begin + PANEL];
            for (sum, &other) in sums.iter_mut().zip(column) {
                *sum = value.fused(other, *sum);
            }
        } else {
            let list = begin..begin + length as usize;
            for (&column, &other) in lists.columns[list.clone()].iter().zip(&lists.values[list]) {
                let sum = &mut sums[column as usize % PANEL];
                *sum = value.fused(other, *sum);
            }
        }
    }
}

/// Give the products of all rows of two sides, a row and up to [`PANEL`] columns at a time, to `finish`.
#[inline(always)]
fn walk<T: Weight>(left: &Rows<T>, right: &Rows<T>, finish: &mut impl FnMut(usize, usize, &[T])) {
    let mut lists = Lists::new([left, right]);
    for first in (0..right.len()).step_by(PANEL) {
        let n_columns = PANEL.min(right.len() - first);
        lists.fill(right, first, n_columns);
        for row in 0..left.len() {
            let mut sums = [T::default(); PANEL];
            add_row(&lists, left.row(row), &mut sums);
            finish(row, first, &sums[..n_columns]);
        }
    }
    lists.clear();
    SPANS.set(lists.spans);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn walk_avx512<T: Weight>(
    left: &Rows<T>,
    right: &Rows<T>,
    finish: &mut impl FnMut(usize, usize, &[T]),
) {
    walk(left, right, finish);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn walk_avx2<T: Weight>(
    left: &Rows<T>,
    right: &Rows<T>,
    finish: &mut impl FnMut(usize, usize, &[T]),
) {
    walk(left, right, finish);
}

/// The same with the widest vectors of this machine; without AVX2 each sum is made by a function, which is slow.
fn products<T: Weight>(
    left: &Rows<T>,
    right: &Rows<T>,
    finish: &mut impl FnMut(usize, usize, &[T]),
) {
    match CpuVectors::widest() {
        // SAFETY: `widest` found every feature that this level is compiled for.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx512 => unsafe { walk_avx512(left, right, finish) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx2 => unsafe { walk_avx2(left, right, finish) },
        _ => walk(left, right, finish),
    }
}

/// Sum the products of one pair of rows: the plain form of [`products`], with the same bits.
fn product<T: Weight>((first, a): (&[u32], &[T]), (second, b): (&[u32], &[T])) -> T {
    let (mut i, mut j, mut sum) = (0, 0, T::default());
    while i < first.len() && j < second.len() {
        let (left, right) = (first[i], second[j]);
        if left == right {
            sum = a[i].fused(b[j], sum);
        }
        i += usize::from(left <= right);
        j += usize::from(right <= left);
    }
    sum
}

/// Turn the product of two unit rows into their cosine distance: 1 - x, clipped to 0 to 2, and exactly 0 of equal rows.
///
/// `near` is the largest distance that a row equal to the left one may have by rounding.
#[inline(always)]
fn finish_cosine<T: Real>(product: T, near: T, equal: impl FnOnce() -> bool) -> T {
    let (zero, one, two) = (T::default(), T::from_f64(1.0), T::from_f64(2.0));
    let distance = one - product;
    let distance = if distance < zero { zero } else { distance };
    let distance = if distance > two { two } else { distance };
    if distance > zero && distance <= near && equal() {
        return zero;
    }
    distance
}

/// How far from 1 the product of a unit row with itself may be: by its norm, which is of rounded numbers, and by sums.
fn rounding<T: Real>(values: &[T]) -> T {
    let unit = if size_of::<T>() == 4 {
        f64::from(f32::EPSILON)
    } else {
        f64::EPSILON
    };
    let squares = values.iter().map(|value| value.to_f64() * value.to_f64());
    T::from_f64((1.0 - squares.sum::<f64>()).abs() + (values.len() + 8) as f64 * unit)
}

/// Write the cosine distances of unit rows with rows.
///
/// # Panics
///
/// If shapes disagree, or positions do not ascend.
pub fn cosine<W: Word>(left: &[&[W]], right: &[&[W]], out: &mut [&mut [W::Value]]) {
    let (left, right) = (Rows::weighted(left), Rows::weighted(right));
    let near: Vec<_> = (0..left.len())
        .map(|row| rounding(left.row(row).1))
        .collect();
    products(&left, &right, &mut |row, first, sums| {
        let scores = &mut out[row][first..first + sums.len()];
        for (at, (score, &sum)) in scores.iter_mut().zip(sums).enumerate() {
            *score = finish_cosine(sum, near[row], || left.row(row) == right.row(first + at));
        }
    });
}

/// Write the Jaccard distances of rows of positions: exact counts, rounded once.
///
/// # Panics
///
/// As [`cosine`].
pub fn jaccard<S: Real>(left: &[&[u32]], right: &[&[u32]], out: &mut [&mut [S]]) {
    // Counts are exact in f32: a row has at most 2^24 positions.
    let (left, right) = (Rows::<f32>::plain(left), Rows::<f32>::plain(right));
    products(&left, &right, &mut |row, first, sums| {
        let scores = &mut out[row][first..first + sums.len()];
        for (at, (score, &sum)) in scores.iter_mut().zip(sums).enumerate() {
            *score = finish_jaccard((left.count(row), right.count(first + at)), sum);
        }
    });
}

#[inline(always)]
fn finish_jaccard<S: Real>((a, b): (usize, usize), common: f32) -> S {
    S::from_f64(BitMetric::Jaccard.score((a as u32, b as u32), common as u32, 0))
}

/// Write the distances that [`cosine`] gives listed pairs, bit for bit.
///
/// # Panics
///
/// As [`cosine`].
pub fn cosine_listed<W: Word>(pairs: ListedPairs<'_, W>, out: &mut [W::Value]) {
    for (at, score) in out.iter_mut().enumerate() {
        let (left, right) = pairs.pair(at);
        let rows = Rows::weighted(&[left, right]);
        let (a, b) = (rows.row(0), rows.row(1));
        *score = finish_cosine(product(a, b), rounding(a.1), || a == b);
    }
}

/// Write the distances that [`jaccard`] gives listed pairs, bit for bit.
///
/// # Panics
///
/// As [`cosine`].
pub fn jaccard_listed<S: Real>(pairs: ListedPairs<'_, u32>, out: &mut [S]) {
    for (at, score) in out.iter_mut().enumerate() {
        let (left, right) = pairs.pair(at);
        let rows = Rows::<f32>::plain(&[left, right]);
        let common = product(rows.row(0), rows.row(1));
        *score = finish_jaccard((rows.count(0), rows.count(1)), common);
    }
}

#[cfg(test)]
mod tests;
