//! What sets share, a tile at a time: every set of one side with every set of the other.
//!
//! A set is a sorted slice of 64-bit hashes, each once. Merging pairs one by one reads every set as often as there are
//! others; here the hashes of the right side become a table that says which sets hold each, and those of the left side
//! are looked up in it. The work is the hashes of both sides and what they share.
//!
//! The range of hashes is cut into parts of about as many hashes each, so that the table of one stays in the second
//! cache level. Some parts at a time, threads first build their tables, then share out the sets of the left side.
//!
//! A hash that many sets of the right side hold (an adapter, a boilerplate sentence) would be counted once for each
//! pair. It becomes one bit of a row of bits instead, and rows of bits are counted 64 hashes at a time.

use std::ops::Range;

use rayon::prelude::*;

use crate::sparse::dispatch::dispatch;

/// Hashes of the right side in the table of one part.
/// By arithmetic: 36 bytes each, half of a second cache level of 1 MiB.
const PART_HASHES: usize = 1 << 14;
/// Tables that a thread builds before the left side passes through them.
/// By judgement: where each begins in every set is searched once for so many. `tartan bench sets` measures it.
const PARTS_OF_A_THREAD: usize = 8;
/// A hash in more than a part of the right side of 1 to this number is counted in rows of bits.
/// By arithmetic: a pair takes a nanosecond in lists, a hash and pair 1/400 of one in rows of bits; a twentieth of the
/// pairs has a hash that a twenty-second of the sets on both sides hold.
const COMMON_SHARE: usize = 16;
/// Least number of sets of the right side that makes a hash common.
/// By judgement: shorter lists take no time.
const COMMON_SETS: usize = 32;
/// Common hashes that are gathered before they are counted.
/// By arithmetic: a row of bits of a set stays in the first cache level, as does the row of its counts.
const COMMON_BITS: usize = 1 << 13;
/// Fractional part of the golden ratio, which spreads hashes that are near each other.
/// By arithmetic: D. Knuth, The Art of Computer Programming, 6.4.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Hashes of the right side that are looked at to cut its range, for each part.
/// By judgement: parts then differ by a few per cent.
const SAMPLES_OF_A_PART: usize = 64;

/// A set, its hashes in ascending order, each once, and the weight of each.
#[derive(Clone, Copy)]
pub struct Set<'a, W> {
    pub hashes: &'a [u64],
    pub weights: &'a [W],
}

impl<W> Set<'_, W> {
    /// Whether hashes ascend, each is there once, and has its weight.
    pub fn fits(&self) -> bool {
        self.weights.len() == self.hashes.len() && ascends(self.hashes)
    }
}

/// Whether every number is above the one before it.
pub fn ascends(hashes: &[u64]) -> bool {
    // Whole runs without a branch are compared by vectors.
    hashes.chunks(1024).enumerate().all(|(run, chunk)| {
        let start = run * 1024;
        let next = &hashes[start + 1..hashes.len().min(start + chunk.len() + 1)];
        chunk
            .iter()
            .zip(next)
            .fold(true, |so_far, (a, b)| so_far & (a < b))
    })
}

/// What a shared hash adds to the score of a pair.
pub trait Weight: Copy + Default + Send + Sync {
    type Sum: Copy + Default + Send + Sync;
    /// Sums do not depend on their order and count hashes, so that rows of bits may count them.
    const COUNTS: bool;
    fn add(sum: &mut Self::Sum, a: Self, b: Self);
    fn add_count(sum: &mut Self::Sum, count: u32);
}

/// Without weights, shared hashes are counted.
impl Weight for () {
    type Sum = i32;
    const COUNTS: bool = true;

    #[inline(always)]
    fn add(sum: &mut i32, (): (), (): ()) {
        *sum += 1;
    }

    #[inline(always)]
    fn add_count(sum: &mut i32, count: u32) {
        *sum += count as i32;
    }
}

