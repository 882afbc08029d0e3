//! Composite keys: fields of a record become bytes whose order under `memcmp` is the order that was asked for.
//!
//! Encoding is a bijection on the bytes of each record, in place: nothing is stored twice, and the sorted records are
//! decoded at the end. One key field stays where it is; several are moved to the front, in the order of their
//! importance, and the rest of the record closes the gaps behind them.

use super::check::assert_whole;
use super::keys::Map;
use super::{KeyLayout, NumberKind};

/// What a key field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A number.
    Scalar(NumberKind),
    /// One byte, zero for false.
    Bool,
    /// This number of bytes, compared as they are.
    Bytes(usize),
}

impl FieldKind {
    /// Bytes of the field.
    pub const fn bytes(self) -> usize {
        match self {
            FieldKind::Scalar(kind) => kind.bytes(),
            FieldKind::Bool => 1,
            FieldKind::Bytes(n) => n,
        }
    }
}

/// One key field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Position of its first byte in the record.
    pub offset: usize,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether a number's first byte is the most significant one.
    pub big_endian: bool,
    /// Whether large values come first.
    pub descending: bool,
}

impl KeyField {
    fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.kind.bytes()
    }
}

/// Why fields are not a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// There is no field.
    Empty,
    /// The field of this number ends behind the record, or has no bytes.
    Outside {
        /// Number of the field.
        field: usize,
        /// Bytes of a record.
        width: usize,
    },
    /// The two fields share bytes.
    Overlap {
        /// Number of the one.
        first: usize,
        /// Number of the other.
        second: usize,
    },
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FieldError::Empty => write!(f, "a key needs at least one field"),
            FieldError::Outside { field, width } => {
                write!(
                    f,
                    "key field {field} is empty or lies outside the record of {width} bytes"
                )
            }
            FieldError::Overlap { first, second } => {
                write!(f, "key fields {first} and {second} share bytes")
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// How one field is mapped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Number {
        map: Map,
        n_bytes: usize,
        big_endian: bool,
    },
    Complement,
    Keep,
}

impl Step {
    fn new(field: &KeyField) -> Step {
        let kind = match field.kind {
            FieldKind::Bytes(_) if field.descending => return Step::Complement,
            FieldKind::Bytes(_) => return Step::Keep,
            FieldKind::Bool => NumberKind::U8,
            FieldKind::Scalar(kind) => kind,
        };
        Step::Number {
            map: Map::new(kind, field.descending),
            n_bytes: kind.bytes(),
            big_endian: field.big_endian,
        }
    }

    fn is_identity(&self, field: &KeyField) -> bool {
        let plain = matches!(
            field.kind,
            FieldKind::Bool | FieldKind::Scalar(NumberKind::U8)
        ) || field.big_endian
            && matches!(
                field.kind,
                FieldKind::Scalar(NumberKind::U16 | NumberKind::U32 | NumberKind::U64)
            );
        matches!(self, Step::Keep) || plain && !field.descending
    }

    #[inline(always)]
    fn encode(self, bytes: &mut [u8]) {
        match self {
            Step::Number {
                map,
                n_bytes,
                big_endian,
            } => {
                let bits = load(&bytes[..n_bytes], big_endian);
                store(map.encode(bits), &mut bytes[..n_bytes], true);
            }
            Step::Complement => complement(bytes),
            Step::Keep => {}
        }
    }

    #[inline(always)]
    fn decode(self, bytes: &mut [u8]) {
        match self {
            Step::Number {
                map,
                n_bytes,
                big_endian,
            } => {
                let key = load(&bytes[..n_bytes], true);
                store(map.decode(key), &mut bytes[..n_bytes], big_endian);
            }
            Step::Complement => complement(bytes),
            Step::Keep => {}
        }
    }
}

fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

#[inline(always)]
fn load(bytes: &[u8], big_endian: bool) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let low = u64::from_le_bytes(word);
    if big_endian {
        low.swap_bytes() >> (64 - 8 * bytes.len())
    } else {
        low
    }
}

#[inline(always)]
fn store(bits: u64, bytes: &mut [u8], big_endian: bool) {
    let low = if big_endian {
        bits.swap_bytes() >> (64 - 8 * bytes.len())
    } else {
        bits
    };
    bytes.copy_from_slice(&low.to_le_bytes()[..bytes.len()]);
}

