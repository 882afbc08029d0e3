//! Sort of fixed-size records by key bytes that compare like `memcmp`.
//!
//! One word a record is sorted, not the records: its upper bits are the first bits of the key that tell records
//! apart, its lower bits the record's position. Words with equal upper bits take the next bits of their keys and are
//! sorted again, until the key ends; positions then break ties, so that the order is stable. At last the records
//! are gathered, whole or piece by piece.

use super::check::assert_whole;
use super::parallel::{for_each, part, Shared};
use super::{sort, Path};

/// Where the key lies in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// Bytes of a record.
    pub width: usize,
    /// Position of the first key byte.
    pub key_offset: usize,
    /// Bytes of the key.
    pub key_len: usize,
}

impl KeyLayout {
    pub(crate) fn assert_valid(&self) {
        let end = self.key_offset.checked_add(self.key_len);
        assert!(
            end.is_some_and(|end| end <= self.width) && self.width > 0,
            "the key lies outside the record: {self:?}"
        );
    }
}

/// The sorted order of records, in the scratch of [`order_records`].
#[derive(Clone, Copy, Debug)]
pub struct RecordOrder<'a> {
    words: &'a [u64],
    mask: u64,
}

impl<'a> RecordOrder<'a> {
    /// The order that [`order_records`] left in the first words of its scratch, one for each record.
    pub fn restore(words: &'a [u64]) -> RecordOrder<'a> {
        RecordOrder {
            words,
            mask: position_mask(words.len()),
        }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Write the records `first`, `first + 1`, ... of the sorted order until `out` is full.
    ///
    /// # Panics
    /// When `out` is not a whole number of records, or the order ends before it is full.
    pub fn gather(&self, records: &[u8], width: usize, first: usize, out: &mut [u8]) {
        assert_whole(records, width);
        assert_whole(out, width);
        assert!(
            records.len() == self.len() * width,
            "these are not the records that were sorted"
        );
        let words = &self.words[first..first + out.len() / width];
        gather_part(records, width, words, self.mask, out);
    }
}

/// Records that are asked for ahead of their turn: enough to hide the way to memory.
/// By judgement: 24 requests are twice what a core has under way. `tartan bench sort` measures records of 100 bytes.
const AHEAD: usize = 24;

/// Copy the records of these words, with the width as a constant where it is a usual one.
fn gather_part(records: &[u8], width: usize, words: &[u64], mask: u64, out: &mut [u8]) {
    macro_rules! fixed {
        ($($width:literal)*) => {
            match width {
                $($width => gather_fixed::<$width>(records, words, mask, out),)*
                _ => gather_any(records, width, words, mask, out),
            }
        };
    }
    fixed!(8 12 16 20 24 28 32 40 48 56 64 80 96 100 128);
}

fn gather_fixed<const W: usize>(records: &[u8], words: &[u64], mask: u64, out: &mut [u8]) {
    for (i, place) in out.chunks_exact_mut(W).enumerate() {
        prefetch_record(records, W, words, mask, i + AHEAD);
        let start = (words[i] & mask) as usize * W;
        let record: &[u8; W] = records[start..start + W].try_into().expect("W bytes");
        place.copy_from_slice(record);
    }
}

fn gather_any(records: &[u8], width: usize, words: &[u64], mask: u64, out: &mut [u8]) {
    for (i, place) in out.chunks_exact_mut(width).enumerate() {
        prefetch_record(records, width, words, mask, i + AHEAD);
        let start = (words[i] & mask) as usize * width;
        place.copy_from_slice(&records[start..start + width]);
    }
}

#[inline(always)]
fn prefetch_record(records: &[u8], width: usize, words: &[u64], mask: u64, i: usize) {
    if let Some(word) = words.get(i) {
        let start = records
            .as_ptr()
            .wrapping_add((word & mask) as usize * width);
        for offset in (0..width).step_by(64) {
            prefetch(start.wrapping_add(offset));
        }
        prefetch(start.wrapping_add(width - 1));
    }
}

#[inline(always)]
fn prefetch(_address: *const u8) {
    // SAFETY: every x86-64 machine has this instruction, and it ignores invalid addresses.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(_address.cast());
    }
}

/// Find the sorted order of records; equal keys keep their order.
///
/// # Panics
/// When `records` is not a whole number of records, the key lies outside the record, there are 2^32 records or more,
/// or `scratch` holds fewer words than there are records; with twice as many the sort of radix is faster.
pub fn order_records<'a>(
    records: &[u8],
    layout: &KeyLayout,
    scratch: &'a mut [u64],
    path: Path,
    threads: usize,
) -> RecordOrder<'a> {
    layout.assert_valid();
    assert_whole(records, layout.width);
    let n = records.len() / layout.width;
    assert!(n < 1 << 32, "{n} records are too many for one call");
    assert!(
        scratch.len() >= n,
        "the scratch holds {} words, {n} are needed",
        scratch.len()
    );
    let (words, rest) = scratch.split_at_mut(n);
    let index_bits = position_mask(n).count_ones();
    let keys = Keys {
        records,
        layout,
        index_bits,
        path,
    };
    keys.order(words, rest, threads);
    RecordOrder::restore(words)
}

