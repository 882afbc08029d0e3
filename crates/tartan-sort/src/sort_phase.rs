//! Phase 1: chunks are read (or pushed), sorted and written as runs, all at the same time.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::buffer::Buffer;
use crate::control::{thread_seconds, Edge};
use crate::disk::{read, DataFile, ReadStream};
use crate::engine::JobShared;
use crate::error::{ErrorKind, Result};
use crate::pack_policy::{decide, Speeds};
use crate::queue::Queue;
use crate::run::{Header, SortedRun};
use crate::sink::{RunScratch, RunSink, Sink};
use crate::source::{Piece, Sources};

/// Some source records that become one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub first_record: u64,
    pub records: u64,
}

/// A filled buffer on its way to be sorted.
pub struct FilledBuffer {
    pub buffer: Buffer,
    /// Everything is in this buffer: no run is needed.
    pub only: bool,
}

/// What phase 1 leaves.
#[derive(Default)]
pub struct Sorted {
    pub runs: Vec<SortedRun>,
    /// All records, where they fit one buffer.
    pub kept: Option<Buffer>,
}

/// Split what is missing evenly into chunks that fit a buffer.
pub fn chunks(missing: &[Chunk], capacity: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for gap in missing {
        let pieces = gap.records.div_ceil(capacity as u64);
        for i in 0..pieces {
            let [start, end] = [i, i + 1]
                .map(|i| (u128::from(gap.records) * u128::from(i) / u128::from(pieces)) as u64);
            chunks.push(Chunk {
                first_record: gap.first_record + start,
                records: end - start,
            });
        }
    }
    chunks
}

/// Sort what arrives in `filled` until it is closed, and write runs.
pub fn sort_chunks(
    engine: &JobShared,
    filled: &Queue<FilledBuffer>,
    feed: impl FnOnce() -> Result<()> + Send,
) -> Result<Sorted> {
    let control = &engine.control;
    let (sorted, kept) = (Queue::new(engine.plan.buffers), Mutex::new(None));
    let left = AtomicUsize::new(engine.plan.threads);
    let runs = std::thread::scope(|scope| {
        scope.spawn(|| control.guard(feed));
        for _ in 0..engine.plan.threads {
            let (sorted, kept, left) = (&sorted, &kept, &left);
            scope.spawn(move || {
                control.guard(|| sort_some(engine, filled, sorted, kept));
                if left.fetch_sub(1, SeqCst) == 1 {
                    sorted.close();
                }
            });
        }
        control.guard(|| write_runs(engine, &sorted))
    });
    control.check()?;
    Ok(Sorted {
        runs: runs.unwrap_or_default(),
        kept: kept.into_inner().expect("no holder panics"),
    })
}

fn sort_some(
    engine: &JobShared,
    filled: &Queue<FilledBuffer>,
    sorted: &Queue<Buffer>,
    kept: &Mutex<Option<Buffer>>,
) -> Result<()> {
    let (control, form) = (&engine.control, &engine.plan.form);
    let flow = control.flow(Edge::Sort);
    let mut spare = engine.take_spare();
    while let Some(FilledBuffer { mut buffer, only }) = filled.receive(control, flow)? {
        let (since, seconds) = (Instant::now(), thread_seconds());
        let threads = if only { engine.plan.threads } else { 1 };
        buffer.sort(form, spare.as_mut(), threads);
        flow.worked(buffer.bytes(), since);
        engine.note(|facts| {
            facts.sorted.0 += buffer.bytes() as u64;
            facts.sorted.1 += thread_seconds() - seconds;
        });
        match only {
            true => *kept.lock().expect("no holder panics") = Some(buffer),
            false => sorted.send(buffer, control, flow)?,
        }
    }
    engine.leave_spare(spare);
    Ok(())
}

fn write_runs(engine: &JobShared, sorted: &Queue<Buffer>) -> Result<Vec<SortedRun>> {
    let (control, mut scratch, mut runs) = (&engine.control, RunScratch::new(engine)?, Vec::new());
    while let Some(mut buffer) = sorted.receive(control, control.flow(Edge::RunWrite))? {
        let since = Instant::now();
        let packed = is_packed(engine, &buffer, &mut scratch);
        let header = header(
            engine,
            Chunk {
                first_record: buffer.first_record(),
                records: buffer.records(&engine.plan.form) as u64,
            },
            0,
            packed,
        );
        let mut sink = RunSink::new(engine, &mut scratch, header)?;
        sink.take(&buffer)?;
        runs.push(sink.finish()?);
        if runs.len() == 1 {
            let speed = buffer.bytes() as f64 / since.elapsed().as_secs_f64();
            engine.note(|facts| facts.write_bytes_per_second = Some(speed));
        }
        control.progressed(buffer.bytes());
        buffer.clear(0);
        engine.give_back(buffer)?;
    }
    Ok(runs)
}

/// The header of a run of this job.
pub fn header(engine: &JobShared, range: Chunk, level: u32, packed: bool) -> Header {
    let plan = &engine.plan;
    Header {
        fingerprint: plan.fingerprint,
        signature: plan.form.signature(),
        record_bytes: plan.form.width() as u32,
        key_bytes: plan.form.key_bytes() as u32,
        block_records: plan.block_records() as u32,
        level,
        packed,
        first_record: range.first_record,
        records: range.records,
    }
}

