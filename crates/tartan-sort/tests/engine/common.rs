//! What the integration tests share: folders, plans, and a plain sort to compare with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tartan_sort::disk::{Direct, IoMethod, RingPlan};
use tartan_sort::engine::JobPlan;
use tartan_sort::error::{JobFailure, Result};
use tartan_sort::form::{parse_field, Form};
use tartan_sort::job::Sorting;
use tartan_sort::pack_policy::Pack;
use tartan_sort::source::RecordSource;

/// A folder that is deleted at the end.
pub struct Folder(PathBuf);

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Folder {
    pub fn new() -> Folder {
        let name = format!(
            "tartan-sort-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Whole runs in the folder.
    pub fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut runs: Vec<PathBuf> = entries
            .filter(|path| path.extension().is_some_and(|e| e == "trun"))
            .collect();
        runs.sort();
        runs
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn form(width: usize, fields: &[(usize, &str, bool)]) -> Form {
    let fields: Vec<_> = fields
        .iter()
        .map(|&(offset, text, down)| parse_field(offset, text, down).unwrap())
        .collect();
    Form::new(width, &fields).unwrap()
}

/// A plan with small numbers: blocks of 4 KiB, buffers of 64 KiB, 4 runs at once.
pub fn plan(form: Form, folder: &Folder) -> JobPlan {
    JobPlan {
        form,
        fingerprint: [3; 32],
        folders: vec![folder.path().to_owned()],
        buffer_bytes: 64 << 10,
        buffers: 5,
        threads: 2,
        fan_in: 4,
        block_bytes: 4096,
        ring: RingPlan {
            bytes: 16 << 10,
            depth: 4,
            method: IoMethod::Auto,
        },
        pack: Pack::Auto,
        direct: Direct::Auto,
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

pub fn wait(job: &Sorting) -> Result<()> {
    assert!(job.wait(PATIENCE)?, "the phase hangs");
    Ok(())
}

/// Sort bytes through files; a gap lies before the data in source and output.
pub fn sort(
    plan: JobPlan,
    folder: &Folder,
    bytes: &[u8],
    gap: usize,
) -> Result<(Vec<u8>, Sorting)> {
    let source = folder.file("source");
    std::fs::write(&source, [vec![9; gap].as_slice(), bytes].concat()).unwrap();
    let job = Sorting::new(plan)?;
    let output = sort_with(&job, folder, &[], bytes.len(), gap)?;
    Ok((output, job))
}

/// The same with a job and runs of an earlier try.
pub fn sort_with(
    job: &Sorting,
    folder: &Folder,
    runs: &[PathBuf],
    bytes: usize,
    gap: usize,
) -> Result<Vec<u8>> {
    let source = RecordSource {
        path: folder.file("source"),
        offset: gap as u64,
        bytes: bytes as u64,
    };
    job.sort_files(vec![source], runs)?;
    wait(job)?;
    let output = folder.file("output");
    std::fs::write(&output, vec![9; gap]).unwrap();
    job.write_file(output.clone(), gap as u64, true)?;
    wait(job)?;
    let written = std::fs::read(&output).unwrap();
    assert_eq!(written[..gap], vec![9; gap]);
    Ok(written[gap..].to_vec())
}

/// A stable sort of whole records by a function of them.
pub fn oracle<K: Ord>(bytes: &[u8], width: usize, key: impl Fn(&[u8]) -> K) -> Vec<u8> {
    let mut records: Vec<&[u8]> = bytes.chunks_exact(width).collect();
    records.sort_by_key(|record| key(record));
    records.concat()
}

/// Pseudo-random words.
pub fn noise(n: usize, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..n).map(step).collect()
}

pub fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn u64_at(record: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(record[offset..offset + 8].try_into().unwrap())
}

pub fn failure<T>(result: Result<T>) -> JobFailure {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(failure) => failure,
    }
}
