//! One file: direct where accepted, otherwise buffered and dropped from the page cache behind the work.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Mutex;

use crate::error::{ErrorKind, JobFailure, Result};
use crate::memory::{AlignedMemory, ALIGN};

/// Whether files bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system accepts it.
    Auto,
    /// A refusal is an error.
    Always,
    Never,
}

/// How many bytes of a buffered file may be under way to the disk before the writer waits for them.
/// By judgement: a tenth of a second of a disk, so that buffered files never fill the page cache. `tartan bench sort`
/// measures direct ones.
const DIRTY_BYTES: u64 = 16 << 20;

/// An open file that streams read or write.
pub struct DataFile {
    file: File,
    path: PathBuf,
    policy: Direct,
    direct: AtomicBool,
    dirty: Mutex<VecDeque<(u64, u64)>>,
}

impl DataFile {
    /// Open for reading.
    pub fn open(path: &Path, policy: Direct) -> Result<DataFile> {
        let mut options = OpenOptions::new();
        options.read(true);
        DataFile::with(options, path, policy, ErrorKind::Read)
    }

    /// Open a file of the user for writing, creating it where it is missing and keeping what it holds.
    pub fn create(path: &Path, policy: Direct) -> Result<DataFile> {
        DataFile::with(writable(), path, policy, ErrorKind::Write)
    }

    /// As `create`, but of the sort's own: whoever reads what it holds must be this user, as the source may be private.
    pub fn create_private(path: &Path, policy: Direct) -> Result<DataFile> {
        let mut options = writable();
        options.mode(0o600);
        DataFile::with(options, path, policy, ErrorKind::Write)
    }

    fn with(
        mut options: OpenOptions,
        path: &Path,
        policy: Direct,
        kind: ErrorKind,
    ) -> Result<DataFile> {
        let plain = options.clone();
        let direct = match policy {
            Direct::Never => None,
            _ => Some(options.custom_flags(libc::O_DIRECT).open(path)),
        };
        let (file, direct) = match direct {
            Some(Ok(file)) => (Ok(file), true),
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                refused(path, policy)?;
                (plain.open(path), false)
            }
            Some(Err(error)) => (Err(error), true),
            None => (plain.open(path), false),
        };
        Ok(DataFile {
            file: file.map_err(|error| JobFailure::os(kind, &error, path, None))?,
            path: path.to_owned(),
            policy,
            direct: AtomicBool::new(direct),
            dirty: Mutex::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub fn is_direct(&self) -> bool {
        self.direct.load(Relaxed)
    }

    /// Go on buffered after a request was refused; false where the file was buffered anyway.
    pub fn give_up_direct(&self) -> Result<bool> {
        if !self.is_direct() {
            return Ok(false);
        }
        refused(&self.path, self.policy)?;
        let descriptor = self.descriptor();
        // SAFETY: fcntl on an open descriptor with flags that it reported itself, less one.
        let changed = unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            flags >= 0 && libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_DIRECT) == 0
        };
        if changed {
            self.direct.store(false, Relaxed);
        }
        Ok(changed)
    }

    /// Size in bytes and time of the last change in nanoseconds.
    pub fn stamp(&self) -> Result<(u64, i128)> {
        use std::os::unix::fs::MetadataExt;
        let facts = self
            .file
            .metadata()
            .map_err(|error| self.failure(ErrorKind::Read, &error, None))?;
        let time = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
        Ok((facts.len(), time))
    }

    /// Take the room for `bytes` from `offset` on, so that a full device is seen early and later writes
    /// need no allocation. Nothing happens where the file system cannot.
    pub fn reserve(&self, offset: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: fallocate on an open descriptor touches no memory of ours.
        let status = unsafe {
            libc::fallocate(
                self.descriptor(),
                0,
                offset as libc::off_t,
                bytes as libc::off_t,
            )
        };
        let error = std::io::Error::last_os_error();
        match status {
            0 => Ok(()),
            _ if matches!(
                error.raw_os_error(),
                Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
            ) =>
            {
                Err(self.failure(ErrorKind::NoSpace, &error, Some(offset)))
            }
            _ => Ok(()),
        }
    }

