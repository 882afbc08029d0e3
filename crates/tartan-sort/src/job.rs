//! One sort as its caller drives it: phase 1 from files or pushed records, then phase 2 to a file or to a reader.
//!
//! Every phase runs in threads of its own; the caller waits with a deadline, looks at the progress, and may cancel.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::control::{Edge, Phase};
use crate::engine::{JobPlan, JobShared};
use crate::error::{ErrorKind, JobFailure, Result};
use crate::levels;
use crate::merge_phase::merge;
use crate::queue::Queue;
use crate::resume;
use crate::run::SortedRun;
use crate::sink::{FileSink, RunScratch, RunSink, Sink};
use crate::sort_phase::{chunks, header, read_chunks, sort_chunks, Chunk, FilledBuffer, Sorted};
use crate::source::{RecordSource, Sources};

/// Where a job stands.
enum Stage {
    New,
    Running,
    Sorted(Sorted),
    Finished,
    Failed,
}

struct Shared {
    engine: JobShared,
    stage: Mutex<Stage>,
    changed: Condvar,
    filled: Queue<FilledBuffer>,
    output: Queue<Buffer>,
}

/// What is being pushed.
#[derive(Default)]
struct Pusher {
    current: Option<Buffer>,
    next_record: u64,
    handed_on: bool,
    started: bool,
    adopted: Vec<SortedRun>,
}

/// One sort.
pub struct Sorting {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pusher: Mutex<Pusher>,
    /// The buffer that a reader empties, and how many of its records it has taken.
    reading: Mutex<Option<(Buffer, usize)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

impl Sorting {
    pub fn new(plan: JobPlan) -> Result<Sorting> {
        let depth = plan.buffers;
        let shared = Shared {
            engine: JobShared::new(plan)?,
            stage: Mutex::new(Stage::New),
            changed: Condvar::new(),
            filled: Queue::new(depth),
            output: Queue::new(depth),
        };
        Ok(Sorting {
            shared: Arc::new(shared),
            thread: Mutex::default(),
            pusher: Mutex::default(),
            reading: Mutex::default(),
        })
    }

    pub fn engine(&self) -> &JobShared {
        &self.shared.engine
    }

    /// Phase 1 from files. Whole runs of an earlier try stand for the records that they cover.
    pub fn sort_files(&self, sources: Vec<RecordSource>, runs: &[PathBuf]) -> Result<()> {
        self.begin("sort_files", |stage| matches!(stage, Stage::New))?;
        let (shared, runs) = (Arc::clone(&self.shared), runs.to_vec());
        self.start(move || shared.sort_files(sources, &runs).map(Stage::Sorted))
    }

    /// Make one run of each of these chunks of files, and nothing else: they are merged elsewhere.
    pub fn make_runs(&self, sources: Vec<RecordSource>, chunks: Vec<Chunk>) -> Result<()> {
        let most = self.engine().plan.capacity() as u64;
        if chunks
            .iter()
            .any(|chunk| !(1..=most).contains(&chunk.records))
        {
            return Err(JobFailure::misuse(
                "a run must have records, and fit a buffer",
            ));
        }
        self.begin("make_runs", |stage| matches!(stage, Stage::New))?;
        let shared = Arc::clone(&self.shared);
        self.start(move || shared.make_runs(sources, &chunks).map(|()| Stage::Finished))
    }

    /// Take over whole runs of an earlier try, before anything is pushed.
    pub fn adopt(&self, runs: &[PathBuf]) -> Result<()> {
        let mut pusher = lock(&self.pusher);
        if pusher.started {
            return Err(JobFailure::misuse("adopt must come before the first push"));
        }
        pusher.adopted = resume::adopt(&self.shared.engine, runs)?;
        Ok(())
    }

    /// Ranges of records below the end of the adopted runs that none of them covers, and where that end is.
    pub fn missing(&self) -> (Vec<Chunk>, u64) {
        let pusher = lock(&self.pusher);
        let end = pusher.adopted.last().map_or(0, |run| run.header.end());
        (resume::missing(&pusher.adopted, end), end)
    }

