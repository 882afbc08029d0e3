//! Proteins of a FASTA file, plain or gzip, as letter codes.
//!
//! All proteins of a file go into one array of codes, with [`BREAK`] before, between and after them and in place
//! of everything that no window may contain. That is all that counting strings needs: a trailing `*` and an inner
//! one are the same thing then, and so are a short protein and an empty record. Names are not kept.
//!
//! Input is not trusted: decompression stops at a number of bytes and at a ratio, and every refusal names what is
//! wrong.

use std::fmt;
use std::io::{ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// The 20 amino acids in the order of their codes.
pub const ALPHABET: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";
/// The code that no window may contain: end of a protein, `*`, unknown letter.
pub const BREAK: u8 = 20;

const IGNORE: u8 = 21;
const REFUSE: u8 = 22;
/// Decompressed bytes up to which the ratio is not checked: small files may have any.
const RATIO_FREE_BYTES: u64 = 16 << 20;
/// Bytes that are decompressed between two checks of the limits.
const STEP_BYTES: u64 = 1 << 18;

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
pub struct Limits {
    /// Most bytes after decompression.
    pub max_bytes: u64,
    /// Most bytes after decompression for each byte before it, above 16 MiB.
    pub max_ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 2 << 30,
            max_ratio: 200,
        }
    }
}

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastaError {
    Empty,
    NoHeader {
        found: String,
    },
    BadByte {
        byte: u8,
        offset: usize,
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
}

impl fmt::Display for FastaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the file is empty; a proteome needs at least one '>' record"),
            Self::NoHeader { found } => write!(
                f,
                "the file does not begin with a '>' header but with {found:?}; is it protein FASTA?"
            ),
            Self::BadByte { byte, offset } => write!(
                f,
                "byte 0x{byte:02x} at offset {offset} of the text is no sequence letter; is it protein FASTA?"
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
        }
    }
}

impl std::error::Error for FastaError {}

/// Memory of a reader, kept between files.
#[derive(Default)]
pub struct Reader {
    text: Vec<u8>,
    codes: Vec<u8>,
}

impl Reader {
    /// Codes of all proteins: 0..20 for letters, [`BREAK`] first, last and between proteins.
    pub fn read(
        &mut self,
        data: &[u8],
        unknown: Unknown,
        limits: Limits,
    ) -> Result<&[u8], FastaError> {
        let text = if data.starts_with(&[0x1f, 0x8b]) {
            self.gunzip(data, limits)?;
            &self.text[..]
        } else if data.len() as u64 > limits.max_bytes {
            return Err(FastaError::TooLarge {
                max_bytes: limits.max_bytes,
            });
        } else {
            data
        };
        encode(text, &letter_table(unknown), &mut self.codes)?;
        Ok(&self.codes)
    }

    /// Decompress all members of `data` into `self.text`.
    fn gunzip(&mut self, data: &[u8], limits: Limits) -> Result<(), FastaError> {
        self.text.clear();
        let mut start = 0;
        while start < data.len() {
            let rest = &data[start..];
            if !rest.starts_with(&[0x1f, 0x8b]) {
                // Archives are padded with zeros; anything else was not meant to be here.
                if rest.iter().all(|&byte| byte == 0) {
                    return Ok(());
                }
                return Err(FastaError::Garbage {
                    offset: start,
                    bytes: rest.len(),
                });
            }
            start += self.member(data, start, limits)?;
        }
        Ok(())
    }

    /// Decompress the member at `start`, and return its length.
    fn member(&mut self, data: &[u8], start: usize, limits: Limits) -> Result<usize, FastaError> {
        let mut rest = &data[start..];
        let mut member = GzDecoder::new(&mut rest).take(0);
        while member.limit() == 0 {
            member.set_limit(STEP_BYTES);
            member
                .read_to_end(&mut self.text)
                .map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => FastaError::Truncated {
                        compressed: data.len(),
                    },
                    _ => FastaError::BadGzip {
                        reason: error.to_string(),
                        offset: start,
                    },
                })?;
            self.check_limits(data.len() as u64, limits)?;
        }
        Ok(data.len() - start - rest.len())
    }

    fn check_limits(&self, read: u64, limits: Limits) -> Result<(), FastaError> {
        let written = self.text.len() as u64;
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
}

