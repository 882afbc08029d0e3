//! Vectors of 512 bits.

use std::arch::x86_64::*;

use super::network::sort_small;
use super::quick::{part, quicksort};
use super::vector::{part_table, Vector};

static PARTS: [[u8; 8]; 256] = part_table::<8, 256>();

#[derive(Clone, Copy)]
pub(crate) struct Wide64(__m512i);

#[derive(Clone, Copy)]
pub(crate) struct Wide32(__m512i);

/// A bit for each lane in the upper half of its group of `W`.
const fn upper_bits<const W: usize>() -> u16 {
    match W {
        2 => 0xAAAA,
        4 => 0xCCCC,
        8 => 0xF0F0,
        _ => 0xFF00,
    }
}

impl Vector for Wide64 {
    type Key = u64;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        Wide64(_mm512_loadu_si512(from.cast()))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        _mm512_storeu_si512(to.cast(), self.0);
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u64, n: usize) -> Self {
        let bits = ((1u32 << n) - 1) as __mmask8;
        Wide64(_mm512_mask_loadu_epi64(
            _mm512_set1_epi64(-1),
            bits,
            from.cast(),
        ))
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u64, n: usize) {
        _mm512_mask_storeu_epi64(to.cast(), ((1u32 << n) - 1) as __mmask8, self.0);
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u64, n: usize) {
        for i in 0..n {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(i * Self::LANES).cast());
        }
    }

    #[inline(always)]
    unsafe fn splat(key: u64) -> Self {
        Wide64(_mm512_set1_epi64(key as i64))
    }

    #[inline(always)]
    unsafe fn exchange(self, other: Self) -> (Self, Self) {
        (
            Wide64(_mm512_min_epu64(self.0, other.0)),
            Wide64(_mm512_max_epu64(self.0, other.0)),
        )
    }

    #[inline(always)]
    unsafe fn reverse<const W: usize>(self) -> Self {
        Wide64(match W {
            2 => _mm512_shuffle_epi32::<0b01_00_11_10>(self.0),
            4 => _mm512_permutex_epi64::<0b00_01_10_11>(self.0),
            _ => _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), self.0),
        })
    }

    #[inline(always)]
    unsafe fn swap<const D: usize>(self) -> Self {
        Wide64(match D {
            1 => _mm512_shuffle_epi32::<0b01_00_11_10>(self.0),
            2 => _mm512_permutex_epi64::<0b01_00_11_10>(self.0),
            _ => _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0),
        })
    }

    #[inline(always)]
    unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self {
        Wide64(_mm512_mask_mov_epi64(
            low.0,
            upper_bits::<W>() as __mmask8,
            high.0,
        ))
    }

    #[inline(always)]
    unsafe fn less(self, pivot: Self) -> u32 {
        u32::from(_mm512_cmplt_epu64_mask(self.0, pivot.0))
    }

    #[inline(always)]
    unsafe fn part(self, bits: u32) -> Self {
        let lanes = _mm_loadl_epi64(PARTS.as_ptr().add(bits as usize).cast());
        Wide64(_mm512_permutexvar_epi64(
            _mm512_cvtepu8_epi64(lanes),
            self.0,
        ))
    }

    #[inline(always)]
    unsafe fn sort_small(keys: *mut u64, n: usize) {
        small64(keys, n);
    }
}

impl Vector for Wide32 {
    type Key = u32;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        Wide32(_mm512_loadu_si512(from.cast()))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        _mm512_storeu_si512(to.cast(), self.0);
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u32, n: usize) -> Self {
        let bits = ((1u32 << n) - 1) as __mmask16;
        Wide32(_mm512_mask_loadu_epi32(
            _mm512_set1_epi32(-1),
            bits,
            from.cast(),
        ))
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut u32, n: usize) {
        _mm512_mask_storeu_epi32(to.cast(), ((1u32 << n) - 1) as __mmask16, self.0);
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u32, n: usize) {
        for i in 0..n {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(i * Self::LANES).cast());
        }
    }

    #[inline(always)]
    unsafe fn splat(key: u32) -> Self {
        Wide32(_mm512_set1_epi32(key as i32))
    }

    #[inline(always)]
    unsafe fn exchange(self, other: Self) -> (Self, Self) {
        (
            Wide32(_mm512_min_epu32(self.0, other.0)),
            Wide32(_mm512_max_epu32(self.0, other.0)),
        )
    }

    #[inline(always)]
    unsafe fn reverse<const W: usize>(self) -> Self {
        Wide32(match W {
            2 => _mm512_shuffle_epi32::<0b10_11_00_01>(self.0),
            4 => _mm512_shuffle_epi32::<0b00_01_10_11>(self.0),
            8 => _mm512_permutexvar_epi32(
                _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8),
                self.0,
            ),
            _ => _mm512_permutexvar_epi32(
                _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                self.0,
            ),
        })
    }

    #[inline(always)]
    unsafe fn swap<const D: usize>(self) -> Self {
        Wide32(match D {
            1 => _mm512_shuffle_epi32::<0b10_11_00_01>(self.0),
            2 => _mm512_shuffle_epi32::<0b01_00_11_10>(self.0),
            4 => _mm512_permutex_epi64::<0b01_00_11_10>(self.0),
            _ => _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0),
        })
    }

    #[inline(always)]
    unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self {
        Wide32(_mm512_mask_mov_epi32(low.0, upper_bits::<W>(), high.0))
    }

    #[inline(always)]
    unsafe fn less(self, pivot: Self) -> u32 {
        u32::from(_mm512_cmplt_epu32_mask(self.0, pivot.0))
    }

    #[inline(always)]
    unsafe fn part(self, bits: u32) -> Self {
        let first = _mm512_maskz_compress_epi32(bits as u16, self.0);
        let others = _mm512_maskz_compress_epi32(!bits as u16, self.0);
        let behind = (u32::MAX << bits.count_ones()) as u16;
        Wide32(_mm512_mask_expand_epi32(first, behind, others))
    }

    #[inline(always)]
    unsafe fn sort_small(keys: *mut u32, n: usize) {
        small32(keys, n);
    }
}

macro_rules! entries {
    ($vector:ty, $key:ty, $small:ident, $sort:ident, $part:ident) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
        unsafe fn $small(keys: *mut $key, n: usize) {
            sort_small::<$vector>(keys, n);
        }

        /// Sort keys that lie between `low` and `high`, both included.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
        pub(crate) fn $sort(keys: &mut [$key], low: $key, high: $key) {
            // SAFETY: this function is compiled for the instructions of the vector.
            unsafe { quicksort::<$vector>(keys, low, high) }
        }

        /// Move keys below the pivot to the front, and return their number.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
        pub(crate) fn $part(keys: &mut [$key], pivot: $key) -> usize {
            // SAFETY: as above.
            unsafe { part::<$vector>(keys.as_mut_ptr(), keys.len(), pivot) }
        }
    };
}

entries!(Wide64, u64, small64, sort64, part64);
entries!(Wide32, u32, small32, sort32, part32);