    /// Make one run of what is pushed between two calls of `seek`, and nothing else: runs are merged elsewhere.
    pub fn push_runs(&self) -> Result<()> {
        let mut pusher = lock(&self.pusher);
        self.begin("push_runs", |stage| matches!(stage, Stage::New))?;
        (pusher.started, pusher.handed_on) = (true, true);
        let shared = Arc::clone(&self.shared);
        self.start(move || shared.sort_runs().map(|()| Stage::Finished))
    }

    /// What is pushed next begins with this record.
    pub fn seek(&self, record: u64) -> Result<()> {
        let mut pusher = lock(&self.pusher);
        self.hand_on(&mut pusher)?;
        pusher.next_record = record;
        Ok(())
    }

    /// Phase 1 from memory: append whole records. Waits while all buffers are full.
    pub fn push(&self, mut bytes: &[u8]) -> Result<()> {
        let engine = &self.shared.engine;
        let width = engine.plan.form.width();
        if !bytes.len().is_multiple_of(width) {
            let text = format!(
                "{} bytes are not a whole number of records of {width} bytes",
                bytes.len()
            );
            return Err(JobFailure::misuse(text));
        }
        let mut pusher = lock(&self.pusher);
        self.start_pushing(&mut pusher)?;
        let most = engine.plan.capacity() * width;
        while !bytes.is_empty() {
            engine.control.check()?;
            if pusher
                .current
                .as_ref()
                .is_some_and(|buffer| buffer.bytes() == most)
            {
                self.hand_on(&mut pusher)?;
            }
            if pusher.current.is_none() {
                let mut buffer = engine.buffer(Edge::SourceRead)?;
                buffer.clear(pusher.next_record);
                pusher.current = Some(buffer);
            }
            let Some(buffer) = pusher.current.as_mut() else {
                continue;
            };
            let (now, later) = bytes.split_at(bytes.len().min(most - buffer.bytes()));
            let since = std::time::Instant::now();
            buffer.append(now, &engine.plan.form);
            engine
                .control
                .flow(Edge::SourceRead)
                .worked(now.len(), since);
            engine.control.progressed(now.len());
            pusher.next_record += (now.len() / width) as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Nothing more is pushed.
    pub fn finish_push(&self) -> Result<()> {
        let mut pusher = lock(&self.pusher);
        self.start_pushing(&mut pusher)?;
        let only = !pusher.handed_on && pusher.adopted.is_empty();
        if let Some(buffer) = pusher.current.take() {
            let flow = self.engine().control.flow(Edge::SourceRead);
            self.shared
                .filled
                .send(FilledBuffer { buffer, only }, &self.engine().control, flow)?;
        }
        self.shared.filled.close();
        Ok(())
    }

    fn hand_on(&self, pusher: &mut Pusher) -> Result<()> {
        let control = &self.engine().control;
        if let Some(buffer) = pusher.current.take() {
            self.shared.filled.send(
                FilledBuffer {
                    buffer,
                    only: false,
                },
                control,
                control.flow(Edge::SourceRead),
            )?;
            pusher.handed_on = true;
        }
        Ok(())
    }

    fn start_pushing(&self, pusher: &mut Pusher) -> Result<()> {
        if pusher.started {
            return self.engine().control.check();
        }
        self.begin("push", |stage| matches!(stage, Stage::New))?;
        pusher.started = true;
        let (shared, adopted) = (Arc::clone(&self.shared), pusher.adopted.clone());
        self.start(move || shared.sort_pushed(adopted).map(Stage::Sorted))
    }

    /// Phase 2 into a file, from byte `offset` on. The file is cut behind the last record.
    pub fn write_file(&self, path: PathBuf, offset: u64, sync: bool) -> Result<()> {
        let sorted = self.take_sorted("write_file")?;
        let shared = Arc::clone(&self.shared);
        self.start(move || {
            shared
                .write_file(sorted, path, offset, sync)
                .map(|()| Stage::Finished)
        })
    }

    /// Phase 2 to a reader.
    pub fn open_sorted(&self) -> Result<()> {
        let sorted = self.take_sorted("open_sorted")?;
        let shared = Arc::clone(&self.shared);
        self.start(move || shared.feed_reader(sorted).map(|()| Stage::Finished))
    }

    /// Fill `out` with the next sorted records; the bytes filled, 0 at the end.
    pub fn read_into(&self, out: &mut [u8]) -> Result<usize> {
        let engine = &self.shared.engine;
        let (form, control) = (&engine.plan.form, &engine.control);
        let capacity = out.len() / form.width();
        if capacity == 0 {
            return Err(JobFailure::misuse(
                "the array that is read into has no room for one record",
            ));
        }
        let (mut reading, mut filled) = (lock(&self.reading), 0);
        while filled < capacity {
            let Some((buffer, taken)) = reading.as_mut() else {
                match self
                    .shared
                    .output
                    .receive(control, control.flow(Edge::OutputWrite))?
                {
                    Some(buffer) => *reading = Some((buffer, 0)),
                    None => break,
                }
                continue;
            };
            let count = (capacity - filled).min(buffer.records(form) - *taken);
            let place = &mut out[filled * form.width()..][..count * form.width()];
            let since = std::time::Instant::now();
            buffer.copy_sorted(form, *taken, place);
            decode(engine, place)?;
            control.flow(Edge::OutputWrite).worked(place.len(), since);
            control.progressed(place.len());
            (filled, *taken) = (filled + count, *taken + count);
            if *taken == buffer.records(form) {
                let Some((buffer, _)) = reading.take() else {
                    continue;
                };
                engine.give_back(buffer)?;
            }
        }
        Ok(filled * form.width())
    }

    /// Wait until the phase that was started is done; false when time ran out first.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let stage = lock(&self.shared.stage);
        let running = |stage: &mut Stage| matches!(stage, Stage::Running);
        let (stage, _) = self
            .shared
            .changed
            .wait_timeout_while(stage, timeout, running)
            .expect("no holder panics");
        match *stage {
            Stage::Running => Ok(false),
            Stage::Failed => Err(self.failure()),
            _ => Ok(true),
        }
    }

    fn failure(&self) -> JobFailure {
        self.engine()
            .control
            .failure()
            .unwrap_or_else(|| JobFailure::new(ErrorKind::Internal, "the sort failed"))
    }

    /// Whole runs that exist now.
    pub fn runs(&self) -> Vec<SortedRun> {
        lock(&self.engine().runs).clone()
    }

    /// Stop and join all threads; without `keep_runs` delete the runs.
    pub fn close(&self, keep_runs: bool) {
        if matches!(*lock(&self.shared.stage), Stage::Running) {
            self.engine().control.cancel();
        }
        if let Some(thread) = lock(&self.thread).take() {
            // The thread has reported its failure already.
            let _ = thread.join();
        }
        self.engine()
            .control
            .fail(JobFailure::misuse("the job is closed"));
        if !keep_runs {
            for run in lock(&self.engine().runs).drain(..) {
                // A run that cannot be deleted is a leftover; the sort itself is done.
                let _ = std::fs::remove_file(&run.path);
            }
        }
        *lock(&self.reading) = None;
        lock(&self.pusher).current = None;
        self.engine().free();
        self.shared.output.clear();
        let mut stage = lock(&self.shared.stage);
        if matches!(*stage, Stage::Sorted(_)) {
            *stage = Stage::Finished;
        }
    }

    fn begin(&self, call: &str, allowed: impl Fn(&Stage) -> bool) -> Result<()> {
        self.engine().control.check()?;
        let mut stage = lock(&self.shared.stage);
        match allowed(&stage) {
            true => {
                *stage = Stage::Running;
                Ok(())
            }
            false => Err(JobFailure::misuse(format!(
                "{call} was called out of order"
            ))),
        }
    }

    fn take_sorted(&self, call: &str) -> Result<Sorted> {
        self.engine().control.check()?;
        let mut stage = lock(&self.shared.stage);
        match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Sorted(sorted) => Ok(sorted),
            other => {
                *stage = other;
                Err(JobFailure::misuse(format!(
                    "{call} must follow a phase 1 that is done"
                )))
            }
        }
    }

