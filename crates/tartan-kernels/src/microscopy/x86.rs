//! Vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;

use super::lanes::{Lanes, AROUND_ZERO, FROM_ZERO, LEAST_EXPONENT, ROUND};

/// 16 lanes of AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Wide(__m512);

/// 8 lanes of AVX2 with FMA.
#[derive(Clone, Copy)]
pub(super) struct Narrow(__m256);

macro_rules! lanes {
    ($name:ident, $count:expr, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident,
     |$x:ident| $reciprocal:expr, |$p:ident| $power:expr) => {
        // SAFETY: AVX-512 F and DQ, or AVX2 and FMA, which the levels of the sums ask for.
        unsafe impl Lanes for $name {
            const COUNT: usize = $count;
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: contract of the trait; so below.
                $name(unsafe { $splat(value) })
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as above.
                $name(unsafe { $load(from) })
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above.
                unsafe { $store(to, self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                $name(unsafe { $add(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                $name(unsafe { $sub(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                $name(unsafe { $mul(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                $name(unsafe { $fma(a.0, b.0, self.0) })
            }
            #[inline(always)]
            unsafe fn reciprocal(self) -> Self {
                let $x = self.0;
                // SAFETY: as above.
                $name(unsafe { $reciprocal })
            }
            #[inline(always)]
            unsafe fn power(self) -> Self {
                let $p = self.0;
                // SAFETY: as above.
                $name(unsafe { $power })
            }
        }
    };
}

lanes!(
    Wide,
    16,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    |x| {
        let about = _mm512_rcp14_ps(x);
        _mm512_mul_ps(about, _mm512_fnmadd_ps(x, about, _mm512_set1_ps(2.0)))
    },
    |value| {
        let x = _mm512_sub_ps(_mm512_setzero_ps(), value);
        let x = _mm512_max_ps(x, _mm512_set1_ps(LEAST_EXPONENT));
        // What is above the next lower whole number.
        let f = _mm512_reduce_ps::<0x01>(x);
        let mut sum = _mm512_set1_ps(FROM_ZERO[5]);
        sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(FROM_ZERO[4]));
        sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(FROM_ZERO[3]));
        sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(FROM_ZERO[2]));
        sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(FROM_ZERO[1]));
        sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(FROM_ZERO[0]));
        _mm512_scalef_ps(sum, x)
    }
);
lanes!(
    Narrow,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    |x| _mm256_div_ps(_mm256_set1_ps(1.0), x),
    |value| {
        let x = _mm256_sub_ps(_mm256_setzero_ps(), value);
        let x = _mm256_max_ps(x, _mm256_set1_ps(LEAST_EXPONENT));
        let rounded = _mm256_add_ps(x, _mm256_set1_ps(ROUND));
        let f = _mm256_sub_ps(x, _mm256_sub_ps(rounded, _mm256_set1_ps(ROUND)));
        let mut sum = _mm256_set1_ps(AROUND_ZERO[5]);
        sum = _mm256_fmadd_ps(sum, f, _mm256_set1_ps(AROUND_ZERO[4]));
        sum = _mm256_fmadd_ps(sum, f, _mm256_set1_ps(AROUND_ZERO[3]));
        sum = _mm256_fmadd_ps(sum, f, _mm256_set1_ps(AROUND_ZERO[2]));
        sum = _mm256_fmadd_ps(sum, f, _mm256_set1_ps(AROUND_ZERO[1]));
        sum = _mm256_fmadd_ps(sum, f, _mm256_set1_ps(AROUND_ZERO[0]));
        let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(rounded));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), exponent))
    }
);
