//! The check that a file is a whole run.

use std::path::Path;

use super::format::{Footer, Header, SortedRun, PAGE};
use super::index::IndexWindow;
use crate::disk::{DataFile, Direct};
use crate::error::{ErrorKind, JobFailure, Result};

impl SortedRun {
    /// Read header, footer and index of a file and check them.
    pub fn inspect(path: &Path) -> Result<SortedRun> {
        let file = DataFile::open(path, Direct::Never)?;
        let corrupt =
            |text: &str, offset| JobFailure::at(ErrorKind::CorruptRun, text, path, Some(offset));
        let file_bytes = file.stamp()?.0;
        let last_page = file_bytes.saturating_sub(PAGE as u64);
        let (mut first, mut last) = (vec![0; PAGE], vec![0; PAGE]);
        if file.read_small(&mut first, 0)? < PAGE || file.read_small(&mut last, last_page)? < PAGE {
            return Err(corrupt(
                "the run file is shorter than a header and a footer",
                file_bytes,
            ));
        }
        let header = Header::parse(&first).map_err(|text| corrupt(text, 0))?;
        let footer = Footer::parse(&last, &first).map_err(|text| corrupt(text, last_page))?;
        let run = SortedRun {
            path: path.to_owned(),
            header,
            footer,
            file_bytes,
        };
        run.check_places()
            .map_err(|text| corrupt(text, last_page))?;
        IndexWindow::new(&run).check_all(&run, &file)?;
        Ok(run)
    }

    /// The same, and read every block against its checksum.
    pub fn verify(path: &Path) -> Result<SortedRun> {
        let run = SortedRun::inspect(path)?;
        let file = DataFile::open(path, Direct::Never)?;
        let (mut window, mut stored) = (IndexWindow::new(&run), Vec::new());
        while !window.is_done() {
            window.load(&run, &file)?;
            let block = window.block(&run);
            stored.resize(block.stored as usize, 0);
            let got = file.read_small(&mut stored, block.offset)?;
            if got < stored.len() || crc32fast::hash(&stored) != block.checksum {
                let text = "a block does not match its checksum";
                return Err(JobFailure::at(
                    ErrorKind::CorruptRun,
                    text,
                    path,
                    Some(block.offset),
                ));
            }
            window.advance();
        }
        Ok(run)
    }

    fn check_places(&self) -> std::result::Result<(), &'static str> {
        let (header, footer) = (&self.header, &self.footer);
        let known = header.records > 0 && header.block_records > 0 && header.record_bytes > 0;
        let index = (PAGE as u64)
            .checked_add(footer.data_bytes)
            .map(|end| end.next_multiple_of(PAGE as u64));
        let end = header
            .blocks()
            .checked_mul(header.entry_bytes() as u64)
            .and_then(|bytes| bytes.checked_add(footer.index_offset))
            .map(|end| end.next_multiple_of(PAGE as u64) + PAGE as u64);
        let whole = index == Some(footer.index_offset) && end == Some(self.file_bytes);
        match known && whole && header.first_record.checked_add(header.records).is_some() {
            true => Ok(()),
            false => Err("the parts of the run file do not fit its size: the run is not whole"),
        }
    }
}
