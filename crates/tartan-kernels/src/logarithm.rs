//! The natural logarithm of several numbers at a time, in steps of which the compiler makes vector code.

use std::array::from_fn;

/// Return `ln(x)` of normal positive numbers to 2 units in the last place, near 1 of `x - 1`; of 0 a finite number.
#[inline(always)]
pub fn logarithms<const N: usize>(x: &[f64; N]) -> [f64; N] {
    /// By format of f64: the bits of its digits.
    const DIGITS: u64 = (1 << 52) - 1;
    /// By arithmetic: 2**52; its last bits are whole numbers.
    const WHOLE: u64 = 0x4330_0000_0000_0000;
    let bits: [u64; N] = from_fn(|i| x[i].to_bits());
    let mantissas: [f64; N] = from_fn(|i| f64::from_bits((bits[i] & DIGITS) | (1023 << 52)));
    let exponents: [f64; N] = from_fn(|i| f64::from_bits((bits[i] >> 52) | WHOLE));
    let m: [f64; N] = from_fn(|i| {
        let factor = if mantissas[i] > std::f64::consts::SQRT_2 {
            0.5
        } else {
            1.0
        };
        factor * mantissas[i]
    });
    let e: [f64; N] = from_fn(|i| {
        let bias = if mantissas[i] > std::f64::consts::SQRT_2 {
            1022.0
        } else {
            1023.0
        };
        exponents[i] - (f64::from_bits(WHOLE) + bias)
    });
    // ln(m) = 2 atanh(z), and |z| is below 0.172: the sum of z^(2k + 1) / (2k + 1), of which what is left out is below
    // 2e-17.
    let z: [f64; N] = from_fn(|i| (m[i] - 1.0) / (m[i] + 1.0));
    let z2: [f64; N] = from_fn(|i| z[i] * z[i]);
    let mut sums = [0.0; N];
    for k in (0..11).rev() {
        let term = 1.0 / (2.0 * f64::from(k) + 1.0);
        for (sum, square) in sums.iter_mut().zip(&z2) {
            *sum = *sum * square + term;
        }
    }
    from_fn(|i| e[i] * std::f64::consts::LN_2 + 2.0 * z[i] * sums[i])
}

#[cfg(test)]
mod tests {
    use super::logarithms;

    #[test]
    fn agrees_with_the_standard_library() {
        for step in 1..400_000 {
            let step = f64::from(step);
            let x = [step * 5e-6, step * 1e-300, 1.0 + step * 1e-12];
            for (x, found) in x.iter().zip(logarithms(&x)) {
                let right = x.ln();
                assert!(
                    (found - right).abs() <= 6e-16 * right.abs(),
                    "ln({x}): {found} {right}"
                );
            }
        }
        assert_eq!(logarithms(&[1.0]), [0.0]);
        assert!(logarithms(&[0.0])[0].is_finite());
    }
}
