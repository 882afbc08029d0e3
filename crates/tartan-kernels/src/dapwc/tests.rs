use super::block::VectorLevel;
use super::*;

/// Numbers that look random.
fn noise(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        })
        .collect()
}

fn levels() -> Vec<VectorLevel> {
    let mut levels = vec![VectorLevel::Baseline];
    #[cfg(target_arch = "x86_64")]
    match VectorLevel::widest() {
        VectorLevel::Avx512 => levels.extend([VectorLevel::Avx2, VectorLevel::Avx512]),
        VectorLevel::Avx2 => levels.push(VectorLevel::Avx2),
        VectorLevel::Baseline => {}
    }
    levels
}

/// One loop after the other, in f64.
fn oracle(values: &[Option<f64>], n: usize, columns: &[f64], k: usize) -> (Vec<f64>, Vec<f64>) {
    let rows = values.len() / n;
    let (mut out, mut mass) = (vec![0.0; rows * k], vec![0.0; rows * k]);
    for r in 0..rows {
        for b in 0..n {
            if let Some(value) = values[r * n + b] {
                for c in 0..k {
                    out[r * k + c] += value * columns[b * k + c];
                    mass[r * k + c] += columns[b * k + c];
                }
            }
        }
    }
    (out, mass)
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * (1.0 + b.abs()),
            "{at}: {a} is not {b}"
        );
    }
}

fn check<T: Stored>(store: impl Fn(f64) -> T, value: impl Fn(T) -> Option<f64>, tolerance: f64) {
    for (rows, n, k) in [
        (1, 1, 1),
        (2, 3, 2),
        (25, 40, 5),
        (49, 131, 8),
        (26, 40, 3),
        (20, 33, 4),
        (13, 47, 6),
        (9, 70, 11),
        (7, PANEL + 17, 15),
        (30, 64, 50),
    ] {
        let stored: Vec<T> = noise(7, rows * n).into_iter().map(&store).collect();
        let values: Vec<Option<f64>> = stored.iter().map(|&v| value(v)).collect();
        let columns: Vec<f64> = noise(3, n * k).iter().map(|v| v - 0.25).collect();
        let (expected, masses) = oracle(&values, n, &columns, k);
        let mut packed = vec![T::Real::default(); padded(n) * k];
        pack(&columns, k, &mut packed);
        for level in levels() {
            let (mut out, mut mass) = (vec![9.0; rows * k], vec![9.0; rows * k]);
            product_at(level, &stored, n, &packed, k, &mut out, Some(&mut mass));
            let size = values.iter().flatten().fold(1.0, |a: f64, v| a.max(*v));
            close(&out, &expected, tolerance * size * n as f64);
            close(&mass, &masses, tolerance * n as f64);
            if values.iter().all(Option::is_some) {
                let mut plain = vec![9.0; rows * k];
                product_at(level, &stored, n, &packed, k, &mut plain, None);
                close(&plain, &expected, tolerance * size * n as f64);
            }
        }
    }
}

#[test]
fn product_of_known_values_is_the_oracle() {
    let int = |v: f64| (v * 32767.0) as i16;
    check(int, |v: i16| Some(f64::from(v)), 1e-6);
    check(|v| v as f32, |v: f32| Some(f64::from(v)), 1e-6);
    check(|v| v, |v: f64| Some(v), 1e-14);
    check(
        |v| Swapped(int(v).swap_bytes()),
        |v: Swapped| Some(f64::from(v.0.swap_bytes())),
        1e-6,
    );
}

#[test]
fn missing_values_are_left_out() {
    let int = |v: f64| if v < 0.3 { -1 } else { (v * 32767.0) as i16 };
    let of = |v: i16| (v >= 0).then_some(f64::from(v));
    check(int, of, 1e-6);
    check(
        |v| Swapped(int(v).swap_bytes()),
        |v: Swapped| of(v.0.swap_bytes()),
        1e-6,
    );
    let float = |v: f32| (!v.is_nan()).then_some(f64::from(v));
    check(|v| if v < 0.3 { f32::NAN } else { v as f32 }, float, 1e-6);
    let double = |v: f64| (!v.is_nan()).then_some(v);
    check(|v| if v < 0.3 { f64::NAN } else { v }, double, 1e-14);
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    let (n, k) = (100, 5);
    let stored: Vec<f32> = noise(1, 60 * n).iter().map(|&v| v as f32).collect();
    let mut packed = vec![0f32; padded(n) * k];
    pack(&noise(2, n * k), k, &mut packed);
    let mut whole = vec![0.0; 60 * k];
    product(&stored, n, &packed, k, &mut whole, None);
    for (first, last) in [(0, 1), (1, 30), (30, 60), (59, 60)] {
        let mut part = vec![0.0; (last - first) * k];
        product(&stored[first * n..last * n], n, &packed, k, &mut part, None);
        assert_eq!(part, whole[first * k..last * k]);
    }
}

