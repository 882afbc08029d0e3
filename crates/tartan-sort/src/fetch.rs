//! Fetches ranges: reads their blocks, checks and unpacks them, and cuts at the limit.

use std::collections::VecDeque;
use std::time::Instant;

use crate::kernels;

use crate::buffer::Buffer;
use crate::control::Edge;
use crate::disk::{read, ReadStream};
use crate::engine::JobShared;
use crate::error::{ErrorKind, JobFailure, Result};
use crate::forecast::{Forecast, Limit, OpenRun, RangePlan};
use crate::form::Form;
use crate::memory::{words_mut, AlignedMemory, ALIGN};
use crate::run::Block;

/// How many ranges are planned before they are read.
/// By construction: one is read while the next is planned.
const PLANNED_RANGES: usize = 2;

/// Some blocks of one run that lie side by side and are read at once.
#[derive(Clone, Debug)]
struct IoRequest {
    run: usize,
    offset: u64,
    bytes: usize,
    n_blocks: usize,
}

/// Records of each run that a range before this one has read but not used.
struct LeftOver {
    memory: AlignedMemory,
    stride: usize,
    /// Used part of each run's memory.
    parts: Vec<std::ops::Range<usize>>,
}

impl LeftOver {
    fn new(n_runs: usize, block_bytes: usize) -> Result<LeftOver> {
        let stride = block_bytes.next_multiple_of(8);
        Ok(LeftOver {
            memory: AlignedMemory::new(n_runs * stride)?,
            stride,
            parts: vec![0..0; n_runs],
        })
    }

    fn of(&self, run: usize) -> &[u8] {
        let part = &self.parts[run];
        &self.memory[run * self.stride..][part.start..part.end]
    }

    /// Room for a block of a run that has nothing left over.
    fn replace(&mut self, run: usize, bytes: usize) -> &mut [u8] {
        self.parts[run] = 0..bytes;
        &mut self.memory[run * self.stride..][..bytes]
    }

    /// Move what comes before the limit into the buffer.
    fn take(&mut self, form: &Form, run: usize, limit: Option<&Limit>, buffer: &mut Buffer) {
        let sorted = self.of(run);
        let count = match limit {
            Some(limit) => limit.count(form, run, sorted) * form.width(),
            None => sorted.len(),
        };
        buffer.append_encoded(&sorted[..count]);
        self.parts[run].start += count;
    }
}

/// Reads one range after the other.
pub struct RangeFetcher<'a> {
    engine: &'a JobShared,
    runs: &'a [OpenRun],
    forecast: Forecast<'a>,
    stream: ReadStream,
    planned: VecDeque<RangePlan>,
    /// Requests that are not asked for yet, and those that are.
    pending: VecDeque<IoRequest>,
    asked: VecDeque<IoRequest>,
    left_over: LeftOver,
}

/// A range in a buffer: the slices of all runs, one behind the other.
pub struct Range {
    pub number: u64,
    pub buffer: Buffer,
    /// End of each slice that is not empty, in bytes.
    pub ends: Vec<usize>,
}

