//! The last step of scores that begin as a matrix product.

use std::array::from_fn;
use std::ops::Range;

use super::{dispatch, Operands, Real, LANES, RUN};
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

    /// The largest distance that a row of `left` may have to an equal one by rounding.
    pub(crate) fn near(&self, row: usize) -> T {
        self.near[row]
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

/// Turn the inner product of two unit rows into their cosine distance, as [`UnitRows::finish`] does in a tile.
pub(crate) fn finish_cosine_pair<T: Real>(left: &[T], right: &[T], product: T) -> T {
    let (zero, one, two) = (T::default(), T::from_f64(1.0), T::from_f64(2.0));
    let distance = one - product;
    let distance = if distance < zero { zero } else { distance };
    let distance = if distance > two { two } else { distance };
    // Rows that differ do so within a few positions: what rounding may have made of 0 is asked for last.
    if distance > zero && left == right && distance <= T::from_f64(rounding(left)) {
        return zero;
    }
    distance
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

/// Write the inner products of rows; returns and leaves as [`cosine`] does.
///
/// # Panics
///
/// As [`cosine`].
pub fn inner<T: Scalar>(
    left: &[&[T]],
    right: &[&[T]],
    (codes, wanted): (Option<&[&[u8]]>, u8),
    out: &mut [&mut [T]],
) -> bool {
    let mut written = Written {
        out,
        codes,
        wanted,
        numbers: true,
        finish: |_, _, products: &mut [T]| are_numbers(products),
    };
    product::tile(left, right, &mut written);
    written.numbers
}

/// Whether none of some scores is NaN.
#[inline(always)]
pub(crate) fn are_numbers<T: PartialOrd>(scores: &[T]) -> bool {
    let mut nan = false;
    for score in scores {
        nan |= score.partial_cmp(score).is_none();
    }
    !nan
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
/// are, the differences of all are summed, since a tile costs less than its pairs one by one, and those of the small
/// ones are taken. Either way a pair gets the same bits, whatever else is in its tile.
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
    let many = n_small > left.len() * right.len() / MANY;
    if many {
        let left_norms: Vec<T> = left.iter().map(|row| row[tile.width]).collect();
        replace_small(&tile, &left_norms, &norms, products);
    }
    for ((row, norm), out) in rows().zip(products) {
        if n_small > 0 && !many {
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

/// Write the sums of squared differences over the small distances, in one walk over all.
fn replace_small<T: Real>(
    tile: &Operands<'_, T>,
    left_norms: &[T],
    norms: &[T],
    out: &mut [&mut [T]],
) {
    let small = T::from_f64(REFINE_BELOW);
    dispatch::<T::Squared, LANES>(tile, |row, first, sums: &[f64]| {
        let places = &mut out[row][first..first + sums.len()];
        for ((value, &other), &sum) in places.iter_mut().zip(&norms[first..]).zip(sums) {
            if *value < small * (left_norms[row] + other) {
                *value = T::from_f64(sum);
            }
        }
    });
}

/// The product of one pair as a distance: bit for bit what [`finish_euclidean`] makes of it.
///
/// Rows end in their squared norms.
pub(crate) fn finish_euclidean_pair<T: Real>(left: &[T], right: &[T], root: bool, product: T) -> T {
    let width = left.len() - 1;
    let mut out = [product];
    let norms = [right[width]];
    if expand(left[width], &norms, &mut out) > 0 {
        refine(&left[..width], left[width], &[right], &norms, &mut out);
    }
    if root {
        out[0].root()
    } else {
        out[0]
    }
}

/// Compute the small distances of one row again, a few at a time.
fn refine<T: Real>(row: &[T], norm: T, right: &[&[T]], norms: &[T], out: &mut [T]) {
    let small = T::from_f64(REFINE_BELOW);
    let mut few = [0; LANES];
    let mut n_few = 0;
    for at in 0..out.len() {
        if out[at] < small * (norm + norms[at]) {
            few[n_few] = at;
            n_few += 1;
        }
        if n_few == LANES || (n_few > 0 && at + 1 == out.len()) {
            for chunk in few[..n_few].chunks(PAIRS) {
                let sums =
                    squared_distances(row, from_fn(|p| right[chunk[p.min(chunk.len() - 1)]]));
                for (&place, &sum) in chunk.iter().zip(&sums) {
                    out[place] = T::from_f64(sum);
                }
            }
            n_few = 0;
        }
    }
}

/// Pairs whose differences are summed side by side.
/// By arithmetic: an addition takes some four cycles, and two are begun in each.
const PAIRS: usize = 8;

/// The squared distances of one row and a few others, which may be longer: summed as the walk over a tile does, over runs
/// of positions in their own precision and over runs in float64.
fn squared_distances<T: Real>(row: &[T], others: [&[T]; PAIRS]) -> [f64; PAIRS] {
    let mut totals = [0.0; PAIRS];
    for (run, values) in row.chunks(RUN).enumerate() {
        let heads = others.map(|other| &other[run * RUN..run * RUN + values.len()]);
        let mut sums = [T::default(); PAIRS];
        for (p, &a) in values.iter().enumerate() {
            for pair in 0..PAIRS {
                let difference = a - heads[pair][p];
                sums[pair] = sums[pair] + difference * difference;
            }
        }
        for pair in 0..PAIRS {
            totals[pair] += sums[pair].to_f64();
        }
    }
    totals
}
