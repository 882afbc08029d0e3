//! Damage, foreign files, changes behind our back, cancels and resumes.

use std::path::Path;

use crate::common::*;
use tartan_sort::disk::Direct;
use tartan_sort::engine::JobPlan;
use tartan_sort::error::ErrorKind;
use tartan_sort::job::Sorting;
use tartan_sort::pack_policy::Pack;
use tartan_sort::run::SortedRun;
use tartan_sort::source::RecordSource;

fn words_plan(folder: &Folder) -> JobPlan {
    plan(form(8, &[(0, "<u8", false)]), folder)
}

/// A job whose phase 1 is done: `n` words in runs of at most 8192.
fn sorted_runs(folder: &Folder, n: usize, change: impl Fn(&mut JobPlan)) -> (Vec<u64>, Sorting) {
    let words = noise(n, 9);
    std::fs::write(folder.file("source"), bytes_of(&words)).unwrap();
    let mut plan = words_plan(folder);
    change(&mut plan);
    let job = Sorting::new(plan).unwrap();
    let source = RecordSource {
        path: folder.file("source"),
        offset: 0,
        bytes: 8 * n as u64,
    };
    job.sort_files(vec![source], &[]).unwrap();
    wait(&job).unwrap();
    (words, job)
}

fn wanted(mut words: Vec<u64>) -> Vec<u8> {
    words.sort_unstable();
    bytes_of(&words)
}

