use super::*;
use crate::dense::finish;
use crate::keeper::DONE;

/// Rows with many and few values, some equal, some empty, in `width` positions; the first ones are in most rows.
fn rows(n: usize, width: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut state = seed;
    let mut next = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let mut found: Vec<Vec<f64>> = Vec::new();
    for at in 0..n {
        if at % 17 == 16 {
            found.push(found[at / 2].clone());
            continue;
        }
        let share = if at % 11 == 3 {
            0.0
        } else {
            0.02 + 0.1 * next()
        };
        let value = |position: usize| {
            let often = if position.is_multiple_of(29) {
                0.8
            } else {
                share
            };
            let (is_set, size) = (next() < often && share > 0.0, next() - 0.5);
            if is_set {
                size
            } else {
                0.0
            }
        };
        let row: Vec<f64> = (0..width).map(value).collect();
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        found.push(row.iter().map(|x| x / norm.max(1e-300)).collect());
    }
    found
}

fn words(rows: &[Vec<f64>], single: bool) -> Vec<Vec<u64>> {
    let longest = |row: &Vec<f64>| row.iter().filter(|&&x| x != 0.0).count();
    let most = rows.iter().map(longest).max().unwrap_or(0) + 3;
    let pack = |row: &Vec<f64>| {
        let set: Vec<usize> = (0..row.len()).filter(|&at| row[at] != 0.0).collect();
        let mut found: Vec<u64> = set.iter().map(|&at| at as u64).collect();
        found.resize(
            most,
            if single {
                u64::from(u32::MAX)
            } else {
                u64::MAX
            },
        );
        found.extend(set.iter().map(|&at| match single {
            true => u64::from((row[at] as f32).to_bits()),
            false => row[at].to_bits(),
        }));
        found.resize(2 * most, 0);
        found
    };
    rows.iter().map(pack).collect()
}

fn slices<T>(rows: &[Vec<T>]) -> Vec<&[T]> {
    rows.iter().map(Vec::as_slice).collect()
}

fn matrix<T: Copy + Default>(m: usize, n: usize, fill: impl FnOnce(&mut [&mut [T]])) -> Vec<T> {
    let mut scores = vec![T::default(); m * n];
    let mut out: Vec<&mut [T]> = scores.chunks_mut(n).collect();
    fill(&mut out);
    scores
}

#[test]
fn sparse_cosines_have_the_bits_of_dense_rows() {
    if !crate::product::available() {
        return;
    }
    let (first, second) = (rows(70, 400, 1), rows(PANEL + 90, 400, 2));
    let (m, n) = (first.len(), second.len());
    let narrow = |rows: &[Vec<f64>]| -> Vec<Vec<f32>> {
        rows.iter()
            .map(|row| row.iter().map(|&x| x as f32).collect())
            .collect()
    };
    let (a, b) = (narrow(&first), narrow(&second));
    let dense = matrix(m, n, |out| {
        finish::cosine::<f32>(&slices(&a), &slices(&b), (None, DONE), out);
    });
    let shrink = |rows: Vec<Vec<u64>>| -> Vec<Vec<u32>> {
        rows.iter()
            .map(|row| row.iter().map(|&x| x as u32).collect())
            .collect()
    };
    let (p, q) = (shrink(words(&first, true)), shrink(words(&second, true)));
    // Both sides are padded to their own length.
    let found = matrix(m, n, |out| cosine(&slices(&p), &slices(&q), out));
    assert_eq!(found, dense);
    assert!(found.contains(&0.0) && found.contains(&1.0));

    let dense = matrix(m, n, |out| {
        finish::cosine::<f64>(&slices(&first), &slices(&second), (None, DONE), out);
    });
    let (p, q) = (words(&first, false), words(&second, false));
    let found = matrix(m, n, |out| cosine(&slices(&p), &slices(&q), out));
    assert_eq!(found, dense);
}

