//! Passes of SMACOF against a plain loop over pairs, with the vectors of every level that this machine has.

use tartan_smacof::lanes::Number;
use tartan_smacof::walk::{Rule, Weights, CHUNK, PAD};
use tartan_smacof::{BlockRows, Entry, PassMemory, Real, VectorLevel, GROUP};

/// Deterministic numbers in 0..1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    fn many(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn levels() -> Vec<VectorLevel> {
    match VectorLevel::detect() {
        VectorLevel::Avx512 => vec![
            VectorLevel::Portable,
            VectorLevel::Avx2,
            VectorLevel::Avx512,
        ],
        VectorLevel::Avx2 => vec![VectorLevel::Portable, VectorLevel::Avx2],
        VectorLevel::Portable => vec![VectorLevel::Portable],
    }
}

/// What the oracle needs of a rule, in f64: weights already looked up.
struct Case {
    n: usize,
    dim: usize,
    delta: Vec<f64>,
    weights: Vec<f64>,
    diff: f64,
    floor: f64,
    missing: bool,
    sammon: Option<f64>,
    product: bool,
}

/// Sums and losses of one row at `x` against all columns but `own`, pair by pair.
fn oracle_row(
    case: &Case,
    row: usize,
    x: &[f64],
    points: &[f64],
    own: Option<usize>,
) -> (Vec<f64>, f64) {
    let (mut sums, mut loss) = (vec![0.0; case.dim], 0.0);
    for j in (0..case.n).filter(|&j| Some(j) != own) {
        let (stored, y) = (
            case.delta[row * case.n + j],
            &points[j * case.dim..(j + 1) * case.dim],
        );
        if case.missing && (stored < 0.0 || stored.is_nan()) {
            continue;
        }
        let delta = stored.max(case.floor);
        let weight =
            case.weights[row * case.n + j] / case.sammon.map_or(1.0, |least| delta.max(least));
        let distance = x
            .iter()
            .zip(y)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f64>()
            .sqrt();
        let target = (delta - case.diff).max(0.0);
        let force = if case.product {
            weight
        } else if distance > 0.0 {
            weight * (target / distance - 1.0)
        } else {
            0.0
        };
        loss += if case.product {
            weight
        } else {
            weight * (target - distance).powi(2)
        };
        for k in 0..case.dim {
            sums[k] += force * (x[k] - y[k]);
        }
    }
    (sums, loss)
}

fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    let size = expected
        .iter()
        .fold(1e-300, |size: f64, value| size.max(value.abs()));
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * size,
            "{what}: place {at}: {a} instead of {b}"
        );
    }
}

/// Compare both forms with the oracle, at every level.
fn compare<E: Real, S: Entry>(
    case: &Case,
    stored: &[S],
    rule: &Rule<'_, E>,
    points: &[f64],
    tolerance: f64,
) {
    let (n, dim) = (case.n, case.dim);
    let expected: Vec<_> = (0..n)
        .map(|i| oracle_row(case, i, &points[i * dim..(i + 1) * dim], points, Some(i)))
        .collect();
    let sums: Vec<f64> = expected.iter().flat_map(|(sums, _)| sums.clone()).collect();
    let losses: Vec<f64> = expected.iter().map(|(_, loss)| *loss).collect();
    for level in levels() {
        let mut space = PassMemory::<E>::with_level(n, dim, level);
        space.place(points);
        let (mut out, mut lost) = (vec![9.0; n * dim], vec![9.0; n]);
        space.rows(stored, rule, BlockRows::From(0), &mut out, &mut lost);
        close(&out, &sums, tolerance, &format!("rows, {level:?}"));
        close(&lost, &losses, tolerance, &format!("losses, {level:?}"));
        space.triangle(stored, rule, 0..n.min(GROUP));
        if n > GROUP {
            space.triangle(stored, rule, GROUP..n);
        }
        let total = space.finish(&mut out);
        close(&out, &sums, tolerance, &format!("triangle, {level:?}"));
        let half = losses.iter().sum::<f64>() / 2.0;
        close(&[total], &[half], tolerance, &format!("loss, {level:?}"));
    }
}

fn plain<E: Number>() -> Rule<'static, E> {
    Rule {
        diff: E::of(0.0),
        floor: E::of(0.0),
        tiny: E::of(1e-30),
        missing: false,
        swap: false,
        sammon: None,
        product: false,
        weights: Weights::Unit,
    }
}

fn symmetric(n: usize, numbers: &mut Numbers) -> Vec<f64> {
    let mut all = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..i {
            all[i * n + j] = (numbers.next() * 1000.0).floor() / 1000.0;
            all[j * n + i] = all[i * n + j];
        }
    }
    all
}

