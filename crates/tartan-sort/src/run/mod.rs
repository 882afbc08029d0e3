//! Run files: sorted, encoded records in blocks with checksums, an index of first keys, and a footer.
//!
//! ```text
//! page 0      header: version, fingerprint of the job, record, source range, level, own checksum
//! byte 4096   blocks, one behind the other; each packed or plain
//! aligned     index: one entry a block: first key, offset, stored bytes, checksum of the stored bytes
//! last page   footer: where the index is, checksums of index and header, own checksum
//! ```
//!
//! A run is written under a name that ends in `.part` and renamed when its footer is on its way to the disk, so a
//! file with the final name is whole after any kill. Runs are not synced: a power cut may damage the latest ones, and
//! the checksums tell.

pub mod format;
pub mod index;
mod inspect;
pub mod writer;

pub use format::{Header, SortedRun};
pub use index::{Block, IndexWindow};
pub use writer::RunWriter;
