//! The path without vectors: radix sort where there is scratch, the standard library's sort where there is none.
//!
//! Radix sort works from the top: the range of the keys is divided into 256 buckets of equal width, until a bucket
//! fits a cache. There two passes of 11 bits each, from the bottom, order the keys by the upper 22 bits of their
//! distance from the smallest, and runs of keys that agree in those are sorted apart.

use super::parallel::{for_each, Shared};
use super::spread::{spread, Digits};
use super::Key;

/// Fewer keys go to the standard library.
/// By judgement: counting 2,048 digits costs more than sorting so few. `tartan bench sort_kernels` measures the sort.
const FEW: usize = 256;

/// More keys are spread over buckets first.
/// By arithmetic: 512 KiB of 64-bit keys and as much scratch, a second cache. `tartan bench sort_kernels` measures the
/// sort.
const MANY: usize = 1 << 16;

/// Bits of a digit in the passes from the bottom.
/// By arithmetic: 16 KiB of positions in a first cache of 32 KiB.
const DIGIT_BITS: u32 = 11;

/// By format.
const DIGITS: usize = 1 << DIGIT_BITS;

/// Sort keys in place.
pub(crate) fn sort<K: Key>(keys: &mut [K], _low: K, _high: K) {
    keys.sort_unstable();
}

/// Move keys below the pivot to the front, and return their number.
pub(crate) fn part<K: Key>(keys: &mut [K], pivot: K) -> usize {
    // A Lomuto partition without branches: each key is swapped, and the border moves if it was smaller.
    let mut below = 0;
    for i in 0..keys.len() {
        let key = keys[i];
        keys.swap(i, below);
        below += usize::from(key < pivot);
    }
    below
}

/// Sort keys by radix; the result lies in `keys`, or in `scratch` when `elsewhere`.
pub(crate) fn radix_sort<K: Key>(
    keys: &mut [K],
    scratch: &mut [K],
    elsewhere: bool,
    threads: usize,
) {
    let (low, high) = bounds(keys);
    if low == high || keys.len() <= FEW {
        keys.sort_unstable();
        if elsewhere {
            scratch.copy_from_slice(keys);
        }
        return;
    }
    let width = K::BITS - high.minus(low).zeros();
    if keys.len() > MANY {
        let digits = Digits {
            low,
            shift: width.saturating_sub(8),
        };
        let starts = spread(&digits, keys, scratch, threads);
        let (keys, scratch) = (Shared::new(keys), Shared::new(scratch));
        for_each(starts.len() - 1, threads, |bucket| {
            let range = starts[bucket]..starts[bucket + 1];
            // SAFETY: buckets do not overlap.
            let (keys, scratch) = unsafe { (keys.slice(range.clone()), scratch.slice(range)) };
            if !keys.is_empty() {
                radix_sort(scratch, keys, !elsewhere, 1);
            }
        });
        return;
    }
    let shift = width.saturating_sub(2 * DIGIT_BITS);
    sort_upper_bits(keys, scratch, low, shift);
    if shift > 0 {
        let same = |a: &K, b: &K| a.minus(low).right(shift) == b.minus(low).right(shift);
        for run in keys.chunk_by_mut(same) {
            run.sort_unstable();
        }
    }
    if elsewhere {
        scratch.copy_from_slice(keys);
    }
}

fn bounds<K: Key>(keys: &[K]) -> (K, K) {
    keys.iter()
        .fold((K::MAX, K::default()), |(low, high), &key| {
            (low.min(key), high.max(key))
        })
}

/// Sort keys by 22 bits of their distance from `low`, in two passes: to the scratch, and back.
fn sort_upper_bits<K: Key>(keys: &mut [K], scratch: &mut [K], low: K, shift: u32) {
    let mut places = [[0u32; DIGITS]; 2];
    let digit = |key: K, d: u32| {
        (key.minus(low).right(shift).to_u64() >> (d * DIGIT_BITS)) as usize % DIGITS
    };
    for &key in &*keys {
        places[0][digit(key, 0)] += 1;
        places[1][digit(key, 1)] += 1;
    }
    for places in &mut places {
        let mut end = 0;
        for place in places {
            (*place, end) = (end, end + *place);
        }
    }
    let (mut from, mut to) = (keys, scratch);
    for (d, places) in places.iter_mut().enumerate() {
        for &key in &*from {
            let place = &mut places[digit(key, d as u32)];
            to[*place as usize] = key;
            *place += 1;
        }
        (from, to) = (to, from);
    }
}