    fn start(&self, work: impl FnOnce() -> Result<Stage> + Send + 'static) -> Result<()> {
        let mut thread = lock(&self.thread);
        if let Some(before) = thread.take() {
            // It has set the stage already, so it is about to end.
            let _ = before.join();
        }
        let shared = Arc::clone(&self.shared);
        let body = move || {
            let stage = shared.engine.control.guard(work).unwrap_or(Stage::Failed);
            *lock(&shared.stage) = stage;
            shared.changed.notify_all();
        };
        let spawned = std::thread::Builder::new()
            .name("tartan-sort".into())
            .spawn(body);
        *thread = Some(spawned.map_err(|error| {
            JobFailure::new(
                ErrorKind::Memory,
                format!("no thread can be started: {error}"),
            )
        })?);
        Ok(())
    }
}

impl Drop for Sorting {
    fn drop(&mut self) {
        self.close(true);
    }
}

/// Decode records that lie anywhere.
fn decode(engine: &JobShared, place: &mut [u8]) -> Result<()> {
    let form = &engine.plan.form;
    if !form.is_word() || place.as_ptr().align_offset(form.width()) == 0 {
        form.decode(place);
        return Ok(());
    }
    let mut aligned = crate::memory::AlignedMemory::new(crate::engine::STAGE_BYTES)?;
    for piece in place.chunks_mut(crate::engine::STAGE_BYTES) {
        let stage = &mut aligned[..piece.len()];
        stage.copy_from_slice(piece);
        form.decode(stage);
        piece.copy_from_slice(stage);
    }
    Ok(())
}

impl Shared {
    fn make_runs(&self, sources: Vec<RecordSource>, chunks: &[Chunk]) -> Result<()> {
        let engine = &self.engine;
        let sources = Sources::new(sources, engine.plan.form.width())?;
        let ends_within = |chunk: &Chunk| {
            chunk.first_record.checked_add(chunk.records) <= Some(sources.records())
        };
        if !chunks.iter().all(ends_within) {
            return Err(JobFailure::misuse("the sources do not have these records"));
        }
        let records = chunks.iter().map(|chunk| chunk.records).sum::<u64>();
        engine
            .control
            .enter(Phase::Sort, 2 * records * engine.plan.form.width() as u64);
        let feed = || read_chunks(engine, &sources, chunks, false, &self.filled);
        sort_chunks(engine, &self.filled, feed)?;
        engine.note(|facts| facts.records = records);
        engine.control.leave(Phase::Done);
        Ok(())
    }

