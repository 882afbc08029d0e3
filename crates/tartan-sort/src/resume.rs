//! Runs of an earlier try: which of them still count, and what they leave to be sorted.

use std::path::PathBuf;

use crate::disk::read;
use crate::engine::JobShared;
use crate::error::{ErrorKind, JobFailure, Result};
use crate::run::SortedRun;
use crate::sort_phase::Chunk;

/// Check runs and take them over, in the order of the source. A run inside a longer one is what a merge left
/// behind when it was killed; it is deleted.
pub fn adopt(engine: &JobShared, paths: &[PathBuf]) -> Result<Vec<SortedRun>> {
    let mut runs = paths
        .iter()
        .map(|path| SortedRun::inspect(path))
        .collect::<Result<Vec<_>>>()?;
    runs.iter().try_for_each(|run| check(engine, run))?;
    runs.sort_by_key(|run| {
        (
            run.header.first_record,
            std::cmp::Reverse((run.header.records, run.header.level)),
        )
    });
    let (mut kept, mut leftovers): (Vec<SortedRun>, Vec<SortedRun>) = (Vec::new(), Vec::new());
    for run in runs {
        match kept.last() {
            Some(last) if run.header.end() <= last.header.end() => leftovers.push(run),
            Some(last) if run.header.first_record < last.header.end() => {
                let text = "the run overlaps another one; delete one of them";
                return Err(JobFailure::at(ErrorKind::ForeignRun, text, &run.path, None));
            }
            _ => kept.push(run),
        }
    }
    engine
        .runs
        .lock()
        .expect("no holder panics")
        .extend(kept.iter().cloned());
    engine.note(|facts| facts.runs_adopted = kept.len() as u64);
    delete(engine, &leftovers)?;
    Ok(kept)
}

fn check(engine: &JobShared, run: &SortedRun) -> Result<()> {
    let (plan, header) = (&engine.plan, &run.header);
    let foreign = |text: &str| Err(JobFailure::at(ErrorKind::ForeignRun, text, &run.path, None));
    if header.fingerprint != plan.fingerprint {
        return foreign("the run belongs to another job");
    }
    if header.signature != plan.form.signature()
        || header.record_bytes as usize != plan.form.width()
        || header.key_bytes as usize != plan.form.key_bytes()
    {
        return foreign("the run holds other records or another key");
    }
    let block_bytes = header.block_records as usize * plan.form.width();
    if block_bytes > read::payload(plan.ring.bytes)
        || header.block_records as usize > 4 * plan.block_records()
    {
        return foreign("the run was written with larger blocks; use the numbers of the first try");
    }
    Ok(())
}

/// The ranges below `records` that no run covers; runs come in the order of the source.
pub fn missing(runs: &[SortedRun], records: u64) -> Vec<Chunk> {
    let (mut gaps, mut end) = (Vec::new(), 0);
    let starts = runs
        .iter()
        .map(|run| (run.header.first_record, run.header.end()));
    for (first, next) in starts.chain([(records, records)]) {
        if first > end {
            gaps.push(Chunk {
                first_record: end,
                records: first - end,
            });
        }
        end = end.max(next);
    }
    gaps
}

/// Delete runs that a longer one has replaced.
pub fn delete(engine: &JobShared, runs: &[SortedRun]) -> Result<()> {
    let gone: Vec<&PathBuf> = runs.iter().map(|run| &run.path).collect();
    engine
        .runs
        .lock()
        .expect("no holder panics")
        .retain(|run| !gone.contains(&&run.path));
    for path in gone {
        std::fs::remove_file(path)
            .map_err(|error| JobFailure::os(ErrorKind::FolderLost, &error, path, None))?;
    }
    Ok(())
}
