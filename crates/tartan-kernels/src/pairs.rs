//! Scored pairs as words of 64 bits whose order is that of the scores, then of i, then of j.
//!
//! The upper half of a word is the score as an order-preserving key, the lower half i and j with 16 bits each. So a
//! block of a score matrix becomes one array that any sort of integers puts in order, at 8 bytes a pair.

/// Largest number of items whose indices fit into a word.
/// By format: two indices of 16 bits beside 32 bits of score.
pub const MOST_ITEMS: usize = 1 << 16;
/// The key of a pair without a score: after all others, in both directions.
pub const NO_SCORE: u32 = u32::MAX;

const NOT_COMPUTED: u8 = 0;
const DONE: u8 = 1;

/// A block of scores with the ledger's code of each pair; row-major, `width` columns.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub scores: &'a [f32],
    pub codes: &'a [u8],
    pub width: usize,
}

/// Return the key of a score: small keys come first.
#[inline]
pub fn key_of(score: f32, descending: bool) -> u32 {
    if score.is_nan() {
        return NO_SCORE;
    }
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    if descending {
        !ascending
    } else {
        ascending
    }
}

/// Return the score of a key; NaN for a pair without one.
#[inline]
pub fn score_of(key: u32, descending: bool) -> f32 {
    if key == NO_SCORE {
        return f32::NAN;
    }
    let ascending = if descending { !key } else { key };
    let bits = if ascending >> 31 == 1 {
        ascending & !(1 << 31)
    } else {
        !ascending
    };
    f32::from_bits(bits)
}

/// Append the words of all computed pairs of a block whose key is at most `last`.
///
/// `row` and `column` are the indices of the first score. Failed pairs have the key `NO_SCORE`.
pub fn encode(
    block: Block,
    row: usize,
    column: usize,
    descending: bool,
    last: u32,
    words: &mut Vec<u64>,
) {
    for (r, (scores, codes)) in lines(block) {
        let i = ((row + r) as u64) << 16;
        for (c, (&score, &code)) in scores.iter().zip(codes).enumerate() {
            let key = if code == DONE {
                key_of(score, descending)
            } else {
                NO_SCORE
            };
            if code != NOT_COMPUTED && key <= last {
                words.push((u64::from(key) << 32) | i | (column + c) as u64);
            }
        }
    }
}

/// Count the scored pairs of a block by the upper 16 bits of their keys.
pub fn count(block: Block, descending: bool, counts: &mut [u64]) {
    for (&score, &code) in block.scores.iter().zip(block.codes) {
        if code == DONE && !score.is_nan() {
            counts[(key_of(score, descending) >> 16) as usize] += 1;
        }
    }
}

/// Take words apart.
pub fn decode(words: &[u64], descending: bool, i: &mut [i64], j: &mut [i64], scores: &mut [f32]) {
    for (((&word, i), j), score) in words.iter().zip(i).zip(j).zip(scores) {
        *i = (word >> 16 & 0xffff) as i64;
        *j = (word & 0xffff) as i64;
        *score = score_of((word >> 32) as u32, descending);
    }
}

type Line<'a> = (usize, (&'a [f32], &'a [u8]));

fn lines(block: Block) -> impl Iterator<Item = Line> {
    let width = block.width.max(1);
    block
        .scores
        .chunks(width)
        .zip(block.codes.chunks(width))
        .enumerate()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f32; 12] = [
        f32::NEG_INFINITY,
        -1e30,
        -1.0,
        -1e-40,
        -0.0,
        0.0,
        1e-40,
        0.5,
        1.0,
        3.4e38,
        f32::INFINITY,
        f32::NAN,
    ];

    #[test]
    fn keys_are_in_the_order_of_the_scores() {
        for pair in SCORES[..11].windows(2) {
            assert!(key_of(pair[0], false) < key_of(pair[1], false), "{pair:?}");
            assert!(key_of(pair[0], true) > key_of(pair[1], true), "{pair:?}");
        }
        for descending in [false, true] {
            assert_eq!(key_of(-f32::NAN, descending), NO_SCORE);
            assert!(SCORES[..11]
                .iter()
                .all(|&s| key_of(s, descending) < NO_SCORE));
        }
    }

    #[test]
    fn scores_come_back_bit_by_bit() {
        for descending in [false, true] {
            for score in SCORES {
                let back = score_of(key_of(score, descending), descending);
                assert!(back.to_bits() == score.to_bits() || (back.is_nan() && score.is_nan()));
            }
        }
    }

    #[test]
    fn a_block_becomes_words_and_pairs_again() {
        let codes = [1, 0, 2, 1, 1, 3, 1, 1, 1, 0, 1, 1];
        let block = Block {
            scores: &SCORES,
            codes: &codes,
            width: 4,
        };
        let mut words = Vec::new();
        encode(block, 65533, 7, true, NO_SCORE, &mut words);
        assert_eq!(words.len(), 10);
        words.sort_unstable();
        let n = words.len();
        let (mut i, mut j, mut scores) = (vec![0; n], vec![0; n], vec![0.0; n]);
        decode(&words, true, &mut i, &mut j, &mut scores);
        let found: Vec<_> = i
            .iter()
            .zip(&j)
            .map(|(&i, &j)| (i - 65533) * 4 + j - 7)
            .collect();
        assert_eq!(
            found,
            [10, 8, 7, 6, 4, 3, 0, 2, 5, 11],
            "failed pairs and NaN last, by i and j"
        );
        assert!(scores[7..].iter().all(|s| s.is_nan()));
    }

    #[test]
    fn counts_tell_where_the_best_end() {
        let block = Block {
            scores: &SCORES,
            codes: &[1; 12],
            width: 12,
        };
        let mut counts = vec![0; 1 << 16];
        count(block, false, &mut counts);
        assert_eq!(counts.iter().sum::<u64>(), 11, "NaN does not count");
        let mut words = Vec::new();
        encode(block, 0, 0, false, key_of(-1.0, false) | 0xffff, &mut words);
        assert_eq!(
            words.len() as u64,
            counts[..=(key_of(-1.0, false) >> 16) as usize].iter().sum()
        );
    }
}
