//! Runs that are merged elsewhere: sampled keys, exact cuts, stored blocks; and ranges made of such pieces.
//!
//! A process that holds runs answers for each of them where a key would cut it, and hands out its blocks as they are
//! stored. A process that merges a range takes the blocks of all runs that reach into it, from wherever they lie,
//! keeps the records between two cuts of each, and sorts what it has: the order of pieces is the order of the source,
//! so equal keys keep theirs.

use std::fs::File;
use std::path::Path;

use crate::buffer::{capacity, Buffer};
use crate::disk::{DataFile, Direct};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::fetch::unpack;
use crate::form::Form;
use crate::memory::AlignedMemory;
use crate::run::{Block, IndexWindow, SortedRun};

/// Bytes that are decoded and written at a time.
/// By judgement: wide enough for any disk, and small beside a range. No benchmark.
const WRITE_BYTES: usize = 1 << 20;

/// A whole run, open for questions.
pub struct RunPieces {
    run: SortedRun,
    form: Form,
    file: DataFile,
    blocks: Vec<Block>,
}

impl RunPieces {
    /// Check a run file and open it.
    pub fn open(path: &Path, form: Form) -> Result<RunPieces> {
        let run = SortedRun::inspect(path)?;
        let header = &run.header;
        if header.signature != form.signature()
            || header.record_bytes as usize != form.width()
            || header.key_bytes as usize != form.key_bytes()
        {
            let text = "the run holds other records or another key";
            return Err(JobFailure::at(ErrorKind::ForeignRun, text, path, None));
        }
        let file = DataFile::open(path, Direct::Never)?;
        let mut blocks = Vec::with_capacity(header.blocks() as usize);
        let mut window = IndexWindow::new(&run);
        while !window.is_done() {
            window.load(&run, &file)?;
            blocks.push(window.block(&run));
            window.advance();
        }
        Ok(RunPieces {
            run,
            form,
            file,
            blocks,
        })
    }

    pub fn run(&self) -> &SortedRun {
        &self.run
    }

    /// Blocks in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The keys of records 0, `step`, 2 `step` and so on; wider steps than a block are cut down to whole blocks. Also
    /// the step that was taken.
    pub fn sample(&self, step: u64) -> Result<(u64, Vec<u8>)> {
        let per_block = u64::from(self.run.header.block_records);
        let step = match step > per_block {
            true => step / per_block * per_block,
            false => step.max(1),
        };
        let (mut keys, mut key) = (Vec::new(), vec![0; self.form.key_bytes()]);
        let mut held: Option<(usize, AlignedMemory)> = None;
        for position in (0..self.run.header.records).step_by(step as usize) {
            let (block, within) = ((position / per_block) as usize, position % per_block);
            if within == 0 {
                self.first_key(block, &mut key)?;
            } else {
                if held.as_ref().is_none_or(|(number, _)| *number != block) {
                    held = Some((block, self.plain(block)?));
                }
                if let Some((_, plain)) = &held {
                    let width = self.form.width();
                    self.form
                        .key(&plain[within as usize * width..][..width], &mut key);
                }
            }
            keys.extend(&key);
        }
        Ok((step, keys))
    }

    /// How many records come before each key; where `equal` says so, also those that are equal to it.
    pub fn cut(&self, keys: &[u8], equal: &[bool]) -> Result<Vec<u64>> {
        let key_bytes = self.form.key_bytes();
        if keys.len() != key_bytes * equal.len() {
            return Err(JobFailure::misuse("keys of another length than the run's"));
        }
        keys.chunks_exact(key_bytes)
            .zip(equal)
            .map(|(key, &equal)| self.count_before(key, equal))
            .collect()
    }

