//! The tables of one block of middles, and the sums that run over them.

use std::ops::Range;

use super::common::Common;
use super::dispatch::dispatch;
use super::Cursor;
use crate::composition::{Composition, Word, COUNT_SHIFT, LETTERS};

/// Items of one group: one bit each of a table word.
pub(super) const GROUP: usize = 64;
/// Accumulators that one byte of a table word steers.
pub(super) const LANES: usize = 8;
/// Table words of one middle: a letter each, of which 20 are used.
pub(super) const SIDE: usize = 32;
/// Slots of one middle: a slot is local middle << 10 | l << 5 | r.
pub(super) const SLOTS: usize = SIDE * SIDE;

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

/// Middles of a block: as many as let slots fit 16 bits.
const BLOCK: usize = 64;
/// Items from which on it is faster to transpose masks than to spread their bits.
const TRANSPOSE: usize = 8;

/// Memory of one thread, kept between tiles.
#[derive(Default)]
pub(super) struct Workspace {
    left: Vec<Group>,
    right: Vec<Group>,
    common: Vec<Common>,
    sums: Vec<GroupSums>,
}

/// Up to 64 items of one side.
#[derive(Default)]
pub(super) struct Group {
    cursors: Vec<Cursor>,
    /// Where the entries of the block begin and end in each item's arrays.
    entries: Vec<Range<usize>>,
    /// Slots of the entries of the block, item after item.
    slots: Vec<u16>,
    /// Entries of each item before each local middle, and the end.
    firsts: Vec<[u32; BLOCK + 1]>,
    /// Masks of the block, item after item.
    left_masks: Vec<u32>,
    right_masks: Vec<u32>,
    /// Which items have a letter at the left of a middle; the same at the right.
    left_words: Vec<u64>,
    right_words: Vec<u64>,
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

    /// Begin anew, for so many rows and columns.
    fn clear(&mut self, n_rows: usize, n_columns: usize) {
        self.common[..n_rows].fill([0.0; GROUP]);
        self.left_in_right[..n_rows].fill([0.0; GROUP]);
        self.right_in_left[..n_columns].fill([0.0; GROUP]);
        self.n_common[..n_rows].fill([0; GROUP]);
    }
}

impl Workspace {
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
            let sums = super::Sums {
                common: sums.common[i][j],
                left_in_right: sums.left_in_right[i][j],
                right_in_left: sums.right_in_left[j][i],
                n_common: sums.n_common[i][j],
            };
            *value = sums.product();
        }
    }
}

/// Give every group its items' cursors.
fn begin(groups: &mut Vec<Group>, cursors: &[Cursor]) {
    groups.resize_with(cursors.len().div_ceil(GROUP), Group::default);
    for (group, cursors) in groups.iter_mut().zip(cursors.chunks(GROUP)) {
        group.cursors.clear();
        group.cursors.extend_from_slice(cursors);
        group.left_words.resize(BLOCK * SIDE, 0);
        group.right_words.resize(BLOCK * SIDE, 0);
    }
}

impl Group {
    /// Fill the tables from the middles of `block`; the cursors move behind it.
    fn load<W: Word>(&mut self, items: &[Composition<'_, W>], block: Range<u64>) {
        self.slots.clear();
        self.entries.clear();
        self.firsts.clear();
        for masks in [&mut self.left_masks, &mut self.right_masks] {
            masks.clear();
            masks.resize(self.cursors.len() * BLOCK, 0);
        }
        for (index, (cursor, item)) in self.cursors.iter_mut().zip(items).enumerate() {
            let first = cursor.entry;
            let mut firsts = [0; BLOCK + 1];
            while let Some(middle) = item
                .middles
                .get(cursor.middle)
                .map(|m| m.to_u64())
                .filter(|&m| m < block.end)
            {
                let local = (middle - block.start) as usize;
                let (left, right) = (
                    item.masks[2 * cursor.middle],
                    item.masks[2 * cursor.middle + 1],
                );
                self.left_masks[index * BLOCK + local] = left & LETTERS;
                self.right_masks[index * BLOCK + local] = right;
                let n_entries = (left >> COUNT_SHIFT) as usize;
                let codes = &item.codes[cursor.entry..cursor.entry + n_entries];
                self.slots
                    .extend(codes.iter().map(|code| (local * SLOTS) as u16 | code));
                firsts[local + 1] = n_entries as u32;
                cursor.entry += n_entries;
                cursor.middle += 1;
            }
            for local in 0..BLOCK {
                firsts[local + 1] += firsts[local];
            }
            self.firsts.push(firsts);
            self.entries.push(first..cursor.entry);
        }
        if self.len() < TRANSPOSE {
            spread_masks(&self.left_masks, &mut self.left_words);
            spread_masks(&self.right_masks, &mut self.right_words);
        } else {
            transpose_masks(
                &self.left_masks,
                &self.right_masks,
                &mut self.left_words,
                &mut self.right_words,
            );
        }
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.cursors.len()
    }

    /// Slots and values of each item, for a range of local middles.
    pub(super) fn each<'a, W: Word>(
        &'a self,
        items: &'a [Composition<'_, W>],
        middles: Range<usize>,
    ) -> impl Iterator<Item = (&'a [u16], &'a [f32])> + 'a {
        let mut rest = &self.slots[..];
        self.entries
            .iter()
            .zip(&self.firsts)
            .zip(items)
            .map(move |((entries, firsts), item)| {
                let (slots, others) = rest.split_at(entries.len());
                rest = others;
                let range = firsts[middles.start] as usize..firsts[middles.end] as usize;
                (&slots[range.clone()], &item.values[entries.clone()][range])
            })
    }
}

