//! Lists of nearest centres by a search along coordinate 0.

use rayon::prelude::*;

use super::{Centres, OwnedLists};

/// How long lists are.
#[derive(Clone, Copy)]
pub struct ListLimits {
    /// No more centres than these, the nearest.
    pub most: usize,
    /// At least this many, however far.
    pub least: usize,
    /// Beyond `least`: only centres whose energy is at most that of the nearest and this much.
    pub reach: f64,
}

/// Find the nearest centres of each point.
///
/// Points must be sorted along coordinate 0 (any order is right, sorted ones are fast). The part of the energy that
/// coordinate 0 makes must grow outward from a point in the order of the centres along that coordinate, which holds for
/// equal weights and for scales proportional to a positive coordinate.
pub fn build(points: &[f64], centres: Centres, limits: ListLimits, chunk: usize) -> OwnedLists {
    assert!(
        chunk * limits.most <= usize::from(u16::MAX),
        "chunks are too long"
    );
    let index = Index::new(centres);
    let n_centres = index.numbers.len();
    let parts: Vec<OwnedLists> = points
        .par_chunks(chunk * centres.dim)
        .map_init(
            || (Vec::new(), vec![u16::MAX; n_centres]),
            |(best, positions), part| chunk_lists(part, &index, limits, best, positions),
        )
        .collect();
    join(&parts, chunk)
}

fn chunk_lists(
    points: &[f64],
    index: &Index,
    limits: ListLimits,
    best: &mut Vec<(f64, u32)>,
    positions: &mut [u16],
) -> OwnedLists {
    let mut chosen: Vec<u32> = Vec::new();
    let mut starts = vec![0];
    for point in points.chunks_exact(index.dim) {
        index.nearest(point, limits, best);
        let from = chosen.len();
        chosen.extend(best.iter().map(|&(_, number)| number));
        chosen[from..].sort_unstable();
        starts.push(chosen.len() as u64);
    }
    let mut known = chosen.clone();
    known.sort_unstable();
    known.dedup();
    for (position, &number) in known.iter().enumerate() {
        positions[number as usize] = position as u16;
    }
    OwnedLists {
        chunk: starts.len() - 1,
        starts,
        entries: chosen
            .iter()
            .map(|&number| positions[number as usize])
            .collect(),
        chunk_starts: vec![0, known.len() as u64],
        chunk_centres: known,
    }
}

fn join(parts: &[OwnedLists], chunk: usize) -> OwnedLists {
    let mut all = OwnedLists {
        chunk,
        starts: vec![0],
        chunk_starts: vec![0],
        ..OwnedLists::default()
    };
    for part in parts {
        let (entries, centres) = (all.entries.len() as u64, all.chunk_centres.len() as u64);
        all.starts
            .extend(part.starts[1..].iter().map(|start| start + entries));
        all.chunk_starts
            .extend(part.chunk_starts[1..].iter().map(|start| start + centres));
        all.entries.extend_from_slice(&part.entries);
        all.chunk_centres.extend_from_slice(&part.chunk_centres);
    }
    all
}

/// Centres sorted along coordinate 0.
struct Index {
    dim: usize,
    first: Vec<f64>,
    numbers: Vec<u32>,
    /// Coordinates, then weights, of each centre.
    values: Vec<f64>,
}

impl Index {
    fn new(centres: Centres) -> Index {
        let dim = centres.dim;
        let n = centres.positions.len() / dim;
        let mut numbers: Vec<u32> = (0..n as u32).collect();
        let first_of = |number: u32| centres.positions[number as usize * dim];
        numbers.sort_by(|&a, &b| first_of(a).total_cmp(&first_of(b)).then(a.cmp(&b)));
        let mut values = Vec::with_capacity(n * 2 * dim);
        for &number in &numbers {
            let at = number as usize * dim;
            values.extend_from_slice(&centres.positions[at..at + dim]);
            values.extend_from_slice(&centres.weights[at..at + dim]);
        }
        let first = numbers.iter().map(|&number| first_of(number)).collect();
        Index {
            dim,
            first,
            numbers,
            values,
        }
    }

