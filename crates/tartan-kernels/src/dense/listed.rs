//! Scores of listed pairs: bit for bit those of a tile, for tiles of which few pairs are wanted.
//!
//! A pair alone has no lanes to fill, and a sum waits for itself. So the sums of [`CHAINS`] pairs grow side by side,
//! each in the order in which the tile adds: the processor then begins an addition in every cycle.

use std::array::from_fn;

use super::finish::{finish_cosine_pair, finish_euclidean_pair};
use super::{last_word, CommonBits, CpuVectors, DifferingBits, Measure, Real, Value, RUN};
use crate::product::{Scalar, CHAINS};

/// Pairs of rows of a tile, by their places.
#[derive(Clone, Copy)]
pub struct ListedPairs<'a, T> {
    left: &'a [&'a [T]],
    right: &'a [&'a [T]],
    rows: &'a [i64],
    columns: &'a [i64],
}

impl<'a, T> ListedPairs<'a, T> {
    /// List pairs; `None` if one is no pair of the tile, or the lists or the rows differ in length.
    pub fn new(
        left: &'a [&'a [T]],
        right: &'a [&'a [T]],
        rows: &'a [i64],
        columns: &'a [i64],
    ) -> Option<Self> {
        let fits = |places: &[i64], n: usize| places.iter().all(|&at| at >= 0 && (at as usize) < n);
        let width = left.first().map_or(0, |row| row.len());
        let equal = left.iter().chain(right).all(|row| row.len() == width);
        let listed = rows.len() == columns.len();
        (equal && listed && fits(rows, left.len()) && fits(columns, right.len())).then_some(Self {
            left,
            right,
            rows,
            columns,
        })
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn places(&self, at: usize) -> (usize, usize) {
        (self.rows[at] as usize, self.columns[at] as usize)
    }

    pub(crate) fn pair(&self, at: usize) -> (&'a [T], &'a [T]) {
        let (row, column) = self.places(at);
        (self.left[row], self.right[column])
    }

    /// Some pairs from one on, without the last positions of their rows; the last pair stands for absent ones.
    fn heads(&self, first: usize, trailing: usize) -> ([&'a [T]; CHAINS], [&'a [T]; CHAINS]) {
        let pairs: [_; CHAINS] = from_fn(|k| self.pair((first + k).min(self.len() - 1)));
        let head = |row: &'a [T]| &row[..row.len() - trailing];
        (pairs.map(|(a, _)| head(a)), pairs.map(|(_, b)| head(b)))
    }
}

/// Write the Manhattan distances.
pub fn manhattan<T: Real, S: Real>(pairs: ListedPairs<'_, T>, out: &mut [S]) {
    add_up::<T::Absolute>(pairs, 0, |at, sum| out[at] = S::from_f64(sum));
}

/// Write the squared Euclidean distances, or their roots, from the differences themselves.
pub fn euclidean<T: Real, S: Real>(pairs: ListedPairs<'_, T>, root: bool, out: &mut [S]) {
    add_up::<T::Squared>(pairs, 0, |at, sum| {
        out[at] = S::from_f64(if root { sum.sqrt() } else { sum });
    });
}

/// Write the Hamming distances.
pub fn hamming<T: Value, S: Real>(pairs: ListedPairs<'_, T>, out: &mut [S]) {
    let length = pairs.left.first().map_or(0, |row| row.len()) as f64;
    add_up::<T::Unequal>(pairs, 0, |at, sum| out[at] = S::from_f64(sum / length));
}

/// Write the Hamming distances of packed bits, whose last word is the number of bits.
pub fn hamming_bits<S: Real>(pairs: ListedPairs<'_, u64>, out: &mut [S]) {
    add_up::<DifferingBits>(pairs, 1, |at, sum| {
        out[at] = S::from_f64(sum / last_word(pairs.pair(at).0));
    });
}

