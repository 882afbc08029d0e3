//! Moving single items between clusters, the hot loop of the local search over hard clusterings.

use rayon::prelude::*;

use super::block::Stored;
use super::types::Real;
use crate::sparse::dispatch::dispatch;

/// A square matrix as it is stored, and what its values mean: `max(scale * stored - level, 0)` off the diagonal.
#[derive(Clone, Copy)]
pub struct Measured<'a, T> {
    pub stored: &'a [T],
    pub n: usize,
    pub scale: f64,
    pub level: f64,
}

/// Items in k clusters, and what moves need.
pub struct Partition<'a> {
    /// Cluster of each item.
    pub labels: &'a mut [i64],
    /// Sums of dissimilarities of the n items to the items of each cluster, k x n.
    pub to_clusters: &'a mut [f64],
    /// Items of each cluster.
    pub sizes: &'a mut [f64],
    /// Sum of all dissimilarities within each cluster.
    pub within: &'a mut [f64],
}

impl<T: Stored> Measured<'_, T> {
    /// Compute all sums of a division from its labels.
    ///
    /// # Panics
    /// If lengths disagree, or a label is not one of the clusters; as the other functions.
    pub fn sum_up(&self, division: &mut Partition<'_>) {
        self.check(division);
        division.to_clusters.fill(0.0);
        division.sizes.fill(0.0);
        division.within.fill(0.0);
        for item in 0..self.n {
            let own = division.labels[item] as usize;
            division.sizes[own] += 1.0;
            self.add(item, 1.0, division.cluster(own));
        }
        for item in 0..self.n {
            let own = division.labels[item] as usize;
            division.within[own] += division.to_clusters[own * self.n + item];
        }
    }

    /// Move some items to a cluster.
    pub fn relabel(&self, division: &mut Partition<'_>, items: &[i64], to: usize) {
        self.check(division);
        for item in items {
            let item = *item as usize;
            assert!(
                item < self.n && to < division.sizes.len(),
                "there is no such item or cluster"
            );
            if division.labels[item] as usize != to {
                self.move_item(division, item, to);
            }
        }
    }

    /// Move each item that gains more than `least` by it, one after the other, to where it gains most; return how many
    /// have moved. The last item of a cluster stays.
    pub fn sweep(&self, division: &mut Partition<'_>, least: f64) -> usize {
        self.check(division);
        let moves = |division: &Partition, item| division.best_move(item).1 > least;
        let items: Vec<usize> = (0..self.n).filter(|item| moves(division, *item)).collect();
        let mut n_moved = 0;
        for item in items {
            let (to, gain) = division.best_move(item);
            if gain > least {
                self.move_item(division, item, to);
                n_moved += 1;
            }
        }
        n_moved
    }

    /// Write the values of the pairs of some items, row by row.
    pub fn among(&self, items: &[i64], values: &mut [f64]) {
        let m = items.len();
        assert!(
            self.stored.len() == self.n * self.n && values.len() == m * m,
            "values must be those of all pairs"
        );
        let rows = values.par_chunks_mut(m.max(1)).zip(items);
        rows.for_each(|(values, item)| {
            let row = &self.stored[*item as usize * self.n..][..self.n];
            for (value, other) in values.iter_mut().zip(items) {
                let found = self.scale * row[*other as usize].value().wide() - self.level;
                *value = if found > 0.0 && other != item {
                    found
                } else {
                    0.0
                };
            }
        });
    }

    fn check(&self, division: &Partition<'_>) {
        let (n, k) = (self.n, division.sizes.len());
        assert!(self.stored.len() == n * n, "the matrix must be n x n");
        assert!(
            division.labels.len() == n
                && division.to_clusters.len() == k * n
                && division.within.len() == k,
            "sums must be those of n items in k clusters"
        );
        let known = |label: &i64| (0..k as i64).contains(label);
        assert!(
            division.labels.iter().all(known),
            "a label is not one of the clusters"
        );
    }

    fn move_item(&self, division: &mut Partition<'_>, item: usize, to: usize) {
        let old = division.labels[item] as usize;
        let sums = [old, to].map(|cluster| division.to_clusters[cluster * self.n + item]);
        division.within[old] -= 2.0 * sums[0];
        division.within[to] += 2.0 * sums[1];
        division.sizes[old] -= 1.0;
        division.sizes[to] += 1.0;
        self.add(item, -1.0, division.cluster(old));
        self.add(item, 1.0, division.cluster(to));
        division.labels[item] = to as i64;
    }

    /// Add an item's dissimilarities to the sums of a cluster, or take them off.
    fn add(&self, item: usize, sign: f64, sums: &mut [f64]) {
        let row = &self.stored[item * self.n..(item + 1) * self.n];
        let (before, after) = sums.split_at_mut(item);
        add(&row[..item], self.scale, self.level, sign, before);
        add(
            &row[item + 1..],
            self.scale,
            self.level,
            sign,
            &mut after[1..],
        );
    }
}

