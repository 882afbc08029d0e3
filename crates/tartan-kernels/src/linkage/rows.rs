//! Rows of distances of items, of joined clusters, and the log of joins: in memory or in files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The rows that a hierarchy is made of.
pub trait ItemRows {
    /// Number of items.
    fn len(&self) -> usize;

    /// Whether there is no item.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Read the distances of an item to all; false if one is missing (NaN, negative where they are whole numbers).
    fn read(&mut self, item: usize, row: &mut [f64]) -> io::Result<bool>;
}

/// What stored values mean: their product with a scale, measured from a level where there is one, and 0 below it.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub scale: f64,
    pub level: Option<f64>,
}

impl Values {
    fn fill<T: Copy>(
        self,
        row: &mut [f64],
        stored: impl Iterator<Item = T>,
        as_f64: impl Fn(T) -> f64,
        is_missing: impl Fn(T) -> bool,
    ) -> bool {
        let mut missing = false;
        for (value, stored) in row.iter_mut().zip(stored) {
            missing |= is_missing(stored);
            *value = as_f64(stored) * self.scale;
        }
        if let Some(level) = self.level {
            row.iter_mut()
                .for_each(|value| *value = (*value - level).max(0.0));
        }
        !missing
    }
}

/// A square matrix in memory.
pub struct ArrayRows<'a, T> {
    array: &'a [T],
    n: usize,
    values: Values,
}

impl<'a, T> ArrayRows<'a, T> {
    /// # Panics
    /// If the array is not square.
    pub fn new(array: &'a [T], n: usize, values: Values) -> Self {
        assert_eq!(array.len(), n * n);
        Self { array, n, values }
    }
}

macro_rules! item_rows {
    ($type:ty, $as_f64:expr, $is_missing:expr) => {
        impl ItemRows for ArrayRows<'_, $type> {
            fn len(&self) -> usize {
                self.n
            }

            fn read(&mut self, item: usize, row: &mut [f64]) -> io::Result<bool> {
                let stored = &self.array[item * self.n..(item + 1) * self.n];
                Ok(self
                    .values
                    .fill(row, stored.iter().copied(), $as_f64, $is_missing))
            }
        }

        impl ItemRows for FileRows<$type> {
            fn len(&self) -> usize {
                self.n
            }

            fn read(&mut self, item: usize, row: &mut [f64]) -> io::Result<bool> {
                const WIDTH: usize = size_of::<$type>();
                let at = self.start + (item * self.buffer.len()) as u64;
                self.file.read_exact_at(&mut self.buffer, at)?;
                let (stored, _) = self.buffer.as_chunks::<WIDTH>();
                let stored = stored.iter().map(|&bytes| <$type>::from_le_bytes(bytes));
                Ok(self.values.fill(row, stored, $as_f64, $is_missing))
            }
        }
    };
}

item_rows!(i16, f64::from, |value: i16| value < 0);
item_rows!(f32, f64::from, f32::is_nan);
item_rows!(f64, |value: f64| value, f64::is_nan);

/// A square matrix in a file, row by row, in little-endian numbers.
pub struct FileRows<T> {
    file: File,
    start: u64,
    n: usize,
    values: Values,
    buffer: Vec<u8>,
    kind: std::marker::PhantomData<T>,
}

impl<T> FileRows<T> {
    /// Read from `start` of the file on.
    pub fn new(file: File, start: u64, n: usize, values: Values) -> Self {
        let buffer = vec![0; n * size_of::<T>()];
        Self {
            file,
            start,
            n,
            values,
            buffer,
            kind: std::marker::PhantomData,
        }
    }
}

/// Rows of joined clusters: of the clusters that are left when they are made, in the order of their places.
///
/// In a file each has a place that is free, and a checksum: what is not whole, or is another row by now, is not there.
/// Rows become shorter with every step, so a new one fits into any place of an earlier one.
pub enum KeptRows {
    Memory(Vec<Option<Box<[f64]>>>),
    File(KeptFile),
}

/// See [`KeptRows`].
pub struct KeptFile {
    file: File,
    places: Vec<u64>,
    free: Vec<u64>,
    end: u64,
    buffer: Vec<u8>,
}

/// Bytes before a row. By format: step, length and checksum, of 8 bytes each.
const ROW_HEAD: usize = 24;

impl KeptRows {
    /// Keep them in memory.
    pub fn in_memory() -> Self {
        KeptRows::Memory(Vec::new())
    }

    /// Keep them in a file, which may have rows of the same steps already.
    pub fn in_file(file: File) -> Self {
        let (places, free, buffer) = (Vec::new(), Vec::new(), Vec::new());
        KeptRows::File(KeptFile {
            file,
            places,
            free,
            end: 0,
            buffer,
        })
    }

    /// Choose where the row of the next step will be: the same place whenever the same steps come before.
    pub(super) fn take_place(&mut self, step: usize, length: usize) {
        match self {
            KeptRows::Memory(rows) => rows.resize_with(step + 1, || None),
            KeptRows::File(kept) => {
                let place = kept.free.pop().unwrap_or_else(|| {
                    let place = kept.end;
                    kept.end += (ROW_HEAD + 8 * length) as u64;
                    place
                });
                kept.places.push(place);
            }
        }
    }

