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
//! Everything comes from one sort: each occurrence of a middle is one record (M, l, r), where l or r may be the
//! end of the protein. Records of one M are neighbours after the sort and contain f(M), f(l M), f(M r), f(l M r).

use crate::fasta::BREAK;

/// Shortest and longest k. With 14 letters a record still fits 64 bits.
pub const K_RANGE: std::ops::RangeInclusive<usize> = 3..=14;
/// Largest k whose records fit 32 bits.
pub const K_NARROW: usize = 7;

/// Where the number of entries of a middle begins in its mask of left letters.
pub const COUNT_SHIFT: u32 = 20;
/// The letters in a mask.
pub const LETTERS: u32 = (1 << COUNT_SHIFT) - 1;

const PAIR_BITS: u32 = 10;
const SIDE_BITS: u32 = 5;
/// Most bits of one pass of the sort: 2^11 write positions stay in the first cache level.
const DIGIT_BITS: u32 = 11;

/// A record or a middle: u32 up to k = 7, u64 above.
pub trait Word: Copy + Ord + Default + Send + Sync + std::fmt::Debug + 'static {
    fn from_u64(value: u64) -> Self;
    fn to_u64(self) -> u64;
}

impl Word for u32 {
    #[inline(always)]
    fn from_u64(value: u64) -> Self {
        value as u32
    }
    #[inline(always)]
    fn to_u64(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u64 {
    #[inline(always)]
    fn from_u64(value: u64) -> Self {
        value
    }
    #[inline(always)]
    fn to_u64(self) -> u64 {
        self
    }
}

/// A composition vector that lives elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Composition<'a, W> {
    /// Middles whose left and right letters both exist, ascending, as numbers to base 20.
    pub middles: &'a [W],
    /// Two words a middle: left letters with the number of entries above [`COUNT_SHIFT`], right letters.
    pub masks: &'a [u32],
    /// One code l << 5 | r an entry, in the order of middles, ascending within one.
    pub codes: &'a [u16],
    /// a = f / f0 - 1 of each entry.
    pub values: &'a [f32],
    /// Euclidean norm of the vector a, over all strings with f0 > 0.
    pub norm: f64,
}

/// Memory of the counting of one vector, and the vector; kept between files.
#[derive(Default)]
pub struct Counter<W> {
    records: Vec<W>,
    spare: Vec<W>,
    middles: Vec<W>,
    masks: Vec<u32>,
    codes: Vec<u16>,
    values: Vec<f32>,
    n_middles: usize,
    n_entries: usize,
}

/// Numbers of one vector that are not in its arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Euclidean norm of a.
    pub norm: f64,
    /// Strings with f0 > 0.
    pub n_expected: u64,
    /// Strings of length k, k - 1 and k - 2 that were counted, with repeats.
    pub n_windows: [u64; 3],
}

/// Number of middles that exist for k.
pub fn n_middles(k: usize) -> u64 {
    20u64.pow(k as u32 - 2)
}

impl<W: Word> Counter<W> {
    /// Compute the composition vector of letter codes that begin and end with [`BREAK`].
    ///
    /// # Panics
    /// If k is outside [`K_RANGE`] or its records do not fit `W`.
    pub fn count(&mut self, codes: &[u8], k: usize) -> Summary {
        assert!(K_RANGE.contains(&k) && (size_of::<W>() == 8 || k <= K_NARROW));
        let n_windows = self.collect(codes, k - 2);
        let bits = 64 - (n_middles(k) - 1).leading_zeros() + PAIR_BITS;
        sort(&mut self.records, &mut self.spare, bits);
        self.tally(n_windows)
    }

    /// The vector of the last call of [`Counter::count`].
    pub fn vector(&self, norm: f64) -> Composition<'_, W> {
        Composition {
            middles: &self.middles[..self.n_middles],
            masks: &self.masks[..2 * self.n_middles],
            codes: &self.codes[..self.n_entries],
            values: &self.values[..self.n_entries],
            norm,
        }
    }

    /// Write a record for each middle of length m; returns the numbers of strings of length m + 2, m + 1, m.
    fn collect(&mut self, codes: &[u8], m: usize) -> [u64; 3] {
        let top = 20u64.pow(m as u32 - 1);
        let (mut n_k, mut n_left) = (0, 0);
        self.records.clear();
        self.records.reserve(codes.len());
        let mut start = 1;
        while start < codes.len() {
            let end = start + memchr::memchr(BREAK, &codes[start..]).unwrap_or(0);
            if end - start >= m {
                let mut middle = codes[start..end]
                    .iter()
                    .take(m - 1)
                    .fold(0, |sum, &c| sum * 20 + u64::from(c));
                // Windows of [left, middle, right]; the breaks around a protein are among its codes.
                let windows = codes[start - 1..=end].windows(m + 2);
                self.records.extend(windows.map(|window| {
                    let (left, right) = (window[0], window[m + 1]);
                    middle = middle * 20 + u64::from(window[m]);
                    let record =
                        middle << PAIR_BITS | u64::from(left) << SIDE_BITS | u64::from(right);
                    middle -= top * u64::from(window[1]);
                    W::from_u64(record)
                }));
                n_left += (end - start - m) as u64;
                n_k += (end - start - m).saturating_sub(1) as u64;
            }
            start = end + 1;
        }
        [n_k, n_left, self.records.len() as u64]
    }

    /// Turn the sorted records into masks and entries.
    fn tally(&mut self, n_windows: [u64; 3]) -> Summary {
        let [n_k, n_left, n_middle] = n_windows.map(|n| n as f64);
        let scale = n_left * n_left / (n_k.max(1.0) * n_middle.max(1.0));
        self.grow_outputs();
        let mut row = Row::default();
        let (mut n_middles, mut n_entries) = (0, 0);
        let (mut squares, mut n_expected) = (0.0, 0);
        let mut rest = &self.records[..];
        while let Some(first) = rest.first() {
            let middle = first.to_u64() >> PAIR_BITS;
            let (group, others) = rest.split_at(row.count(rest));
            rest = others;
            let (lefts, rights) = (row.left_mask & LETTERS, row.right_mask & LETTERS);
            if lefts != 0 && rights != 0 {
                let out = (&mut self.codes[n_entries..], &mut self.values[n_entries..]);
                let (n, sum) = row.emit(group, group.len() as f64 * scale, out);
                let n_strings = lefts.count_ones() * rights.count_ones();
                squares += sum + f64::from(n_strings - n);
                n_expected += u64::from(n_strings);
                self.middles[n_middles] = W::from_u64(middle);
                self.masks[2 * n_middles] = lefts | n << COUNT_SHIFT;
                self.masks[2 * n_middles + 1] = rights;
                n_middles += 1;
                n_entries += n as usize;
            }
            row.clear();
        }
        (self.n_middles, self.n_entries) = (n_middles, n_entries);
        Summary {
            norm: squares.sqrt(),
            n_expected,
            n_windows,
        }
    }

    /// Let each output hold what the records can give; room is never given back.
    fn grow_outputs(&mut self) {
        let count = self.records.len();
        if self.values.len() < count {
            self.middles.resize(count, W::default());
            self.masks.resize(2 * count, 0);
            self.codes.resize(count, 0);
            self.values.resize(count, 0.0);
        }
    }
}