/// Products of weights are added in the order of hashes: a sum depends on its two sets alone.
impl Weight for f64 {
    type Sum = f64;
    const COUNTS: bool = false;

    #[inline(always)]
    fn add(sum: &mut f64, a: f64, b: f64) {
        *sum += a * b;
    }

    fn add_count(_: &mut f64, _: u32) {}
}

/// Add up what every set of `left` shares with every set of `right`, row by row.
///
/// # Panics
/// If `out` does not hold `left.len() * right.len()` sums, or a set has not a weight for each hash.
pub fn shared<W: Weight>(left: &[Set<'_, W>], right: &[Set<'_, W>], out: &mut [W::Sum]) {
    assert_eq!(out.len(), left.len() * right.len());
    let weighed = |set: &Set<'_, W>| set.weights.len() == set.hashes.len();
    assert!(
        left.iter().chain(right).all(weighed),
        "every hash has a weight"
    );
    out.fill(W::Sum::default());
    if out.is_empty() {
        return;
    }
    let mut rows: Vec<Row<'_, W>> = left
        .iter()
        .zip(out.chunks_mut(right.len()))
        .map(|(&set, sums)| Row {
            set,
            at: 0,
            sums,
            bits: Vec::new(),
        })
        .collect();
    let lasts = cut(right);
    let mut common = Common::default();
    let step = PARTS_OF_A_THREAD * rayon::current_num_threads();
    let n_rows_together = rows.len().div_ceil(2 * rayon::current_num_threads());
    for begin in (0..lasts.len()).step_by(step) {
        let end = lasts.len().min(begin + step);
        let starts: Vec<usize> = (begin..end).step_by(PARTS_OF_A_THREAD).collect();
        let mut tables: Vec<Table<W>> = starts
            .into_par_iter()
            .flat_map_iter(|from| build(right, &lasts, from..end.min(from + PARTS_OF_A_THREAD)))
            .collect();
        tables.iter_mut().for_each(|table| common.take(table));
        // A table stays in the cache while many rows pass through it.
        rows.par_chunks_mut(n_rows_together).for_each(|rows| {
            for row in rows.iter_mut() {
                row.bits.resize(common.n_bits.div_ceil(64), 0);
            }
            for table in &tables {
                rows.iter_mut().for_each(|row| row.pass(table));
            }
        });
        if common.n_bits >= COMMON_BITS || end == lasts.len() {
            common.count(&mut rows, right.len());
        }
    }
}

/// A set of the left side on its way through the tables.
struct Row<'a, W: Weight> {
    set: Set<'a, W>,
    /// Its first hash that no table has seen.
    at: usize,
    sums: &'a mut [W::Sum],
    /// Which common hashes it holds.
    bits: Vec<u64>,
}

impl<W: Weight> Row<'_, W> {
    /// Look up the hashes of one part.
    fn pass(&mut self, table: &Table<W>) {
        let rest = &self.set.hashes[self.at..];
        let weights = &self.set.weights[self.at..];
        let mut n = 0;
        for (&hash, &weight) in rest.iter().zip(weights) {
            if hash > table.last {
                break;
            }
            n += 1;
            let slot = table.find(hash);
            if table.keys[slot] != hash {
                continue;
            }
            let number = table.numbers[slot];
            if number & COMMON != 0 {
                let bit = table.first_bit + (number & !COMMON) as usize;
                self.bits[bit / 64] |= 1 << (bit % 64);
                continue;
            }
            let holders = table.holders(number);
            for (&place, &other) in table.places[holders.clone()]
                .iter()
                .zip(&table.weights[holders])
            {
                W::add(&mut self.sums[place as usize], weight, other);
            }
        }
        self.at += n;
    }
}

/// Marks the number of a common hash within its table.
/// By format: tables hold far fewer hashes.
const COMMON: u32 = 1 << 31;

