//! The functions that differ between the paths, as one table a path.

use super::plain;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use super::{Key, Path};

/// A key with kernels of vectors.
pub trait Vectorised: Key {
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    const AVX512: Kernels<Self>;
    #[doc(hidden)]
    #[cfg(target_arch = "x86_64")]
    const AVX2: Kernels<Self>;
}

impl Vectorised for u32 {
    #[cfg(target_arch = "x86_64")]
    const AVX512: Kernels<u32> = Kernels::vectorised(avx512::sort32, avx512::part32);
    #[cfg(target_arch = "x86_64")]
    const AVX2: Kernels<u32> = Kernels::vectorised(avx2::sort32, avx2::part32);
}

impl Vectorised for u64 {
    #[cfg(target_arch = "x86_64")]
    const AVX512: Kernels<u64> = Kernels::vectorised(avx512::sort64, avx512::part64);
    #[cfg(target_arch = "x86_64")]
    const AVX2: Kernels<u64> = Kernels::vectorised(avx2::sort64, avx2::part64);
}

/// What one path does in its own way.
#[derive(Clone, Copy)]
pub struct Kernels<K: 'static> {
    sort: unsafe fn(&mut [K], K, K),
    part: unsafe fn(&mut [K], K) -> usize,
    /// Whether this path sorts by radix where there is scratch.
    pub(crate) radix: bool,
}

impl<K: Vectorised> Kernels<K> {
    /// The kernels of a path.
    ///
    /// # Panics
    /// When a path is asked for that this machine lacks.
    pub(crate) fn new(path: Path) -> Self {
        match path.resolve() {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => K::AVX512,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => K::AVX2,
            _ => Kernels {
                sort: plain::sort,
                part: plain::part,
                radix: true,
            },
        }
    }

    /// Kernels of vectors.
    pub(crate) const fn vectorised(
        sort: unsafe fn(&mut [K], K, K),
        part: unsafe fn(&mut [K], K) -> usize,
    ) -> Self {
        Kernels {
            sort,
            part,
            radix: false,
        }
    }

    /// Sort keys that lie between `low` and `high`, both included, in place.
    pub(crate) fn sort(&self, keys: &mut [K], low: K, high: K) {
        // SAFETY: `new` made sure that the instructions are there.
        unsafe { (self.sort)(keys, low, high) }
    }

    /// Move keys below the pivot to the front, and return their number.
    pub(crate) fn part(&self, keys: &mut [K], pivot: K) -> usize {
        // SAFETY: as above.
        unsafe { (self.part)(keys, pivot) }
    }
}