/// Code of every byte of a sequence line.
fn letter_table(unknown: Unknown) -> [u8; 256] {
    let mut table = [REFUSE; 256];
    table[0x20..0x7f].fill(BREAK);
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

/// Write the codes of all records of `text`.
fn encode(text: &[u8], table: &[u8; 256], codes: &mut Vec<u8>) -> Result<(), FastaError> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let first = text
        .iter()
        .position(|byte| !byte.is_ascii_whitespace())
        .ok_or(FastaError::Empty)?;
    if text[first] != b'>' {
        let shown = &text[first..text.len().min(first + 20)];
        return Err(FastaError::NoHeader {
            found: String::from_utf8_lossy(shown).into_owned(),
        });
    }
    codes.resize(text.len() + 2, BREAK);
    codes[0] = BREAK;
    let (mut length, mut at) = (1, first);
    while at < text.len() {
        let end = memchr::memchr2(b'\n', b'\r', &text[at..]).map_or(text.len(), |found| at + found);
        let line = &text[at..end];
        if line.first() == Some(&b'>') {
            codes[length] = BREAK;
            length += 1;
        } else {
            length += encode_line(line, table, &mut codes[length..]).map_err(|offset| {
                FastaError::BadByte {
                    byte: line[offset],
                    offset: at + offset,
                }
            })?;
        }
        at = end + 1;
    }
    codes[length] = BREAK;
    codes.truncate(length + 1);
    Ok(())
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
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn letters(data: &[u8], unknown: Unknown) -> Result<String, FastaError> {
        let mut reader = Reader::default();
        let codes = reader.read(data, unknown, Limits::default())?;
        Ok(codes
            .iter()
            .map(|&code| ALPHABET.get(code as usize).map_or('|', |&l| l as char))
            .collect())
    }

    #[test]
    fn reads_records_lines_and_cases() {
        let expected = "||ACDEF||GHIK|";
        assert_eq!(
            letters(b">a\nACD\nEF\n>b\n>c\nghik\n", Unknown::Skip).unwrap(),
            expected
        );
        for ends in ["\r\n", "\r", "\n"] {
            let text = format!(">a b{ends}ACD{ends}{ends}E F{ends}>c{ends}ghik");
            assert_eq!(
                letters(text.as_bytes(), Unknown::Skip).unwrap(),
                "||ACDEF|GHIK|"
            );
        }
    }

    #[test]
    fn breaks_at_stops_and_unknown_letters() {
        assert_eq!(
            letters(b">a\nAC*DX-E*\n", Unknown::Skip).unwrap(),
            "||AC|D||E||"
        );
        assert_eq!(
            letters(b">a\nBUXZJOxA?\n", Unknown::Map).unwrap(),
            "||DCGEAAGA||"
        );
    }

    #[test]
    fn refuses_what_is_no_fasta() {
        assert_eq!(letters(b"", Unknown::Skip), Err(FastaError::Empty));
        assert_eq!(letters(b" \r\n\n", Unknown::Skip), Err(FastaError::Empty));
        assert!(matches!(
            letters(b"ACDE\n>a\nAC", Unknown::Skip),
            Err(FastaError::NoHeader { .. })
        ));
        let bad = letters(b">a\nAC\x00D", Unknown::Skip);
        assert_eq!(bad, Err(FastaError::BadByte { byte: 0, offset: 5 }));
        assert_eq!(
            letters("\u{feff}>a\nAC\n".as_bytes(), Unknown::Skip).unwrap(),
            "||AC|"
        );
    }

    #[test]
    fn reads_gzip_of_several_members_and_padding() {
        let mut data = gzip(b">a\nACD");
        data.extend(gzip(b"EF\n>b\nGH"));
        data.extend(gzip(b""));
        assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACDEF|GH|");
        data.extend([0; 512]);
        assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACDEF|GH|");
    }

    #[test]
    fn names_garbage_truncation_and_damage() {
        let whole = gzip(&b">a\nACDEFGHIKLMNPQ\n".repeat(50));
        let mut garbage = whole.clone();
        garbage.extend(b"junk");
        assert_eq!(
            letters(&garbage, Unknown::Skip),
            Err(FastaError::Garbage {
                offset: whole.len(),
                bytes: 4
            })
        );
        for length in [2, 9, 12, whole.len() - 9, whole.len() - 1] {
            let result = letters(&whole[..length], Unknown::Skip);
            assert_eq!(
                result,
                Err(FastaError::Truncated { compressed: length }),
                "{length}"
            );
        }
        let mut damaged = whole.clone();
        let at = whole.len() - 6;
        damaged[at] ^= 1;
        assert!(matches!(
            letters(&damaged, Unknown::Skip),
            Err(FastaError::BadGzip { .. })
        ));
        assert!(matches!(
            letters(b"\x1f\x8b\x07\0\0\0\0\0\0\0\0", Unknown::Skip),
            Err(FastaError::BadGzip { .. })
        ));
    }

    #[test]
    fn reads_optional_header_fields() {
        let plain = gzip(b">a\nACD\n");
        let mut data = plain[..10].to_vec();
        data[3] = 4 | 8 | 16 | 2;
        data.extend(b"\x03\0abcname\0comment\0");
        let checksum = crc32fast::hash(&data).to_le_bytes();
        data.extend(&checksum[..2]);
        data.extend(&plain[10..]);
        assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACD|");
        assert!(matches!(
            letters(&data[..16], Unknown::Skip),
            Err(FastaError::Truncated { .. })
        ));
    }

    #[test]
    fn stops_at_the_limits() {
        let data = gzip(&vec![b'A'; 32 << 20]);
        let mut reader = Reader::default();
        let mut read = |max_bytes, max_ratio| {
            reader
                .read(
                    &data,
                    Unknown::Skip,
                    Limits {
                        max_bytes,
                        max_ratio,
                    },
                )
                .map(<[u8]>::len)
        };
        assert!(matches!(
            read(1 << 20, 10_000),
            Err(FastaError::TooLarge { .. })
        ));
        assert!(matches!(
            read(1 << 30, 100),
            Err(FastaError::TooDense { .. })
        ));
        assert!(matches!(
            read(1 << 30, 10_000),
            Err(FastaError::NoHeader { .. })
        ));
        let plain = reader.read(
            b">a\nAC",
            Unknown::Skip,
            Limits {
                max_bytes: 3,
                max_ratio: 1,
            },
        );
        assert_eq!(plain, Err(FastaError::TooLarge { max_bytes: 3 }));
    }
}
