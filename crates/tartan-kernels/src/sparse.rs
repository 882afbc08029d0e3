//! Distances of composition vectors, a tile at a time.
//!
//! Write a = b - 1 on the strings with f0 > 0 (the set S) and b = 0 for the absent ones. Then
//!
//! ```text
//! sum(a a') = sum(b b')  -  sum of b over S'  -  sum of b' over S  +  |S and S'|
//! ```
//!
//! and the millions of -1 are never touched one by one. `|S and S'|` is, for each middle, the number of common left
//! letters times the number of common right letters: two population counts. "b over S'" is one test of two bits
//! for each entry of one side, and is done for 64 items of the other side at once: tables hold, for each middle
//! and letter, a word with one bit an item. `sum(b b')` meets the columns in a table where strings are dense
//! and in a list for each string where they are rare.
//!
//! The middles are walked in blocks, so that the tables of all items of a tile stay in the second cache level. The
//! blocks are grouped into shards that threads share. Sums run in f64 in the order of strings within a shard, and
//! over the shards in order: a distance depends on the two vectors only, not on the tile, the number of threads or
//! the instruction set, and is the same with the two exchanged. Above k = 7, where tables would be mostly empty, pairs are
//! merged one by one, with the same sums in the same order.

use std::cell::RefCell;

use rayon::prelude::*;

use crate::phylogeny::{Composition, Word, K_NARROW, LETTERS};

mod block;
mod common;
pub(crate) mod dispatch;
mod group;
mod shards;

use block::ThreadMemory;
use shards::{shard_begin, Cursor, Sums, SHARDS};

/// Below this many pairs the tables cost more than they save.
/// By judgement, as said. `tartan bench phylogeny` measures tiles.
const FEW_PAIRS: usize = 6;

