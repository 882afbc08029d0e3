//! Vectors of f32 or f64, as wide as the machine has them: what the loops of this family are written in.
//!
//! All functions are unsafe for one reason each: loads and stores need room for `N` values behind the pointer, and
//! the x86 types need the instructions that they are named after. They are inlined into functions that are compiled
//! for those instructions and are called after the machine was asked.

#![allow(clippy::missing_safety_doc)] // said once above

/// What a dissimilarity or a weight is stored in.
pub trait Stored: Copy + Default + Send + Sync {
    /// Read `V::N` values; `swap`: 16-bit values lie in the other byte order.
    unsafe fn load<V: Lanes>(at: *const Self, swap: bool) -> V;
}

macro_rules! stored {
    ($type:ty, |$at:ident, $swap:ident| $load:expr) => {
        impl Stored for $type {
            #[inline(always)]
            unsafe fn load<V: Lanes>($at: *const Self, $swap: bool) -> V {
                // SAFETY: the caller's promise is passed on.
                unsafe { $load }
            }
        }
    };
}

stored!(i16, |at, swap| V::from_i16(at, swap));
stored!(f32, |at, _swap| V::from_f32(at));
stored!(f64, |at, _swap| V::from_f64(at));

/// A number that lanes hold.
pub trait Number: Copy + Default + PartialOrd + Send + Sync + std::fmt::Debug + 'static {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Number for f32 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

/// A vector of `N` numbers.
pub trait Lanes: Copy {
    type E: Number;
    const N: usize;
    unsafe fn splat(value: Self::E) -> Self;
    unsafe fn load(at: *const Self::E) -> Self;
    unsafe fn store(self, at: *mut Self::E);
    unsafe fn from_i16(at: *const i16, swap: bool) -> Self;
    unsafe fn from_f32(at: *const f32) -> Self;
    unsafe fn from_f64(at: *const f64) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    unsafe fn over(self, other: Self) -> Self;
    /// `self * other + sum`.
    unsafe fn times_plus(self, other: Self, sum: Self) -> Self;
    /// `sum - self * other`.
    unsafe fn times_from(self, other: Self, sum: Self) -> Self;
    /// The greater of two; `floor` where `self` is NaN.
    unsafe fn at_least(self, floor: Self) -> Self;
    /// 1 where a lane is >= 0, otherwise 0 (also for NaN).
    unsafe fn is_valid(self) -> Self;
    /// The square root of a positive number and half its inverse.
    unsafe fn root_and_half_inverse(self) -> (Self, Self);
    /// The sum of the lanes, in f64.
    unsafe fn sum(self) -> f64;
}

/// Lanes without instructions of their own: the compiler makes of them what the baseline of the target has, which
/// on AArch64 is NEON.
#[derive(Clone, Copy)]
pub struct Portable<E>([E; 8]);

