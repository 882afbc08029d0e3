//! Exact cuts through sorted slices, and their merge.

use std::cmp::Ordering;

use super::check::assert_whole;
use super::parallel::{for_each, part, Shared};
use super::records::{compare_keys, key_prefix};
use super::{sort, Key, Layout, Path};

/// Sorted slices, seen through the order (value, slice, position): no two elements are equal.
trait Sorted: Sync {
    fn n_slices(&self) -> usize;
    fn len(&self, slice: usize) -> usize;
    fn compare(&self, a: (usize, usize), b: (usize, usize)) -> Ordering;

    fn precedes(&self, a: (usize, usize), b: (usize, usize)) -> bool {
        self.compare(a, b).then(a.cmp(&b)).is_lt()
    }

    /// How many elements of `slice`, within `range`, come before `pivot`.
    fn count_before(&self, slice: usize, range: (usize, usize), pivot: (usize, usize)) -> usize {
        let (mut low, mut high) = range;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.precedes((slice, middle), pivot) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The positions that part the first `rank` elements from the others.
    ///
    /// The pivot is the weighted median of the middles of what is left of each slice, so that each round takes away
    /// a quarter of all that is left.
    fn cut(&self, rank: usize) -> Vec<usize> {
        let n_slices = self.n_slices();
        let total: usize = (0..n_slices).map(|s| self.len(s)).sum();
        assert!(rank <= total, "a cut after {rank} of {total} elements");
        let mut ranges: Vec<(usize, usize)> = (0..n_slices).map(|s| (0, self.len(s))).collect();
        while let Some(pivot) = self.pivot(&ranges) {
            let places: Vec<usize> = (0..n_slices)
                .map(|s| self.count_before(s, ranges[s], pivot))
                .collect();
            // The pivot itself is the element of this rank.
            let before: usize = places.iter().sum();
            for (s, (range, place)) in ranges.iter_mut().zip(places).enumerate() {
                if before < rank {
                    range.0 = place + usize::from(s == pivot.0);
                } else {
                    range.1 = place;
                }
            }
        }
        ranges.into_iter().map(|range| range.0).collect()
    }

    fn pivot(&self, ranges: &[(usize, usize)]) -> Option<(usize, usize)> {
        let mut middles: Vec<(usize, usize)> = ranges
            .iter()
            .enumerate()
            .filter(|(_, range)| range.0 < range.1)
            .map(|(s, range)| (s, range.0 + (range.1 - range.0) / 2))
            .collect();
        middles.sort_unstable_by(|&a, &b| self.compare(a, b).then(a.cmp(&b)));
        let weight = |s: usize| ranges[s].1 - ranges[s].0;
        let half = middles.iter().map(|&(s, _)| weight(s)).sum::<usize>() / 2;
        let mut seen = 0;
        middles.into_iter().find(|&(s, _)| {
            seen += weight(s);
            seen > half
        })
    }
}

struct KeySlices<'a, K>(&'a [&'a [K]]);

impl<K: Key> Sorted for KeySlices<'_, K> {
    fn n_slices(&self) -> usize {
        self.0.len()
    }

    fn len(&self, slice: usize) -> usize {
        self.0[slice].len()
    }

    fn compare(&self, a: (usize, usize), b: (usize, usize)) -> Ordering {
        self.0[a.0][a.1].cmp(&self.0[b.0][b.1])
    }
}

struct RecordSlices<'a> {
    slices: &'a [&'a [u8]],
    layout: &'a Layout,
}

impl<'a> RecordSlices<'a> {
    fn new(slices: &'a [&'a [u8]], layout: &'a Layout) -> Self {
        layout.assert_valid();
        for slice in slices {
            assert_whole(slice, layout.width);
        }
        RecordSlices { slices, layout }
    }

    fn record(&self, (slice, i): (usize, usize)) -> &'a [u8] {
        let width = self.layout.width;
        &self.slices[slice][i * width..(i + 1) * width]
    }
}