/// Distances (1 - C) / 2 of all vectors of `left` with all of `right`, row by row.
///
/// A vector of norm zero has distance NaN.
///
/// # Panics
/// If `out` does not hold `left.len() * right.len()` numbers, or a vector's arrays do not fit each other.
pub fn distances<W: Word>(
    left: &[Composition<'_, W>],
    right: &[Composition<'_, W>],
    k: usize,
    out: &mut [f64],
) {
    assert_eq!(out.len(), left.len() * right.len());
    for vector in left.iter().chain(right) {
        assert!(vector.fits(), "the arrays of a vector fit each other");
    }
    if out.is_empty() {
        return;
    }
    if k > K_NARROW || out.len() <= FEW_PAIRS {
        merge_tile(left, right, k, out);
    } else {
        block_tile(left, right, k, out);
    }
    for (row, a) in out.chunks_mut(right.len()).zip(left) {
        for (product, b) in row.iter_mut().zip(right) {
            // Of equal vectors it is a little below 0 by rounding.
            *product = ((1.0 - *product / (a.norm * b.norm)) / 2.0).clamp(0.0, 1.0);
        }
    }
}

/// Fill `out` with sums of products, through tables of blocks of middles.
fn block_tile<W: Word>(
    left: &[Composition<'_, W>],
    right: &[Composition<'_, W>],
    k: usize,
    out: &mut [f64],
) {
    thread_local! {
        static WORKSPACE: RefCell<ThreadMemory> = RefCell::default();
    }
    let starts = |side: &[Composition<'_, W>]| {
        side.par_iter()
            .map(|vector| vector.shards(k))
            .collect::<Vec<_>>()
    };
    let (left_starts, right_starts) = (starts(left), starts(right));
    let at = |starts: &[Vec<Cursor>], shard: u64| {
        starts
            .iter()
            .map(|places| places[shard as usize])
            .collect::<Vec<_>>()
    };
    let parts: Vec<Vec<f64>> = (0..SHARDS)
        .into_par_iter()
        .map(|shard| {
            let mut part = vec![0.0; left.len() * right.len()];
            let range = shard_begin(shard, k)..shard_begin(shard + 1, k);
            let cursors = (at(&left_starts, shard), at(&right_starts, shard));
            WORKSPACE.with_borrow_mut(|workspace| {
                workspace.shard(left, right, cursors, range, k, &mut part)
            });
            part
        })
        .collect();
    out.fill(0.0);
    for part in parts {
        for (sum, value) in out.iter_mut().zip(part) {
            *sum += value;
        }
    }
}

/// Fill `out` with sums of products, merging pair by pair.
pub(crate) fn merge_tile<W: Word>(
    left: &[Composition<'_, W>],
    right: &[Composition<'_, W>],
    k: usize,
    out: &mut [f64],
) {
    let ends: Vec<u64> = (0..SHARDS).map(|shard| shard_begin(shard + 1, k)).collect();
    out.par_iter_mut().enumerate().for_each(|(pair, sum)| {
        *sum = merge(&left[pair / right.len()], &right[pair % right.len()], &ends);
    });
}

/// Sum of products of one pair, shard by shard.
fn merge<W: Word>(a: &Composition<'_, W>, b: &Composition<'_, W>, ends: &[u64]) -> f64 {
    let (mut i, mut j) = (Cursor::default(), Cursor::default());
    let mut total = 0.0;
    for &end in ends {
        let mut sums = Sums::default();
        while i.middle < a.middles.len() && j.middle < b.middles.len() {
            let (left, right) = (a.middles[i.middle], b.middles[j.middle]);
            if left.min(right).to_u64() >= end {
                break;
            }
            if left == right {
                merge_middle(a, b, i, j, &mut sums);
            }
            // Both conditions move a cursor without a branch: which one is larger cannot be foreseen.
            i.entry += if left <= right {
                a.n_entries(i.middle)
            } else {
                0
            };
            j.entry += if right <= left {
                b.n_entries(j.middle)
            } else {
                0
            };
            i.middle += usize::from(left <= right);
            j.middle += usize::from(right <= left);
        }
        total += sums.product();
    }
    total
}

/// Add what one middle that both vectors have contributes.
fn merge_middle<W: Word>(
    a: &Composition<'_, W>,
    b: &Composition<'_, W>,
    i: Cursor,
    j: Cursor,
    sums: &mut Sums,
) {
    let masks = |v: &Composition<'_, W>, at: Cursor| {
        (v.masks[2 * at.middle] & LETTERS, v.masks[2 * at.middle + 1])
    };
    let ((a_left, a_right), (b_left, b_right)) = (masks(a, i), masks(b, j));
    sums.n_common += u64::from((a_left & b_left).count_ones() * (a_right & b_right).count_ones());
    let inside =
        |code: u16, left: u32, right: u32| (left >> (code >> 5) & right >> (code & 31) & 1) == 1;
    let entries = |v: &Composition<'_, W>, at: Cursor| at.entry..at.entry + v.n_entries(at.middle);
    for e in entries(a, i).filter(|&e| inside(a.codes[e], b_left, b_right)) {
        sums.left_in_right += f64::from(a.values[e]) + 1.0;
    }
    let mut e = i.entry;
    let end = entries(a, i).end;
    for f in entries(b, j).filter(|&f| inside(b.codes[f], a_left, a_right)) {
        sums.right_in_left += f64::from(b.values[f]) + 1.0;
        while e < end && a.codes[e] < b.codes[f] {
            e += 1;
        }
        if e < end && a.codes[e] == b.codes[f] {
            sums.common += (f64::from(a.values[e]) + 1.0) * (f64::from(b.values[f]) + 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phylogeny::tests::{oracle, random_codes, vector};
    use crate::phylogeny::{Counter, Vector, COUNT_SHIFT};

    fn vectors<W: Word + Default>(k: usize, n: usize) -> (Vec<Vec<u8>>, Vec<Vector<W>>) {
        let codes: Vec<_> = (0..n)
            .map(|i| random_codes(900 + 40 * i, 3 + i as u64 % 5, 7 + i as u64))
            .collect();
        let mut counter = Counter::default();
        let owned = codes
            .iter()
            .map(|codes| vector(&mut counter, codes, k, 100));
        let owned = owned.collect();
        (codes, owned)
    }

    fn views<W: Word>(owned: &[Vector<W>]) -> Vec<Composition<'_, W>> {
        owned.iter().map(Vector::view).collect()
    }

    fn check_definition<W: Word + Default>(k: usize) {
        let (codes, owned) = vectors::<W>(k, 8);
        let views = views(&owned);
        let mut found = vec![0.0; 64];
        distances(&views, &views, k, &mut found);
        let maps: Vec<_> = codes.iter().map(|codes| oracle(codes, k)).collect();
        let norm = |map: &std::collections::BTreeMap<Vec<u8>, f64>| {
            map.values().map(|x| x * x).sum::<f64>().sqrt()
        };
        let norms: Vec<_> = maps.iter().map(norm).collect();
        for (i, a) in maps.iter().enumerate() {
            for (j, b) in maps.iter().enumerate() {
                let dot: f64 = a.iter().filter_map(|(s, x)| b.get(s).map(|y| x * y)).sum();
                let distance = (1.0 - dot / (norms[i] * norms[j])) / 2.0;
                assert!(
                    (found[8 * i + j] - distance).abs() < 1e-7,
                    "k={k} {i} {j} {} {distance}",
                    found[8 * i + j]
                );
            }
        }
    }

    #[test]
    fn equals_the_definition() {
        for k in [3, 4, 5, 7] {
            check_definition::<u32>(k);
        }
        for k in [8, 11, 14] {
            check_definition::<u64>(k);
        }
    }

    const SHAPES: [(usize, usize); 6] = [(1, 7), (7, 1), (3, 66), (9, 17), (64, 64), (70, 130)];

    fn check_tables(k: usize, shapes: &[(usize, usize)]) {
        let (_, owned) = vectors::<u32>(k, 150);
        let views = views(&owned);
        for &(m, n) in shapes {
            let (left, right) = (&views[..m], &views[150 - n..]);
            let (mut tables, mut merged) = (vec![0.0; m * n], vec![0.0; m * n]);
            block_tile(left, right, k, &mut tables);
            merge_tile(left, right, k, &mut merged);
            assert!(tables == merged, "k={k} m={m} n={n}");
            let mut exchanged = vec![0.0; m * n];
            block_tile(right, left, k, &mut exchanged);
            assert!((0..m * n).all(|p| merged[p] == exchanged[p % n * m + p / n]));
        }
    }

    // One test for each length: they run side by side.

    #[test]
    fn tables_and_merge_agree_to_the_bit_for_3() {
        check_tables(3, &SHAPES);
    }

    #[test]
    fn tables_and_merge_agree_to_the_bit_for_5() {
        check_tables(5, &SHAPES);
    }

    #[test]
    fn tables_and_merge_agree_to_the_bit_for_6() {
        check_tables(6, &SHAPES[..4]); // the others take 15 seconds and differ in nothing that depends on k
    }

    #[test]
    fn zero_vectors_and_empty_tiles() {
        let empty = Composition {
            middles: &[] as &[u32],
            masks: &[],
            codes: &[],
            values: &[],
            norm: 0.0,
        };
        let mut out = vec![0.0; 16];
        distances(&[empty; 4], &[empty; 4], 5, &mut out);
        assert!(out.iter().all(|d| d.is_nan()));
        distances(&[empty; 4], &[], 5, &mut []);
    }

    #[test]
    #[should_panic(expected = "fit each other")]
    fn arrays_that_do_not_fit_are_refused() {
        let masks = [3 << COUNT_SHIFT | 1, 1];
        let broken = Composition {
            middles: &[0u32],
            masks: &masks,
            codes: &[0],
            values: &[0.0],
            norm: 1.0,
        };
        distances(&[broken], &[broken], 5, &mut [0.0]);
    }
}
