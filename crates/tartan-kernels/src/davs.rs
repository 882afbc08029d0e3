//! Soft clusters of points with a sponge for noise: the passes of one annealing step.
//!
//! A point `x` and a centre `y` have the energy `E = sum_i (x_i - y_i)^2 w_i`, with weights `w` of the centre. At
//! temperature `T` the point belongs to the centre with mass proportional to `P exp(-E / 2T)`; the sponge is a centre of
//! the same energy for every point. Each point looks only at the centres of its list.
//!
//! Points come sorted along coordinate 0, cut into chunks of fixed length. A list names centres by their position among
//! the centres of its chunk, and each chunk sums for itself: sums over all points are then sums over chunks in their
//! order, the same number whatever computed the chunks (threads, processes).

mod assign;
mod lists;
mod types;

pub use assign::{assign, label, moments, moments_width, sum_chunks};
pub use lists::{build, ListLimits};
pub use types::{CentreLists, Centres, OwnedLists, SpongePass};

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in [0, 1), sorted along coordinate 0 or not: the passes do not mind.
    pub fn random(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n).map(|_| next()).collect()
    }

    /// Centres whose weight on coordinate 0 is that of a relative scale.
    pub fn centres(k: usize, dim: usize) -> (Vec<f64>, Vec<f64>) {
        let positions = random(k * dim, 7);
        let weights = positions
            .iter()
            .enumerate()
            .map(|(at, y)| {
                if at % dim == 0 {
                    1.0 / (0.3 * (y + 1e-3)).powi(2)
                } else {
                    2.0
                }
            })
            .collect();
        (positions, weights)
    }

    struct Case {
        points: Vec<f64>,
        positions: Vec<f64>,
        weights: Vec<f64>,
        log_priors: Vec<f64>,
        lists: OwnedLists,
        dim: usize,
    }

    fn case(dim: usize, n: usize, k: usize) -> Case {
        let points = random(n * dim, 3);
        let (positions, weights) = centres(k, dim);
        let log_priors = random(k, 5).iter().map(|p| (p + 0.1).ln()).collect();
        let view = Centres {
            positions: &positions,
            weights: &weights,
            dim,
        };
        let lists = build(
            &points,
            view,
            ListLimits {
                most: 6,
                least: 2,
                reach: 3.0,
            },
            16,
        );
        Case {
            points,
            positions,
            weights,
            log_priors,
            lists,
            dim,
        }
    }

    impl Case {
        fn centres(&self) -> Centres<'_> {
            Centres {
                positions: &self.positions,
                weights: &self.weights,
                dim: self.dim,
            }
        }

        fn step(&self, sponge: Option<(f64, f64)>) -> SpongePass<'_> {
            SpongePass {
                temperature: 0.4,
                cut: 2.0,
                log_priors: &self.log_priors,
                sponge,
            }
        }

        /// Return the mass of every point in every centre, then in the sponge, as the formulas say.
        fn masses(&self, step: &SpongePass) -> Vec<Vec<f64>> {
            let (d, k) = (self.dim, self.log_priors.len());
            let one = |a: usize, point: &[f64]| {
                let lists = self.lists.view();
                let known = lists.centres_of(a / lists.chunk);
                let mut terms = vec![(0.0, f64::INFINITY); k + 1];
                for &entry in &lists.entries[lists.starts[a] as usize..lists.starts[a + 1] as usize]
                {
                    let c = known[entry as usize] as usize;
                    let energy: f64 = (0..d)
                        .map(|i| {
                            (point[i] - self.positions[c * d + i]).powi(2) * self.weights[c * d + i]
                        })
                        .sum();
                    terms[c] = (step.log_priors[c].exp(), energy);
                }
                if let Some((log_prior, energy)) = step.sponge {
                    terms[k] = (f64::exp(log_prior), energy);
                }
                let least = terms.iter().fold(f64::INFINITY, |m, t| m.min(t.1));
                let kept = terms.iter().enumerate().map(|(c, &(prior, energy))| {
                    let near = c == k || energy < least + 2.0 * step.cut * step.temperature;
                    if near {
                        prior * ((least - energy) / (2.0 * step.temperature)).exp()
                    } else {
                        0.0
                    }
                });
                let kept: Vec<f64> = kept.collect();
                let norm: f64 = kept.iter().sum();
                kept.iter().map(|value| value / norm).collect()
            };
            self.points
                .chunks_exact(d)
                .enumerate()
                .map(|(a, point)| one(a, point))
                .collect()
        }

        fn added(&self, chunk_sums: &[f64], width: usize) -> Vec<f64> {
            let mut out = vec![0.0; self.log_priors.len() * width];
            sum_chunks(&self.lists.chunk_centres, chunk_sums, width, &mut out);
            out
        }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} is not {b}");
    }

    #[test]
    fn assign_sums_what_the_formulas_say() {
        for (dim, sponge) in [
            (1, None),
            (2, Some((-1.0, 4.0))),
            (3, Some((-9.0, 0.5))),
            (5, None),
        ] {
            let case = case(dim, 100, 20);
            let (step, width, n_chunks) = (case.step(sponge), dim + 2, 7);
            let mut memory = vec![0.0; case.lists.entries.len()];
            let mut sums = vec![f64::NAN; case.lists.chunk_centres.len() * width];
            let mut totals = vec![f64::NAN; n_chunks * 3];
            for round in 0..2 {
                assign(
                    &case.points,
                    case.lists.view(),
                    case.centres(),
                    step,
                    &mut memory,
                    &mut sums,
                    &mut totals,
                );
                let change: f64 = totals.chunks_exact(3).map(|t| t[1]).sum();
                // Masses are kept in single precision.
                assert_eq!(change > 50.0, round == 0);
                assert!(round == 0 || change < 1e-4);
            }
            let (masses, found) = (case.masses(&step), case.added(&sums, width));
            for k in 0..20 {
                let mut wanted = vec![0.0; width];
                for (point, mass) in case.points.chunks_exact(dim).zip(&masses) {
                    wanted[0] += mass[k];
                    for i in 0..dim {
                        let delta = point[i] - case.positions[k * dim + i];
                        wanted[1 + i] += mass[k] * delta;
                        wanted[dim + 1] += mass[k] * delta * delta * case.weights[k * dim + i];
                    }
                }
                for (a, b) in found[k * width..][..width].iter().zip(&wanted) {
                    close(*a, *b);
                }
            }
            close(
                totals.chunks_exact(3).map(|t| t[0]).sum(),
                masses.iter().map(|mass| mass[20]).sum(),
            );
        }
    }

    #[test]
    fn moments_are_those_of_the_masses() {
        for dim in [1, 2, 4] {
            let case = case(dim, 50, 9);
            let (step, width) = (case.step(Some((-2.0, 3.0))), moments_width(dim));
            let mut sums = vec![f64::NAN; case.lists.chunk_centres.len() * width];
            moments(
                &case.points,
                case.lists.view(),
                case.centres(),
                step,
                &mut sums,
            );
            let (masses, found) = (case.masses(&step), case.added(&sums, width));
            for k in 0..9 {
                let mut wanted = vec![0.0; width];
                for (point, mass) in case.points.chunks_exact(dim).zip(&masses) {
                    let z: Vec<f64> = (0..dim)
                        .map(|i| {
                            (point[i] - case.positions[k * dim + i])
                                * case.weights[k * dim + i].sqrt()
                        })
                        .collect();
                    let mut at = 0;
                    for i in 0..dim {
                        for j in i..dim {
                            wanted[at] += mass[k] * z[i] * z[j];
                            at += 1;
                        }
                    }
                    for i in 0..dim {
                        wanted[at + i] +=
                            z[i] * mass[k] / 2.0 * (1.0 - mass[k] / 2.0) / step.temperature;
                    }
                }
                for (a, b) in found[k * width..][..width].iter().zip(&wanted) {
                    close(*a, *b);
                }
            }
        }
    }

    #[test]
    fn labels_are_the_lowest() {
        let case = case(2, 60, 12);
        let offsets = random(12, 9);
        let (mut labels, mut energies) = (vec![0; 60], vec![0.0; 60]);
        label(
            &case.points,
            case.lists.view(),
            case.centres(),
            &offsets,
            &mut labels,
            &mut energies,
        );
        let lists = case.lists.view();
        for (a, point) in case.points.chunks_exact(2).enumerate() {
            let energy = |k: usize| -> f64 {
                (0..2)
                    .map(|i| {
                        (point[i] - case.positions[2 * k + i]).powi(2) * case.weights[2 * k + i]
                    })
                    .sum()
            };
            let known = lists.centres_of(a / lists.chunk);
            let list = &lists.entries[lists.starts[a] as usize..lists.starts[a + 1] as usize];
            let numbers = list.iter().map(|&entry| known[entry as usize] as usize);
            let best = numbers
                .min_by(|&a, &b| (energy(a) + offsets[a]).total_cmp(&(energy(b) + offsets[b])));
            assert_eq!(labels[a], best.unwrap() as i64);
            close(energies[a], energy(best.unwrap()));
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let case = case(2, 500, 30);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut memory = vec![0.0; case.lists.entries.len()];
            let mut sums = vec![0.0; case.lists.chunk_centres.len() * 4];
            let mut totals = vec![0.0; 32 * 3];
            let (lists, centres, step) = (case.lists.view(), case.centres(), case.step(None));
            pool.install(|| {
                assign(
                    &case.points,
                    lists,
                    centres,
                    step,
                    &mut memory,
                    &mut sums,
                    &mut totals,
                )
            });
            (case.added(&sums, 4), totals)
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn lists_from_outside_are_checked() {
        let good = case(2, 40, 8).lists;
        assert_eq!(good.view().check(40, 8), Ok(()));
        assert!(good.view().check(39, 8).is_err());
        assert!(good.view().check(40, 7).is_err());
        let entries = vec![9; good.entries.len()];
        assert!(CentreLists {
            entries: &entries,
            ..good.view()
        }
        .check(40, 8)
        .is_err());
        let mut starts = good.starts.clone();
        starts[3] = 10_000;
        assert!(CentreLists {
            starts: &starts,
            ..good.view()
        }
        .check(40, 8)
        .is_err());
        assert!(CentreLists {
            chunk: 0,
            ..good.view()
        }
        .check(40, 8)
        .is_err());
    }
}
