//! Run files that are damaged or made up: the right order or an error that names one; no panic, no hang.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::common::*;
use crate::hostile;
use tartan_sort::engine::JobPlan;
use tartan_sort::error::{ErrorKind, Result};
use tartan_sort::job::Sorting;
use tartan_sort::pack_policy::Pack;
use tartan_sort::run::index::WINDOW_BYTES;
use tartan_sort::run::SortedRun;
use tartan_sort::source::RecordSource;

const RECORDS: usize = 30_000;

/// What happens to a file. Places count from its end, where the index is, or from its beginning.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Vec<(Place, u8)>),
    Cut(Place),
    Zero(Place),
    Extend(usize),
    Delete,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Anywhere(usize),
    NearEnd(usize),
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    BetweenPhases,
    WhileReading,
    BeforeResume,
}

impl Place {
    fn of(self, length: usize) -> usize {
        match self {
            Place::Anywhere(place) => place % length,
            Place::NearEnd(place) => length.saturating_sub(1 + place),
        }
    }
}

impl Damage {
    fn apply(&self, path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let length = bytes.len();
        match self {
            Damage::Flip(places) => {
                for (place, bit) in places {
                    bytes[place.of(length)] ^= 1 << bit;
                }
            }
            Damage::Cut(place) => bytes.truncate(place.of(length)),
            Damage::Zero(place) => bytes[place.of(length)..].fill(0),
            Damage::Extend(more) => bytes.resize(length + more, 7),
            Damage::Delete => return std::fs::remove_file(path).unwrap(),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        any::<usize>().prop_map(Place::Anywhere),
        (0..3 * 4096usize).prop_map(Place::NearEnd),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => prop::collection::vec((place(), 0..8u8), 1..8).prop_map(Damage::Flip),
        1 => place().prop_map(Damage::Cut),
        1 => place().prop_map(Damage::Zero),
        1 => (1..9000usize).prop_map(Damage::Extend),
        1 => Just(Damage::Delete),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        Just(Moment::BetweenPhases),
        Just(Moment::WhileReading),
        Just(Moment::BeforeResume)
    ]
}

fn plan_of(folder: &Folder, pack: Pack) -> JobPlan {
    JobPlan {
        pack,
        ..plan(form(8, &[(0, "<u8", false)]), folder)
    }
}

/// A job whose runs lie in the folder, ready to be merged.
fn sorted_runs(folder: &Folder, words: &[u64], pack: Pack) -> Sorting {
    std::fs::write(folder.file("source"), bytes_of(words)).unwrap();
    let job = Sorting::new(plan_of(folder, pack)).unwrap();
    let source = RecordSource {
        path: folder.file("source"),
        offset: 0,
        bytes: 8 * words.len() as u64,
    };
    job.sort_files(vec![source], &[]).unwrap();
    wait(&job).unwrap();
    job
}

/// Read sorted records while `damage` happens; the records before a failure, and the failure.
fn read_while(job: &Sorting, damage: impl FnOnce()) -> (Vec<u8>, Result<()>) {
    let (mut found, mut piece) = (Vec::new(), vec![0; 8 * 1000]);
    let mut damage = Some(damage);
    if let Err(failure) = job.open_sorted() {
        return (found, Err(failure));
    }
    loop {
        match job.read_into(&mut piece) {
            Ok(0) => return (found, Ok(())),
            Ok(bytes) => found.extend(&piece[..bytes]),
            Err(failure) => return (found, Err(failure)),
        }
        if let Some(damage) = damage.take() {
            damage();
        }
    }
}

fn survives(pack: Pack, which: usize, damage: &Damage, moment: Moment) {
    let folder = Folder::new();
    let mut words = noise(RECORDS, 9);
    let job = sorted_runs(&folder, &words, pack);
    words.sort_unstable();
    let wanted = bytes_of(&words);
    let runs = folder.runs();
    let victim = &runs[which % runs.len()];
    let output = folder.file("output");
    let outcome = match moment {
        Moment::BetweenPhases => {
            damage.apply(victim);
            let written = job.write_file(output.clone(), 0, false);
            written
                .and_then(|()| wait(&job))
                .map(|()| std::fs::read(output).unwrap())
        }
        Moment::WhileReading => {
            let (found, end) = read_while(&job, || damage.apply(victim));
            assert!(
                wanted.starts_with(&found),
                "records were given out of order"
            );
            end.map(|()| found)
        }
        Moment::BeforeResume => {
            job.close(true);
            damage.apply(victim);
            let job = Sorting::new(plan_of(&folder, pack)).unwrap();
            sort_with(&job, &folder, &folder.runs(), wanted.len(), 0)
        }
    };
    match outcome {
        Ok(sorted) => assert!(sorted == wanted, "the order is wrong"),
        Err(failure) => {
            let kinds = [ErrorKind::CorruptRun, ErrorKind::FolderLost];
            assert!(kinds.contains(&failure.kind), "{failure:?}");
            assert_eq!(failure.path.as_ref(), Some(victim), "{failure:?}");
        }
    }
}

#[test]
fn every_byte_of_an_index_counts() {
    let folder = Folder::new();
    let job = sorted_runs(&folder, &noise(RECORDS, 9), Pack::Never);
    let run = job.runs().remove(1);
    let index =
        run.footer.index_offset as usize..(run.footer.index_offset + run.index_bytes()) as usize;
    job.close(true);
    for place in index.step_by(5) {
        let from_end = run.file_bytes as usize - 1 - place;
        let flip = Damage::Flip(vec![(Place::NearEnd(from_end), 3)]);
        survives(Pack::Never, 1, &flip, Moment::BetweenPhases);
    }
}

#[test]
fn an_index_of_many_windows_is_damaged_while_it_is_read() {
    let folder = Folder::new();
    let mut words = noise(1_200_000, 9);
    let job = sorted_runs(&folder, &words, Pack::Never);
    words.sort_unstable();
    let mut victim = None;
    let (found, end) = read_while(&job, || {
        let runs = folder.runs();
        let size = |path: &&PathBuf| std::fs::metadata(path).unwrap().len();
        let path = runs.iter().max_by_key(size).unwrap();
        let run = SortedRun::inspect(path).unwrap();
        assert!(
            run.index_bytes() > 2 * WINDOW_BYTES as u64,
            "{} bytes",
            run.index_bytes()
        );
        // A key that becomes larger: records behind it would be given before it.
        let entry = run.index_bytes() / run.header.blocks();
        let place = run.footer.index_offset + entry * (run.header.blocks() * 7 / 8);
        let mut bytes = std::fs::read(path).unwrap();
        bytes[place as usize] = 0xff;
        std::fs::write(path, bytes).unwrap();
        victim = Some(path.clone());
    });
    assert!(
        bytes_of(&words).starts_with(&found),
        "records were given out of order"
    );
    let failure = failure(end);
    assert_eq!(
        (failure.kind, failure.path),
        (ErrorKind::CorruptRun, victim)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn damaged_runs_are_named(
        pack in prop_oneof![Just(Pack::Always), Just(Pack::Never)],
        which in any::<usize>(),
        damage in damage(),
        moment in moment(),
    ) {
        survives(pack, which, &damage, moment);
    }

    #[test]
    fn rubbish_is_unpacked_alike_by_all_paths(
        bytes in prop::collection::vec(any::<u8>(), 0..600), width in 0..70u8, count in 0..600u16
    ) {
        let mut bytes = bytes;
        hostile::packed_keys::<u32>(&bytes);
        hostile::packed_keys::<u64>(&bytes);
        if bytes.len() > 11 {
            // Headers that can be ones: the first key, the width of differences, the number of keys.
            (bytes[8], bytes[9], bytes[10]) = (width, count as u8, (count >> 8) as u8);
            hostile::packed_keys::<u64>(&bytes);
            (bytes[4], bytes[5], bytes[6]) = (width, count as u8, (count >> 8) as u8);
            hostile::packed_keys::<u32>(&bytes);
        }
    }

    #[test]
    fn made_up_runs_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        hostile::made_up_run(&bytes);
    }
}

#[test]
fn a_foreign_path_is_named() {
    let folder = Folder::new();
    let path: PathBuf = folder.file("run-0.trun");
    std::fs::create_dir(&path).unwrap();
    assert!(Sorting::new(plan_of(&folder, Pack::Never))
        .unwrap()
        .adopt(&[path])
        .is_err());
}