/// Write the Jaccard distances of packed bits, whose last word is the number of ones.
pub fn jaccard_bits<S: Real>(pairs: ListedPairs<'_, u64>, out: &mut [S]) {
    add_up::<CommonBits>(pairs, 1, |at, common| {
        let (a, b) = pairs.pair(at);
        out[at] = S::from_f64(super::jaccard(last_word(a), last_word(b), common));
    });
}

/// Write the cosine distances of unit rows.
///
/// # Panics
///
/// If the machine has no kernel for products ([`crate::product::available`]).
pub fn cosine<T: Scalar>(pairs: ListedPairs<'_, T>, out: &mut [T]) {
    multiply(pairs, 0, |at, product| {
        let (left, right) = pairs.pair(at);
        out[at] = finish_cosine_pair(left, right, product);
    });
}

/// Write the inner products of rows.
///
/// # Panics
///
/// As [`cosine`].
pub fn inner<T: Scalar>(pairs: ListedPairs<'_, T>, out: &mut [T]) {
    multiply(pairs, 0, |at, product| out[at] = product);
}

/// Write the squared Euclidean distances, or their roots, of rows that end in their squared norms.
///
/// # Panics
///
/// As [`cosine`].
pub fn norm_euclidean<T: Scalar>(pairs: ListedPairs<'_, T>, root: bool, out: &mut [T]) {
    multiply(pairs, 1, |at, product| {
        let (left, right) = pairs.pair(at);
        out[at] = finish_euclidean_pair(left, right, root, product);
    });
}

fn multiply<T: Scalar>(
    pairs: ListedPairs<'_, T>,
    trailing: usize,
    mut store: impl FnMut(usize, T),
) {
    assert!(
        crate::product::available(),
        "products need AVX2; ask `available`"
    );
    for first in (0..pairs.len()).step_by(CHAINS) {
        let (left, right) = pairs.heads(first, trailing);
        // SAFETY: the machine has what products need (asserted above).
        let products = unsafe { T::chains(left, right) };
        for (at, &product) in (first..pairs.len()).zip(&products) {
            store(at, product);
        }
    }
}

/// Call `store(pair, sum)` with the sum of each pair.
fn add_up<M: Measure>(
    pairs: ListedPairs<'_, M::Item>,
    trailing: usize,
    mut store: impl FnMut(usize, f64),
) {
    let wide = CpuVectors::widest() > CpuVectors::Baseline;
    for first in (0..pairs.len()).step_by(CHAINS) {
        let (left, right) = pairs.heads(first, trailing);
        let sums = match wide {
            // SAFETY: `widest` found every feature that this is compiled for.
            #[cfg(target_arch = "x86_64")]
            true => unsafe { chains_avx2::<M>(left, right) },
            _ => chains::<M>(left, right),
        };
        for (at, &sum) in (first..pairs.len()).zip(&sums) {
            store(at, sum);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,popcnt")]
fn chains_avx2<M: Measure>(
    left: [&[M::Item]; CHAINS],
    right: [&[M::Item]; CHAINS],
) -> [f64; CHAINS] {
    chains::<M>(left, right)
}

/// The sums of some pairs, in the order of [`super::block`].
#[inline(always)]
fn chains<M: Measure>(left: [&[M::Item]; CHAINS], right: [&[M::Item]; CHAINS]) -> [f64; CHAINS] {
    let width = left[0].len();
    let (left, right) = (
        left.map(|row| &row[..width]),
        right.map(|row| &row[..width]),
    );
    let mut totals = [0.0; CHAINS];
    for start in (0..width).step_by(RUN) {
        let mut sums = [M::Sum::default(); CHAINS];
        for p in start..width.min(start + RUN) {
            for at in 0..CHAINS {
                sums[at] = M::add(sums[at], left[at][p], right[at][p]);
            }
        }
        for at in 0..CHAINS {
            totals[at] += M::widen(sums[at]);
        }
    }
    totals
}
