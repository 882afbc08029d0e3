//! Counting with one counter for each string that can exist: for input so long that a record each would take more.

use std::collections::HashMap;

use crate::allowance::{Allowance, Exceeded};
use crate::phylogeny::vector::{Builder, Row, Vector, Word};
use crate::phylogeny::windows::{each_window, Windows};

/// 20 letters and the end of a protein.
/// By format: letters and an end.
const SIDES: usize = 21;
/// Counters of one middle.
const ROW: usize = SIDES * SIDES;
/// Middles of one block. Blocks are freed as soon as they are read, and so large that the system gets them back.
/// By judgement, as said: 65,536 middles of 441 counters. `tartan bench phylogeny` holds memory.
const BLOCK_BITS: u32 = 16;

/// Counters of all strings.
pub struct CountTable {
    m: usize,
    blocks: Vec<Vec<u16>>,
    /// How often a counter has passed 2^16.
    carries: HashMap<(u64, usize), u64>,
    /// The last m + 1 codes, then the piece that is counted.
    joined: Vec<u8>,
    windows: Windows,
}

/// Bytes of the counters of the middles of length m.
pub fn table_bytes(m: usize) -> u64 {
    20u64.pow(m as u32).saturating_mul(2 * ROW as u64)
}

impl CountTable {
    pub fn new(m: usize, allowance: &mut Allowance) -> Result<Self, Exceeded> {
        allowance.take(table_bytes(m) as usize)?;
        let mut left = 20usize.pow(m as u32);
        let mut blocks = Vec::new();
        while left > 0 {
            let n = left.min(1 << BLOCK_BITS);
            blocks.push(vec![0; n * ROW]);
            left -= n;
        }
        Ok(Self {
            m,
            blocks,
            carries: HashMap::new(),
            joined: Vec::new(),
            windows: [0; 3],
        })
    }

    /// Count the windows that end in a piece.
    pub fn push(&mut self, codes: &[u8]) {
        let Self {
            m,
            blocks,
            carries,
            joined,
            windows,
        } = self;
        joined.extend_from_slice(codes);
        each_window(joined, *m, windows, |middle, left, right| {
            let block = &mut blocks[(middle >> BLOCK_BITS) as usize];
            let place = usize::from(left) * SIDES + usize::from(right);
            let counter = &mut block[row_start(middle) + place];
            *counter = counter.wrapping_add(1);
            if *counter == 0 {
                *carries.entry((middle, place)).or_default() += 1;
            }
        });
        joined.drain(..joined.len().saturating_sub(*m + 1));
    }

    /// Make the vector.
    pub fn finish<W: Word>(mut self, allowance: &mut Allowance) -> Result<Vector<W>, Exceeded> {
        let mut builder = Builder::new(self.windows, allowance);
        let (mut row, mut counts) = (Row::default(), [0u64; ROW]);
        for (number, block) in std::mem::take(&mut self.blocks).into_iter().enumerate() {
            for (within, counters) in block.chunks_exact(ROW).enumerate() {
                let middle = (number << BLOCK_BITS | within) as u64;
                let size = self.fill(middle, counters, &mut counts, &mut row);
                if size > 0 {
                    builder.row(middle, &row, size, strings(&counts))?;
                }
            }
        }
        Ok(builder.finish())
    }

    /// Set the counts of a middle and what they say of its neighbours; returns how often it occurs.
    fn fill(&self, middle: u64, counters: &[u16], counts: &mut [u64; ROW], row: &mut Row) -> u64 {
        row.clear();
        (row.left_mask, row.right_mask) = (0, 0);
        let mut size = 0;
        for (place, (&counter, count)) in counters.iter().zip(counts.iter_mut()).enumerate() {
            *count = u64::from(counter);
            if !self.carries.is_empty() {
                *count += self.carries.get(&(middle, place)).map_or(0, |n| n << 16);
            }
            if *count > 0 {
                let (left, right) = (place / SIDES, place % SIDES);
                row.lefts[left] += *count as u32;
                row.rights[right] += *count as u32;
                row.left_mask |= 1 << left;
                row.right_mask |= 1 << right;
                size += *count;
            }
        }
        size
    }
}

fn row_start(middle: u64) -> usize {
    (middle as usize & ((1 << BLOCK_BITS) - 1)) * ROW
}

/// Strings that occur, ascending.
fn strings(counts: &[u64; ROW]) -> impl Iterator<Item = (usize, usize, u64)> + '_ {
    counts
        .iter()
        .enumerate()
        .filter(|(_, &count)| count > 0)
        .map(|(place, &count)| (place / SIDES, place % SIDES, count))
}
