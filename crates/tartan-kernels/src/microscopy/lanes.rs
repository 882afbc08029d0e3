//! Vectors of f32 that the sums are written in, and the plain ones.

/// Exponents are clamped here, so that no product of small numbers turns denormal, which is slow.
/// Measured: without it a CPU is 3 to 5 times slower. By arithmetic, products of it and weights stay above 2**-126.
pub(super) const LEAST_EXPONENT: f32 = -90.0;

/// Coefficients of 2^f for f from 0 to 1, relative error 7.5e-8.
#[cfg(target_arch = "x86_64")]
pub(super) const FROM_ZERO: [f32; 6] = [
    0.999_999_94,
    0.693_153_1,
    0.240_153_62,
    0.055_826_31,
    0.008_989_342,
    0.001_877_578_1,
];

/// Coefficients of 2^f for f from -1/2 to 1/2, relative error 7.5e-8.
pub(super) const AROUND_ZERO: [f32; 6] = [
    1.000_000_1,
    0.693_146_97,
    0.240_221_2,
    0.055_507_133,
    0.009_675_545,
    0.001_327_648_2,
];

/// Adding this rounds to whole numbers, and leaves them in the low bits.
/// By arithmetic: 1.5 times 2**23.
pub(super) const ROUND: f32 = 12_582_912.0;

/// A vector of f32.
///
/// # Safety
///
/// Every method needs the instructions of its type; `COUNT` values are read by `load` and written by `store`.
pub(super) unsafe trait Lanes: Copy {
    const COUNT: usize;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self + a * b`.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// `1 / self` for normal numbers.
    unsafe fn reciprocal(self) -> Self;
    /// `2^-self` for self >= 0, at least `2^LEAST_EXPONENT`.
    unsafe fn power(self) -> Self;
}

/// Number of lanes of the plain code.
/// By arithmetic: a vector of AVX2; compilers find it.
const PLAIN: usize = 8;

/// Lanes for any machine; the compiler makes what vectors it can of them.
#[derive(Clone, Copy)]
pub(super) struct PlainLanes([f32; PLAIN]);

impl PlainLanes {
    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        PlainLanes(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }
}

// SAFETY: no instructions are needed; `load` and `store` touch as many values as there are lanes.
unsafe impl Lanes for PlainLanes {
    const COUNT: usize = PLAIN;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        PlainLanes([value; PLAIN])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: contract of the trait; so below.
        PlainLanes(unsafe { from.cast::<[f32; PLAIN]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { to.cast::<[f32; PLAIN]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.with(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.with(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.with(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        self.with(a.with(b, |a, b| a * b), |c, ab| c + ab)
    }
    #[inline(always)]
    unsafe fn reciprocal(self) -> Self {
        PlainLanes(self.0.map(|value| 1.0 / value))
    }
    #[inline(always)]
    unsafe fn power(self) -> Self {
        PlainLanes(self.0.map(|value| {
            let x = -value;
            let x = if x < LEAST_EXPONENT {
                LEAST_EXPONENT
            } else {
                x
            };
            let rounded = x + ROUND;
            let f = x - (rounded - ROUND);
            let c = AROUND_ZERO;
            let sum = c[0] + f * (c[1] + f * (c[2] + f * (c[3] + f * (c[4] + f * c[5]))));
            f32::from_bits(sum.to_bits().wrapping_add(rounded.to_bits() << 23))
        }))
    }
}
