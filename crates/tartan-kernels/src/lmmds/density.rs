//! How often a dissimilarity and a distance of the map come together: a two-dimensional histogram.

use rayon::prelude::*;

use super::load::{self, Stored};
use super::types::{check, with_dimension, MatrixRows, Objective, Points};

/// A grid of counts: dissimilarity down, distance of the map across.
pub struct Histogram<'a> {
    /// Counts, row after row; what lies beyond the grid is not counted.
    pub counts: &'a mut [i64],
    /// Cells across.
    pub columns: usize,
    /// Dissimilarity and distance where the grid ends; it begins at 0.
    pub ends: [f64; 2],
}

/// Add the pairs of some rows to a histogram of (delta, |dx|).
pub fn density<T: Stored>(
    objective: &Objective,
    rows: MatrixRows<'_, T>,
    points: Points<'_>,
    out: &mut Histogram<'_>,
) {
    let (n, dimension) = (points.len(), points.dimension());
    check(objective, &rows, n);
    let n_cells = out.counts.len();
    assert!(out.columns > 0 && n_cells.is_multiple_of(out.columns));
    let lines = n_cells / out.columns;
    let per = [lines as f64 / out.ends[0], out.columns as f64 / out.ends[1]];
    let columns = out.columns;
    let even = objective.evenly();
    let jobs = rows.values.par_chunks_exact(n).enumerate();
    let counted = jobs.fold(
        || vec![0_i64; n_cells],
        |mut counts, (r, values)| {
            let i = rows.items[r] as usize;
            if points.weights[i] <= 0.0 {
                return counts;
            }
            with_dimension!(dimension, L, {
                let x = Points::coordinates::<L>(points.columns, n);
                load::walk(&even, values, points.weights, i, |start, pairs| {
                    let found = pairs.delta.iter().zip(pairs.weight).enumerate();
                    for (k, (&delta, _)) in found.filter(|(_, (_, &weight))| weight > 0.0) {
                        let distance = distance(&x, i, start + k);
                        let cell = [(delta * per[0]) as usize, (distance * per[1]) as usize];
                        if cell[0] < lines && cell[1] < columns {
                            counts[cell[0] * columns + cell[1]] += 1;
                        }
                    }
                });
            });
            counts
        },
    );
    // Whole numbers: the order in which threads are added does not matter.
    let counted = counted.reduce(
        || vec![0; n_cells],
        |mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        },
    );
    out.counts
        .iter_mut()
        .zip(counted)
        .for_each(|(out, count)| *out += count);
}

fn distance<const L: usize>(x: &[&[f64]; L], i: usize, j: usize) -> f64 {
    let squares = x.iter().map(|column| (column[i] - column[j]).powi(2));
    squares.sum::<f64>().sqrt()
}
