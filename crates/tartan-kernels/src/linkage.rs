//! Hierarchies of clusters by chains of nearest neighbours, and the numbering of their steps.
//!
//! A chain begins at any cluster and moves on to the nearest other one, until two clusters are nearest to each other;
//! these are joined, and the chain resumes below them (Murtagh 1983; Muellner, Modern hierarchical, agglomerative
//! clustering algorithms, arXiv:1109.2378). For the methods here, this joins the same clusters as a search
//! for the closest pair in every step, with n^2 work instead of n^3.
//!
//! Ties are decided as SciPy decides them: among clusters that are equally near, the one before in the chain is
//! preferred, then the one with the lowest index; of two joined clusters the higher index stays; a chain begins at the
//! lowest index; steps are sorted by their distances, equal ones in the order in which they were found. Means are
//! computed in the same order of operations. So the hierarchies are equal to the last bit.
//!
//! The pairs are worked on in place. They are packed anew whenever half of the clusters are gone.

use crate::spanning::Forest;

/// The distance between a joined cluster and another one, from the distances of its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkageMethod {
    /// The larger one.
    Complete,
    /// The mean over all pairs of items (UPGMA).
    Average,
    /// The mean of the two (WPGMA).
    Weighted,
    /// What joining adds to the sum over clusters of all distances within (both ways), divided by the items: Ward's
    /// rule, which Lance and Williams showed to need no coordinates, on distances as they are.
    Ward,
}

/// What the distance of a joined cluster to another one is made of.
struct Joined {
    /// Distances of the two parts to the other one, and to each other.
    low: f64,
    high: f64,
    parts: f64,
    /// Items of the two parts and of the other one.
    n_low: f64,
    n_high: f64,
    n_other: f64,
}

/// Why there is no hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// The caller asked to stop.
    Stopped,
    /// A mean of distances exceeds the largest f64, or a distance was not finite to begin with.
    NotFinite,
    /// Edges that close a circle.
    Circle,
}

/// One row of a hierarchy: the numbers of the two clusters, lower first, their distance, and the number of items.
pub type HierarchyRow = [f64; 4];

/// Join n items by the distances of their pairs i < j, row by row, which are overwritten.
///
/// Item i is cluster i, and step s makes cluster n + s. `goes_on` is called with the number of clusters that are left,
/// after work of order n each time; the work ends when it returns false.
///
/// # Panics
/// If there are not n (n - 1) / 2 pairs.
pub fn link_while(
    pairs: &mut [f64],
    n: usize,
    method: LinkageMethod,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Result<Vec<HierarchyRow>, Unjoined> {
    assert_eq!(pairs.len(), n * n.saturating_sub(1) / 2);
    let clusters = Clusters::new(pairs, n);
    let mut edges = match method {
        LinkageMethod::Complete => clusters.join_all(&mut goes_on, |of| of.low.max(of.high)),
        LinkageMethod::Average => clusters.join_all(&mut goes_on, |of| {
            (of.n_low * of.low + of.n_high * of.high) / (of.n_low + of.n_high)
        }),
        LinkageMethod::Weighted => clusters.join_all(&mut goes_on, |of| 0.5 * (of.low + of.high)),
        LinkageMethod::Ward => clusters.join_all(&mut goes_on, |of| {
            let (with_low, with_high) = (of.n_low + of.n_other, of.n_high + of.n_other);
            (with_low * of.low + with_high * of.high - of.n_other * of.parts)
                / (with_low + of.n_high)
        }),
    }?;
    edges.sort_by(|a, b| a.2.partial_cmp(&b.2).expect("distances are finite"));
    dendrogram(n, edges)
}

/// Number the clusters along the edges of a tree of n items, which come in the order of their distances.
///
/// # Panics
/// If an edge ends at an item that is not there.
pub fn dendrogram(
    n: usize,
    edges: impl IntoIterator<Item = (usize, usize, f64)>,
) -> Result<Vec<HierarchyRow>, Unjoined> {
    let mut forest = Forest::new(n);
    let mut numbers: Vec<usize> = (0..n).collect();
    let number = |(step, (a, b, distance))| {
        let (left, right) = (numbers[forest.root(a)], numbers[forest.root(b)]);
        let root = forest.join(a, b).ok_or(Unjoined::Circle)?;
        numbers[root] = n + step;
        let (low, high) = (left.min(right), left.max(right));
        let size = forest.size(root);
        Ok([low as f64, high as f64, distance, size as f64])
    };
    edges.into_iter().enumerate().map(number).collect()
}

/// Clusters that are not joined yet. A place is a row of the packed pairs.
struct Clusters<'a> {
    /// Distances of places i < j < n; those of places that are gone are stale.
    pairs: &'a mut [f64],
    n: usize,
    /// One item of the cluster in each place, as its name.
    items: Vec<usize>,
    /// Items of the cluster in each place; 0 where it is gone.
    sizes: Vec<f64>,
    /// Places that are not gone, in order.
    live: Vec<usize>,
    /// Each place but the first is the nearest one to the place before it.
    chain: Vec<usize>,
}

