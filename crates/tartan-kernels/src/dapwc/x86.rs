//! Vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;

use super::types::{Fill, Lanes, Swapped};

/// 16 lanes of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct F32x16(__m512);

/// 8 lanes of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

/// 8 lanes of AVX2.
#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);

/// 4 lanes of AVX2.
#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

/// One type's `Lanes`: the intrinsics behind each operation.
macro_rules! lanes {
    ($name:ident, $real:ty, $count:expr, $zero:ident, $load:ident, $fma:ident, |$v:ident| $sum:expr $(, $more:item)?) => {
        // SAFETY: AVX-512 F, BW, DQ, VL or AVX2 and FMA, which the levels of the loop ask for.
        unsafe impl Lanes for $name {
            type Real = $real;
            const COUNT: usize = $count;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: contract of the trait; so below.
                $name(unsafe { $zero() })
            }
            #[inline(always)]
            unsafe fn load(from: *const $real) -> Self {
                // SAFETY: as above.
                $name(unsafe { $load(from) })
            }
            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                $name(unsafe { $fma(a.0, b.0, self.0) })
            }
            #[inline(always)]
            unsafe fn sum(self) -> f64 {
                let $v = self.0;
                // SAFETY: as above.
                unsafe { $sum }
            }
            $($more)?
        }
    };
}

lanes!(
    F32x16,
    f32,
    16,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_fmadd_ps,
    |v| {
        let low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
        let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        _mm512_reduce_add_pd(_mm512_add_pd(low, high))
    },
    #[inline(always)]
    unsafe fn sums<const C: usize>(vectors: &[Self; C]) -> [f64; C] {
        // SAFETY: as above.
        let totals = unsafe {
            sums_of_eight(std::array::from_fn(|c| {
                if c < C {
                    vectors[c].0
                } else {
                    _mm512_setzero_ps()
                }
            }))
        };
        std::array::from_fn(|c| totals[c])
    }
);
lanes!(
    F64x8,
    f64,
    8,
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_fmadd_pd,
    |v| _mm512_reduce_add_pd(v)
);
lanes!(
    F32x8,
    f32,
    8,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_fmadd_ps,
    |v| {
        let low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        let high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        F64x4(_mm256_add_pd(low, high)).sum()
    }
);
lanes!(
    F64x4,
    f64,
    4,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_fmadd_pd,
    |v| {
        let pairs = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
        _mm_cvtsd_f64(_mm_add_sd(pairs, _mm_unpackhi_pd(pairs, pairs)))
    }
);

/// The sums of eight vectors' lanes, by a tree of vector additions: a quarter of the work of one sum after the other,
/// which matters where a block's rows are short.
#[inline(always)]
unsafe fn sums_of_eight(v: [__m512; 8]) -> [f64; 8] {
    // SAFETY: AVX-512 F and DQ (contract of the caller).
    unsafe {
        let pair = |a, b| _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let pairs = [
            pair(v[0], v[1]),
            pair(v[2], v[3]),
            pair(v[4], v[5]),
            pair(v[6], v[7]),
        ];
        let four = |a, b| {
            _mm512_add_ps(
                _mm512_shuffle_ps::<0x44>(a, b),
                _mm512_shuffle_ps::<0xee>(a, b),
            )
        };
        let (low, high) = (four(pairs[0], pairs[1]), four(pairs[2], pairs[3]));
        // Quarters 0 and 1 belong to the first four vectors, 2 and 3 to the others.
        let halves = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x44>(low, high),
            _mm512_shuffle_f32x4::<0xee>(low, high),
        );
        let all = _mm512_add_ps(halves, _mm512_shuffle_f32x4::<0xb1>(halves, halves));
        let eight = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0x08>(all, all));
        let mut totals = [0.0; 8];
        _mm512_storeu_pd(totals.as_mut_ptr(), _mm512_cvtps_pd(eight));
        totals
    }
}

/// One combination's `Fill`: how values are read, which are known, what is left of the others.
macro_rules! fill {
    ($name:ident, $stored:ty, |$from:ident| $read:expr, |$v:ident| $real:expr, $known:expr) => {
        impl Fill<$stored> for $name {
            #[inline(always)]
            unsafe fn values($from: *const $stored) -> Self {
                // SAFETY: contract of the trait; so below.
                unsafe {
                    let $v = $read;
                    $name($real)
                }
            }
            #[inline(always)]
            unsafe fn known($from: *const $stored) -> (Self, Self) {
                // SAFETY: as above.
                unsafe {
                    let $v = $read;
                    let (values, known) = $known;
                    ($name(values), $name(known))
                }
            }
        }
    };
}

macro_rules! fill_i16 {
    ($stored:ty, |$wide:ident| $read512:expr, |$narrow:ident| $read256:expr) => {
        fill!(
            F32x16,
            $stored,
            |$wide| _mm512_cvtepi16_epi32($read512),
            |v| _mm512_cvtepi32_ps(v),
            {
                let known = _mm512_cmpge_epi32_mask(v, _mm512_setzero_si512());
                (
                    _mm512_maskz_cvtepi32_ps(known, v),
                    _mm512_maskz_mov_ps(known, _mm512_set1_ps(1.0)),
                )
            }
        );
        fill!(
            F32x8,
            $stored,
            |$narrow| _mm256_cvtepi16_epi32($read256),
            |v| _mm256_cvtepi32_ps(v),
            {
                let known = _mm256_castsi256_ps(_mm256_cmpgt_epi32(v, _mm256_set1_epi32(-1)));
                (
                    _mm256_and_ps(known, _mm256_cvtepi32_ps(v)),
                    _mm256_and_ps(known, _mm256_set1_ps(1.0)),
                )
            }
        );
    };
}

fill_i16!(i16, |from| _mm256_loadu_si256(from.cast()), |from| {
    _mm_loadu_si128(from.cast())
});
fill_i16!(
    Swapped,
    |from| {
        let swap = _mm256_broadcastsi128_si256(other_order());
        _mm256_shuffle_epi8(_mm256_loadu_si256(from.cast()), swap)
    },
    |from| _mm_shuffle_epi8(_mm_loadu_si128(from.cast()), other_order())
);

/// The shuffle that swaps the bytes of each int16.
#[inline(always)]
unsafe fn other_order() -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14) }
}

fill!(F32x16, f32, |from| _mm512_loadu_ps(from), |v| v, {
    let known = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(v, v);
    (
        _mm512_maskz_mov_ps(known, v),
        _mm512_maskz_mov_ps(known, _mm512_set1_ps(1.0)),
    )
});
fill!(F64x8, f64, |from| _mm512_loadu_pd(from), |v| v, {
    let known = _mm512_cmp_pd_mask::<_CMP_ORD_Q>(v, v);
    (
        _mm512_maskz_mov_pd(known, v),
        _mm512_maskz_mov_pd(known, _mm512_set1_pd(1.0)),
    )
});
fill!(F32x8, f32, |from| _mm256_loadu_ps(from), |v| v, {
    let known = _mm256_cmp_ps::<_CMP_ORD_Q>(v, v);
    (
        _mm256_and_ps(known, v),
        _mm256_and_ps(known, _mm256_set1_ps(1.0)),
    )
});
fill!(F64x4, f64, |from| _mm256_loadu_pd(from), |v| v, {
    let known = _mm256_cmp_pd::<_CMP_ORD_Q>(v, v);
    (
        _mm256_and_pd(known, v),
        _mm256_and_pd(known, _mm256_set1_pd(1.0)),
    )
});
