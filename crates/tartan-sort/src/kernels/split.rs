//! Quicksort on several threads: keys are parted by all threads until each has a part of its own.

use std::ops::Range;
use std::thread;

use super::parallel::{for_each, part, Shared};
use super::random::Random;
use super::table::{Kernels, Vectorised};
use super::Key;

/// Keys of a sample: threads get parts that differ by a percent or so.
/// By arithmetic: 1 / sqrt(4,096) is 1.6 %.
const SAMPLE: usize = 4096;

/// Fewer keys than this are not worth a second thread.
/// By judgement: half a millisecond of work; waking a thread takes some 50 us.
const WORTHWHILE: usize = 1 << 16;

/// Sort keys that lie between `low` and `high`, both included, in place.
pub(crate) fn sort_in_place<K: Vectorised>(
    kernels: &Kernels<K>,
    mut keys: &mut [K],
    mut low: K,
    high: K,
    threads: usize,
) {
    while threads > 1 && keys.len() >= WORTHWHILE && low < high {
        let mut pivot = pivot(kernels, keys, threads / 2, threads);
        if pivot <= low {
            // Nothing lies below: split off what equals the bound.
            pivot = low.plus(K::from_u64(1));
        }
        let below = part_together(kernels, keys, pivot, threads);
        let (first, second) = keys.split_at_mut(below);
        if low < pivot.minus(K::from_u64(1)) && !first.is_empty() && !second.is_empty() {
            let end = pivot.minus(K::from_u64(1));
            let share = share(first.len(), second.len(), threads);
            thread::scope(|scope| {
                scope.spawn(|| sort_in_place(kernels, first, low, end, share));
                sort_in_place(kernels, second, pivot, high, threads - share);
            });
            return;
        }
        if second.is_empty() {
            return sort_in_place(kernels, first, low, pivot.minus(K::from_u64(1)), threads);
        }
        // The first part is empty, or all its keys are equal.
        (keys, low) = (second, pivot);
    }
    if low < high {
        kernels.sort(keys, low, high);
    }
}

/// How many of the threads the first part gets.
fn share(first: usize, second: usize, threads: usize) -> usize {
    let exact = threads as f64 * first as f64 / (first + second) as f64;
    (exact.round() as usize).clamp(1, threads - 1)
}

/// About the key that `numerator / denominator` of the keys lie below.
fn pivot<K: Vectorised>(
    kernels: &Kernels<K>,
    keys: &[K],
    numerator: usize,
    denominator: usize,
) -> K {
    let mut random = Random(keys.len() as u64);
    let mut sample = [K::default(); SAMPLE];
    for place in &mut sample {
        *place = keys[random.below(keys.len())];
    }
    kernels.sort(&mut sample, K::default(), K::MAX);
    sample[SAMPLE * numerator / denominator]
}

/// Move keys below the pivot to the front, and return their number: each thread parts a stripe, then the keys that
/// lie on the wrong side of the common border are swapped.
fn part_together<K: Vectorised>(
    kernels: &Kernels<K>,
    keys: &mut [K],
    pivot: K,
    threads: usize,
) -> usize {
    let n = keys.len();
    let mut below = vec![0; threads];
    let (shared, counts) = (Shared::new(keys), Shared::new(&mut below));
    for_each(threads, threads, |t| {
        // SAFETY: stripes do not overlap, and each thread has a count of its own.
        let (stripe, count) =
            unsafe { (shared.slice(part(n, threads, t)), counts.slice(t..t + 1)) };
        count[0] = kernels.part(stripe, pivot);
    });
    let border: usize = below.iter().sum();
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for (t, count) in below.iter().enumerate() {
        let stripe = part(n, threads, t);
        let middle = stripe.start + count;
        push(&mut large, middle..stripe.end.min(border));
        push(&mut small, stripe.start.max(border)..middle);
    }
    let misplaced: usize = large.iter().map(ExactSizeIterator::len).sum();
    for_each(threads, threads, |t| {
        let range = part(misplaced, threads, t);
        // SAFETY: large and small ranges lie on different sides of the border, and each thread takes other places.
        unsafe { swap(shared, &large, &small, range) };
    });
    border
}

fn push(ranges: &mut Vec<Range<usize>>, range: Range<usize>) {
    if !range.is_empty() {
        ranges.push(range);
    }
}

/// Swap the i-th place of the one list with the i-th of the other, for each i of the range.
///
/// # Safety
/// All places lie within the keys, no place occurs twice, and no other thread uses them meanwhile.
unsafe fn swap<K: Key>(
    keys: Shared<K>,
    large: &[Range<usize>],
    small: &[Range<usize>],
    range: Range<usize>,
) {
    let mut i = range.start;
    while i < range.end {
        let (from, to) = (locate(large, i), locate(small, i));
        let n = from.len().min(to.len()).min(range.end - i);
        let one = keys.slice(from.start..from.start + n);
        one.swap_with_slice(keys.slice(to.start..to.start + n));
        i += n;
    }
}

/// What is left of the range that holds the i-th place.
fn locate(ranges: &[Range<usize>], mut i: usize) -> Range<usize> {
    for range in ranges {
        if i < range.len() {
            return range.start + i..range.end;
        }
        i -= range.len();
    }
    0..0
}
