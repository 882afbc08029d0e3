//! Writes one run: blocks as they come, then index and footer, then the final name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::kernels;

use super::format::{Footer, Header, SortedRun, PAGE};
use super::index::{write_entry, Block};
use crate::control::{Control, Edge};
use crate::disk::{DataFile, Direct, WriteStream};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::form::Form;
use crate::memory::{words, AlignedMemory};

/// The run that is being written.
pub struct RunWriter {
    header: Header,
    page: Vec<u8>,
    index: Vec<u8>,
    data_bytes: u64,
    key: Vec<u8>,
    part: PathBuf,
    path: PathBuf,
    finished: bool,
}

/// Memory to pack a block in, kept from run to run.
pub struct PackScratch(AlignedMemory);

impl PackScratch {
    pub fn new(form: &Form, block_records: usize) -> Result<PackScratch> {
        Ok(PackScratch(AlignedMemory::new(pack_bound(
            form,
            block_records,
        ))?))
    }
}

fn pack_bound(form: &Form, records: usize) -> usize {
    match form {
        Form::Word32(_) => kernels::pack_bound::<u32>(records),
        Form::Word64(_) => kernels::pack_bound::<u64>(records),
        Form::Record(_) => 0,
    }
}

/// Pack the words of a block; None where records are not words or packing saves nothing.
pub fn pack<'a>(form: &Form, block: &[u8], scratch: &'a mut PackScratch) -> Option<&'a [u8]> {
    let packed = match form {
        Form::Word32(_) => kernels::pack(words::<u32>(block), &mut scratch.0),
        Form::Word64(_) => kernels::pack(words::<u64>(block), &mut scratch.0),
        Form::Record(_) => return None,
    };
    (packed < block.len()).then(|| &scratch.0[..packed])
}

impl RunWriter {
    /// Create the file in `folder` and write its header.
    pub fn create(
        stream: &mut WriteStream,
        folder: &std::path::Path,
        header: Header,
        direct: Direct,
    ) -> Result<RunWriter> {
        let path = folder.join(header.name());
        let part = path.with_extension("trun.part");
        let file = DataFile::create_private(&part, direct).map_err(lost_folder)?;
        file.set_length(0)?;
        let page = header.page();
        let index_bytes = header.blocks() * header.entry_bytes() as u64;
        let writer = RunWriter {
            index: Vec::with_capacity(index_bytes as usize),
            data_bytes: 0,
            key: vec![0; header.key_bytes as usize],
            part,
            path,
            finished: false,
            page,
            header,
        };
        if !writer.header.packed {
            file.reserve(0, writer.plain_bytes())?;
        }
        stream.begin(Arc::new(file), 0)?;
        stream.append(&writer.page)?;
        Ok(writer)
    }

    fn plain_bytes(&self) -> u64 {
        let header = &self.header;
        let data = header.records * u64::from(header.record_bytes);
        let index = header.blocks() * header.entry_bytes() as u64;
        data.next_multiple_of(PAGE as u64) + index.next_multiple_of(PAGE as u64) + 2 * PAGE as u64
    }

    /// Append one block of encoded records in order.
    pub fn add_block(
        &mut self,
        stream: &mut WriteStream,
        form: &Form,
        block: &[u8],
        scratch: &mut PackScratch,
        control: &Control,
    ) -> Result<()> {
        let since = Instant::now();
        let packed = match self.header.packed {
            true => pack(form, block, scratch),
            false => None,
        };
        let stored = packed.unwrap_or(block);
        form.key(&block[..form.width()], &mut self.key);
        let entry = Block {
            offset: stream.position(),
            stored: stored.len() as u32,
            checksum: crc32fast::hash(stored),
            records: 0,
        };
        write_entry(&mut self.index, &self.key, &entry);
        self.data_bytes += stored.len() as u64;
        control.flow(Edge::Pack).worked(stored.len(), since);
        let since = Instant::now();
        stream.append(stored)?;
        control.flow(Edge::RunWrite).worked(stored.len(), since);
        Ok(())
    }

    /// Write index and footer, and give the file its final name.
    pub fn finish(mut self, stream: &mut WriteStream) -> Result<SortedRun> {
        stream.align()?;
        let footer = Footer {
            data_bytes: self.data_bytes,
            index_offset: stream.position(),
            index_checksum: crc32fast::hash(&self.index),
        };
        stream.append(&self.index)?;
        stream.align()?;
        stream.append(&footer.page(&self.page))?;
        let file_bytes = stream.position();
        stream.finish()?;
        std::fs::rename(&self.part, &self.path).map_err(|error| {
            lost_folder(JobFailure::os(ErrorKind::Write, &error, &self.path, None))
        })?;
        self.finished = true;
        Ok(SortedRun {
            path: self.path.clone(),
            header: self.header.clone(),
            footer,
            file_bytes,
        })
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What is not whole is of no use, and a leftover does no harm.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// A temporary folder that is gone has a kind of its own.
fn lost_folder(failure: JobFailure) -> JobFailure {
    match failure.errno {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE) => JobFailure {
            kind: ErrorKind::FolderLost,
            ..failure
        },
        _ => failure,
    }
}
