//! The register-blocked loop of [`super::product`], for AVX-512, AVX2 and the baseline.
//!
//! Lanes are neighbouring columns of the matrix. A block keeps R rows times C columns of sums in registers; the
//! blocks of a task walk over a panel of the packed columns, which stays in the second-level cache.

use super::types::{padded, Fill, Lanes, Real, Swapped, PADDING, PANEL};
#[cfg(target_arch = "x86_64")]
use super::x86::{F32x16, F32x8, F64x4, F64x8};

/// A stored dissimilarity. Negative integers and NaN are missing.
pub trait Stored: Copy + Default + Send + Sync {
    /// What it is multiplied in.
    type Real: Real;
    #[doc(hidden)]
    fn value(self) -> Self::Real;
    #[doc(hidden)]
    fn is_known(self) -> bool;
    #[doc(hidden)]
    fn task(
        level: VectorLevel,
        rows: &[Self],
        n: usize,
        packed: &[Self::Real],
        out: &mut [f64],
        mass: Option<&mut [f64]>,
    );
}

/// The vector instructions that the loop is written for.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorLevel {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl VectorLevel {
    #[cfg(target_arch = "x86_64")]
    pub(super) fn widest() -> Self {
        use std::arch::is_x86_feature_detected as has;
        if !(has!("avx2") && has!("fma")) {
            return VectorLevel::Baseline;
        }
        if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
            VectorLevel::Avx512
        } else {
            VectorLevel::Avx2
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn widest() -> Self {
        VectorLevel::Baseline
    }
}

/// Four lanes without particular instructions.
#[derive(Clone, Copy)]
struct Plain<F>([F; 4]);

