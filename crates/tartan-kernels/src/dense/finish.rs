//! The last step of scores that begin as a matrix product.

use std::ops::Range;

use super::{squared, Operands, Real, LANES, RUN};
use crate::product::{self, Consumer, Scalar};

/// Squared distances below this fraction of the sum of the two squared norms are computed again from the
/// differences, because the product has cancelled too many digits of them.
/// By arithmetic: five of 24 bits are lost at that share; the rest keeps float32 to 2e-6.
pub const REFINE_BELOW: f64 = 1.0 / 32.0;

/// When more than one in this many distances of a tile must be computed again, all are.
/// By judgement: one at a time costs about three times what a row of them does. `tartan bench vectors_kernels` measures
/// metrics.
const MANY: usize = 3;

/// Turn inner products of unit rows into cosine distances in place: 1 - x, clipped to [0, 2], and exactly 0 of equal
/// rows; NaN stays NaN.
pub fn finish_cosine<T: Real>(left: &[&[T]], right: &[&[T]], products: &mut [&mut [T]]) {
    let unit = UnitRows::new(left, right);
    for (row, products) in products.iter_mut().enumerate() {
        unit.finish(row, 0, products);
    }
}

/// Unit rows, whose inner products become cosine distances.
///
/// The product of a row with itself is 1 but for rounding. Distances that rounding may have made of 0 are looked at:
/// they are few, and rows that differ do so within a few positions.
pub(crate) struct UnitRows<'a, T> {
    left: &'a [&'a [T]],
    right: &'a [&'a [T]],
    /// For each row of `left` the largest distance that a row equal to it may have by rounding.
    near: Vec<T>,
}

impl<'a, T: Real> UnitRows<'a, T> {
    pub(crate) fn new(left: &'a [&'a [T]], right: &'a [&'a [T]]) -> Self {
        let near = left.iter().map(|row| T::from_f64(rounding(row))).collect();
        Self { left, right, near }
    }

    /// Turn products of one row with columns from `first` on into distances; return whether none is NaN.
    #[inline(always)]
    pub(crate) fn finish(&self, row: usize, first: usize, products: &mut [T]) -> bool {
        let (zero, one, two) = (T::default(), T::from_f64(1.0), T::from_f64(2.0));
        let (near, mut suspicious, mut nan) = (self.near[row], false, false);
        for value in products.iter_mut() {
            let distance = one - *value;
            let distance = if distance < zero { zero } else { distance };
            let distance = if distance > two { two } else { distance };
            suspicious |= (distance > zero) & (distance <= near);
            nan |= distance.partial_cmp(&distance).is_none();
            *value = distance;
        }
        if suspicious {
            self.look(row, first, products);
        }
        !nan
    }

    /// Write 0 where a row equals another one.
    #[inline(never)]
    fn look(&self, row: usize, first: usize, distances: &mut [T]) {
        for (distance, other) in distances.iter_mut().zip(&self.right[first..]) {
            if *distance <= self.near[row] && self.left[row] == *other {
                *distance = T::default();
            }
        }
    }
}

/// How far from 1 the product of a row with itself may be: by its norm, which is that of rounded numbers, and by sums.
fn rounding<T: Real>(row: &[T]) -> f64 {
    let unit = if size_of::<T>() == 4 {
        f64::from(f32::EPSILON) / 2.0
    } else {
        f64::EPSILON / 2.0
    };
    let norm: f64 = row
        .iter()
        .map(|value| value.to_f64() * value.to_f64())
        .sum();
    (1.0 - norm).abs() + 2.0 * (row.len() + 8) as f64 * unit
}

/// Write the cosine distances of unit rows; see [`finish_cosine`]. Returns whether none of them is NaN.
///
/// With `codes`, blocks of pairs of which no code is `wanted` may be left as they are.
///
/// # Panics
///
/// If shapes disagree, or the machine has no kernel for products ([`product::available`]).
pub fn cosine<T: Scalar>(
    left: &[&[T]],
    right: &[&[T]],
    (codes, wanted): (Option<&[&[u8]]>, u8),
    out: &mut [&mut [T]],
) -> bool {
    let unit = UnitRows::new(left, right);
    let mut written = Written {
        out,
        codes,
        wanted,
        numbers: true,
        finish: |row, first, products: &mut [T]| unit.finish(row, first, products),
    };
    product::tile(left, right, &mut written);
    written.numbers
}

