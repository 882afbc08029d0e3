//! Neighbour joining, with rows left out that cannot hold the closest pair.
//!
//! Each step joins the pair with the smallest q(i, j) = d(i, j) - u_i - u_j, where u_i is the sum of row i over
//! m - 2 and m nodes are left (Saitou and Nei 1987; Studier and Keppler 1988). Looking at all pairs in every
//! step costs n^3 / 3. Here each row keeps low_i = min over j of d(i, j) - u_j as of its last scan. Since then no
//! u_j has grown by more than the sum of the largest growths of each step, so low_i minus that sum is a lower bound
//! of the row, and most rows are not scanned. The pairs found are the same; the work is near n^2 where distances are
//! tree-like, and n^3 / 3 at worst.
//!
//! The matrix is overwritten: the new node takes one row of the joined pair, and the last row takes the other.

use std::ops::Range;

use rayon::prelude::*;

/// The type in which distances are stored, f32 or f64. Sums are always f64.
pub trait Distance: Copy + Send + Sync {
    /// The nearest value of this type.
    fn of(value: f64) -> Self;
    /// The value.
    fn get(self) -> f64;
}

impl Distance for f32 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn get(self) -> f64 {
        f64::from(self)
    }
}

impl Distance for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn get(self) -> f64 {
        self
    }
}

/// A tree: leaves are 0..n, inner nodes follow in the order of their creation, the root is the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// Parent of each node; -1 for the root.
    pub parents: Vec<i64>,
    /// Length of the branch to the parent; 0 for the root. The method may give negative lengths.
    pub lengths: Vec<f64>,
}

/// Why a matrix does not hold distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotDistances {
    NotFinite { row: usize, column: usize },
    Unequal { row: usize, column: usize },
}

/// Largest difference of d(i, j) and d(j, i), relative to the larger of them and 1.
/// By arithmetic: ten times the rounding of float32.
const ASYMMETRY: f64 = 1e-6;
/// Side of the squares in which a matrix and its transpose are read.
/// By arithmetic: two squares of 64 x 64 float64 are 64 KiB. `tartan bench tree` holds the time.
const SQUARE: usize = 64;
/// Rounding error of bounds, relative to the values from which they are computed.
/// By arithmetic: sums of 10,000 terms of float64.
const SLACK: f64 = 1e-11;
/// Number of minima that are computed side by side.
/// By arithmetic: two vectors of eight float64.
const LANES: usize = 16;
/// Values that are read between two calls of `goes_on`: less than a tenth of a second of work.
/// By arithmetic at 2 GB/s.
const VALUES_BETWEEN: usize = 1 << 24;

