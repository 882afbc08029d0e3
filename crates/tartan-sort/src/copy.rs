//! A plain copy of a file through the same rings: what a sort is measured against.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{read, DataFile, Direct, ReadStream, RingPlan, WriteStream};
use crate::error::{ErrorKind, Result};

/// Copy `source` to `target`, and bring it to the device; the bytes copied.
pub fn copy(source: &Path, target: &Path, ring: RingPlan, direct: Direct) -> Result<u64> {
    let from = Arc::new(DataFile::open(source, direct)?);
    let to = DataFile::create(target, direct)?;
    let bytes = from.stamp()?.0;
    to.set_length(0)?;
    to.reserve(0, bytes)?;
    let mut reads = ReadStream::new(ring, ErrorKind::SourceChanged)?;
    let mut writes = WriteStream::new(ring)?;
    writes.begin(Arc::new(to), 0)?;
    let step = read::payload(ring.bytes) as u64;
    let mut asked = 0;
    while asked < bytes || !reads.is_empty() {
        while asked < bytes && reads.can_take() {
            let count = step.min(bytes - asked);
            reads.ask(&from, asked, count as usize)?;
            asked += count;
        }
        writes.append(reads.front()?)?;
        reads.release();
    }
    writes.finish()?.sync()?;
    Ok(bytes)
}