macro_rules! portable {
    ($e:ty) => {
        impl Portable<$e> {
            #[inline(always)]
            fn map(mut self, change: impl Fn(usize, $e) -> $e) -> Self {
                for (lane, value) in self.0.iter_mut().enumerate() {
                    *value = change(lane, *value);
                }
                self
            }
        }

        impl Lanes for Portable<$e> {
            type E = $e;
            /// By construction: a vector of AVX2 of float32, which compilers find.
            const N: usize = 8;
            #[inline(always)]
            unsafe fn splat(value: $e) -> Self {
                Self([value; 8])
            }
            #[inline(always)]
            unsafe fn load(at: *const $e) -> Self {
                // SAFETY: the caller's promise.
                Self(unsafe { at.cast::<[$e; 8]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $e) {
                // SAFETY: the caller's promise.
                unsafe { at.cast::<[$e; 8]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn from_i16(at: *const i16, swap: bool) -> Self {
                // SAFETY: the caller's promise.
                let values = unsafe { at.cast::<[i16; 8]>().read_unaligned() };
                let order = |v: i16| if swap { v.swap_bytes() } else { v };
                Self(values.map(|v| <$e>::from(order(v))))
            }
            #[inline(always)]
            unsafe fn from_f32(at: *const f32) -> Self {
                // SAFETY: the caller's promise.
                Self(unsafe { at.cast::<[f32; 8]>().read_unaligned() }.map(|v| v as $e))
            }
            #[inline(always)]
            unsafe fn from_f64(at: *const f64) -> Self {
                // SAFETY: the caller's promise.
                Self(unsafe { at.cast::<[f64; 8]>().read_unaligned() }.map(|v| v as $e))
            }
            #[inline(always)]
            unsafe fn minus(self, other: Self) -> Self {
                self.map(|lane, v| v - other.0[lane])
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                self.map(|lane, v| v + other.0[lane])
            }
            #[inline(always)]
            unsafe fn times(self, other: Self) -> Self {
                self.map(|lane, v| v * other.0[lane])
            }
            #[inline(always)]
            unsafe fn over(self, other: Self) -> Self {
                self.map(|lane, v| v / other.0[lane])
            }
            #[inline(always)]
            unsafe fn times_plus(self, other: Self, sum: Self) -> Self {
                self.map(|lane, v| v * other.0[lane] + sum.0[lane])
            }
            #[inline(always)]
            unsafe fn times_from(self, other: Self, sum: Self) -> Self {
                self.map(|lane, v| sum.0[lane] - v * other.0[lane])
            }
            #[inline(always)]
            unsafe fn at_least(self, floor: Self) -> Self {
                self.map(|lane, v| if v > floor.0[lane] { v } else { floor.0[lane] })
            }
            #[inline(always)]
            unsafe fn is_valid(self) -> Self {
                self.map(|_, v| if v >= 0.0 { 1.0 } else { 0.0 })
            }
            #[inline(always)]
            unsafe fn root_and_half_inverse(self) -> (Self, Self) {
                let root = self.map(|_, v| v.sqrt());
                (root, root.map(|_, v| 0.5 / v))
            }
            #[inline(always)]
            unsafe fn sum(self) -> f64 {
                self.0.iter().map(|v| v.wide()).sum()
            }
        }
    };
}

portable!(f32);
portable!(f64);

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx2Wide, Avx512, Avx512Wide};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    /// Bytes of 16-bit values in the other order.
    #[inline(always)]
    unsafe fn swapped(values: __m128i) -> __m128i {
        // SAFETY: part of AVX, which all callers need.
        unsafe {
            let order = _mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1);
            _mm_shuffle_epi8(values, order)
        }
    }

    #[inline(always)]
    unsafe fn eight_i16(at: *const i16, swap: bool) -> __m128i {
        // SAFETY: the caller's promise of eight values.
        let values = unsafe { _mm_loadu_si128(at.cast()) };
        if swap {
            // SAFETY: as above.
            unsafe { swapped(values) }
        } else {
            values
        }
    }

    macro_rules! lanes {
        ($(#[$doc:meta])* $name:ident, $inner:ty, $e:ty, $n:expr, $set1:ident, $loadu:ident, $storeu:ident, $sub:ident,
         $add:ident, $mul:ident, $div:ident, $fma:ident, $fnma:ident, $max:ident,
         valid |$v:ident| $valid:expr, root |$d:ident| $root:expr, sum |$s:ident| $sum:expr,
         i16 |$a:ident, $swap:ident| $i16:expr, f32 |$b:ident| $f32:expr, f64 |$c:ident| $f64:expr) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name($inner);

            // SAFETY of every block below: the caller promises the instructions, and room behind pointers.
            impl Lanes for $name {
                type E = $e;
                const N: usize = $n;
                #[inline(always)]
                unsafe fn splat(value: $e) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $set1(value) })
                }
                #[inline(always)]
                unsafe fn load(at: *const $e) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $loadu(at) })
                }
                #[inline(always)]
                unsafe fn store(self, at: *mut $e) {
                    // SAFETY: see above.
                    unsafe { $storeu(at, self.0) }
                }
                #[inline(always)]
                unsafe fn from_i16($a: *const i16, $swap: bool) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $i16 })
                }
                #[inline(always)]
                unsafe fn from_f32($b: *const f32) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $f32 })
                }
                #[inline(always)]
                unsafe fn from_f64($c: *const f64) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $f64 })
                }
                #[inline(always)]
                unsafe fn minus(self, other: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $sub(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn plus(self, other: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn times(self, other: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $mul(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn over(self, other: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $div(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn times_plus(self, other: Self, sum: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $fma(self.0, other.0, sum.0) })
                }
                #[inline(always)]
                unsafe fn times_from(self, other: Self, sum: Self) -> Self {
                    // SAFETY: see above.
                    Self(unsafe { $fnma(self.0, other.0, sum.0) })
                }
                #[inline(always)]
                unsafe fn at_least(self, floor: Self) -> Self {
                    // SAFETY: see above. The instruction returns its second operand where one is NaN.
                    Self(unsafe { $max(self.0, floor.0) })
                }
                #[inline(always)]
                unsafe fn is_valid(self) -> Self {
                    let $v = self.0;
                    // SAFETY: see above.
                    Self(unsafe { $valid })
                }
                #[inline(always)]
                unsafe fn root_and_half_inverse(self) -> (Self, Self) {
                    let $d = self.0;
                    // SAFETY: see above.
                    let (root, half) = unsafe { $root };
                    (Self(root), Self(half))
                }
                #[inline(always)]
                unsafe fn sum(self) -> f64 {
                    let $s = self.0;
                    // SAFETY: see above.
                    unsafe { $sum }
                }
            }
        };
    }

    lanes!(
        /// Sixteen f32. An estimate of the inverse root and one Newton step: relative error below 2^-22.
        Avx512, __m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_sub_ps,
        _mm512_add_ps, _mm512_mul_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_max_ps,
        valid |v| _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(v, _mm512_setzero_ps()), _mm512_set1_ps(1.0)),
        root |d| {
            let r = _mm512_rsqrt14_ps(d);
            let half = _mm512_set1_ps(0.5);
            let (root, inverse) = (_mm512_mul_ps(d, r), _mm512_mul_ps(r, half));
            let rest = _mm512_fnmadd_ps(root, inverse, half);
            (_mm512_fmadd_ps(root, rest, root), _mm512_fmadd_ps(inverse, rest, inverse))
        },
        sum |s| {
            let (low, high) = (_mm512_castps512_ps256(s), _mm512_extractf32x8_ps::<1>(s));
            _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(low), _mm512_cvtps_pd(high)))
        },
        i16 |at, swap| {
            let (low, high) = (eight_i16(at, swap), eight_i16(at.add(8), swap));
            _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_set_m128i(high, low)))
        },
        f32 |at| _mm512_loadu_ps(at),
        f64 |at| {
            let (low, high) = (_mm512_cvtpd_ps(_mm512_loadu_pd(at)), _mm512_cvtpd_ps(_mm512_loadu_pd(at.add(8))));
            _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
        }
    );

    lanes!(
        /// Eight f64.
        Avx512Wide, __m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_sub_pd,
        _mm512_add_pd, _mm512_mul_pd, _mm512_div_pd, _mm512_fmadd_pd, _mm512_fnmadd_pd, _mm512_max_pd,
        valid |v| _mm512_maskz_mov_pd(_mm512_cmp_pd_mask::<_CMP_GE_OQ>(v, _mm512_setzero_pd()), _mm512_set1_pd(1.0)),
        root |d| {
            let root = _mm512_sqrt_pd(d);
            (root, _mm512_div_pd(_mm512_set1_pd(0.5), root))
        },
        sum |s| _mm512_reduce_add_pd(s),
        i16 |at, swap| _mm512_cvtepi32_pd(_mm256_cvtepi16_epi32(eight_i16(at, swap))),
        f32 |at| _mm512_cvtps_pd(_mm256_loadu_ps(at)),
        f64 |at| _mm512_loadu_pd(at)
    );

    lanes!(
        /// Eight f32, with the square root and the division of the machine: its estimate is too coarse.
        Avx2, __m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_sub_ps,
        _mm256_add_ps, _mm256_mul_ps, _mm256_div_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_max_ps,
        valid |v| _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(v, _mm256_setzero_ps()), _mm256_set1_ps(1.0)),
        root |d| {
            let root = _mm256_sqrt_ps(d);
            (root, _mm256_div_ps(_mm256_set1_ps(0.5), root))
        },
        sum |s| {
            let mut lanes = [0.0f32; 8];
            _mm256_storeu_ps(lanes.as_mut_ptr(), s);
            lanes.iter().map(|&v| f64::from(v)).sum()
        },
        i16 |at, swap| _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(eight_i16(at, swap))),
        f32 |at| _mm256_loadu_ps(at),
        f64 |at| {
            let (low, high) = (_mm256_cvtpd_ps(_mm256_loadu_pd(at)), _mm256_cvtpd_ps(_mm256_loadu_pd(at.add(4))));
            _mm256_set_m128(high, low)
        }
    );

    lanes!(
        /// Four f64.
        Avx2Wide, __m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_sub_pd,
        _mm256_add_pd, _mm256_mul_pd, _mm256_div_pd, _mm256_fmadd_pd, _mm256_fnmadd_pd, _mm256_max_pd,
        valid |v| _mm256_and_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(v, _mm256_setzero_pd()), _mm256_set1_pd(1.0)),
        root |d| {
            let root = _mm256_sqrt_pd(d);
            (root, _mm256_div_pd(_mm256_set1_pd(0.5), root))
        },
        sum |s| {
            let mut lanes = [0.0f64; 4];
            _mm256_storeu_pd(lanes.as_mut_ptr(), s);
            lanes.iter().sum()
        },
        i16 |at, swap| {
            let values = _mm_loadl_epi64(at.cast());
            let values = if swap { swapped(values) } else { values };
            _mm256_cvtepi32_pd(_mm_cvtepi16_epi32(values))
        },
        f32 |at| _mm256_cvtps_pd(_mm_loadu_ps(at)),
        f64 |at| _mm256_loadu_pd(at)
    );
}
