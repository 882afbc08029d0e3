use super::finish::*;
use super::*;

/// Numbers in [-1, 1), always the same for the same seed (an xorshift generator).
fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn rows<T>(values: &[T], width: usize) -> Vec<&[T]> {
    values.chunks(width).collect()
}

type Kernel<'a, T, S> = &'a dyn Fn(&[&[T]], &[&[T]], &mut [&mut [S]]);

/// Run a kernel on m x k rows of `width` made by `make`, and compare each score with the scalar `oracle`.
fn check<T: Copy, S: Real>(
    shape: (usize, usize, usize),
    make: impl Fn(f64) -> T,
    kernel: Kernel<T, S>,
    oracle: impl Fn(&[T], &[T]) -> f64,
    tolerance: f64,
) {
    let (m, k, width) = shape;
    let a: Vec<T> = numbers(m * width, 3).into_iter().map(&make).collect();
    let b: Vec<T> = numbers(k * width, 5).into_iter().map(&make).collect();
    let (left, right) = (rows(&a, width), rows(&b, width));
    let mut out = vec![S::from_f64(-1.0); m * k];
    kernel(&left, &right, &mut out.chunks_mut(k).collect::<Vec<_>>());
    for (index, score) in out.iter().enumerate() {
        let expected = oracle(left[index / k], right[index % k]);
        let error = (score.to_f64() - expected).abs();
        assert!(
            error <= tolerance * expected.abs(),
            "{shape:?} pair {index}: {} {expected}",
            score.to_f64()
        );
    }
}

/// Shapes around the edges of rows, lanes and runs.
const SHAPES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (2, 3, 2),
    (6, 16, 128),
    (7, 17, 129),
    (13, 33, 5),
    (5, 65, 300),
    (3, 1, 1000),
    (1, 130, 7),
    (25, 40, 31),
];

fn absolute<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(x, y)| (x.to_f64() - y.to_f64()).abs())
        .sum()
}

fn squared<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(x, y)| (x.to_f64() - y.to_f64()).powi(2))
        .sum()
}

fn unequal<T: PartialEq>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).filter(|(x, y)| x != y).count() as f64 / a.len() as f64
}

fn bit(words: &[u64], index: usize) -> bool {
    words[index / 64] >> (index % 64) & 1 == 1
}

const SINGLE: f64 = (RUN + 6) as f64 / (1_u64 << 24) as f64;
const DOUBLE: f64 = (RUN + 6) as f64 / (1_u64 << 53) as f64;

#[test]
fn manhattan_agrees_with_scalar_sums() {
    for shape in SHAPES {
        check(
            shape,
            |x| x as f32,
            &manhattan::<f32, f32>,
            absolute,
            SINGLE,
        );
        check(
            shape,
            |x| x as f32,
            &manhattan::<f32, f64>,
            absolute,
            SINGLE,
        );
        check(shape, |x| x, &manhattan::<f64, f64>, absolute, DOUBLE);
        check(shape, |x| x, &manhattan::<f64, f32>, absolute, SINGLE);
    }
}

#[test]
fn euclidean_agrees_with_scalar_sums() {
    for shape in SHAPES {
        check(
            shape,
            |x| x as f32,
            &|l, r, o: &mut [&mut [f32]]| euclidean(l, r, false, o),
            squared,
            SINGLE,
        );
        check(
            shape,
            |x| x,
            &|l, r, o: &mut [&mut [f64]]| euclidean(l, r, false, o),
            squared,
            DOUBLE,
        );
        let root = |a: &[f64], b: &[f64]| squared(a, b).sqrt();
        check(
            shape,
            |x| x,
            &|l, r, o: &mut [&mut [f64]]| euclidean(l, r, true, o),
            root,
            DOUBLE,
        );
    }
}

