//! What the product and the steps around it share: sizes, the precision, vectors of lanes.

/// Columns of the matrix that are multiplied before lanes are summed up. A multiple of every number of lanes. Eight
/// packed columns of it, three rows and the next three fit into the first-level cache.
/// By arithmetic: 11 or 14 rows of 2 KiB in 32 KiB. `tartan bench pwc` measures the product.
pub const PANEL: usize = 512;

/// With fewer values a step is done by the calling thread: waking the others would take longer.
/// By judgement: 32,768 values take some 10 us; waking a thread takes as long. `tartan bench pwc` holds the time.
pub(super) const SMALL: usize = 1 << 15;

/// Packed columns are a multiple of this long, so that vectors never end in the middle.
/// By arithmetic: 512 bits of float32.
pub const PADDING: usize = 16;

/// The precision of products: f32 or f64.
pub trait Real: Copy + Default + PartialOrd + Send + Sync {
    #[doc(hidden)]
    fn of(value: f64) -> Self;
    #[doc(hidden)]
    fn wide(self) -> f64;
    #[doc(hidden)]
    fn add_product(self, a: Self, b: Self) -> Self;
}

macro_rules! real {
    ($real:ty, $smallest:expr) => {
        impl Real for $real {
            /// Nearest value; what could turn denormal, which is slow, becomes 0.
            #[inline(always)]
            fn of(value: f64) -> Self {
                if value.abs() < $smallest {
                    0.0
                } else {
                    value as $real
                }
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn add_product(self, a: Self, b: Self) -> Self {
                self + a * b
            }
        }
    };
}

real!(f32, 1e-30);
real!(f64, 1e-250);

/// Length of one packed column of n values: an odd number of paddings, so that columns do not compete for the same
/// places of a cache.
pub fn padded(n: usize) -> usize {
    (n.div_ceil(PADDING) | 1) * PADDING
}

/// An int16 in the other byte order than this machine's.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Swapped(pub i16);

/// A vector of lanes.
///
/// # Safety
///
/// Its functions may be called where the machine has the instructions that the type is written for.
pub(super) unsafe trait Lanes: Copy {
    type Real: Real;
    const COUNT: usize;
    unsafe fn zero() -> Self;
    /// COUNT values from an address, which need not be aligned.
    unsafe fn load(from: *const Self::Real) -> Self;
    /// self + a * b
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// The sum of all lanes.
    unsafe fn sum(self) -> f64;
    /// The sum of all lanes of each of C vectors, C at most 8.
    #[inline(always)]
    unsafe fn sums<const C: usize>(vectors: &[Self; C]) -> [f64; C] {
        // SAFETY: contract of the trait.
        vectors.map(|vector| unsafe { vector.sum() })
    }
}

/// Lanes that are filled from stored values. Safe where its [`Lanes`] are.
pub(super) trait Fill<T>: Lanes {
    /// COUNT values from an address, none of them missing.
    unsafe fn values(from: *const T) -> Self;
    /// COUNT values, 0 where they are missing; and 1 where they are known, else 0.
    unsafe fn known(from: *const T) -> (Self, Self);
}
