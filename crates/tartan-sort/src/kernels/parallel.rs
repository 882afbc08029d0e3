//! Work on an exact number of threads. Threads live as long as the call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Call `work(i)` for each i below `n_tasks`, on up to `threads` threads, in no particular order.
pub(crate) fn for_each(n_tasks: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let drain = || loop {
        let task = next.fetch_add(1, Ordering::Relaxed);
        if task >= n_tasks {
            break;
        }
        work(task);
    };
    let helpers = threads.min(n_tasks).saturating_sub(1);
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(drain);
        }
        drain();
    });
}

/// The i-th of `parts` nearly equal parts of 0..n.
pub(crate) fn part(n: usize, parts: usize, i: usize) -> std::ops::Range<usize> {
    let at = |i: usize| (n as u128 * i as u128 / parts as u128) as usize;
    at(i)..at(i + 1)
}

/// A pointer that several threads may use, each for places of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: users promise in `slice` that no two threads touch the same place.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Shared(slice.as_mut_ptr())
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }

    /// # Safety
    /// The range lies within the slice, which outlives 'a, and no other thread uses these places meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice<'a>(&self, range: std::ops::Range<usize>) -> &'a mut [T] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once() {
        for (n, threads) in [(0, 3), (1, 3), (7, 1), (100, 4)] {
            let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            for_each(n, threads, |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn parts_cover_everything() {
        for (n, parts) in [(0, 3), (10, 3), (3, 10), (1000, 7)] {
            let ranges: Vec<_> = (0..parts).map(|i| part(n, parts, i)).collect();
            assert_eq!(ranges.iter().map(ExactSizeIterator::len).sum::<usize>(), n);
            assert!(ranges.windows(2).all(|w| w[0].end == w[1].start));
        }
    }
}