    fn sort_files(&self, sources: Vec<RecordSource>, runs: &[PathBuf]) -> Result<Sorted> {
        let (engine, plan) = (&self.engine, &self.engine.plan);
        let adopted = resume::adopt(engine, runs)?;
        let sources = Sources::new(sources, plan.form.width())?;
        let missing = resume::missing(&adopted, sources.records());
        if adopted
            .last()
            .is_some_and(|run| run.header.end() > sources.records())
        {
            return Err(JobFailure::new(
                ErrorKind::ForeignRun,
                "a run covers records that the sources do not have",
            ));
        }
        let chunks = chunks(&missing, plan.capacity());
        let bytes: u64 =
            chunks.iter().map(|chunk| chunk.records).sum::<u64>() * plan.form.width() as u64;
        let only = adopted.is_empty() && chunks.len() == 1;
        engine
            .control
            .enter(Phase::Sort, if only { bytes } else { 2 * bytes });
        let feed = || read_chunks(engine, &sources, &chunks, only, &self.filled);
        self.sorted(adopted, sort_chunks(engine, &self.filled, feed)?)
    }

    fn sort_runs(&self) -> Result<()> {
        self.engine.control.enter(Phase::Sort, 0);
        let sorted = sort_chunks(&self.engine, &self.filled, || Ok(()))?;
        let records = sorted.runs.iter().map(|run| run.header.records).sum();
        self.engine.note(|facts| facts.records = records);
        self.engine.control.leave(Phase::Done);
        Ok(())
    }

    fn sort_pushed(&self, adopted: Vec<SortedRun>) -> Result<Sorted> {
        self.engine.control.enter(Phase::Sort, 0);
        self.sorted(adopted, sort_chunks(&self.engine, &self.filled, || Ok(()))?)
    }

