//! The middles of a sequence of letter codes, each with the letter at its left and at its right.

use crate::fasta::BREAK;

/// Bits of both neighbours, and of one, in a record.
/// PAIR_BITS and SIDE_BITS, by format: a letter takes five bits.
pub const PAIR_BITS: u32 = 10;
/// By format.
pub const SIDE_BITS: u32 = 5;

/// Strings of length m + 2, m + 1 and m, with repeats.
pub type Windows = [u64; 3];

/// Call `each` with middle, left and right code of every window of 1 + m + 1 codes whose m inner ones are letters.
///
/// The neighbours may be [`BREAK`]. So pieces that share m + 1 codes have each window once.
#[inline(always)]
pub fn each_window(
    codes: &[u8],
    m: usize,
    windows: &mut Windows,
    mut each: impl FnMut(u64, u8, u8),
) {
    let top = 20u64.pow(m as u32 - 1);
    let last = codes.len().saturating_sub(1);
    let mut start = 1;
    while start < last {
        let end = memchr::memchr(BREAK, &codes[start..last]).map_or(last, |found| start + found);
        if end - start >= m {
            let mut middle = codes[start..end]
                .iter()
                .take(m - 1)
                .fold(0, |sum, &code| sum * 20 + u64::from(code));
            for window in codes[start - 1..=end].windows(m + 2) {
                middle = middle * 20 + u64::from(window[m]);
                each(middle, window[0], window[m + 1]);
                middle -= top * u64::from(window[1]);
            }
            let n = (end - start - m + 1) as u64;
            let (first, last) = (codes[start - 1] == BREAK, codes[end] == BREAK);
            windows[0] += n.saturating_sub(u64::from(first) + u64::from(last));
            windows[1] += n - u64::from(last);
            windows[2] += n;
        }
        start = end + 1;
    }
}

/// Middle and neighbours as one number; records of one middle are neighbours in their order.
#[inline(always)]
pub fn record(middle: u64, left: u8, right: u8) -> u64 {
    middle << PAIR_BITS | u64::from(left) << SIDE_BITS | u64::from(right)
}

/// Codes of the letters at the left and at the right of the middle of a record.
#[inline(always)]
pub fn halves(record: u64) -> (usize, usize) {
    (record as usize >> SIDE_BITS & 31, record as usize & 31)
}
