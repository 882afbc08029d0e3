//! The text of a file, plain or gzip, a piece at a time.
//!
//! Input is not trusted: decompression stops at a number of bytes and at a ratio, and every refusal names what is
//! wrong.

use std::fmt;
use std::io::{ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// Decompressed bytes up to which the ratio is not checked: small files may have any.
/// By judgement: memory that harms nobody.
const RATIO_FREE_BYTES: u64 = 16 << 20;
/// Bytes of text that are read at a time, and decompressed between two checks of the limits.
/// By arithmetic: a second cache holds text and codes. `tartan bench phylogeny`: 2.0 times the time of gzip.
pub const STEP_BYTES: usize = 1 << 18;

/// What a file may ask of this machine.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Most bytes after decompression.
    pub max_bytes: u64,
    /// Most bytes after decompression for each byte before it, above 16 MiB.
    pub max_ratio: u64,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            max_bytes: 2 << 30,
            max_ratio: 200,
        }
    }
}

/// Why a file is refused before its text is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InflateError {
    Truncated {
        compressed: usize,
    },
    BadGzip {
        reason: String,
        offset: usize,
    },
    Garbage {
        offset: usize,
        bytes: usize,
    },
    TooLarge {
        max_bytes: u64,
    },
    TooDense {
        max_ratio: u64,
        written: u64,
        read: u64,
    },
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { compressed } => write!(
                f,
                "the gzip data end in the middle of a member ({compressed} bytes); copy or download the file again"
            ),
            Self::BadGzip { reason, offset } => write!(
                f,
                "the gzip data are damaged ({reason}) in the member at byte {offset}; copy or download the file again"
            ),
            Self::Garbage { offset, bytes } => write!(
                f,
                "{bytes} bytes that are not gzip follow the gzip data at byte {offset}; \
                 cut the file there if the rest is not wanted"
            ),
            Self::TooLarge { max_bytes } => write!(
                f,
                "the text is larger than the limit of {max_bytes} bytes; raise max_bytes if the file is genuine"
            ),
            Self::TooDense { max_ratio, written, read } => write!(
                f,
                "{read} gzip bytes give more than {written} bytes, above the ratio of {max_ratio} that is allowed; \
                 raise max_ratio if the file is genuine"
            ),
        }
    }
}

impl std::error::Error for InflateError {}

/// First bytes of compressed files that are not read.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip within gzip"),
];

/// The program that compressed a text, by its first bytes.
pub fn compressor(text: &[u8]) -> Option<&'static str> {
    let written_by = |(magic, _): &&(&[u8], _)| text.starts_with(magic);
    COMPRESSED
        .iter()
        .find(written_by)
        .map(|&(_, program)| program)
}

/// Give the text of a file to `take`, a piece at a time.
pub fn read<E: From<InflateError>>(
    data: &[u8],
    limits: FileLimits,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if data.starts_with(&[0x1f, 0x8b]) {
        return gunzip(data, limits, take);
    }
    if data.len() as u64 > limits.max_bytes {
        let max_bytes = limits.max_bytes;
        return Err(InflateError::TooLarge { max_bytes }.into());
    }
    data.chunks(STEP_BYTES).try_for_each(take)
}

/// Decompress all members of `data`, and give their text to `take` a piece at a time.
fn gunzip<E: From<InflateError>>(
    data: &[u8],
    limits: FileLimits,
    take: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut text = Vec::with_capacity(2 * STEP_BYTES);
    let (mut start, mut written) = (0, 0);
    while start < data.len() {
        let rest = &data[start..];
        if !rest.starts_with(&[0x1f, 0x8b]) {
            // Archives are padded with zeros; anything else was not meant to be here.
            if rest.iter().all(|&byte| byte == 0) {
                break;
            }
            let bytes = rest.len();
            return Err(InflateError::Garbage {
                offset: start,
                bytes,
            }
            .into());
        }
        let mut rest = rest;
        let mut member = GzDecoder::new(&mut rest).take(0);
        while member.limit() == 0 {
            member.set_limit(STEP_BYTES as u64);
            let more = member
                .read_to_end(&mut text)
                .map_err(|error| gzip_error(&error, data.len(), start))?;
            written += more as u64;
            check_limits(written, data.len() as u64, limits)?;
            if text.len() >= STEP_BYTES {
                take(&text)?;
                text.clear();
            }
        }
        start = data.len() - rest.len();
    }
    take(&text)
}

fn gzip_error(error: &std::io::Error, compressed: usize, offset: usize) -> InflateError {
    match error.kind() {
        ErrorKind::UnexpectedEof => InflateError::Truncated { compressed },
        _ => InflateError::BadGzip {
            reason: error.to_string(),
            offset,
        },
    }
}

fn check_limits(written: u64, read: u64, limits: FileLimits) -> Result<(), InflateError> {
    if written > limits.max_bytes {
        return Err(InflateError::TooLarge {
            max_bytes: limits.max_bytes,
        });
    }
    if written > RATIO_FREE_BYTES && written / read > limits.max_ratio {
        return Err(InflateError::TooDense {
            max_ratio: limits.max_ratio,
            written,
            read,
        });
    }
    Ok(())
}
