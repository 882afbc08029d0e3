//! Chebyshev, Bray-Curtis, Canberra, Jensen-Shannon, Minkowski and Euclidean distances with missing values.
//!
//! As SciPy and scikit-learn define them. Bray-Curtis and missing values need two sums a pair: two passes over a few rows
//! of the left side, the first of which is kept in f64.

use std::array::from_fn;
use std::marker::PhantomData;

use super::{dispatch, write, Measure, Operands, Real, LANES};
use crate::logarithm::logarithms;

/// Rows of the left side that are passed over twice at a time. By arithmetic: packing the right side costs one part in
/// so many of a pass.
const TWICE: usize = 48;

#[doc(hidden)]
pub struct LargestDifference<T>(PhantomData<T>);
#[doc(hidden)]
pub struct AbsoluteSum<T>(PhantomData<T>);
#[doc(hidden)]
pub struct Ratio<T>(PhantomData<T>);
#[doc(hidden)]
pub struct KnownSquared<T>(PhantomData<T>);
#[doc(hidden)]
pub struct Known<T>(PhantomData<T>);
#[doc(hidden)]
pub struct Power<T, const P: u32>(PhantomData<T>);
struct Divergence;

/// f32 or f64, with the measures of this file.
pub trait Terms: Real {
    #[doc(hidden)]
    type Largest: Measure<Item = Self>;
    #[doc(hidden)]
    type Plus: Measure<Item = Self>;
    #[doc(hidden)]
    type Ratio: Measure<Item = Self>;
    #[doc(hidden)]
    type KnownSquared: Measure<Item = Self>;
    #[doc(hidden)]
    type Known: Measure<Item = Self>;
    #[doc(hidden)]
    type Third: Measure<Item = Self>;
    #[doc(hidden)]
    type Fourth: Measure<Item = Self>;
    #[doc(hidden)]
    type Fifth: Measure<Item = Self>;
    #[doc(hidden)]
    type Sixth: Measure<Item = Self>;
}

macro_rules! sum {
    ($name:ty, $real:ty, |$a:ident, $b:ident| $term:expr) => {
        impl Measure for $name {
            type Item = $real;
            type Sum = $real;
            #[inline(always)]
            fn add(sum: $real, $a: $real, $b: $real) -> $real {
                sum + $term
            }
            #[inline(always)]
            fn widen(sum: $real) -> f64 {
                f64::from(sum)
            }
        }
    };
}

macro_rules! terms {
    ($real:ty) => {
        impl Terms for $real {
            type Largest = LargestDifference<$real>;
            type Plus = AbsoluteSum<$real>;
            type Ratio = Ratio<$real>;
            type KnownSquared = KnownSquared<$real>;
            type Known = Known<$real>;
            type Third = Power<$real, 3>;
            type Fourth = Power<$real, 4>;
            type Fifth = Power<$real, 5>;
            type Sixth = Power<$real, 6>;
        }

        impl Measure for LargestDifference<$real> {
            type Item = $real;
            type Sum = $real;
            /// Of a row of NaN it is NaN.
            #[inline(always)]
            fn add(sum: $real, a: $real, b: $real) -> $real {
                let difference = (a - b).abs();
                if sum > difference {
                    sum
                } else {
                    difference
                }
            }
            #[inline(always)]
            fn widen(sum: $real) -> f64 {
                f64::from(sum)
            }
            #[inline(always)]
            fn carry(total: f64, sum: f64) -> f64 {
                if total > sum {
                    total
                } else {
                    sum
                }
            }
        }

        sum!(AbsoluteSum<$real>, $real, |a, b| (a + b).abs());
        sum!(Ratio<$real>, $real, |a, b| {
            let size = a.abs() + b.abs();
            let ratio = (a - b).abs() / size;
            if size == 0.0 {
                0.0
            } else {
                ratio
            }
        });
        // A missing value is infinite.
        sum!(KnownSquared<$real>, $real, |a, b| {
            let known = (a - b).abs() < <$real>::INFINITY;
            let difference = if known { a - b } else { 0.0 };
            difference * difference
        });
        sum!(Known<$real>, $real, |a, b| {
            if (a - b).abs() < <$real>::INFINITY {
                1.0
            } else {
                0.0
            }
        });

        impl<const P: u32> Measure for Power<$real, P> {
            type Item = $real;
            type Sum = $real;
            #[inline(always)]
            fn add(sum: $real, a: $real, b: $real) -> $real {
                let difference = (a - b).abs();
                let mut power = difference;
                for _ in 1..P {
                    power *= difference;
                }
                sum + power
            }
            #[inline(always)]
            fn widen(sum: $real) -> f64 {
                f64::from(sum)
            }
        }
    };
}

terms!(f32);
terms!(f64);

