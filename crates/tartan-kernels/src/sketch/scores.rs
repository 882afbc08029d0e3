//! What shared hashes say of two genomes.
//!
//! Of sketches of a and b hashes that share x, with n the smaller of a and b:
//!
//! ```text
//! containment = x / n,   jaccard = x / (a + b - x),   ani = containment ^ (1 / k)
//! ```
//!
//! The error of ani is the slope d ani / d containment times the root of
//!
//! ```text
//! c (1 - c) / n  +  2 (c (s - c) / (1 - s) - (k - 1) c^2) / (n scaled),   s = ani, c = containment
//! ```
//!
//! The first term is that of a binomial share of n hashes (there with c = (x + 1) / (n + 2), so that equal sketches have
//! an error). The second one says that strings which overlap are lost together: with P = s^(k + d) that two strings d
//! apart are both unchanged, it is the sum of their covariances P - c^2 over d below k. Where nothing is shared ani is 0,
//! and its error the ani of one shared hash.
//!
//! Hera, Pierce-Ward, Koslicki: Deriving confidence intervals for mutation rates across a wide range of evolutionary
//! distances using FracMinHash. Genome Res. 33 (2023) 1061-1068.

use rayon::prelude::*;

/// Where the scores of a tile are written, row by row.
pub struct Scores<'a> {
    pub ani: &'a mut [f32],
    pub error: &'a mut [f32],
    pub containment: &'a mut [f32],
    pub jaccard: &'a mut [f32],
}

/// Score a tile: `shared` holds counts of the pairs of sketches of these sizes, row by row.
///
/// # Panics
/// If a slice does not hold `left.len() * right.len()` numbers.
pub fn score(shared: &[i32], left: &[i64], right: &[i64], k: usize, scaled: f64, out: Scores<'_>) {
    let n = left.len() * right.len();
    let lengths = [
        shared.len(),
        out.ani.len(),
        out.error.len(),
        out.containment.len(),
        out.jaccard.len(),
    ];
    assert!(lengths.iter().all(|&length| length == n));
    if n == 0 {
        return;
    }
    let width = right.len();
    let power = 1.0 / k as f64;
    let unknown: Vec<f32> = right.iter().map(|&size| of_one_hash(size, power)).collect();
    shared
        .par_chunks(width)
        .zip(left)
        .zip(out.ani.par_chunks_mut(width))
        .zip(out.error.par_chunks_mut(width))
        .zip(out.containment.par_chunks_mut(width))
        .zip(out.jaccard.par_chunks_mut(width))
        .for_each(|(((((shared, &a), ani), error), containment), jaccard)| {
            let own = of_one_hash(a, power);
            for at in 0..width {
                let x = f64::from(shared[at]);
                if shared[at] == 0 {
                    (ani[at], containment[at], jaccard[at]) = (0.0, 0.0, 0.0);
                    error[at] = own.max(unknown[at]);
                    continue;
                }
                let n = a.min(right[at]) as f64;
                let share = x / n;
                let identity = share.powf(power);
                let likely = (x + 1.0) / (n + 2.0);
                let slope = identity * power / share;
                let sampled = likely * (1.0 - likely);
                let together = overlap(share, identity, k) / scaled;
                ani[at] = identity as f32;
                error[at] = (slope * ((sampled + together) / n).sqrt()) as f32;
                containment[at] = share as f32;
                jaccard[at] = (x / (a as f64 + right[at] as f64 - x)) as f32;
            }
        });
}

/// Twice the covariances of a string with those that begin within it, where strings are lost by single changes.
fn overlap(share: f64, identity: f64, k: usize) -> f64 {
    if identity >= 1.0 {
        return 0.0;
    }
    let together = share * (identity - share) / (1.0 - identity) - (k - 1) as f64 * share * share;
    2.0 * together.max(0.0)
}

/// The ani of a sketch of which one hash is shared.
fn of_one_hash(size: i64, power: f64) -> f32 {
    (size as f64).powf(-power) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_follow_their_definitions() {
        let (left, right) = ([100, 7], [40, 1000, 3]);
        let shared = [40, 10, 0, 1, 7, 3];
        let mut found = [[0f32; 6]; 4];
        let [ani, error, containment, jaccard] = &mut found;
        let out = Scores {
            ani,
            error,
            containment,
            jaccard,
        };
        score(&shared, &left, &right, 21, 1000.0, out);
        let close = |found: f32, wanted: f64| assert!((f64::from(found) - wanted).abs() < 1e-6);
        for (at, &x) in shared.iter().enumerate() {
            let (a, b) = (left[at / 3] as f64, right[at % 3] as f64);
            let (x, n) = (f64::from(x), a.min(b));
            close(
                found[0][at],
                if x > 0.0 {
                    (x / n).powf(1.0 / 21.0)
                } else {
                    0.0
                },
            );
            close(found[2][at], x / n);
            close(found[3][at], x / (a + b - x));
        }
        close(found[1][2], 3f64.powf(-1.0 / 21.0));
        let identity = 0.1f64.powf(1.0 / 21.0);
        let likely = 11.0 / 102.0;
        let variance = (likely * (1.0 - likely) + overlap(0.1, identity, 21) / 1000.0) / 100.0;
        close(found[1][1], identity / 21.0 / 0.1 * variance.sqrt());
    }

    #[test]
    fn overlap_is_the_sum_of_covariances() {
        for (identity, k) in [(0.95f64, 31), (0.999, 21), (0.7, 7)] {
            let share = identity.powi(k);
            let pairs = (1..k).map(|d| identity.powi(k + d) - share * share);
            let sum: f64 = pairs.sum();
            assert!((overlap(share, identity, k as usize) - 2.0 * sum).abs() < 1e-9);
        }
        assert_eq!(overlap(1.0, 1.0, 31), 0.0);
    }
}
