//! A spanning forest that grows edge by edge (Kruskal), in 8 bytes of memory a vertex for any number of edges.

/// Disjoint trees over vertices 0..n; union by size, path halving.
pub struct Forest {
    /// The parent of a vertex; a root holds minus the size of its tree.
    links: Vec<i64>,
    trees: usize,
}

impl Forest {
    /// `n` trees of one vertex each.
    pub fn new(n: usize) -> Self {
        Forest {
            links: vec![-1; n],
            trees: n,
        }
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no vertex.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Number of trees that are left.
    pub fn trees(&self) -> usize {
        self.trees
    }

    /// Offer edges in order; return the positions of those that join two trees. Ends with the last join.
    pub fn offer(&mut self, from: &[i64], to: &[i64]) -> Vec<i64> {
        let mut kept = Vec::new();
        for (position, (&a, &b)) in from.iter().zip(to).enumerate() {
            if self.trees <= 1 {
                break;
            }
            if self.join(a as usize, b as usize).is_some() {
                kept.push(position as i64);
            }
        }
        kept
    }

    /// Join the trees of two vertices and return the root, or None if they are one tree already.
    pub fn join(&mut self, a: usize, b: usize) -> Option<usize> {
        let (mut a, mut b) = (self.root(a), self.root(b));
        if a == b {
            return None;
        }
        if self.links[a] > self.links[b] {
            std::mem::swap(&mut a, &mut b);
        }
        self.links[a] += self.links[b];
        self.links[b] = a as i64;
        self.trees -= 1;
        Some(a)
    }

    /// Number of vertices in the tree of a root.
    pub fn size(&self, root: usize) -> usize {
        (-self.links[root]) as usize
    }

    /// Return the root of the tree that a vertex is in.
    pub fn root(&mut self, mut vertex: usize) -> usize {
        while self.links[vertex] >= 0 {
            let parent = self.links[vertex] as usize;
            if self.links[parent] >= 0 {
                self.links[vertex] = self.links[parent];
            }
            vertex = parent;
        }
        vertex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_joins_and_drops_what_closes_a_circle() {
        let mut forest = Forest::new(5);
        assert_eq!(forest.offer(&[0, 1, 0, 3], &[1, 2, 2, 3]), [0, 1]);
        assert_eq!(forest.trees(), 3);
        assert_eq!(forest.offer(&[4, 2, 1, 0], &[3, 0, 4, 3]), [0, 2]);
        assert_eq!((forest.trees(), forest.len()), (1, 5));
        assert!(forest.offer(&[0, 1], &[4, 3]).is_empty());
    }

    #[test]
    fn agrees_with_labels_that_are_repainted() {
        let (n, mut state) = (60_usize, 12345_u64);
        let mut forest = Forest::new(n);
        let mut labels: Vec<usize> = (0..n).collect();
        for _ in 0..400 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (a, b) = ((state >> 33) as usize % n, (state >> 48) as usize % n);
            let joins = labels[a] != labels[b];
            assert_eq!(
                forest.offer(&[a as i64], &[b as i64]).len(),
                usize::from(joins)
            );
            let (old, new) = (labels[a], labels[b]);
            labels
                .iter_mut()
                .filter(|label| **label == old)
                .for_each(|label| *label = new);
        }
        assert_eq!(
            forest.trees(),
            labels
                .iter()
                .collect::<std::collections::HashSet<_>>()
                .len()
        );
    }
}
