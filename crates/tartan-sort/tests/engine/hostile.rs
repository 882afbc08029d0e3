//! What must hold of any bytes. Property tests and `cargo fuzz` call the same functions.

use crate::common::*;
use tartan_sort::error::ErrorKind;
use tartan_sort::job::Sorting;
use tartan_sort::kernels::{pack_bound, pack_with, unpack_with, Key, Path};
use tartan_sort::run::format::{Footer, PAGE};
use tartan_sort::run::{Header, SortedRun};

const RECORDS: usize = 1000;
const WIDTH: usize = 8;
const BLOCK_RECORDS: usize = 4096 / WIDTH;

/// Draws numbers from bytes; behind their end everything is as a genuine file has it.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// The genuine number, one near it, or any other one.
    fn number(&mut self, genuine: u64) -> u64 {
        match self.byte() {
            0..200 => genuine,
            200..230 => genuine
                .wrapping_add(u64::from(self.byte()))
                .wrapping_sub(128),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn small(&mut self, genuine: usize) -> u32 {
        self.number(genuine as u64) as u32
    }

    fn content(&mut self, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        for _ in 0..self.byte() % 16 {
            let place = usize::from(self.byte()) * 16 + usize::from(self.byte() % 16);
            content[place % length] = self.byte();
        }
        content
    }
}

/// A run file whose checksums are right and whose content is not, adopted by a sort: an error or as many records as
/// the source has.
pub fn made_up_run(bytes: &[u8]) {
    let (folder, mut draw) = (Folder::new(), Draw(bytes));
    let plan = plan(form(WIDTH, &[(0, "<u8", false)]), &folder);
    let header = Header {
        fingerprint: plan.fingerprint,
        signature: plan.form.signature(),
        record_bytes: draw.small(WIDTH),
        key_bytes: draw.small(WIDTH),
        block_records: draw.small(BLOCK_RECORDS),
        level: draw.small(0),
        packed: draw.byte() % 2 == 0,
        first_record: draw.number(0),
        records: draw.number(RECORDS as u64),
    };
    let path = folder.file(&header.name());
    std::fs::write(&path, made_up_file(&header, &mut draw)).unwrap();
    let verified = SortedRun::verify(&path).is_ok();
    assert!(!verified || SortedRun::inspect(&path).is_ok());
    std::fs::write(folder.file("source"), bytes_of(&noise(RECORDS, 1))).unwrap();
    let job = Sorting::new(plan).unwrap();
    match sort_with(&job, &folder, &[path], WIDTH * RECORDS, 0) {
        Ok(sorted) => assert_eq!(sorted.len(), WIDTH * RECORDS),
        Err(failure) => {
            let kinds = [
                ErrorKind::CorruptRun,
                ErrorKind::ForeignRun,
                ErrorKind::Memory,
            ];
            assert!(kinds.contains(&failure.kind), "{failure:?}");
        }
    }
}

fn made_up_file(header: &Header, draw: &mut Draw) -> Vec<u8> {
    let (mut data, mut index) = (Vec::new(), Vec::new());
    for records in [BLOCK_RECORDS, RECORDS - BLOCK_RECORDS] {
        let plain = WIDTH * records;
        let length = if draw.byte() % 4 == 3 { 20 } else { plain };
        let content = draw.content(length);
        index.extend(draw.number(0).to_le_bytes());
        index.extend(draw.number((PAGE + data.len()) as u64).to_le_bytes());
        index.extend(draw.small(content.len()).to_le_bytes());
        index.extend(crc32fast::hash(&content).to_le_bytes());
        data.extend(content);
    }
    let page = header.page();
    let footer = Footer {
        data_bytes: draw.number(data.len() as u64),
        index_offset: draw.number((PAGE + data.len().next_multiple_of(PAGE)) as u64),
        index_checksum: crc32fast::hash(&index),
    };
    data.resize(data.len().next_multiple_of(PAGE), 0);
    index.resize(index.len().next_multiple_of(PAGE), 0);
    let last = footer.page(&page);
    [page, data, index, last].concat()
}

/// Bytes that are unpacked as keys: every path finds the same, and what it finds packs and unpacks again.
pub fn packed_keys<K: Key>(bytes: &[u8]) {
    let wanted = 1 + bytes.first().map_or(0, |&byte| 5 * usize::from(byte));
    let mut found: Vec<K> = vec![K::default(); wanted];
    let used = unpack_with(Path::Radix, bytes, &mut found);
    for path in [Path::Auto, Path::Avx2, Path::Avx512]
        .into_iter()
        .filter(|path| path.is_available())
    {
        let mut other = vec![K::default(); wanted];
        assert_eq!(unpack_with(path, bytes, &mut other), used);
        assert!(used.is_err() || other == found);
    }
    if used.is_ok() {
        let mut packed = vec![0; pack_bound::<K>(wanted)];
        let end = pack_with(Path::Auto, &found, &mut packed);
        let mut again = vec![K::default(); wanted];
        assert_eq!(unpack_with(Path::Auto, &packed[..end], &mut again), Ok(end));
        assert!(again == found);
    }
}
