//! Phase 2: ranges of all runs are fetched, merged and handed on in order, all at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Instant;

use crate::buffer::Buffer;
use crate::control::Edge;
use crate::disk::DataFile;
use crate::engine::JobShared;
use crate::error::{ErrorKind, JobFailure, Result};
use crate::fetch::{Range, RangeFetcher};
use crate::forecast::OpenRun;
use crate::pieces::are_in_order;
use crate::queue::Queue;
use crate::run::{IndexWindow, SortedRun};

/// Bytes of the smallest range that is worth one, where there are fewer ranges than threads could use.
/// By judgement: requests of a range are some 100 KB of each run; smaller ones would be all seeks. `tartan bench sort`
/// holds the time.
const SMALL_RANGE_BYTES: u64 = 4 << 20;

/// Open the files of some runs.
pub fn open(engine: &JobShared, runs: &[SortedRun]) -> Result<Vec<OpenRun>> {
    let open = |run: &SortedRun| {
        let file =
            DataFile::open(&run.path, engine.plan.direct).map_err(|failure| {
                match failure.errno {
                    Some(libc::ENOENT) => JobFailure {
                        kind: ErrorKind::FolderLost,
                        ..failure
                    },
                    _ => failure,
                }
            })?;
        // Before the first record is handed on: it may be hours since the file was written.
        let index = IndexWindow::new(run).check_all(run, &file)?;
        engine.note(|facts| facts.direct_runs = Some(file.is_direct()));
        Ok(OpenRun {
            run: run.clone(),
            file: Arc::new(file),
            index,
        })
    };
    runs.iter().map(open).collect()
}

/// Merge runs, and give each merged range to `take`, in order. `take` returns the buffer when it is done with it.
pub fn merge(
    engine: &JobShared,
    runs: &[SortedRun],
    mut take: impl FnMut(Buffer) -> Result<Option<Buffer>>,
) -> Result<()> {
    let (control, open) = (&engine.control, open(engine, runs)?);
    let depth = engine.plan.buffers;
    let (fetched, merged) = (Queue::new(depth), Queue::new(depth));
    let left = AtomicUsize::new(engine.plan.threads);
    std::thread::scope(|scope| {
        scope.spawn(|| control.guard(|| fetch_ranges(engine, &open, &fetched)));
        for _ in 0..engine.plan.threads {
            let (fetched, merged, left) = (&fetched, &merged, &left);
            scope.spawn(move || {
                control.guard(|| merge_some(engine, fetched, merged));
                if left.fetch_sub(1, SeqCst) == 1 {
                    merged.close();
                }
            });
        }
        control.guard(|| in_order(engine, &merged, &mut take));
    });
    control.check()
}

/// Records that a range should have: a full buffer, or less where that keeps all threads busy.
fn target(engine: &JobShared, runs: &[OpenRun]) -> usize {
    let plan = &engine.plan;
    let records: u64 = runs.iter().map(|open| open.run.header.records).sum();
    let small = SMALL_RANGE_BYTES / plan.form.width() as u64;
    let share = records.div_ceil(4 * plan.threads as u64).max(small);
    share.min(plan.capacity() as u64) as usize
}

fn fetch_ranges(engine: &JobShared, runs: &[OpenRun], fetched: &Queue<Range>) -> Result<()> {
    let mut fetcher = RangeFetcher::new(engine, runs, target(engine, runs))?;
    let mut number = 0;
    while let Some(range) = fetcher.next_range(number)? {
        fetched.send(range, &engine.control, engine.control.flow(Edge::RunRead))?;
        number += 1;
    }
    fetched.close();
    Ok(())
}

fn merge_some(engine: &JobShared, fetched: &Queue<Range>, merged: &Queue<Range>) -> Result<()> {
    let (control, form) = (&engine.control, &engine.plan.form);
    let flow = control.flow(Edge::Merge);
    let mut spare = engine.take_spare();
    while let Some(mut range) = fetched.receive(control, flow)? {
        let since = Instant::now();
        match are_in_order(form, range.buffer.content(), &range.ends) {
            true => range.buffer.in_order(form),
            false => range.buffer.sort(form, spare.as_mut(), 1),
        }
        flow.worked(range.buffer.bytes(), since);
        merged.send(range, control, flow)?;
    }
    engine.leave_spare(spare);
    Ok(())
}

fn in_order(
    engine: &JobShared,
    merged: &Queue<Range>,
    take: &mut impl FnMut(Buffer) -> Result<Option<Buffer>>,
) -> Result<()> {
    let (control, mut early, mut next) = (&engine.control, BTreeMap::new(), 0);
    while let Some(range) = merged.receive(control, control.flow(Edge::OutputWrite))? {
        early.insert(range.number, range.buffer);
        while let Some(buffer) = early.remove(&next) {
            next += 1;
            if let Some(buffer) = take(buffer)? {
                engine.give_back(buffer)?;
            }
            let done = control.ranges_done.fetch_add(1, SeqCst) + 1;
            engine.faults.range_done(done);
        }
    }
    Ok(())
}
