//! Which blocks of which runs make the next range: the order of first keys foretells the order of need.
//!
//! All blocks of all runs are visited in the order of (first key, run, position). A range takes blocks in this order
//! until the buffer could overflow; the next block in the order is its *limit*: every record before the limit, in
//! the order of (key, run, position), is in a block of this range or left over from one before, and no block behind
//! the limit has any. So ranges are cut exactly, ties included, each block is read once, and no number of equal
//! keys overfills a range. Of each run only the last block of a range can reach beyond the limit; what does is left
//! over for the next range.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::disk::DataFile;
use crate::error::Result;
use crate::form::Form;
use crate::run::{Block, IndexWindow, SortedRun};

/// Where a range ends: before the block of `run` that begins with `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub key: Vec<u8>,
    pub run: usize,
}

impl Limit {
    /// How many of the sorted records of `run`, all from blocks before the limit, come before it.
    pub fn count(&self, form: &Form, run: usize, sorted: &[u8]) -> usize {
        match run.cmp(&self.run) {
            Ordering::Equal => sorted.len() / form.width(),
            before => form.count_before(sorted, &self.key, before == Ordering::Less),
        }
    }
}

/// Blocks that are read for a range, in the order of runs, and where it ends; without a limit it is the last one.
#[derive(Clone, Debug, Default)]
pub struct RangePlan {
    pub blocks: Vec<(usize, Block)>,
    pub limit: Option<Limit>,
}

/// The next block of a run, ordered so that a heap gives the first one.
struct Candidate {
    key: Vec<u8>,
    run: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        other.key.cmp(&self.key).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// A run that is open for merging.
pub struct OpenRun {
    pub run: SortedRun,
    pub file: Arc<DataFile>,
    /// Checksums of the windows of its index, as it was when it was opened.
    pub index: Vec<u32>,
}

/// Plans one range after the other.
pub struct Forecast<'a> {
    runs: &'a [OpenRun],
    windows: Vec<IndexWindow>,
    heap: BinaryHeap<Candidate>,
    /// Records that a range may take from blocks, with room kept for what is left over of each run.
    most: usize,
    finished: bool,
}

impl<'a> Forecast<'a> {
    /// Ranges of at most `target` records, which a buffer of `capacity` records must hold.
    pub fn new(runs: &'a [OpenRun], capacity: usize, target: usize) -> Result<Forecast<'a>> {
        let left_over: usize = runs
            .iter()
            .map(|open| open.run.header.block_records as usize)
            .sum();
        let largest = runs
            .iter()
            .map(|open| open.run.header.block_records as usize)
            .max()
            .unwrap_or(1);
        let mut forecast = Forecast {
            runs,
            windows: runs
                .iter()
                .map(|open| IndexWindow::again(&open.run, &open.index))
                .collect(),
            heap: BinaryHeap::with_capacity(runs.len()),
            most: target.min(capacity.saturating_sub(left_over)).max(largest),
            finished: false,
        };
        (0..runs.len()).try_for_each(|run| forecast.push(run))?;
        Ok(forecast)
    }

    /// The next range, or None behind the last one.
    pub fn next_range(&mut self) -> Result<Option<RangePlan>> {
        if self.finished {
            return Ok(None);
        }
        let (mut blocks, mut records) = (Vec::new(), 0);
        while let Some(next) = self.heap.peek() {
            let run = next.run;
            let block = self.windows[run].block(&self.runs[run].run);
            if !blocks.is_empty() && records + block.records as usize > self.most {
                break;
            }
            records += block.records as usize;
            blocks.push((run, block));
            self.heap.pop();
            self.windows[run].advance();
            self.push(run)?;
        }
        blocks.sort_by_key(|&(run, block)| (run, block.offset));
        let limit = self.heap.peek().map(|next| Limit {
            key: next.key.clone(),
            run: next.run,
        });
        self.finished = limit.is_none();
        Ok(Some(RangePlan { blocks, limit }))
    }

    fn push(&mut self, run: usize) -> Result<()> {
        let (window, open) = (&mut self.windows[run], &self.runs[run]);
        window.load(&open.run, &open.file)?;
        if !window.is_done() {
            self.heap.push(Candidate {
                key: window.key().to_vec(),
                run,
            });
        }
        Ok(())
    }
}
