//! The steps of expectation-maximisation besides the product: costs of points in clusters, and their membership.
//!
//! Beside a product with few columns they are not small, so their loops are plain runs over chunks of rows that the
//! compiler turns into vectors. Values of one cluster repeat every k places; what belongs to clusters is therefore
//! written out for [`GROUP`] rows, so that a loop over a group needs no remainder and no inner loop.

use rayon::prelude::*;

use super::types::SMALL;
use crate::exponential::exponential;
use crate::sparse::dispatch::dispatch;

/// Rows whose sums are taken together; chunks are then added in order, whatever the number of threads.
/// CHUNK and GROUP, by judgement: fixed, so that bits do not depend on threads; enough chunks for all of them. `tartan
/// bench pwc` holds the time.
pub(super) const CHUNK: usize = 512;

/// Rows that are summed side by side. Divides CHUNK.
/// By judgement, see CHUNK.
pub(super) const GROUP: usize = 8;

/// A point with less than this share of a cluster's mass among its known pairs has no pair with it.
/// By arithmetic: rounding of sums of float64.
const NO_MASS: f64 = 1e-12;

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
pub struct ColumnCosts<'a> {
    /// Sum of memberships, C.
    pub sizes: &'a mut [f64],
    /// A: minus half the mean dissimilarity inside the cluster.
    pub inner: &'a mut [f64],
    /// Sum over points of |new cost - old cost|.
    pub change: &'a mut [f64],
}

/// Length of the scratch of [`costs`].
pub fn scratch_len(n: usize, k: usize) -> usize {
    (n.div_ceil(CHUNK) + 2) * GROUP * k
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
    costs: &mut ColumnCosts<'_>,
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
    let (sums, clusters) = scratch.split_at_mut(scratch.len() - 2 * GROUP * k);
    let (first, inner) = clusters.split_at_mut(GROUP * k);
    // Without a mass its place is taken by values that are not looked at.
    let (known, mass) = (mass.is_some(), mass.unwrap_or(product));
    let n_values = members.len();
    let rows = || members.par_chunks(CHUNK * k);

    each(
        n_values,
        sums.par_chunks_mut(GROUP * k).zip(rows()),
        |(sums, members)| add_up(members, sums),
    );
    total(sums, costs.sizes);
    for (at, value) in first.iter_mut().enumerate() {
        let size = costs.sizes[at % k];
        *value = if known { NO_MASS * size } else { scale / size };
    }
    let means = Means {
        first,
        scale,
        unknown,
    };
    let products = product
        .par_chunks(CHUNK * k)
        .zip(mass.par_chunks(CHUNK * k));
    let chunks = sums
        .par_chunks_mut(GROUP * k)
        .zip(products.clone().zip(rows()));
    each(n_values, chunks, |(sums, ((product, mass), members))| {
        if known {
            add_means::<true>(product, mass, members, means, sums);
        } else {
            add_means::<false>(product, mass, members, means, sums);
        }
    });
    total(sums, costs.inner);
    for (value, size) in costs.inner.iter_mut().zip(&*costs.sizes) {
        *value *= -0.5 / size;
    }
    for (at, value) in inner.iter_mut().enumerate() {
        *value = costs.inner[at % k];
    }
    let inner: &[f64] = inner;
    let chunks = sums
        .par_chunks_mut(GROUP * k)
        .zip(products.zip(eps.par_chunks_mut(CHUNK * k)));
    each(n_values, chunks, |(sums, ((product, mass), eps))| {
        if known {
            move_costs::<true>(product, mass, inner, means, eps, sums);
        } else {
            move_costs::<false>(product, mass, inner, means, eps, sums);
        }
    });
    total(sums, costs.change);
}

/// How products become mean dissimilarities B.
#[derive(Clone, Copy)]
struct Means<'a> {
    /// For the clusters of a group of rows: what products are multiplied with, or where pairs may be missing, the
    /// mass above which there is a known pair.
    first: &'a [f64],
    scale: f64,
    unknown: f64,
}

impl Means<'_> {
    /// B of the place `at` of a group.
    #[inline(always)]
    fn of<const KNOWN: bool>(&self, product: f64, mass: f64, first: f64) -> f64 {
        if !KNOWN {
            product * first
        } else if mass > first {
            self.scale * product / mass
        } else {
            self.unknown
        }
    }
}

/// Add the sums of chunks and of the rows of their groups, in order.
fn total(sums: &[f64], totals: &mut [f64]) {
    totals.fill(0.0);
    for row in sums.chunks_exact(totals.len()) {
        for (total, sum) in totals.iter_mut().zip(row) {
            *total += sum;
        }
    }
}

dispatch!(
    pub(super) add_up, add_up_avx512, add_up_avx2, add_up_chunk, [], [],
    (members: &[f64], sums: &mut [f64])
);

/// Sums of memberships.
#[inline(always)]
fn add_up_chunk(members: &[f64], sums: &mut [f64]) {
    sums.fill(0.0);
    for members in members.chunks(sums.len()) {
        for (sum, member) in sums.iter_mut().zip(members) {
            *sum += member;
        }
    }
}

