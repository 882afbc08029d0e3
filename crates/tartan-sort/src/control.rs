//! What all threads of a job share: the stop flag, the first failure, progress and the counters of every edge.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::{ErrorKind, JobFailure, Result};

/// How long a wait may last before it looks at the stop flag again.
/// By judgement: a stop is heard within a twentieth of a second.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// The boundaries between stages, in the order in which bytes cross them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    SourceRead,
    Sort,
    Pack,
    RunWrite,
    RunRead,
    Unpack,
    Merge,
    OutputWrite,
}

/// All edges with their names.
pub const EDGES: [(Edge, &str); 8] = [
    (Edge::SourceRead, "source_read"),
    (Edge::Sort, "sort"),
    (Edge::Pack, "pack"),
    (Edge::RunWrite, "run_write"),
    (Edge::RunRead, "run_read"),
    (Edge::Unpack, "unpack"),
    (Edge::Merge, "merge"),
    (Edge::OutputWrite, "output_write"),
];

/// Bytes that crossed an edge, and the seconds that its stage worked and waited.
#[derive(Default)]
pub struct Flow {
    bytes: AtomicU64,
    busy: AtomicU64,
    wait: AtomicU64,
}

impl Flow {
    /// Count bytes that took the time since `since`.
    pub fn worked(&self, bytes: usize, since: Instant) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.busy.fetch_add(nanoseconds(since), Relaxed);
    }

    /// Count time in which the stage had nothing to do or no room.
    pub fn waited(&self, since: Instant) {
        self.wait.fetch_add(nanoseconds(since), Relaxed);
    }

    /// Bytes, busy seconds, waiting seconds.
    pub fn totals(&self) -> (u64, f64, f64) {
        let seconds = |counter: &AtomicU64| counter.load(Relaxed) as f64 * 1e-9;
        (
            self.bytes.load(Relaxed),
            seconds(&self.busy),
            seconds(&self.wait),
        )
    }
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// Processor seconds that the calling thread has used: what work costs, however busy the machine is.
pub fn thread_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    Idle,
    Sort,
    Merge,
    Write,
    Read,
    Done,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Sort => "sort",
            Phase::Merge => "merge",
            Phase::Write => "write",
            Phase::Read => "read",
            Phase::Done => "done",
        }
    }
}

const PHASES: [Phase; 6] = [
    Phase::Idle,
    Phase::Sort,
    Phase::Merge,
    Phase::Write,
    Phase::Read,
    Phase::Done,
];

/// Shared by all threads of one job.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    failure: Mutex<Option<JobFailure>>,
    phase: AtomicU8,
    pub bytes_done: AtomicU64,
    pub bytes_total: AtomicU64,
    pub runs_done: AtomicU64,
    pub ranges_done: AtomicU64,
    flows: [Flow; EDGES.len()],
}

impl Control {
    /// Ask every thread to stop.
    pub fn cancel(&self) {
        self.fail(JobFailure::cancelled());
    }

    /// Remember the first failure and stop every thread.
    pub fn fail(&self, failure: JobFailure) {
        let mut first = self
            .failure
            .lock()
            .expect("no thread panics while it holds this");
        first.get_or_insert(failure);
        self.stop.store(true, Relaxed);
    }

    /// Whether threads should stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Return an error once a thread has failed or the job was cancelled.
    pub fn check(&self) -> Result<()> {
        match self.stopped() {
            true => Err(self.failure().unwrap_or_else(JobFailure::cancelled)),
            false => Ok(()),
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<JobFailure> {
        self.failure
            .lock()
            .expect("no thread panics while it holds this")
            .clone()
    }

    /// Run the work of one thread; what it returns or panics with stops the others.
    pub fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Option<T> {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            Ok(Ok(value)) => Some(value),
            Ok(Err(failure)) => {
                self.fail(failure);
                None
            }
            Err(panic) => {
                self.fail(JobFailure::new(ErrorKind::Internal, describe(&*panic)));
                None
            }
        }
    }

    pub fn flow(&self, edge: Edge) -> &Flow {
        &self.flows[edge as usize]
    }

    pub fn phase(&self) -> Phase {
        PHASES[self.phase.load(Relaxed) as usize]
    }

    /// Enter a phase of `total` bytes.
    pub fn enter(&self, phase: Phase, total: u64) {
        self.bytes_done.store(0, Relaxed);
        self.bytes_total.store(total, Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    pub fn leave(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub fn progressed(&self, bytes: usize) {
        self.bytes_done.fetch_add(bytes as u64, Relaxed);
    }
}

fn describe(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "a thread of the sort panicked: {}",
        text.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_wins() {
        let control = Control::default();
        assert!(control.check().is_ok());
        control.fail(JobFailure::new(ErrorKind::Read, "first"));
        control.cancel();
        assert_eq!(control.check().unwrap_err().kind, ErrorKind::Read);
    }

    #[test]
    fn a_panic_becomes_a_failure() {
        let control = Control::default();
        assert_eq!(control.guard(|| -> Result<()> { panic!("oh") }), None);
        assert_eq!(control.failure().unwrap().kind, ErrorKind::Internal);
        assert!(control.failure().unwrap().message.contains("oh"));
    }
}