    pub(super) fn keep(&mut self, step: usize, row: &[f64]) -> io::Result<()> {
        match self {
            KeptRows::Memory(rows) => rows[step] = Some(row.into()),
            KeptRows::File(kept) => kept.write(step, row)?,
        }
        Ok(())
    }

    /// Read the row of a step; false if it is not there.
    pub(super) fn read(&mut self, step: usize, row: &mut [f64]) -> io::Result<bool> {
        match self {
            KeptRows::Memory(rows) => {
                let Some(Some(found)) = rows.get(step) else {
                    return Ok(false);
                };
                row.copy_from_slice(found);
                Ok(true)
            }
            KeptRows::File(kept) => kept.read(step, row),
        }
    }

    /// Give up the row of a step.
    pub(super) fn forget(&mut self, step: usize) {
        match self {
            KeptRows::Memory(rows) => rows[step] = None,
            KeptRows::File(kept) => kept.free.push(kept.places[step]),
        }
    }
}

impl KeptFile {
    fn write(&mut self, step: usize, row: &[f64]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.resize(ROW_HEAD, 0);
        row.iter()
            .for_each(|value| self.buffer.extend_from_slice(&value.to_le_bytes()));
        let checksum = crc32fast::hash(&self.buffer[ROW_HEAD..]);
        self.buffer[..ROW_HEAD].copy_from_slice(&head_of(step, row.len(), checksum));
        self.file.write_all_at(&self.buffer, self.places[step])
    }

    fn read(&mut self, step: usize, row: &mut [f64]) -> io::Result<bool> {
        self.buffer.resize(ROW_HEAD + 8 * row.len(), 0);
        match self.file.read_exact_at(&mut self.buffer, self.places[step]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        let (head, values) = self.buffer.split_at(ROW_HEAD);
        if head != head_of(step, row.len(), crc32fast::hash(values)) {
            return Ok(false);
        }
        for (value, &bytes) in row.iter_mut().zip(values.as_chunks::<8>().0) {
            *value = f64::from_le_bytes(bytes);
        }
        Ok(true)
    }
}

fn head_of(step: usize, length: usize, checksum: u32) -> [u8; ROW_HEAD] {
    let mut head = [0; ROW_HEAD];
    let fields = [step as u64, length as u64, u64::from(checksum)];
    for (at, field) in head.chunks_exact_mut(8).zip(fields) {
        at.copy_from_slice(&field.to_le_bytes());
    }
    head
}

/// The log of what was put on the chain and what was joined, each record with a checksum.
///
/// A record is written before the row of its cluster. It is in the hands of the system then, so that a kill loses
/// nothing; what a power cut leaves of it is used up to the first record that is not whole.
pub struct Log {
    file: File,
    at: u64,
    buffer: Vec<u8>,
}

/// Bytes of a record. By format: two places, a distance, and the checksum of these, of 4, 4, 8 and 4 bytes.
const RECORD: usize = 20;

impl Log {
    /// The second place of what is no join.
    pub(super) const PUSHED: u32 = u32::MAX;

    /// The records of a file from `start` on.
    pub fn new(file: File, start: u64) -> Self {
        Self {
            file,
            at: start,
            buffer: Vec::new(),
        }
    }

    /// Return all whole records; what comes after them is overwritten by the next ones.
    pub(super) fn read(&mut self) -> io::Result<Vec<(u32, u32, f64)>> {
        let length = self.file.metadata()?.len().saturating_sub(self.at);
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, self.at)?;
        let records: Vec<_> = (bytes.as_chunks::<RECORD>().0.iter())
            .map_while(decode)
            .collect();
        self.at += (records.len() * RECORD) as u64;
        self.file.set_len(self.at)?;
        Ok(records)
    }

    pub(super) fn note(
        &mut self,
        pushed: &[usize],
        low: u32,
        high: u32,
        distance: f64,
    ) -> io::Result<()> {
        self.buffer.clear();
        for &place in pushed {
            self.buffer
                .extend_from_slice(&encode(place as u32, Self::PUSHED, 0.0));
        }
        self.buffer.extend_from_slice(&encode(low, high, distance));
        self.file.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        Ok(())
    }
}

fn encode(low: u32, high: u32, distance: f64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..4].copy_from_slice(&low.to_le_bytes());
    record[4..8].copy_from_slice(&high.to_le_bytes());
    record[8..16].copy_from_slice(&distance.to_le_bytes());
    let checksum = crc32fast::hash(&record[..16]);
    record[16..].copy_from_slice(&checksum.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD]) -> Option<(u32, u32, f64)> {
    let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
    let distance = f64::from_le_bytes(record[8..16].try_into().expect("eight bytes"));
    (word(16) == crc32fast::hash(&record[..16])).then_some((word(0), word(4), distance))
}
