//! Where the shards of a vector begin, and the sums of one shard.

use crate::phylogeny::{n_middles, Composition, Word, COUNT_SHIFT};

/// Parts of the middles that are summed apart; enough for the threads of one machine.
/// By judgement, as said; fixed, so that bits do not depend on threads.
pub(super) const SHARDS: u64 = 64;

/// A place in a vector: the next middle and the next entry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cursor {
    pub(super) middle: usize,
    pub(super) entry: usize,
}

impl<W: Word> Composition<'_, W> {
    /// Whether the lengths of the arrays fit each other.
    pub fn fits(&self) -> bool {
        let counts = self
            .masks
            .iter()
            .step_by(2)
            .map(|mask| (mask >> COUNT_SHIFT) as usize);
        self.masks.len() == 2 * self.middles.len()
            && self.codes.len() == self.values.len()
            && counts.sum::<usize>() == self.values.len()
    }

    /// The places where the shards begin, and the end.
    pub(super) fn shards(&self, k: usize) -> Vec<Cursor> {
        let mut cursor = Cursor::default();
        let mut places = Vec::with_capacity(SHARDS as usize + 1);
        for shard in 0..SHARDS {
            let begin = shard_begin(shard, k);
            self.advance(&mut cursor, begin);
            places.push(cursor);
        }
        places.push(Cursor {
            middle: self.middles.len(),
            entry: self.values.len(),
        });
        places
    }

    /// Move to the first middle that is `limit` or above.
    #[inline]
    pub(super) fn advance(&self, cursor: &mut Cursor, limit: u64) {
        while cursor.middle < self.middles.len() && self.middles[cursor.middle].to_u64() < limit {
            cursor.entry += self.n_entries(cursor.middle);
            cursor.middle += 1;
        }
    }

    #[inline]
    pub(super) fn n_entries(&self, middle: usize) -> usize {
        (self.masks[2 * middle] >> COUNT_SHIFT) as usize
    }
}

/// First middle of a shard.
pub(super) fn shard_begin(shard: u64, k: usize) -> u64 {
    (u128::from(n_middles(k)) * u128::from(shard) / u128::from(SHARDS)) as u64
}

/// The four sums of a part of the middles.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) common: f64,
    pub(super) left_in_right: f64,
    pub(super) right_in_left: f64,
    pub(super) n_common: u64,
}

impl Sums {
    /// Sum of a a'. Symmetric to the bit.
    pub(super) fn product(self) -> f64 {
        self.common - (self.left_in_right + self.right_in_left) + self.n_common as f64
    }
}