/// Which sets of the right side hold each hash of one part of the range.
struct Table<W> {
    /// The last hash of the part.
    last: u64,
    /// Hashes by open addressing; a hash outside the part where there is none.
    keys: Vec<u64>,
    /// Number of the hash in a slot, or of the common hash.
    numbers: Vec<u32>,
    /// Bits by which a spread hash is shifted to its slot.
    shift: u32,
    /// Where the holders of each number begin, and the end of all.
    starts: Vec<u32>,
    places: Vec<u32>,
    weights: Vec<W>,
    /// Numbers of the common hashes, in order.
    common: Vec<u32>,
    /// The bit of the first of them.
    first_bit: usize,
}

impl<W: Weight> Table<W> {
    /// Make the table of entries: a hash, its set, its weight; sets ascend.
    fn new(entries: &[(u64, u32, W)], last: u64, n_sets: usize) -> Self {
        let n_slots = (2 * entries.len()).next_power_of_two().max(2);
        let mut table = Self {
            last,
            keys: vec![outside(last); n_slots],
            numbers: vec![0; n_slots],
            shift: 64 - n_slots.trailing_zeros(),
            starts: vec![0],
            places: vec![0; entries.len()],
            weights: vec![W::default(); entries.len()],
            common: Vec::new(),
            first_bit: 0,
        };
        let mut found = Vec::with_capacity(entries.len());
        for &(hash, _, _) in entries {
            let slot = table.find(hash);
            if table.keys[slot] != hash {
                table.keys[slot] = hash;
                table.numbers[slot] = table.starts.len() as u32 - 1;
                table.starts.push(0);
            }
            let number = table.numbers[slot];
            table.starts[number as usize + 1] += 1;
            found.push(number);
        }
        let least = COMMON_SETS.max(n_sets / COMMON_SHARE) as u32;
        if W::COUNTS {
            table.find_common(least);
        }
        for number in 1..table.starts.len() {
            table.starts[number] += table.starts[number - 1];
        }
        // What is left of each list begins at its start; afterwards every start has moved to the next one.
        for (&(_, place, weight), &number) in entries.iter().zip(&found) {
            let next = &mut table.starts[number as usize];
            table.places[*next as usize] = place;
            table.weights[*next as usize] = weight;
            *next += 1;
        }
        table.starts.rotate_right(1);
        table.starts[0] = 0;
        table
    }

    /// Mark the hashes that more than `least` sets hold; `starts` still holds how many do, one place late.
    fn find_common(&mut self, least: u32) {
        let is_common = |&number: &u32| self.starts[number as usize + 1] > least;
        self.common = (0..self.starts.len() as u32 - 1)
            .filter(is_common)
            .collect();
        if self.common.is_empty() {
            return;
        }
        for number in &mut self.numbers {
            if let Ok(place) = self.common.binary_search(number) {
                *number = COMMON | place as u32;
            }
        }
    }