fn is_packed(engine: &JobShared, first: &Buffer, scratch: &mut RunScratch) -> bool {
    let (plan, mut decision) = (
        &engine.plan,
        engine.decision.lock().expect("no holder panics"),
    );
    let decide = || {
        let facts = engine.facts.lock().expect("no holder panics").clone();
        let ((bytes, seconds), read) = (facts.sorted, facts.read_bytes_per_second);
        let sort = bytes as f64 * plan.threads as f64 / seconds.max(1e-9);
        let speeds = Speeds {
            disk: read.unwrap_or(sort),
            sort,
            threads: plan.threads,
        };
        decide(
            plan.pack,
            &plan.form,
            first.content(),
            plan.block_records(),
            &mut scratch.pack,
            speeds,
        )
    };
    decision.get_or_insert_with(decide).packed
}

/// Read chunks of the sources into buffers and send them on.
pub fn read_chunks(
    engine: &JobShared,
    sources: &Sources,
    chunks: &[Chunk],
    only: bool,
    filled: &Queue<FilledBuffer>,
) -> Result<()> {
    let flow = engine.control.flow(Edge::SourceRead);
    let mut reader = SourceReader::new(engine, sources, chunks)?;
    for (number, chunk) in chunks.iter().enumerate() {
        let mut buffer = engine.buffer(Edge::SourceRead)?;
        let wait = reader.fill(&mut buffer, chunk)?;
        if number == 0 {
            let speed = buffer.bytes() as f64 / wait.max(1e-9);
            engine.note(|facts| facts.read_bytes_per_second = Some(speed));
        }
        filled.send(FilledBuffer { buffer, only }, &engine.control, flow)?;
    }
    let direct = reader.open.is_none_or(|(_, file)| file.is_direct());
    engine.note(|facts| facts.direct_read = Some(direct));
    sources.check_all()?;
    filled.close();
    Ok(())
}

/// Reads the chunks one behind the other, without a pause between them.
struct SourceReader<'a> {
    engine: &'a JobShared,
    sources: &'a Sources,
    stream: ReadStream,
    chunks: std::slice::Iter<'a, Chunk>,
    /// What is still to be asked for, the next piece last.
    pieces: Vec<Piece>,
    open: Option<(usize, Arc<DataFile>)>,
}

impl<'a> SourceReader<'a> {
    fn new(
        engine: &'a JobShared,
        sources: &'a Sources,
        chunks: &'a [Chunk],
    ) -> Result<SourceReader<'a>> {
        let stream = ReadStream::new(engine.plan.ring, ErrorKind::SourceChanged)?;
        engine.note(|facts| facts.method = Some(stream.method()));
        Ok(SourceReader {
            engine,
            sources,
            stream,
            chunks: chunks.iter(),
            pieces: Vec::new(),
            open: None,
        })
    }

    /// Read a chunk; the seconds that the disk took, as far as can be told from outside: waits, and the processor
    /// time of the copies during which it went on. That another program holds the processor is not the disk's doing.
    fn fill(&mut self, buffer: &mut Buffer, chunk: &Chunk) -> Result<f64> {
        let (control, form) = (&self.engine.control, &self.engine.plan.form);
        let flow = control.flow(Edge::SourceRead);
        let wanted = chunk.records as usize * form.width();
        buffer.clear(chunk.first_record);
        let (mut waited, processor) = (0.0, thread_seconds());
        while buffer.bytes() < wanted {
            control.check()?;
            self.ask_ahead()?;
            let since = Instant::now();
            let bytes = self.stream.front()?;
            flow.waited(since);
            waited += since.elapsed().as_secs_f64();
            let (since, count) = (Instant::now(), bytes.len());
            buffer.append(bytes, form);
            self.stream.release();
            flow.worked(count, since);
            control.progressed(count);
        }
        Ok(waited + thread_seconds() - processor)
    }

    fn ask_ahead(&mut self) -> Result<()> {
        while self.stream.can_take() {
            let Some(piece) = self.next_piece() else {
                break;
            };
            let most = read::payload(self.engine.plan.ring.bytes) as u64;
            let aligned_end =
                (piece.offset + most) / crate::memory::ALIGN as u64 * crate::memory::ALIGN as u64;
            let count = piece.bytes.min(aligned_end - piece.offset);
            let file = self.file(piece.part)?;
            self.stream.ask(&file, piece.offset, count as usize)?;
            if count < piece.bytes {
                self.pieces.push(Piece {
                    offset: piece.offset + count,
                    bytes: piece.bytes - count,
                    ..piece
                });
            }
        }
        Ok(())
    }

    fn next_piece(&mut self) -> Option<Piece> {
        while self.pieces.is_empty() {
            let chunk = self.chunks.next()?;
            self.pieces = self.sources.pieces(chunk.first_record, chunk.records);
            self.pieces.reverse();
        }
        self.pieces.pop()
    }

    fn file(&mut self, part: usize) -> Result<Arc<DataFile>> {
        match &self.open {
            Some((open, file)) if *open == part => return Ok(Arc::clone(file)),
            _ => {}
        }
        let file = Arc::new(self.sources.open(part, self.engine.plan.direct)?);
        self.engine
            .note(|facts| facts.direct_read = Some(file.is_direct()));
        self.open = Some((part, Arc::clone(&file)));
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_even_and_complete() {
        let gaps = [
            Chunk {
                first_record: 5,
                records: 10,
            },
            Chunk {
                first_record: 100,
                records: 4,
            },
        ];
        let made = chunks(&gaps, 4);
        let chunk = |first_record, records| Chunk {
            first_record,
            records,
        };
        assert_eq!(
            made,
            [chunk(5, 3), chunk(8, 3), chunk(11, 4), chunk(100, 4)]
        );
        assert_eq!(chunks(&[], 4), []);
    }
}
