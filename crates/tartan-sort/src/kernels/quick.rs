//! Vectorised quicksort.
//!
//! A task is a range of keys and two bounds that hold for all of them. A pivot parts the keys into those below it
//! and the others, and becomes a bound of both; where the bounds meet, all keys are equal and nothing is left to do.
//! A pivot at the lower bound would part nothing: the next larger key then splits off all keys that equal the bound.
//! So duplicates help. When pivots turn out badly too often, the middle between the bounds is taken instead: then no
//! task is parted more often than its keys have bits, and no input takes quadratic time.

use super::network::SMALL;
use super::vector::Vector;
use super::Key;

/// Vectors read at a time from one end when keys are parted in place.
/// UNROLL, AHEAD and BUFFERED, by judgement: eight vectors hide the latency of partitions, 24 that of memory, and a
/// buffer of 8 KiB stays in the first cache. `tartan bench sort_kernels`: 1.18 to 1.24 times NumPy's.
const UNROLL: usize = 8;

/// How many times `UNROLL` vectors ahead of their use keys are fetched from memory.
/// By judgement, see UNROLL.
const AHEAD: usize = 3;

/// Up to this many keys are parted through a buffer on the stack: no branch depends on a key.
/// By judgement, see UNROLL.
const BUFFERED: usize = 1024;

/// Tasks that can wait: the larger part waits, so that each next one has at most half the keys.
const STACK: usize = usize::BITS as usize;

#[derive(Clone, Copy)]
struct Task<K> {
    start: usize,
    end: usize,
    low: K,
    high: K,
    /// Pivots that may still be chosen by sample.
    trust: u32,
}

/// Sort keys that lie between `low` and `high`, both included.
///
/// # Safety
/// As for all methods of [`Vector`].
#[inline(always)]
pub(crate) unsafe fn quicksort<V: Vector>(keys: &mut [V::Key], low: V::Key, high: V::Key) {
    let base = keys.as_mut_ptr();
    let trust = 2 * (usize::BITS - keys.len().leading_zeros());
    let mut task = Task {
        start: 0,
        end: keys.len(),
        low,
        high,
        trust,
    };
    let mut waiting = [task; STACK];
    let mut n_waiting = 0;
    loop {
        let n = task.end - task.start;
        if n <= SMALL * V::LANES || task.low >= task.high {
            if task.low < task.high {
                V::sort_small(base.add(task.start), n);
            }
            if n_waiting == 0 {
                return;
            }
            n_waiting -= 1;
            task = waiting[n_waiting];
            continue;
        }
        let (first, second) = split::<V>(base, task);
        let first_is_smaller = first.end - first.start < second.end - second.start;
        let (next, later) = if first_is_smaller {
            (first, second)
        } else {
            (second, first)
        };
        waiting[n_waiting] = later;
        n_waiting += 1;
        task = next;
    }
}

/// Part the keys of a task by a pivot.
#[inline(always)]
unsafe fn split<V: Vector>(base: *mut V::Key, task: Task<V::Key>) -> (Task<V::Key>, Task<V::Key>) {
    let n = task.end - task.start;
    let keys = base.add(task.start);
    let mut pivot = if task.trust == 0 {
        middle(task.low, task.high)
    } else {
        sampled_pivot::<V>(keys, n)
    };
    if pivot <= task.low {
        pivot = task.low.plus(V::Key::from_u64(1));
    }
    let below = part::<V>(keys, n, pivot);
    let trust = task.trust.saturating_sub(1);
    let cut = task.start + below;
    let first = Task {
        end: cut,
        high: pivot.minus(V::Key::from_u64(1)),
        trust,
        ..task
    };
    let second = Task {
        start: cut,
        low: pivot,
        trust,
        ..task
    };
    (first, second)
}

/// Move keys below the pivot to the front, and return their number.
///
/// # Safety
/// As for all methods of [`Vector`]: `n` keys lie behind the pointer.
#[inline(always)]
pub(crate) unsafe fn part<V: Vector>(keys: *mut V::Key, n: usize, pivot: V::Key) -> usize {
    if n <= BUFFERED {
        part_buffered::<V>(keys, n, pivot)
    } else {
        part_in_place::<V>(keys, n, pivot)
    }
}

/// The key halfway, rounded up.
#[inline(always)]
fn middle<K: Key>(low: K, high: K) -> K {
    let distance = high.minus(low);
    low.plus(distance.right(1))
        .plus(distance.and(K::from_u64(1)))
}