impl<'a> Clusters<'a> {
    fn new(pairs: &'a mut [f64], n: usize) -> Self {
        Self {
            pairs,
            n,
            items: (0..n).collect(),
            sizes: vec![1.0; n],
            live: (0..n).collect(),
            chain: Vec::new(),
        }
    }

    /// Return the joined pairs of items and their distances.
    fn join_all(
        mut self,
        goes_on: &mut impl FnMut(usize) -> bool,
        distance_of: impl Fn(Joined) -> f64,
    ) -> Result<Vec<(usize, usize, f64)>, Unjoined> {
        let mut edges = Vec::with_capacity(self.n.saturating_sub(1));
        while self.live.len() > 1 {
            let (low, high, distance) = self.closest(goes_on)?;
            edges.push((self.items[low], self.items[high], distance));
            self.join(low, high, &distance_of);
            if 2 * self.live.len() <= self.n {
                self.pack();
            }
        }
        Ok(edges)
    }

    /// Follow the chain to two places that are nearest to each other, and take them off it.
    fn closest(
        &mut self,
        goes_on: &mut impl FnMut(usize) -> bool,
    ) -> Result<(usize, usize, f64), Unjoined> {
        if self.chain.is_empty() {
            self.chain.push(self.live[0]);
        }
        loop {
            if !goes_on(self.live.len()) {
                return Err(Unjoined::Stopped);
            }
            let (&top, below) = self.chain.split_last().expect("a chain has a place");
            let before = below.last().copied();
            let (nearest, distance) = self.nearest(top, before);
            if !distance.is_finite() {
                return Err(Unjoined::NotFinite);
            }
            if Some(nearest) == before {
                self.chain.truncate(self.chain.len() - 2);
                return Ok((top.min(nearest), top.max(nearest), distance));
            }
            self.chain.push(nearest);
        }
    }

    /// Find the nearest place to one; `before` is preferred among equals, then the lowest.
    fn nearest(&self, place: usize, before: Option<usize>) -> (usize, f64) {
        let start = before.map_or((place, f64::INFINITY), |before| {
            (before, self.pairs[self.at(place, before)])
        });
        let own = self.live.partition_point(|&other| other < place);
        let (lower, higher) = (&self.live[..own], &self.live[own + 1..]);
        let nearer = |best: (usize, f64), (other, distance)| match distance < best.1 {
            true => (other, distance),
            false => best,
        };
        let above = lower
            .iter()
            .map(|&other| (other, self.pairs[self.row(other) + place - 1]));
        let row = &self.pairs[self.row(place)..];
        let beside = higher.iter().map(|&other| (other, row[other - 1]));
        beside.fold(above.fold(start, nearer), nearer)
    }