impl Sorted for RecordSlices<'_> {
    fn n_slices(&self) -> usize {
        self.slices.len()
    }

    fn len(&self, slice: usize) -> usize {
        self.slices[slice].len() / self.layout.width
    }

    fn compare(&self, a: (usize, usize), b: (usize, usize)) -> Ordering {
        compare_keys(self.record(a), self.record(b), self.layout)
    }
}

/// The positions that part the first `rank` keys of all slices from the others; equal keys go by slice, then by
/// position.
///
/// # Panics
/// When there are fewer keys than `rank`.
pub fn cut<K: Key>(slices: &[&[K]], rank: usize) -> Vec<usize> {
    KeySlices(slices).cut(rank)
}

/// [`cut`] of records, counted in records.
///
/// # Panics
/// When there are fewer records than `rank`, or a slice is no whole number of records.
pub fn cut_records(slices: &[&[u8]], layout: &Layout, rank: usize) -> Vec<usize> {
    RecordSlices::new(slices, layout).cut(rank)
}

/// How sorted slices become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Take the smaller head of two slices, key by key.
    Merge,
    /// Cut all slices into pieces that fit a cache, and sort each piece.
    SortPieces,
    /// Put the slices side by side and sort all.
    SortAll,
}

/// What is fastest for `k` slices of keys, from measurements: a merge of two takes 2 ns a key, a sort within the
/// cache 4, a sort of everything 5 to 7, and an exact cut about 60 binary searches in each slice.
pub fn merge_or_sort(k: usize) -> Plan {
    match k {
        0..=2 => Plan::Merge,
        3..=16 => Plan::SortPieces,
        _ => Plan::SortAll,
    }
}

/// Keys of a piece: half a megabyte, which fits the second cache of most machines.
const PIECE_BYTES: usize = 1 << 19;

/// Merge sorted slices into `out`.
///
/// # Panics
/// When `out` has not as many keys as all slices together, or a path is forced that this machine lacks.
pub fn merge<K: Key>(slices: &[&[K]], out: &mut [K], path: Path, threads: usize) {
    let total: usize = slices.iter().map(|s| s.len()).sum();
    assert!(
        out.len() == total,
        "{total} keys do not fit an output of {}",
        out.len()
    );
    let plan = merge_or_sort(slices.len());
    if plan == Plan::SortAll {
        put_together(slices, out);
        return sort(out, &mut [], path, threads);
    }
    let sorted = KeySlices(slices);
    let n_pieces = (total * K::BYTES / PIECE_BYTES).max(1);
    let shared = Shared::new(out);
    for_each(n_pieces, threads, |p| {
        let range = part(total, n_pieces, p);
        let (begins, ends) = (sorted.cut(range.start), sorted.cut(range.end));
        let pieces: Vec<&[K]> = (0..slices.len())
            .map(|s| &slices[s][begins[s]..ends[s]])
            .collect();
        // SAFETY: the pieces are disjoint and lie within `out`.
        let out = unsafe { shared.slice(range) };
        match (plan, &pieces[..]) {
            (Plan::Merge, &[first, second]) => merge_two(first, second, out),
            _ => {
                put_together(&pieces, out);
                sort(out, &mut [], path, 1);
            }
        }
    });
}

fn put_together<K: Key>(slices: &[&[K]], mut out: &mut [K]) {
    for slice in slices {
        let (head, tail) = out.split_at_mut(slice.len());
        head.copy_from_slice(slice);
        out = tail;
    }
}

/// Merge two slices without a branch that depends on a key.
fn merge_two<K: Key>(mut first: &[K], mut second: &[K], mut out: &mut [K]) {
    // While both have this many keys left, none can run out.
    while first.len().min(second.len()) > 0 {
        let (safe, rest) = out.split_at_mut(first.len().min(second.len()));
        let (mut i, mut j) = (0, 0);
        for place in safe {
            let (a, b) = (first[i], second[j]);
            let take_second = b < a;
            *place = if take_second { b } else { a };
            i += usize::from(!take_second);
            j += usize::from(take_second);
        }
        (first, second, out) = (&first[i..], &second[j..], rest);
    }
    put_together(&[first, second], out);
}