/// The median of vectors from evenly spread places: 4 of them, or as many as a leaf takes.
#[inline(always)]
unsafe fn sampled_pivot<V: Vector>(keys: *const V::Key, n: usize) -> V::Key {
    let rows = if n <= 4096 { 4 } else { SMALL };
    let mut sample = [V::Key::default(); SMALL * 16];
    let step = (n - V::LANES) / (rows - 1);
    for row in 0..rows {
        V::load(keys.add(row * step)).store(sample.as_mut_ptr().add(row * V::LANES));
    }
    V::sort_small(sample.as_mut_ptr(), rows * V::LANES);
    sample[rows * V::LANES / 2]
}

/// Move keys below the pivot to the front, and return their number. `n` is at most `BUFFERED`.
#[inline(always)]
unsafe fn part_buffered<V: Vector>(keys: *mut V::Key, n: usize, pivot: V::Key) -> usize {
    // Both ends write whole vectors, of which only some lanes count.
    let mut buffer = [std::mem::MaybeUninit::<V::Key>::uninit(); BUFFERED + 16];
    let end = buffer.as_mut_ptr().cast::<V::Key>().add(BUFFERED + 16);
    let pivots = V::splat(pivot);
    let whole = n / V::LANES * V::LANES;
    let mut left = keys;
    let mut right = end;
    for i in (0..whole).step_by(V::LANES) {
        let vector = V::load(keys.add(i));
        let bits = vector.less(pivots);
        let parted = vector.part(bits);
        let n_less = bits.count_ones() as usize;
        parted.store(left);
        parted.store(right.sub(V::LANES));
        left = left.add(n_less);
        right = right.sub(V::LANES - n_less);
    }
    for i in whole..n {
        let key = *keys.add(i);
        let is_less = usize::from(key < pivot);
        *left = key;
        *right.sub(1) = key;
        left = left.add(is_less);
        right = right.sub(1 - is_less);
    }
    std::ptr::copy_nonoverlapping(right, left, end.offset_from(right) as usize);
    left.offset_from(keys) as usize
}

/// Where both ends of a range in place stand.
struct Ends<K> {
    read_left: *const K,
    read_right: *const K,
    write_left: *mut K,
    write_right: *mut K,
}

/// Move keys below the pivot to the front, and return their number. `n` is at least `2 * UNROLL` vectors.
///
/// The first and last vectors are taken out. That leaves room at both ends for what is read next, always from the
/// end that has less room; the vectors taken out and the odd keys in the middle fill the gap at last.
#[inline(always)]
unsafe fn part_in_place<V: Vector>(keys: *mut V::Key, n: usize, pivot: V::Key) -> usize {
    let step = UNROLL * V::LANES;
    let mut aside = [std::mem::MaybeUninit::<V::Key>::uninit(); 3 * UNROLL * 16];
    let aside = aside.as_mut_ptr().cast::<V::Key>();
    std::ptr::copy_nonoverlapping(keys, aside, step);
    std::ptr::copy_nonoverlapping(keys.add(n - step), aside.add(step), step);
    let mut ends = Ends {
        read_left: keys.add(step),
        read_right: keys.add(n - step),
        write_left: keys,
        write_right: keys.add(n),
    };
    let pivots = V::splat(pivot);
    while ends.read_right.offset_from(ends.read_left) as usize >= step {
        let gap_left = ends.read_left.offset_from(ends.write_left);
        let gap_right = ends.write_right.cast_const().offset_from(ends.read_right);
        let from = if gap_left <= gap_right {
            let from = ends.read_left;
            ends.read_left = from.add(step);
            V::prefetch(from.wrapping_add(AHEAD * step), UNROLL);
            from
        } else {
            ends.read_right = ends.read_right.sub(step);
            V::prefetch(ends.read_right.wrapping_sub(AHEAD * step), UNROLL);
            ends.read_right
        };
        let mut vectors = [pivots; UNROLL];
        for (i, vector) in vectors.iter_mut().enumerate() {
            *vector = V::load(from.add(i * V::LANES));
        }
        for vector in vectors {
            part_vector(&mut ends, vector, pivots);
        }
    }
    let odd = ends.read_right.offset_from(ends.read_left) as usize;
    std::ptr::copy_nonoverlapping(ends.read_left, aside.add(2 * step), odd);
    let below = part_buffered::<V>(aside, 2 * step + odd, pivot);
    std::ptr::copy_nonoverlapping(aside, ends.write_left, 2 * step + odd);
    ends.write_left.add(below).offset_from(keys) as usize
}

#[inline(always)]
unsafe fn part_vector<V: Vector>(ends: &mut Ends<V::Key>, vector: V, pivots: V) {
    let bits = vector.less(pivots);
    let parted = vector.part(bits);
    let n_less = bits.count_ones() as usize;
    parted.store(ends.write_left);
    parted.store(ends.write_right.sub(V::LANES));
    ends.write_left = ends.write_left.add(n_less);
    ends.write_right = ends.write_right.sub(V::LANES - n_less);
}
