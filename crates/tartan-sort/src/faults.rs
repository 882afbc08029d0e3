//! Faults that tests inject: the process aborts at a known point, as if it were killed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where the process aborts; nowhere unless a test asks for it.
#[derive(Default)]
pub struct Faults {
    runs: AtomicU64,
    ranges: AtomicU64,
}

impl Faults {
    /// Abort once this many runs are whole, or this many ranges are written; 0 is never.
    pub fn abort_after(&self, runs: u64, ranges: u64) {
        self.runs.store(runs, Relaxed);
        self.ranges.store(ranges, Relaxed);
    }

    pub(crate) fn run_done(&self, done: u64) {
        abort_at(&self.runs, done);
    }

    pub(crate) fn range_done(&self, done: u64) {
        abort_at(&self.ranges, done);
    }
}

fn abort_at(count: &AtomicU64, done: u64) {
    if count.load(Relaxed) == done {
        std::process::abort();
    }
}