#[test]
fn hamming_agrees_with_counting() {
    for shape in SHAPES {
        check(
            shape,
            |x| (x * 2.0) as i8,
            &hamming::<i8, f64>,
            unequal,
            0.0,
        );
        check(
            shape,
            |x| (x * 3.0) as i16,
            &hamming::<i16, f64>,
            unequal,
            0.0,
        );
        check(
            shape,
            |x| (x * 3.0) as i32,
            &hamming::<i32, f64>,
            unequal,
            0.0,
        );
        check(
            shape,
            |x| (x * 3.0) as i64,
            &hamming::<i64, f64>,
            unequal,
            0.0,
        );
        check(
            shape,
            |x| (x * 2.0) as i8,
            &hamming::<i8, f32>,
            unequal,
            SINGLE,
        );
    }
}

#[test]
fn hamming_counts_positions_that_all_differ() {
    let (zeros, ones) = (vec![0_i8; 1000], vec![1_i8; 1000]);
    let mut out = [0.0_f32];
    hamming(&[&zeros[..]], &[&ones[..]], &mut [&mut out[..]]);
    assert_eq!(out, [1.0]);
}

/// Rows of `width` words, the last of which is replaced by `last(row)`.
fn packed(n: usize, width: usize, seed: u64, last: impl Fn(&[u64]) -> u64) -> Vec<u64> {
    let mut words: Vec<u64> = numbers(n * width, seed)
        .into_iter()
        .map(f64::to_bits)
        .collect();
    for row in words.chunks_mut(width) {
        row[0] &= if row[0] & 1 == 0 { 0 } else { u64::MAX };
        row[width - 1] = last(&row[..width - 1]);
    }
    words
}

#[test]
fn packed_bits_agree_with_single_bits() {
    for (m, k, width) in [(1, 1, 2), (7, 17, 3), (13, 40, 9), (3, 5, 140)] {
        let n_bits = 64 * (width - 1);
        let ones = |row: &[u64]| (0..n_bits).filter(|&p| bit(row, p)).count() as u64;
        for jaccard in [false, true] {
            let last = |row: &[u64]| if jaccard { ones(row) } else { n_bits as u64 };
            let (a, b) = (packed(m, width, 7, last), packed(k, width, 9, last));
            let (left, right) = (rows(&a, width), rows(&b, width));
            let mut out = vec![0.0_f64; m * k];
            let tile = if jaccard { jaccard_bits } else { hamming_bits };
            tile(&left, &right, &mut out.chunks_mut(k).collect::<Vec<_>>());
            for (index, &score) in out.iter().enumerate() {
                let (x, y) = (left[index / k], right[index % k]);
                let differ = (0..n_bits).filter(|&p| bit(x, p) != bit(y, p)).count();
                let either = (0..n_bits).filter(|&p| bit(x, p) || bit(y, p)).count();
                let size = if jaccard { either.max(1) } else { n_bits };
                assert_eq!(score, differ as f64 / size as f64, "{jaccard} {index}");
            }
        }
    }
}

#[test]
fn two_empty_sets_are_equal() {
    let mut out = [9.0_f32];
    jaccard_bits(&[&[0, 0]], &[&[0, 0]], &mut [&mut out[..]]);
    assert_eq!(out, [0.0]);
}

#[test]
fn every_compiled_version_gives_the_same_sums() {
    for (m, k, width) in SHAPES {
        let a: Vec<f32> = numbers(m * width, 11)
            .into_iter()
            .map(|x| x as f32)
            .collect();
        let b: Vec<f32> = numbers(k * width, 12)
            .into_iter()
            .map(|x| x as f32)
            .collect();
        let (left, right) = (rows(&a, width), rows(&b, width));
        let tile = Operands {
            left: &left,
            right: &right,
            width,
        };
        let run = |level: CpuVectors| {
            let mut sums = vec![0.0; m * k];
            let mut store = |i: usize, j: usize, part: &[f64]| {
                sums[i * k + j..i * k + j + part.len()].copy_from_slice(part);
            };
            match level {
                CpuVectors::Baseline => {
                    walk::<AbsoluteDifference<f32>, 2, LANES>(&tile, &mut store)
                }
                // SAFETY: only levels up to the widest are asked for below.
                #[cfg(target_arch = "x86_64")]
                CpuVectors::Avx2 => unsafe {
                    walk_avx2::<AbsoluteDifference<f32>, LANES>(&tile, &mut store)
                },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                CpuVectors::Avx512 => unsafe {
                    walk_avx512::<AbsoluteDifference<f32>, LANES>(&tile, &mut store)
                },
            }
            sums
        };
        let baseline = run(CpuVectors::Baseline);
        #[cfg(target_arch = "x86_64")]
        for level in [CpuVectors::Avx2, CpuVectors::Avx512] {
            if level <= CpuVectors::widest() {
                assert_eq!(run(level), baseline, "{level:?}");
            }
        }
        assert!(baseline.iter().all(|&sum| sum > 0.0));
    }
}

