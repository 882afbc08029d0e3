//! Header and footer of a run file.

use std::path::PathBuf;

use crate::memory::ALIGN;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of the header and of the footer.
pub const PAGE: usize = ALIGN;

const HEADER_MAGIC: &[u8; 8] = b"TARTRUN\0";
const FOOTER_MAGIC: &[u8; 8] = b"TARTEND\0";
/// Bytes of an index entry besides the key: offset, stored bytes, checksum.
/// By format.
pub const ENTRY_REST: usize = 16;

/// What a run holds, known before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub fingerprint: [u8; 32],
    /// Tells forms of records apart.
    pub signature: u32,
    pub record_bytes: u32,
    pub key_bytes: u32,
    /// Records of every block but the last.
    pub block_records: u32,
    /// 0 for a sorted chunk, one more for each merge.
    pub level: u32,
    /// Whether blocks may be packed.
    pub packed: bool,
    /// The range of the source that the run holds.
    pub first_record: u64,
    pub records: u64,
}

/// What is known when all blocks are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of all blocks as stored.
    pub data_bytes: u64,
    pub index_offset: u64,
    pub index_checksum: u32,
}

/// A whole run on disk.
#[derive(Clone, Debug)]
pub struct SortedRun {
    pub path: PathBuf,
    pub header: Header,
    pub footer: Footer,
    pub file_bytes: u64,
}

/// Writes numbers one behind the other into a page, and their checksum at its end.
struct PageWriter {
    page: Vec<u8>,
}

impl PageWriter {
    fn new(magic: &[u8; 8]) -> PageWriter {
        PageWriter {
            page: magic.to_vec(),
        }
    }

    fn u32(mut self, value: u32) -> PageWriter {
        self.page.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> PageWriter {
        self.page.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> PageWriter {
        self.page.extend(bytes);
        self
    }

    fn close(mut self) -> Vec<u8> {
        self.page.resize(PAGE - 4, 0);
        let checksum = crc32fast::hash(&self.page);
        self.page.extend(checksum.to_le_bytes());
        self.page
    }
}

struct PageReader<'a> {
    rest: &'a [u8],
}

impl<'a> PageReader<'a> {
    /// None when the page has another beginning or another checksum.
    fn open(page: &'a [u8], magic: &[u8; 8]) -> Option<PageReader<'a>> {
        let (content, checksum) = page.split_at_checked(PAGE - 4)?;
        let good = content.starts_with(magic) && crc32fast::hash(content).to_le_bytes() == checksum;
        good.then_some(PageReader {
            rest: &content[8..],
        })
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .expect("all fields fit one page");
        self.rest = rest;
        *bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

impl Header {
    /// The first page of the file.
    pub fn page(&self) -> Vec<u8> {
        PageWriter::new(HEADER_MAGIC)
            .u32(VERSION)
            .u32(self.signature)
            .bytes(&self.fingerprint)
            .u32(self.record_bytes)
            .u32(self.key_bytes)
            .u32(self.block_records)
            .u32(self.level)
            .u32(u32::from(self.packed))
            .u64(self.first_record)
            .u64(self.records)
            .close()
    }

    pub(super) fn parse(page: &[u8]) -> std::result::Result<Header, &'static str> {
        let mut reader = PageReader::open(page, HEADER_MAGIC)
            .ok_or("the header is damaged, or this is not a run file")?;
        if reader.u32() != VERSION {
            return Err("the run file has another version of the format");
        }
        Ok(Header {
            signature: reader.u32(),
            fingerprint: reader.bytes(),
            record_bytes: reader.u32(),
            key_bytes: reader.u32(),
            block_records: reader.u32(),
            level: reader.u32(),
            packed: reader.u32() != 0,
            first_record: reader.u64(),
            records: reader.u64(),
        })
    }

    pub fn blocks(&self) -> u64 {
        self.records.div_ceil(u64::from(self.block_records.max(1)))
    }

    /// Bytes of an index entry.
    pub fn entry_bytes(&self) -> usize {
        self.key_bytes as usize + ENTRY_REST
    }

    /// First source record behind the run.
    pub fn end(&self) -> u64 {
        self.first_record + self.records
    }

    /// Name of the file, unique within a job.
    pub fn name(&self) -> String {
        format!(
            "run-{:016x}-{:016x}-{}.trun",
            self.first_record, self.records, self.level
        )
    }
}

impl Footer {
    /// The last page of the file whose first page is `header`.
    pub fn page(&self, header: &[u8]) -> Vec<u8> {
        PageWriter::new(FOOTER_MAGIC)
            .u64(self.data_bytes)
            .u64(self.index_offset)
            .u32(self.index_checksum)
            .u32(crc32fast::hash(header))
            .close()
    }

    pub(super) fn parse(page: &[u8], header: &[u8]) -> std::result::Result<Footer, &'static str> {
        let mut reader = PageReader::open(page, FOOTER_MAGIC)
            .ok_or("the footer is missing or damaged: the run is not whole")?;
        let footer = Footer {
            data_bytes: reader.u64(),
            index_offset: reader.u64(),
            index_checksum: reader.u32(),
        };
        match reader.u32() == crc32fast::hash(header) {
            true => Ok(footer),
            false => Err("the footer belongs to another run"),
        }
    }
}

impl SortedRun {
    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        self.header.blocks() * self.header.entry_bytes() as u64
    }

    /// Bits that a value takes in the blocks.
    pub fn bits_per_value(&self) -> f64 {
        8.0 * self.footer.data_bytes as f64 / self.header.records.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            fingerprint: [7; 32],
            signature: 5,
            record_bytes: 8,
            key_bytes: 8,
            block_records: 4096,
            level: 2,
            packed: true,
            first_record: 1 << 40,
            records: 10_000,
        }
    }

    #[test]
    fn pages_come_back() {
        let (header, footer) = (
            header(),
            Footer {
                data_bytes: 1,
                index_offset: 2,
                index_checksum: 3,
            },
        );
        let page = header.page();
        assert_eq!(Header::parse(&page), Ok(header.clone()));
        assert_eq!(Footer::parse(&footer.page(&page), &page), Ok(footer));
        assert_eq!((header.blocks(), header.entry_bytes()), (3, 24));
    }

    #[test]
    fn every_damaged_byte_is_seen() {
        let page = header().page();
        for place in (0..200).chain([PAGE - 1]) {
            let mut damaged = page.clone();
            damaged[place] ^= 1;
            assert!(Header::parse(&damaged).is_err(), "byte {place}");
        }
        assert!(Header::parse(&page[1..]).is_err());
    }
}
