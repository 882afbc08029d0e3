//! Proteins of a FASTA file, plain or gzip, as letter codes.
//!
//! All proteins of a file become one stream of codes, with [`BREAK`] before, between and after them and in place
//! of everything that no window may contain. That is all that counting strings needs: a trailing `*` and an inner
//! one are the same thing then, and so are a short protein and an empty record. Names are not kept.
//!
//! The stream comes in pieces of some hundred kilobytes, wherever records and lines begin: reading takes no more
//! memory for a long file, or for a long record, than for a short one.
//!
//! Input is not trusted: decompression stops at a number of bytes and at a ratio, and every refusal names what is
//! wrong.

use std::fmt;
use std::io::{ErrorKind, Read};

use flate2::bufread::GzDecoder;

use crate::allowance::Exceeded;

/// The 20 amino acids in the order of their codes.
pub const ALPHABET: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";
/// The code that no window may contain: end of a protein, `*`, unknown letter.
/// By format: behind twenty letters.
pub const BREAK: u8 = 20;

/// IGNORE and REFUSE, by format.
const IGNORE: u8 = 21;
const REFUSE: u8 = 22;
/// Decompressed bytes up to which the ratio is not checked: small files may have any.
/// By judgement: memory that harms nobody.
const RATIO_FREE_BYTES: u64 = 16 << 20;
/// Bytes of text that are read at a time, and decompressed between two checks of the limits.
/// By arithmetic: a second cache holds text and codes. `tartan bench phylogeny`: 2.0 times the time of gzip.
const STEP_BYTES: usize = 1 << 18;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What letters outside the 20 become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A window with such a letter is not counted.
    Skip,
    /// B, U, X, Z, J, O become D, C, G, E, A, A (the map of CVTree); others are skipped.
    Map,
}

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

/// What is said of a file with text that is not a sequence.
const REMOVE: &str = "remove comments, gaps and digits: \
    sed -e '/^>/!s/;.*//' -e '/^>/!s/[-0-9]//g' FILE > NEW (of a file in gzip, what zcat gives)";

/// First bytes of compressed files that are not read.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip within gzip"),
];

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastaError {
    Empty,
    NoHeader {
        found: String,
        /// What compressed it, by its first bytes.
        compressed: Option<&'static str>,
    },
    BadByte {
        byte: u8,
        offset: usize,
        /// From 1, by line feeds.
        line: usize,
    },
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
    /// What takes the codes has no memory for them.
    Memory(Exceeded),
}

impl From<Exceeded> for FastaError {
    fn from(exceeded: Exceeded) -> Self {
        Self::Memory(exceeded)
    }
}

impl fmt::Display for FastaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the file is empty; a proteome needs at least one '>' record"),
            Self::NoHeader { compressed: Some(program), .. } => write!(
                f,
                "the file is compressed by {program}; only gzip, once, is read: decompress it"
            ),
            Self::NoHeader { found, .. } if found.starts_with(';') => write!(
                f,
                "the file begins with ';', a comment; {REMOVE}"
            ),
            Self::NoHeader { found, .. } => write!(
                f,
                "the file does not begin with a '>' header but with {found:?}; is it protein FASTA?"
            ),
            Self::BadByte { byte: byte @ (b'-' | b';' | b'0'..=b'9'), line, .. } => write!(
                f,
                "line {line} holds '{}', {}, within a sequence; {REMOVE}",
                *byte as char,
                match byte {
                    b'-' => "a gap of an alignment",
                    b';' => "a comment",
                    _ => "a digit",
                }
            ),
            Self::BadByte { byte, offset, .. } => write!(
                f,
                "byte 0x{byte:02x} at offset {offset} of the text is not a sequence letter; is it protein FASTA?"
            ),
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
            Self::Memory(exceeded) => exceeded.fmt(f),
        }
    }
}

impl std::error::Error for FastaError {}

/// Read a file and give its codes to `sink`, a piece at a time: 0..20 for letters, [`BREAK`] first, last and between
/// proteins.
pub fn read(
    data: &[u8],
    unknown: Unknown,
    limits: FileLimits,
    mut sink: impl FnMut(&[u8]) -> Result<(), Exceeded>,
) -> Result<(), FastaError> {
    let mut encoder = Encoder::new(unknown);
    let mut take = |text: &[u8]| Ok(sink(encoder.piece(text)?)?);
    if data.starts_with(&[0x1f, 0x8b]) {
        gunzip(data, limits, &mut take)?;
    } else if data.len() as u64 > limits.max_bytes {
        return Err(FastaError::TooLarge {
            max_bytes: limits.max_bytes,
        });
    } else {
        data.chunks(STEP_BYTES).try_for_each(&mut take)?;
    }
    encoder.finish()?;
    Ok(sink(&[BREAK])?)
}