/// Rows with their squared norm appended, and the inner products of all pairs.
fn with_norms(values: &[f32], width: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for row in values.chunks(width) {
        out.extend_from_slice(row);
        out.push(row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() as f32);
    }
    out
}

fn finished(a: &[f32], b: &[f32], width: usize, root: bool) -> Vec<f32> {
    let (x, y) = (with_norms(a, width), with_norms(b, width));
    let (left, right) = (rows(&x, width + 1), rows(&y, width + 1));
    let product = |x: &[f32], y: &[f32]| x[..width].iter().zip(y).map(|(a, b)| a * b).sum::<f32>();
    let mut out: Vec<f32> = left
        .iter()
        .flat_map(|x| right.iter().map(move |y| product(x, y)))
        .collect();
    finish_euclidean(
        &left,
        &right,
        root,
        &mut out.chunks_mut(right.len()).collect::<Vec<_>>(),
    );
    out
}

#[test]
fn near_duplicates_far_from_the_origin_keep_their_digits() {
    for width in [1, 15, 16, 33, 4100] {
        let a: Vec<f32> = numbers(5 * width, 21)
            .into_iter()
            .map(|x| (1e4 + x) as f32)
            .collect();
        let b: Vec<f32> = numbers(7 * width, 22)
            .into_iter()
            .map(|x| (1e4 + x) as f32)
            .collect();
        for root in [false, true] {
            for (index, &score) in finished(&a, &b, width, root).iter().enumerate() {
                let exact = squared(rows(&a, width)[index / 7], rows(&b, width)[index % 7]);
                let exact = if root { exact.sqrt() } else { exact };
                assert!(
                    (f64::from(score) - exact).abs() <= SINGLE * exact,
                    "{width} {score} {exact}"
                );
            }
        }
    }
}

#[test]
fn a_near_duplicate_among_distant_vectors_keeps_its_digits() {
    for width in [33, 48, 2100] {
        let a: Vec<f32> = numbers(width, 23).into_iter().map(|x| x as f32).collect();
        let mut b: Vec<f32> = numbers(9 * width, 24)
            .into_iter()
            .map(|x| x as f32)
            .collect();
        for (near, &x) in b[4 * width..].iter_mut().zip(&a) {
            *near = x * 1.000_01;
        }
        let scores = finished(&a, &b, width, false);
        let exact = squared(&a, rows(&b, width)[4]);
        assert!(
            (f64::from(scores[4]) - exact).abs() <= SINGLE * exact,
            "{width} {exact}"
        );
        assert!(
            scores
                .iter()
                .filter(|&&score| f64::from(score) > width as f64 / 3.0)
                .count()
                == 8
        );
    }
}

#[test]
fn equal_and_zero_vectors_are_at_distance_zero() {
    assert_eq!(finished(&[1e9, 3.0], &[1e9, 3.0], 2, true), [0.0]);
    assert_eq!(finished(&[0.0, 0.0], &[0.0, 0.0], 2, true), [0.0]);
}

#[test]
fn distant_vectors_keep_the_product() {
    assert_eq!(
        finished(&[3.0, 0.0], &[0.0, 4.0, 0.0, 0.0], 2, true),
        [5.0, 3.0]
    );
    assert_eq!(
        finished(&[3.0, 0.0], &[0.0, 4.0, 0.0, 0.0], 2, false),
        [25.0, 9.0]
    );
}

