//! The index of a run, read in order through a small window.

use super::format::{SortedRun, ENTRY_REST, PAGE};
use crate::disk::DataFile;
use crate::error::{ErrorKind, JobFailure, Result};

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub offset: u64,
    /// Bytes as stored; as many as plain when the block is not packed.
    pub stored: u32,
    pub checksum: u32,
    pub records: u32,
}

/// Bytes of the window.
/// By judgement: two pages of an index for each run that is merged.
pub const WINDOW_BYTES: usize = 8 << 10;

/// Reads the entries of one run, one after the other, and checks them: run files may be damaged at any time.
pub struct IndexWindow {
    window: Vec<u8>,
    /// Number of the current entry, and of the first one in the window.
    current: u64,
    first: u64,
    entry_bytes: usize,
    key_bytes: usize,
    blocks: u64,
    /// Where the block behind the window begins, and the checksum of all entries up to there.
    next_offset: u64,
    hasher: crc32fast::Hasher,
    /// Checksums of the windows, where all entries were checked before.
    known: Vec<u32>,
}

impl IndexWindow {
    pub fn new(run: &SortedRun) -> IndexWindow {
        IndexWindow {
            window: Vec::new(),
            current: 0,
            first: 0,
            entry_bytes: run.header.entry_bytes(),
            key_bytes: run.header.key_bytes as usize,
            blocks: run.header.blocks(),
            next_offset: PAGE as u64,
            hasher: crc32fast::Hasher::new(),
            known: Vec::new(),
        }
    }

    /// Read entries again that were checked; `known` is what `check_all` returned. Each window must be as it was.
    pub fn again(run: &SortedRun, known: &[u32]) -> IndexWindow {
        IndexWindow {
            known: known.to_vec(),
            ..IndexWindow::new(run)
        }
    }

    /// Whether no entry is left.
    pub fn is_done(&self) -> bool {
        self.current >= self.blocks
    }

    /// The first key of the current block; `load` came before.
    pub fn key(&self) -> &[u8] {
        &self.entry(self.current)[..self.key_bytes]
    }

    /// The current block.
    pub fn block(&self, run: &SortedRun) -> Block {
        self.block_at(run, self.current)
    }

    fn block_at(&self, run: &SortedRun, position: u64) -> Block {
        let rest = &self.entry(position)[self.key_bytes..];
        let number =
            |from: usize| u32::from_le_bytes(rest[from..from + 4].try_into().expect("four bytes"));
        let header = &run.header;
        let before = position * u64::from(header.block_records);
        Block {
            offset: u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")),
            stored: number(8),
            checksum: number(12),
            records: (header.records - before).min(u64::from(header.block_records)) as u32,
        }
    }

    pub fn advance(&mut self) {
        self.current += 1;
    }

    /// Make sure that the current entry is in the window.
    pub fn load(&mut self, run: &SortedRun, file: &DataFile) -> Result<()> {
        let held = self.window.len() / self.entry_bytes;
        if self.is_done() || self.current < self.first + held as u64 {
            return Ok(());
        }
        let most = (WINDOW_BYTES / self.entry_bytes).max(1) as u64;
        let count = most.min(self.blocks - self.current) as usize;
        self.window.resize(count * self.entry_bytes, 0);
        let offset = run.footer.index_offset + self.current * self.entry_bytes as u64;
        let corrupt = |text| JobFailure::at(ErrorKind::CorruptRun, text, &run.path, Some(offset));
        if file.read_small(&mut self.window, offset)? < self.window.len() {
            return Err(corrupt("the index ends too early"));
        }
        let known = self.known.get((self.current / most) as usize);
        if known.is_some_and(|known| *known != crc32fast::hash(&self.window)) {
            return Err(corrupt("the index was damaged while it was used"));
        }
        self.first = self.current;
        self.check(run, count as u64).map_err(corrupt)
    }

    /// Read and check all entries; return the checksum of each window.
    pub fn check_all(mut self, run: &SortedRun, file: &DataFile) -> Result<Vec<u32>> {
        let mut checksums = Vec::new();
        while !self.is_done() {
            self.load(run, file)?;
            checksums.push(crc32fast::hash(&self.window));
            self.current = self.first + (self.window.len() / self.entry_bytes) as u64;
        }
        Ok(checksums)
    }

    /// Blocks lie one behind the other, and none takes more bytes than its records; the checksum sees the rest.
    fn check(&mut self, run: &SortedRun, count: u64) -> std::result::Result<(), &'static str> {
        let (header, footer) = (&run.header, &run.footer);
        for position in self.first..self.first + count {
            let block = self.block_at(run, position);
            let plain = u64::from(block.records) * u64::from(header.record_bytes);
            if block.offset != self.next_offset || !(1..=plain).contains(&block.stored.into()) {
                return Err("the index names a block where none can be");
            }
            self.next_offset += u64::from(block.stored);
        }
        self.hasher.update(&self.window);
        if self.first + count < self.blocks {
            return Ok(());
        }
        match self.next_offset == PAGE as u64 + footer.data_bytes
            && self.hasher.clone().finalize() == footer.index_checksum
        {
            true => Ok(()),
            false => Err("the index does not match its checksum"),
        }
    }

    fn entry(&self, position: u64) -> &[u8] {
        let start = (position - self.first) as usize * self.entry_bytes;
        &self.window[start..start + self.entry_bytes]
    }
}

/// One entry as stored.
pub fn write_entry(index: &mut Vec<u8>, key: &[u8], block: &Block) {
    index.extend(key);
    index.extend(block.offset.to_le_bytes());
    index.extend(block.stored.to_le_bytes());
    index.extend(block.checksum.to_le_bytes());
    debug_assert!(index.len().is_multiple_of(key.len() + ENTRY_REST));
}
