//! The sums that run over the tables of one block of middles.

use std::ops::Range;

use super::common::Common;
use super::dispatch::dispatch;
use super::group::{begin, Group, BLOCK, GROUP, LANES, SIDE, SLOTS};
use super::shards::{Cursor, Sums};
use crate::phylogeny::{Composition, Word};

/// For each byte, eight words that are all ones where the byte has a bit.
static SPREAD: [[u64; LANES]; 256] = spread();

const fn spread() -> [[u64; LANES]; 256] {
    let mut table = [[0; LANES]; 256];
    let mut at = 0;
    while at < 256 * LANES {
        if (at / LANES) >> (at % LANES) & 1 == 1 {
            table[at / LANES][at % LANES] = u64::MAX;
        }
        at += 1;
    }
    table
}

/// Memory of one thread, kept between tiles.
#[derive(Default)]
pub(super) struct ThreadMemory {
    left: Vec<Group>,
    right: Vec<Group>,
    common: Vec<Common>,
    sums: Vec<GroupSums>,
}

/// The sums of one group of rows with one group of columns, over the blocks of a shard.
struct GroupSums {
    common: Vec<[f64; GROUP]>,
    left_in_right: Vec<[f64; GROUP]>,
    right_in_left: Vec<[f64; GROUP]>,
    n_common: Vec<[u64; GROUP]>,
}

impl GroupSums {
    fn new() -> Self {
        Self {
            common: vec![[0.0; GROUP]; GROUP],
            left_in_right: vec![[0.0; GROUP]; GROUP],
            right_in_left: vec![[0.0; GROUP]; GROUP],
            n_common: vec![[0; GROUP]; GROUP],
        }
    }

    /// Reset the sums of this many rows and columns.
    fn clear(&mut self, n_rows: usize, n_columns: usize) {
        self.common[..n_rows].fill([0.0; GROUP]);
        self.left_in_right[..n_rows].fill([0.0; GROUP]);
        self.right_in_left[..n_columns].fill([0.0; GROUP]);
        self.n_common[..n_rows].fill([0; GROUP]);
    }
}