#[test]
fn cosine_is_clipped_and_keeps_nan() {
    let mut row = [1.0_f32, 1.000_001, -1.000_001, 0.25, f32::NAN];
    let (unit, others) = ([1.0_f32, 0.0], [0.0_f32, 1.0]);
    finish_cosine(&[&unit[..]], &[&others[..]; 5], &mut [&mut row[..]]);
    assert_eq!(row[..4], [0.0, 0.0, 2.0, 0.75]);
    assert!(row[4].is_nan());
}

#[test]
fn equal_unit_rows_are_at_zero() {
    fn at<T: Real>(norm: f64, distance: f64) -> Vec<f64> {
        let row: Vec<T> = [0.6, 0.0, 0.8].map(|x| T::from_f64(x * norm)).to_vec();
        let mut other = row.clone();
        other[0] = other[0] + T::from_f64(1e-7);
        let mut negative = row.clone();
        negative[1] = T::from_f64(-0.0);
        let right = [&row[..], &other[..], &negative[..], &row[..]];
        let mut products = [T::from_f64(1.0 - distance); 4];
        products[3] = T::from_f64(0.5);
        finish_cosine(&[&row[..]], &right, &mut [&mut products[..]]);
        products.iter().map(|value| value.to_f64()).collect()
    }
    let far = f64::from(1.0 - 0.999_999_3_f32);
    assert_eq!(at::<f32>(1.0, 7e-7), [0.0, far, 0.0, 0.5]);
    assert_eq!(
        at::<f64>(1.0, 2f64.powi(-50)),
        [0.0, 2f64.powi(-50), 0.0, 0.5]
    );
    // Rows that were rounded to fewer bits have no norm of 1.
    assert_eq!(at::<f64>(0.9995, 2f64.powi(-10))[0], 0.0);
    // A product that says that they are far apart is believed.
    assert_eq!(at::<f32>(1.0, 0.25)[0], 0.25);
}

#[test]
#[should_panic(expected = "rows differ in length")]
fn unequal_lengths_are_refused() {
    manhattan(
        &[&[1.0_f32, 2.0][..]],
        &[&[1.0_f32][..]],
        &mut [&mut [0.0_f32][..]],
    );
}

#[test]
#[should_panic(expected = "the output must have")]
fn an_output_of_another_shape_is_refused() {
    manhattan(
        &[&[1.0_f32][..]],
        &[&[1.0_f32][..]],
        &mut [&mut [0.0_f32, 0.0][..]],
    );
}

fn in_f64<T: Real>(a: &[T], b: &[T]) -> Vec<(f64, f64)> {
    a.iter()
        .zip(b)
        .map(|(x, y)| (x.to_f64(), y.to_f64()))
        .collect()
}

fn largest<T: Real>(a: &[T], b: &[T]) -> f64 {
    in_f64(a, b)
        .iter()
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f64::max)
}

fn ratios<T: Real>(a: &[T], b: &[T]) -> f64 {
    let ratio = |(x, y): &(f64, f64)| (x - y).abs() / (x.abs() + y.abs());
    in_f64(a, b).iter().map(ratio).sum()
}

fn shares<T: Real>(a: &[T], b: &[T]) -> f64 {
    let pairs = in_f64(a, b);
    let difference: f64 = pairs.iter().map(|(x, y)| (x - y).abs()).sum();
    difference / pairs.iter().map(|(x, y)| (x + y).abs()).sum::<f64>()
}

fn powers<T: Real>(power: f64) -> impl Fn(&[T], &[T]) -> f64 {
    move |a, b| {
        let terms = in_f64(a, b);
        let sum: f64 = terms.iter().map(|(x, y)| (x - y).abs().powf(power)).sum();
        sum.powf(1.0 / power)
    }
}