/// How records of one type are encoded.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    layout: KeyLayout,
    /// Each field's map and its bytes in the original record, most important first.
    fields: Vec<(Step, std::ops::Range<usize>)>,
    /// Where the bytes of an encoded record come from; empty when they stay in place.
    moves: Vec<std::ops::Range<usize>>,
    identity: bool,
}

impl KeyPlan {
    /// Plan for records of `width` bytes with these key fields, most important first.
    ///
    /// # Errors
    /// When there is no field, or one is empty, lies outside the record, or shares bytes with another.
    pub fn new(width: usize, fields: &[KeyField]) -> Result<KeyPlan, FieldError> {
        check(width, fields)?;
        let steps: Vec<Step> = fields.iter().map(Step::new).collect();
        let adjacent = fields.windows(2).all(|w| w[0].range().end == w[1].offset);
        let layout = KeyLayout {
            width,
            key_offset: if adjacent { fields[0].offset } else { 0 },
            key_len: fields.iter().map(|f| f.kind.bytes()).sum(),
        };
        let identity = adjacent && steps.iter().zip(fields).all(|(s, f)| s.is_identity(f));
        Ok(KeyPlan {
            layout,
            fields: steps
                .into_iter()
                .zip(fields.iter().map(KeyField::range))
                .collect(),
            moves: if adjacent {
                Vec::new()
            } else {
                moves(width, fields)
            },
            identity,
        })
    }

    /// Where the key lies in an encoded record.
    pub fn layout(&self) -> KeyLayout {
        self.layout
    }

    /// Whether encoding changes nothing.
    pub fn is_identity(&self) -> bool {
        self.identity
    }

    /// Encode records in place.
    ///
    /// # Panics
    /// When `records` is not a whole number of records.
    pub fn encode(&self, records: &mut [u8]) {
        self.each(records, |record, scratch| {
            for (step, range) in &self.fields {
                step.encode(&mut record[range.clone()]);
            }
            let mut end = 0;
            for range in &self.moves {
                scratch[end..end + range.len()].copy_from_slice(&record[range.clone()]);
                end += range.len();
            }
            record[..end].copy_from_slice(&scratch[..end]);
        });
    }

    /// Undo [`KeyPlan::encode`], byte for byte.
    ///
    /// # Panics
    /// When `records` is not a whole number of records.
    pub fn decode(&self, records: &mut [u8]) {
        self.each(records, |record, scratch| {
            if !self.moves.is_empty() {
                scratch.copy_from_slice(record);
            }
            let mut end = 0;
            for range in &self.moves {
                record[range.clone()].copy_from_slice(&scratch[end..end + range.len()]);
                end += range.len();
            }
            for (step, range) in &self.fields {
                step.decode(&mut record[range.clone()]);
            }
        });
    }

    fn each(&self, records: &mut [u8], work: impl Fn(&mut [u8], &mut [u8])) {
        assert_whole(records, self.layout.width);
        if self.identity {
            return;
        }
        let mut scratch = vec![0; self.layout.width];
        for record in records.chunks_exact_mut(self.layout.width) {
            work(record, &mut scratch);
        }
    }
}

fn check(width: usize, fields: &[KeyField]) -> Result<(), FieldError> {
    if fields.is_empty() {
        return Err(FieldError::Empty);
    }
    for (i, field) in fields.iter().enumerate() {
        let end = field.offset.checked_add(field.kind.bytes());
        if field.kind.bytes() == 0 || end.is_none_or(|end| end > width) {
            return Err(FieldError::Outside { field: i, width });
        }
        let meets =
            |other: &KeyField| other.offset < field.range().end && field.offset < other.range().end;
        if let Some(first) = fields[..i].iter().position(meets) {
            return Err(FieldError::Overlap { first, second: i });
        }
    }
    Ok(())
}

