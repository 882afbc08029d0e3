//! One large buffer: records while they are read, sorted in place or into a spare buffer, and taken out in order.

use crate::kernels::{self, Path, RecordOrder};

use crate::error::Result;
use crate::form::Form;
use crate::memory::{words, words_mut, AlignedMemory, Word};

/// Bytes of order that each record needs beside it; lone numbers need none.
/// By format: a word of order.
const ORDER_BYTES: usize = 8;

/// How many records of `width` bytes a buffer of `bytes` holds with their order.
pub fn capacity(form: &Form, bytes: usize) -> usize {
    match form {
        Form::Record(_) => (bytes / (form.width() + ORDER_BYTES)).min(u32::MAX as usize - 1),
        _ => bytes / form.width(),
    }
}

/// Memory for records. Encoded records lie at its front; the order of records, once found, at its end.
pub struct Buffer {
    memory: AlignedMemory,
    filled: usize,
    encoded: usize,
    first_record: u64,
    sorted: bool,
}

impl Buffer {
    pub fn new(bytes: usize) -> Result<Buffer> {
        Ok(Buffer {
            memory: AlignedMemory::new(bytes)?,
            filled: 0,
            encoded: 0,
            first_record: 0,
            sorted: false,
        })
    }

    /// Forget the content; what comes begins with this record of the source.
    pub fn clear(&mut self, first_record: u64) {
        self.filled = 0;
        self.encoded = 0;
        self.first_record = first_record;
        self.sorted = false;
    }

    pub fn first_record(&self) -> u64 {
        self.first_record
    }

    pub fn bytes(&self) -> usize {
        self.filled
    }

    pub fn records(&self, form: &Form) -> usize {
        self.filled / form.width()
    }

    /// Append original bytes, not necessarily whole records, and encode the records that are whole by now.
    pub fn append(&mut self, bytes: &[u8], form: &Form) {
        self.memory[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        let whole = self.filled - self.filled % form.width();
        form.encode(&mut self.memory[self.encoded..whole]);
        self.encoded = whole;
    }

    /// Append encoded records.
    pub fn append_encoded(&mut self, records: &[u8]) {
        self.space(records.len()).copy_from_slice(records);
    }

    /// Room for `bytes` bytes of encoded records behind the others, which the caller fills.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        let start = self.filled;
        self.filled += bytes;
        self.encoded = self.filled;
        &mut self.memory[start..self.filled]
    }

    /// Whether the way to sort on this machine is faster with a spare buffer.
    pub fn wants_spare(form: &Form) -> bool {
        match form {
            Form::Word32(_) => kernels::scratch_len::<u32>(1) > 0,
            Form::Word64(_) => kernels::scratch_len::<u64>(1) > 0,
            Form::Record(_) => false,
        }
    }

    /// Sort. With a spare buffer lone numbers go there and the buffers change places.
    pub fn sort(&mut self, form: &Form, spare: Option<&mut Buffer>, threads: usize) {
        match form {
            Form::Word32(_) => self.sort_words::<u32>(spare, threads),
            Form::Word64(_) => self.sort_words::<u64>(spare, threads),
            Form::Record(plan) => {
                let (records, order) = self.split(form);
                let _ = kernels::order_records(records, &plan.layout(), order, Path::Auto, threads);
            }
        }
        self.sorted = true;
    }

    fn sort_words<K: Word + kernels::Vectorised>(
        &mut self,
        spare: Option<&mut Buffer>,
        threads: usize,
    ) {
        let keys = words_mut::<K>(&mut self.memory[..self.filled]);
        match spare {
            Some(spare) => {
                let target = words_mut::<K>(&mut spare.memory[..self.filled]);
                kernels::sort_into(keys, target, Path::Auto, threads);
                std::mem::swap(&mut self.memory, &mut spare.memory);
            }
            None => kernels::sort(keys, &mut [], Path::Auto, threads),
        }
    }

    /// Say that the records are in order as they lie, so that `sort` is not needed.
    pub fn in_order(&mut self, form: &Form) {
        if !form.is_word() {
            let (_, order) = self.split(form);
            order
                .iter_mut()
                .enumerate()
                .for_each(|(i, word)| *word = i as u64);
        }
        self.sorted = true;
    }

    /// The records, and one word of order for each.
    fn split(&mut self, form: &Form) -> (&[u8], &mut [u64]) {
        let n_records = self.filled / form.width();
        let start = self.memory.len() - n_records * ORDER_BYTES;
        let (front, order) = self.memory.split_at_mut(start);
        (&front[..self.filled], words_mut(order))
    }

    /// Copy sorted records into `out`, beginning with record `first` of the order.
    pub fn copy_sorted(&self, form: &Form, first: usize, out: &mut [u8]) {
        debug_assert!(self.sorted);
        let width = form.width();
        match form {
            Form::Record(_) => {
                let n_records = self.filled / width;
                let start = self.memory.len() - n_records * ORDER_BYTES;
                let order = RecordOrder::restore(words::<u64>(&self.memory[start..]));
                order.gather(&self.memory[..self.filled], width, first, out);
            }
            _ => out.copy_from_slice(&self.memory[first * width..][..out.len()]),
        }
    }

    /// The encoded records in the order in which they were put in; of words, in sorted order once sorted.
    pub fn content(&self) -> &[u8] {
        &self.memory[..self.filled]
    }
}
