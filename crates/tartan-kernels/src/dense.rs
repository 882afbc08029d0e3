//! Scores of dense vectors, a tile at a time: Manhattan, Euclidean, Hamming, Jaccard, and the last step of scores
//! that begin as a matrix product.
//!
//! A tile function compares all rows of `left` with all rows of `right` and writes one score a pair. Rows are
//! slices, so that a tile may be any view with contiguous rows. Nothing is multithreaded here: the caller runs
//! tiles side by side. All functions panic when lengths or shapes disagree.
//!
//! One register-blocked loop (`walk`) serves all metrics. A block of columns is transposed so that the lanes of a
//! vector are different pairs: no sum across lanes is needed, and short vectors cost little more than long ones.
//! The loop is written for the compiler to vectorise and is compiled for AVX-512, AVX2 and the baseline; the
//! machine is asked at run time which it has.
//!
//! Sums run over [`RUN`] positions in the item's own precision, and over the runs in f64. All terms are
//! non-negative, so the relative error of a score is below (RUN + 4) u, u = 2^-24 for f32 and 2^-53 for f64,
//! before it is rounded to the score type.

use std::array::from_fn;
use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};

pub mod finish;
pub mod listed;
pub mod terms;
#[cfg(test)]
mod tests;

/// Positions that are summed before the sum is carried over to f64. Must fit in a u8 counter.
/// By arithmetic: rounding of float32 grows with the run, 128 terms to some 1e-5 at worst; the carry costs one addition
/// of 128.
pub const RUN: usize = 128;

/// Lanes of a panel of 4 or 8 byte values. The compiler unrolls the loop over this many into vectors; with more
/// it falls back to scalar code that is 15 times slower.
/// Measured: 15 times, as said.
const LANES: usize = 16;

/// f32 or f64: what distances are computed and written in.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    #[doc(hidden)]
    type Absolute: Measure<Item = Self>;
    #[doc(hidden)]
    type Squared: Measure<Item = Self>;
    #[doc(hidden)]
    fn from_f64(value: f64) -> Self;
    #[doc(hidden)]
    fn to_f64(self) -> f64;
    #[doc(hidden)]
    fn root(self) -> Self;
}

macro_rules! real {
    ($real:ty) => {
        impl Real for $real {
            type Absolute = AbsoluteDifference<$real>;
            type Squared = SquaredDifference<$real>;
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $real
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
        }
    };
}

real!(f32);
real!(f64);

/// A value whose equality counts: i8, i16, i32 or i64, or the bits of a float without -0 and NaN.
pub trait Value: Copy + Default + Send + Sync {
    #[doc(hidden)]
    type Unequal: Measure<Item = Self>;
    #[doc(hidden)]
    fn count(tile: &Operands<'_, Self>, store: impl FnMut(usize, usize, &[f64]));
}

macro_rules! value {
    ($item:ty, $lanes:expr) => {
        impl Value for $item {
            type Unequal = Unequal<$item>;
            fn count(tile: &Operands<'_, Self>, store: impl FnMut(usize, usize, &[f64])) {
                dispatch::<Unequal<$item>, { $lanes }>(tile, store);
            }
        }
    };
}

value!(i8, 4 * LANES);
value!(i16, 4 * LANES);
value!(i32, LANES);
value!(i64, LANES);

/// What two numbers at the same position add to the score of a pair.
#[doc(hidden)]
pub trait Measure {
    type Item: Copy + Default;
    type Sum: Copy + Default;
    fn add(sum: Self::Sum, a: Self::Item, b: Self::Item) -> Self::Sum;
    fn widen(sum: Self::Sum) -> f64;
    /// Add a value and those of all lanes.
    #[inline(always)]
    fn add_lanes<const N: usize>(
        sums: &mut [Self::Sum; N],
        a: Self::Item,
        column: &[Self::Item; N],
    ) {
        for lane in 0..N {
            sums[lane] = Self::add(sums[lane], a, column[lane]);
        }
    }
    #[inline(always)]
    fn carry(total: f64, sum: f64) -> f64 {
        total + sum
    }
}

#[doc(hidden)]
pub struct AbsoluteDifference<T>(PhantomData<T>);
#[doc(hidden)]
pub struct SquaredDifference<T>(PhantomData<T>);
#[doc(hidden)]
pub struct Unequal<T>(PhantomData<T>);
struct DifferingBits;
struct CommonBits;

macro_rules! measure {
    ($name:ty, $item:ty, $sum:ty, |$s:ident, $a:ident, $b:ident| $add:expr) => {
        impl Measure for $name {
            type Item = $item;
            type Sum = $sum;
            #[inline(always)]
            fn add($s: $sum, $a: $item, $b: $item) -> $sum {
                $add
            }
            #[inline(always)]
            fn widen(sum: $sum) -> f64 {
                sum as f64
            }
        }
    };
}

measure!(AbsoluteDifference<f32>, f32, f32, |s, a, b| s
    + (a - b).abs());
measure!(AbsoluteDifference<f64>, f64, f64, |s, a, b| s
    + (a - b).abs());
measure!(SquaredDifference<f32>, f32, f32, |s, a, b| s
    + (a - b) * (a - b));
measure!(SquaredDifference<f64>, f64, f64, |s, a, b| s
    + (a - b) * (a - b));
measure!(Unequal<i8>, i8, u8, |s, a, b| s
    .wrapping_add(u8::from(a != b)));
measure!(Unequal<i16>, i16, u16, |s, a, b| s
    .wrapping_add(u16::from(a != b)));
measure!(Unequal<i32>, i32, u32, |s, a, b| s
    .wrapping_add(u32::from(a != b)));
measure!(Unequal<i64>, i64, u64, |s, a, b| s
    .wrapping_add(u64::from(a != b)));
measure!(DifferingBits, u64, u64, |s, a, b| s + u64::from(
    (a ^ b).count_ones()
));
measure!(CommonBits, u64, u64, |s, a, b| s + u64::from(
    (a & b).count_ones()
));

/// Write the Manhattan distances: the sums of absolute differences.
pub fn manhattan<T: Real, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 0, out);
    dispatch::<T::Absolute, LANES>(&tile, write(out, |_| |_, sum| sum));
}

