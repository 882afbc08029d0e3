//! Composition vectors: how much more often each string of length k occurs in a proteome than its parts suggest.
//!
//! With f(s) the number of occurrences of s and n_m the number of strings of length m,
//!
//! ```text
//! f0(l M r) = f(l M) f(M r) / f(M) * c,   c = n_k n_(k-2) / n_(k-1)^2,   a = f / f0 - 1 where f0 > 0, else 0
//! ```
//!
//! where l and r are letters and M is the *middle*, a string of length k - 2. Strings that are absent but
//! expected have a = -1 and are most of the vector: millions, where some hundred thousand strings are present. They
//! are the strings l M r whose halves l M and M r both occur. So a vector is kept as one row for each middle: two
//! masks of 20 bits say which l and which r occur, and only strings that are present have an entry. That
//! is an eighth to a tenth of the vector as positions and values, and [`crate::sparse`] compares it as it is.
//!
//! Everything comes from the occurrences (l, M, r) of middles, where l or r may be the end of the protein: those of one
//! M contain f(M), f(l M), f(M r), f(l M r). They are sorted, or counted in a table where that takes less memory; both
//! give the same bits. A vector may be as large as its input, so what counting takes beside it is kept small.

mod sorted;
mod table;
mod vector;
mod windows;

use crate::allowance::{Allowance, Exceeded};
use sorted::Sorter;
use table::{table_bytes, CountTable};
pub use vector::{Composition, Vector, VectorSummary, Word, COUNT_SHIFT, LETTERS};

/// Shortest and longest k. With 14 letters a record still fits 64 bits.
pub const K_RANGE: std::ops::RangeInclusive<usize> = 3..=14;
/// Largest k whose records fit 32 bits.
/// By arithmetic: 20**5 middles are 22 bits, and 10 for both neighbours.
pub const K_NARROW: usize = 7;

/// Bytes of codes that are kept for the next file.
/// By judgement: as KEPT_BYTES of composition/sorted.
const KEPT_BYTES: usize = 16 << 20;
/// A table is used where it takes less than this number of bytes a letter.
/// By judgement: records take 4 or 8 bytes a letter, and twice while they are sorted. `tartan bench phylogeny` holds
/// time and memory.
const TABLE_BYTES_A_LETTER: u64 = 6;

/// Number of middles that exist for k.
pub fn n_middles(k: usize) -> u64 {
    20u64.pow(k as u32 - 2)
}

/// Memory of the counting of one vector, kept between files.
#[derive(Default)]
pub struct Counter<W> {
    codes: Vec<u8>,
    sorter: Sorter<W>,
}

impl<W: Word> Counter<W> {
    /// Begin with a file.
    ///
    /// # Panics
    /// If k is outside [`K_RANGE`] or its records do not fit `W`.
    pub fn start(&mut self, k: usize, memory_bytes: u64) -> Counting<'_, W> {
        assert!(K_RANGE.contains(&k) && (size_of::<W>() == 8 || k <= K_NARROW));
        self.codes.clear();
        Counting {
            m: k - 2,
            counter: self,
            table: None,
            allowance: Allowance::new(memory_bytes),
        }
    }
}

/// The counting of one file, whose codes come in pieces.
pub struct Counting<'a, W> {
    m: usize,
    counter: &'a mut Counter<W>,
    table: Option<CountTable>,
    allowance: Allowance,
}