#[test]
fn costs_are_those_of_the_formula() {
    let (n, k) = (1100, 3);
    let (product, members, mass) = (noise(1, n * k), noise(2, n * k), noise(3, n * k));
    for mass in [None, Some(&mass[..])] {
        let mut eps = noise(4, n * k);
        let old = eps.clone();
        let (mut sizes, mut inner, mut change) = (vec![0.0; k], vec![0.0; k], vec![0.0; k]);
        let mut written = ColumnCosts {
            sizes: &mut sizes,
            inner: &mut inner,
            change: &mut change,
        };
        let mut scratch = vec![0.0; scratch_len(n, k)];
        costs(
            &product,
            mass,
            &members,
            2.0,
            9.0,
            &mut eps,
            &mut written,
            &mut scratch,
        );
        for c in 0..k {
            let column = |a: &[f64]| -> Vec<f64> { a.iter().skip(c).step_by(k).copied().collect() };
            let m = column(&members);
            let size: f64 = m.iter().sum();
            let b: Vec<f64> = column(&product)
                .iter()
                .enumerate()
                .map(|(a, p)| 2.0 * p / mass.map_or(size, |mass| mass[a * k + c]))
                .collect();
            let a = -0.5 * b.iter().zip(&m).map(|(b, m)| b * m).sum::<f64>() / size;
            let new: Vec<f64> = b.iter().map(|b| b + a).collect();
            let moved: f64 = new
                .iter()
                .zip(column(&old))
                .map(|(x, y)| (x - y).abs())
                .sum();
            close(&column(&eps), &new, 1e-10);
            close(&[sizes[c], inner[c], change[c]], &[size, a, moved], 1e-10);
        }
    }
}

#[test]
fn a_point_without_known_pairs_costs_what_was_said() {
    let mut eps = vec![0.0; 2];
    let (mut sizes, mut inner, mut change) = ([0.0], [0.0], [0.0]);
    let mut written = ColumnCosts {
        sizes: &mut sizes,
        inner: &mut inner,
        change: &mut change,
    };
    let mut scratch = vec![0.0; scratch_len(2, 1)];
    let members = [1.0, 0.0];
    costs(
        &[2.0, 0.0],
        Some(&[1.0, 0.0]),
        &members,
        1.0,
        7.0,
        &mut eps,
        &mut written,
        &mut scratch,
    );
    assert_eq!(inner, [-1.0]);
    assert_eq!(eps, [1.0, 6.0]);
}

#[test]
fn memberships_of_each_problem_sum_to_one() {
    let (n, k, width) = (700, 6, 3);
    let eps = noise(5, n * k);
    let prior = [1.0, 2.0, 1.0, 1.0, 1.0, 0.5];
    let copies = [1.0, 1.0, 2.0, 2.0, 1.0, 1.0];
    let mut members = vec![0.0; n * k];
    assign(&eps, &prior, &copies, width, 0.1, &mut members);
    for a in 0..n {
        for p in 0..2 {
            let at = |c: usize| a * k + p * width + c;
            let weight = |c: usize| prior[p * width + c] * (-eps[at(c)] / 0.1).exp();
            let sum: f64 = (0..width).map(|c| copies[p * width + c] * weight(c)).sum();
            for c in 0..width {
                close(&[members[at(c)]], &[weight(c) / sum], 1e-12);
            }
        }
    }
}

#[test]
fn weights_that_all_vanish_become_equal() {
    let mut members = [0.0; 2];
    assign(&[0.0, 1.0], &[0.0, 0.0], &[1.0, 1.0], 2, 1.0, &mut members);
    assert_eq!(members, [0.5, 0.5]);
}
