//! The steps of expectation-maximisation besides the product: costs of points in clusters, and their membership.

use rayon::prelude::*;

use super::SMALL;

/// Rows whose sums are taken together; chunks are then added in order, whatever the number of threads.
const CHUNK: usize = 512;

/// Do chunks of rows side by side, or one after the other where there are few values.
fn each<I: IndexedParallelIterator>(
    n_values: usize,
    chunks: I,
    work: impl Fn(I::Item) + Send + Sync,
) {
    let together = if n_values < SMALL { usize::MAX } else { 1 };
    chunks.with_min_len(together).for_each(work);
}

/// What [`costs`] writes for each column, k values each.
pub struct Costs<'a> {
    /// Sum of memberships, C.
    pub sizes: &'a mut [f64],
    /// A: minus half the mean dissimilarity inside the cluster.
    pub inner: &'a mut [f64],
    /// Sum over points of |new cost - old cost|.
    pub change: &'a mut [f64],
}

/// Length of the scratch of [`costs`].
pub fn scratch_len(n: usize, k: usize) -> usize {
    n.div_ceil(CHUNK) * 2 * k
}

/// Turn products into costs `eps[a][k] = B + A`, in place over the old costs.
///
/// `product` is the n x k product of the dissimilarities and the `members`; `mass` the mass of known pairs, or None
/// where all are known. Stored values times `scale` are dissimilarities. Where a point has no known pair in a
/// cluster, B is `unknown`.
#[allow(clippy::too_many_arguments)] // the state of one step: five matrices and what is written
pub fn costs(
    product: &[f64],
    mass: Option<&[f64]>,
    members: &[f64],
    scale: f64,
    unknown: f64,
    eps: &mut [f64],
    costs: &mut Costs<'_>,
    scratch: &mut [f64],
) {
    let k = costs.sizes.len();
    assert!(
        k > 0 && costs.inner.len() == k && costs.change.len() == k,
        "sizes, inner and change must be of one length"
    );
    assert!(
        product.len() == members.len() && product.len() == eps.len() && eps.len().is_multiple_of(k),
        "product, members and eps must be n x k"
    );
    assert!(
        mass.is_none_or(|mass| mass.len() == product.len()),
        "mass must be n x k"
    );
    assert!(
        scratch.len() == scratch_len(eps.len() / k, k),
        "scratch has another length"
    );
    sizes(members, costs.sizes, scratch);
    let sizes: &[f64] = costs.sizes;
    let mean = |at: usize, c: usize| match mass {
        None => scale * product[at] / sizes[c],
        Some(mass) if mass[at] > 1e-12 * sizes[c] => scale * product[at] / mass[at],
        Some(_) => unknown,
    };
    let n_values = members.len();
    let chunks = scratch
        .par_chunks_mut(2 * k)
        .zip(members.par_chunks(CHUNK * k))
        .enumerate();
    each(n_values, chunks, |(chunk, (sums, members))| {
        sums.fill(0.0);
        for (row, members) in members.chunks_exact(k).enumerate() {
            let from = (chunk * CHUNK + row) * k;
            for (c, member) in members.iter().enumerate() {
                sums[c] += mean(from + c, c) * member;
            }
        }
    });
    total(scratch, costs.inner);
    for (inner, size) in costs.inner.iter_mut().zip(sizes) {
        *inner *= -0.5 / size;
    }
    let inner: &[f64] = costs.inner;
    let chunks = eps
        .par_chunks_mut(CHUNK * k)
        .zip(scratch.par_chunks_mut(2 * k))
        .enumerate();
    each(n_values, chunks, |(chunk, (eps, sums))| {
        sums.fill(0.0);
        for (row, eps) in eps.chunks_exact_mut(k).enumerate() {
            for (c, eps) in eps.iter_mut().enumerate() {
                let new = mean((chunk * CHUNK + row) * k + c, c) + inner[c];
                sums[c] += (new - *eps).abs();
                *eps = new;
            }
        }
    });
    total(scratch, costs.change);
}

/// Sums of the columns of an n x k matrix.
fn sizes(members: &[f64], sizes: &mut [f64], scratch: &mut [f64]) {
    let k = sizes.len();
    let chunks = scratch
        .par_chunks_mut(2 * k)
        .zip(members.par_chunks(CHUNK * k));
    each(members.len(), chunks, |(sums, members)| {
        sums.fill(0.0);
        for row in members.chunks_exact(k) {
            for (sum, member) in sums.iter_mut().zip(row) {
                *sum += member;
            }
        }
    });
    total(scratch, sizes);
}

/// Add the chunks' sums in order.
fn total(scratch: &[f64], totals: &mut [f64]) {
    totals.fill(0.0);
    for sums in scratch.chunks_exact(2 * totals.len()) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total += sum;
        }
    }
}

/// Write memberships: `members[a][k] = prior[k] exp(-eps[a][k] / T) / sum of copies * prior * exp(..)`.
///
/// Columns belong to problems of `width` columns each; memberships of a point sum to 1 (counting copies) in each
/// problem. A problem whose weights all vanish gets equal memberships.
pub fn assign(
    eps: &[f64],
    prior: &[f64],
    copies: &[f64],
    width: usize,
    temperature: f64,
    members: &mut [f64],
) {
    let k = prior.len();
    assert!(
        width > 0 && k.is_multiple_of(width) && copies.len() == k,
        "columns must be whole problems"
    );
    assert!(
        eps.len() == members.len() && eps.len().is_multiple_of(k),
        "eps and members must be n x k"
    );
    let chunks = members
        .par_chunks_mut(CHUNK * k)
        .zip(eps.par_chunks(CHUNK * k));
    each(eps.len(), chunks, |(members, eps)| {
        let rows = members.chunks_exact_mut(width).zip(eps.chunks_exact(width));
        for (at, (members, eps)) in rows.enumerate() {
            let from = at * width % k;
            let (prior, copies) = (&prior[from..from + width], &copies[from..from + width]);
            share(eps, prior, copies, temperature, members);
        }
    });
}

fn share(eps: &[f64], prior: &[f64], copies: &[f64], temperature: f64, members: &mut [f64]) {
    let least = eps.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sum = 0.0;
    for (c, member) in members.iter_mut().enumerate() {
        *member = prior[c] * ((least - eps[c]) / temperature).exp();
        sum += copies[c] * *member;
    }
    if sum > 0.0 {
        members.iter_mut().for_each(|member| *member /= sum);
    } else {
        let total: f64 = copies.iter().sum();
        members.fill(1.0 / total);
    }
}