/// Check that a square matrix is finite and symmetric, except for its diagonal.
///
/// `goes_on` is called with n on the way; when it returns false, the check ends and returns false.
pub fn check_while<T: Distance>(
    matrix: &[T],
    n: usize,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Result<bool, NotDistances> {
    for rows in bands(n) {
        if !goes_on(n) {
            return Ok(false);
        }
        check_rows(matrix, n, rows)?;
    }
    Ok(true)
}

/// Cut n rows into bands, one for each call of `goes_on`; all but the last are whole squares high.
fn bands(n: usize) -> impl Iterator<Item = Range<usize>> {
    let height = (VALUES_BETWEEN / n.max(1)).max(1).next_multiple_of(SQUARE);
    (0..n)
        .step_by(height)
        .map(move |top| top..n.min(top + height))
}

fn check_rows<T: Distance>(matrix: &[T], n: usize, rows: Range<usize>) -> Result<(), NotDistances> {
    let squares: Vec<_> = rows
        .step_by(SQUARE)
        .flat_map(|i| (i..n).step_by(SQUARE).map(move |j| (i, j)))
        .collect();
    squares.par_iter().try_for_each(|&(top, first)| {
        for row in top..n.min(top + SQUARE) {
            for column in first.max(row + 1)..n.min(first + SQUARE) {
                let (a, b) = (
                    matrix[row * n + column].get(),
                    matrix[column * n + row].get(),
                );
                if !a.is_finite() || !b.is_finite() {
                    let (row, column) = if a.is_finite() {
                        (column, row)
                    } else {
                        (row, column)
                    };
                    return Err(NotDistances::NotFinite { row, column });
                }
                if (a - b).abs() > ASYMMETRY * a.abs().max(b.abs()).max(1.0) {
                    return Err(NotDistances::Unequal { row, column });
                }
            }
        }
        Ok(())
    })
}

/// Check as `check_while` does, without a way to stop.
pub fn check<T: Distance>(matrix: &[T], n: usize) -> Result<(), NotDistances> {
    check_while(matrix, n, |_| true).map(|_| ())
}

/// Join n leaves by their distances (n, n), which are overwritten.
///
/// Which of several equally close pairs is joined depends on the matrix alone.
///
/// # Panics
/// If n is 0 or the matrix has not n * n values.
pub fn neighbor_joining<T: Distance>(matrix: &mut [T], n: usize) -> Joined {
    neighbor_joining_while(matrix, n, |_| true).expect("it runs to the end")
}

/// Join as `neighbor_joining` does, until `goes_on` returns false; the result is `None` then.
///
/// `goes_on` is called with the number of nodes that are left, on the way and before each step.
///
/// # Panics
/// If n is 0 or the matrix has not n * n values.
pub fn neighbor_joining_while<T: Distance>(
    matrix: &mut [T],
    n: usize,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Option<Joined> {
    assert!(n > 0 && matrix.len() == n * n);
    let mut work = Joining::new(matrix, n, &mut goes_on)?;
    while work.m > 3 {
        if !goes_on(work.m) {
            return None;
        }
        let (a, b) = work.closest();
        work.join(a, b);
    }
    Some(work.finish())
}

struct Joining<'a, T> {
    matrix: &'a mut [T],
    n: usize,
    /// Nodes left; they have the rows 0..m.
    m: usize,
    /// Node of each row.
    nodes: Vec<usize>,
    sums: Vec<f64>,
    /// sums / (m - 2).
    shares: Vec<f64>,
    /// low_i + growth as of the last scan; the bound is keys[i] - growth.
    keys: Vec<f64>,
    /// Sum over the steps of the largest growth of a share.
    growth: f64,
    tree: Joined,
}

impl<'a, T: Distance> Joining<'a, T> {
    fn new(matrix: &'a mut [T], n: usize, goes_on: &mut impl FnMut(usize) -> bool) -> Option<Self> {
        let mut sums = vec![0.0; n];
        for rows in bands(n) {
            if !goes_on(n) {
                return None;
            }
            matrix[rows.start * n..rows.end * n]
                .par_chunks_mut(n)
                .zip(&mut sums[rows.clone()])
                .zip(rows)
                .for_each(|((row, sum), i)| {
                    row[i] = T::of(0.0);
                    *sum = row.iter().map(|d| d.get()).sum();
                    row[i] = T::of(f64::INFINITY);
                });
        }
        let shares: Vec<f64> = sums.iter().map(|sum| sum / (n as f64 - 2.0)).collect();
        let mut keys = vec![0.0; n];
        for rows in bands(n) {
            if !goes_on(n) {
                return None;
            }
            matrix[rows.start * n..rows.end * n]
                .par_chunks(n)
                .zip(&mut keys[rows])
                .for_each(|(row, key)| *key = lowest(row, &shares));
        }
        let tree = Joined {
            parents: vec![-1; n],
            lengths: vec![0.0; n],
        };
        Some(Self {
            matrix,
            n,
            m: n,
            nodes: (0..n).collect(),
            sums,
            shares,
            keys,
            growth: 0.0,
            tree,
        })
    }

    fn row(&self, i: usize) -> &[T] {
        &self.matrix[i * self.n..i * self.n + self.m]
    }

    /// Find the pair of rows with the smallest q.
    fn closest(&mut self) -> (usize, usize) {
        let largest = self
            .shares
            .iter()
            .fold(self.growth.abs(), |most, share| most.max(share.abs()));
        let slack = SLACK * largest;
        let bound = |work: &Self, i: usize| work.keys[i] - work.growth - work.shares[i] - slack;
        let first = (0..self.m)
            .map(|i| (bound(self, i), i))
            .fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a });
        let mut best = self.scan(first.1);
        let mut best_row = first.1;
        for i in 0..self.m {
            if i != first.1 && bound(self, i) < best {
                let q = self.scan(i);
                if q < best {
                    (best, best_row) = (q, i);
                }
            }
        }
        let target = best + self.shares[best_row];
        let row = self.row(best_row);
        let found = row
            .iter()
            .zip(&self.shares)
            .position(|(d, share)| d.get() - share <= target);
        // Rounding may put the sum slightly below what was found: then search for the smallest again.
        let other = found.unwrap_or_else(|| position_of_lowest(row, &self.shares));
        (best_row.min(other), best_row.max(other))
    }

    /// Scan a row: update its key, return its smallest q.
    fn scan(&mut self, i: usize) -> f64 {
        let low = lowest(self.row(i), &self.shares);
        self.keys[i] = low + self.growth;
        low - self.shares[i]
    }

    /// Replace rows a < b by their new parent, in row a; the last row moves to b.
    fn join(&mut self, a: usize, b: usize) {
        let (n, m, last) = (self.n, self.m, self.m - 1);
        let between = self.matrix[a * n + b].get();
        let first = (between + self.shares[a] - self.shares[b]) / 2.0;
        let parent = self.tree.parents.len();
        self.hang(a, parent, first);
        self.hang(b, parent, between - first);
        self.tree.parents.push(-1);
        self.tree.lengths.push(0.0);
        let mut sum = 0.0;
        for k in (0..m).filter(|&k| k != a && k != b) {
            let (to_a, to_b) = (self.matrix[a * n + k].get(), self.matrix[b * n + k].get());
            let distance = T::of((to_a + to_b - between) / 2.0);
            self.matrix[a * n + k] = distance;
            self.matrix[k * n + a] = distance;
            self.sums[k] += distance.get() - to_a - to_b;
            sum += distance.get();
        }
        self.sums[a] = sum;
        self.nodes[a] = parent;
        self.move_row(last, b);
        self.m = last;
        self.refresh(a);
    }

    fn hang(&mut self, row: usize, parent: usize, length: f64) {
        let node = self.nodes[row];
        self.tree.parents[node] = parent as i64;
        self.tree.lengths[node] = length;
    }

    fn move_row(&mut self, from: usize, to: usize) {
        let n = self.n;
        if from != to {
            for k in 0..from {
                let distance = self.matrix[from * n + k];
                self.matrix[to * n + k] = distance;
                self.matrix[k * n + to] = distance;
            }
            self.matrix[to * n + to] = T::of(f64::INFINITY);
            self.nodes[to] = self.nodes[from];
            self.sums[to] = self.sums[from];
            self.shares[to] = self.shares[from];
            self.keys[to] = self.keys[from];
        }
        for column in [&mut self.sums, &mut self.shares, &mut self.keys] {
            column.truncate(from);
        }
        self.nodes.truncate(from);
    }

    /// Update shares and bounds; row a is new.
    fn refresh(&mut self, a: usize) {
        let scale = 1.0 / (self.m as f64 - 2.0);
        let mut growth = f64::NEG_INFINITY;
        for (k, (share, sum)) in self.shares.iter_mut().zip(&self.sums).enumerate() {
            let new = sum * scale;
            if k != a {
                growth = growth.max(new - *share);
            }
            *share = new;
        }
        self.growth += growth;
        let own = self.shares[a] - self.growth;
        let row = &self.matrix[a * self.n..a * self.n + self.m];
        for (key, distance) in self.keys.iter_mut().zip(row) {
            *key = key.min(distance.get() - own);
        }
        self.keys[a] = lowest(row, &self.shares) + self.growth;
    }

    /// Join the last three rows, or two, or one.
    fn finish(mut self) -> Joined {
        let n = self.n;
        if self.m == 1 {
            return self.tree;
        }
        let root = self.tree.parents.len();
        let d = |i: usize, j: usize| self.matrix[i * n + j].get();
        let lengths = match self.m {
            2 => vec![d(0, 1) / 2.0; 2],
            _ => (0..3)
                .map(|i| {
                    (d(i, (i + 1) % 3) + d(i, (i + 2) % 3) - d((i + 1) % 3, (i + 2) % 3)) / 2.0
                })
                .collect(),
        };
        for (row, length) in lengths.into_iter().enumerate() {
            self.hang(row, root, length);
        }
        self.tree.parents.push(-1);
        self.tree.lengths.push(0.0);
        self.tree
    }
}

