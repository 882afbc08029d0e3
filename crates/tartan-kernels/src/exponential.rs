//! The exponential function without branches, so that the compiler makes vector code of loops over it.

/// Return `exp(x)` for `x <= 0` to 2 units in the last place; below -700 it is 0.
#[inline(always)]
pub fn exponential(x: f64) -> f64 {
    // Adding this rounds to whole numbers, and leaves them in the low bits.
    /// By arithmetic: 1.5 times 2**52.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// LN_2_HIGH and LN_2_LOW, by convention of fdlibm: the upper bits of ln 2, whose products with whole numbers are
    /// exact, and the rest.
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let kept = if x < -700.0 { 0.0 } else { 1.0 };
    let x = if x < -700.0 { 0.0 } else { x };
    let rounded = x * std::f64::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let r = x - whole * LN_2_HIGH - whole * LN_2_LOW;
    let power = f64::from_bits(rounded.to_bits().wrapping_shl(52).wrapping_add(1023 << 52));
    polynomial(r) * power * kept
}

/// Return `exp(r)` for `|r| <= ln(2) / 2` by its series; the first term left out is below 2e-16.
#[inline(always)]
fn polynomial(r: f64) -> f64 {
    const FACTORIALS: [f64; 13] = [
        1.0,
        1.0,
        2.0,
        6.0,
        24.0,
        120.0,
        720.0,
        5_040.0,
        40_320.0,
        362_880.0,
        3_628_800.0,
        39_916_800.0,
        479_001_600.0,
    ];
    let mut sum = 1.0 / FACTORIALS[12];
    for degree in (0..12).rev() {
        sum = sum * r + 1.0 / FACTORIALS[degree];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::exponential;

    #[test]
    fn agrees_with_the_standard_library() {
        for step in 0..700_000 {
            let x = -f64::from(step) * 0.001;
            let error = (exponential(x) / x.exp() - 1.0).abs();
            assert!(error < 5e-16, "exp({x}) is off by {error}");
        }
        assert_eq!(exponential(0.0), 1.0);
        assert_eq!(exponential(-701.0), 0.0);
        assert_eq!(exponential(f64::NEG_INFINITY), 0.0);
    }
}
