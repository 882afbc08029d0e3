//! Maps as nonlinear least squares: chi2, gradient, diagonal blocks and Hessian products, by passes over row blocks.
//!
//! chi2 is the sum over ordered pairs of `W (delta - D)^2`, where `D` is the distance of two points of the map
//! ([`Modelled`]) and the weight `W = p_i p_j G(delta)` is made from the dissimilarity ([`Objective`]). All results are
//! half derivatives: `chi2(x - s) = chi2(x) - 2 s.g + s.H s` to second order. A pair counts twice, once from either row.
//!
//! A call takes some rows of the symmetric matrix with all their columns and fills one output row for each. A row is
//! summed over columns in a fixed order by one thread, so that results are the same for any split into blocks, ranks
//! and threads. Terms and sums are f64. Nothing of size n x n is made: a row is treated [`CHUNK`] columns at a time,
//! first dissimilarities and weights, then what depends on the map. Rows are shared out among rayon's threads.
//!
//! Missing pairs (negative int16, NaN), the diagonal, pairs beyond the cut and pairs with a weightless point have
//! weight zero. All functions panic when lengths disagree.

use rayon::prelude::*;

mod density;
mod load;
mod sums;
#[cfg(test)]
mod tests;
mod types;

pub use density::{density, Histogram};
pub use load::{Stored, Swapped};
pub use types::{MatrixRows, Modelled, Objective, Points, CHUNK, MAX_DIMENSION};

use types::{check, with_dimension};

/// What `derivatives` fills, one row for each row of the block.
pub struct Derivatives<'a> {
    /// chi2 of the pairs of a row, and the part of it that is due to marked columns: 2 numbers a row.
    pub chisq: &'a mut [f64],
    /// Half gradient: L numbers a row.
    pub gradient: &'a mut [f64],
    /// Half Hessian, diagonal block: L x L numbers a row.
    pub blocks: &'a mut [f64],
}

/// Fill chi2, half gradient and diagonal blocks of the half Hessian for some rows.
///
/// `marked` is 1 for columns whose share of chi2 is wanted apart, else 0.
pub fn derivatives<T: Stored>(
    objective: &Objective,
    rows: MatrixRows<'_, T>,
    points: Points<'_>,
    marked: &[f64],
    out: Derivatives<'_>,
) {
    let (n, dimension) = (points.len(), points.dimension());
    check(objective, &rows, n);
    assert_eq!(marked.len(), n);
    let n_rows = rows.values.len() / n;
    assert_eq!(out.chisq.len(), 2 * n_rows);
    assert_eq!(out.gradient.len(), dimension * n_rows);
    assert_eq!(out.blocks.len(), dimension * dimension * n_rows);
    let jobs = rows
        .values
        .par_chunks_exact(n)
        .zip(out.chisq.par_chunks_exact_mut(2))
        .zip(out.gradient.par_chunks_exact_mut(dimension))
        .zip(out.blocks.par_chunks_exact_mut(dimension * dimension));
    jobs.enumerate()
        .for_each(|(r, (((values, chisq), gradient), blocks))| {
            let i = rows.items[r] as usize;
            with_dimension!(dimension, L, {
                let x = Points::coordinates::<L>(points.columns, n);
                let mut sums = sums::Derived::<L>::new(objective, &x, i);
                load::walk(objective, values, points.weights, i, |start, pairs| {
                    sums.add(start, pairs, &marked[start..start + pairs.len()]);
                });
                sums.store(points.weights[i], chisq, gradient, blocks);
            });
        });
}

/// Fill the product of the half Hessian with a vector (laid out as the coordinates are) for some rows.
pub fn product<T: Stored>(
    objective: &Objective,
    rows: MatrixRows<'_, T>,
    points: Points<'_>,
    vector: &[f64],
    out: &mut [f64],
) {
    let (n, dimension) = (points.len(), points.dimension());
    check(objective, &rows, n);
    assert_eq!(vector.len(), points.columns.len());
    assert_eq!(out.len(), dimension * (rows.values.len() / n));
    let jobs = rows
        .values
        .par_chunks_exact(n)
        .zip(out.par_chunks_exact_mut(dimension));
    jobs.enumerate().for_each(|(r, (values, place))| {
        let i = rows.items[r] as usize;
        with_dimension!(dimension, L, {
            let x = Points::coordinates::<L>(points.columns, n);
            let v = Points::coordinates::<L>(vector, n);
            let mut sums = sums::HessianProduct::<L>::new(objective, &x, &v, i);
            load::walk(objective, values, points.weights, i, |start, pairs| {
                sums.add(start, pairs);
            });
            sums.store(points.weights[i], place);
        });
    });
}

/// What `survey` fills, one row for each row of the block.
pub struct Survey<'a> {
    /// Sum, smallest positive and largest of the dissimilarities that count: 3 numbers a row (0, inf, 0 of none).
    pub numbers: &'a mut [f64],
    /// How many pairs count, by bin: one more than limits numbers a row.
    pub counts: &'a mut [i64],
}

/// Fill what the pairs of some rows are like: those that are present, within the cut and between points with weight.
pub fn survey<T: Stored>(
    objective: &Objective,
    rows: MatrixRows<'_, T>,
    weights: &[f64],
    out: Survey<'_>,
) {
    let n = weights.len();
    check(objective, &rows, n);
    let n_bins = objective.limits.len() + 1;
    assert_eq!(out.numbers.len(), 3 * (rows.values.len() / n));
    assert_eq!(out.counts.len(), n_bins * (rows.values.len() / n));
    let even = objective.evenly();
    let jobs = rows
        .values
        .par_chunks_exact(n)
        .zip(out.numbers.par_chunks_exact_mut(3))
        .zip(out.counts.par_chunks_exact_mut(n_bins));
    jobs.enumerate()
        .for_each(|(r, ((values, numbers), counts))| {
            let i = rows.items[r] as usize;
            numbers.copy_from_slice(&[0.0, f64::INFINITY, 0.0]);
            counts.fill(0);
            if weights[i] > 0.0 {
                load::walk(&even, values, weights, i, |_, pairs| {
                    note(&even.limits, pairs, numbers, counts);
                });
            }
        });
}

fn note(limits: &[f64], pairs: load::ColumnPairs<'_>, numbers: &mut [f64], counts: &mut [i64]) {
    for (&delta, &weight) in pairs.delta.iter().zip(pairs.weight) {
        if weight > 0.0 {
            numbers[0] += delta;
            numbers[1] = numbers[1].min(if delta > 0.0 { delta } else { f64::INFINITY });
            numbers[2] = numbers[2].max(delta);
            counts[limits.iter().filter(|&&limit| delta >= limit).count()] += 1;
        }
    }
}
