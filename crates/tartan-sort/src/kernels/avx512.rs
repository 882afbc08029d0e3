//! Vectors of 512 bits.

use std::arch::x86_64::*;

use super::network::sort_small;
use super::quick::{part, quicksort};
use super::vector::{entries, part_table, Vector};

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

/// What keys of both widths do alike, by instructions of other names.
macro_rules! alike {
    (
        $key:ty, $signed:ty, $mask:ty, $small:ident, $set:ident, $load:ident, $store:ident,
        $min:ident, $max:ident, $choose:ident, $less:ident
    ) => {
        type Key = $key;
        /// By format: 512 bits.
        const LANES: usize = 64 / size_of::<$key>();

        #[inline(always)]
        unsafe fn load(from: *const $key) -> Self {
            Self(_mm512_loadu_si512(from.cast()))
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut $key) {
            _mm512_storeu_si512(to.cast(), self.0);
        }

        #[inline(always)]
        unsafe fn load_first(from: *const $key, n: usize) -> Self {
            Self($load($set(-1), ((1u32 << n) - 1) as $mask, from.cast()))
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut $key, n: usize) {
            $store(to.cast(), ((1u32 << n) - 1) as $mask, self.0);
        }

        #[inline(always)]
        unsafe fn splat(key: $key) -> Self {
            Self($set(key as $signed))
        }

        #[inline(always)]
        unsafe fn exchange(self, other: Self) -> (Self, Self) {
            (Self($min(self.0, other.0)), Self($max(self.0, other.0)))
        }

        #[inline(always)]
        unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self {
            Self($choose(low.0, upper_bits::<W>() as $mask, high.0))
        }

        #[inline(always)]
        unsafe fn less(self, pivot: Self) -> u32 {
            u32::from($less(self.0, pivot.0))
        }

        #[inline(always)]
        unsafe fn sort_small(keys: *mut $key, n: usize) {
            $small(keys, n);
        }
    };
}

impl Vector for Wide64 {
    alike!(
        u64,
        i64,
        __mmask8,
        small64,
        _mm512_set1_epi64,
        _mm512_mask_loadu_epi64,
        _mm512_mask_storeu_epi64,
        _mm512_min_epu64,
        _mm512_max_epu64,
        _mm512_mask_mov_epi64,
        _mm512_cmplt_epu64_mask
    );

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
    unsafe fn part(self, bits: u32) -> Self {
        let lanes = _mm_loadl_epi64(PARTS.as_ptr().add(bits as usize).cast());
        Wide64(_mm512_permutexvar_epi64(
            _mm512_cvtepu8_epi64(lanes),
            self.0,
        ))
    }
}

impl Vector for Wide32 {
    alike!(
        u32,
        i32,
        __mmask16,
        small32,
        _mm512_set1_epi32,
        _mm512_mask_loadu_epi32,
        _mm512_mask_storeu_epi32,
        _mm512_min_epu32,
        _mm512_max_epu32,
        _mm512_mask_mov_epi32,
        _mm512_cmplt_epu32_mask
    );

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
    unsafe fn part(self, bits: u32) -> Self {
        let first = _mm512_maskz_compress_epi32(bits as u16, self.0);
        let others = _mm512_maskz_compress_epi32(!bits as u16, self.0);
        let behind = (u32::MAX << bits.count_ones()) as u16;
        Wide32(_mm512_mask_expand_epi32(first, behind, others))
    }
}

entries!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt",
    Wide64,
    u64,
    small64,
    sort64,
    part64
);
entries!(
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt",
    Wide32,
    u32,
    small32,
    sort32,
    part32
);
