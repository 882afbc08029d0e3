//! A stream of file ranges, read ahead and delivered in the order asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use super::file::DataFile;
use super::ring::{IoRequest, Ring, RingPlan};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::memory::{AlignedMemory, ALIGN};

/// The most bytes that one request of a ring of `bytes` can deliver from any offset.
pub fn payload(bytes: usize) -> usize {
    bytes - 2 * ALIGN
}

struct Ahead {
    file: Arc<DataFile>,
    /// Where the request begins, aligned.
    start: u64,
    /// Bytes before the wanted ones.
    gap: usize,
    /// Bytes that must have arrived: gap and wanted ones.
    needed: usize,
    arrived: usize,
    done: bool,
}

/// Reads ranges of files, several at a time.
pub struct ReadStream {
    // Dropped before the memory, and waits for what is in flight.
    ring: Ring,
    memory: AlignedMemory,
    plan: RingPlan,
    /// The ranges in flight or ready, oldest first; the front one is number `first`.
    ahead: VecDeque<Ahead>,
    first: usize,
    /// What a range that ends too early means.
    short: ErrorKind,
}

impl ReadStream {
    /// A stream; `short` is the kind of failure that a file too short for its range means.
    pub fn new(plan: RingPlan, short: ErrorKind) -> Result<ReadStream> {
        let ring = Ring::new(plan.method, plan.depth).map_err(|error| {
            JobFailure::new(ErrorKind::Internal, format!("no ring of requests: {error}"))
        })?;
        Ok(ReadStream {
            ring,
            memory: AlignedMemory::new(plan.bytes * plan.depth)?,
            plan,
            ahead: VecDeque::with_capacity(plan.depth),
            first: 0,
            short,
        })
    }

    pub fn method(&self) -> &'static str {
        self.ring.name()
    }

    /// Whether another range can be asked for.
    pub fn can_take(&self) -> bool {
        self.ahead.len() < self.plan.depth
    }

    pub fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Ask for `length` bytes at `offset`, at most `payload(bytes)`.
    pub fn ask(&mut self, file: &Arc<DataFile>, offset: u64, length: usize) -> Result<()> {
        assert!(self.can_take());
        let gap = (offset % ALIGN as u64) as usize;
        assert!(
            gap + length <= self.plan.bytes,
            "a range is longer than a buffer"
        );
        self.ahead.push_back(Ahead {
            file: Arc::clone(file),
            start: offset - gap as u64,
            gap,
            needed: gap + length,
            arrived: 0,
            done: length == 0,
        });
        match length {
            0 => Ok(()),
            _ => self.submit(self.first + self.ahead.len() - 1),
        }
    }

    /// The bytes of the oldest range asked for; they stay until `release`.
    pub fn front(&mut self) -> Result<&[u8]> {
        assert!(!self.ahead.is_empty(), "no range was asked for");
        while !self.ahead[0].done {
            let (number, moved) = self.ring.wait().map_err(|error| self.broken(&error))?;
            self.arrived(number, moved)?;
        }
        let start = self.first % self.plan.depth * self.plan.bytes;
        let front = &self.ahead[0];
        Ok(&self.memory[start + front.gap..start + front.needed])
    }

    /// The oldest range is done with.
    pub fn release(&mut self) {
        if let Some(front) = self.ahead.pop_front() {
            front.file.consumed(front.start, front.needed as u64);
            self.first += 1;
        }
    }

    fn arrived(&mut self, number: usize, moved: std::io::Result<usize>) -> Result<()> {
        let entry = &mut self.ahead[number - self.first];
        match moved {
            Ok(0) => return Err(self.ended_early(number)),
            Ok(moved) => entry.arrived += moved,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                if !entry.file.give_up_direct()? {
                    return Err(entry
                        .file
                        .failure(ErrorKind::Read, &error, Some(entry.start)));
                }
            }
            Err(error) if retry(&error) => {}
            Err(error) => {
                return Err(entry
                    .file
                    .failure(ErrorKind::Read, &error, Some(entry.start)))
            }
        }
        let entry = &mut self.ahead[number - self.first];
        if entry.arrived >= entry.needed {
            entry.done = true;
            return Ok(());
        }
        // A direct read that stopped between two pages has met the end of the file.
        if entry.file.is_direct() && !entry.arrived.is_multiple_of(ALIGN) {
            return Err(self.ended_early(number));
        }
        self.submit(number)
    }

    fn submit(&mut self, number: usize) -> Result<()> {
        let entry = &self.ahead[number - self.first];
        let slot = number % self.plan.depth * self.plan.bytes + entry.arrived;
        let length = entry.needed.next_multiple_of(ALIGN) - entry.arrived;
        let request = IoRequest {
            descriptor: entry.file.descriptor(),
            write: false,
            offset: entry.start + entry.arrived as u64,
            pointer: self.memory[slot..slot + length].as_mut_ptr(),
            length,
            tag: number,
        };
        // SAFETY: the slot belongs to this range until release, which only follows its completion; the entry
        // keeps the file open; a drop of the stream drops the ring first.
        unsafe { self.ring.submit(request) }.map_err(|error| self.broken(&error))
    }

    fn ended_early(&self, number: usize) -> JobFailure {
        let entry = &self.ahead[number - self.first];
        let end = entry.start + entry.arrived as u64;
        JobFailure::at(
            self.short,
            "the file ends before it should",
            entry.file.path(),
            Some(end),
        )
    }

    fn broken(&self, error: &std::io::Error) -> JobFailure {
        JobFailure::new(
            ErrorKind::Internal,
            format!("the ring of reads is broken: {error}"),
        )
    }
}

/// Whether the same request may succeed at once.
pub(super) fn retry(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