impl ThreadMemory {
    /// Write the sums of products over the middles of `range` to `part`, row by row.
    pub(super) fn shard<W: Word>(
        &mut self,
        left: &[Composition<'_, W>],
        right: &[Composition<'_, W>],
        cursors: (Vec<Cursor>, Vec<Cursor>),
        range: Range<u64>,
        k: usize,
        part: &mut [f64],
    ) {
        begin(&mut self.left, &cursors.0);
        begin(&mut self.right, &cursors.1);
        self.common.resize_with(self.right.len(), Common::default);
        self.sums
            .resize_with(self.left.len() * self.right.len(), GroupSums::new);
        for (index, sums) in self.sums.iter_mut().enumerate() {
            let (row, column) = (index / self.right.len(), index % self.right.len());
            sums.clear(self.left[row].len(), self.right[column].len());
        }
        for base in range.clone().step_by(BLOCK) {
            let block = base..range.end.min(base + BLOCK as u64);
            for (group, items) in self.left.iter_mut().zip(left.chunks(GROUP)) {
                group.load(items, block.clone());
            }
            for (group, items) in self.right.iter_mut().zip(right.chunks(GROUP)) {
                group.load(items, block.clone());
            }
            self.add_block(left, right, k);
        }
        self.write(right.len(), part);
    }

    /// Add the sums of the loaded block.
    fn add_block<W: Word>(
        &mut self,
        left: &[Composition<'_, W>],
        right: &[Composition<'_, W>],
        k: usize,
    ) {
        let n_groups = self.right.len();
        for (column, columns) in self.right.iter().enumerate() {
            let items = &right[column * GROUP..];
            for (row, rows) in self.left.iter().enumerate() {
                let sums = &mut self.sums[row * n_groups + column];
                add_inside(rows, &left[row * GROUP..], columns, &mut sums.left_in_right);
                add_inside(columns, items, rows, &mut sums.right_in_left);
                add_counts(rows, columns, &mut sums.n_common);
            }
            let sums = self
                .sums
                .iter_mut()
                .skip(column)
                .step_by(n_groups)
                .map(|sums| &mut sums.common[..]);
            let rows = self.left.iter().zip(left.chunks(GROUP)).zip(sums);
            self.common[column].add(columns, items, rows, k);
        }
    }

    fn write(&self, n_columns: usize, part: &mut [f64]) {
        let n_groups = self.right.len();
        for (pair, value) in part.iter_mut().enumerate() {
            let (i, j) = (pair / n_columns, pair % n_columns);
            let sums = &self.sums[i / GROUP * n_groups + j / GROUP];
            let (i, j) = (i % GROUP, j % GROUP);
            let sums = Sums {
                common: sums.common[i][j],
                left_in_right: sums.left_in_right[i][j],
                right_in_left: sums.right_in_left[j][i],
                n_common: sums.n_common[i][j],
            };
            *value = sums.product();
        }
    }
}

/// Add b of every entry of `entries` to the items of `others` whose S contains it.
fn add_inside<W: Word>(
    entries: &Group,
    items: &[Composition<'_, W>],
    others: &Group,
    sums: &mut [[f64; GROUP]],
) {
    let n_lanes = others.cursors.len().div_ceil(LANES);
    for ((slots, values), sums) in entries.each(items, 0..BLOCK).zip(sums) {
        match n_lanes {
            1 => add_inside_lanes::<1>(slots, values, others, sums),
            2 => add_inside_lanes::<2>(slots, values, others, sums),
            3 | 4 => add_inside_lanes::<4>(slots, values, others, sums),
            _ => add_inside_lanes::<8>(slots, values, others, sums),
        }
    }
}

#[inline(always)]
fn inside_loop<const N: usize>(
    slots: &[u16],
    values: &[f32],
    others: &Group,
    sums: &mut [f64; GROUP],
) {
    let mut lanes = [[0.0; LANES]; N];
    for (lane, sums) in lanes.iter_mut().zip(sums.chunks_exact(LANES)) {
        lane.copy_from_slice(sums);
    }
    for (&slot, &value) in slots.iter().zip(values) {
        let slot = slot as usize;
        let word =
            others.left_words[slot / SIDE] & others.right_words[slot / SLOTS * SIDE + slot % SIDE];
        let value = (f64::from(value) + 1.0).to_bits();
        for (n, lane) in lanes.iter_mut().enumerate() {
            let spread = &SPREAD[(word >> (n * LANES)) as usize & 255];
            for (sum, bits) in lane.iter_mut().zip(spread) {
                *sum += f64::from_bits(value & bits);
            }
        }
    }
    for (lane, sums) in lanes.iter().zip(sums.chunks_exact_mut(LANES)) {
        sums.copy_from_slice(lane);
    }
}

#[inline(always)]
fn counts_loop(rows: &Group, columns: &Group, counts: &mut [[u64; GROUP]]) {
    let masks = |group: &Group, item: usize| -> [[u32; BLOCK]; 2] {
        let of = |masks: &[u32]| std::array::from_fn(|local| masks[item * BLOCK..][..BLOCK][local]);
        [of(&group.left_masks), of(&group.right_masks)]
    };
    for (i, counts) in (0..rows.len()).zip(counts) {
        let [a_left, a_right] = masks(rows, i);
        for (j, count) in (0..columns.len()).zip(counts) {
            let b_left = &columns.left_masks[j * BLOCK..][..BLOCK];
            let b_right = &columns.right_masks[j * BLOCK..][..BLOCK];
            let mut sum = 0;
            for local in 0..BLOCK {
                sum += (a_left[local] & b_left[local]).count_ones()
                    * (a_right[local] & b_right[local]).count_ones();
            }
            *count += u64::from(sum);
        }
    }
}

dispatch!(
    add_inside_lanes, inside_avx512, inside_avx2, inside_loop, [<const N: usize>], [::<N>],
    (slots: &[u16], values: &[f32], others: &Group, sums: &mut [f64; GROUP])
);
dispatch!(
    add_counts, counts_avx512, counts_avx2, counts_loop, [], [],
    (rows: &Group, columns: &Group, counts: &mut [[u64; GROUP]])
);
