//! Spread keys over buckets, from one slice to another.
//!
//! Two passes over the keys: count how many of each bucket each part of the keys holds, then write every key to its
//! place. Keys of a bucket gather in a small buffer that is written to memory a line at a time, past the caches: the
//! target is not read, and the streams of 256 buckets do not evict each other.

use super::parallel::{for_each, part, Shared};
use super::Key;

/// Buckets that keys are spread over.
/// By arithmetic: lines of 256 buckets are 16 KiB, in a first cache of 32 KiB.
const BUCKETS: usize = 256;

/// Bytes that are written at a time.
/// By arithmetic: a cache line.
const LINE_BYTES: usize = 64;

/// Parts of the keys a thread: threads that are slowed down leave parts to others.
/// By judgement, as said.
const PARTS: usize = 4;

/// Where the buckets lie in the target: bucket b from `starts[b]` to `starts[b + 1]`.
pub(crate) type Starts = [usize; BUCKETS + 1];

/// The bucket of a key: its distance from the smallest key, shifted.
#[derive(Clone, Copy)]
pub(crate) struct Digits<K> {
    pub(crate) low: K,
    pub(crate) shift: u32,
}

impl<K: Key> Digits<K> {
    #[inline(always)]
    fn bucket(&self, key: K) -> usize {
        key.minus(self.low).right(self.shift).to_u64() as usize % BUCKETS
    }
}

/// Write the keys of `source` to `target`, ordered by bucket.
pub(crate) fn spread<K: Key>(
    digits: &Digits<K>,
    source: &[K],
    target: &mut [K],
    threads: usize,
) -> Starts {
    let n_parts = if threads > 1 { PARTS * threads } else { 1 };
    let ranges: Vec<_> = (0..n_parts)
        .map(|p| part(source.len(), n_parts, p))
        .collect();
    let mut places = vec![[0usize; BUCKETS]; n_parts];
    let shared = Shared::new(&mut places);
    for_each(n_parts, threads, |p| {
        // SAFETY: each task takes the counts of its own part.
        let counts = unsafe { &mut shared.slice(p..p + 1)[0] };
        count(digits, &source[ranges[p].clone()], counts);
    });
    let starts = starts(&mut places);
    let shared = Shared::new(target);
    for_each(n_parts, threads, |p| {
        let source = &source[ranges[p].clone()];
        // SAFETY: the counts give each part places of its own within the target.
        unsafe { scatter(digits, source, shared, &places[p]) };
    });
    starts
}

fn count<K: Key>(digits: &Digits<K>, keys: &[K], counts: &mut [usize; BUCKETS]) {
    for &key in keys {
        counts[digits.bucket(key)] += 1;
    }
}

/// Turn the counts of each part into the places of its first keys.
fn starts(counts: &mut [[usize; BUCKETS]]) -> Starts {
    let mut starts = [0; BUCKETS + 1];
    let mut end = 0;
    for bucket in 0..BUCKETS {
        starts[bucket] = end;
        for part in counts.iter_mut() {
            (part[bucket], end) = (end, end + part[bucket]);
        }
    }
    starts[BUCKETS] = end;
    starts
}

/// Buffers of one line a bucket.
#[repr(align(64))]
struct Lines([[u8; LINE_BYTES]; BUCKETS]);

/// Write keys to their buckets, from `places` on.
///
/// # Safety
/// From its place on, each bucket has room for its keys of `source`, which no other thread uses meanwhile.
unsafe fn scatter<K: Key>(
    digits: &Digits<K>,
    source: &[K],
    target: Shared<K>,
    places: &[usize; BUCKETS],
) {
    let per_line = LINE_BYTES / K::BYTES;
    let mut lines = Lines([[0; LINE_BYTES]; BUCKETS]);
    let lines: *mut K = lines.0.as_mut_ptr().cast();
    // Places count from the line in which the target begins, so that multiples of a line are aligned.
    let skew = target.pointer() as usize % LINE_BYTES / K::BYTES;
    let base = target.pointer().wrapping_sub(skew);
    let mut nexts = places.map(|place| place + skew);
    for &key in source {
        let bucket = digits.bucket(key);
        let next = nexts[bucket];
        *lines.add(bucket * per_line + next % per_line) = key;
        nexts[bucket] = next + 1;
        if (next + 1) % per_line == 0 {
            let line = lines.add(bucket * per_line);
            let first = places[bucket] + skew;
            if first + per_line <= next + 1 {
                write_line(line.cast(), base.wrapping_add(next + 1 - per_line).cast());
            } else {
                copy(
                    line.add(first % per_line),
                    base.wrapping_add(first),
                    next + 1 - first,
                );
            }
        }
    }
    for (bucket, &next) in nexts.iter().enumerate() {
        let first = (places[bucket] + skew).max(next - next % per_line);
        let line = lines.add(bucket * per_line + first % per_line);
        copy(line, base.wrapping_add(first), next - first);
    }
    fence();
}

#[inline(always)]
unsafe fn copy<K: Key>(from: *const K, to: *mut K, n: usize) {
    std::ptr::copy_nonoverlapping(from, to, n);
}

/// Write an aligned line past the caches.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
unsafe fn write_line(from: *const u8, to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
    let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
    for i in 0..LINE_BYTES / 16 {
        _mm_stream_si128(to.add(i), _mm_load_si128(from.add(i)));
    }
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
unsafe fn write_line(from: *const u8, to: *mut u8) {
    std::ptr::copy_nonoverlapping(from, to, LINE_BYTES);
}

/// Make lines that were written past the caches visible before the thread ends.
#[inline(always)]
fn fence() {
    // SAFETY: every x86-64 machine has this instruction.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
