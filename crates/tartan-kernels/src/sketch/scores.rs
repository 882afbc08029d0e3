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
//! Of genomes that are known to be incomplete or contaminated, c is that of the whole ones: of w = own / complete hashes,
//! with own those of the genome itself, a share of the product of both completenesses was there to be shared:
//!
//! ```text
//! c = x / (complete_a complete_b min(w_a, w_b))
//! ```
//!
//! at most 1; the binomial share is that of the hashes which were there, and its error grows by what was not.
//!
//! Hera, Pierce-Ward, Koslicki: Deriving confidence intervals for mutation rates across a wide range of evolutionary
//! distances using FracMinHash. Genome Res. 33 (2023) 1061-1068.

use rayon::prelude::*;

/// What is known of a sketch: how many hashes it has, how many of them are of the genome itself, and which share of the
/// genome is there, above 0.
#[derive(Clone, Copy)]
pub struct Extent {
    pub size: f64,
    pub own: f64,
    pub complete: f64,
}

impl Extent {
    /// How many hashes the whole genome has.
    fn whole(&self) -> f64 {
        self.own / self.complete
    }
}

/// Where the scores of a tile are written, row by row.
pub struct Scores<'a> {
    pub ani: &'a mut [f32],
    pub error: &'a mut [f32],
    pub containment: &'a mut [f32],
    pub jaccard: &'a mut [f32],
}

/// Score a tile: `shared` holds counts of the pairs of these sketches, row by row.
///
/// # Panics
/// If a slice does not hold `left.len() * right.len()` numbers.
pub fn score(
    shared: &[i32],
    left: &[Extent],
    right: &[Extent],
    k: usize,
    scaled: f64,
    out: Scores<'_>,
) {
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
    let unknown: Vec<f32> = right
        .iter()
        .map(|one| of_one_hash(one.own, power))
        .collect();
    shared
        .par_chunks(width)
        .zip(left)
        .zip(out.ani.par_chunks_mut(width))
        .zip(out.error.par_chunks_mut(width))
        .zip(out.containment.par_chunks_mut(width))
        .zip(out.jaccard.par_chunks_mut(width))
        .for_each(|(((((shared, &a), ani), error), containment), jaccard)| {
            let own = of_one_hash(a.own, power);
            for at in 0..width {
                let x = f64::from(shared[at]);
                if shared[at] == 0 {
                    (ani[at], containment[at], jaccard[at]) = (0.0, 0.0, 0.0);
                    error[at] = own.max(unknown[at]);
                    continue;
                }
                let b = &right[at];
                // Those hashes of the smaller genome that are there, and which share of the larger one is.
                let (n, there) = if a.whole() <= b.whole() {
                    (a.own, b.complete)
                } else {
                    (b.own, a.complete)
                };
                let share = (x / n / there).min(1.0);
                let identity = share.powf(power);
                let likely = ((x + 1.0) / (n + 2.0)).min(1.0);
                let slope = identity * power / share / there;
                let sampled = likely * (1.0 - likely);
                let together = overlap(share, identity, k) / scaled;
                ani[at] = identity as f32;
                error[at] = (slope * ((sampled + together) / n).sqrt()) as f32;
                containment[at] = (x / a.size.min(b.size)) as f32;
                jaccard[at] = (x / (a.size + b.size - x)) as f32;
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
fn of_one_hash(size: f64, power: f64) -> f32 {
    size.powf(-power) as f32
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
        let extents = |sizes: &[i64]| -> Vec<Extent> {
            sizes.iter().map(|&size| whole(size as f64)).collect()
        };
        score(&shared, &extents(&left), &extents(&right), 21, 1000.0, out);
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

    fn whole(size: f64) -> Extent {
        Extent {
            size,
            own: size,
            complete: 1.0,
        }
    }

    #[test]
    fn what_is_missing_or_foreign_is_taken_into_account() {
        // A genome of 1,000 hashes of which a half is there, with 100 foreign ones, and one of 2,000 with 4/5 of it: of
        // 1,000 p hashes that both have, 0.4 were there to be found.
        let a = Extent {
            size: 600.0,
            own: 500.0,
            complete: 0.5,
        };
        let b = Extent {
            size: 1600.0,
            own: 1600.0,
            complete: 0.8,
        };
        let mut found = [[0f32; 2]; 4];
        let [ani, error, containment, jaccard] = &mut found;
        let out = Scores {
            ani,
            error,
            containment,
            jaccard,
        };
        score(&[200, 500], &[a], &[b, b], 31, 1000.0, out);
        assert!((f64::from(found[0][0]) - 0.5f64.powf(1.0 / 31.0)).abs() < 1e-6);
        assert_eq!(found[0][1], 1.0);
        assert!((f64::from(found[2][0]) - 200.0 / 600.0).abs() < 1e-6);
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
