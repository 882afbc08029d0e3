//! Which bits are counted first, and those bits of each row.

use std::ops::Range;

/// Words of 32 bits of heads; each begins with the one before it.
/// Measured: of Morgan fingerprints of 2,048 bits, 256 decide all but 1.4e-4 of the pairs at a Tanimoto of 0.7, 1,024 all
/// but 0.8 % for the ten nearest. `tartan bench bits` holds the time.
pub(crate) const WIDTHS: [usize; 3] = [8, 16, 32];

/// Words of the widest.
/// By arithmetic.
pub(crate) const WORDS: usize = WIDTHS[WIDTHS.len() - 1];

/// Bits of the widest.
/// By arithmetic.
const BITS: usize = WORDS * 32;

/// Rows by which head bits are chosen.
/// By judgement: how often a bit occurs is known to a few per cent; the choice decides about speed alone.
const SAMPLE: usize = 512;

/// Numbers of bits and heads of some rows.
#[derive(Default)]
pub(crate) struct Heads {
    /// Bits of a row.
    pub ones: Vec<u32>,
    /// Of these, bits that are not in the head of each width.
    pub rest: Vec<[u32; WIDTHS.len()]>,
    pub words: Vec<[u32; WORDS]>,
}

impl Heads {
    /// Memory of an item.
    /// By arithmetic: its numbers and words, of 4 bytes.
    pub const ITEM_BYTES: usize = 4 * (1 + WIDTHS.len() + WORDS);

    /// Collect the bits of the head, of rows that end in a word that is no part of them.
    pub fn of(rows: &[&[u64]], order: &[u32]) -> Self {
        let mut found = Heads::default();
        for row in rows {
            let words = &row[..row.len() - 1];
            let mut head = [0; WORDS];
            for (place, &bit) in order.iter().enumerate() {
                let set = (words[bit as usize / 64] >> (bit % 64)) & 1;
                head[place / 32] |= (set as u32) << (place % 32);
            }
            let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
            let count = |words: &[u32]| words.iter().map(|word| word.count_ones()).sum::<u32>();
            found.ones.push(ones);
            found
                .rest
                .push(WIDTHS.map(|width| ones - count(&head[..width])));
            found.words.push(head);
        }
        found
    }

    pub fn extend(&mut self, other: &Heads, rows: Range<usize>) {
        self.ones.extend_from_slice(&other.ones[rows.clone()]);
        self.rest.extend_from_slice(&other.rest[rows.clone()]);
        self.words.extend_from_slice(&other.words[rows]);
    }
}

/// Return the bits of the head: those of which the most rows tell, 1 of 2 at best.
///
/// A bit that a part p of the rows has is shared by p^2 of the pairs, if rows are alike in nothing else; behind the head
/// it counts as shared by up to p. So what a bit of the head takes from the bound is about p (1 - p).
pub(crate) fn choose_order(rows: &[&[u64]]) -> Vec<u32> {
    let n_words = rows.first().map_or(0, |row| row.len() - 1);
    let step = rows.len().div_ceil(SAMPLE).max(1);
    let mut often = vec![0_usize; n_words * 64];
    let mut n_rows = 0;
    for row in rows.iter().step_by(step) {
        n_rows += 1;
        for (at, &word) in row[..n_words].iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                often[at * 64 + rest.trailing_zeros() as usize] += 1;
                rest &= rest - 1;
            }
        }
    }
    let mut order: Vec<u32> = (0..often.len() as u32).collect();
    let told = |&bit: &u32| std::cmp::Reverse(often[bit as usize] * (n_rows - often[bit as usize]));
    order.sort_by_key(told);
    order.truncate(BITS);
    order
}