    /// Join two places: the lower one is gone, the higher one holds both.
    ///
    /// Where rounding makes a mean smaller than the distances that it is of, the lower one may be on the chain still;
    /// the chain then ends before it.
    fn join(&mut self, low: usize, high: usize, distance_of: &impl Fn(Joined) -> f64) {
        let gone = self
            .live
            .binary_search(&low)
            .expect("a place that is not gone");
        self.live.remove(gone);
        let kept = self.chain.iter().position(|&place| place == low);
        self.chain.truncate(kept.unwrap_or(self.chain.len()));
        let (n_low, n_high) = (self.sizes[low], self.sizes[high]);
        let parts = self.pairs[self.at(low, high)];
        for &other in self.live.iter().filter(|&&other| other != high) {
            let (from, to) = (self.at(other, low), self.at(other, high));
            self.pairs[to] = distance_of(Joined {
                low: self.pairs[from],
                high: self.pairs[to],
                parts,
                n_low,
                n_high,
                n_other: self.sizes[other],
            });
        }
        self.sizes[high] = n_low + n_high;
    }

    /// Move the places that are not gone together, in their order.
    fn pack(&mut self) {
        let mut to = 0;
        for (at, &place) in self.live.iter().enumerate() {
            let row = self.row(place);
            for &other in &self.live[at + 1..] {
                self.pairs[to] = self.pairs[row + other - 1];
                to += 1;
            }
        }
        let new = |place: &usize| {
            self.live
                .binary_search(place)
                .expect("a place that is not gone")
        };
        self.chain = self.chain.iter().map(new).collect();
        self.items = self.live.iter().map(|&place| self.items[place]).collect();
        self.sizes = self.live.iter().map(|&place| self.sizes[place]).collect();
        self.n = self.live.len();
        self.live = (0..self.n).collect();
    }

    /// Return where place j > i of row i is, less j - 1.
    #[inline(always)]
    fn row(&self, i: usize) -> usize {
        i * (2 * self.n - i - 1) / 2 - i
    }

    #[inline(always)]
    fn at(&self, i: usize, j: usize) -> usize {
        self.row(i.min(j)) + i.max(j) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [LinkageMethod; 4] = [
        LinkageMethod::Complete,
        LinkageMethod::Average,
        LinkageMethod::Weighted,
        LinkageMethod::Ward,
    ];

    fn random_pairs(n: usize, mut state: u64) -> Vec<f64> {
        let next = |_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n * (n - 1) / 2).map(next).collect()
    }

    fn link(pairs: &[f64], n: usize, method: LinkageMethod) -> Result<Vec<HierarchyRow>, Unjoined> {
        link_while(&mut pairs.to_vec(), n, method, |_| true)
    }

    /// The definition: the closest of all pairs of clusters in every step.
    fn reference(pairs: &[f64], n: usize, method: LinkageMethod) -> Vec<HierarchyRow> {
        let mut d = vec![vec![f64::INFINITY; 2 * n - 1]; 2 * n - 1];
        let places = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
        for ((i, j), &distance) in places.zip(pairs) {
            d[i][j] = distance;
            d[j][i] = distance;
        }
        let mut sizes = vec![1.0; n];
        let mut left: Vec<usize> = (0..n).collect();
        let mut steps = Vec::new();
        while left.len() > 1 {
            let choices = left
                .iter()
                .flat_map(|&a| left.iter().map(move |&b| (a, b)))
                .filter(|(a, b)| a < b);
            let (a, b) = choices
                .min_by(|x, y| d[x.0][x.1].total_cmp(&d[y.0][y.1]))
                .unwrap();
            let new = n + steps.len();
            left.retain(|&other| other != a && other != b);
            for &other in &left {
                let (x, y) = (d[a][other], d[b][other]);
                d[new][other] = match method {
                    LinkageMethod::Complete => x.max(y),
                    LinkageMethod::Average => (sizes[a] * x + sizes[b] * y) / (sizes[a] + sizes[b]),
                    LinkageMethod::Weighted => (x + y) / 2.0,
                    LinkageMethod::Ward => {
                        let (a_size, b_size, size) = (sizes[a], sizes[b], sizes[other]);
                        ((a_size + size) * x + (b_size + size) * y - size * d[a][b])
                            / (a_size + b_size + size)
                    }
                };
                d[other][new] = d[new][other];
            }
            left.push(new);
            sizes.push(sizes[a] + sizes[b]);
            steps.push([a as f64, b as f64, d[a][b], sizes[new]]);
        }
        steps
    }

