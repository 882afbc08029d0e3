//! Ranges of files as one sequence of records, and the check that they stay as they are.

use std::path::PathBuf;

use crate::disk::{DataFile, Direct};
use crate::error::{ErrorKind, JobFailure, Result};

/// A range of a file that holds whole records.
#[derive(Clone, Debug)]
pub struct RecordSource {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// Some sources, one behind the other.
pub struct Sources {
    parts: Vec<Part>,
    width: u64,
}

struct Part {
    source: RecordSource,
    /// Bytes of all parts before.
    before: u64,
    stamp: (u64, i128),
}

/// Bytes of one source, wanted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which source.
    pub part: usize,
    /// Byte offset in its file.
    pub offset: u64,
    pub bytes: u64,
}

impl Sources {
    /// Look at every file; nothing stays open.
    pub fn new(sources: Vec<RecordSource>, width: usize) -> Result<Sources> {
        let width = width as u64;
        let (mut parts, mut before) = (Vec::with_capacity(sources.len()), 0);
        for source in sources {
            let stamp = DataFile::open(&source.path, Direct::Never)?.stamp()?;
            if !source.bytes.is_multiple_of(width) {
                let text = format!(
                    "{} bytes are not a whole number of records of {width} bytes",
                    source.bytes
                );
                return Err(JobFailure::at(ErrorKind::Misuse, text, &source.path, None));
            }
            if source
                .offset
                .checked_add(source.bytes)
                .is_none_or(|end| end > stamp.0)
            {
                return Err(JobFailure::at(
                    ErrorKind::SourceChanged,
                    "the file ends before it should",
                    &source.path,
                    Some(stamp.0),
                ));
            }
            let bytes = source.bytes;
            parts.push(Part {
                source,
                before,
                stamp,
            });
            before += bytes;
        }
        Ok(Sources { parts, width })
    }

    /// Records of all sources.
    pub fn records(&self) -> u64 {
        self.parts
            .last()
            .map_or(0, |part| (part.before + part.source.bytes) / self.width)
    }

    /// Where some records lie.
    pub fn pieces(&self, first_record: u64, records: u64) -> Vec<Piece> {
        let (start, end) = (
            first_record * self.width,
            (first_record + records) * self.width,
        );
        let first = self
            .parts
            .partition_point(|part| part.before + part.source.bytes <= start);
        let cut = |(i, part): (usize, &Part)| {
            let from = start.max(part.before);
            let to = end.min(part.before + part.source.bytes);
            Piece {
                part: i,
                offset: part.source.offset + from - part.before,
                bytes: to.saturating_sub(from),
            }
        };
        let parts = self.parts.iter().enumerate().skip(first);
        let parts = parts.take_while(|(_, part)| part.before < end);
        parts.map(cut).filter(|piece| piece.bytes > 0).collect()
    }

    /// Open a source for reading; it must be what it was.
    pub fn open(&self, part: usize, direct: Direct) -> Result<DataFile> {
        let file = DataFile::open(&self.parts[part].source.path, direct)?;
        self.parts[part].check(&file).map(|()| file)
    }

    /// Compare every source with what it was at the start.
    pub fn check_all(&self) -> Result<()> {
        let check = |part: &Part| part.check(&DataFile::open(&part.source.path, Direct::Never)?);
        self.parts.iter().try_for_each(check)
    }
}

impl Part {
    fn check(&self, file: &DataFile) -> Result<()> {
        match file.stamp()? == self.stamp {
            true => Ok(()),
            false => Err(JobFailure::at(
                ErrorKind::SourceChanged,
                "the file has changed since the start",
                file.path(),
                None,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &std::path::Path, sizes: &[u64]) -> Sources {
        let make = |(i, &bytes): (usize, &u64)| {
            let path = folder.join(i.to_string());
            std::fs::write(&path, vec![0; bytes as usize + 3]).unwrap();
            RecordSource {
                path,
                offset: 3,
                bytes,
            }
        };
        Sources::new(sizes.iter().enumerate().map(make).collect(), 8).unwrap()
    }

    #[test]
    fn records_are_found_across_files() {
        let folder = crate::testing::Folder::new();
        let sources = sources(folder.path(), &[16, 0, 8, 80]);
        assert_eq!(sources.records(), 13);
        let piece = |part, offset, bytes| Piece {
            part,
            offset,
            bytes,
        };
        assert_eq!(
            sources.pieces(1, 3),
            [piece(0, 11, 8), piece(2, 3, 8), piece(3, 3, 8)]
        );
        assert_eq!(sources.pieces(5, 2), [piece(3, 19, 16)]);
        assert_eq!(sources.pieces(13, 0), []);
    }

    #[test]
    fn a_change_is_seen() {
        let folder = crate::testing::Folder::new();
        let sources = sources(folder.path(), &[16]);
        std::fs::write(folder.path().join("0"), [0; 20]).unwrap();
        assert_eq!(
            sources.open(0, Direct::Never).err().unwrap().kind,
            ErrorKind::SourceChanged
        );
    }
}