    /// The slot of a hash of this part, or where it would be.
    #[inline(always)]
    fn find(&self, hash: u64) -> usize {
        let mask = self.keys.len() - 1;
        let empty = outside(self.last);
        let mut slot = (hash.wrapping_mul(SPREAD) >> self.shift) as usize;
        while self.keys[slot] != hash && self.keys[slot] != empty {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Where the sets that hold a hash are.
    #[inline(always)]
    fn holders(&self, number: u32) -> Range<usize> {
        let number = number as usize;
        self.starts[number] as usize..self.starts[number + 1] as usize
    }
}

/// A hash that is not in the part that ends with `last`: there are two parts or more.
#[inline(always)]
fn outside(last: u64) -> u64 {
    if last == u64::MAX {
        0
    } else {
        u64::MAX
    }
}

/// Make the tables of some parts of the range.
fn build<W: Weight>(right: &[Set<'_, W>], lasts: &[u64], parts: Range<usize>) -> Vec<Table<W>> {
    let first = parts
        .start
        .checked_sub(1)
        .map_or(0, |before| lasts[before] + 1);
    let mut begins: Vec<usize> = right
        .iter()
        .map(|set| set.hashes.partition_point(|&hash| hash < first))
        .collect();
    let mut entries = Vec::new();
    let mut tables = Vec::new();
    for &last in &lasts[parts] {
        entries.clear();
        for (place, (set, begin)) in (0..).zip(right.iter().zip(&mut begins)) {
            let inside = set.hashes[*begin..]
                .iter()
                .take_while(|&&hash| hash <= last);
            let weights = &set.weights[*begin..];
            let before = entries.len();
            entries.extend(
                inside
                    .zip(weights)
                    .map(|(&hash, &weight)| (hash, place, weight)),
            );
            *begin += entries.len() - before;
        }
        tables.push(Table::new(&entries, last, right.len()));
    }
    tables
}

/// The last hash of each part of the range, in order; there are two parts or more.
fn cut<W>(sets: &[Set<'_, W>]) -> Vec<u64> {
    let n_hashes: usize = sets.iter().map(|set| set.hashes.len()).sum();
    let n_parts = n_hashes.div_ceil(PART_HASHES).max(2);
    let step = (n_hashes / (n_parts * SAMPLES_OF_A_PART)).max(1);
    let mut samples = Vec::with_capacity(n_hashes / step + sets.len());
    // What is left of a set counts for the next one, so that short sets are looked at as well.
    let mut skip = 0;
    for set in sets {
        samples.extend(set.hashes.iter().skip(skip).step_by(step));
        skip = (skip + step - set.hashes.len() % step) % step;
    }
    samples.par_sort_unstable();
    let mut lasts: Vec<u64> = (1..n_parts)
        .filter_map(|part| samples.get(part * samples.len() / n_parts))
        .copied()
        .filter(|&last| last < u64::MAX)
        .collect();
    if lasts.is_empty() {
        lasts.push(u64::MAX / 2);
    }
    lasts.push(u64::MAX);
    lasts.dedup();
    lasts
}

/// Common hashes that wait to be counted.
#[derive(Default)]
struct Common {
    n_bits: usize,
    /// Bits and the sets of the right side that hold them.
    holders: Vec<(u32, u32)>,
}

impl Common {
    /// Give the common hashes of a table their bits.
    fn take<W: Weight>(&mut self, table: &mut Table<W>) {
        table.first_bit = self.n_bits;
        for &number in &table.common {
            let bit = self.n_bits as u32;
            self.holders.extend(
                table.places[table.holders(number)]
                    .iter()
                    .map(|&place| (bit, place)),
            );
            self.n_bits += 1;
        }
    }

    /// Count what rows share of them, and begin anew.
    fn count<W: Weight>(&mut self, rows: &mut [Row<'_, W>], n_sets: usize) {
        let words = self.n_bits.div_ceil(64);
        if words > 0 {
            let mut bits = vec![0u64; n_sets * words];
            for &(bit, place) in &self.holders {
                bits[place as usize * words + bit as usize / 64] |= 1 << (bit % 64);
            }
            rows.par_iter_mut().for_each(|row| {
                count_bits::<W>(&row.bits, &bits, row.sums);
                row.bits.clear();
            });
        }
        *self = Self::default();
    }
}

dispatch!(
    count_bits, count_bits_avx512, count_bits_avx2, count_bits_body,
    [<W: Weight>], [::<W>],
    (bits: &[u64], others: &[u64], sums: &mut [W::Sum])
);

/// Add to each sum how many bits a row of bits has in common with one of the others.
#[inline(always)]
fn count_bits_body<W: Weight>(bits: &[u64], others: &[u64], sums: &mut [W::Sum]) {
    for (sum, other) in sums.iter_mut().zip(others.chunks_exact(bits.len())) {
        let both = bits.iter().zip(other).map(|(a, b)| (a & b).count_ones());
        W::add_count(sum, both.sum());
    }
}

#[cfg(test)]
mod tests;
