//! Inner products of rows, a tile at a time, handed out while they are in registers and the first cache.
//!
//! A panel of columns is transposed, so that the lanes of a vector are different pairs, and meets all rows, a few at a
//! time. What becomes of the products is up to a [`Consumer`]: written to memory, or looked at and forgotten.
//! A product is summed from its first position to its last by fused multiply-adds, in one lane: it does not depend on
//! the shape of the tile, nor on whether vectors are those of AVX-512 or AVX2. Its error is at most d u for unit rows.
//!
//! Machines without AVX2 have no such kernel here ([`available`]).

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use crate::dense::{CpuVectors, Real};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Positions of a panel that are multiplied at a time; sums of longer rows wait in memory in between.
/// By arithmetic: a panel of 1,024 positions and 16 to 32 columns is 64 to 128 KiB, in the second cache. `tartan bench
/// vectors` measures whole runs.
#[cfg(any(target_arch = "x86_64", test))]
const RUN: usize = 1024;

/// Most bytes of packed rows, and of scores, that a thread keeps for its next tile.
/// By judgement: rows of a tile of 2,048 x 1,024 float32.
pub(crate) const KEPT_BYTES: usize = 8 << 20;

/// What becomes of products.
pub trait Consumer<T> {
    /// Whether a block of pairs is wanted at all; what is not wanted may be left out.
    fn wants(&self, rows: Range<usize>, columns: Range<usize>) -> bool;

    /// Take the products of one row with some columns from `first` on; the memory may be used for something else.
    fn take(&mut self, row: usize, first: usize, products: &mut [T]);
}

/// f32 or f64.
pub trait Scalar: Real + 'static {
    /// Memory for packed rows, which a thread keeps for its next tile.
    #[doc(hidden)]
    fn kept() -> &'static LocalKey<Cell<Vec<Self>>>;

    /// Memory for products or scores of a tile, kept as the other.
    #[doc(hidden)]
    fn scratch() -> &'static LocalKey<Cell<Vec<Self>>>;

    /// Sum the products of eight pairs of rows, each from its first position to its last by fused multiply-adds: what
    /// [`tile`] gives them, to the last bit.
    ///
    /// # Safety
    ///
    /// The machine has FMA. Rows are of one length.
    #[doc(hidden)]
    unsafe fn chains(left: [&[Self]; CHAINS], right: [&[Self]; CHAINS]) -> [Self; CHAINS];

    /// Multiply with vectors of AVX-512.
    ///
    /// # Safety
    ///
    /// The machine has them.
    #[doc(hidden)]
    unsafe fn avx512(
        left: &[&[Self]],
        right: &[&[Self]],
        packed: &mut Vec<Self>,
        consumer: &mut impl Consumer<Self>,
    );

    /// Multiply with vectors of AVX2.
    ///
    /// # Safety
    ///
    /// The machine has them, and FMA.
    #[doc(hidden)]
    unsafe fn avx2(
        left: &[&[Self]],
        right: &[&[Self]],
        packed: &mut Vec<Self>,
        consumer: &mut impl Consumer<Self>,
    );
}

/// Pairs whose products are summed side by side by [`Scalar::chains`].
/// By arithmetic: a fused multiply-add takes four cycles, and two are begun in each.
pub const CHAINS: usize = 8;

/// Whether a code occurs in a block of codes; without codes it does.
#[inline]
pub(crate) fn any_has(
    codes: Option<&[&[u8]]>,
    code: u8,
    rows: Range<usize>,
    columns: Range<usize>,
) -> bool {
    let has = |row: &&[u8]| row[columns.clone()].contains(&code);
    codes.is_none_or(|codes| codes[rows].iter().any(has))
}

/// Whether this machine has the vectors that [`tile`] needs.
pub fn available() -> bool {
    CpuVectors::widest() > CpuVectors::Baseline
}

/// Multiply all rows of `left` with all rows of `right`; the consumer gets each wanted pair once.
///
/// # Panics
///
/// If rows differ in length, or the machine lacks the vectors ([`available`]).
pub fn tile<T: Scalar>(left: &[&[T]], right: &[&[T]], consumer: &mut impl Consumer<T>) {
    let Some(first) = left.first() else { return };
    let equal = left.iter().chain(right).all(|row| row.len() == first.len());
    assert!(equal, "rows differ in length");
    let mut packed = T::kept().take();
    match CpuVectors::widest() {
        // SAFETY: `widest` found every feature that this level is compiled for.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx512 => unsafe { T::avx512(left, right, &mut packed, consumer) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        CpuVectors::Avx2 => unsafe { T::avx2(left, right, &mut packed, consumer) },
        _ => panic!("products need AVX2; ask `available`"),
    }
    if packed.capacity() * size_of::<T>() <= KEPT_BYTES {
        T::kept().set(packed);
    }
}
