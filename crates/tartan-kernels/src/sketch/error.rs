//! Why a file has no sketch.

use std::fmt;

use crate::inflate::InflateError;

/// Why a file has no sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SketchError {
    File(InflateError),
    Empty,
    NoHeader {
        found: String,
        compressed: Option<&'static str>,
    },
    BadByte {
        byte: u8,
        line: u64,
    },
    /// A read without qualities, or with a number of them that is not that of its letters.
    BadRead {
        line: u64,
    },
    Protein {
        n_foreign: u64,
        n_letters: u64,
    },
    Memory {
        allowed_bytes: u64,
    },
}

impl From<InflateError> for SketchError {
    fn from(error: InflateError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for SketchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Empty => write!(f, "the file is empty; a genome needs at least one '>' record"),
            Self::NoHeader {
                compressed: Some(program),
                ..
            } => write!(f, "the file is compressed by {program} within what was unpacked: decompress it"),
            Self::NoHeader { found, .. } => write!(
                f,
                "the file begins neither with '>' (FASTA) nor with '@' (FASTQ) but with {found:?}"
            ),
            Self::BadByte { byte, line } => write!(
                f,
                "line {line} holds the byte 0x{byte:02x}, which is no letter of a sequence; is it FASTA or FASTQ?"
            ),
            Self::BadRead { line } => write!(
                f,
                "the read that ends at line {line} has not one quality for each letter; \
                 copy or download the file again"
            ),
            Self::Protein { n_foreign, n_letters } => write!(
                f,
                "{n_foreign} of its {n_letters} letters are E, F, I, L, P, Q and others that no DNA holds: this is \
                 protein, and genomes compares DNA; phylogeny compares proteomes"
            ),
            Self::Memory { allowed_bytes } => write!(
                f,
                "its sketch takes more than the {} MB of memory that are free; choose a larger scaled, give the run \
                 more memory, or leave this file out",
                allowed_bytes / 1_000_000
            ),
        }
    }
}

impl std::error::Error for SketchError {}
