//! The sequences of a FASTA or FASTQ text that comes in pieces.

use super::error::SketchError;
use crate::sparse::dispatch::dispatch;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes of a text that a message shows.
/// By judgement: half a line.
const SHOWN_BYTES: usize = 20;

/// What takes the letters of a text.
pub trait Sink {
    /// Take a line of letters, or a part of one, and return how many they are: blanks are none.
    fn take(&mut self, letters: &[u8], line: u64) -> Result<u64, SketchError>;
    /// The next letters do not follow on the last ones.
    fn end_run(&mut self);
    /// A record has ended.
    fn end_record(&mut self, n_letters: u64, is_read: bool);
}

/// Where the next byte lies.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    Header,
    Sequence,
    /// The line that begins with `+`.
    Middle,
    Quality,
}

/// Finds the sequences; pieces may end anywhere.
#[derive(Default)]
pub struct SequenceReader {
    place: Place,
    is_fastq: bool,
    /// The next byte is the first of its line.
    at_start: bool,
    /// The last byte was a carriage return.
    after_return: bool,
    n_lines: u64,
    /// Bytes of text before this piece.
    offset: u64,
    /// Letters of this record, and its qualities.
    n_letters: u64,
    n_qualities: u64,
}

impl SequenceReader {
    /// Read the next piece.
    pub fn take(&mut self, text: &[u8], sink: &mut impl Sink) -> Result<(), SketchError> {
        let mut rest = text;
        if self.offset == 0 {
            rest = rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(rest);
        }
        self.offset += text.len() as u64;
        if self.place == Place::Outside {
            let blank = rest
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            self.n_lines += memchr::memchr_iter(b'\n', &rest[..blank]).count() as u64;
            rest = &rest[blank..];
            match rest.first() {
                None => return Ok(()),
                Some(b'>' | b'@') => {
                    self.is_fastq = rest[0] == b'@';
                    self.place = Place::Header;
                    self.at_start = false;
                }
                Some(_) => {
                    let shown = &rest[..rest.len().min(SHOWN_BYTES)];
                    return Err(SketchError::NoHeader {
                        found: String::from_utf8_lossy(shown).into_owned(),
                        compressed: None,
                    });
                }
            }
        }
        while !rest.is_empty() {
            let end = memchr::memchr2(b'\n', b'\r', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            if !line.is_empty() {
                self.part(line, sink)?;
                self.at_start = false;
                self.after_return = false;
            }
            let Some(end) = end else { break };
            self.end_line(rest[end]);
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    /// Read a line, or a part of one.
    fn part(&mut self, line: &[u8], sink: &mut impl Sink) -> Result<(), SketchError> {
        if self.at_start {
            let complete = self.n_qualities >= self.n_letters;
            match (self.place, line[0], self.is_fastq) {
                (Place::Sequence, b'>', false) => return self.begin_record(sink),
                // An empty read may have an empty line of qualities or none.
                (Place::Quality, b'@', true) if complete => return self.begin_record(sink),
                (Place::Sequence, b'+', true) => {
                    self.place = Place::Middle;
                    return Ok(());
                }
                _ => {}
            }
        }
        match self.place {
            Place::Sequence => {
                self.n_letters += sink.take(line, self.n_lines + 1)?;
                Ok(())
            }
            Place::Quality => {
                self.n_qualities += line.len() as u64;
                if self.n_qualities > self.n_letters {
                    return Err(SketchError::BadRead {
                        line: self.n_lines + 1,
                    });
                }
                Ok(())
            }
            Place::Outside | Place::Header | Place::Middle => Ok(()),
        }
    }

    fn end_line(&mut self, byte: u8) {
        // The two bytes of a Windows line end are one line.
        let continued = byte == b'\n' && self.after_return;
        self.n_lines += u64::from(!continued);
        self.after_return = byte == b'\r';
        if !continued {
            self.place = match self.place {
                Place::Header => Place::Sequence,
                Place::Middle => Place::Quality,
                other => other,
            };
        }
        self.at_start = true;
    }

    fn begin_record(&mut self, sink: &mut impl Sink) -> Result<(), SketchError> {
        self.end_record(sink)?;
        self.place = Place::Header;
        Ok(())
    }

    fn end_record(&mut self, sink: &mut impl Sink) -> Result<(), SketchError> {
        if self.is_fastq && self.n_qualities != self.n_letters {
            return Err(SketchError::BadRead { line: self.n_lines });
        }
        sink.end_run();
        sink.end_record(self.n_letters, self.is_fastq);
        (self.n_letters, self.n_qualities) = (0, 0);
        Ok(())
    }

    /// The text has ended.
    pub fn finish(&mut self, sink: &mut impl Sink) -> Result<(), SketchError> {
        match self.place {
            Place::Outside => Err(SketchError::Empty),
            _ => self.end_record(sink),
        }
    }
}

/// How many letters are A, C, G or T, and how many G or C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    pub n_known: u64,
    pub n_gc: u64,
}

/// Write letters in upper case, U as T, and count them; what is not known is written as something.
pub fn upper(letters: &[u8], out: &mut [u8]) -> LetterCounts {
    let mut counts = LetterCounts::default();
    // Counters of one byte stay in vectors of bytes.
    for (letters, out) in letters.chunks(255).zip(out.chunks_mut(255)) {
        write_upper(letters, out, &mut counts);
    }
    counts
}

dispatch!(
    write_upper, write_upper_avx512, write_upper_avx2, write_upper_body,
    [], [],
    (letters: &[u8], out: &mut [u8], counts: &mut LetterCounts)
);

#[inline(always)]
fn write_upper_body(letters: &[u8], out: &mut [u8], counts: &mut LetterCounts) {
    let (mut n_known, mut n_gc) = (0u8, 0u8);
    for (&letter, out) in letters.iter().zip(out) {
        let upper = letter & 0xdf;
        let upper = upper - u8::from(upper == b'U');
        let gc = u8::from(upper == b'C') | u8::from(upper == b'G');
        let at = u8::from(upper == b'A') | u8::from(upper == b'T');
        n_known += gc | at;
        n_gc += gc;
        *out = upper;
    }
    counts.n_known += u64::from(n_known);
    counts.n_gc += u64::from(n_gc);
}

/// A known letter in upper case.
pub fn known(letter: u8) -> Option<u8> {
    match letter.to_ascii_uppercase() {
        b'U' => Some(b'T'),
        upper @ (b'A' | b'C' | b'G' | b'T') => Some(upper),
        _ => None,
    }
}

/// Whether a letter stands for no nucleotide and no group of them, in the code of IUPAC.
pub fn is_foreign(letter: u8) -> bool {
    letter.is_ascii_alphabetic() && !b"ACGTURYSWKMBDHVNX".contains(&letter.to_ascii_uppercase())
}