    fn count_before(&self, key: &[u8], equal: bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.blocks.len());
        let mut first = vec![0; key.len()];
        while low < high {
            let middle = low.midpoint(high);
            self.first_key(middle, &mut first)?;
            match first.as_slice() < key || equal && first == key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let Some(last) = low.checked_sub(1) else {
            return Ok(0);
        };
        let plain = self.plain(last)?;
        let bytes = self.blocks[last].records as usize * self.form.width();
        let within = self.form.count_before(&plain[..bytes], key, equal);
        Ok(last as u64 * u64::from(self.run.header.block_records) + within as u64)
    }

    fn first_key(&self, block: usize, key: &mut [u8]) -> Result<()> {
        let entry = self.run.header.entry_bytes() as u64;
        let offset = self.run.footer.index_offset + block as u64 * entry;
        match self.file.read_small(key, offset)? == key.len() {
            true => Ok(()),
            false => Err(self.corrupt("the index ends too early", offset)),
        }
    }

    /// A block as plain encoded records.
    fn plain(&self, number: usize) -> Result<AlignedMemory> {
        let block = &self.blocks[number];
        let mut stored = AlignedMemory::new(block.stored as usize)?;
        let stored = &mut stored[..block.stored as usize];
        self.read_at(stored, block.offset)?;
        let bytes = block.records as usize * self.form.width();
        let mut plain = AlignedMemory::new(bytes)?;
        unpack(&self.form, stored, block, &mut plain[..bytes])
            .map_err(|text| self.corrupt(text, block.offset))?;
        Ok(plain)
    }

    /// Read blocks as they are stored, one behind the other; the bytes that they take.
    pub fn read(&self, first: usize, count: usize, out: &mut [u8]) -> Result<usize> {
        let blocks = first
            .checked_add(count)
            .and_then(|end| self.blocks.get(first..end))
            .ok_or_else(|| JobFailure::misuse("the run does not have these blocks"))?;
        let bytes: usize = blocks.iter().map(|block| block.stored as usize).sum();
        let (Some(begin), Some(out)) = (blocks.first(), out.get_mut(..bytes)) else {
            return match bytes {
                0 => Ok(0),
                _ => Err(JobFailure::misuse("there is no room for these blocks")),
            };
        };
        self.read_at(out, begin.offset)?;
        Ok(bytes)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match self.file.read_exactly(out, offset)? {
            true => Ok(()),
            false => Err(self.corrupt("the run file ends too early", offset)),
        }
    }

    fn corrupt(&self, text: &str, offset: u64) -> JobFailure {
        JobFailure::at(ErrorKind::CorruptRun, text, &self.run.path, Some(offset))
    }
}

/// Some stored blocks of one run, side by side, and which of its records are wanted.
pub struct PieceBlocks<'a> {
    /// Stored bytes and checksum of each block.
    pub blocks: &'a [(u32, u32)],
    /// Records of every block but the last of the run, and of the run.
    pub block_records: u64,
    pub records: u64,
    /// Number of the first block.
    pub first: u64,
    /// The records that are wanted, counted from the beginning of the run.
    pub wanted: std::ops::Range<u64>,
}

/// A range that is put together from pieces of runs, in the order of the source, and sorted.
pub struct RangeBuffer {
    form: Form,
    capacity: usize,
    buffer: Buffer,
    spare: Option<Buffer>,
    /// Ends of the pieces, in bytes.
    ends: Vec<usize>,
}

impl RangeBuffer {
    pub fn new(form: Form, bytes: usize) -> Result<RangeBuffer> {
        let spare = match Buffer::wants_spare(&form) {
            true => Some(Buffer::new(bytes)?),
            false => None,
        };
        Ok(RangeBuffer {
            capacity: capacity(&form, bytes),
            buffer: Buffer::new(bytes)?,
            spare,
            ends: Vec::new(),
            form,
        })
    }