/// Decompress all members of `data`, and give their text to `take` a piece at a time.
fn gunzip(
    data: &[u8],
    limits: FileLimits,
    take: &mut impl FnMut(&[u8]) -> Result<(), FastaError>,
) -> Result<(), FastaError> {
    let mut text = Vec::with_capacity(2 * STEP_BYTES);
    let (mut start, mut written) = (0, 0);
    while start < data.len() {
        let rest = &data[start..];
        if !rest.starts_with(&[0x1f, 0x8b]) {
            // Archives are padded with zeros; anything else was not meant to be here.
            if rest.iter().all(|&byte| byte == 0) {
                break;
            }
            return Err(FastaError::Garbage {
                offset: start,
                bytes: rest.len(),
            });
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

fn gzip_error(error: &std::io::Error, compressed: usize, offset: usize) -> FastaError {
    match error.kind() {
        ErrorKind::UnexpectedEof => FastaError::Truncated { compressed },
        _ => FastaError::BadGzip {
            reason: error.to_string(),
            offset,
        },
    }
}

fn check_limits(written: u64, read: u64, limits: FileLimits) -> Result<(), FastaError> {
    if written > limits.max_bytes {
        return Err(FastaError::TooLarge {
            max_bytes: limits.max_bytes,
        });
    }
    if written > RATIO_FREE_BYTES && written / read > limits.max_ratio {
        return Err(FastaError::TooDense {
            max_ratio: limits.max_ratio,
            written,
            read,
        });
    }
    Ok(())
}

/// Code of every byte of a sequence line.
fn letter_table(unknown: Unknown) -> [u8; 256] {
    let mut table = [REFUSE; 256];
    table[0x20..0x7f].fill(BREAK);
    // What alignments, comments and numbered lines hold would break strings that are there, or add others.
    table[b'-' as usize] = REFUSE;
    table[b';' as usize] = REFUSE;
    table[b'0' as usize..=b'9' as usize].fill(REFUSE);
    table[b' ' as usize] = IGNORE;
    table[b'\t' as usize] = IGNORE;
    let mut set = |letter: u8, code: u8| {
        table[letter as usize] = code;
        table[letter.to_ascii_lowercase() as usize] = code;
    };
    for (code, &letter) in (0..).zip(ALPHABET) {
        set(letter, code);
    }
    if unknown == Unknown::Map {
        for (&from, to) in b"BUXZJO".iter().zip(b"DCGEAA") {
            set(
                from,
                ALPHABET.iter().position(|letter| letter == to).unwrap_or(0) as u8,
            );
        }
    }
    table
}

/// Where the next byte of a text lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first header.
    Outside,
    LineStart,
    Header,
    Sequence,
}

/// Turns the text of a file into codes, a piece at a time.
struct Encoder {
    table: [u8; 256],
    codes: Vec<u8>,
    place: Place,
    /// Bytes of text before this piece.
    offset: usize,
    /// Line feeds before the line that is read.
    lines: usize,
}

impl Encoder {
    fn new(unknown: Unknown) -> Self {
        Self {
            table: letter_table(unknown),
            codes: Vec::new(),
            place: Place::Outside,
            offset: 0,
            lines: 0,
        }
    }

    /// Codes of the next piece of the text.
    fn piece(&mut self, mut text: &[u8]) -> Result<&[u8], FastaError> {
        if self.place == Place::Outside && self.offset == 0 {
            text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        }
        self.codes.resize(text.len() + 2, BREAK);
        let (mut length, mut at) = (0, 0);
        if self.place == Place::Outside {
            at = self.find_header(text)?;
            length = usize::from(at < text.len());
            self.codes[0] = BREAK;
        }
        while at < text.len() {
            let end =
                memchr::memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |found| at + found);
            let line = &text[at..end];
            if self.place == Place::LineStart && line.first() == Some(&b'>') {
                self.place = Place::Header;
                self.codes[length] = BREAK;
                length += 1;
            } else if self.place != Place::Header {
                length += encode_line(line, &self.table, &mut self.codes[length..]).map_err(
                    |offset| FastaError::BadByte {
                        byte: line[offset],
                        offset: self.offset + at + offset,
                        line: self.lines + 1,
                    },
                )?;
                if !line.is_empty() {
                    self.place = Place::Sequence;
                }
            }
            if end < text.len() {
                self.place = Place::LineStart;
                self.lines += usize::from(text[end] == b'\n');
            }
            at = end + 1;
        }
        self.offset += text.len();
        Ok(&self.codes[..length])
    }

    /// Position of the first header, or the length of a text without one.
    fn find_header(&mut self, text: &[u8]) -> Result<usize, FastaError> {
        let Some(first) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            self.lines += line_feeds(text);
            return Ok(text.len());
        };
        self.lines += line_feeds(&text[..first]);
        if text[first] != b'>' {
            let shown = &text[first..text.len().min(first + 20)];
            return Err(FastaError::NoHeader {
                found: String::from_utf8_lossy(shown).into_owned(),
                compressed: COMPRESSED
                    .iter()
                    .find(|(magic, _)| text[first..].starts_with(magic))
                    .map(|&(_, program)| program),
            });
        }
        self.place = Place::LineStart;
        Ok(first)
    }

    fn finish(&self) -> Result<(), FastaError> {
        match self.place {
            Place::Outside => Err(FastaError::Empty),
            _ => Ok(()),
        }
    }
}

fn line_feeds(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

/// Write the codes of one line; Err is the position of a byte that is refused.
fn encode_line(line: &[u8], table: &[u8; 256], out: &mut [u8]) -> Result<usize, usize> {
    let out = &mut out[..line.len()];
    let (mut length, mut worst) = (0, 0);
    for &byte in line {
        let code = table[byte as usize];
        // The place is written always and kept only for a code: no branch on the letter.
        out[length] = code;
        length += usize::from(code <= BREAK);
        worst = worst.max(code);
    }
    match worst {
        REFUSE => Err(line
            .iter()
            .position(|&byte| table[byte as usize] == REFUSE)
            .unwrap_or(0)),
        _ => Ok(length),
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