fn case(n: usize, dim: usize, numbers: &mut Numbers) -> Case {
    Case {
        n,
        dim,
        delta: symmetric(n, numbers),
        weights: vec![1.0; n * n],
        diff: 0.0,
        floor: 0.0,
        missing: false,
        sammon: None,
        product: false,
    }
}

#[test]
fn plain_passes_agree_with_the_oracle_in_every_dimension_and_size() {
    for n in [1, 2, 3, 15, 16, 17, 63, 64, 65, 131] {
        for dim in [1, 2, 3, 5] {
            let mut numbers = Numbers(n as u64);
            let mut case = case(n, dim, &mut numbers);
            let points = numbers.many(n * dim);
            for diff in [0.0, 0.3] {
                case.diff = diff;
                let narrow: Vec<f32> = case.delta.iter().map(|&v| v as f32).collect();
                compare::<f64, f64>(
                    &case,
                    &case.delta,
                    &Rule { diff, ..plain() },
                    &points,
                    1e-13,
                );
                compare::<f32, f32>(
                    &case,
                    &narrow,
                    &Rule {
                        diff: diff as f32,
                        ..plain()
                    },
                    &points,
                    3e-6,
                );
                let again: Vec<f32> = narrow;
                let exact = Case {
                    delta: again.iter().map(|&v| v.into()).collect(),
                    ..case_like(&case)
                };
                compare::<f64, f32>(&exact, &again, &Rule { diff, ..plain() }, &points, 1e-13);
            }
        }
    }
}

fn case_like(case: &Case) -> Case {
    Case {
        delta: Vec::new(),
        weights: case.weights.clone(),
        ..*case
    }
}

#[test]
fn many_columns_are_carried_over_chunk_by_chunk() {
    let (n, dim) = (2 * CHUNK + 37, 3);
    let mut numbers = Numbers(5);
    let case = Case {
        diff: 0.2,
        ..case(n, dim, &mut numbers)
    };
    let points = numbers.many(n * dim);
    let rule = Rule {
        diff: 0.2,
        ..plain()
    };
    compare::<f64, f64>(&case, &case.delta, &rule, &points, 1e-12);
}

#[test]
fn sixteen_bit_input_of_either_byte_order_with_missing_pairs_weights_and_sammon() {
    let n = 83;
    for dim in [2, 3, 4] {
        let mut numbers = Numbers(77);
        let base = case(n, dim, &mut numbers);
        let mut short: Vec<i16> = base.delta.iter().map(|v| (v * 32767.0) as i16).collect();
        let mut weights = vec![1i16; n * n];
        for i in 0..n {
            for j in 0..i {
                let (gone, weight) = (numbers.next() < 0.2, (numbers.next() * 900.0) as i16);
                for place in [i * n + j, j * n + i] {
                    weights[place] = weight;
                    if gone {
                        short[place] = -1;
                    }
                }
            }
        }
        let points: Vec<f64> = numbers.many(n * dim).iter().map(|v| v * 20000.0).collect();
        for product in [false, true] {
            let case = Case {
                delta: short.iter().map(|&v| v.into()).collect(),
                weights: weights.iter().map(|&v| v.into()).collect(),
                diff: 4000.0,
                floor: 60.0,
                missing: true,
                sammon: Some(100.0),
                product,
                ..case_like(&base)
            };
            let swapped: Vec<i16> = short.iter().map(|v| v.swap_bytes()).collect();
            let swapped_weights: Vec<i16> = weights.iter().map(|v| v.swap_bytes()).collect();
            let rule = |swap| Rule::<f64> {
                diff: 4000.0,
                floor: 60.0,
                missing: true,
                sammon: Some(100.0),
                product,
                swap,
                ..plain()
            };
            let narrow = |swap| Rule::<f32> {
                diff: 4000.0,
                floor: 60.0,
                missing: true,
                sammon: Some(100.0),
                product,
                swap,
                ..plain()
            };
            let in_order = Weights::Short {
                values: &weights,
                swap: false,
            };
            compare(
                &case,
                &short,
                &Rule {
                    weights: in_order,
                    ..rule(false)
                },
                &points,
                1e-12,
            );
            let in_order = Weights::Short {
                values: &weights,
                swap: false,
            };
            compare(
                &case,
                &short,
                &Rule {
                    weights: in_order,
                    ..narrow(false)
                },
                &points,
                1e-5,
            );
            let other = Weights::Short {
                values: &swapped_weights,
                swap: true,
            };
            compare(
                &case,
                &swapped,
                &Rule {
                    weights: other,
                    ..rule(true)
                },
                &points,
                1e-12,
            );
            let other = Weights::Short {
                values: &swapped_weights,
                swap: true,
            };
            compare(
                &case,
                &swapped,
                &Rule {
                    weights: other,
                    ..narrow(true)
                },
                &points,
                1e-5,
            );
        }
    }
}

