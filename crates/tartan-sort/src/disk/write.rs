//! A stream of bytes into one file after the other, written behind.

use std::collections::VecDeque;
use std::sync::Arc;

use super::file::DataFile;
use super::read::retry;
use super::ring::{IoRequest, Ring, RingPlan};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::memory::{AlignedMemory, ALIGN};

struct Behind {
    file: Arc<DataFile>,
    start: u64,
    length: usize,
    written: usize,
    done: bool,
}

/// Appends to a file in large aligned requests, several in flight.
pub struct WriteStream {
    // Dropped before the memory, and waits for what is in flight.
    ring: Ring,
    memory: AlignedMemory,
    plan: RingPlan,
    /// Requests in flight, oldest first; the front one is number `first`, the open slot number `first + len`.
    behind: VecDeque<Behind>,
    first: usize,
    target: Option<Arc<DataFile>>,
    /// File offset where the open slot begins, and the bytes that it holds.
    start: u64,
    fill: usize,
}

impl WriteStream {
    pub fn new(plan: RingPlan) -> Result<WriteStream> {
        let ring = Ring::new(plan.method, plan.depth).map_err(|error| {
            JobFailure::new(ErrorKind::Internal, format!("no ring of requests: {error}"))
        })?;
        Ok(WriteStream {
            ring,
            memory: AlignedMemory::new(plan.bytes * plan.depth)?,
            plan,
            behind: VecDeque::with_capacity(plan.depth),
            first: 0,
            target: None,
            start: 0,
            fill: 0,
        })
    }

    pub fn method(&self) -> &'static str {
        self.ring.name()
    }

    /// Begin to append to `file` at `offset`; what the file holds before it stays.
    pub fn begin(&mut self, file: Arc<DataFile>, offset: u64) -> Result<()> {
        assert!(self.target.is_none(), "the file before is not finished");
        let gap = (offset % ALIGN as u64) as usize;
        self.start = offset - gap as u64;
        self.wait_for_slot()?;
        let slot = self.slot();
        if gap > 0 {
            self.memory[slot..slot + gap].fill(0);
            file.read_small(&mut self.memory[slot..slot + gap], self.start)?;
        }
        self.fill = gap;
        self.target = Some(file);
        Ok(())
    }

    /// Where the next byte goes.
    pub fn position(&self) -> u64 {
        self.start + self.fill as u64
    }

    /// Append bytes.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let slot = self.slot();
            let count = bytes.len().min(self.plan.bytes - self.fill);
            self.memory[slot + self.fill..slot + self.fill + count]
                .copy_from_slice(&bytes[..count]);
            self.fill += count;
            bytes = &bytes[count..];
            if self.fill == self.plan.bytes {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Append zeros up to the next page.
    pub fn align(&mut self) -> Result<()> {
        let gap = self.fill.next_multiple_of(ALIGN) - self.fill;
        self.append(&[0; ALIGN][..gap])
    }

    /// Write the rest, wait for all requests, and cut the file after the last byte.
    pub fn finish(&mut self) -> Result<Arc<DataFile>> {
        let length = self.position();
        let rest = self.fill;
        if rest > 0 {
            let (slot, end) = (self.slot(), rest.next_multiple_of(ALIGN));
            self.memory[slot + rest..slot + end].fill(0);
            self.fill = end;
            self.flush()?;
        }
        while !self.behind.is_empty() {
            self.settle_one()?;
        }
        let file = self.target.take().expect("begin came before");
        file.set_length(length)?;
        file.settle_all();
        self.fill = 0;
        Ok(file)
    }

    /// Forget the file that was begun, after a failure.
    pub fn abandon(&mut self) {
        self.target = None;
        self.fill = 0;
    }

    fn slot(&self) -> usize {
        (self.first + self.behind.len()) % self.plan.depth * self.plan.bytes
    }

    fn flush(&mut self) -> Result<()> {
        let number = self.first + self.behind.len();
        let file = self.target.as_ref().expect("begin came before");
        self.behind.push_back(Behind {
            file: Arc::clone(file),
            start: self.start,
            length: self.fill,
            written: 0,
            done: false,
        });
        self.start += self.fill as u64;
        self.fill = 0;
        self.submit(number)?;
        self.wait_for_slot()
    }

    /// The open slot must not be one in flight.
    fn wait_for_slot(&mut self) -> Result<()> {
        while self.behind.len() >= self.plan.depth
            || self.behind.front().is_some_and(|oldest| oldest.done)
        {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Wait until the oldest request is done, and take it off.
    fn settle_one(&mut self) -> Result<()> {
        while !self.behind[0].done {
            let (number, moved) = self.ring.wait().map_err(|error| self.broken(&error))?;
            self.moved(number, moved)?;
        }
        if let Some(oldest) = self.behind.pop_front() {
            oldest.file.written(oldest.start, oldest.length as u64);
            self.first += 1;
        }
        Ok(())
    }

    fn moved(&mut self, number: usize, moved: std::io::Result<usize>) -> Result<()> {
        let entry = &mut self.behind[number - self.first];
        match moved {
            Ok(moved) => entry.written += moved,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                if !entry.file.give_up_direct()? {
                    return Err(entry
                        .file
                        .failure(ErrorKind::Write, &error, Some(entry.start)));
                }
            }
            Err(error) if retry(&error) => {}
            Err(error) => {
                return Err(entry
                    .file
                    .failure(ErrorKind::Write, &error, Some(entry.start)))
            }
        }
        let entry = &mut self.behind[number - self.first];
        entry.done = entry.written >= entry.length;
        match entry.done {
            true => Ok(()),
            false => self.submit(number),
        }
    }

    fn submit(&mut self, number: usize) -> Result<()> {
        let entry = &self.behind[number - self.first];
        let slot = number % self.plan.depth * self.plan.bytes + entry.written;
        let length = entry.length - entry.written;
        let request = IoRequest {
            descriptor: entry.file.descriptor(),
            write: true,
            offset: entry.start + entry.written as u64,
            pointer: self.memory[slot..slot + length].as_mut_ptr(),
            length,
            tag: number,
        };
        // SAFETY: the slot is not touched until the request is done and taken off; the entry keeps the file
        // open; a drop of the stream drops the ring first.
        unsafe { self.ring.submit(request) }.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &std::io::Error) -> JobFailure {
        JobFailure::new(
            ErrorKind::Internal,
            format!("the ring of writes is broken: {error}"),
        )
    }
}