/// Merge sorted slices of records into `out`; equal keys go by slice, then by position.
///
/// # Panics
/// When `out` has not as many records as all slices together, or a slice is no whole number of records.
pub fn merge_records(slices: &[&[u8]], layout: &Layout, out: &mut [u8], threads: usize) {
    let sorted = RecordSlices::new(slices, layout);
    let total: usize = slices.iter().map(|s| s.len()).sum();
    assert!(
        out.len() == total,
        "{total} bytes do not fit an output of {}",
        out.len()
    );
    let n = total / layout.width;
    let parts = threads.clamp(1, n / 1024 + 1);
    let shared = Shared::new(out);
    for_each(parts, threads, |p| {
        let range = part(n, parts, p);
        let (begins, ends) = (sorted.cut(range.start), sorted.cut(range.end));
        let bytes = range.start * layout.width..range.end * layout.width;
        // SAFETY: the parts are disjoint and lie within `out`.
        let out = unsafe { shared.slice(bytes) };
        merge_part(&sorted, begins, &ends, out);
    });
}

fn merge_part(sorted: &RecordSlices<'_>, begins: Vec<usize>, ends: &[usize], out: &mut [u8]) {
    let mut tree = Tournament::new(sorted, begins, ends);
    for place in out.chunks_exact_mut(sorted.layout.width) {
        place.copy_from_slice(tree.take());
    }
}

/// A tree of losers: inner node i holds the slice that lost there, node 0 the winner. Replacing the winner's record
/// plays one game a level. Most games are decided by the first eight bytes of the key.
struct Tournament<'a> {
    sorted: &'a RecordSlices<'a>,
    begins: Vec<usize>,
    ends: &'a [usize],
    /// The first bytes of each slice's next key.
    prefixes: Vec<u64>,
    losers: Vec<usize>,
}

impl<'a> Tournament<'a> {
    fn new(sorted: &'a RecordSlices<'a>, begins: Vec<usize>, ends: &'a [usize]) -> Self {
        let k = begins.len();
        let mut tree = Tournament {
            sorted,
            begins,
            ends,
            prefixes: vec![0; k],
            losers: vec![0; k.max(1)],
        };
        (0..k).for_each(|s| tree.look(s));
        if k > 0 {
            tree.losers[0] = tree.play_all(1);
        }
        tree
    }

    fn look(&mut self, slice: usize) {
        if self.begins[slice] < self.ends[slice] {
            let record = self.sorted.record((slice, self.begins[slice]));
            self.prefixes[slice] = key_prefix(record, self.sorted.layout);
        }
    }

    /// Play the games below a node, and return the winner. Nodes from k on are slices.
    fn play_all(&mut self, node: usize) -> usize {
        let k = self.begins.len();
        if node >= k {
            return node - k;
        }
        let (left, right) = (self.play_all(2 * node), self.play_all(2 * node + 1));
        let (winner, loser) = if self.beats(left, right) {
            (left, right)
        } else {
            (right, left)
        };
        self.losers[node] = loser;
        winner
    }

    /// Whether the next record of slice `a` comes before that of `b`. Empty slices lose.
    #[inline]
    fn beats(&self, a: usize, b: usize) -> bool {
        let (empty_a, empty_b) = (
            self.begins[a] == self.ends[a],
            self.begins[b] == self.ends[b],
        );
        if empty_a || empty_b {
            return !empty_a;
        }
        match self.prefixes[a].cmp(&self.prefixes[b]) {
            Ordering::Equal => self
                .sorted
                .precedes((a, self.begins[a]), (b, self.begins[b])),
            order => order.is_lt(),
        }
    }