    /// Records that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn records(&self) -> usize {
        self.buffer.records(&self.form)
    }

    pub fn clear(&mut self) {
        self.buffer.clear(0);
        self.ends.clear();
    }

    /// Check and unpack blocks, and append the records of them that are wanted.
    pub fn add(&mut self, piece: &PieceBlocks<'_>, mut stored: &[u8]) -> Result<()> {
        let width = self.form.width();
        for (position, &(bytes, checksum)) in piece.blocks.iter().enumerate() {
            let begin = (piece.first + position as u64).saturating_mul(piece.block_records);
            let end = begin.saturating_add(piece.block_records).min(piece.records);
            let corrupt = |text: &str| JobFailure::new(ErrorKind::CorruptRun, text);
            if begin >= end {
                return Err(corrupt("a piece names a block behind the end of its run"));
            }
            let Some((now, later)) = stored.split_at_checked(bytes as usize) else {
                return Err(corrupt("a piece is shorter than its blocks"));
            };
            stored = later;
            let block = Block {
                offset: 0,
                stored: bytes,
                checksum,
                records: (end - begin) as u32,
            };
            let wanted = piece.wanted.start.max(begin)..piece.wanted.end.min(end);
            if wanted.is_empty() {
                continue;
            }
            let count = (wanted.end - wanted.start) as usize;
            if self.records() + count > self.capacity {
                return Err(JobFailure::misuse("a range is larger than its buffer"));
            }
            let plain = (end - begin) as usize * width;
            if count as u64 == end - begin {
                unpack(&self.form, now, &block, self.buffer.space(plain)).map_err(corrupt)?;
                continue;
            }
            let mut scratch = AlignedMemory::new(plain)?;
            unpack(&self.form, now, &block, &mut scratch[..plain]).map_err(corrupt)?;
            let skipped = (wanted.start - begin) as usize * width;
            self.buffer
                .append_encoded(&scratch[skipped..skipped + count * width]);
        }
        Ok(())
    }

    /// What is added next comes from another run.
    pub fn end_piece(&mut self) {
        if self.ends.last().map_or(0, |end| *end) < self.buffer.bytes() {
            self.ends.push(self.buffer.bytes());
        }
    }

    pub fn sort(&mut self, threads: usize) {
        self.end_piece();
        match are_in_order(&self.form, self.buffer.content(), &self.ends) {
            true => self.buffer.in_order(&self.form),
            false => self
                .buffer
                .sort(&self.form, self.spare.as_mut(), threads.max(1)),
        }
    }

    /// Write the sorted records as they were in the source, from byte `offset` of a file on.
    pub fn write(&self, file: &File, path: &Path, offset: u64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let (width, n_records) = (self.form.width(), self.records());
        let step = (WRITE_BYTES / width).max(1);
        let mut stage = AlignedMemory::new(step * width)?;
        for first in (0..n_records).step_by(step) {
            let stage = &mut stage[..step.min(n_records - first) * width];
            self.buffer.copy_sorted(&self.form, first, stage);
            self.form.decode(stage);
            let place = offset + (first * width) as u64;
            file.write_all_at(stage, place)
                .map_err(|error| JobFailure::os(ErrorKind::Write, &error, path, Some(place)))?;
        }
        Ok(())
    }

    /// Sorted records as they were in the source, from record `first` on; the bytes that were filled.
    pub fn take(&self, first: usize, out: &mut [u8]) -> Result<usize> {
        let width = self.form.width();
        let count = (out.len() / width).min(self.records().saturating_sub(first));
        let mut stage = AlignedMemory::new(count * width)?;
        let stage = &mut stage[..count * width];
        self.buffer.copy_sorted(&self.form, first, stage);
        self.form.decode(stage);
        out[..stage.len()].copy_from_slice(stage);
        Ok(stage.len())
    }
}

/// Whether sorted pieces follow each other, as those of a sorted source do.
pub fn are_in_order(form: &Form, content: &[u8], ends: &[usize]) -> bool {
    let (width, mut key) = (form.width(), vec![0; form.key_bytes()]);
    ends.iter().take(ends.len().saturating_sub(1)).all(|&end| {
        form.key(&content[end..end + width], &mut key);
        form.compare(&content[end - width..end], &key).is_le()
    })
}