/// The key fields in their order, then the gaps between them in theirs.
fn moves(width: usize, fields: &[KeyField]) -> Vec<std::ops::Range<usize>> {
    let mut moves: Vec<_> = fields.iter().map(KeyField::range).collect();
    let mut sorted = moves.clone();
    sorted.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in sorted {
        moves.push(end..range.start);
        end = range.end;
    }
    moves.push(end..width);
    moves.retain(|range| !range.is_empty());
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(offset: usize, kind: FieldKind, big_endian: bool, descending: bool) -> KeyField {
        KeyField {
            offset,
            kind,
            big_endian,
            descending,
        }
    }

    #[test]
    fn several_fields_compare_like_tuples() {
        // i16 little-endian descending at 6, f32 big-endian at 1, the rest payload.
        let fields = [
            field(6, FieldKind::Scalar(NumberKind::I16), false, true),
            field(1, FieldKind::Scalar(NumberKind::F32), true, false),
        ];
        let plan = KeyPlan::new(9, &fields).unwrap();
        assert_eq!(
            plan.layout(),
            KeyLayout {
                width: 9,
                key_offset: 0,
                key_len: 6
            }
        );
        let mut rows = Vec::new();
        for a in [-300i16, -1, 0, 5, 256] {
            for b in [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 2.0, f32::INFINITY] {
                rows.push((a, b));
            }
        }
        let mut records = Vec::new();
        for (i, (a, b)) in rows.iter().enumerate() {
            records.push(i as u8);
            records.extend(b.to_be_bytes());
            records.push(7);
            records.extend(a.to_le_bytes());
            records.push(!i as u8);
        }
        let original = records.clone();
        plan.encode(&mut records);
        let key = |i: usize| &records[9 * i..9 * i + 6];
        for (i, (a, b)) in rows.iter().enumerate() {
            for (j, (c, d)) in rows.iter().enumerate() {
                let expected = c.cmp(a).then(b.total_cmp(d));
                assert_eq!(key(i).cmp(key(j)), expected, "{a} {b} against {c} {d}");
            }
        }
        plan.decode(&mut records);
        assert_eq!(records, original);
    }

    #[test]
    fn one_field_stays_in_place() {
        let text = field(2, FieldKind::Bytes(3), false, false);
        let plan = KeyPlan::new(7, &[text]).unwrap();
        assert!(plan.is_identity());
        assert_eq!(
            plan.layout(),
            KeyLayout {
                width: 7,
                key_offset: 2,
                key_len: 3
            }
        );
        let plan = KeyPlan::new(
            7,
            &[KeyField {
                descending: true,
                ..text
            }],
        )
        .unwrap();
        let mut record = *b"abcdefg";
        plan.encode(&mut record);
        assert_eq!(record, [b'a', b'b', !b'c', !b'd', !b'e', b'f', b'g']);
        plan.decode(&mut record);
        assert_eq!(&record, b"abcdefg");
    }

    #[test]
    fn adjacent_fields_stay_in_place_too() {
        let fields = [
            field(1, FieldKind::Bool, false, false),
            field(2, FieldKind::Scalar(NumberKind::U64), true, false),
        ];
        let plan = KeyPlan::new(10, &fields).unwrap();
        assert!(plan.is_identity());
        assert_eq!(
            plan.layout(),
            KeyLayout {
                width: 10,
                key_offset: 1,
                key_len: 9
            }
        );
        let little = KeyField {
            big_endian: false,
            ..fields[1]
        };
        assert!(!KeyPlan::new(10, &[fields[0], little])
            .unwrap()
            .is_identity());
    }

    #[test]
    fn fields_that_are_no_key_are_refused() {
        let number = field(4, FieldKind::Scalar(NumberKind::I64), false, false);
        let refuse = |width, fields: &[KeyField]| KeyPlan::new(width, fields).unwrap_err();
        assert_eq!(refuse(8, &[]), FieldError::Empty);
        assert_eq!(
            refuse(11, &[number]),
            FieldError::Outside {
                field: 0,
                width: 11
            }
        );
        let far = KeyField {
            offset: usize::MAX,
            ..number
        };
        assert_eq!(
            refuse(16, &[number, far]),
            FieldError::Outside {
                field: 1,
                width: 16
            }
        );
        let empty = field(0, FieldKind::Bytes(0), false, false);
        assert_eq!(
            refuse(8, &[empty]),
            FieldError::Outside { field: 0, width: 8 }
        );
        let near = KeyField {
            offset: 11,
            ..number
        };
        assert_eq!(
            refuse(20, &[number, near]),
            FieldError::Overlap {
                first: 0,
                second: 1
            }
        );
        assert!(refuse(20, &[number, near])
            .to_string()
            .contains("share bytes"));
    }
}