    #[test]
    fn equals_the_reference() {
        for n in 1..50 {
            let pairs = random_pairs(n, n as u64);
            for method in METHODS {
                let (found, expected) = (
                    link(&pairs, n, method).unwrap(),
                    reference(&pairs, n, method),
                );
                assert_eq!(found.len(), expected.len());
                for (step, other) in found.iter().zip(&expected) {
                    let same = [0, 1, 3].iter().all(|&at| step[at] == other[at]);
                    assert!(
                        same && (step[2] - other[2]).abs() < 1e-12,
                        "{n} {method:?}: {step:?} {other:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn wards_distances_are_what_joining_adds_to_the_cost() {
        let n = 12;
        let pairs = random_pairs(n, 3);
        let steps = link(&pairs, n, LinkageMethod::Ward).unwrap();
        let mut items: Vec<Vec<usize>> = (0..n).map(|item| vec![item]).collect();
        let cost = |items: &[usize]| {
            let sum = |(i, j): (usize, usize)| match i < j {
                true => pairs[i * (2 * n - i - 1) / 2 + j - i - 1],
                false => 0.0,
            };
            let both = items
                .iter()
                .flat_map(|&i| items.iter().map(move |&j| (i, j)));
            2.0 * both.map(sum).sum::<f64>() / items.len() as f64
        };
        for step in steps {
            let [a, b] = [0, 1].map(|at| items[step[at] as usize].clone());
            let joined = [a.clone(), b.clone()].concat();
            let added = cost(&joined) - cost(&a) - cost(&b);
            assert!((added - step[2]).abs() < 1e-12, "{added} {step:?}");
            items.push(joined);
        }
    }

    #[test]
    fn equal_distances_join_in_the_order_of_items() {
        for method in [
            LinkageMethod::Complete,
            LinkageMethod::Average,
            LinkageMethod::Weighted,
        ] {
            let steps = link(&[1.0; 6], 4, method).unwrap();
            assert_eq!(
                steps,
                [
                    [0.0, 1.0, 1.0, 2.0],
                    [2.0, 4.0, 1.0, 3.0],
                    [3.0, 5.0, 1.0, 4.0]
                ]
            );
        }
    }

    #[test]
    fn the_chain_ends_before_a_place_that_is_gone() {
        let mut pairs = [1.0; 10];
        let mut clusters = Clusters::new(&mut pairs, 5);
        clusters.chain = vec![4, 1, 3];
        clusters.join(1, 2, &|of: Joined| of.low);
        assert_eq!(clusters.chain, [4]);
        clusters.join(0, 3, &|of: Joined| of.low);
        assert_eq!(clusters.chain, [4]);
    }

    #[test]
    fn stops_on_request() {
        let mut left = Vec::new();
        let found = link_while(
            &mut random_pairs(9, 5),
            9,
            LinkageMethod::Average,
            |clusters| {
                left.push(clusters);
                clusters > 6
            },
        );
        assert_eq!(found, Err(Unjoined::Stopped));
        left.dedup();
        assert_eq!(left, [9, 8, 7, 6]);
    }

    #[test]
    fn refuses_means_that_overflow() {
        let huge = [1e308; 3];
        assert_eq!(
            link(&huge, 3, LinkageMethod::Average),
            Err(Unjoined::NotFinite)
        );
        assert_eq!(link(&huge, 3, LinkageMethod::Complete).unwrap().len(), 2);
        for pair in [f64::NAN, f64::INFINITY] {
            assert_eq!(
                link(&[pair], 2, LinkageMethod::Complete),
                Err(Unjoined::NotFinite)
            );
        }
    }

    #[test]
    fn numbers_clusters_along_edges() {
        let steps = dendrogram(4, [(3, 2, 1.0), (0, 1, 1.0), (1, 3, 2.0)]).unwrap();
        assert_eq!(
            steps,
            [
                [2.0, 3.0, 1.0, 2.0],
                [0.0, 1.0, 1.0, 2.0],
                [4.0, 5.0, 2.0, 4.0]
            ]
        );
        let circle = dendrogram(3, [(0, 1, 1.0), (1, 0, 1.0)]);
        assert_eq!(circle, Err(Unjoined::Circle));
    }
}