impl Partition<'_> {
    fn cluster(&mut self, which: usize) -> &mut [f64] {
        let n = self.labels.len();
        &mut self.to_clusters[which * n..(which + 1) * n]
    }

    /// The cluster that it lowers the cost most to move an item to, and by how much; minus infinity where it must stay.
    fn best_move(&self, item: usize) -> (usize, f64) {
        let (n, old) = (self.labels.len(), self.labels[item] as usize);
        let mut best = (old, f64::NEG_INFINITY);
        if self.sizes[old] <= 1.0 {
            return best;
        }
        let (size, within) = (self.sizes[old], self.within[old]);
        let left = within / size - (within - 2.0 * self.to_clusters[old * n + item]) / (size - 1.0);
        for (to, (size, within)) in self.sizes.iter().zip(&*self.within).enumerate() {
            let before = if *size > 0.0 { within / size } else { 0.0 };
            let gain =
                left + before - (within + 2.0 * self.to_clusters[to * n + item]) / (size + 1.0);
            if to != old && gain > best.1 {
                best = (to, gain);
            }
        }
        best
    }
}

dispatch!(
    add, add_avx512, add_avx2, add_values, [<T: Stored>], [::<T>],
    (row: &[T], scale: f64, level: f64, sign: f64, sums: &mut [f64])
);

#[inline(always)]
fn add_values<T: Stored>(row: &[T], scale: f64, level: f64, sign: f64, sums: &mut [f64]) {
    for (sum, stored) in sums.iter_mut().zip(row) {
        let value = scale * stored.value().wide() - level;
        *sum += sign * if value > 0.0 { value } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Owned {
        labels: Vec<i64>,
        to_clusters: Vec<f64>,
        sizes: Vec<f64>,
        within: Vec<f64>,
    }

    impl Owned {
        fn new(labels: Vec<i64>, k: usize) -> Self {
            let to_clusters = vec![0.0; k * labels.len()];
            Self {
                labels,
                to_clusters,
                sizes: vec![0.0; k],
                within: vec![0.0; k],
            }
        }

        fn view(&mut self) -> Partition<'_> {
            Partition {
                labels: &mut self.labels,
                to_clusters: &mut self.to_clusters,
                sizes: &mut self.sizes,
                within: &mut self.within,
            }
        }

        fn cost(&self) -> f64 {
            self.within
                .iter()
                .zip(&self.sizes)
                .map(|(w, s)| w / s)
                .sum()
        }
    }

    fn stored(n: usize) -> Vec<i16> {
        let value =
            |i: usize, j: usize| (i != j) as usize * (20 + (i.min(j) * 31 + i.max(j) * 17) % 97);
        (0..n * n).map(|at| value(at / n, at % n) as i16).collect()
    }

    fn cost(measured: &Measured<i16>, labels: &[i64], k: usize) -> f64 {
        let value = |i: usize, j: usize| {
            let value =
                measured.scale * f64::from(measured.stored[i * measured.n + j]) - measured.level;
            if i == j {
                0.0
            } else {
                value.max(0.0)
            }
        };
        let one = |c: i64| {
            let items: Vec<usize> = (0..measured.n).filter(|&i| labels[i] == c).collect();
            let pairs = items
                .iter()
                .flat_map(|&i| items.iter().map(move |&j| (i, j)));
            pairs.map(|(i, j)| value(i, j)).sum::<f64>() / items.len() as f64
        };
        (0..k as i64).map(one).sum()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
    }

    #[test]
    fn sums_stay_those_of_the_labels() {
        let (n, k) = (83, 5);
        let values = stored(n);
        let measured = Measured {
            stored: &values,
            n,
            scale: 0.01,
            level: 0.4,
        };
        let mut found = Owned::new((0..n as i64).map(|at| (at * 3 + at / 7) % 5).collect(), k);
        measured.sum_up(&mut found.view());
        assert!(close(found.cost(), cost(&measured, &found.labels, k)));
        measured.relabel(&mut found.view(), &[1, 2, 3, 50, 82], 4);
        assert!([1, 2, 3, 50, 82].iter().all(|at| found.labels[*at] == 4));
        assert!(close(found.cost(), cost(&measured, &found.labels, k)));
        let mut last = found.cost();
        while measured.sweep(&mut found.view(), 1e-12) > 0 {
            assert!(found.cost() < last);
            last = found.cost();
        }
        assert!(close(last, cost(&measured, &found.labels, k)));
        let left = found.labels.clone();
        for item in 0..n {
            for other in 0..k as i64 {
                let mut moved = left.clone();
                moved[item] = other;
                if (0..k as i64).all(|c| moved.contains(&c)) {
                    assert!(cost(&measured, &moved, k) >= last - 1e-9);
                }
            }
        }
    }

    #[test]
    fn the_values_among_items_are_measured() {
        let values = stored(9);
        let measured = Measured {
            stored: &values,
            n: 9,
            scale: 0.5,
            level: 20.0,
        };
        let (items, mut found) = ([7, 2, 5], [9.0; 9]);
        measured.among(&items, &mut found);
        for (at, found) in found.iter().enumerate() {
            let (a, b) = (items[at / 3] as usize, items[at % 3] as usize);
            let value = (0.5 * f64::from(values[a * 9 + b]) - 20.0).max(0.0);
            assert_eq!(*found, if a == b { 0.0 } else { value });
        }
    }

    #[test]
    fn the_last_item_of_a_cluster_stays() {
        let values = vec![0i16; 9];
        let measured = Measured {
            stored: &values,
            n: 3,
            scale: 1.0,
            level: 0.0,
        };
        let mut found = Owned::new(vec![0, 1, 2], 3);
        measured.sum_up(&mut found.view());
        assert_eq!(measured.sweep(&mut found.view(), -1.0), 0);
    }
}
