//! Rows of bits scored while it is chosen from them: pairs that counts of bits rule out are not looked at.
//!
//! Of two rows with `a` and `b` bits, of which they share `c`, the Jaccard distance is (a + b - 2 c) / (a + b - c) and the
//! Hamming distance (a + b - 2 c) / length. Both fall as c grows, and c is at most min(a, b): S. J. Swamidass and P.
//! Baldi, Bounds and algorithms for fast exact searches of chemical fingerprints in linear and sublinear time, J. Chem.
//! Inf. Model. 47, 302 (2007), call that BitBound. Here some bits are counted first, the *head*: with c' of them shared
//! and a', b' the bits behind the head,
//!
//! ```text
//! c  <=  c' + min(a', b')  <=  min(a, b)
//! ```
//!
//! Head bits are those that tell most, by how often a sample of rows has them. Rows of a tile are sorted by their numbers
//! of bits, so that whole panels of columns go by the right side; the others by the middle, 16 columns at a time. What is
//! left is counted whole and scored as a tile is, so nothing depends on which pairs were ruled out.
//!
//! A pair is ruled out where, in float32, c' + min(a', b') + extra < share (a + b): of Jaccard distances that reach d
//! share is (1 - d) / (2 - d) and extra 0, of Hamming distances 1/2 and d length / 2. All numbers of bits are exact there
//! (below 2^24); share is taken 2^-19 smaller, which pays for at most four roundings of 2^-24, and d 2^-22 larger, which
//! pays for the rounding of the score to its type.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

pub(crate) mod heads;
pub(crate) mod pass;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use heads::Heads;
use pass::{Bounds, LANES, ROWS};

pub use pass::BitLevel;

/// Most words of 64 bits of a row: numbers of bits, and sums of two, are exact in float32.
/// By arithmetic: 2^17 words are 2^23 bits.
pub const MOST_WORDS: usize = 1 << 17;

/// Items whose heads are made together.
/// By judgement: as those that share a lock; a tile has some dozens of such groups.
const GROUP: usize = 64;

/// What is computed of the bits that two rows share. Rows end in a word that is no part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitMetric {
    /// (a + b - 2 c) / (a + b - c), 0 for two empty rows.
    Jaccard,
    /// (a + b - 2 c) / length; the last word of a row is the length.
    Hamming,
}

impl BitMetric {
    /// The distance of rows of `a` and `b` bits that share `common`; the same operations as those of a tile.
    #[inline(always)]
    pub(crate) fn score(self, (a, b): (u32, u32), common: u32, length: u64) -> f64 {
        let (a, b, common) = (f64::from(a), f64::from(b), f64::from(common));
        match self {
            BitMetric::Jaccard => {
                let either = a + b - common;
                (either - common) / either.max(1.0)
            }
            BitMetric::Hamming => (a + b - 2.0 * common) / length as f64,
        }
    }
}

/// Numbers of bits and heads of the items of a run, made as tiles need them, on any number of threads; and what they
/// decided.
pub struct BitScreen {
    level: BitLevel,
    n_items: usize,
    /// Length of rows, and which bits are the head, by the first tile.
    pub(crate) order: OnceLock<(usize, Vec<u32>)>,
    /// Empty where they would take too much memory: then each tile makes its own.
    groups: Vec<OnceLock<Heads>>,
    /// Multiplies what rows may share: 1, or less to plant a wrong bound in a test.
    pub(crate) trust: f32,
    /// How many widths of heads the last tile found too narrow.
    pub(crate) narrow: AtomicUsize,
    ruled_out: AtomicU64,
    counted: AtomicU64,
}

impl BitScreen {
    /// Screen `n_items` items; heads that take more than `most_bytes` are not kept.
    ///
    /// `trust` is 1. What rows may share is multiplied by it: what is less plants a wrong bound, for tests of those who
    /// check.
    pub fn new(n_items: usize, most_bytes: usize, level: BitLevel, trust: f32) -> Self {
        let fits = n_items.saturating_mul(Heads::ITEM_BYTES) <= most_bytes;
        let kept = if fits { n_items.div_ceil(GROUP) } else { 0 };
        BitScreen {
            level,
            n_items,
            order: OnceLock::new(),
            groups: (0..kept).map(|_| OnceLock::new()).collect(),
            trust,
            narrow: AtomicUsize::new(0),
            ruled_out: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }

    pub fn level(&self) -> BitLevel {
        self.level
    }

    /// Pairs that numbers of bits ruled out, and pairs whose bits were all counted.
    pub fn decided(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.ruled_out), of(&self.counted))
    }

    pub(crate) fn note(&self, ruled_out: usize, counted: usize) {
        self.ruled_out
            .fetch_add(ruled_out as u64, Ordering::Relaxed);
        self.counted.fetch_add(counted as u64, Ordering::Relaxed);
    }

    /// The heads of items `first .. first + rows.len()`.
    pub(crate) fn heads(&self, first: usize, rows: &[&[u64]], order: &[u32]) -> Heads {
        let mut found = Heads::default();
        let end = first + rows.len();
        let mut at = first;
        while at < end {
            let group = at / GROUP;
            let items = group * GROUP..self.n_items.max(end).min((group + 1) * GROUP);
            let here = at..items.end.min(end);
            let some = &rows[here.start - first..here.end - first];
            match self.groups.get(group) {
                Some(kept) if here == items => {
                    let made = kept.get_or_init(|| Heads::of(some, order));
                    found.extend(made, 0..some.len());
                }
                Some(kept) if kept.get().is_some() => {
                    let made = kept.get().expect("it is there");
                    found.extend(made, here.start - items.start..here.end - items.start);
                }
                _ => found.extend(&Heads::of(some, order), 0..some.len()),
            }
            at = here.end;
        }
        found
    }
}

/// Count the bits that rows and columns share in some words; return a bit of each pair that the bound lets pass.
///
/// `words` are those of the rows side by side, `panel` those of the columns; both have the same number.
pub(crate) fn pass(
    level: BitLevel,
    words: &[[u32; ROWS]],
    panel: &[[u32; LANES]],
    rows: &Bounds<ROWS>,
    columns: &Bounds<LANES>,
) -> [u16; ROWS] {
    match level {
        // SAFETY: a level is made by `BitLevel::available` alone, which asks for its features.
        #[cfg(target_arch = "x86_64")]
        BitLevel::Avx512 => unsafe { x86::pass_avx512(words, panel, rows, columns) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        BitLevel::Avx2 => unsafe { x86::pass_avx2(words, panel, rows, columns) },
        _ => pass::pass_plain(words, panel, rows, columns),
    }
}

/// Count the bits that two rows share.
#[inline(always)]
pub(crate) fn common(level: BitLevel, left: &[u64], right: &[u64]) -> u32 {
    match level {
        // SAFETY: a level is made by `BitLevel::available` alone, which asks for its features.
        #[cfg(target_arch = "x86_64")]
        BitLevel::Avx512 => unsafe { x86::common_avx512(left, right) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        BitLevel::Avx2 => unsafe { x86::common_avx2(left, right) },
        _ => pass::count_common(left, right),
    }
}
