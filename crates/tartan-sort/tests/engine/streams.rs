//! Records pushed from memory and pulled into memory.

use crate::common::*;
use tartan_sort::error::ErrorKind;
use tartan_sort::job::Sorting;

fn pull(job: &Sorting, capacity: usize) -> Vec<u8> {
    job.open_sorted().unwrap();
    let (mut sorted, mut out) = (Vec::new(), vec![0; capacity + 1]);
    loop {
        // Odd addresses and sizes that are not a whole number of records.
        let count = job.read_into(&mut out[1..]).unwrap();
        if count == 0 {
            wait(job).unwrap();
            return sorted;
        }
        sorted.extend(&out[1..=count]);
    }
}

#[test]
fn pushed_and_pulled_words() {
    for n in [0, 1, 5000, 8192, 8193, 50_000] {
        let (folder, mut words) = (Folder::new(), noise(n, 1));
        let job = Sorting::new(plan(form(8, &[(0, "<u8", false)]), &folder)).unwrap();
        bytes_of(&words)
            .chunks(1608)
            .for_each(|piece| job.push(piece).unwrap());
        job.finish_push().unwrap();
        wait(&job).unwrap();
        words.sort_unstable();
        assert!(pull(&job, 999) == bytes_of(&words), "{n} words");
    }
}

#[test]
fn pushed_and_pulled_records() {
    let (folder, bytes) = (Folder::new(), bytes_of(&noise(30_000, 2)));
    let job = Sorting::new(plan(form(24, &[(16, "<u8", true)]), &folder)).unwrap();
    bytes
        .chunks(24 * 777)
        .for_each(|piece| job.push(piece).unwrap());
    job.finish_push().unwrap();
    wait(&job).unwrap();
    let wanted = oracle(&bytes, 24, |r| std::cmp::Reverse(u64_at(r, 16)));
    assert!(pull(&job, 10_000) == wanted);
}

#[test]
fn a_reader_may_stop_early() {
    let folder = Folder::new();
    let job = Sorting::new(plan(form(8, &[(0, "<u8", false)]), &folder)).unwrap();
    job.push(&bytes_of(&noise(200_000, 3))).unwrap();
    job.finish_push().unwrap();
    wait(&job).unwrap();
    job.open_sorted().unwrap();
    let mut out = [0; 80];
    assert_eq!(job.read_into(&mut out).unwrap(), 80);
    job.close(false);
    assert!(folder.runs().is_empty());
    assert_eq!(failure(job.read_into(&mut out)).kind, ErrorKind::Cancelled);
}

#[test]
fn an_interrupted_push_goes_on_where_runs_end() {
    let (folder, words) = (Folder::new(), noise(60_000, 4));
    let bytes = bytes_of(&words);
    let make = || Sorting::new(plan(form(8, &[(0, "<u8", false)]), &folder)).unwrap();
    let job = make();
    job.push(&bytes[..8 * 40_000]).unwrap();
    job.finish_push().unwrap();
    wait(&job).unwrap();
    job.close(true);
    let mut runs = folder.runs();
    std::fs::remove_file(runs.remove(1)).unwrap();
    let job = make();
    job.adopt(&runs).unwrap();
    let (gaps, end) = job.missing();
    assert_eq!((gaps.len(), end), (1, 40_000));
    let mut pieces: Vec<(u64, u64)> = gaps
        .iter()
        .map(|gap| (gap.first_record, gap.records))
        .collect();
    pieces.push((end, 20_000));
    for (first, count) in pieces {
        job.seek(first).unwrap();
        job.push(&bytes[8 * first as usize..8 * (first + count) as usize])
            .unwrap();
    }
    job.finish_push().unwrap();
    wait(&job).unwrap();
    let mut wanted = words;
    wanted.sort_unstable();
    assert!(pull(&job, 4096) == bytes_of(&wanted));
}

#[test]
fn a_gap_in_what_was_pushed_is_an_error() {
    let folder = Folder::new();
    let job = Sorting::new(plan(form(8, &[(0, "<u8", false)]), &folder)).unwrap();
    job.push(&[0; 80]).unwrap();
    job.seek(11).unwrap();
    job.push(&[0; 80]).unwrap();
    job.finish_push().unwrap();
    assert_eq!(failure(wait(&job)).kind, ErrorKind::Misuse);
}

#[test]
fn pushed_chunks_become_runs_and_nothing_else() {
    let (folder, bytes) = (Folder::new(), bytes_of(&noise(20_000, 5)));
    let job = Sorting::new(plan(form(8, &[(0, "<u8", false)]), &folder)).unwrap();
    job.push_runs().unwrap();
    // More chunks than are merged at once, none of them the first one of the source.
    for first in [9000, 10_000, 10_500, 15_000, 15_001, 19_000] {
        job.seek(first).unwrap();
        job.push(&bytes[8 * first as usize..8 * first as usize + 8])
            .unwrap();
    }
    job.finish_push().unwrap();
    wait(&job).unwrap();
    let mut made: Vec<_> = job
        .runs()
        .iter()
        .map(|run| (run.header.first_record, run.header.records))
        .collect();
    made.sort_unstable();
    let wanted = [9000, 10_000, 10_500, 15_000, 15_001, 19_000].map(|first| (first, 1));
    assert_eq!(made, wanted);
    assert_eq!(folder.runs().len(), 6);
}
