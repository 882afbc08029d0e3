//! What a record is: how source bytes become keys in the order of unsigned bytes, and back.
//!
//! A lone number of 4 or 8 bytes becomes an unsigned word in native byte order and is sorted as such. Every other
//! record keeps its width; its key fields are encoded in place so that they compare like `memcmp`. Buffers and
//! runs hold encoded records; sources and outputs hold original ones.

use std::cmp::Ordering;

use crate::kernels::{self, FieldKind, KeyField, KeyPlan};

use crate::error::{ErrorKind, JobFailure, Result};
use crate::memory::words_mut;

/// A lone number.
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    kind: kernels::NumberKind,
    descending: bool,
    swap: bool,
}

/// The records of a job.
#[derive(Clone, Debug)]
pub enum Form {
    Word32(Scalar),
    Word64(Scalar),
    Record(KeyPlan),
}

/// The widest record.
/// By judgement: a block of a run file holds some records then; wider ones are sorted by keys with numbers of rows.
pub const WIDEST: usize = 65_536;

impl Form {
    /// Records of `width` bytes, ordered by `fields`, most significant first.
    pub fn new(width: usize, fields: &[KeyField]) -> Result<Form> {
        if width == 0 || width > WIDEST {
            let text = format!("a record of {width} bytes; 1 to {WIDEST} are possible");
            return Err(JobFailure::new(ErrorKind::Key, text));
        }
        if let [KeyField {
            offset: 0,
            kind: FieldKind::Scalar(kind),
            big_endian,
            descending,
        }] = *fields
        {
            let swap = big_endian != cfg!(target_endian = "big");
            let scalar = Scalar {
                kind,
                descending,
                swap,
            };
            match (width, kind.bytes()) {
                (4, 4) => return Ok(Form::Word32(scalar)),
                (8, 8) => return Ok(Form::Word64(scalar)),
                _ => {}
            }
        }
        let plan = KeyPlan::new(width, fields);
        plan.map(Form::Record)
            .map_err(|error| JobFailure::new(ErrorKind::Key, error.to_string()))
    }

    /// Bytes of a record.
    pub fn width(&self) -> usize {
        match self {
            Form::Word32(_) => 4,
            Form::Word64(_) => 8,
            Form::Record(plan) => plan.layout().width,
        }
    }

    /// Bytes of a key in an index.
    pub fn key_bytes(&self) -> usize {
        match self {
            Form::Word32(_) => 4,
            Form::Word64(_) => 8,
            Form::Record(plan) => plan.layout().key_len,
        }
    }

    /// Whether records are lone numbers.
    pub fn is_word(&self) -> bool {
        !matches!(self, Form::Record(_))
    }

    /// Turn whole original records into encoded ones; words begin at a word boundary.
    pub fn encode(&self, bytes: &mut [u8]) {
        match self {
            Form::Word32(scalar) => {
                let words = words_mut::<u32>(bytes);
                swap(words, scalar.swap, u32::swap_bytes);
                kernels::encode(words, scalar.kind, scalar.descending);
            }
            Form::Word64(scalar) => {
                let words = words_mut::<u64>(bytes);
                swap(words, scalar.swap, u64::swap_bytes);
                kernels::encode(words, scalar.kind, scalar.descending);
            }
            Form::Record(plan) => plan.encode(bytes),
        }
    }

    /// The inverse of `encode`, bit for bit.
    pub fn decode(&self, bytes: &mut [u8]) {
        match self {
            Form::Word32(scalar) => {
                let words = words_mut::<u32>(bytes);
                kernels::decode(words, scalar.kind, scalar.descending);
                swap(words, scalar.swap, u32::swap_bytes);
            }
            Form::Word64(scalar) => {
                let words = words_mut::<u64>(bytes);
                kernels::decode(words, scalar.kind, scalar.descending);
                swap(words, scalar.swap, u64::swap_bytes);
            }
            Form::Record(plan) => plan.decode(bytes),
        }
    }

    /// Write the key of an encoded record as bytes in the order of `memcmp`.
    pub fn key(&self, record: &[u8], key: &mut [u8]) {
        match self {
            Form::Record(plan) => {
                let layout = plan.layout();
                key.copy_from_slice(&record[layout.key_offset..][..layout.key_len]);
            }
            _ => {
                key.copy_from_slice(&record[..key.len()]);
                if cfg!(target_endian = "little") {
                    key.reverse();
                }
            }
        }
    }

    /// Compare an encoded record with a key made by `key`.
    pub fn compare(&self, record: &[u8], key: &[u8]) -> Ordering {
        match self {
            Form::Record(plan) => {
                let layout = plan.layout();
                record[layout.key_offset..][..layout.key_len].cmp(key)
            }
            _ => {
                let mut own = [0; 8];
                self.key(record, &mut own[..key.len()]);
                own[..key.len()].cmp(key)
            }
        }
    }

