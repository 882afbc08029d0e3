// Formulas with indices, as they are written on paper.
#![allow(clippy::needless_range_loop)]

use super::*;

static ITEMS: [i64; 4096] = {
    let mut items = [0; 4096];
    let mut i = 0;
    while i < 4096 {
        items[i] = i as i64;
        i += 1;
    }
    items
};

/// A reproducible stream of numbers in [0, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn many(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.next()).collect()
    }
}

struct Case {
    objective: Objective,
    delta: Vec<f64>,
    x: Vec<f64>,
    v: Vec<f64>,
    weights: Vec<f64>,
    marked: Vec<f64>,
    dimension: usize,
}

impl Case {
    fn new(n: usize, dimension: usize, formula: Modelled, weighting: u8, second: bool) -> Self {
        let mut numbers = Numbers(n as u64 + 17);
        let mut delta = numbers.many(n * n);
        for i in 0..n {
            for j in 0..i {
                let missing = (i * 7 + j) % 11 == 0;
                delta[i * n + j] = if missing { f64::NAN } else { delta[j * n + i] };
                delta[j * n + i] = delta[i * n + j];
            }
        }
        let mut weights = numbers.many(n);
        weights[n / 2] = 0.0;
        let marked = (0..n).map(|j| f64::from(u8::from(j % 3 == 0))).collect();
        let objective = Objective {
            formula,
            weighting,
            factor: 1.7,
            floor: 0.05,
            scale: 1.0,
            cut: 0.9,
            missing: f64::NAN,
            limits: vec![0.3, 0.6],
            bin_weights: vec![2.0, 1.0, 0.5],
            second,
        };
        Case {
            objective,
            delta,
            x: numbers.many(n * dimension),
            v: numbers.many(n * dimension),
            weights,
            marked,
            dimension,
        }
    }

    fn rows(&self) -> MatrixRows<'_, f64> {
        MatrixRows {
            values: &self.delta,
            items: &ITEMS[..self.n()],
        }
    }

    fn points(&self) -> Points<'_> {
        Points {
            columns: &self.x,
            weights: &self.weights,
        }
    }

    fn n(&self) -> usize {
        self.weights.len()
    }

    /// Weight and dissimilarity of a pair, plainly.
    fn pair(&self, i: usize, j: usize) -> (f64, f64) {
        let o = &self.objective;
        let stored = self.delta[i * self.n() + j];
        let delta = if stored.is_nan() {
            o.missing
        } else {
            stored * o.scale
        };
        if i == j || delta.is_nan() || delta > o.cut {
            return (0.0, 0.0);
        }
        let power = [-2.0, -1.5, -1.0, 0.0, 1.0][o.weighting as usize];
        let base = if power < 0.0 {
            delta.max(o.floor)
        } else {
            delta
        };
        let bin = o.limits.iter().filter(|&&limit| delta >= limit).count();
        let of_bin = o.bin_weights.get(bin).copied().unwrap_or(1.0);
        (
            self.weights[i] * self.weights[j] * o.factor * base.powf(power) * of_bin,
            delta,
        )
    }

    fn difference(&self, of: &[f64], i: usize, j: usize) -> Vec<f64> {
        let n = self.n();
        (0..self.dimension)
            .map(|d| of[d * n + i] - of[d * n + j])
            .collect()
    }

    /// Half Hessian of one pair with respect to dx, and chi2 and half gradient.
    fn plain(&self, i: usize, j: usize) -> (f64, Vec<f64>, Vec<Vec<f64>>) {
        let (w, delta) = self.pair(i, j);
        let dx = self.difference(&self.x, i, j);
        let square: f64 = dx.iter().map(|c| c * c).sum();
        let dimension = self.dimension;
        let (value, slope, bend): (f64, Vec<f64>, Vec<Vec<f64>>) = match self.objective.formula {
            Modelled::Distance { minimum_squared } => {
                let d = (square + minimum_squared).sqrt();
                let bend = |a: usize, b: usize| {
                    f64::from(u8::from(a == b)) / d - dx[a] * dx[b] / d.powi(3)
                };
                (
                    d,
                    dx.iter().map(|c| c / d).collect(),
                    (0..dimension)
                        .map(|a| (0..dimension).map(|b| bend(a, b)).collect())
                        .collect(),
                )
            }
            Modelled::Squared => (
                square,
                dx.iter().map(|c| 2.0 * c).collect(),
                (0..dimension)
                    .map(|a| {
                        (0..dimension)
                            .map(|b| 2.0 * f64::from(u8::from(a == b)))
                            .collect()
                    })
                    .collect(),
            ),
        };
        let error = delta - value;
        let second = f64::from(u8::from(self.objective.second));
        let gradient = slope.iter().map(|s| -2.0 * w * error * s).collect();
        let hessian = (0..dimension)
            .map(|a| {
                let entry =
                    |b: usize| 2.0 * w * (slope[a] * slope[b] - second * error * bend[a][b]);
                (0..dimension).map(entry).collect()
            })
            .collect();
        (w * error * error, gradient, hessian)
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let formulas = [
        Modelled::Distance {
            minimum_squared: 0.01,
        },
        Modelled::Squared,
    ];
    for (number, formula) in formulas.into_iter().enumerate() {
        for weighting in 0..5 {
            let dimension = 1 + (number + weighting as usize) % 4;
            cases.push(Case::new(
                37,
                dimension,
                formula,
                weighting,
                weighting % 2 == 0,
            ));
        }
    }
    cases.push(Case::new(2 * CHUNK + 5, 3, formulas[0], 2, true));
    cases
}