fn flip(path: &Path, place: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[place] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_in_a_block_is_found_while_merging() {
    for pack in [Pack::Always, Pack::Never] {
        let folder = Folder::new();
        let (_, job) = sorted_runs(&folder, 30_000, |plan| plan.pack = pack);
        let run = folder.runs().remove(2);
        flip(&run, 4096 + 20_000);
        assert_eq!(failure(SortedRun::verify(&run)).kind, ErrorKind::CorruptRun);
        job.write_file(folder.file("output"), 0, true).unwrap();
        let failure = failure(wait(&job));
        assert_eq!(failure.kind, ErrorKind::CorruptRun);
        assert_eq!(failure.path.as_deref(), Some(run.as_path()));
        assert!(failure
            .offset
            .is_some_and(|offset| (4096..24_096 + 4096).contains(&offset)));
    }
}

#[test]
fn a_run_counts_only_when_whole() {
    let folder = Folder::new();
    let (_, job) = sorted_runs(&folder, 30_000, |_| {});
    job.close(true);
    let run = folder.runs().remove(0);
    let bytes = std::fs::read(&run).unwrap();
    assert_eq!(SortedRun::verify(&run).unwrap().header.records, 7500);
    for place in [
        0,
        100,
        bytes.len() - 8192,
        bytes.len() - 4096,
        bytes.len() - 1,
    ] {
        flip(&run, place);
        assert_eq!(
            failure(SortedRun::inspect(&run)).kind,
            ErrorKind::CorruptRun,
            "byte {place}"
        );
        flip(&run, place);
    }
    for length in [0, 4095, 4096, 8192, bytes.len() - 4096, bytes.len() - 1] {
        std::fs::write(&run, &bytes[..length]).unwrap();
        assert_eq!(
            failure(SortedRun::inspect(&run)).kind,
            ErrorKind::CorruptRun,
            "{length} bytes"
        );
    }
    std::fs::write(&run, [bytes.as_slice(), &[0; 4096]].concat()).unwrap();
    assert_eq!(
        failure(SortedRun::inspect(&run)).kind,
        ErrorKind::CorruptRun
    );
}

#[test]
fn whole_runs_are_not_sorted_again() {
    let folder = Folder::new();
    let (words, job) = sorted_runs(&folder, 50_000, |_| {});
    job.close(true);
    let mut runs = folder.runs();
    assert_eq!(runs.len(), 7);
    std::fs::remove_file(runs.remove(6)).unwrap();
    std::fs::remove_file(runs.remove(2)).unwrap();
    let job = Sorting::new(words_plan(&folder)).unwrap();
    let sorted = sort_with(&job, &folder, &runs, 400_000, 0).unwrap();
    assert!(sorted == wanted(words));
    let facts = job.engine().facts.lock().unwrap().clone();
    // Two sorted again, and two merges that bring seven runs down to four.
    assert_eq!((facts.runs_adopted, facts.runs), (5, 3));
}

#[test]
fn inputs_of_a_finished_merge_are_dropped() {
    let folder = Folder::new();
    let (words, job) = sorted_runs(&folder, 40_000, |plan| plan.fan_in = 2);
    let first = folder.runs().remove(0);
    let saved = std::fs::read(&first).unwrap();
    job.write_file(folder.file("output"), 0, true).unwrap();
    wait(&job).unwrap();
    job.close(true);
    let longer = folder.runs();
    assert_eq!(longer.len(), 2);
    std::fs::write(&first, saved).unwrap();
    let job = Sorting::new(words_plan(&folder)).unwrap();
    let sorted = sort_with(&job, &folder, &folder.runs(), 320_000, 0).unwrap();
    assert!(sorted == wanted(words));
    assert_eq!(folder.runs(), longer);
}

#[test]
fn foreign_runs_are_refused() {
    let folder = Folder::new();
    let (_, job) = sorted_runs(&folder, 20_000, |_| {});
    job.close(true);
    let refuse = |change: &dyn Fn(&mut JobPlan)| {
        let mut plan = words_plan(&folder);
        change(&mut plan);
        let job = Sorting::new(plan).unwrap();
        let failure = failure(job.adopt(&folder.runs()));
        assert_eq!(failure.kind, ErrorKind::ForeignRun);
        assert!(failure.path.is_some());
    };
    refuse(&|plan| plan.fingerprint[31] = 9);
    refuse(&|plan| plan.form = form(8, &[(0, "<i8", false)]));
    refuse(&|plan| plan.form = form(4, &[(0, "<u4", false)]));
}

#[test]
fn a_source_that_ends_early_is_named() {
    let folder = Folder::new();
    std::fs::write(folder.file("source"), [0; 80]).unwrap();
    let job = Sorting::new(words_plan(&folder)).unwrap();
    let source = RecordSource {
        path: folder.file("source"),
        offset: 8,
        bytes: 80,
    };
    job.sort_files(vec![source], &[]).unwrap();
    let failure = failure(wait(&job));
    assert_eq!(
        (failure.kind, failure.offset),
        (ErrorKind::SourceChanged, Some(80))
    );
    assert_eq!(failure.path, Some(folder.file("source")));
}

#[test]
fn a_lost_folder_is_named() {
    let (folder, lost) = (Folder::new(), Folder::new());
    let mut plan = words_plan(&folder);
    plan.folders = vec![lost.path().to_owned()];
    let job = Sorting::new(plan).unwrap();
    std::fs::remove_dir(lost.path()).unwrap();
    std::fs::write(folder.file("source"), bytes_of(&noise(20_000, 1))).unwrap();
    let source = RecordSource {
        path: folder.file("source"),
        offset: 0,
        bytes: 160_000,
    };
    job.sort_files(vec![source], &[]).unwrap();
    assert_eq!(failure(wait(&job)).kind, ErrorKind::FolderLost);
    let (_, job) = sorted_runs(&folder, 20_000, |_| {});
    std::fs::remove_file(folder.runs().remove(0)).unwrap();
    job.write_file(folder.file("output"), 0, true).unwrap();
    assert_eq!(failure(wait(&job)).kind, ErrorKind::FolderLost);
}

#[test]
fn a_missing_source_and_an_impossible_output() {
    let folder = Folder::new();
    let job = Sorting::new(words_plan(&folder)).unwrap();
    let source = RecordSource {
        path: folder.file("nothing"),
        offset: 0,
        bytes: 8,
    };
    job.sort_files(vec![source], &[]).unwrap();
    assert_eq!(failure(wait(&job)).kind, ErrorKind::Read);
    let (_, job) = sorted_runs(&folder, 20_000, |_| {});
    job.write_file(folder.file("no/folder/output"), 0, true)
        .unwrap();
    assert_eq!(failure(wait(&job)).kind, ErrorKind::Write);
}

#[test]
fn a_cancel_is_heard_and_whole_runs_stay() {
    let folder = Folder::new();
    let (_, job) = sorted_runs(&folder, 50_000, |_| {});
    job.engine().control.cancel();
    assert_eq!(
        failure(job.write_file(folder.file("output"), 0, true)).kind,
        ErrorKind::Cancelled
    );
    job.close(true);
    assert_eq!(folder.runs().len(), 7);
    let job = Sorting::new(words_plan(&folder)).unwrap();
    job.push(&[0; 8]).unwrap();
    job.engine().control.cancel();
    assert_eq!(failure(job.push(&[0; 8])).kind, ErrorKind::Cancelled);
    assert_eq!(failure(wait(&job)).kind, ErrorKind::Cancelled);
}

#[test]
fn calls_out_of_order_are_refused() {
    let folder = Folder::new();
    let job = Sorting::new(words_plan(&folder)).unwrap();
    assert_eq!(failure(job.open_sorted()).kind, ErrorKind::Misuse);
    assert_eq!(failure(job.push(&[0; 7])).kind, ErrorKind::Misuse);
    job.push(&[0; 8]).unwrap();
    assert_eq!(
        failure(job.sort_files(Vec::new(), &[])).kind,
        ErrorKind::Misuse
    );
    assert_eq!(failure(job.adopt(&[])).kind, ErrorKind::Misuse);
}

#[test]
fn numbers_without_room_are_refused() {
    let folder = Folder::new();
    let changes: [&dyn Fn(&mut JobPlan); 6] = [
        &|plan| plan.buffer_bytes = 28 << 10,
        &|plan| plan.buffers = 2,
        &|plan| plan.block_bytes = 5000,
        &|plan| plan.ring.bytes = 8192,
        &|plan| plan.fan_in = 100,
        &|plan| plan.form = form(8000, &[(0, "S10", false)]),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut plan = words_plan(&folder);
        change(&mut plan);
        assert_eq!(
            failure(Sorting::new(plan)).kind,
            ErrorKind::Memory,
            "change {number}"
        );
    }
}

#[test]
fn statistics_add_up() {
    let folder = Folder::new();
    let (words, job) = sorted_runs(&folder, 50_000, |plan| {
        plan.pack = Pack::Never;
        plan.direct = Direct::Never;
        plan.fan_in = 16;
        plan.buffer_bytes = 256 << 10;
    });
    job.write_file(folder.file("output"), 0, false).unwrap();
    wait(&job).unwrap();
    let bytes = 8 * words.len() as u64;
    for (edge, name) in tartan_sort::control::EDGES {
        assert_eq!(job.engine().control.flow(edge).totals().0, bytes, "{name}");
    }
    let facts = job.engine().facts.lock().unwrap().clone();
    assert_eq!((facts.runs, facts.levels, facts.records), (2, 0, 50_000));
    assert_eq!(
        (facts.direct_read, facts.direct_write),
        (Some(false), Some(false))
    );
}