impl<'a> RangeFetcher<'a> {
    pub fn new(
        engine: &'a JobShared,
        runs: &'a [OpenRun],
        target: usize,
    ) -> Result<RangeFetcher<'a>> {
        let plan = &engine.plan;
        let records = runs
            .iter()
            .map(|open| open.run.header.block_records as usize)
            .max()
            .unwrap_or(1);
        Ok(RangeFetcher {
            engine,
            runs,
            forecast: Forecast::new(runs, plan.capacity(), target)?,
            stream: ReadStream::new(plan.ring, ErrorKind::CorruptRun)?,
            planned: VecDeque::new(),
            pending: VecDeque::new(),
            asked: VecDeque::new(),
            left_over: LeftOver::new(runs.len(), records * plan.form.width())?,
        })
    }

    /// Fill a buffer with the next range; None behind the last one.
    pub fn next_range(&mut self, number: u64) -> Result<Option<Range>> {
        self.ask_ahead()?;
        let Some(range) = self.planned.pop_front() else {
            return Ok(None);
        };
        let mut buffer = self.engine.buffer(Edge::RunRead)?;
        buffer.clear(0);
        let (form, mut ends, mut blocks) =
            (&self.engine.plan.form, Vec::new(), range.blocks.as_slice());
        for run in 0..self.runs.len() {
            let own = blocks.partition_point(|block| block.0 == run);
            let (mine, rest) = blocks.split_at(own);
            blocks = rest;
            let limit = range.limit.as_ref();
            self.left_over.take(
                form,
                run,
                if mine.is_empty() { limit } else { None },
                &mut buffer,
            );
            self.fetch(run, mine, &mut buffer)?;
            if !mine.is_empty() {
                self.left_over.take(form, run, limit, &mut buffer);
            }
            if ends.last().map_or(0, |end| *end) < buffer.bytes() {
                ends.push(buffer.bytes());
            }
        }
        Ok(Some(Range {
            number,
            buffer,
            ends,
        }))
    }

    /// Read the blocks of a run: all but the last into the buffer, the last one to the left over.
    fn fetch(&mut self, run: usize, blocks: &[(usize, Block)], buffer: &mut Buffer) -> Result<()> {
        let mut done = 0;
        while done < blocks.len() {
            self.engine.control.check()?;
            self.ask_ahead()?;
            let request = self
                .asked
                .pop_front()
                .expect("every block was asked for in this order");
            debug_assert_eq!(request.run, run);
            self.take_request(
                run,
                &blocks[done..done + request.n_blocks],
                done + request.n_blocks == blocks.len(),
                buffer,
            )?;
            done += request.n_blocks;
        }
        Ok(())
    }

    fn take_request(
        &mut self,
        run: usize,
        blocks: &[(usize, Block)],
        ends: bool,
        buffer: &mut Buffer,
    ) -> Result<()> {
        let JobShared { control, plan, .. } = self.engine;
        let since = Instant::now();
        let mut bytes = self.stream.front()?;
        control.flow(Edge::RunRead).waited(since);
        let (since, total) = (Instant::now(), bytes.len());
        for (i, &(_, block)) in blocks.iter().enumerate() {
            let (stored, rest) = bytes.split_at(block.stored as usize);
            let plain = block.records as usize * plan.form.width();
            let target = match ends && i + 1 == blocks.len() {
                true => self.left_over.replace(run, plain),
                false => buffer.space(plain),
            };
            unpack(&plan.form, stored, &block, target).map_err(|text| {
                JobFailure::at(
                    ErrorKind::CorruptRun,
                    text,
                    &self.runs[run].run.path,
                    Some(block.offset),
                )
            })?;
            control.progressed(plain);
            bytes = rest;
        }
        self.stream.release();
        control.flow(Edge::Unpack).worked(total, since);
        control.flow(Edge::RunRead).worked(total, Instant::now());
        Ok(())
    }

    fn ask_ahead(&mut self) -> Result<()> {
        while self.stream.can_take() {
            if self.pending.is_empty() && !self.plan_ahead()? {
                break;
            }
            let Some(request) = self.pending.pop_front() else {
                break;
            };
            self.stream
                .ask(&self.runs[request.run].file, request.offset, request.bytes)?;
            self.asked.push_back(request);
        }
        Ok(())
    }

    fn plan_ahead(&mut self) -> Result<bool> {
        if self.planned.len() >= PLANNED_RANGES {
            return Ok(false);
        }
        let Some(range) = self.forecast.next_range()? else {
            return Ok(false);
        };
        let most = read::payload(self.engine.plan.ring.bytes) as u64;
        for &(run, block) in &range.blocks {
            let end = block.offset + u64::from(block.stored);
            match self.pending.back_mut() {
                Some(last)
                    if last.run == run
                        && last.offset + last.bytes as u64 == block.offset
                        && fits(last.offset, end, most) =>
                {
                    last.bytes += block.stored as usize;
                    last.n_blocks += 1;
                }
                _ => self.pending.push_back(IoRequest {
                    run,
                    offset: block.offset,
                    bytes: block.stored as usize,
                    n_blocks: 1,
                }),
            }
        }
        self.planned.push_back(range);
        Ok(true)
    }
}

/// Whether a request from `start` to `end` stays within a ring buffer.
fn fits(start: u64, end: u64, most: u64) -> bool {
    end - start / ALIGN as u64 * ALIGN as u64 <= most + ALIGN as u64
}

/// Check a stored block and make it plain.
pub fn unpack(
    form: &Form,
    stored: &[u8],
    block: &Block,
    plain: &mut [u8],
) -> std::result::Result<(), &'static str> {
    if crc32fast::hash(stored) != block.checksum {
        return Err(
            "a block does not match its checksum; delete the run file and sort its range again",
        );
    }
    if stored.len() == plain.len() {
        plain.copy_from_slice(stored);
        return Ok(());
    }
    let unpacked = match form {
        Form::Word32(_) => kernels::unpack(stored, words_mut::<u32>(plain)),
        Form::Word64(_) => kernels::unpack(stored, words_mut::<u64>(plain)),
        Form::Record(_) => return Err("a block of records has another size than its records"),
    };
    match unpacked {
        Ok(used) if used == stored.len() => Ok(()),
        _ => Err("a packed block cannot be unpacked"),
    }
}
