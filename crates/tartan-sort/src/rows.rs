//! Rows of any length as records of fixed width, and back.
//!
//! A row is cut into pieces: records that have the key of the row in front, how many bytes follow, and the bytes. The
//! sort keeps records with equal keys in their order, so that the pieces of a row come out one after the other, and rows
//! with equal keys too. A row takes the room of its own length, and not that of the longest one.

/// Bytes between the key of a piece and what it holds: their number, and in the highest bit whether a row begins.
// By format: a word of 16 bits.
pub const MARK_BYTES: usize = 2;
/// Most bytes that a piece holds.
// By format: 15 bits of the mark are left.
pub const MOST_PIECE_BYTES: usize = 0x7fff;
// By format: the highest bit of the mark.
const FIRST: u16 = 0x8000;

/// Where keys, mark and content lie in the records of pieces.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub key_bytes: usize,
    pub piece_bytes: usize,
}

impl Cut {
    #[must_use]
    pub fn record_bytes(self) -> usize {
        self.key_bytes + MARK_BYTES + self.piece_bytes
    }

    /// Number of records of a row.
    #[must_use]
    pub fn pieces_of(self, row_bytes: usize) -> usize {
        row_bytes.div_ceil(self.piece_bytes).max(1)
    }

    /// Append the records of rows: row `i` is `data[offsets[i]..offsets[i + 1]]` with the key `keys[i * key_bytes..]`.
    ///
    /// # Panics
    /// If offsets fall, lie outside of the data, or there are fewer keys than rows.
    pub fn cut(self, keys: &[u8], offsets: &[i64], data: &[u8], out: &mut Vec<u8>) {
        let rows = || {
            offsets
                .windows(2)
                .map(|pair| pair[0] as usize..pair[1] as usize)
        };
        let records: usize = rows().map(|row| self.pieces_of(row.len())).sum();
        out.reserve(records * self.record_bytes());
        for (place, row) in rows().enumerate() {
            let key = &keys[place * self.key_bytes..][..self.key_bytes];
            let mut rest = &data[row];
            let mut first = FIRST;
            loop {
                let (piece, after) = rest.split_at(rest.len().min(self.piece_bytes));
                out.extend_from_slice(key);
                out.extend_from_slice(&(first | piece.len() as u16).to_le_bytes());
                out.extend_from_slice(piece);
                out.resize(out.len() + self.piece_bytes - piece.len(), 0);
                (rest, first) = (after, 0);
                if rest.is_empty() {
                    break;
                }
            }
        }
    }

    /// Append what pieces hold to `data`, and where each row that begins there begins to `starts`.
    ///
    /// # Errors
    /// The number of a record that says that it holds more than it has room for.
    pub fn join(
        self,
        records: &[u8],
        data: &mut Vec<u8>,
        starts: &mut Vec<i64>,
    ) -> Result<(), usize> {
        for (number, record) in records.chunks_exact(self.record_bytes()).enumerate() {
            let (mark, content) = record[self.key_bytes..].split_at(MARK_BYTES);
            let mark = u16::from_le_bytes([mark[0], mark[1]]);
            if mark & FIRST != 0 {
                starts.push(data.len() as i64);
            }
            let length = usize::from(mark & !FIRST);
            data.extend_from_slice(content.get(..length).ok_or(number)?);
        }
        Ok(())
    }
}

/// Write texts into a field of records, from its beginning; what is longer than the field is cut off.
///
/// # Panics
/// If offsets fall or lie outside of the data, or a field ends outside of its record.
pub fn place_texts(
    records: &mut [u8],
    record_bytes: usize,
    field: std::ops::Range<usize>,
    offsets: &[i64],
    data: &[u8],
) {
    for (record, pair) in records
        .chunks_exact_mut(record_bytes)
        .zip(offsets.windows(2))
    {
        let text = &data[pair[0] as usize..pair[1] as usize];
        let text = &text[..text.len().min(field.len())];
        record[field.clone()][..text.len()].copy_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
                          key_bytes in 0usize..5, piece_bytes in 1usize..12) {
            let cut = Cut { key_bytes, piece_bytes };
            let mut offsets = vec![0i64];
            let mut data = Vec::new();
            for row in &rows {
                data.extend_from_slice(row);
                offsets.push(data.len() as i64);
            }
            let keys: Vec<u8> = (0..rows.len() * key_bytes).map(|place| place as u8).collect();
            let mut records = Vec::new();
            cut.cut(&keys, &offsets, &data, &mut records);
            let expected: usize = rows.iter().map(|row| cut.pieces_of(row.len())).sum();
            prop_assert_eq!(records.len(), expected * cut.record_bytes());
            let (mut found, mut starts) = (Vec::new(), Vec::new());
            cut.join(&records, &mut found, &mut starts).unwrap();
            prop_assert_eq!(found, data);
            prop_assert_eq!(starts, &offsets[..rows.len()]);
        }
    }

    #[test]
    fn texts_lie_at_the_beginning_of_their_fields() {
        let mut records = [0u8; 8];
        place_texts(&mut records, 4, 1..3, &[0, 1, 4], b"axyz");
        assert_eq!(&records, b"\0a\0\0\0xy\0");
    }

    #[test]
    fn a_mark_beyond_its_record_is_an_error() {
        let cut = Cut {
            key_bytes: 1,
            piece_bytes: 2,
        };
        let records = [7, 2, 0x80, 1, 2, 7, 3, 0, 1, 2];
        assert_eq!(cut.join(&records, &mut Vec::new(), &mut Vec::new()), Err(1));
    }
}