/// Of p and q it is s / 4 ((1 + t) ln(1 + t) + (1 - t) ln(1 - t)), with s = p + q and t = (p - q) / s: no term is
/// negative, so nothing cancels. Near t = 0, where the two logarithms would, the series has the digits.
impl Measure for Divergence {
    type Item = f64;
    type Sum = f64;
    #[inline(always)]
    fn add(sum: f64, p: f64, q: f64) -> f64 {
        let mut sums = [sum];
        Self::add_lanes(&mut sums, p, &[q]);
        sums[0]
    }
    /// One step of all lanes at a time: the compiler makes vector code of short loops only.
    #[inline(always)]
    fn add_lanes<const N: usize>(sums: &mut [f64; N], p: f64, q: &[f64; N]) {
        let s: [f64; N] = from_fn(|i| p + q[i]);
        let divisors: [f64; N] = from_fn(|i| if s[i] == 0.0 { 1.0 } else { s[i] });
        let t: [f64; N] = from_fn(|i| (p - q[i]) / divisors[i]);
        let t2: [f64; N] = from_fn(|i| t[i] * t[i]);
        let u: [f64; N] = from_fn(|i| 1.0 + t[i]);
        let v: [f64; N] = from_fn(|i| 1.0 - t[i]);
        let (log_u, log_v) = (logarithms(&u), logarithms(&v));
        let far: [f64; N] = from_fn(|i| u[i] * log_u[i] + v[i] * log_v[i]);
        let mut near = [0.0; N];
        for k in (1..=TERMS).rev() {
            let k = f64::from(k);
            let term = 1.0 / (k * (2.0 * k - 1.0));
            for (sum, square) in near.iter_mut().zip(&t2) {
                *sum = *sum * square + term;
            }
        }
        for i in 0..N {
            let term = if t2[i] < NEAR {
                t2[i] * near[i]
            } else {
                far[i]
            };
            sums[i] += 0.25 * s[i] * term;
        }
    }
    #[inline(always)]
    fn widen(sum: f64) -> f64 {
        sum
    }
}

/// Up to this t², by arithmetic, the series is used: the logarithms lose 3 bits there, and the term that the series
/// leaves out is below 1e-17.
const NEAR: f64 = 1.0 / 16.0;

/// By arithmetic: terms of the series, the sum of t2^k / (k (2k - 1)); the next one is below 1e-17 of it up to NEAR.
const TERMS: u32 = 12;

/// Write the Chebyshev distances: the largest absolute differences.
pub fn chebyshev<T: Terms, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 0, out);
    dispatch::<T::Largest, LANES>(&tile, write(out, |_| |_, largest| largest));
}

/// Write the Canberra distances: the sums of `|a - b| / (|a| + |b|)`, where both are 0 of 0.
pub fn canberra<T: Terms, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 0, out);
    dispatch::<T::Ratio, LANES>(&tile, write(out, |_| |_, sum| sum));
}

/// Write the Bray-Curtis distances: the sum of `|a - b|` over that of `|a + b|`; NaN where both are 0.
pub fn bray_curtis<T: Terms, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    twice::<T, S, T::Absolute, T::Plus>(left, right, out, |difference, sum| difference / sum);
}

/// Write the Euclidean distances of rows of which infinite values are missing: over the positions that both have, as if
/// the others were as far apart on average; NaN where there are none.
pub fn nan_euclidean<T: Terms, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    let width = left.first().map_or(0, |row| row.len()) as f64;
    twice::<T, S, T::KnownSquared, T::Known>(left, right, out, |squared, known| {
        (squared / known * width).sqrt()
    });
}

/// Write the Jensen-Shannon distances of rows whose sums are 1, with the natural logarithm.
pub fn jensen_shannon<S: Real>(left: &[&[f64]], right: &[&[f64]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 0, out);
    dispatch::<Divergence, { LANES / 2 }>(&tile, write(out, |_| |_, sum: f64| sum.sqrt()));
}

/// Write the Minkowski distances: the roots of the sums of powers, of 3 to 6 by products.
pub fn minkowski<T: Terms, S: Real>(
    left: &[&[T]],
    right: &[&[T]],
    power: f64,
    out: &mut [&mut [S]],
) {
    let tile = Operands::new(left, right, 0, out);
    let root = |_| move |_, sum: f64| sum.powf(1.0 / power);
    if power == 3.0 {
        dispatch::<T::Third, LANES>(&tile, write(out, root));
    } else if power == 4.0 {
        dispatch::<T::Fourth, LANES>(&tile, write(out, root));
    } else if power == 5.0 {
        dispatch::<T::Fifth, LANES>(&tile, write(out, root));
    } else if power == 6.0 {
        dispatch::<T::Sixth, LANES>(&tile, write(out, root));
    } else {
        for (a, places) in left.iter().zip(out.iter_mut()) {
            for (b, place) in right.iter().zip(places.iter_mut()) {
                let terms = a
                    .iter()
                    .zip(b.iter())
                    .map(|(&x, &y)| (x.to_f64() - y.to_f64()).abs().powf(power));
                *place = S::from_f64(terms.sum::<f64>().powf(1.0 / power));
            }
        }
    }
}

/// Write `score` of two sums of each pair.
fn twice<T: Terms, S: Real, A: Measure<Item = T>, B: Measure<Item = T>>(
    left: &[&[T]],
    right: &[&[T]],
    out: &mut [&mut [S]],
    score: impl Fn(f64, f64) -> f64 + Copy,
) {
    let mut first = vec![0.0; TWICE.min(left.len()) * right.len()];
    for (rows, places) in left.chunks(TWICE).zip(out.chunks_mut(TWICE)) {
        let tile = Operands::new(rows, right, 0, places);
        let n = right.len();
        dispatch::<A, LANES>(&tile, |i, start, sums: &[f64]| {
            first[i * n + start..][..sums.len()].copy_from_slice(sums);
        });
        let first = &first;
        let both = |i: usize| move |j: usize, second: f64| score(first[i * n + j], second);
        dispatch::<B, LANES>(&tile, write(places, both));
    }
}
