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

use crate::allowance::Exceeded;
use crate::inflate::{self, compressor, FileLimits, InflateError};

/// The 20 amino acids in the order of their codes.
pub const ALPHABET: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";
/// The code that no window may contain: end of a protein, `*`, unknown letter.
/// By format: behind twenty letters.
pub const BREAK: u8 = 20;

/// IGNORE and REFUSE, by format.
const IGNORE: u8 = 21;
const REFUSE: u8 = 22;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What letters outside the 20 become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A window with such a letter is not counted.
    Skip,
    /// B, U, X, Z, J, O become D, C, G, E, A, A (the map of CVTree); others are skipped.
    Map,
}

/// What is said of a file with text that is not a sequence.
const REMOVE: &str = "remove comments, gaps and digits: \
    sed -e '/^>/!s/;.*//' -e '/^>/!s/[-0-9]//g' FILE > NEW (of a file in gzip, what zcat gives)";

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
    File(InflateError),
    /// What takes the codes has no memory for them.
    Memory(Exceeded),
}

impl From<Exceeded> for FastaError {
    fn from(exceeded: Exceeded) -> Self {
        Self::Memory(exceeded)
    }
}

impl From<InflateError> for FastaError {
    fn from(error: InflateError) -> Self {
        Self::File(error)
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
            Self::File(error) => error.fmt(f),
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
    let mut take = |text: &[u8]| -> Result<(), FastaError> { Ok(sink(encoder.piece(text)?)?) };
    inflate::read(data, limits, &mut take)?;
    encoder.finish()?;
    Ok(sink(&[BREAK])?)
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
                compressed: compressor(&text[first..]),
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