/// Write the inner products of the rows, without their last position, as [`finish_euclidean`] takes them.
///
/// # Panics
///
/// As [`cosine`].
pub fn products<T: Scalar>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [T]]) {
    let mut written = Written {
        out,
        codes: None,
        wanted: 0,
        numbers: true,
        finish: |_, _, _: &mut [T]| true,
    };
    product::tile(&heads(left), &heads(right), &mut written);
}

/// Rows without their last position.
fn heads<'a, T>(rows: &[&'a [T]]) -> Vec<&'a [T]> {
    rows.iter().map(|row| &row[..row.len() - 1]).collect()
}

/// Writes products to the rows of a tile.
struct Written<'a, 'b, T, F> {
    out: &'a mut [&'b mut [T]],
    codes: Option<&'a [&'a [u8]]>,
    wanted: u8,
    /// Whether `finish` returned true for all.
    numbers: bool,
    finish: F,
}

impl<T: Scalar, F: Fn(usize, usize, &mut [T]) -> bool> Consumer<T> for Written<'_, '_, T, F> {
    #[inline(always)]
    fn wants(&self, rows: Range<usize>, columns: Range<usize>) -> bool {
        product::any_has(self.codes, self.wanted, rows, columns)
    }

    #[inline(always)]
    fn take(&mut self, row: usize, first: usize, products: &mut [T]) {
        self.numbers &= (self.finish)(row, first, products);
        self.out[row][first..first + products.len()].copy_from_slice(products);
    }
}

/// Turn inner products into squared Euclidean distances, or their roots, in place.
///
/// The last position of a row of `left` and `right` is the squared norm of the positions before it. A distance
/// whose square is small against the norms is computed again from the differences ([`REFINE_BELOW`]); when many
/// are, all are, since a tile costs less than its pairs one by one.
pub fn finish_euclidean<T: Real>(
    left: &[&[T]],
    right: &[&[T]],
    root: bool,
    products: &mut [&mut [T]],
) {
    let tile = Operands::new(left, right, 1, products);
    let norms: Vec<T> = right.iter().map(|row| row[tile.width]).collect();
    let rows = || left.iter().map(|row| (&row[..tile.width], row[tile.width]));
    let mut n_small = 0;
    for ((_, norm), out) in rows().zip(products.iter_mut()) {
        n_small += expand(norm, &norms, out);
    }
    if n_small > left.len() * right.len() / MANY {
        return squared(&tile, root, products);
    }
    for ((row, norm), out) in rows().zip(products) {
        if n_small > 0 {
            refine(row, norm, right, &norms, out);
        }
        if root {
            out.iter_mut().for_each(|value| *value = value.root());
        }
    }
}

/// Turn one row of products into squared distances; return how many are too small to keep.
fn expand<T: Real>(norm: T, norms: &[T], out: &mut [T]) -> usize {
    let small = T::from_f64(REFINE_BELOW);
    let mut n_small = 0_u32;
    for (value, &other) in out.iter_mut().zip(norms) {
        let sum = norm + other;
        *value = sum - (*value + *value);
        n_small += u32::from(*value < small * sum);
    }
    n_small as usize
}

/// Compute the small distances of one row again.
fn refine<T: Real>(row: &[T], norm: T, right: &[&[T]], norms: &[T], out: &mut [T]) {
    let small = T::from_f64(REFINE_BELOW);
    for ((value, &other), column) in out.iter_mut().zip(norms).zip(right) {
        if *value < small * (norm + other) {
            *value = T::from_f64(squared_distance(row, column));
        }
    }
}

/// The squared distance of one pair, from the differences; `b` may be longer than `a`.
fn squared_distance<T: Real>(a: &[T], b: &[T]) -> f64 {
    let mut total = 0.0;
    for (a, b) in a.chunks(LANES * RUN).zip(b[..a.len()].chunks(LANES * RUN)) {
        let mut sums = [T::default(); LANES];
        let (heads, tails) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        for (&a, &b) in heads.remainder().iter().zip(tails.remainder()) {
            total += ((a - b) * (a - b)).to_f64();
        }
        for (a, b) in heads.zip(tails) {
            for lane in 0..LANES {
                sums[lane] = sums[lane] + (a[lane] - b[lane]) * (a[lane] - b[lane]);
            }
        }
        total += sums.iter().map(|sum| sum.to_f64()).sum::<f64>();
    }
    total
}
