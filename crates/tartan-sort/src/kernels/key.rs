//! What the kernels are generic over: the key, and the instructions that they are compiled for.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// `u32` or `u64`: what is sorted, merged and packed.
pub trait Key: sealed::Sealed + Copy + Ord + Debug + Default + Send + Sync + 'static {
    #[doc(hidden)]
    const BITS: u32;
    /// By format.
    #[doc(hidden)]
    const BYTES: usize = Self::BITS as usize / 8;
    #[doc(hidden)]
    const MAX: Self;
    #[doc(hidden)]
    fn from_u64(value: u64) -> Self;
    #[doc(hidden)]
    fn to_u64(self) -> u64;
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
    #[doc(hidden)]
    fn minus(self, other: Self) -> Self;
    #[doc(hidden)]
    fn or(self, other: Self) -> Self;
    #[doc(hidden)]
    fn and(self, other: Self) -> Self;
    #[doc(hidden)]
    fn left(self, bits: u32) -> Self;
    #[doc(hidden)]
    fn right(self, bits: u32) -> Self;
    #[doc(hidden)]
    fn zeros(self) -> u32;
}

macro_rules! key {
    ($key:ty) => {
        impl Key for $key {
            const BITS: u32 = <$key>::BITS;
            const MAX: Self = <$key>::MAX;
            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $key
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn left(self, bits: u32) -> Self {
                self.wrapping_shl(bits)
            }
            #[inline(always)]
            fn right(self, bits: u32) -> Self {
                self.wrapping_shr(bits)
            }
            #[inline(always)]
            fn zeros(self) -> u32 {
                self.leading_zeros()
            }
        }
    };
}

key!(u32);
key!(u64);

/// The instructions that a sort is built on. All paths give the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Path {
    /// The fastest that this machine has.
    #[default]
    Auto,
    /// Vectors of 512 bits.
    Avx512,
    /// Vectors of 256 bits.
    Avx2,
    /// No vectors: runs everywhere.
    Radix,
}

impl Path {
    /// Whether this machine has the instructions.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        use std::arch::is_x86_feature_detected as has;
        match self {
            Path::Auto | Path::Radix => true,
            Path::Avx2 => has!("avx2") && has!("bmi2") && has!("popcnt"),
            Path::Avx512 => {
                Path::Avx2.is_available()
                    && has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512dq")
                    && has!("avx512vl")
            }
        }
    }

    /// Whether this machine has the instructions.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        matches!(self, Path::Auto | Path::Radix)
    }

    /// The path itself, or the best one for `Auto`.
    ///
    /// # Panics
    /// When a path is asked for that this machine lacks.
    pub(crate) fn resolve(self) -> Path {
        assert!(
            self.is_available(),
            "this machine lacks the instructions of {self:?}: use Path::Auto"
        );
        match self {
            Path::Auto if Path::Avx512.is_available() => Path::Avx512,
            Path::Auto if Path::Avx2.is_available() => Path::Avx2,
            Path::Auto => Path::Radix,
            forced => forced,
        }
    }
}