/// Write the squared Euclidean distances, or their roots, from the differences themselves.
pub fn euclidean<T: Real, S: Real>(
    left: &[&[T]],
    right: &[&[T]],
    root: bool,
    out: &mut [&mut [S]],
) {
    squared(&Operands::new(left, right, 0, out), root, out);
}

fn squared<T: Real, S: Real>(tile: &Operands<'_, T>, root: bool, out: &mut [&mut [S]]) {
    if root {
        dispatch::<T::Squared, LANES>(tile, write(out, |_| |_, sum: f64| sum.sqrt()));
    } else {
        dispatch::<T::Squared, LANES>(tile, write(out, |_| |_, sum| sum));
    }
}

/// Write the Hamming distances: the fractions of positions that differ.
pub fn hamming<T: Value, S: Real>(left: &[&[T]], right: &[&[T]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 0, out);
    let length = tile.width as f64;
    T::count(&tile, write(out, |_| move |_, sum| sum / length));
}

/// Write the Hamming distances of packed bits. The last word of a row is the number of bits before it.
pub fn hamming_bits<S: Real>(left: &[&[u64]], right: &[&[u64]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 1, out);
    let lengths = last_words(left);
    let score = |i: usize| {
        let length = lengths[i];
        move |_, sum| sum / length
    };
    dispatch::<DifferingBits, LANES>(&tile, write(out, score));
}

/// Write the Jaccard distances of packed bits; 0 for two empty sets. The last word of a row is the number of
/// ones before it.
pub fn jaccard_bits<S: Real>(left: &[&[u64]], right: &[&[u64]], out: &mut [&mut [S]]) {
    let tile = Operands::new(left, right, 1, out);
    let (left_ones, right_ones) = (last_words(left), last_words(right));
    let score = |i: usize| {
        let (ones, others) = (left_ones[i], &right_ones);
        move |j: usize, common: f64| jaccard(ones, others[j], common)
    };
    dispatch::<CommonBits, LANES>(&tile, write(out, score));
}

/// The Jaccard distance of sets of so many members, by those in common.
#[inline(always)]
fn jaccard(ones: f64, others: f64, common: f64) -> f64 {
    let either = ones + others - common;
    (either - common) / either.max(1.0)
}

fn last_words(rows: &[&[u64]]) -> Vec<f64> {
    rows.iter().map(|row| last_word(row)).collect()
}

fn last_word(row: &[u64]) -> f64 {
    row[row.len() - 1] as f64
}

/// Write `score(i)(j, sum)` of each pair to its place.
#[inline(always)]
fn write<'a, 'b, S: Real, F: Fn(usize) -> G, G: Fn(usize, f64) -> f64>(
    out: &'a mut [&'b mut [S]],
    score: F,
) -> impl FnMut(usize, usize, &[f64]) + use<'a, 'b, S, F, G> {
    move |i, start, sums| {
        let score = score(i);
        let places = &mut out[i][start..start + sums.len()];
        for (lane, (place, &sum)) in places.iter_mut().zip(sums).enumerate() {
            *place = S::from_f64(score(start + lane, sum));
        }
    }
}

/// The operands of one call: rows of equal length, of which the first `width` positions are compared.
#[doc(hidden)]
pub struct Operands<'a, T> {
    left: &'a [&'a [T]],
    right: &'a [&'a [T]],
    width: usize,
}

