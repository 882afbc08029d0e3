//! A composition vector, and how the neighbours of one middle become a row of it.

use crate::allowance::{Allowance, Exceeded};
use crate::phylogeny::windows::SIDE_BITS;

/// Where the number of entries of a middle begins in its mask of left letters.
/// By format: twenty letters, a bit each.
pub const COUNT_SHIFT: u32 = 20;
/// The letters in a mask.
/// By format.
pub const LETTERS: u32 = (1 << COUNT_SHIFT) - 1;
/// Most entries of one middle.
/// By format: 20 x 20 letters.
const MOST_ENTRIES: usize = 400;

/// A record or a middle: u32 up to k = 7, u64 above.
pub trait Word: Copy + Ord + Default + Send + Sync + std::fmt::Debug + 'static {
    fn from_u64(value: u64) -> Self;
    fn to_u64(self) -> u64;
}

impl Word for u32 {
    #[inline(always)]
    fn from_u64(value: u64) -> Self {
        value as u32
    }
    #[inline(always)]
    fn to_u64(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u64 {
    #[inline(always)]
    fn from_u64(value: u64) -> Self {
        value
    }
    #[inline(always)]
    fn to_u64(self) -> u64 {
        self
    }
}

/// A composition vector that lives elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Composition<'a, W> {
    /// Middles whose left and right letters both exist, ascending, as numbers to base 20.
    pub middles: &'a [W],
    /// Two words a middle: left letters with the number of entries above [`COUNT_SHIFT`], right letters.
    pub masks: &'a [u32],
    /// One code l << 5 | r an entry, in the order of middles, ascending within one.
    pub codes: &'a [u16],
    /// a = f / f0 - 1 of each entry.
    pub values: &'a [f32],
    /// Euclidean norm of the vector a, over all strings with f0 > 0.
    pub norm: f64,
}

/// Numbers of one vector that are not in its arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VectorSummary {
    /// Euclidean norm of a.
    pub norm: f64,
    /// Strings with f0 > 0.
    pub n_expected: u64,
    /// Strings of length k, k - 1 and k - 2 that were counted, with repeats.
    pub n_windows: [u64; 3],
}

/// A composition vector with memory of its own.
#[derive(Debug, Default)]
pub struct Vector<W> {
    pub middles: Vec<W>,
    pub masks: Vec<u32>,
    pub codes: Vec<u16>,
    pub values: Vec<f32>,
    pub summary: VectorSummary,
}

impl<W> Vector<W> {
    pub fn view(&self) -> Composition<'_, W> {
        Composition {
            middles: &self.middles,
            masks: &self.masks,
            codes: &self.codes,
            values: &self.values,
            norm: self.summary.norm,
        }
    }
}

/// Makes a vector from the rows of middles in ascending order.
pub struct Builder<'a, W> {
    vector: Vector<W>,
    /// What f(l M) f(M r) / f(M) must be multiplied with, inverted.
    scale: f64,
    squares: f64,
    allowance: &'a mut Allowance,
}

impl<'a, W: Word> Builder<'a, W> {
    pub fn new(n_windows: [u64; 3], allowance: &'a mut Allowance) -> Self {
        let [n_k, n_left, n_middle] = n_windows.map(|n| n as f64);
        Self {
            vector: Vector {
                summary: VectorSummary {
                    n_windows,
                    ..VectorSummary::default()
                },
                ..Vector::default()
            },
            scale: n_left * n_left / (n_k.max(1.0) * n_middle.max(1.0)),
            squares: 0.0,
            allowance,
        }
    }

    /// Append a middle with f(M) = `size` and the numbers (left, right, f(l M r)) of its strings, ascending.
    #[inline(always)]
    pub fn row(
        &mut self,
        middle: u64,
        row: &Row,
        size: u64,
        strings: impl Iterator<Item = (usize, usize, u64)>,
    ) -> Result<(), Exceeded> {
        let (lefts, rights) = (row.left_mask & LETTERS, row.right_mask & LETTERS);
        if lefts == 0 || rights == 0 {
            return Ok(());
        }
        let vector = &mut self.vector;
        self.allowance.grow(&mut vector.codes, MOST_ENTRIES)?;
        self.allowance.grow(&mut vector.values, MOST_ENTRIES)?;
        self.allowance.grow(&mut vector.middles, 1)?;
        self.allowance.grow(&mut vector.masks, 2)?;
        let factor = size as f64 * self.scale;
        let (mut n, mut squares) = (0, 0.0);
        for (left, right, count) in strings {
            if left < 20 && right < 20 {
                let expected = f64::from(row.lefts[left]) * f64::from(row.rights[right]);
                let value = (count as f64 * factor / expected - 1.0) as f32;
                vector.codes.push((left << SIDE_BITS | right) as u16);
                vector.values.push(value);
                squares += f64::from(value) * f64::from(value);
                n += 1;
            }
        }
        let n_strings = lefts.count_ones() * rights.count_ones();
        self.squares += squares + f64::from(n_strings - n);
        vector.summary.n_expected += u64::from(n_strings);
        vector.middles.push(W::from_u64(middle));
        vector.masks.push(lefts | n << COUNT_SHIFT);
        vector.masks.push(rights);
        Ok(())
    }

    pub fn finish(mut self) -> Vector<W> {
        self.vector.summary.norm = self.squares.sqrt();
        self.vector.middles.shrink_to_fit();
        self.vector.masks.shrink_to_fit();
        self.vector.codes.shrink_to_fit();
        self.vector.values.shrink_to_fit();
        self.vector
    }
}

/// How often each letter, or an end, is at the left and at the right of one middle.
#[derive(Default)]
pub struct Row {
    pub lefts: [u32; 32],
    pub rights: [u32; 32],
    pub left_mask: u32,
    pub right_mask: u32,
}

impl Row {
    /// Forget the counts. All of them: which ones were counted cannot be foreseen, and a fill has no branch.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.lefts.fill(0);
        self.rights.fill(0);
    }
}
