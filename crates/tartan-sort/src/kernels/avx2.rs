//! Vectors of 256 bits.

use std::arch::x86_64::*;

use super::network::sort_small;
use super::quick::{part, quicksort};
use super::vector::{entries, part_table, Vector};

static PARTS64: [[u8; 4]; 16] = part_table::<4, 16>();
static PARTS32: [[u8; 8]; 256] = part_table::<8, 256>();

#[derive(Clone, Copy)]
pub(crate) struct Narrow64(__m256i);

#[derive(Clone, Copy)]
pub(crate) struct Narrow32(__m256i);

/// What keys of both widths do alike, by instructions of other names.
macro_rules! alike {
    ($key:ty, $signed:ty, $small:ident, $set:ident, $load:ident, $store:ident) => {
        type Key = $key;
        /// By format: 256 bits.
        const LANES: usize = 32 / size_of::<$key>();

        #[inline(always)]
        unsafe fn load(from: *const $key) -> Self {
            Self(_mm256_loadu_si256(from.cast()))
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut $key) {
            _mm256_storeu_si256(to.cast(), self.0);
        }

        #[inline(always)]
        unsafe fn load_first(from: *const $key, n: usize) -> Self {
            let lanes = Self::first(n);
            let others = _mm256_xor_si256(lanes, $set(-1));
            Self(_mm256_or_si256($load(from.cast(), lanes), others))
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut $key, n: usize) {
            $store(to.cast(), Self::first(n), self.0);
        }

        #[inline(always)]
        unsafe fn splat(key: $key) -> Self {
            Self($set(key as $signed))
        }

        #[inline(always)]
        unsafe fn sort_small(keys: *mut $key, n: usize) {
            $small(keys, n);
        }
    };
}

impl Narrow64 {
    /// All bits of each lane that is smaller. There is only a comparison of signed numbers.
    #[inline(always)]
    unsafe fn smaller(self, other: Self) -> __m256i {
        let sign = _mm256_set1_epi64x(i64::MIN);
        _mm256_cmpgt_epi64(
            _mm256_xor_si256(other.0, sign),
            _mm256_xor_si256(self.0, sign),
        )
    }

    /// All bits of the first `n` lanes.
    #[inline(always)]
    unsafe fn first(n: usize) -> __m256i {
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3))
    }
}

impl Vector for Narrow64 {
    alike!(
        u64,
        i64,
        small64,
        _mm256_set1_epi64x,
        _mm256_maskload_epi64,
        _mm256_maskstore_epi64
    );

    #[inline(always)]
    unsafe fn exchange(self, other: Self) -> (Self, Self) {
        let smaller = self.smaller(other);
        (
            Narrow64(_mm256_blendv_epi8(other.0, self.0, smaller)),
            Narrow64(_mm256_blendv_epi8(self.0, other.0, smaller)),
        )
    }

    #[inline(always)]
    unsafe fn reverse<const W: usize>(self) -> Self {
        Narrow64(match W {
            2 => _mm256_shuffle_epi32::<0b01_00_11_10>(self.0),
            _ => _mm256_permute4x64_epi64::<0b00_01_10_11>(self.0),
        })
    }

    #[inline(always)]
    unsafe fn swap<const D: usize>(self) -> Self {
        Narrow64(match D {
            1 => _mm256_shuffle_epi32::<0b01_00_11_10>(self.0),
            _ => _mm256_permute4x64_epi64::<0b01_00_11_10>(self.0),
        })
    }

    #[inline(always)]
    unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self {
        Narrow64(match W {
            2 => _mm256_blend_epi32::<0b1100_1100>(low.0, high.0),
            _ => _mm256_blend_epi32::<0b1111_0000>(low.0, high.0),
        })
    }

    #[inline(always)]
    unsafe fn less(self, pivot: Self) -> u32 {
        _mm256_movemask_pd(_mm256_castsi256_pd(self.smaller(pivot))) as u32
    }

    #[inline(always)]
    unsafe fn part(self, bits: u32) -> Self {
        // Each lane is two halves, 2 i and 2 i + 1.
        let lanes = _mm_cvtsi32_si128(i32::from_le_bytes(PARTS64[bits as usize & 15]));
        let even = _mm256_slli_epi64::<1>(_mm256_cvtepu8_epi64(lanes));
        let odd = _mm256_slli_epi64::<32>(_mm256_add_epi64(even, _mm256_set1_epi64x(1)));
        Narrow64(_mm256_permutevar8x32_epi32(
            self.0,
            _mm256_or_si256(even, odd),
        ))
    }
}

impl Narrow32 {
    /// All bits of the first `n` lanes.
    #[inline(always)]
    unsafe fn first(n: usize) -> __m256i {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

impl Vector for Narrow32 {
    alike!(
        u32,
        i32,
        small32,
        _mm256_set1_epi32,
        _mm256_maskload_epi32,
        _mm256_maskstore_epi32
    );

    #[inline(always)]
    unsafe fn exchange(self, other: Self) -> (Self, Self) {
        (
            Narrow32(_mm256_min_epu32(self.0, other.0)),
            Narrow32(_mm256_max_epu32(self.0, other.0)),
        )
    }

    #[inline(always)]
    unsafe fn reverse<const W: usize>(self) -> Self {
        Narrow32(match W {
            2 => _mm256_shuffle_epi32::<0b10_11_00_01>(self.0),
            4 => _mm256_shuffle_epi32::<0b00_01_10_11>(self.0),
            _ => _mm256_permutevar8x32_epi32(self.0, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0)),
        })
    }

    #[inline(always)]
    unsafe fn swap<const D: usize>(self) -> Self {
        Narrow32(match D {
            1 => _mm256_shuffle_epi32::<0b10_11_00_01>(self.0),
            2 => _mm256_shuffle_epi32::<0b01_00_11_10>(self.0),
            _ => _mm256_permute4x64_epi64::<0b01_00_11_10>(self.0),
        })
    }

    #[inline(always)]
    unsafe fn halves<const W: usize>(low: Self, high: Self) -> Self {
        Narrow32(match W {
            2 => _mm256_blend_epi32::<0b1010_1010>(low.0, high.0),
            4 => _mm256_blend_epi32::<0b1100_1100>(low.0, high.0),
            _ => _mm256_blend_epi32::<0b1111_0000>(low.0, high.0),
        })
    }

    #[inline(always)]
    unsafe fn less(self, pivot: Self) -> u32 {
        // Not smaller where the larger of both is the key itself.
        let larger = _mm256_max_epu32(self.0, pivot.0);
        let not_smaller = _mm256_cmpeq_epi32(larger, self.0);
        !_mm256_movemask_ps(_mm256_castsi256_ps(not_smaller)) as u32 & 0xFF
    }

    #[inline(always)]
    unsafe fn part(self, bits: u32) -> Self {
        let lanes = _mm_loadl_epi64(PARTS32.as_ptr().add(bits as usize).cast());
        Narrow32(_mm256_permutevar8x32_epi32(
            self.0,
            _mm256_cvtepu8_epi32(lanes),
        ))
    }
}

entries!("avx2,bmi2,popcnt", Narrow64, u64, small64, sort64, part64);
entries!("avx2,bmi2,popcnt", Narrow32, u32, small32, sort32, part32);
