//! Temporary folders: the next run goes where the most room is left.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::error::{ErrorKind, JobFailure, Result};

/// The temporary folders of a job.
pub struct Folders {
    paths: Vec<PathBuf>,
    turn: AtomicUsize,
}

impl Folders {
    /// All folders must exist.
    pub fn new(paths: Vec<PathBuf>) -> Result<Folders> {
        if paths.is_empty() {
            return Err(JobFailure::misuse(
                "a sort needs at least one temporary folder",
            ));
        }
        paths
            .iter()
            .try_for_each(|path| free_bytes(path).map(|_| ()))?;
        Ok(Folders {
            paths,
            turn: AtomicUsize::new(0),
        })
    }

    /// Where a file of `bytes` bytes goes: the next folder in turn that has room, or else the one with most room.
    pub fn next(&self, bytes: u64) -> Result<&Path> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut best: Option<(u64, &PathBuf)> = None;
        for i in 0..self.paths.len() {
            let path = &self.paths[(turn + i) % self.paths.len()];
            let free = free_bytes(path)?;
            if free > bytes.saturating_add(bytes / 16) {
                return Ok(path);
            }
            if best.is_none_or(|(most, _)| free > most) {
                best = Some((free, path));
            }
        }
        best.map(|(_, path)| path.as_path())
            .ok_or_else(|| JobFailure::misuse("a sort needs at least one temporary folder"))
    }
}

/// Bytes that this user may still write to the device of `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let lost = |error: &std::io::Error| {
        let failure = JobFailure::os(ErrorKind::FolderLost, error, path, None);
        JobFailure {
            message: format!("temporary folder {}", failure.message),
            ..failure
        }
    };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| lost(&error.into()))?;
    // SAFETY: statvfs fills the structure that it is given, which any bytes are valid for.
    let (status, facts) = unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &mut facts), facts)
    };
    match status {
        #[allow(clippy::unnecessary_cast, reason = "other systems have narrower types")]
        0 => Ok(facts.f_bavail as u64 * facts.f_frsize as u64),
        _ => Err(lost(&std::io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_take_turns() {
        let here = std::env::temp_dir();
        let folders = Folders::new(vec![here.clone(), here.join(".")]).unwrap();
        let first = folders.next(1).unwrap();
        let second = folders.next(1).unwrap();
        assert_ne!(first.as_os_str(), second.as_os_str());
        assert!(
            folders.next(u64::MAX).is_ok(),
            "too little room is found out by the writer"
        );
    }

    #[test]
    fn a_missing_folder_is_lost() {
        let failure = Folders::new(vec!["/no/such/folder".into()]).err().unwrap();
        assert_eq!(failure.kind, ErrorKind::FolderLost);
    }
}
