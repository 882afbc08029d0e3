//! The level from which dissimilarities are measured: finding it, and taking it off products.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::block::Stored;
use super::steps::{add_up, CHUNK, GROUP};
use super::types::{Real, SMALL};
use crate::sparse::dispatch::dispatch;

/// Values that are looked at side by side.
/// By arithmetic: four vectors of 16 float32.
const LANES: usize = 64;

/// The pairs below the level, as a sparse matrix.
#[derive(Clone, Copy)]
pub struct Below<'a> {
    /// Where the pairs of each row begin, and the number of pairs.
    pub starts: &'a [i32],
    pub columns: &'a [i32],
    /// The level minus the value.
    pub gaps: &'a [f64],
}

/// Turn products of stored values and `members` (n x k) into those of values measured from `level`: less by it off
/// the diagonal, and 0 where they would be negative.
///
/// `mass` is that of known pairs, or None where all are known. Panics when lengths disagree.
pub fn measure(
    products: &mut [f64],
    mass: Option<&[f64]>,
    members: &[f64],
    k: usize,
    level: f64,
    below: Below<'_>,
) {
    assert!(
        k > 0 && members.len().is_multiple_of(k) && products.len() == members.len(),
        "products and members must be n x k"
    );
    let n = members.len() / k;
    assert!(
        mass.is_none_or(|mass| mass.len() == products.len()),
        "mass must be n x k"
    );
    assert!(
        below.starts.len() == n + 1 && below.columns.len() == below.gaps.len(),
        "below must be n x n"
    );
    let together = if members.len() < SMALL { usize::MAX } else { 1 };
    let sizes = sums(members, k, together);
    let chunks = products.par_chunks_mut(CHUNK * k).with_min_len(together);
    chunks.enumerate().for_each(|(chunk, products)| {
        let first = chunk * CHUNK;
        let own = &members[first * k..][..products.len()];
        let mass = mass.map(|mass| &mass[first * k..][..products.len()]);
        for (at, own) in own.chunks(GROUP * k).enumerate() {
            let places = at * GROUP * k..at * GROUP * k + own.len();
            let known = mass.map_or(&sizes[..own.len()], |mass| &mass[places.clone()]);
            take_off(&mut products[places], known, own, level);
        }
        for (at, products) in products.chunks_exact_mut(k).enumerate() {
            let pairs = below.starts[first + at] as usize..below.starts[first + at + 1] as usize;
            let pairs = below.columns[pairs.clone()].iter().zip(&below.gaps[pairs]);
            for (column, gap) in pairs {
                let others = &members[*column as usize * k..][..k];
                for (product, other) in products.iter_mut().zip(others) {
                    *product += gap * other;
                }
            }
        }
    });
}

dispatch!(
    take_off, take_off_avx512, take_off_avx2, take_off_rows, [], [],
    (products: &mut [f64], known: &[f64], own: &[f64], level: f64)
);

/// Take the level off products, for what is known but the item itself.
#[inline(always)]
fn take_off_rows(products: &mut [f64], known: &[f64], own: &[f64], level: f64) {
    for ((product, known), own) in products.iter_mut().zip(known).zip(own) {
        *product -= level * (known - own);
    }
}

/// The sum of each column, for `GROUP` rows one after the other.
fn sums(members: &[f64], k: usize, together: usize) -> Vec<f64> {
    let chunks = members.par_chunks(CHUNK * k).with_min_len(together);
    let of_chunks: Vec<Vec<f64>> = chunks
        .map(|rows| {
            let mut sums = vec![0.0; GROUP * k];
            add_up(rows, &mut sums);
            sums
        })
        .collect();
    let mut sums = vec![0.0; k];
    for row in of_chunks.iter().flat_map(|chunk| chunk.chunks_exact(k)) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
    sums.repeat(GROUP)
}

/// Write the least known value of each row off the diagonal, infinity where there is none. `rows` are those of the
/// items from `first` on. Panics when lengths disagree.
pub fn nearest<T: Stored>(rows: &[T], n: usize, first: usize, least: &mut [f64]) {
    assert!(
        n > 0 && rows.len() == n * least.len() && first + least.len() <= n,
        "rows are not r x n"
    );
    let rows = rows.par_chunks(n).zip(least.par_iter_mut());
    rows.enumerate().for_each(|(at, (row, least))| {
        *least = f64::INFINITY;
        lowest(&row[..first + at], least);
        lowest(&row[first + at + 1..], least);
    });
}

dispatch!(
    lowest, lowest_avx512, lowest_avx2, lowest_value, [<T: Stored>], [::<T>], (values: &[T], least: &mut f64)
);

#[inline(always)]
fn lowest_value<T: Stored>(values: &[T], least: &mut f64) {
    let mut lanes = [T::Real::of(f64::INFINITY); LANES];
    for values in values.chunks(LANES) {
        for (lane, value) in lanes.iter_mut().zip(values) {
            let known = value.is_known();
            let value = value.value();
            *lane = if known & (value < *lane) {
                value
            } else {
                *lane
            };
        }
    }
    for lane in lanes {
        *least = least.min(lane.wide());
    }
}