dispatch!(
    add_means, add_means_avx512, add_means_avx2, add_means_chunk, [<const KNOWN: bool>], [::<KNOWN>],
    (product: &[f64], mass: &[f64], members: &[f64], means: Means<'_>, sums: &mut [f64])
);

/// Sums of B times membership.
#[inline(always)]
fn add_means_chunk<const KNOWN: bool>(
    product: &[f64],
    mass: &[f64],
    members: &[f64],
    means: Means<'_>,
    sums: &mut [f64],
) {
    sums.fill(0.0);
    let group = sums.len();
    let products = product.chunks(group).zip(mass.chunks(group));
    for ((product, mass), members) in products.zip(members.chunks(group)) {
        let values = product.iter().zip(mass).zip(means.first).zip(members);
        for (sum, (((product, mass), first), member)) in sums.iter_mut().zip(values) {
            *sum += means.of::<KNOWN>(*product, *mass, *first) * member;
        }
    }
}

dispatch!(
    move_costs, move_costs_avx512, move_costs_avx2, move_costs_chunk, [<const KNOWN: bool>], [::<KNOWN>],
    (product: &[f64], mass: &[f64], inner: &[f64], means: Means<'_>, eps: &mut [f64], sums: &mut [f64])
);

/// New costs, and the sums of how far they moved.
#[inline(always)]
fn move_costs_chunk<const KNOWN: bool>(
    product: &[f64],
    mass: &[f64],
    inner: &[f64],
    means: Means<'_>,
    eps: &mut [f64],
    sums: &mut [f64],
) {
    sums.fill(0.0);
    let group = sums.len();
    let products = product.chunks(group).zip(mass.chunks(group));
    for ((product, mass), eps) in products.zip(eps.chunks_mut(group)) {
        let values = product.iter().zip(mass).zip(means.first).zip(inner);
        for ((sum, eps), (((product, mass), first), inner)) in sums.iter_mut().zip(eps).zip(values)
        {
            let new = means.of::<KNOWN>(*product, *mass, *first) + inner;
            *sum += (new - *eps).abs();
            *eps = new;
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
    let weights = Weights {
        prior,
        copies,
        width,
        cold: 1.0 / temperature,
    };
    let chunks = members
        .par_chunks_mut(CHUNK * k)
        .zip(eps.par_chunks(CHUNK * k));
    each(eps.len(), chunks, |(members, eps)| {
        share(eps, weights, members);
    });
}

/// How costs become memberships.
#[derive(Clone, Copy)]
struct Weights<'a> {
    prior: &'a [f64],
    copies: &'a [f64],
    width: usize,
    /// 1 / T
    cold: f64,
}

dispatch!(
    share, share_avx512, share_avx2, share_chunk, [], [],
    (eps: &[f64], weights: Weights<'_>, members: &mut [f64])
);

/// Memberships of a chunk. Exponentials of all its points are one loop: the costs of a point are too few for vectors.
#[inline(always)]
fn share_chunk(eps: &[f64], weights: Weights<'_>, members: &mut [f64]) {
    let Weights { width, cold, .. } = weights;
    for (eps, members) in eps.chunks_exact(width).zip(members.chunks_exact_mut(width)) {
        let least = eps
            .iter()
            .fold(f64::INFINITY, |a, &b| if b < a { b } else { a });
        for (eps, member) in eps.iter().zip(members) {
            *member = (least - eps) * cold;
        }
    }
    for member in &mut *members {
        *member = exponential(*member);
    }
    let problems = weights
        .prior
        .chunks_exact(width)
        .zip(weights.copies.chunks_exact(width))
        .cycle();
    for (members, (prior, copies)) in members.chunks_exact_mut(width).zip(problems) {
        let mut sum = 0.0;
        for ((member, prior), copies) in members.iter_mut().zip(prior).zip(copies) {
            *member *= prior;
            sum += copies * *member;
        }
        if sum > 0.0 {
            let inverse = 1.0 / sum;
            members.iter_mut().for_each(|member| *member *= inverse);
        } else {
            let total: f64 = copies.iter().sum();
            members.fill(1.0 / total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums, costs and memberships by the vectors of this machine, or by the baseline.
    fn found(by_vectors: bool) -> Vec<f64> {
        let (n, k) = (101, 5);
        let values = |factor: f64| -> Vec<f64> {
            (0..n * k)
                .map(|at| 0.01 + (at as f64 * factor).sin().abs())
                .collect()
        };
        let (product, mass, members) = (values(0.7), values(1.3), values(2.1));
        let (first, inner) = (&values(0.3)[..GROUP * k], &values(0.9)[..GROUP * k]);
        let (scale, unknown) = (0.5, 3.0);
        let means = Means {
            first,
            scale,
            unknown,
        };
        let weights = Weights {
            prior: &inner[..k],
            copies: &first[..k],
            width: k,
            cold: 20.0,
        };
        let (mut sums, mut change) = (vec![0.0; GROUP * k], vec![0.0; GROUP * k]);
        let (mut eps, mut shares) = (values(1.9), vec![0.0; n * k]);
        if by_vectors {
            add_means::<true>(&product, &mass, &members, means, &mut sums);
            move_costs::<true>(&product, &mass, inner, means, &mut eps, &mut change);
            share(&eps, weights, &mut shares);
        } else {
            add_means_chunk::<true>(&product, &mass, &members, means, &mut sums);
            move_costs_chunk::<true>(&product, &mass, inner, means, &mut eps, &mut change);
            share_chunk(&eps, weights, &mut shares);
        }
        [sums, change, eps, shares].concat()
    }

    #[test]
    fn vectors_give_the_bits_of_the_baseline() {
        assert_eq!(found(true), found(false));
    }
}