    fn sorted(&self, adopted: Vec<SortedRun>, mut sorted: Sorted) -> Result<Sorted> {
        sorted.runs.extend(adopted);
        sorted.runs.sort_by_key(|run| run.header.first_record);
        let mut end = sorted
            .kept
            .as_ref()
            .map_or(0, |kept| kept.records(&self.engine.plan.form) as u64);
        for run in &sorted.runs {
            if run.header.first_record != end {
                return Err(JobFailure::misuse(format!(
                    "the records from {end} on were never given"
                )));
            }
            end = run.header.end();
        }
        self.engine.note(|facts| facts.records = end);
        self.engine.control.leave(Phase::Idle);
        Ok(sorted)
    }

    /// Merge neighbouring runs until few enough are left.
    fn lower(&self, mut runs: Vec<SortedRun>) -> Result<Vec<SortedRun>> {
        let (engine, plan) = (&self.engine, &self.engine.plan);
        let sizes: Vec<u64> = runs.iter().map(|run| run.header.records).collect();
        let moved = levels::records_moved(&sizes, plan.fan_in) * plan.form.width() as u64;
        if moved == 0 {
            return Ok(runs);
        }
        engine.control.enter(Phase::Merge, moved);
        let mut scratch = RunScratch::new(engine)?;
        loop {
            let sizes: Vec<u64> = runs.iter().map(|run| run.header.records).collect();
            let Some(group) = levels::next_group(&sizes, plan.fan_in) else {
                return Ok(runs);
            };
            let merged = self.merge_group(&runs[group.clone()], &mut scratch)?;
            let inputs: Vec<SortedRun> = runs.splice(group, [merged]).collect();
            resume::delete(engine, &inputs)?;
        }
    }

    fn merge_group(&self, group: &[SortedRun], scratch: &mut RunScratch) -> Result<SortedRun> {
        let engine = &self.engine;
        let range = Chunk {
            first_record: group[0].header.first_record,
            records: group.iter().map(|run| run.header.records).sum(),
        };
        let level = group
            .iter()
            .map(|run| run.header.level)
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        let packed = group.iter().any(|run| run.header.packed);
        engine.note(|facts| facts.levels = facts.levels.max(level));
        let mut sink = RunSink::new(engine, scratch, header(engine, range, level, packed))?;
        merge(engine, group, |buffer| {
            sink.take(&buffer).map(|()| Some(buffer))
        })?;
        sink.finish()
    }

    fn write_file(&self, sorted: Sorted, path: PathBuf, offset: u64, sync: bool) -> Result<()> {
        let engine = &self.engine;
        let runs = self.lower(sorted.runs)?;
        let records = lock(&engine.facts).records;
        let bytes = records * engine.plan.form.width() as u64;
        engine.control.enter(
            Phase::Write,
            if sorted.kept.is_some() {
                bytes
            } else {
                2 * bytes
            },
        );
        let mut sink = FileSink::new(engine, path, offset, records)?;
        match sorted.kept {
            Some(kept) => sink.take(&kept)?,
            None => merge(engine, &runs, |buffer| {
                sink.take(&buffer).map(|()| Some(buffer))
            })?,
        }
        sink.finish(sync)?;
        engine.control.leave(Phase::Done);
        Ok(())
    }

    fn feed_reader(&self, sorted: Sorted) -> Result<()> {
        let engine = &self.engine;
        let runs = self.lower(sorted.runs)?;
        let bytes = lock(&engine.facts).records * engine.plan.form.width() as u64;
        engine.control.enter(
            Phase::Read,
            if sorted.kept.is_some() {
                bytes
            } else {
                2 * bytes
            },
        );
        let send = |buffer| {
            self.output.send(
                buffer,
                &engine.control,
                engine.control.flow(Edge::OutputWrite),
            )
        };
        match sorted.kept {
            Some(kept) => send(kept)?,
            None => merge(engine, &runs, |buffer| send(buffer).map(|()| None))?,
        }
        self.output.close();
        engine.control.leave(Phase::Done);
        Ok(())
    }
}