#[test]
fn weights_of_points_and_of_a_matrix_of_floats() {
    let (n, dim) = (70, 3);
    let mut numbers = Numbers(8);
    let base = case(n, dim, &mut numbers);
    let points = numbers.many(n * dim);
    let mut each = numbers.many(n);
    let product: Vec<f64> = (0..n * n).map(|at| each[at / n] * each[at % n]).collect();
    let matrix: Vec<f32> = product.iter().map(|&v| v as f32).collect();
    let case = Case {
        weights: product,
        delta: base.delta.clone(),
        ..case_like(&base)
    };
    let rounded = Case {
        weights: matrix.iter().map(|&v| v.into()).collect(),
        delta: base.delta.clone(),
        ..case_like(&base)
    };
    let rows = each.clone();
    each.resize(n.div_ceil(PAD) * PAD, 0.0);
    let by_points = Weights::Points {
        rows: &rows,
        columns: &each,
    };
    compare(
        &case,
        &case.delta,
        &Rule {
            weights: by_points,
            ..plain()
        },
        &points,
        1e-12,
    );
    let by_matrix = Weights::Real { values: &matrix };
    compare::<f64, f64>(
        &rounded,
        &rounded.delta,
        &Rule {
            weights: by_matrix,
            ..plain()
        },
        &points,
        1e-12,
    );
}

#[test]
fn missing_floats_are_nan_or_negative_and_points_at_one_place_add_nothing() {
    let (n, dim) = (20, 3);
    let mut numbers = Numbers(4);
    let mut case = case(n, dim, &mut numbers);
    case.missing = true;
    case.delta[3] = f64::NAN;
    case.delta[3 * n] = f64::NAN;
    case.delta[2 * n + 5] = -1.0;
    case.delta[5 * n + 2] = -1.0;
    let mut points = numbers.many(n * dim);
    points.copy_within(0..dim, dim);
    let rule = Rule {
        missing: true,
        ..plain()
    };
    compare::<f64, f64>(&case, &case.delta, &rule, &points, 1e-12);
}

#[test]
fn guests_meet_every_column() {
    let (n, m, dim) = (37, 19, 3);
    let mut numbers = Numbers(12);
    let base = case(n, dim, &mut numbers);
    let case = Case {
        delta: numbers.many(m * n),
        ..case_like(&base)
    };
    let (points, guests) = (numbers.many(n * dim), numbers.many(m * dim));
    let mut space = PassMemory::<f64>::new(n, dim);
    space.place(&points);
    let (mut sums, mut losses) = (vec![0.0; m * dim], vec![0.0; m]);
    space.rows(
        &case.delta,
        &plain(),
        BlockRows::Guests(&guests),
        &mut sums,
        &mut losses,
    );
    for i in 0..m {
        let (expected, loss) = oracle_row(&case, i, &guests[i * dim..(i + 1) * dim], &points, None);
        close(&sums[i * dim..(i + 1) * dim], &expected, 1e-13, "guest");
        close(&losses[i..=i], &[loss], 1e-13, "loss of a guest");
    }
}

#[test]
fn sums_do_not_depend_on_the_number_of_threads() {
    let (n, dim) = (900, 3);
    let mut numbers = Numbers(1);
    let delta: Vec<f32> = symmetric(n, &mut numbers)
        .iter()
        .map(|&v| v as f32)
        .collect();
    let points = numbers.many(n * dim);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let mut space = PassMemory::<f32>::new(n, dim);
            space.place(&points);
            space.triangle(&delta, &plain(), 0..n);
            let mut out = vec![0.0; n * dim];
            (space.finish(&mut out), out)
        })
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn shares_that_several_workspaces_keep_add_up_to_the_same_bits() {
    let (n, dim) = (450, 2);
    let mut numbers = Numbers(2);
    let delta = symmetric(n, &mut numbers);
    let points = numbers.many(n * dim);
    let mut whole = PassMemory::<f64>::new(n, dim);
    let (n_shares, length) = whole.shares();
    assert!(n_shares > 3);
    whole.place(&points);
    whole.triangle(&delta, &plain(), 0..n);
    let mut expected = vec![0.0; n * dim];
    let loss = whole.finish(&mut expected);
    let mut rows = Vec::new();
    for kept in [0..3, 3..3, 3..n_shares] {
        let mut space = PassMemory::<f64>::new(n, dim);
        space.keep(kept.clone());
        space.place(&points);
        space.triangle(&delta, &plain(), 0..n);
        let mut part = vec![9.0; kept.len() * length];
        space.partial(&mut part);
        rows.extend(part);
    }
    let mut out = vec![9.0; n * dim];
    assert_eq!(
        (whole.finish_partials(&rows, &mut out), out),
        (loss, expected)
    );
}
