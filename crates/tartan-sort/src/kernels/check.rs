//! Is it sorted, is it all there, is the block whole.

use super::records::compare_keys;
use super::{Key, Layout};

/// What a permutation does not change: equal sums before and after a sort mean, but for accidents, the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of keys or records.
    pub count: u64,
    /// Their sum, modulo 2^64.
    pub sum: u64,
    /// Their exclusive or.
    pub xor: u64,
}

impl Sums {
    /// The sums of keys.
    pub fn of_keys<K: Key>(keys: &[K]) -> Sums {
        let mut sums = Sums {
            count: keys.len() as u64,
            ..Sums::default()
        };
        for key in keys {
            sums.sum = sums.sum.wrapping_add(key.to_u64());
            sums.xor ^= key.to_u64();
        }
        sums
    }

    /// The sums of a 64-bit hash of each record.
    ///
    /// # Panics
    /// When `records` is no whole number of records.
    pub fn of_records(records: &[u8], width: usize) -> Sums {
        assert_whole(records, width);
        let mut sums = Sums {
            count: (records.len() / width) as u64,
            ..Sums::default()
        };
        for record in records.chunks_exact(width) {
            let hash = hash(record);
            sums.sum = sums.sum.wrapping_add(hash);
            sums.xor ^= hash;
        }
        sums
    }

    /// Add the sums of other keys or records.
    pub fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.xor ^= other.xor;
    }
}

pub(crate) fn assert_whole(records: &[u8], width: usize) {
    assert!(
        width > 0 && records.len().is_multiple_of(width),
        "{} bytes are no whole number of records of {width} bytes",
        records.len()
    );
}

/// Multiply and fold each word into the state (the mixing step of wyhash). Position and length count.
fn hash(record: &[u8]) -> u64 {
    const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
    const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
    let mut state = SEED ^ record.len() as u64;
    let mut words = record.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        state = fold(state ^ word, FACTOR);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    fold(state ^ u64::from_le_bytes(last), SEED | 1)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(a.rotate_left(23))
}

/// The CRC-32 of a block of a file, at memory speed where the machine multiplies without carry.
pub fn block_checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Whether no key is followed by a smaller one.
pub fn is_sorted<K: Key>(keys: &[K]) -> bool {
    // Blocks without an early exit inside are vectorised.
    let pieces = (0..keys.len()).step_by(1024);
    pieces.into_iter().all(|start| {
        let piece = &keys[start..keys.len().min(start + 1025)];
        let later = &piece[1..];
        !later
            .iter()
            .zip(piece)
            .fold(false, |bad, (b, a)| bad | (b < a))
    })
}

/// Whether no record is followed by one with a smaller key.
///
/// # Panics
/// When `records` is no whole number of records.
pub fn is_sorted_records(records: &[u8], layout: &Layout) -> bool {
    assert_whole(records, layout.width);
    let later = records.chunks_exact(layout.width).skip(1);
    records
        .chunks_exact(layout.width)
        .zip(later)
        .all(|(a, b)| compare_keys(a, b, layout).is_le())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let keys = [5u64, u64::MAX, 0, 17, 17];
        let mut shuffled = keys;
        shuffled.swap(0, 3);
        assert_eq!(Sums::of_keys(&keys), Sums::of_keys(&shuffled));
        assert_ne!(Sums::of_keys(&keys), Sums::of_keys(&keys[1..]));
        let mut halves = Sums::of_keys(&keys[..2]);
        halves.add(&Sums::of_keys(&keys[2..]));
        assert_eq!(halves, Sums::of_keys(&keys));
    }

    #[test]
    fn record_sums_see_swapped_bytes() {
        let a: Vec<u8> = (0..33).collect();
        let mut swapped = a.clone();
        swapped.swap(3, 20);
        let mut rotated = a.clone();
        rotated.rotate_left(11);
        assert_eq!(Sums::of_records(&a, 11), Sums::of_records(&rotated, 11));
        assert_ne!(Sums::of_records(&a, 11), Sums::of_records(&swapped, 11));
    }

    #[test]
    fn order_is_seen_at_every_place() {
        assert!(is_sorted::<u32>(&[]) && is_sorted(&[3u64]));
        for n in [2usize, 1023, 1024, 1025, 1026, 3000] {
            let keys: Vec<u64> = (0..n as u64).map(|i| i / 2).collect();
            assert!(is_sorted(&keys));
            for place in [1, n / 2, n - 1] {
                let mut broken = keys.clone();
                broken[place] = 0;
                broken[place - 1] = 1;
                assert!(!is_sorted(&broken), "{n} {place}");
            }
        }
    }

    #[test]
    fn records_are_compared_by_their_keys_only() {
        let layout = Layout {
            width: 3,
            key_offset: 1,
            key_len: 2,
        };
        assert!(is_sorted_records(&[9, 0, 1, 0, 0, 1, 5, 1, 0], &layout));
        assert!(!is_sorted_records(&[0, 1, 0, 9, 0, 1], &layout));
    }
}