// SAFETY: uses the instructions of every machine.
unsafe impl<F: Real> Lanes for Plain<F> {
    type Real = F;
    /// By construction.
    const COUNT: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([F::default(); 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const F) -> Self {
        // SAFETY: four values are there (contract of the trait).
        Plain(unsafe { from.cast::<[F; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        let mut sums = self.0;
        for (sum, (a, b)) in sums.iter_mut().zip(a.0.into_iter().zip(b.0)) {
            *sum = sum.add_product(a, b);
        }
        Plain(sums)
    }
    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        self.0.iter().map(|lane| lane.wide()).sum()
    }
}

impl<T: Stored> Fill<T> for Plain<T::Real> {
    #[inline(always)]
    unsafe fn values(from: *const T) -> Self {
        // SAFETY: four values are there (contract of the trait).
        Plain(unsafe { from.cast::<[T; 4]>().read_unaligned() }.map(T::value))
    }
    #[inline(always)]
    unsafe fn known(from: *const T) -> (Self, Self) {
        // SAFETY: four values are there (contract of the trait).
        let stored = unsafe { from.cast::<[T; 4]>().read_unaligned() };
        let known = stored.map(|value| T::Real::of(f64::from(u8::from(value.is_known()))));
        let values = stored.map(|v| {
            if v.is_known() {
                v.value()
            } else {
                T::Real::default()
            }
        });
        (Plain(values), Plain(known))
    }
}

/// The operands of one task.
struct Task<'a, T: Stored> {
    rows: &'a [T],
    n: usize,
    packed: &'a [T::Real],
    k: usize,
}

macro_rules! stored {
    ($stored:ty, $real:ty, $wide:ty, $narrow:ty, |$v:ident| $value:expr, $is_known:expr) => {
        impl Stored for $stored {
            type Real = $real;
            #[inline(always)]
            fn value(self) -> $real {
                let $v = self;
                $value
            }
            #[inline(always)]
            fn is_known(self) -> bool {
                let $v = self;
                $is_known
            }
            fn task(
                level: VectorLevel,
                rows: &[Self],
                n: usize,
                packed: &[$real],
                out: &mut [f64],
                mass: Option<&mut [f64]>,
            ) {
                let k = packed.len() / padded(n);
                let task = Task { rows, n, packed, k };
                match level {
                    // SAFETY: `widest` found every feature that this level is written for.
                    #[cfg(target_arch = "x86_64")]
                    VectorLevel::Avx512 => unsafe { avx512::<_, $wide>(&task, out, mass) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    VectorLevel::Avx2 => unsafe { avx2::<_, $narrow>(&task, out, mass) },
                    // SAFETY: plain lanes need no instructions of their own.
                    VectorLevel::Baseline => unsafe {
                        walk::<_, Plain<$real>, 1, 1, 2, 4, 4>(&task, out, mass);
                    },
                }
            }
        }
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! lanes_of {
    ($($name:ident $real:ty),*) => { $(type $name = Plain<$real>;)* };
}
#[cfg(not(target_arch = "x86_64"))]
lanes_of!(F32x16 f32, F32x8 f32, F64x8 f64, F64x4 f64);

stored!(i16, f32, F32x16, F32x8, |v| f32::from(v), v >= 0);
stored!(
    Swapped,
    f32,
    F32x16,
    F32x8,
    |v| f32::from(v.0.swap_bytes()),
    v.0.swap_bytes() >= 0
);
stored!(f32, f32, F32x16, F32x8, |v| v, !v.is_nan());
stored!(f64, f64, F64x8, F64x4, |v| v, !v.is_nan());

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn avx512<T: Stored, V: Fill<T, Real = T::Real>>(
    task: &Task<'_, T>,
    out: &mut [f64],
    mass: Option<&mut [f64]>,
) {
    // SAFETY: V is written for the features of this function.
    unsafe { walk::<T, V, 3, 4, 6, 8, 8>(task, out, mass) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<T: Stored, V: Fill<T, Real = T::Real>>(
    task: &Task<'_, T>,
    out: &mut [f64],
    mass: Option<&mut [f64]>,
) {
    // SAFETY: V is written for the features of this function.
    unsafe { walk::<T, V, 1, 2, 3, 6, 8>(task, out, mass) };
}

/// Where sums go: k a row.
struct Sums<'a> {
    out: &'a mut [f64],
    mass: Option<&'a mut [f64]>,
}

/// All panels, rows and columns of a task. R8, R6, R4, R2, R1: rows of a block of that many columns.
///
/// # Safety
///
/// The machine has the instructions of V.
#[inline(always)]
unsafe fn walk<
    T: Stored,
    V: Fill<T, Real = T::Real>,
    const R8: usize,
    const R6: usize,
    const R4: usize,
    const R2: usize,
    const R1: usize,
>(
    task: &Task<'_, T>,
    out: &mut [f64],
    mass: Option<&mut [f64]>,
) {
    let mut sums = Sums { out, mass };
    sums.out.fill(0.0);
    if let Some(mass) = &mut sums.mass {
        mass.fill(0.0);
    }
    for start in (0..task.n).step_by(PANEL) {
        let mut column = 0;
        while column < task.k {
            let left = task.k - column;
            // SAFETY: as for this function.
            column += unsafe {
                match (left, &sums.mass) {
                    (8.., None) => strip::<T, V, R8, 8>(task, start, column, &mut sums),
                    // One block more would read the rows once more.
                    (7, None) => strip::<T, V, R8, 7>(task, start, column, &mut sums),
                    (6, None) => strip::<T, V, R6, 6>(task, start, column, &mut sums),
                    (5, None) => strip::<T, V, R6, 5>(task, start, column, &mut sums),
                    (4, None) => strip::<T, V, R4, 4>(task, start, column, &mut sums),
                    (3, None) => strip::<T, V, R4, 3>(task, start, column, &mut sums),
                    (2, None) => strip::<T, V, R2, 2>(task, start, column, &mut sums),
                    (_, None) => strip::<T, V, R1, 1>(task, start, column, &mut sums),
                    // Masses need registers too: as many rows as for twice the columns.
                    (4.., Some(_)) => strip_known::<T, V, R8, 4>(task, start, column, &mut sums),
                    (2.., Some(_)) => strip_known::<T, V, R4, 2>(task, start, column, &mut sums),
                    (_, Some(_)) => strip_known::<T, V, R2, 1>(task, start, column, &mut sums),
                }
            };
        }
    }
}

/// R rows and C columns of one panel: where they begin, and how many values of a row there are.
struct Block<T: Stored, const R: usize, const C: usize> {
    rows: [*const T; R],
    columns: [*const T::Real; C],
    length: usize,
}

impl<T: Stored, const R: usize, const C: usize> Block<T, R, C> {
    /// The rows from `first` on; a block at the end computes its last row again, so that one loop serves all.
    #[inline(always)]
    fn new(task: &Task<'_, T>, start: usize, column: usize, first: usize) -> Self {
        let n_rows = task.rows.len() / task.n;
        let length = PANEL.min(task.n - start);
        let stride = padded(task.n);
        let mut rows = [std::ptr::null(); R];
        for (r, row) in rows.iter_mut().enumerate() {
            let from = (first + r).min(n_rows - 1) * task.n + start;
            *row = task.rows[from..from + length].as_ptr();
        }
        let mut columns = [std::ptr::null(); C];
        for (c, place) in columns.iter_mut().enumerate() {
            let from = (column + c) * stride + start;
            *place = task.packed[from..from + length.next_multiple_of(PADDING)].as_ptr();
        }
        Block {
            rows,
            columns,
            length,
        }
    }

    /// The values of row r from position `at` on: where they are, or a copy that zeros fill up.
    #[inline(always)]
    fn values(&self, r: usize, at: usize, lanes: usize, rest: &mut [T; 16]) -> *const T {
        if at + lanes <= self.length {
            return self.rows[r].wrapping_add(at);
        }
        *rest = [T::default(); 16];
        // SAFETY: a row holds `length` values, and fewer than 16 are left.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.rows[r].add(at),
                rest.as_mut_ptr(),
                self.length - at,
            );
        }
        rest.as_ptr()
    }
}

/// All rows of a task against C columns of one panel; returns C.
///
/// # Safety
///
/// The machine has the instructions of V.
#[inline(always)]
unsafe fn strip<T: Stored, V: Fill<T, Real = T::Real>, const R: usize, const C: usize>(
    task: &Task<'_, T>,
    start: usize,
    column: usize,
    to: &mut Sums<'_>,
) -> usize {
    let n_rows = task.rows.len() / task.n;
    for first in (0..n_rows).step_by(R) {
        let block = Block::<T, R, C>::new(task, start, column, first);
        // SAFETY: `Block` checked that rows and packed columns are as long as they are read; instructions as for
        // this function.
        unsafe {
            let mut sums = [[V::zero(); C]; R];
            let whole = block.length / V::COUNT * V::COUNT;
            let mut at = 0;
            while at < whole {
                // The rows of the next block come while this one is multiplied: its pieces are too short for the
                // machine to foresee them.
                if V::COUNT >= LINE / size_of::<T>() || at.is_multiple_of(LINE / size_of::<T>()) {
                    for r in 0..R {
                        fetch_ahead(block.rows[r].wrapping_add(R * task.n + at));
                    }
                }
                multiply(&block.rows, at, &block.columns, at, &mut sums);
                at += V::COUNT;
            }
            if whole < block.length {
                let mut copies = [[T::default(); 16]; R];
                let mut rows = block.rows;
                for r in 0..R {
                    rows[r] = block.values(r, whole, V::COUNT, &mut copies[r]);
                }
                multiply(&rows, 0, &block.columns, whole, &mut sums);
            }
            store(&sums, task, first, column, to.out);
        }
    }
    C
}

/// Bytes that a prefetch brings.
/// By arithmetic: a cache line.
const LINE: usize = 64;

/// Ask for the cache line of a place that is read soon; it need not exist.
#[inline(always)]
fn fetch_ahead<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Add the products of R vectors of values and C vectors of columns.
#[inline(always)]
unsafe fn multiply<T: Stored, V: Fill<T, Real = T::Real>, const R: usize, const C: usize>(
    rows: &[*const T; R],
    row_at: usize,
    columns: &[*const T::Real; C],
    column_at: usize,
    sums: &mut [[V; C]; R],
) {
    // SAFETY: contract of the caller.
    unsafe {
        let mut values = [V::zero(); R];
        for r in 0..R {
            values[r] = V::values(rows[r].add(row_at));
        }
        for c in 0..C {
            let column = V::load(columns[c].add(column_at));
            for r in 0..R {
                sums[r][c] = sums[r][c].add_product(values[r], column);
            }
        }
    }
}

/// As `strip`, with missing values left out, and the masses of the known ones.
///
/// # Safety
///
/// The machine has the instructions of V.
#[inline(always)]
unsafe fn strip_known<T: Stored, V: Fill<T, Real = T::Real>, const R: usize, const C: usize>(
    task: &Task<'_, T>,
    start: usize,
    column: usize,
    to: &mut Sums<'_>,
) -> usize {
    let n_rows = task.rows.len() / task.n;
    for first in (0..n_rows).step_by(R) {
        let block = Block::<T, R, C>::new(task, start, column, first);
        // SAFETY: as in `strip`.
        unsafe {
            let mut sums = [[V::zero(); C]; R];
            let mut masses = sums;
            let mut rest = [T::default(); 16];
            let mut at = 0;
            while at < block.length {
                for r in 0..R {
                    let (values, known) = V::known(block.values(r, at, V::COUNT, &mut rest));
                    for c in 0..C {
                        let column = V::load(block.columns[c].add(at));
                        sums[r][c] = sums[r][c].add_product(values, column);
                        masses[r][c] = masses[r][c].add_product(known, column);
                    }
                }
                at += V::COUNT;
            }
            store(&sums, task, first, column, to.out);
            if let Some(mass) = &mut to.mass {
                store(&masses, task, first, column, mass);
            }
        }
    }
    C
}

/// Carry the lanes of a block over to f64.
#[inline(always)]
unsafe fn store<T: Stored, V: Lanes, const R: usize, const C: usize>(
    sums: &[[V; C]; R],
    task: &Task<'_, T>,
    first: usize,
    column: usize,
    to: &mut [f64],
) {
    let n_rows = task.rows.len() / task.n;
    // Loops over constants: sums that are indexed by a variable would have to live in memory.
    #[allow(clippy::needless_range_loop)]
    for r in 0..R {
        if first + r < n_rows {
            let from = (first + r) * task.k + column;
            let places = &mut to[from..from + C];
            // SAFETY: contract of the caller.
            let totals = unsafe { V::sums(&sums[r]) };
            for c in 0..C {
                places[c] += totals[c];
            }
        }
    }
}