/// The pairs of each row whose values are known and below `limit`, as columns and values, without the diagonal; None
/// where there are more than `most`. `rows` are those of the items from `first` on.
pub fn below<T: Stored>(
    rows: &[T],
    n: usize,
    first: usize,
    limit: f64,
    most: usize,
) -> Option<Vec<Vec<(usize, f64)>>> {
    assert!(
        n > 0 && rows.len().is_multiple_of(n) && first + rows.len() / n <= n,
        "rows are not r x n"
    );
    let n_found = AtomicUsize::new(0);
    let one_row = |(at, row): (usize, &[T])| {
        let mut found = Vec::new();
        for (number, values) in row.chunks(LANES).enumerate() {
            let mut any = false;
            some_below(values, limit, &mut any);
            if any {
                let pairs = values.iter().enumerate().map(|(lane, value)| {
                    (
                        number * LANES + lane,
                        value.is_known(),
                        value.value().wide(),
                    )
                });
                let below = pairs.filter(|&(column, known, value)| {
                    known && value < limit && column != first + at
                });
                found.extend(below.map(|(column, _, value)| (column, value)));
            }
        }
        let before = n_found.fetch_add(found.len(), Ordering::Relaxed);
        (before + found.len() <= most).then_some(found)
    };
    rows.par_chunks(n).enumerate().map(one_row).collect()
}

dispatch!(
    some_below, some_below_avx512, some_below_avx2, some_value_below,
    [<T: Stored>], [::<T>], (values: &[T], limit: f64, any: &mut bool)
);

/// Whether one of few values may be known and below a limit.
#[inline(always)]
fn some_value_below<T: Stored>(values: &[T], limit: f64, any: &mut bool) {
    *any = values.iter().fold(false, |any, value| {
        any | (value.is_known() & (value.value().wide() < limit))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a symmetric matrix, some missing, and a few copies.
    fn matrix(n: usize) -> Vec<f32> {
        let value = |i: usize, j: usize| match (i.min(j), i.max(j)) {
            (i, j) if i == j => 0.0,
            (i, j) if (i + j) % 11 == 0 => f32::NAN,
            (i, j) => ((i * 37 + j * 17) % 101) as f32 / 100.0,
        };
        (0..n * n).map(|at| value(at / n, at % n)).collect()
    }

    #[test]
    fn the_nearest_of_each_row_is_known_and_another() {
        for n in [1, 2, 63, 64, 130, 201] {
            let values = matrix(n);
            for first in [0, n / 2] {
                let rows = &values[first * n..];
                let mut found = vec![0.0; n - first];
                nearest(rows, n, first, &mut found);
                for (at, found) in found.iter().enumerate() {
                    let others = rows[at * n..(at + 1) * n].iter().enumerate();
                    let known = others.filter(|(j, v)| *j != first + at && !v.is_nan());
                    let expected = known.fold(f64::INFINITY, |a, (_, v)| a.min(f64::from(*v)));
                    assert_eq!(*found, expected);
                }
            }
        }
    }

    #[test]
    fn missing_integers_are_not_near() {
        let values: [i16; 9] = [0, -1, 7, -1, 0, -1, 7, -1, 0];
        let mut found = [0.0; 3];
        nearest(&values, 3, 0, &mut found);
        assert_eq!(found, [7.0, f64::INFINITY, 7.0]);
        let pairs = below(&values, 3, 0, 8.0, 2).expect("no more than two");
        assert_eq!(pairs, [vec![(2, 7.0)], vec![], vec![(0, 7.0)]]);
    }

    #[test]
    fn more_pairs_below_than_wanted_are_none() {
        let values = matrix(70);
        let all = below(&values, 70, 0, 0.2, usize::MAX).expect("any number");
        let n_below = all.iter().map(Vec::len).sum::<usize>();
        assert!(n_below > 0 && below(&values, 70, 0, 0.2, n_below).is_some());
        assert!(below(&values, 70, 0, 0.2, n_below - 1).is_none());
    }

    #[test]
    fn products_are_those_of_measured_values() {
        for (n, k) in [(1, 1), (9, 3), (70, 5), (1100, 32)] {
            let (values, level) = (matrix(n), 0.2);
            let members: Vec<f64> = (0..n * k).map(|at| (at as f64 * 0.7).sin().abs()).collect();
            let pairs = below(&values, n, 0, level, usize::MAX).expect("any number");
            let (mut starts, mut columns, mut gaps) = (vec![0], vec![], vec![]);
            for (column, value) in pairs
                .iter()
                .inspect(|row| starts.push(starts[starts.len() - 1] + row.len() as i32))
                .flatten()
            {
                columns.push(*column as i32);
                gaps.push(level - value);
            }
            let known = |i: usize, j: usize| !values[i * n + j].is_nan();
            let value = |i: usize, j: usize| f64::from(values[i * n + j]);
            let sum = |i: usize, c: usize, of: &dyn Fn(usize, usize) -> f64| -> f64 {
                (0..n)
                    .filter(|&j| known(i, j))
                    .map(|j| of(i, j) * members[j * k + c])
                    .sum()
            };
            let places = || (0..n * k).map(|at| (at / k, at % k));
            let mass: Vec<f64> = places().map(|(i, c)| sum(i, c, &|_, _| 1.0)).collect();
            let mut found: Vec<f64> = places().map(|(i, c)| sum(i, c, &value)).collect();
            let below = Below {
                starts: &starts,
                columns: &columns,
                gaps: &gaps,
            };
            measure(&mut found, Some(&mass), &members, k, level, below);
            let off = |i: usize, j: usize| {
                if i == j {
                    0.0
                } else {
                    (value(i, j) - level).max(0.0)
                }
            };
            for ((i, c), found) in places().zip(&found).step_by(7) {
                assert!((sum(i, c, &off) - found).abs() < 1e-9);
            }
        }
    }
}
