//! What vectorised sorting asks of a vector of keys.

use super::Key;

/// A vector of unsigned keys. Lane 0 is the first in memory.
///
/// # Safety of all methods
/// The machine has the instructions of the implementing type; pointers are valid for the lanes that are read or
/// written. Methods are inlined into functions that are compiled for those instructions.
pub(crate) trait Vector: Copy {
    type Key: Key;
    const LANES: usize;

    unsafe fn load(from: *const Self::Key) -> Self;
    unsafe fn store(self, to: *mut Self::Key);
    /// Load `n` keys, at most `LANES`; the other lanes hold the largest key.
    unsafe fn load_first(from: *const Self::Key, n: usize) -> Self;
    /// Store the first `n` lanes.
    unsafe fn store_first(self, to: *mut Self::Key, n: usize);
    /// Ask for `n` vectors to be brought near; the pointer may be invalid.
    #[inline(always)]
    unsafe fn prefetch(from: *const Self::Key, n: usize) {
        for i in 0..n {
            #[cfg(target_arch = "x86_64")]
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                from.wrapping_add(i * Self::LANES).cast(),
            );
        }
    }
    unsafe fn splat(key: Self::Key) -> Self;
    /// The smaller and the larger of each lane.
    unsafe fn exchange(self, other: Self) -> (Self, Self);
    /// Reverse each group of `W` lanes.
    unsafe fn reverse<const W: usize>(self) -> Self;
    /// Swap lane i with lane i ^ `D`.
    unsafe fn swap<const D: usize>(self) -> Self;
    /// The lower half of each group of `W` lanes from `low`, the upper half from `high`.
    unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self;
    /// A bit for each lane that is smaller.
    unsafe fn less(self, pivot: Self) -> u32;
    /// The lanes whose bits are set, in their order, then the others in theirs.
    unsafe fn part(self, bits: u32) -> Self;
    /// Sort up to `SMALL * LANES` keys: a function of its own, since it is large.
    unsafe fn sort_small(keys: *mut Self::Key, n: usize);
}

/// Lanes in the order of [`Vector::part`], for every pattern of `LANES` bits.
#[cfg(target_arch = "x86_64")]
pub(crate) const fn part_table<const LANES: usize, const PATTERNS: usize>(
) -> [[u8; LANES]; PATTERNS] {
    let mut table = [[0; LANES]; PATTERNS];
    let mut bits = 0;
    while bits < PATTERNS {
        let (mut place, mut set) = (0, true);
        loop {
            let mut lane = 0;
            while lane < LANES {
                if (bits >> lane & 1 == 1) == set {
                    table[bits][place] = lane as u8;
                    place += 1;
                }
                lane += 1;
            }
            if !set {
                break;
            }
            set = false;
        }
        bits += 1;
    }
    table
}

/// The functions of a vector that are compiled for its instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! entries {
    ($features:literal, $vector:ty, $key:ty, $small:ident, $sort:ident, $part:ident) => {
        #[target_feature(enable = $features)]
        unsafe fn $small(keys: *mut $key, n: usize) {
            sort_small::<$vector>(keys, n);
        }

        /// Sort keys that lie between `low` and `high`, both included.
        #[target_feature(enable = $features)]
        pub(crate) fn $sort(keys: &mut [$key], low: $key, high: $key) {
            // SAFETY: this function is compiled for the instructions of the vector.
            unsafe { quicksort::<$vector>(keys, low, high) }
        }

        /// Move keys below the pivot to the front, and return their number.
        #[target_feature(enable = $features)]
        pub(crate) fn $part(keys: &mut [$key], pivot: $key) -> usize {
            // SAFETY: as above.
            unsafe { part::<$vector>(keys.as_mut_ptr(), keys.len(), pivot) }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use entries;