    /// Fill `best` with the nearest centres, nearest first; of equally near ones that with the lower number.
    fn nearest(&self, point: &[f64], limits: ListLimits, best: &mut Vec<(f64, u32)>) {
        best.clear();
        let n = self.numbers.len();
        let mut right = self.first.partition_point(|&value| value < point[0]);
        let mut left = right;
        loop {
            let far_left = if left > 0 {
                self.along_first(point, left - 1)
            } else {
                f64::INFINITY
            };
            let far_right = if right < n {
                self.along_first(point, right)
            } else {
                f64::INFINITY
            };
            if far_left.min(far_right) > bound(best, limits) || (left == 0 && right == n) {
                break;
            }
            let at = if far_left < far_right {
                left -= 1;
                left
            } else {
                right += 1;
                right - 1
            };
            self.consider(point, at, limits, best);
        }
        let reach = bound(best, limits);
        while best.len() > limits.least && best[best.len() - 1].0 > reach {
            best.pop();
        }
    }

    fn consider(&self, point: &[f64], at: usize, limits: ListLimits, best: &mut Vec<(f64, u32)>) {
        let candidate = (self.energy(point, at), self.numbers[at]);
        if candidate.0 > bound(best, limits) {
            return;
        }
        let place = best.partition_point(|&other| other < candidate);
        if best.len() == limits.most {
            if place == limits.most {
                return;
            }
            best.pop();
        }
        best.insert(place, candidate);
    }

    fn along_first(&self, point: &[f64], at: usize) -> f64 {
        let delta = point[0] - self.first[at];
        delta * delta * self.values[at * 2 * self.dim + self.dim]
    }

    fn energy(&self, point: &[f64], at: usize) -> f64 {
        let values = &self.values[at * 2 * self.dim..][..2 * self.dim];
        let (position, weights) = values.split_at(self.dim);
        let terms = point.iter().zip(position).zip(weights);
        terms.map(|((x, y), w)| (x - y) * (x - y) * w).sum()
    }
}

/// The energy above which a centre cannot enter the list.
fn bound(best: &[(f64, u32)], limits: ListLimits) -> f64 {
    if best.len() < limits.least {
        return f64::INFINITY;
    }
    let reach = best[0].0 + limits.reach;
    if best.len() < limits.most {
        reach.max(best[limits.least - 1].0)
    } else {
        reach
            .max(best[limits.least - 1].0)
            .min(best[limits.most - 1].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::davs::tests::{centres, random};

    /// Every centre is looked at.
    fn oracle(point: &[f64], centres: Centres, limits: ListLimits) -> Vec<u32> {
        let d = centres.dim;
        let mut all: Vec<(f64, u32)> = (0..centres.positions.len() / d)
            .map(|k| {
                let e = (0..d)
                    .map(|i| {
                        (point[i] - centres.positions[k * d + i]).powi(2)
                            * centres.weights[k * d + i]
                    })
                    .sum();
                (e, k as u32)
            })
            .collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let reach = all[0].0 + limits.reach;
        let mut kept: Vec<u32> = all
            .iter()
            .take(limits.most)
            .enumerate()
            .filter(|(rank, (e, _))| *rank < limits.least || *e <= reach)
            .map(|(_, (_, k))| *k)
            .collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn finds_what_a_look_at_all_centres_finds() {
        for (dim, n, k) in [(1, 40, 1), (2, 300, 50), (3, 100, 7), (5, 65, 30)] {
            let points = random(n * dim, 1);
            let (positions, weights) = centres(k, dim);
            let view = Centres {
                positions: &positions,
                weights: &weights,
                dim,
            };
            for (most, least, reach) in [(8, 2, 0.05), (4, 4, 0.0), (3, 1, 1e9), (60, 1, 0.01)] {
                let limits = ListLimits {
                    most,
                    least: least.min(k),
                    reach,
                };
                let lists = build(&points, view, limits, 32);
                lists.view().check(n, k).unwrap();
                for (a, point) in points.chunks_exact(dim).enumerate() {
                    let known = lists.view().centres_of(a / 32).to_vec();
                    let found: Vec<u32> = lists.entries
                        [lists.starts[a] as usize..lists.starts[a + 1] as usize]
                        .iter()
                        .map(|&entry| known[entry as usize])
                        .collect();
                    assert_eq!(
                        found,
                        oracle(point, view, limits),
                        "point {a} of {dim} coordinates"
                    );
                }
            }
        }
    }

    #[test]
    fn equal_centres_are_told_apart_by_their_numbers() {
        let (positions, weights) = (vec![1.0; 6], vec![1.0; 6]);
        let view = Centres {
            positions: &positions,
            weights: &weights,
            dim: 2,
        };
        let lists = build(
            &[0.0, 0.0],
            view,
            ListLimits {
                most: 2,
                least: 1,
                reach: 9.0,
            },
            4,
        );
        assert_eq!(lists.chunk_centres, [0, 1]);
    }
}