    /// Read a little at any `offset`, through aligned memory; short only at the end of the file.
    pub fn read_small(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let gap = (offset % ALIGN as u64) as usize;
        let mut pages = AlignedMemory::new(gap + buffer.len())?;
        let mut filled = 0;
        while filled < gap + buffer.len() {
            let place = offset - gap as u64 + filled as u64;
            match self.file.read_at(&mut pages[filled..], place) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && self.give_up_direct()? => {}
                Err(error) => return Err(self.failure(ErrorKind::Read, &error, Some(place))),
            }
            // A direct read that stops between two pages has met the end of the file.
            if !filled.is_multiple_of(ALIGN) {
                break;
            }
        }
        let count = filled.saturating_sub(gap).min(buffer.len());
        buffer[..count].copy_from_slice(&pages[gap..gap + count]);
        Ok(count)
    }

    /// Fill `out` from any `offset` of a file that is not direct; false where the file ends before.
    pub fn read_exactly(&self, out: &mut [u8], offset: u64) -> Result<bool> {
        match self.file.read_exact_at(out, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(self.failure(ErrorKind::Read, &error, Some(offset))),
        }
    }

    /// Cut or extend to `length` bytes.
    pub fn set_length(&self, length: u64) -> Result<()> {
        self.file
            .set_len(length)
            .map_err(|error| self.failure(ErrorKind::Write, &error, Some(length)))
    }

    /// Bring everything to the device.
    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_all()
            .map_err(|error| self.failure(ErrorKind::Write, &error, None))
    }

    /// A range was read and is not wanted again.
    pub fn consumed(&self, offset: u64, bytes: u64) {
        if !self.is_direct() {
            self.forget(offset, bytes);
        }
    }

    /// A range was written: start its way to the disk, and drop what was on its way before.
    pub fn written(&self, offset: u64, bytes: u64) {
        if self.is_direct() {
            return;
        }
        self.write_out(offset, bytes, libc::SYNC_FILE_RANGE_WRITE);
        let mut dirty = self.dirty.lock().expect("no holder panics");
        dirty.push_back((offset, bytes));
        let mut total: u64 = dirty.iter().map(|range| range.1).sum();
        let mut settled = Vec::new();
        while total > DIRTY_BYTES {
            let Some(range) = dirty.pop_front() else {
                break;
            };
            total -= range.1;
            settled.push(range);
        }
        drop(dirty);
        settled.into_iter().for_each(|range| self.settle(range));
    }

    /// Wait for the rest of what was written, and drop it from the page cache.
    pub fn settle_all(&self) {
        let dirty = std::mem::take(&mut *self.dirty.lock().expect("no holder panics"));
        dirty.into_iter().for_each(|range| self.settle(range));
    }

    fn settle(&self, (offset, bytes): (u64, u64)) {
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.write_out(offset, bytes, wait);
        self.forget(offset, bytes);
    }

    fn write_out(&self, offset: u64, bytes: u64, flags: libc::c_uint) {
        // SAFETY: advice on an open descriptor; it touches no memory of ours. A refusal costs speed only.
        unsafe {
            libc::sync_file_range(self.descriptor(), offset as i64, bytes as i64, flags);
        }
    }

    fn forget(&self, offset: u64, bytes: u64) {
        // SAFETY: as above.
        unsafe {
            libc::posix_fadvise(
                self.descriptor(),
                offset as i64,
                bytes as i64,
                libc::POSIX_FADV_DONTNEED,
            );
        }
    }

    /// A failure of this file.
    pub fn failure(
        &self,
        kind: ErrorKind,
        error: &std::io::Error,
        offset: Option<u64>,
    ) -> JobFailure {
        JobFailure::os(kind, error, &self.path, offset)
    }
}

fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options
}

fn refused(path: &Path, policy: Direct) -> Result<()> {
    match policy {
        Direct::Always => Err(JobFailure::at(
            ErrorKind::DirectRefused,
            "the file system refuses O_DIRECT; allow buffered files",
            path,
            None,
        )),
        _ => Ok(()),
    }
}