#[test]
fn all_vectors_and_all_tiles_give_the_bits_of_the_plain_sum() {
    let given = words(&rows(PANEL + 70, 300, 3), false);
    let both = Rows::<f64>::weighted(&slices(&given));
    let n = both.len();
    let mut plain = vec![0.0; n * n];
    for (at, sum) in plain.iter_mut().enumerate() {
        *sum = product(both.row(at / n), both.row(at % n));
    }
    let few = Rows::<f64>::weighted(&slices(&given[3..40]));
    let mut found = vec![0.0; n * n];
    let mut store = |row: usize, first: usize, sums: &[f64]| {
        found[row * n + first..][..sums.len()].copy_from_slice(sums);
    };
    walk(&both, &both, &mut store);
    assert_eq!(found, plain);
    found.fill(0.0);
    products(&both, &both, &mut |row, first, sums| {
        found[row * n + first..][..sums.len()].copy_from_slice(sums);
    });
    assert_eq!(found, plain);
    products(&few, &both, &mut |row, first, sums| {
        assert_eq!(*sums, plain[(row + 3) * n + first..][..sums.len()]);
    });
    #[cfg(target_arch = "x86_64")]
    if CpuVectors::widest() > CpuVectors::Baseline {
        found.fill(0.0);
        let mut store = |row: usize, first: usize, sums: &[f64]| {
            found[row * n + first..][..sums.len()].copy_from_slice(sums);
        };
        // SAFETY: the machine has at least AVX2.
        unsafe { walk_avx2(&both, &both, &mut store) };
        assert_eq!(found, plain);
    }
}

#[test]
fn listed_pairs_have_the_bits_of_the_tile() {
    let given: Vec<Vec<u32>> = words(&rows(60, 200, 4), true)
        .iter()
        .map(|row| row.iter().map(|&x| x as u32).collect())
        .collect();
    let half = given[0].len() / 2;
    let plain: Vec<Vec<u32>> = given.iter().map(|row| row[..half].to_vec()).collect();
    let tile = matrix(60, 60, |out| cosine(&slices(&given), &slices(&given), out));
    let sets = matrix(60, 60, |out| {
        jaccard::<f64>(&slices(&plain), &slices(&plain), out)
    });
    let all: Vec<(i64, i64)> = (0..3600).map(|at| (at / 60, at % 60)).collect();
    let (at_rows, at_columns): (Vec<i64>, Vec<i64>) = all.into_iter().unzip();
    let sides = slices(&given);
    let pairs = ListedPairs::new(&sides, &sides, &at_rows, &at_columns).unwrap();
    let mut found = vec![0.0; 3600];
    cosine_listed(pairs, &mut found);
    assert_eq!(found, tile);
    let sides = slices(&plain);
    let pairs = ListedPairs::new(&sides, &sides, &at_rows, &at_columns).unwrap();
    let mut found = vec![0.0; 3600];
    jaccard_listed(pairs, &mut found);
    assert_eq!(found, sets);
    for (at, score) in sets.iter().enumerate() {
        let (a, b) = (&plain[at / 60], &plain[at % 60]);
        let count = |row: &[u32]| row.iter().filter(|&&p| p != u32::MAX).count();
        let common = a
            .iter()
            .filter(|p| **p != u32::MAX && b.contains(p))
            .count();
        let either = count(a) + count(b) - common;
        let expected = (either - common) as f64 / either.max(1) as f64;
        assert_eq!(*score, expected);
    }
}

#[test]
#[should_panic(expected = "positions ascend")]
fn positions_that_do_not_ascend_are_refused() {
    let row: &[u32] = &[5, 5, 0, 0];
    cosine(&[row], &[row], &mut [&mut [0.0]]);
}

#[test]
fn empty_sides_are_no_trouble() {
    cosine::<u32>(&[], &[], &mut []);
    jaccard::<f32>(&[], &[&[u32::MAX]], &mut []);
}