fn derived(case: &Case, rows: std::ops::Range<usize>) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (n, l, m) = (case.n(), case.dimension, rows.len());
    let mut out = (vec![0.0; 2 * m], vec![0.0; l * m], vec![0.0; l * l * m]);
    let block = MatrixRows {
        values: &case.delta[rows.start * n..rows.end * n],
        items: &ITEMS[rows],
    };
    let places = Derivatives {
        chisq: &mut out.0,
        gradient: &mut out.1,
        blocks: &mut out.2,
    };
    derivatives(&case.objective, block, case.points(), &case.marked, places);
    out
}

fn assert_near(found: f64, expected: f64, scale: f64) {
    assert!(
        (found - expected).abs() <= 1e-12 * scale.max(1.0),
        "{found} is not {expected}"
    );
}

#[test]
fn derivatives_are_those_of_the_formulas() {
    for case in cases() {
        let (n, l) = (case.n(), case.dimension);
        let (chisq, gradient, blocks) = derived(&case, 0..n);
        for i in [0, 1, n / 2, n - 1] {
            let mut expected = (0.0, 0.0, vec![0.0; l], vec![0.0; l * l]);
            for j in (0..n).filter(|&j| j != i) {
                let (value, slope, bend) = case.plain(i, j);
                expected.0 += value;
                expected.1 += case.marked[j] * value;
                for a in 0..l {
                    expected.2[a] += slope[a];
                    for b in 0..l {
                        expected.3[a * l + b] += bend[a][b];
                    }
                }
            }
            assert_near(chisq[2 * i], expected.0, n as f64);
            assert_near(chisq[2 * i + 1], expected.1, n as f64);
            for a in 0..l {
                assert_near(gradient[i * l + a], expected.2[a], 10.0 * n as f64);
            }
            for a in 0..l * l {
                assert_near(blocks[i * l * l + a], expected.3[a], 1e3 * n as f64);
            }
        }
    }
}

#[test]
fn products_are_those_of_the_matrix() {
    for case in cases() {
        let (n, l) = (case.n(), case.dimension);
        let mut out = vec![0.0; l * n];
        let block = case.rows();
        product(&case.objective, block, case.points(), &case.v, &mut out);
        for i in [0, 3, n / 2, n - 1] {
            for a in 0..l {
                let mut expected = 0.0;
                for j in (0..n).filter(|&j| j != i) {
                    let (_, _, bend) = case.plain(i, j);
                    let dv = case.difference(&case.v, i, j);
                    expected += (0..l).map(|b| bend[a][b] * dv[b]).sum::<f64>();
                }
                assert_near(out[i * l + a], expected, 1e3 * n as f64);
            }
        }
    }
}