#[test]
fn sums_of_other_terms_agree_with_scalar_sums() {
    for shape in SHAPES {
        let single = |x: f64| (x + 1.5) as f32;
        let double = |x: f64| x + 1.5;
        check(
            shape,
            single,
            &terms::chebyshev::<f32, f64>,
            largest,
            SINGLE,
        );
        check(
            shape,
            double,
            &terms::chebyshev::<f64, f64>,
            largest,
            DOUBLE,
        );
        check(
            shape,
            single,
            &terms::canberra::<f32, f64>,
            ratios,
            4.0 * SINGLE,
        );
        check(shape, double, &terms::canberra::<f64, f32>, ratios, SINGLE);
        check(
            shape,
            single,
            &terms::bray_curtis::<f32, f32>,
            shares,
            2.0 * SINGLE,
        );
        check(
            shape,
            double,
            &terms::bray_curtis::<f64, f64>,
            shares,
            2.0 * DOUBLE,
        );
        for power in [1.5, 3.0, 4.0, 5.0, 6.0, 7.5] {
            let kernel = |l: &[&[f64]], r: &[&[f64]], o: &mut [&mut [f64]]| {
                terms::minkowski(l, r, power, o);
            };
            check(shape, double, &kernel, powers(power), power * DOUBLE);
            let kernel = |l: &[&[f32]], r: &[&[f32]], o: &mut [&mut [f32]]| {
                terms::minkowski(l, r, power, o);
            };
            check(shape, single, &kernel, powers(power), power * SINGLE);
        }
    }
}

#[test]
fn missing_values_count_for_nothing() {
    let known = |a: &[f64], b: &[f64]| {
        let pairs = in_f64(a, b);
        let both: Vec<_> = pairs
            .iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        let sum: f64 = both.iter().map(|(x, y)| (x - y).powi(2)).sum();
        (sum * pairs.len() as f64 / both.len() as f64).sqrt()
    };
    let missing = |x: f64| if x > 0.6 { f64::INFINITY } else { x };
    for shape in [(13, 33, 50), (7, 17, 129), (100, 3, 300)] {
        check(
            shape,
            missing,
            &terms::nan_euclidean::<f64, f64>,
            known,
            2.0 * DOUBLE,
        );
    }
    let mut out = [0.0_f64];
    let (a, b) = ([f64::INFINITY, 1.0], [1.0, f64::INFINITY]);
    terms::nan_euclidean(&[&a[..]], &[&b[..]], &mut [&mut out[..]]);
    assert!(out[0].is_nan(), "nothing in common");
}

#[test]
fn jensen_shannon_agrees_with_logarithms() {
    let divergence = |a: &[f64], b: &[f64]| {
        let part = |x: f64, m: f64| if x == 0.0 { 0.0 } else { x * (x / m).ln() };
        let terms = in_f64(a, b);
        let sum: f64 = terms
            .iter()
            .map(|&(x, y)| part(x, (x + y) / 2.0) + part(y, (x + y) / 2.0))
            .sum();
        (sum / 2.0).sqrt()
    };
    let value = |x: f64| if x < -0.5 { 0.0 } else { x + 0.5 };
    for shape in [(13, 33, 50), (7, 17, 129), (2, 3, 300)] {
        check(
            shape,
            value,
            &terms::jensen_shannon::<f64>,
            divergence,
            1e-12,
        );
    }
}

#[test]
fn a_row_of_nan_is_at_nan() {
    let (bad, good) = ([f64::NAN; 130], [1.0; 130]);
    let sides = [&bad[..], &good[..]];
    let kernels: [Kernel<f64, f64>; 4] = [
        &terms::chebyshev,
        &terms::canberra,
        &terms::bray_curtis,
        &terms::jensen_shannon,
    ];
    for kernel in kernels {
        let mut out = [0.0_f64; 4];
        kernel(&sides, &sides, &mut out.chunks_mut(2).collect::<Vec<_>>());
        let found = out.map(f64::is_nan);
        assert_eq!(found, [true, true, true, false]);
    }
}
