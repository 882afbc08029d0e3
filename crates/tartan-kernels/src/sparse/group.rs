//! A group of items of one side, and its tables for one block of middles.

use std::ops::Range;

use super::dispatch::dispatch;
use super::shards::Cursor;
use crate::phylogeny::{Composition, Word, COUNT_SHIFT, LETTERS};

/// Items of one group: one bit each of a table word.
/// By format: 64 bits.
pub(super) const GROUP: usize = 64;
/// Accumulators that one byte of a table word steers.
/// By format: a byte.
pub(super) const LANES: usize = 8;
/// Table words of one middle: a letter each, of which 20 are used.
/// By format: the power of two above 20.
pub(super) const SIDE: usize = 32;
/// Slots of one middle: a slot is local middle << 10 | l << 5 | r.
pub(super) const SLOTS: usize = SIDE * SIDE;

/// Middles of a block: as many as let slots fit 16 bits.
/// By arithmetic: 16 bits.
pub(super) const BLOCK: usize = 64;
/// Items from which on it is faster to transpose masks than to spread their bits.
/// By judgement: a transposition costs the same for any number. `tartan bench phylogeny` measures tiles.
const TRANSPOSE: usize = 8;

/// Up to 64 items of one side.
#[derive(Default)]
pub(super) struct Group {
    pub(super) cursors: Vec<Cursor>,
    /// Where the entries of the block begin and end in each item's arrays.
    entries: Vec<Range<usize>>,
    /// Slots of the entries of the block, item after item.
    slots: Vec<u16>,
    /// Entries of each item before each local middle, and the end.
    firsts: Vec<[u32; BLOCK + 1]>,
    /// Masks of the block, item after item.
    pub(super) left_masks: Vec<u32>,
    pub(super) right_masks: Vec<u32>,
    /// Which items have a letter at the left of a middle; the same at the right.
    pub(super) left_words: Vec<u64>,
    pub(super) right_words: Vec<u64>,
}

/// Give every group its items' cursors.
pub(super) fn begin(groups: &mut Vec<Group>, cursors: &[Cursor]) {
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
    pub(super) fn load<W: Word>(&mut self, items: &[Composition<'_, W>], block: Range<u64>) {
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
