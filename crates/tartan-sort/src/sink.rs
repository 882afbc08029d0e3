//! Where sorted records go: a file at a known offset, or a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::buffer::Buffer;
use crate::control::Edge;
use crate::disk::{DataFile, WriteStream};
use crate::engine::{JobShared, STAGE_BYTES};
use crate::error::Result;
use crate::memory::AlignedMemory;
use crate::run::writer::PackScratch;
use crate::run::{Header, RunWriter, SortedRun};

/// Takes sorted buffers in order.
pub trait Sink {
    fn take(&mut self, sorted: &Buffer) -> Result<()>;
}

/// Writes original records into a file.
pub struct FileSink<'a> {
    engine: &'a JobShared,
    stream: WriteStream,
    stage: AlignedMemory,
    path: PathBuf,
}

impl<'a> FileSink<'a> {
    /// Write `records` records from byte `offset` on.
    pub fn new(
        engine: &'a JobShared,
        path: PathBuf,
        offset: u64,
        records: u64,
    ) -> Result<FileSink<'a>> {
        let plan = &engine.plan;
        let file = DataFile::create(&path, plan.direct)?;
        let bytes = records * plan.form.width() as u64;
        file.set_length(offset)?;
        file.reserve(offset, bytes)?;
        engine.note(|facts| facts.direct_write = Some(file.is_direct()));
        let mut stream = WriteStream::new(plan.ring)?;
        stream.begin(Arc::new(file), offset)?;
        let stage = AlignedMemory::new(STAGE_BYTES.max(plan.form.width()))?;
        Ok(FileSink {
            engine,
            stream,
            stage,
            path,
        })
    }

    /// Write the rest; with `sync` bring it to the device.
    pub fn finish(mut self, sync: bool) -> Result<PathBuf> {
        let file = self.stream.finish()?;
        self.engine
            .note(|facts| facts.direct_write = Some(file.is_direct()));
        if sync {
            file.sync()?;
        }
        Ok(self.path)
    }
}

impl Sink for FileSink<'_> {
    fn take(&mut self, sorted: &Buffer) -> Result<()> {
        let (engine, since) = (self.engine, Instant::now());
        let form = &engine.plan.form;
        let step = self.stage.len() / form.width();
        let n_records = sorted.records(form);
        for first in (0..n_records).step_by(step) {
            engine.control.check()?;
            let stage = &mut self.stage[..step.min(n_records - first) * form.width()];
            sorted.copy_sorted(form, first, stage);
            form.decode(stage);
            self.stream.append(stage)?;
            engine.control.progressed(stage.len());
        }
        engine
            .control
            .flow(Edge::OutputWrite)
            .worked(sorted.bytes(), since);
        Ok(())
    }
}

/// What run sinks use one after the other.
pub struct RunScratch {
    pub stream: WriteStream,
    pub pack: PackScratch,
    stage: AlignedMemory,
}

impl RunScratch {
    pub fn new(engine: &JobShared) -> Result<RunScratch> {
        let plan = &engine.plan;
        Ok(RunScratch {
            stream: WriteStream::new(plan.ring)?,
            pack: PackScratch::new(&plan.form, plan.block_records())?,
            stage: AlignedMemory::new(plan.block_records() * plan.form.width())?,
        })
    }
}

/// Writes a run.
pub struct RunSink<'a> {
    engine: &'a JobShared,
    scratch: &'a mut RunScratch,
    writer: RunWriter,
    /// Bytes of the block that is not full yet.
    staged: usize,
}

impl<'a> RunSink<'a> {
    pub fn new(
        engine: &'a JobShared,
        scratch: &'a mut RunScratch,
        header: Header,
    ) -> Result<RunSink<'a>> {
        let bytes = header.records * u64::from(header.record_bytes);
        let folder = engine.folders.next(bytes)?;
        let writer = RunWriter::create(&mut scratch.stream, folder, header, engine.plan.direct)?;
        Ok(RunSink {
            engine,
            scratch,
            writer,
            staged: 0,
        })
    }

    /// Write the last block, index and footer.
    pub fn finish(mut self) -> Result<SortedRun> {
        if self.staged > 0 {
            self.flush()?;
        }
        let RunSink {
            engine,
            scratch,
            writer,
            ..
        } = self;
        let run = writer.finish(&mut scratch.stream)?;
        engine.note(|facts| {
            facts.runs += 1;
            if run.header.packed {
                facts.packed_runs += 1;
                facts.packed_values += run.header.records;
                facts.packed_bytes += run.footer.data_bytes;
            }
        });
        engine
            .runs
            .lock()
            .expect("no holder panics")
            .push(run.clone());
        let done = engine
            .control
            .runs_done
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            + 1;
        engine.faults.run_done(done);
        Ok(run)
    }

    fn flush(&mut self) -> Result<()> {
        let RunScratch {
            stream,
            pack,
            stage,
        } = &mut *self.scratch;
        let (form, control) = (&self.engine.plan.form, &self.engine.control);
        self.writer
            .add_block(stream, form, &stage[..self.staged], pack, control)?;
        self.staged = 0;
        Ok(())
    }
}

impl Sink for RunSink<'_> {
    fn take(&mut self, sorted: &Buffer) -> Result<()> {
        let form = &self.engine.plan.form;
        let (width, n_records) = (form.width(), sorted.records(form));
        let block_bytes = self.engine.plan.block_records() * width;
        let mut first = 0;
        while first < n_records {
            let count = ((block_bytes - self.staged) / width).min(n_records - first);
            let stage = &mut self.scratch.stage[self.staged..self.staged + count * width];
            sorted.copy_sorted(form, first, stage);
            self.staged += count * width;
            first += count;
            if self.staged == block_bytes {
                self.engine.control.check()?;
                self.flush()?;
            }
        }
        Ok(())
    }
}