/// The bits of a word that hold the position of one of `n` records.
fn position_mask(n: usize) -> u64 {
    let unused = (n as u64).saturating_sub(1).leading_zeros();
    u64::MAX.checked_shr(unused).unwrap_or(0)
}

/// The keys of records as strings of bits.
struct Keys<'a> {
    records: &'a [u8],
    layout: &'a KeyLayout,
    index_bits: u32,
    path: Path,
}

impl Keys<'_> {
    fn mask(&self) -> u64 {
        (1 << self.index_bits) - 1
    }

    fn key_bits(&self) -> usize {
        8 * self.layout.key_len
    }

    fn len(&self) -> usize {
        self.records.len() / self.layout.width
    }

    /// 64 bits of the key of record `i` from bit `bit` on, followed by zeros behind the end of the key.
    #[inline(always)]
    fn window(&self, i: usize, bit: usize) -> u64 {
        let byte = bit / 8;
        if byte >= self.layout.key_len {
            return 0;
        }
        let start = i * self.layout.width + self.layout.key_offset + byte;
        let wide = match self.records.get(start..start + 16) {
            Some(bytes) => u128::from_be_bytes(bytes.try_into().expect("sixteen bytes")),
            None => self.last_bytes(start),
        };
        let window = ((wide << (bit % 8)) >> 64) as u64;
        let left = self.key_bits() - bit;
        if left < 64 {
            window & !(u64::MAX >> left)
        } else {
            window
        }
    }

    #[cold]
    fn last_bytes(&self, start: usize) -> u128 {
        let tail = &self.records[start..];
        let mut bytes = [0; 16];
        bytes[..tail.len()].copy_from_slice(tail);
        u128::from_be_bytes(bytes)
    }

    fn order(&self, words: &mut [u64], scratch: &mut [u64], threads: usize) {
        if words.is_empty() {
            return;
        }
        let mut bit = self.guess();
        let early = self.fill(words, bit, threads);
        if early < bit {
            // The sample missed a record that differs further ahead.
            bit = early;
            self.fill(words, bit, threads);
        }
        sort(words, scratch, self.path, threads);
        self.refine_all(words, bit + 64 - self.index_bits as usize, threads);
    }

    /// The first bit at which some records of a sample differ from the first one.
    fn guess(&self) -> usize {
        let step = self.len().div_ceil(256);
        let sample = (0..self.len()).step_by(step);
        self.first_difference(sample, self.key_bits())
    }

    /// The first bit below `end` at which one of these records differs from record 0, or `end`.
    fn first_difference(&self, records: impl Iterator<Item = usize> + Clone, end: usize) -> usize {
        for bit in (0..end).step_by(64) {
            let zero = self.window(0, bit);
            let seen = records
                .clone()
                .fold(0, |seen, i| seen | (self.window(i, bit) ^ zero));
            if seen != 0 {
                return end.min(bit + seen.leading_zeros() as usize);
            }
        }
        end
    }

    /// Write the words of all records for the bits from `bit` on; the first bit before at which keys differ, or
    /// `bit`.
    fn fill(&self, words: &mut [u64], bit: usize, threads: usize) -> usize {
        let n = words.len();
        let shared = Shared::new(words);
        let earliest = std::sync::atomic::AtomicUsize::new(bit);
        let parts = threads.clamp(1, n / 4096 + 1);
        for_each(parts, threads, |p| {
            let range = part(n, parts, p);
            // SAFETY: the parts are disjoint and lie within the words.
            let words = unsafe { shared.slice(range.clone()) };
            for (word, i) in words.iter_mut().zip(range.clone()) {
                *word = self.window(i, bit) & !self.mask() | i as u64;
            }
            let early = self.first_difference(range, bit);
            earliest.fetch_min(early, std::sync::atomic::Ordering::Relaxed);
        });
        earliest.into_inner()
    }

    /// Sort each run of equal prefixes by the bits from `bit` on. Words are sorted by the bits before.
    ///
    /// Threads take the runs that begin in their part. Long runs are left to all threads together.
    fn refine_all(&self, words: &mut [u64], bit: usize, threads: usize) {
        if bit >= self.key_bits() {
            return;
        }
        let n_parts = if threads > 1 { 16 * threads } else { 1 };
        let cuts: Vec<usize> = (0..=n_parts)
            .map(|p| {
                self.run_start(
                    words,
                    part(words.len(), n_parts, p.min(n_parts - 1)),
                    p == n_parts,
                )
            })
            .collect();
        let (shared, long) = (Shared::new(words), words.len() / n_parts);
        for_each(n_parts, threads, |p| {
            if cuts[p] < cuts[p + 1] && (threads < 2 || cuts[p + 1] - cuts[p] <= 2 * long) {
                // SAFETY: cuts ascend, so that parts do not overlap.
                self.refine_runs(unsafe { shared.slice(cuts[p]..cuts[p + 1]) }, bit, 1);
            }
        });
        for p in 0..n_parts {
            if threads > 1 && cuts[p + 1] - cuts[p] > 2 * long {
                // SAFETY: the threads are done.
                self.refine_runs(unsafe { shared.slice(cuts[p]..cuts[p + 1]) }, bit, threads);
            }
        }
    }

    /// The end of the run that holds the word before the range, or of all words.
    fn run_start(&self, words: &[u64], range: std::ops::Range<usize>, last: bool) -> usize {
        if last || range.start == 0 {
            return if last { words.len() } else { 0 };
        }
        let before = words[range.start - 1] >> self.index_bits;
        range.start + words[range.start..].partition_point(|word| word >> self.index_bits == before)
    }

    fn refine_runs(&self, words: &mut [u64], bit: usize, threads: usize) {
        for run in words.chunk_by_mut(|a, b| (a ^ b) >> self.index_bits == 0) {
            if run.len() > 1 {
                self.refine(run, bit, threads);
            }
        }
    }

    /// Sort words of keys that are equal before `bit`.
    fn refine(&self, words: &mut [u64], mut bit: usize, threads: usize) {
        let mask = self.mask();
        while bit < self.key_bits() {
            let mut different = 0;
            let zero = self.window((words[0] & mask) as usize, bit) & !mask;
            for word in words.iter_mut() {
                let window = self.window((*word & mask) as usize, bit) & !mask;
                different |= window ^ zero;
                *word = window | (*word & mask);
            }
            bit += 64 - self.index_bits as usize;
            if different != 0 {
                sort(words, &mut [], self.path, threads);
                return self.refine_runs(words, bit, threads);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{paths, Random};

    fn check(records: &[u8], layout: &KeyLayout) {
        let mut expected: Vec<&[u8]> = records.chunks_exact(layout.width).collect();
        let key = layout.key_offset..layout.key_offset + layout.key_len;
        expected.sort_by(|a, b| a[key.clone()].cmp(&b[key.clone()]));
        let expected = expected.concat();
        let n = records.len() / layout.width;
        for path in paths() {
            for (threads, factor) in [(1, 1), (2, 2)] {
                let mut scratch = vec![0; factor * n];
                let mut out = vec![0; records.len()];
                let order = order_records(records, layout, &mut scratch, path, threads);
                order.gather(records, layout.width, 0, &mut out);
                assert!(out == expected, "{layout:?} {n} {path:?} {threads}");
            }
        }
    }

    /// Records whose keys take `values` values a byte.
    fn random_records(n: usize, width: usize, values: u64, random: &mut Random) -> Vec<u8> {
        (0..n * width)
            .map(|_| (random.next() % values) as u8)
            .collect()
    }

    #[test]
    fn every_small_number_of_records() {
        let mut random = Random(5);
        for n in 0..200 {
            for (width, key_offset, key_len) in [(1, 0, 1), (5, 2, 3), (16, 0, 16), (27, 3, 20)] {
                let layout = KeyLayout {
                    width,
                    key_offset,
                    key_len,
                };
                for values in [1, 2, 256] {
                    check(&random_records(n, width, values, &mut random), &layout);
                }
            }
        }
    }

    #[test]
    fn many_records_of_many_widths() {
        let mut random = Random(6);
        for (width, key_offset, key_len) in [
            (100, 0, 10),
            (12, 4, 8),
            (16, 8, 8),
            (24, 1, 9),
            (32, 0, 32),
            (64, 60, 4),
            (3, 0, 0),
        ] {
            let layout = KeyLayout {
                width,
                key_offset,
                key_len,
            };
            for values in [1, 3, 256] {
                check(&random_records(20_000, width, values, &mut random), &layout);
            }
        }
    }

    #[test]
    fn one_odd_record_far_from_the_sample_is_placed() {
        let layout = KeyLayout {
            width: 20,
            key_offset: 0,
            key_len: 20,
        };
        let mut random = Random(8);
        let mut records = vec![7; 20 * 5000];
        for record in records.chunks_exact_mut(20) {
            record[18] = random.next() as u8;
        }
        records[20 * 1234 + 2] = 6;
        records[20 * 4321 + 11] = 8;
        check(&records, &layout);
    }

    #[test]
    fn pieces_of_the_order_are_the_whole() {
        let layout = KeyLayout {
            width: 10,
            key_offset: 1,
            key_len: 4,
        };
        let records = random_records(1000, 10, 256, &mut Random(9));
        let mut scratch = vec![0; 1000];
        let order = order_records(&records, &layout, &mut scratch, Path::Auto, 1);
        let mut whole = vec![0; records.len()];
        order.gather(&records, 10, 0, &mut whole);
        let mut pieces = Vec::new();
        for first in (0..1000).step_by(300) {
            let mut piece = vec![0; 10 * (1000 - first).min(300)];
            order.gather(&records, 10, first, &mut piece);
            pieces.extend(piece);
        }
        assert_eq!(pieces, whole);
        let mut restored = vec![0; records.len()];
        RecordOrder::restore(&scratch).gather(&records, 10, 0, &mut restored);
        assert_eq!(restored, whole);
    }

    #[test]
    #[should_panic(expected = "outside the record")]
    fn a_key_outside_the_record_is_refused() {
        let layout = KeyLayout {
            width: 4,
            key_offset: 2,
            key_len: 3,
        };
        order_records(&[0; 8], &layout, &mut [0; 2], Path::Auto, 1);
    }
}