/// Smallest d - u of a row; the row itself is infinite.
fn lowest<T: Distance>(row: &[T], shares: &[f64]) -> f64 {
    let (rows, shares_) = (row.chunks_exact(LANES), shares.chunks_exact(LANES));
    let rest = rows
        .remainder()
        .iter()
        .zip(&shares[row.len() - rows.remainder().len()..]);
    let mut lanes = [f64::INFINITY; LANES];
    for (row, shares) in rows.zip(shares_) {
        for ((lane, distance), share) in lanes.iter_mut().zip(row).zip(shares) {
            let value = distance.get() - share;
            *lane = if value < *lane { value } else { *lane };
        }
    }
    rest.map(|(distance, share)| distance.get() - share)
        .chain(lanes)
        .fold(f64::INFINITY, f64::min)
}

fn position_of_lowest<T: Distance>(row: &[T], shares: &[f64]) -> usize {
    let values = row
        .iter()
        .zip(shares)
        .map(|(distance, share)| distance.get() - share);
    values
        .enumerate()
        .fold((0, f64::INFINITY), |a, b| if b.1 < a.1 { b } else { a })
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    fn random_matrix(n: usize, seed: u64) -> Vec<f64> {
        let mut random = Random(seed * 2 + 1);
        let mut matrix = vec![0.0; n * n];
        for i in 0..n {
            for j in i + 1..n {
                matrix[i * n + j] = 0.2 + random.next();
                matrix[j * n + i] = matrix[i * n + j];
            }
        }
        matrix
    }

    /// The method by its definition: all pairs in each step, lists of nodes, nothing cached.
    fn reference(matrix: &[f64], n: usize) -> Joined {
        let mut d: Vec<Vec<f64>> = matrix.chunks(n).map(<[f64]>::to_vec).collect();
        let mut tree = Joined {
            parents: vec![-1; n],
            lengths: vec![0.0; n],
        };
        let mut nodes: Vec<usize> = (0..n).collect();
        while nodes.len() > 3 {
            let m = nodes.len() as f64;
            let sum = |i: usize| {
                nodes
                    .iter()
                    .filter(|&&k| k != i)
                    .map(|&k| d[i][k])
                    .sum::<f64>()
            };
            let mut best = (f64::INFINITY, 0, 0);
            for (at, &i) in nodes.iter().enumerate() {
                for &j in &nodes[at + 1..] {
                    let q = (m - 2.0) * d[i][j] - sum(i) - sum(j);
                    best = if q < best.0 { (q, i, j) } else { best };
                }
            }
            let (_, a, b) = best;
            let new = tree.parents.len();
            tree.lengths[a] = d[a][b] / 2.0 + (sum(a) - sum(b)) / (2.0 * (m - 2.0));
            tree.lengths[b] = d[a][b] - tree.lengths[a];
            (tree.parents[a], tree.parents[b]) = (new as i64, new as i64);
            tree.parents.push(-1);
            tree.lengths.push(0.0);
            let row: Vec<f64> = (0..d.len())
                .map(|k| (d[a][k] + d[b][k] - d[a][b]) / 2.0)
                .collect();
            d.iter_mut()
                .zip(&row)
                .for_each(|(others, &distance)| others.push(distance));
            d.push(row.into_iter().chain([0.0]).collect());
            nodes.retain(|&k| k != a && k != b);
            nodes.push(new);
        }
        let root = tree.parents.len();
        for (at, &i) in nodes.iter().enumerate() {
            let (j, k) = (nodes[(at + 1) % 3], nodes[(at + 2) % 3]);
            tree.parents[i] = root as i64;
            tree.lengths[i] = (d[i][j] + d[i][k] - d[j][k]) / 2.0;
        }
        tree.parents.push(-1);
        tree.lengths.push(0.0);
        tree
    }

    /// For each branch the leaves on the side without leaf 0, and its length: equal for equal unrooted trees.
    fn splits(tree: &Joined, n: usize) -> Vec<(Vec<usize>, i64)> {
        let mut below: Vec<Vec<usize>> = (0..tree.parents.len())
            .map(|i| if i < n { vec![i] } else { vec![] })
            .collect();
        for node in 0..tree.parents.len() - 1 {
            let leaves = below[node].clone();
            below[tree.parents[node] as usize].extend(leaves);
        }
        below.pop();
        let side = |leaves: Vec<usize>| -> Vec<usize> {
            let turn = leaves.contains(&0);
            (0..n)
                .filter(|leaf| leaves.contains(leaf) != turn)
                .collect()
        };
        let lengths = tree
            .lengths
            .iter()
            .map(|length| (length * 1e9).round() as i64);
        let mut splits: Vec<_> = below.into_iter().map(side).zip(lengths).collect();
        splits.sort();
        splits
    }

    #[test]
    fn equals_the_reference() {
        for n in 4..60 {
            let matrix = random_matrix(n, n as u64);
            let found = neighbor_joining(&mut matrix.clone(), n);
            assert_eq!(
                splits(&found, n),
                splits(&reference(&matrix, n), n),
                "n = {n}"
            );
        }
    }

    #[test]
    fn few_leaves() {
        let three = neighbor_joining(&mut [0.0, 3.0, 4.0, 3.0, 0.0, 5.0, 4.0, 5.0, 0.0], 3);
        assert_eq!(
            three,
            Joined {
                parents: vec![3, 3, 3, -1],
                lengths: vec![1.0, 2.0, 3.0, 0.0]
            }
        );
        let two = neighbor_joining(&mut [0.0f32, 3.0, 3.0, 0.0], 2);
        assert_eq!(
            two,
            Joined {
                parents: vec![2, 2, -1],
                lengths: vec![1.5, 1.5, 0.0]
            }
        );
        assert_eq!(
            neighbor_joining(&mut [0.0], 1),
            Joined {
                parents: vec![-1],
                lengths: vec![0.0]
            }
        );
    }

    #[test]
    fn equal_distances_join_to_a_star_of_equal_branches() {
        let joined = neighbor_joining(&mut [1.0; 100], 10);
        assert_eq!(joined.parents.len(), 18);
        assert!(joined.lengths[..10]
            .iter()
            .all(|length| (length - 0.5).abs() < 1e-12));
        assert!(joined.lengths[10..]
            .iter()
            .all(|length| length.abs() < 1e-12));
    }

    #[test]
    fn stops_on_request() {
        let mut seen = Vec::new();
        let joined = neighbor_joining_while(&mut random_matrix(9, 5), 9, |left| {
            seen.push(left);
            left > 6
        });
        for when in 1..4 {
            let mut asked = 0;
            let mut goes_on = |_| {
                asked += 1;
                asked < when
            };
            let mut matrix = random_matrix(9, 5);
            let whole = check_while(&matrix, 9, &mut goes_on);
            assert_eq!(whole, Ok(when > 1));
            let joined = whole
                .unwrap()
                .then(|| neighbor_joining_while(&mut matrix, 9, goes_on));
            assert_eq!(joined.flatten(), None);
        }
        assert_eq!((joined, seen), (None, vec![9, 9, 9, 8, 7, 6]));
    }

    #[test]
    fn names_the_wrong_pair() {
        let n = 130;
        let good = random_matrix(n, 3);
        assert_eq!(check(&good, n), Ok(()));
        let mut bad = good.clone();
        bad[7 * n + 100] += 0.01;
        assert_eq!(
            check(&bad, n),
            Err(NotDistances::Unequal {
                row: 7,
                column: 100
            })
        );
        for value in [f64::NAN, f64::INFINITY] {
            let mut bad = good.clone();
            bad[120 * n + 3] = value;
            assert_eq!(
                check(&bad, n),
                Err(NotDistances::NotFinite {
                    row: 120,
                    column: 3
                })
            );
        }
    }
}