    /// How many of the sorted encoded records come before `key`; with `equal`, also those that are equal to it.
    pub fn count_before(&self, sorted: &[u8], key: &[u8], equal: bool) -> usize {
        let width = self.width();
        let (mut low, mut high) = (0, sorted.len() / width);
        while low < high {
            let middle = low.midpoint(high);
            let order = self.compare(&sorted[middle * width..][..width], key);
            match order == Ordering::Less || equal && order == Ordering::Equal {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// A number that tells forms apart whose runs must not be mixed.
    pub fn signature(&self) -> u32 {
        crc32fast::hash(format!("{self:?}").as_bytes())
    }
}

fn swap<T: Copy>(words: &mut [T], needed: bool, swapped: impl Fn(T) -> T) {
    if needed {
        words.iter_mut().for_each(|word| *word = swapped(*word));
    }
}

/// Understand a NumPy type string such as `<i8`, `>f4`, `|u1`, `|b1` or `S10`.
pub fn parse_field(offset: usize, text: &str, descending: bool) -> Result<KeyField> {
    let unknown = || {
        let text =
            format!("key type {text:?} is none of integer, float, bool (|b1) and bytes (S10)");
        JobFailure::new(ErrorKind::Key, text)
    };
    let (order, rest) = match text.chars().next() {
        Some(first @ ('<' | '>' | '|' | '=')) => (first, &text[1..]),
        _ => ('=', text),
    };
    let size: usize = rest
        .get(1..)
        .and_then(|size| size.parse().ok())
        .ok_or_else(unknown)?;
    let scalar = |kind| Ok(FieldKind::Scalar(kind));
    let kind = match (&rest[..1], size) {
        ("S" | "V" | "a", 1..) => Ok(FieldKind::Bytes(size)),
        ("b", 1) => Ok(FieldKind::Bool),
        ("i", 1) => scalar(kernels::NumberKind::I8),
        ("i", 2) => scalar(kernels::NumberKind::I16),
        ("i", 4) => scalar(kernels::NumberKind::I32),
        ("i", 8) => scalar(kernels::NumberKind::I64),
        ("u", 1) => scalar(kernels::NumberKind::U8),
        ("u", 2) => scalar(kernels::NumberKind::U16),
        ("u", 4) => scalar(kernels::NumberKind::U32),
        ("u", 8) => scalar(kernels::NumberKind::U64),
        ("f", 2) => scalar(kernels::NumberKind::F16),
        ("f", 4) => scalar(kernels::NumberKind::F32),
        ("f", 8) => scalar(kernels::NumberKind::F64),
        _ => Err(unknown()),
    }?;
    let big_endian = order == '>' || order == '=' && cfg!(target_endian = "big");
    Ok(KeyField {
        offset,
        kind,
        big_endian,
        descending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(form: &Form, values: &[f64]) -> Vec<u64> {
        let mut words: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        // SAFETY: the bytes of a vector of integers, which any bytes may replace.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len())
        };
        form.encode(bytes);
        words
    }

    #[test]
    fn a_lone_number_becomes_a_word() {
        let form = Form::new(8, &[parse_field(0, "<f8", false).unwrap()]).unwrap();
        let words = encoded(
            &form,
            &[f64::NEG_INFINITY, -0.0, 0.0, 1.0, f64::INFINITY, -f64::NAN],
        );
        assert!(form.is_word() && words.is_sorted());
        let wide = Form::new(16, &[parse_field(0, "<f8", false).unwrap()]).unwrap();
        assert!(!wide.is_word());
    }

    #[test]
    fn swapped_words_come_back() {
        let form = Form::new(4, &[parse_field(0, ">i4", true).unwrap()]).unwrap();
        let mut memory = crate::memory::AlignedMemory::new(8).unwrap();
        memory[..8].copy_from_slice(&[0, 0, 0, 5, 255, 255, 255, 255]);
        form.encode(&mut memory[..8]);
        let words = crate::memory::words::<u32>(&memory[..8]).to_vec();
        assert!(words[0] < words[1], "5 comes before -1 when descending");
        form.decode(&mut memory[..8]);
        assert_eq!(memory[..8], [0, 0, 0, 5, 255, 255, 255, 255]);
    }

    #[test]
    fn keys_of_words_compare_like_bytes() {
        let form = Form::new(8, &[parse_field(0, "<u8", false).unwrap()]).unwrap();
        let sorted: Vec<u8> = [1_u64, 300, 300, 70_000]
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        let mut key = [0; 8];
        form.key(&300_u64.to_ne_bytes(), &mut key);
        assert_eq!(form.count_before(&sorted, &key, false), 1);
        assert_eq!(form.count_before(&sorted, &key, true), 3);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "<", "<i3", "<c8", "S0", "é", "O"] {
            assert_eq!(
                parse_field(0, text, false).unwrap_err().kind,
                ErrorKind::Key,
                "{text}"
            );
        }
        let outside = parse_field(5, "<i8", false).unwrap();
        assert_eq!(Form::new(8, &[outside]).unwrap_err().kind, ErrorKind::Key);
        assert_eq!(Form::new(0, &[]).unwrap_err().kind, ErrorKind::Key);
    }
}
