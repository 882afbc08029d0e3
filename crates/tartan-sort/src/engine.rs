//! The numbers of a job, the memory that they take, and what all stages share.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::buffer::{capacity, Buffer};
use crate::control::{Control, Edge};
use crate::disk::{read, Direct, RingPlan};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::faults::Faults;
use crate::folders::Folders;
use crate::form::Form;
use crate::memory::ALIGN;
use crate::pack_policy::{Decision, Pack};
use crate::queue::Queue;
use crate::run::index::WINDOW_BYTES;
use crate::run::SortedRun;

/// Everything that the caller decides.
#[derive(Clone, Debug)]
pub struct JobPlan {
    pub form: Form,
    /// Which job runs belong to.
    pub fingerprint: [u8; 32],
    pub folders: Vec<PathBuf>,
    /// Bytes of one buffer: a chunk while sorting, a range while merging.
    pub buffer_bytes: usize,
    pub buffers: usize,
    /// Threads that sort and merge.
    pub threads: usize,
    /// Most runs that are merged at once.
    pub fan_in: usize,
    /// Bytes of a block, the unit of checksum and index.
    pub block_bytes: usize,
    pub ring: RingPlan,
    pub pack: Pack,
    pub direct: Direct,
}

/// Stack and scratch of one thread, as far as they are touched.
/// By judgement. `tartan bench sort` prints the peak.
const THREAD_BYTES: usize = 1 << 20;
/// Bytes that a thread which takes sorted records out handles at a time.
/// By arithmetic: stays in the second cache. `tartan bench sort` holds the time.
pub const STAGE_BYTES: usize = 128 << 10;
/// Bytes of a planned block of a range.
/// By format of what is held in memory.
const PLANNED_BLOCK_BYTES: usize = 32;

impl JobPlan {
    /// Records of a full block.
    pub fn block_records(&self) -> usize {
        (self.block_bytes / self.form.width()).max(1)
    }

    /// Records that a buffer holds.
    pub fn capacity(&self) -> usize {
        capacity(&self.form, self.buffer_bytes)
    }

    /// How many threads sort into a spare buffer of their own: all where that is faster, if enough buffers are left.
    fn spares(&self) -> usize {
        match Buffer::wants_spare(&self.form) && self.buffers > 2 * self.threads {
            true => self.threads,
            false => 0,
        }
    }

    /// Most bytes that the engine takes.
    pub fn memory_bytes(&self) -> usize {
        let rings = 2 * self.ring.bytes * self.ring.depth;
        let per_run = self.block_bytes.max(self.form.width())
            + WINDOW_BYTES
            + 2 * self.form.key_bytes()
            + 1024;
        let blocks = self.buffer_bytes / self.block_bytes + self.fan_in;
        let planned = 3 * blocks * PLANNED_BLOCK_BYTES + blocks * (self.form.key_bytes() + 16);
        let stages = 2 * (STAGE_BYTES + 3 * self.block_bytes);
        self.buffers * self.buffer_bytes
            + rings
            + self.fan_in * per_run
            + planned
            + stages
            + (self.threads + 4) * THREAD_BYTES
    }

    /// Say which number leaves no room to work.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(JobFailure::new(ErrorKind::Memory, text));
        let width = self.form.width();
        if self.threads == 0 || self.fan_in < 2 || self.buffers < 3 {
            return wrong("a sort needs a thread, a fan-in of 2 and 3 buffers at least".into());
        }
        if !self.block_bytes.is_multiple_of(ALIGN)
            || !self.buffer_bytes.is_multiple_of(ALIGN)
            || !self.ring.bytes.is_multiple_of(ALIGN)
        {
            return wrong(format!(
                "buffer_bytes, block_bytes and ring_bytes must be multiples of {ALIGN}"
            ));
        }
        if self.block_bytes < width
            || self.ring.depth < 2
            || read::payload(self.ring.bytes.max(2 * ALIGN)) < self.block_bytes
        {
            return wrong(format!(
                "block_bytes ({}) must hold a record of {width} bytes, ring_bytes ({}) a block and {} bytes more, ring_depth ({}) 2 requests",
                self.block_bytes, self.ring.bytes, 2 * ALIGN, self.ring.depth
            ));
        }
        if self.capacity() < 2 * self.fan_in * self.block_records() {
            return wrong(format!(
                "a buffer of {} bytes is too small to merge {} runs in blocks of {} bytes: give more memory or a smaller fan_in",
                self.buffer_bytes, self.fan_in, self.block_bytes
            ));
        }
        Ok(())
    }
}

/// What all threads of a job share.
pub struct JobShared {
    pub plan: JobPlan,
    pub control: Control,
    pub folders: Folders,
    /// Free buffers.
    pub pool: Queue<Buffer>,
    /// Buffers beyond the pool that lone numbers are sorted into; never waited for.
    spares: Mutex<Vec<Buffer>>,
    /// Whole runs that exist on disk.
    pub runs: Mutex<Vec<SortedRun>>,
    pub decision: Mutex<Option<Decision>>,
    pub facts: Mutex<Facts>,
    pub faults: Faults,
}

/// What the job turned out to be, for the statistics.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub records: u64,
    pub runs: u64,
    pub runs_adopted: u64,
    pub packed_runs: u64,
    pub levels: u32,
    pub packed_values: u64,
    pub packed_bytes: u64,
    pub direct_read: Option<bool>,
    pub direct_write: Option<bool>,
    pub direct_runs: Option<bool>,
    pub method: Option<&'static str>,
    /// Bytes sorted, and processor seconds that this took.
    pub sorted: (u64, f64),
    pub read_bytes_per_second: Option<f64>,
    pub write_bytes_per_second: Option<f64>,
}

impl JobShared {
    pub fn new(plan: JobPlan) -> Result<JobShared> {
        plan.check()?;
        let engine = JobShared {
            folders: Folders::new(plan.folders.clone())?,
            control: Control::default(),
            pool: Queue::new(plan.buffers),
            spares: Mutex::default(),
            runs: Mutex::default(),
            decision: Mutex::default(),
            facts: Mutex::default(),
            faults: Faults::default(),
            plan,
        };
        let spares = engine.plan.spares();
        for number in 0..engine.plan.buffers {
            let buffer = Buffer::new(engine.plan.buffer_bytes)?;
            match number < spares {
                true => engine.leave_spare(Some(buffer)),
                false => engine.give_back(buffer)?,
            }
        }
        Ok(engine)
    }

    /// A free buffer; the wait is booked on `edge`.
    pub fn buffer(&self, edge: Edge) -> Result<Buffer> {
        let buffer = self.pool.receive(&self.control, self.control.flow(edge))?;
        buffer.ok_or_else(|| JobFailure::misuse("the job is closed"))
    }

    pub fn give_back(&self, buffer: Buffer) -> Result<()> {
        self.pool
            .send(buffer, &self.control, self.control.flow(Edge::Sort))
    }

    /// The spare buffer of a thread that sorts, for those that have one.
    pub fn take_spare(&self) -> Option<Buffer> {
        self.spares.lock().expect("no holder panics").pop()
    }

    /// The inverse of `take_spare`.
    pub fn leave_spare(&self, spare: Option<Buffer>) {
        self.spares.lock().expect("no holder panics").extend(spare);
    }

    /// Release the memory of all free buffers.
    pub fn free(&self) {
        self.pool.clear();
        self.spares.lock().expect("no holder panics").clear();
    }

    pub fn note(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock().expect("no holder panics"));
    }
}