impl<'a, T> Operands<'a, T> {
    /// Check the shapes; `trailing` positions at the end of each row are no part of the comparison.
    fn new<S>(
        left: &'a [&'a [T]],
        right: &'a [&'a [T]],
        trailing: usize,
        out: &[&mut [S]],
    ) -> Self {
        let length = left
            .first()
            .or(right.first())
            .map_or(trailing, |row| row.len());
        let equal = left.iter().chain(right).all(|row| row.len() == length);
        assert!(
            equal && length >= trailing,
            "rows differ in length or are too short"
        );
        let fits = out.len() == left.len() && out.iter().all(|row| row.len() == right.len());
        assert!(
            fits,
            "the output must have a row for each left and a column for each right row"
        );
        Operands {
            left,
            right,
            width: length - trailing,
        }
    }
}

/// All rows against all columns: `store(row, first column, sums)` for each row of a panel.
#[inline(always)]
fn walk<M: Measure, const R: usize, const N: usize>(
    tile: &Operands<'_, M::Item>,
    store: &mut impl FnMut(usize, usize, &[f64]),
) {
    let mut panel = vec![[M::Item::default(); N]; tile.width];
    for (chunk, columns) in tile.right.chunks(N).enumerate() {
        pack(columns, &mut panel);
        for (group, rows) in tile.left.chunks(R).enumerate() {
            if rows.len() == R {
                for (r, sums) in block::<M, R, N>(rows, &panel).iter().enumerate() {
                    store(group * R + r, chunk * N, &sums[..columns.len()]);
                }
            } else {
                for r in 0..rows.len() {
                    let sums = block::<M, 1, N>(&rows[r..], &panel);
                    store(group * R + r, chunk * N, &sums[0][..columns.len()]);
                }
            }
        }
    }
}

/// Transpose up to N rows into a panel; absent columns keep what they held, and their sums are never stored.
#[inline(always)]
fn pack<T: Copy, const N: usize>(rows: &[&[T]], panel: &mut [[T; N]]) {
    for (lane, row) in rows.iter().enumerate() {
        for (column, &value) in panel.iter_mut().zip(row.iter()) {
            column[lane] = value;
        }
    }
}

/// The sums of R rows against the N columns of a panel: `panel[p][lane]` is position p of column `lane`.
#[inline(always)]
fn block<M: Measure, const R: usize, const N: usize>(
    rows: &[&[M::Item]],
    panel: &[[M::Item; N]],
) -> [[f64; N]; R] {
    let mut totals = [[0.0; N]; R];
    for (run, columns) in panel.chunks(RUN).enumerate() {
        let start = run * RUN;
        let heads: [&[M::Item]; R] = from_fn(|r| &rows[r][start..start + columns.len()]);
        let mut sums = [[M::Sum::default(); N]; R];
        for (p, column) in columns.iter().enumerate() {
            for r in 0..R {
                M::add_lanes(&mut sums[r], heads[r][p], column);
            }
        }
        for r in 0..R {
            for lane in 0..N {
                totals[r][lane] = M::carry(totals[r][lane], M::widen(sums[r][lane]));
            }
        }
    }
    totals
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx2,fma,popcnt")]
fn walk_avx512<M: Measure, const N: usize>(
    tile: &Operands<'_, M::Item>,
    store: &mut impl FnMut(usize, usize, &[f64]),
) {
    walk::<M, 6, N>(tile, store);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,popcnt")]
fn walk_avx2<M: Measure, const N: usize>(
    tile: &Operands<'_, M::Item>,
    store: &mut impl FnMut(usize, usize, &[f64]),
) {
    walk::<M, 4, N>(tile, store);
}

/// `walk` with the widest vectors that this machine has.
fn dispatch<M: Measure, const N: usize>(
    tile: &Operands<'_, M::Item>,
    mut store: impl FnMut(usize, usize, &[f64]),
) {
    match CpuVectors::widest() {
        // SAFETY: `widest` found every feature that this level is compiled for.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx512 => unsafe { walk_avx512::<M, N>(tile, &mut store) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx2 => unsafe { walk_avx2::<M, N>(tile, &mut store) },
        _ => walk::<M, 2, N>(tile, &mut store),
    }
}

/// The vector instructions that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CpuVectors {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl CpuVectors {
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn widest() -> Self {
        use std::arch::is_x86_feature_detected as has;
        if !(has!("avx2") && has!("fma") && has!("popcnt")) {
            return CpuVectors::Baseline;
        }
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        if wide && has!("avx512vpopcntdq") {
            CpuVectors::Avx512
        } else {
            CpuVectors::Avx2
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn widest() -> Self {
        CpuVectors::Baseline
    }
}
