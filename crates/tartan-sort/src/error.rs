//! What can go wrong, typed: a kind for programs, a sentence for people, a path and an offset where there is one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The conditions that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A device is full, of temporary space or of the destination.
    NoSpace,
    /// A temporary folder has vanished.
    FolderLost,
    /// A source has another size or time than at the start, or ends too early.
    SourceChanged,
    /// A file cannot be opened or read.
    Read,
    /// A file cannot be created or written.
    Write,
    /// A run file is not whole or does not match its checksums.
    CorruptRun,
    /// A run file belongs to another job or another kind of record.
    ForeignRun,
    /// The file system refuses O_DIRECT and the caller insists on it.
    DirectRefused,
    /// A buffer cannot be allocated, or the numbers given leave no room to work.
    Memory,
    /// The sort was cancelled.
    Cancelled,
    /// A key lies outside the record or is of no known type.
    Key,
    /// Calls out of order, or a number that makes no sense.
    Misuse,
    /// A defect of the engine.
    Internal,
}

impl ErrorKind {
    /// Stable name of the kind, for programs.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::NoSpace => "no_space",
            ErrorKind::FolderLost => "folder_lost",
            ErrorKind::SourceChanged => "source_changed",
            ErrorKind::Read => "read",
            ErrorKind::Write => "write",
            ErrorKind::CorruptRun => "corrupt_run",
            ErrorKind::ForeignRun => "foreign_run",
            ErrorKind::DirectRefused => "direct_refused",
            ErrorKind::Memory => "memory",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Key => "key",
            ErrorKind::Misuse => "misuse",
            ErrorKind::Internal => "internal",
        }
    }
}

/// One failure.
#[derive(Clone, Debug)]
pub struct JobFailure {
    pub kind: ErrorKind,
    pub message: String,
    pub path: Option<PathBuf>,
    pub offset: Option<u64>,
    pub errno: Option<i32>,
}

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, JobFailure>;

impl JobFailure {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> JobFailure {
        JobFailure {
            kind,
            message: message.into(),
            path: None,
            offset: None,
            errno: None,
        }
    }

    pub fn cancelled() -> JobFailure {
        JobFailure::new(ErrorKind::Cancelled, "the sort was cancelled")
    }

    pub fn misuse(message: impl Into<String>) -> JobFailure {
        JobFailure::new(ErrorKind::Misuse, message)
    }

    /// A failure of the file at `path`, with the byte offset where it is known.
    pub fn at(
        kind: ErrorKind,
        message: impl fmt::Display,
        path: &Path,
        offset: Option<u64>,
    ) -> JobFailure {
        let place = offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
        JobFailure {
            kind,
            message: format!("{}{place}: {message}", path.display()),
            path: Some(path.to_owned()),
            offset,
            errno: None,
        }
    }

    /// What the operating system answered; a full device gets its own kind.
    pub fn os(kind: ErrorKind, error: &io::Error, path: &Path, offset: Option<u64>) -> JobFailure {
        let errno = error.raw_os_error();
        let kind = match errno {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            _ => kind,
        };
        JobFailure {
            errno,
            ..JobFailure::at(kind, error, path, offset)
        }
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for JobFailure {}
