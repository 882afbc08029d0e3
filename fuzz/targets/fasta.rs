//! Any bytes as a proteome.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tartan_kernels::fasta::{read, FastaError, Limits, Unknown, ALPHABET, BREAK};

#[allow(dead_code, reason = "the property tests call the rest")]
#[path = "../../crates/tartan-kernels/src/fasta/hostile.rs"]
mod hostile;

fuzz_target!(|data: &[u8]| hostile::any_text(data));
