//! Sketches of DNA: of all strings of k letters, those whose hash is small (FracMinHash, as sourmash makes them).
//!
//! A string and its reverse complement count as one, the lesser of both in upper case. Its hash is the first half of
//! MurmurHash3 (x64, 128 bits) with seed 42; hashes up to `max_hash` are kept, each once, in ascending order. A string
//! with a letter other than A, C, G, T is left out. So the sketch of two genomes' union is the union of their sketches,
//! and strand, order and lines change nothing.
//!
//! Irber et al.: Lightweight compositional analysis of metagenomes with FracMinHash and minimum metagenome covers (2022).

mod error;
mod murmur;
mod numbers;
pub mod scores;
mod text;

use crate::inflate::{self, compressor, FileLimits};
pub use error::SketchError;
use murmur::hash_run;
pub use murmur::hash_text;
pub use numbers::parse_numbers;
use text::{SequenceReader, Sink};

/// Lengths of strings. Below the least nearly all strings occur in every genome.
pub const K_RANGE: std::ops::RangeInclusive<usize> = 7..=255;

/// Letters without a break that are hashed together.
/// By arithmetic: they and their reverse complement stay in the first cache level.
const RUN_LETTERS: usize = 1 << 13;
/// Hashes that are gathered before equal ones are dropped.
/// By judgement: 8 MB, what a genome of a thousand million letters keeps at one in a thousand.
const FIRST_SORT: usize = 1 << 20;
/// Most of its letters that are none of nucleic acids, of a file that is taken for DNA: one in this number.
/// By judgement: of proteins four in ten are; of DNA none but by damage.
const FOREIGN_SHARE: u64 = 50;

/// What of a genome is compared, and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// In ascending order, each once.
    pub hashes: Vec<u64>,
    /// Letters of each record, in order; of reads none are kept.
    pub lengths: Vec<u64>,
    /// Letters that are A, C, G or T, and those of them that are G or C.
    pub n_known: u64,
    pub n_gc: u64,
    /// All letters, and all records.
    pub n_letters: u64,
    pub n_records: u64,
}

/// Sketch a file of DNA: FASTA or FASTQ, plain or gzip.
///
/// # Panics
/// If k is outside [`K_RANGE`].
pub fn sketch(
    data: &[u8],
    k: usize,
    max_hash: u64,
    limits: FileLimits,
    memory_bytes: u64,
) -> Result<Sketch, SketchError> {
    assert!(K_RANGE.contains(&k));
    let mut keeper = Keeper {
        k,
        max_hash,
        memory_bytes,
        run: Vec::with_capacity(2 * RUN_LETTERS),
        reverse: Vec::new(),
        sort_at: FIRST_SORT,
        n_foreign: 0,
        sketch: Sketch::default(),
    };
    let mut reader = SequenceReader::default();
    let mut first: Vec<u8> = Vec::new();
    let mut take = |text: &[u8]| -> Result<(), SketchError> {
        if first.len() < SHOWN {
            first.extend_from_slice(&text[..text.len().min(SHOWN - first.len())]);
        }
        reader.take(text, &mut keeper)
    };
    let outcome = inflate::read(data, limits, &mut take).and_then(|()| reader.finish(&mut keeper));
    match outcome {
        Err(SketchError::NoHeader { found, .. }) => Err(SketchError::NoHeader {
            found,
            compressed: compressor(&first),
        }),
        Err(error) => Err(error),
        Ok(()) => keeper.finish(),
    }
}

/// First bytes of a text that tell what compressed it.
/// By format: no mark is longer.
const SHOWN: usize = 8;

/// Hashes the strings of runs of known letters, and keeps what is small.
struct Keeper {
    k: usize,
    max_hash: u64,
    memory_bytes: u64,
    /// Letters without a break, in upper case; the last k - 1 that were hashed come first.
    run: Vec<u8>,
    /// Its reverse complement.
    reverse: Vec<u8>,
    sort_at: usize,
    n_foreign: u64,
    sketch: Sketch,
}

impl Keeper {
    /// Hash the strings of the run; those that begin in its last k - 1 letters wait for more.
    fn hash(&mut self) {
        hash_run(
            &mut self.run,
            &mut self.reverse,
            self.k,
            self.max_hash,
            &mut self.sketch.hashes,
        );
        let done = (self.run.len() + 1).saturating_sub(self.k);
        self.run.copy_within(done.., 0);
        self.run.truncate(self.run.len() - done);
    }

    /// Drop equal hashes where there are many.
    fn bound(&mut self) -> Result<(), SketchError> {
        let hashes = &mut self.sketch.hashes;
        if hashes.len() < self.sort_at {
            return Ok(());
        }
        hashes.sort_unstable();
        hashes.dedup();
        self.sort_at = FIRST_SORT.max(2 * hashes.len());
        // The list grows to twice its length, and is copied while it grows.
        let needed = 3 * self.sort_at as u64 * size_of::<u64>() as u64 / 2;
        if self.sort_at > FIRST_SORT && needed > self.memory_bytes {
            return Err(SketchError::Memory {
                allowed_bytes: self.memory_bytes,
            });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Sketch, SketchError> {
        let n_letters = self.sketch.n_letters;
        if self.n_foreign > n_letters / FOREIGN_SHARE {
            return Err(SketchError::Protein {
                n_foreign: self.n_foreign,
                n_letters,
            });
        }
        let hashes = &mut self.sketch.hashes;
        hashes.sort_unstable();
        hashes.dedup();
        hashes.shrink_to_fit();
        Ok(self.sketch)
    }
}

impl Sink for Keeper {
    fn take(&mut self, letters: &[u8], line: u64) -> Result<u64, SketchError> {
        let before = self.sketch.n_letters;
        for piece in letters.chunks(RUN_LETTERS) {
            let start = self.run.len();
            self.run.resize(start + piece.len(), 0);
            let counts = text::upper(piece, &mut self.run[start..]);
            self.sketch.n_gc += counts.n_gc;
            if counts.n_known == piece.len() as u64 {
                self.sketch.n_known += counts.n_known;
                self.sketch.n_letters += counts.n_known;
            } else {
                self.run.truncate(start);
                self.take_broken(piece, line)?;
            }
            if self.run.len() >= RUN_LETTERS {
                self.hash();
            }
            // Reads and short contigs are hashed where they end.
            self.bound()?;
        }
        Ok(self.sketch.n_letters - before)
    }

    fn end_run(&mut self) {
        self.hash();
        self.run.clear();
    }

    fn end_record(&mut self, n_letters: u64, is_read: bool) {
        self.sketch.n_records += 1;
        if !is_read {
            self.sketch.lengths.push(n_letters);
        }
    }
}

impl Keeper {
    /// Take letters some of which are not known.
    fn take_broken(&mut self, letters: &[u8], line: u64) -> Result<(), SketchError> {
        for &letter in letters {
            if letter == b' ' || letter == b'\t' {
                continue;
            }
            if !letter.is_ascii_graphic() {
                return Err(SketchError::BadByte { byte: letter, line });
            }
            self.sketch.n_letters += 1;
            if let Some(upper) = text::known(letter) {
                self.run.push(upper);
                self.sketch.n_known += 1;
            } else {
                self.n_foreign += u64::from(text::is_foreign(letter));
                self.end_run();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