#[test]
fn a_row_is_the_same_in_any_block_and_on_any_vectors() {
    let case = Case::new(
        101,
        3,
        Modelled::Distance {
            minimum_squared: 0.0,
        },
        1,
        true,
    );
    let whole = derived(&case, 0..101);
    let part = derived(&case, 40..77);
    assert_eq!(part.0, whole.0[80..154]);
    assert_eq!(part.1, whole.1[120..231]);
    assert_eq!(part.2, whole.2[360..693]);
    let x = Points::coordinates::<3>(&case.x, 101);
    let mut plain = sums::Derived::<3>::new(&case.objective, &x, 40);
    load::walk(
        &case.objective,
        &case.delta[40 * 101..41 * 101],
        &case.weights,
        40,
        |start, pairs| {
            plain.add_inline(start, pairs, &case.marked[start..start + pairs.len()]);
        },
    );
    let (mut chisq, mut gradient, mut blocks) = ([0.0; 2], [0.0; 3], [0.0; 9]);
    plain.store(case.weights[40], &mut chisq, &mut gradient, &mut blocks);
    for a in 0..3 {
        assert_near(gradient[a], whole.1[120 + a], 100.0);
    }
}

#[test]
fn integers_of_either_byte_order_are_read_alike() {
    let mut case = Case::new(40, 2, Modelled::Squared, 3, false);
    let stored: Vec<i16> = case
        .delta
        .iter()
        .map(|d| if d.is_nan() { -1 } else { (d * 32767.0) as i16 })
        .collect();
    case.delta = stored
        .iter()
        .map(|&v| if v < 0 { f64::NAN } else { f64::from(v) })
        .collect();
    case.objective.scale = 1.0 / 32767.0;
    let swapped: Vec<Swapped> = stored.iter().map(|v| Swapped(v.swap_bytes())).collect();
    let mut found = [vec![0.0; 80], vec![0.0; 80], vec![0.0; 80]];
    let (o, p) = (&case.objective, case.points());
    product(o, case.rows(), p, &case.v, &mut found[0]);
    product(
        o,
        MatrixRows {
            values: &stored,
            items: &ITEMS[..40],
        },
        p,
        &case.v,
        &mut found[1],
    );
    product(
        o,
        MatrixRows {
            values: &swapped,
            items: &ITEMS[..40],
        },
        p,
        &case.v,
        &mut found[2],
    );
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[test]
fn a_survey_counts_what_counts() {
    let case = Case::new(50, 2, Modelled::Squared, 0, false);
    let (mut numbers, mut counts) = (vec![0.0; 150], vec![0; 150]);
    let out = Survey {
        numbers: &mut numbers,
        counts: &mut counts,
    };
    survey(&case.objective, case.rows(), &case.weights, out);
    for i in 0..50 {
        let pairs: Vec<f64> = (0..50)
            .map(|j| case.pair(i, j))
            .filter(|p| p.0 > 0.0)
            .map(|p| p.1)
            .collect();
        assert_near(numbers[3 * i], pairs.iter().sum(), 50.0);
        assert_eq!(
            numbers[3 * i + 1],
            pairs.iter().copied().fold(f64::INFINITY, f64::min)
        );
        assert_eq!(
            numbers[3 * i + 2],
            pairs.iter().copied().fold(0.0, f64::max)
        );
        assert_eq!(
            counts[3 * i..3 * i + 3].iter().sum::<i64>(),
            pairs.len() as i64
        );
        assert_eq!(
            counts[3 * i],
            pairs.iter().filter(|&&d| d < 0.3).count() as i64
        );
    }
}

#[test]
fn a_histogram_counts_each_ordered_pair_once() {
    let mut case = Case::new(60, 2, Modelled::Squared, 3, false);
    case.objective.limits.clear();
    case.objective.bin_weights.clear();
    let mut counts = vec![0; 6];
    let mut out = Histogram {
        counts: &mut counts,
        columns: 3,
        ends: [1.0, 1.5],
    };
    density(&case.objective, case.rows(), case.points(), &mut out);
    let mut expected = vec![0; 6];
    for i in 0..60 {
        for j in 0..60 {
            let (w, delta) = case.pair(i, j);
            let d = case
                .difference(&case.x, i, j)
                .iter()
                .map(|c| c * c)
                .sum::<f64>()
                .sqrt();
            if w > 0.0 && d < 1.5 {
                expected[(delta * 2.0) as usize * 3 + (d * 2.0) as usize] += 1;
            }
        }
    }
    assert_eq!(counts, expected);
}