/// What the records of one middle say of its neighbours.
#[derive(Default)]
struct Row {
    lefts: [u32; 32],
    rights: [u32; 32],
    left_mask: u32,
    right_mask: u32,
}

impl Row {
    /// Count the neighbours of the first middle; returns its number of records. The row must be clear.
    #[inline(always)]
    fn count<W: Word>(&mut self, records: &[W]) -> usize {
        let middle = records[0].to_u64() >> PAIR_BITS;
        let (mut left_mask, mut right_mask) = (0, 0);
        let mut size = 0;
        for record in records.iter().map(|record| record.to_u64()) {
            if record >> PAIR_BITS != middle {
                break;
            }
            let (left, right) = halves(record);
            self.lefts[left] += 1;
            self.rights[right] += 1;
            left_mask |= 1 << left;
            right_mask |= 1 << right;
            size += 1;
        }
        (self.left_mask, self.right_mask) = (left_mask, right_mask);
        size
    }

    /// Write the entries of a group; returns their number and the sum of their squares.
    #[inline(always)]
    fn emit<W: Word>(
        &self,
        group: &[W],
        factor: f64,
        (codes, values): (&mut [u16], &mut [f32]),
    ) -> (u32, f64) {
        let (mut n, mut squares) = (0, 0.0);
        for run in group.chunk_by(|a, b| a == b) {
            let (left, right) = halves(run[0].to_u64());
            if left < 20 && right < 20 {
                let expected = f64::from(self.lefts[left]) * f64::from(self.rights[right]);
                let value = (run.len() as f64 * factor / expected - 1.0) as f32;
                codes[n] = (left << SIDE_BITS | right) as u16;
                values[n] = value;
                squares += f64::from(value) * f64::from(value);
                n += 1;
            }
        }
        (n as u32, squares)
    }

    /// Forget the counts. All of them: which ones were counted cannot be foreseen, and a fill has no branch.
    #[inline(always)]
    fn clear(&mut self) {
        self.lefts.fill(0);
        self.rights.fill(0);
    }
}

/// Codes of the letters at the left and at the right of the middle of a record.
#[inline(always)]
fn halves(record: u64) -> (usize, usize) {
    (record as usize >> SIDE_BITS & 31, record as usize & 31)
}

/// Sort records of `bits` bits: a radix sort from the lowest digit.
fn sort<W: Word>(records: &mut Vec<W>, spare: &mut Vec<W>, bits: u32) {
    let n_passes = bits.div_ceil(DIGIT_BITS);
    let digit_bits = bits.div_ceil(n_passes);
    let mask = (1 << digit_bits) - 1;
    let digit = |record: W, pass: usize| {
        // The second mask changes nothing but tells the compiler that the places are there.
        (record.to_u64() >> (pass as u32 * digit_bits)) as usize & mask & ((1 << DIGIT_BITS) - 1)
    };
    if spare.len() < records.len() {
        spare.resize(records.len(), W::default());
    }
    let mut places = vec![[0u32; 1 << DIGIT_BITS]; n_passes as usize];
    for record in &*records {
        for (pass, places) in places.iter_mut().enumerate() {
            places[digit(*record, pass)] += 1;
        }
    }
    spare.truncate(records.len());
    for (pass, places) in places.iter_mut().enumerate() {
        let mut sum = 0;
        for place in places.iter_mut() {
            sum += std::mem::replace(place, sum);
        }
        let out = &mut spare[..];
        for &record in &*records {
            let place = &mut places[digit(record, pass)];
            out[*place as usize] = record;
            *place += 1;
        }
        std::mem::swap(records, spare);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
        counter.count(&random_codes(200, 20, 5), k);
        let summary = counter.count(codes, k);
        let expected = oracle(codes, k);
        let found = expand(counter.vector(summary.norm), k);
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
        let summary = counter.count(&codes, 4);
        assert_eq!(summary.n_windows, [3, 4, 7]);
        check::<u32>(&codes, 4);
        assert_eq!(counter.count(&[20, 1, 2, 20], 4).n_windows, [0, 0, 1]);
        assert_eq!(
            counter.count(&[20], 4),
            Summary {
                norm: 0.0,
                n_expected: 0,
                n_windows: [0; 3]
            }
        );
    }
}