/// Turn masks (item, middle) of letters into words (middle, letter) of items, bit by bit: for few items.
fn spread_masks(masks: &[u32], words: &mut [u64]) {
    words.fill(0);
    for (item, masks) in masks.chunks(BLOCK).enumerate() {
        for (words, &mask) in words.chunks_mut(SIDE).zip(masks) {
            let mut rest = mask;
            while rest != 0 {
                words[rest.trailing_zeros() as usize] |= 1 << item;
                rest &= rest - 1;
            }
        }
    }
}

/// The same for both sides at once, by transposing 64 x 64 bits for each middle.
#[inline(always)]
fn transpose_loop(
    left_masks: &[u32],
    right_masks: &[u32],
    left_words: &mut [u64],
    right_words: &mut [u64],
) {
    let words = left_words
        .chunks_exact_mut(SIDE)
        .zip(right_words.chunks_exact_mut(SIDE));
    for (local, (left, right)) in words.enumerate() {
        let mut bits = [0; GROUP];
        let masks = left_masks
            .chunks_exact(BLOCK)
            .zip(right_masks.chunks_exact(BLOCK));
        for (bits, (left, right)) in bits.iter_mut().zip(masks) {
            *bits = u64::from(left[local]) | u64::from(right[local]) << SIDE;
        }
        transpose(&mut bits);
        left.copy_from_slice(&bits[..SIDE]);
        right.copy_from_slice(&bits[SIDE..]);
    }
}

/// Exchange bit j of word i with bit i of word j: squares of half the side, then of a quarter, and so on.
#[inline(always)]
fn transpose(bits: &mut [u64; GROUP]) {
    let mut mask = u64::MAX >> 32;
    for side in [32, 16, 8, 4, 2, 1] {
        for pair in bits.chunks_exact_mut(2 * side) {
            let (low, high) = pair.split_at_mut(side);
            for (low, high) in low.iter_mut().zip(high) {
                let change = (*low >> side ^ *high) & mask;
                *high ^= change;
                *low ^= change << side;
            }
        }
        mask ^= mask << (side / 2);
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
dispatch!(
    transpose_masks, transpose_avx512, transpose_avx2, transpose_loop, [], [],
    (left_masks: &[u32], right_masks: &[u32], left_words: &mut [u64], right_words: &mut [u64])
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_masks_are_spread_masks() {
        for n_items in [1, 8, 63, 64] {
            let masks = |factor: usize| -> Vec<u32> {
                (0..n_items * BLOCK)
                    .map(|at| (at * factor * 2_654_435 + at / 3) as u32 & LETTERS)
                    .collect()
            };
            let (left, right) = (masks(7), masks(11));
            let mut spread = [vec![1; BLOCK * SIDE], vec![1; BLOCK * SIDE]];
            let mut transposed = [vec![2; BLOCK * SIDE], vec![2; BLOCK * SIDE]];
            spread_masks(&left, &mut spread[0]);
            spread_masks(&right, &mut spread[1]);
            let [left_words, right_words] = &mut transposed;
            transpose_masks(&left, &right, left_words, right_words);
            assert_eq!(spread, transposed);
            let mut plain = [vec![3; BLOCK * SIDE], vec![3; BLOCK * SIDE]];
            let [left_words, right_words] = &mut plain;
            transpose_loop(&left, &right, left_words, right_words);
            assert_eq!(spread, plain);
        }
    }
}