impl<W: Word> Counting<'_, W> {
    /// Count the codes of a piece. All pieces together begin and end with [`crate::fasta::BREAK`].
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Exceeded> {
        if let Some(table) = &mut self.table {
            table.push(piece);
            return Ok(());
        }
        let codes = &mut self.counter.codes;
        self.allowance.grow(codes, piece.len())?;
        codes.extend_from_slice(piece);
        if codes.len() as u64 > table_bytes(self.m) / TABLE_BYTES_A_LETTER {
            let mut table = CountTable::new(self.m, &mut self.allowance)?;
            table.push(codes);
            self.allowance.drop_list(codes);
            self.table = Some(table);
        }
        Ok(())
    }

    /// Make the vector of what was counted.
    pub fn finish(mut self) -> Result<Vector<W>, Exceeded> {
        let allowance = &mut self.allowance;
        let Counter { codes, sorter } = self.counter;
        let vector = match self.table {
            Some(table) => table.finish(allowance),
            None => sorter.count(codes, self.m, allowance),
        };
        if codes.capacity() > KEPT_BYTES {
            *codes = Vec::new();
        }
        vector
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fasta::BREAK;
    use std::collections::BTreeMap;

    /// The vector of codes that come in pieces of `step`.
    pub(crate) fn vector<W: Word>(
        counter: &mut Counter<W>,
        codes: &[u8],
        k: usize,
        step: usize,
    ) -> Vector<W> {
        let mut counting = counter.start(k, u64::MAX);
        codes
            .chunks(step)
            .for_each(|piece| counting.push(piece).unwrap());
        counting.finish().unwrap()
    }

    /// The same by both ways of counting, whatever the length.
    fn both<W: Word>(codes: &[u8], k: usize, step: usize) -> [Vector<W>; 2] {
        let mut allowance = Allowance::new(u64::MAX);
        let mut table = CountTable::new(k - 2, &mut allowance).unwrap();
        codes.chunks(step).for_each(|piece| table.push(piece));
        let sorted = Sorter::default().count(codes, k - 2, &mut allowance);
        [table.finish(&mut allowance).unwrap(), sorted.unwrap()]
    }

    /// Letter codes from a small generator, with breaks at both ends and inside.
    pub(crate) fn random_codes(length: usize, n_letters: u64, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut codes: Vec<u8> = (0..length)
            .map(|_| {
                if next() % 40 == 0 {
                    BREAK
                } else {
                    (next() % n_letters) as u8
                }
            })
            .collect();
        codes[0] = BREAK;
        codes[length - 1] = BREAK;
        codes
    }

    /// The definition, with maps of strings.
    pub(crate) fn oracle(codes: &[u8], k: usize) -> BTreeMap<Vec<u8>, f64> {
        let count = |m: usize| {
            let mut counts = BTreeMap::<Vec<u8>, f64>::new();
            for window in codes.windows(m).filter(|window| !window.contains(&BREAK)) {
                *counts.entry(window.to_vec()).or_default() += 1.0;
            }
            counts
        };
        let (long, half, middle) = (count(k), count(k - 1), count(k - 2));
        let n = |counts: &BTreeMap<Vec<u8>, f64>| counts.values().sum::<f64>();
        let c = n(&long) * n(&middle) / (n(&half) * n(&half));
        let mut vector = BTreeMap::new();
        for (left, f_left) in &half {
            for letter in 0..20 {
                let string = [&left[..], &[letter]].concat();
                let Some(f_right) = half.get(&string[1..]) else {
                    continue;
                };
                let expected = f_left * f_right / middle[&string[1..k - 1]] * c;
                vector.insert(
                    string.clone(),
                    long.get(&string).unwrap_or(&0.0) / expected - 1.0,
                );
            }
        }
        vector
    }

    /// All strings with f0 > 0 of a vector, and their values.
    fn expand<W: Word>(vector: Composition<'_, W>, k: usize) -> BTreeMap<Vec<u8>, f64> {
        let mut strings = BTreeMap::new();
        let mut entry = 0;
        for (middle, masks) in vector.middles.iter().zip(vector.masks.chunks(2)) {
            let mut letters = vec![0; k];
            let mut number = middle.to_u64();
            for place in (1..k - 1).rev() {
                letters[place] = (number % 20) as u8;
                number /= 20;
            }
            for code in (0..640u32).filter(|c| masks[0] >> (c >> 5) & masks[1] >> (c & 31) & 1 == 1)
            {
                letters[0] = (code >> 5) as u8;
                letters[k - 1] = (code & 31) as u8;
                strings.insert(letters.clone(), -1.0);
            }
            for _ in 0..masks[0] >> COUNT_SHIFT {
                let code = vector.codes[entry];
                letters[0] = (code >> 5) as u8;
                letters[k - 1] = (code & 31) as u8;
                strings.insert(letters.clone(), f64::from(vector.values[entry]));
                entry += 1;
            }
        }
        assert_eq!(entry, vector.values.len());
        strings
    }

    fn check<W: Word>(codes: &[u8], k: usize) {
        let mut counter = Counter::<W>::default();
        vector(&mut counter, &random_codes(200, 20, 5), k, 200);
        let vector = vector(&mut counter, codes, k, 17);
        let summary = vector.summary;
        let expected = oracle(codes, k);
        let found = expand(vector.view(), k);
        assert_eq!(found.len(), expected.len());
        assert_eq!(summary.n_expected, expected.len() as u64);
        for ((string, value), (other, reference)) in found.iter().zip(&expected) {
            assert_eq!(string, other);
            assert!(
                (value - reference).abs() <= 1e-7 * (1.0 + reference.abs()),
                "{value} {reference}"
            );
        }
        let norm = expected.values().map(|a| a * a).sum::<f64>().sqrt();
        assert!(
            (summary.norm - norm).abs() <= 1e-6 * (1.0 + norm),
            "k={k} {} {norm}",
            summary.norm
        );
    }

    #[test]
    fn equals_the_definition() {
        for k in K_RANGE {
            for (length, n_letters) in [(3000, 20), (1500, 4), (700, 2)] {
                let codes = random_codes(length, n_letters, k as u64);
                check::<u64>(&codes, k);
                if k <= K_NARROW {
                    check::<u32>(&codes, k);
                }
            }
        }
    }

    #[test]
    fn reaches_the_largest_string() {
        for k in K_RANGE {
            let mut codes = vec![19; 40];
            codes[0] = BREAK;
            codes[39] = BREAK;
            check::<u64>(&codes, k);
            if k <= K_NARROW {
                check::<u32>(&codes, k);
            }
        }
    }

    #[test]
    fn proteins_shorter_than_k_count_in_the_shorter_strings() {
        let codes = [20, 1, 2, 3, 4, 5, 6, 20, 2, 3, 20, 2, 20, 20, 3, 4, 20];
        let mut counter = Counter::<u32>::default();
        let mut n_windows = |codes: &[u8]| vector(&mut counter, codes, 4, 100).summary.n_windows;
        assert_eq!(n_windows(&codes), [3, 4, 7]);
        assert_eq!(n_windows(&[20, 1, 2, 20]), [0, 0, 1]);
        assert_eq!(n_windows(&[20]), [0; 3]);
        assert_eq!(
            vector(&mut counter, &[20], 4, 1).summary,
            VectorSummary::default()
        );
        check::<u32>(&codes, 4);
    }

    #[test]
    fn tables_and_sorting_agree_to_the_bit() {
        for k in [3, 4, 5] {
            for (length, n_letters, step) in [
                (2_500_000, 20, 90_000),
                (200_000, 20, 5000),
                (3000, 4, 1),
                (90_000, 2, 333),
            ] {
                let codes = random_codes(length, n_letters, k as u64);
                let [table, sorted] = both::<u32>(&codes, k, step);
                assert_eq!(table.summary, sorted.summary);
                assert!(table.middles == sorted.middles && table.masks == sorted.masks);
                assert!(table.codes == sorted.codes && table.values == sorted.values);
            }
        }
    }

    #[test]
    fn tables_count_beyond_their_counters() {
        let mut codes = vec![7; 200_000];
        codes[0] = BREAK;
        codes[199_999] = BREAK;
        let [table, sorted] = both::<u32>(&codes, 4, 70_000);
        assert_eq!(table.summary, sorted.summary);
        assert_eq!(table.values, sorted.values);
        assert_eq!(table.summary.n_windows, [199_995, 199_996, 199_997]);
    }

    #[test]
    fn long_input_is_counted_in_a_table() {
        let codes = random_codes(60_000, 20, 1);
        let mut counter = Counter::<u32>::default();
        let mut counting = counter.start(4, u64::MAX);
        codes
            .chunks(1000)
            .for_each(|piece| counting.push(piece).unwrap());
        assert!(counting.table.is_some() && counting.counter.codes.capacity() == 0);
        let found = counting.finish().unwrap();
        let [_, sorted] = both::<u32>(&codes, 4, 1);
        assert!(found.codes == sorted.codes && found.values == sorted.values);
    }

    #[test]
    fn memory_is_taken_up_to_what_is_allowed() {
        let codes = random_codes(300_000, 20, 1);
        for k in [5, 8] {
            let mut counter = Counter::<u64>::default();
            let mut counted = |bytes| {
                let mut counting = counter.start(k, bytes);
                for piece in codes.chunks(1000) {
                    counting.push(piece)?;
                }
                counting.finish().map(|vector| vector.values.len())
            };
            assert_eq!(
                counted(1 << 20),
                Err(Exceeded {
                    allowed_bytes: 1 << 20
                })
            );
            assert_eq!(counted(200_000), counted(200_000));
            assert!(counted(1 << 26).unwrap() > 100_000);
        }
    }
}