    fn take(&mut self) -> &'a [u8] {
        let mut winner = self.losers[0];
        let record = self.sorted.record((winner, self.begins[winner]));
        self.begins[winner] += 1;
        self.look(winner);
        let mut node = (winner + self.begins.len()) / 2;
        while node > 0 {
            if self.beats(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{paths, Random};

    fn slices(k: usize, longest: u64, values: u64, random: &mut Random) -> Vec<Vec<u64>> {
        let one = |random: &mut Random| {
            let n = random.next() % (longest + 1);
            let mut slice: Vec<u64> = (0..n).map(|_| random.next() % values).collect();
            slice.sort_unstable();
            slice
        };
        (0..k).map(|_| one(random)).collect()
    }

    #[test]
    fn cuts_are_exact_with_ties_by_slice() {
        let mut random = Random(21);
        for (k, longest, values) in [(1, 9, 3), (2, 5, 1), (5, 30, 4), (9, 40, u64::MAX)] {
            let owned = slices(k, longest, values, &mut random);
            let views: Vec<&[u64]> = owned.iter().map(Vec::as_slice).collect();
            let mut all: Vec<(u64, usize)> = Vec::new();
            for (s, slice) in owned.iter().enumerate() {
                all.extend(slice.iter().map(|&v| (v, s)));
            }
            all.sort_unstable();
            for rank in 0..=all.len() {
                let mut expected = vec![0; k];
                for &(_, s) in &all[..rank] {
                    expected[s] += 1;
                }
                assert_eq!(cut(&views, rank), expected, "{k} {rank}");
            }
        }
    }

    #[test]
    fn merges_equal_a_sort() {
        let mut random = Random(22);
        for (k, longest, values) in [
            (0, 0, 1),
            (1, 50, 9),
            (2, 300_000, u64::MAX),
            (3, 100, 2),
            (7, 40_000, 1 << 40),
            (17, 5000, 1 << 40),
            (300, 400, 1 << 20),
        ] {
            let owned = slices(k, longest, values, &mut random);
            let views: Vec<&[u64]> = owned.iter().map(Vec::as_slice).collect();
            let narrow: Vec<Vec<u32>> = owned
                .iter()
                .map(|s| {
                    let mut s: Vec<u32> = s.iter().map(|&v| v as u32).collect();
                    s.sort_unstable();
                    s
                })
                .collect();
            let narrow_views: Vec<&[u32]> = narrow.iter().map(Vec::as_slice).collect();
            let (mut expected, mut narrow_expected) = (views.concat(), narrow_views.concat());
            expected.sort_unstable();
            narrow_expected.sort_unstable();
            for path in paths() {
                for threads in [1, 3] {
                    let mut out = vec![0; expected.len()];
                    merge(&views, &mut out, path, threads);
                    assert!(out == expected, "{k} {path:?} {threads}");
                    let mut out = vec![0; expected.len()];
                    merge(&narrow_views, &mut out, path, threads);
                    assert!(out == narrow_expected, "{k} {path:?} {threads}");
                }
            }
        }
    }

    #[test]
    fn plans_follow_the_number_of_slices() {
        assert_eq!(merge_or_sort(2), Plan::Merge);
        assert_eq!(merge_or_sort(9), Plan::SortPieces);
        assert_eq!(merge_or_sort(300), Plan::SortAll);
    }

    #[test]
    fn records_merge_stably() {
        let mut random = Random(23);
        let layout = Layout {
            width: 13,
            key_offset: 2,
            key_len: 9,
        };
        for (k, longest, values) in [(1, 20, 9), (2, 2000, 2), (7, 900, 256), (150, 60, 3)] {
            let owned: Vec<Vec<u8>> = (0..k)
                .map(|_| {
                    let n = random.next() % (longest + 1);
                    let mut rows: Vec<Vec<u8>> = (0..n)
                        .map(|_| (0..13).map(|_| (random.next() % values) as u8).collect())
                        .collect();
                    rows.sort_by(|a, b| compare_keys(a, b, &layout));
                    rows.concat()
                })
                .collect();
            let views: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
            let joined = views.concat();
            let mut rows: Vec<&[u8]> = joined.chunks_exact(13).collect();
            rows.sort_by(|a, b| compare_keys(a, b, &layout));
            let expected = rows.concat();
            for threads in [1, 2, 5] {
                let mut out = vec![0; joined.len()];
                merge_records(&views, &layout, &mut out, threads);
                assert!(out == expected, "{k} {threads}");
            }
            let places = cut_records(&views, &layout, rows.len() / 2);
            assert_eq!(places.iter().sum::<usize>(), rows.len() / 2);
        }
    }
}
