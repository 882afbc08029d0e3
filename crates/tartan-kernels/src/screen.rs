//! Which pairs of rows may pass a bar: inner products of 8-bit copies, with an error that is proven.
//!
//! A row x is turned (`rotate`: an orthogonal map R, the same for all rows) and rounded to x' = s q, where q are whole
//! numbers of at most [`ByteLevel::largest`] and s is a float. What is lost is *measured* for each row and kept beside it,
//! rounded upward. With X = R x, Cauchy and Schwarz give
//!
//! ```text
//! |x.y - s_x s_y (q_x.q_y)|  =  |(X - x').Y + x'.(Y - y')|  <=  |X - x'| |y| + |x'| |Y - y'|
//! ```
//!
//! and products of whole numbers are exact, in any order and on any processor. What is kept of a row
//! ([`Panel`]), all of it an upper bound:
//!
//! - `reach` N >= max(|x|, |x'|) and `copy` Q >= |x'|;
//! - `error` E >= (|X - x'| + (gamma + 32 u) N) (1 + 32 u), with u = 2^-24. |X - x'| is that of the rotation in float64,
//!   at most 2^-46 |x| ([`rotate`]), and |computed X - x'|, summed in float64 and enlarged by 1e-9 for that. gamma =
//!   d v / (1 - d v), v the unit of the rows' type, is the error of the exact kernel's own sum of d fused
//!   multiply-adds: the bound is for what *that* returns, since that is what is compared with bars.
//!
//! The pair is left out if, in float32 and in this order,
//!
//! ```text
//! s_r (s_c (q_r.q_c)) + E_r N_c + Q_r E_c + shift_c + max(bar_r, bar_c)  <  goal_r
//! ```
//!
//! Of rows with [`axes`] the copies are of their coordinates, X and x' those of these, and `tail` T >= the length of what
//! the axes leave of x: the left side has one more term, T_r T_c.
//!
//! These are at most three roundings of each product and six of each partial sum, so the left side is wrong by at most
//! 10 u times the sum of its terms' magnitudes. Of these |s_r s_c q.q| <= N_r N_c is paid by 32 u N in E, twice; E N by
//! the factor of E; T T by that of T; shift, bar and goal by the 16 u that [`Metric`] puts on each; and what underflows by `TINY`. NaN and
//! infinities, which a row that cannot be compared has for its E, are not less than a goal: such pairs stay.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::product::Scalar;

mod axes;
pub(crate) mod panel;
pub(crate) mod pass;
mod rotate;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use panel::{Held, Panel, Side, LANES};
use pass::{find_with, Columns, Group, Plain};

pub use axes::Axes;
pub use panel::ByteLevel;

/// Fewest positions of rows that are screened: of fewer the float product is as fast.
/// By judgement: two vectors of 8-bit words, beside which the look at the sums no longer vanishes. `tartan bench vectors
/// parts=screen` holds widths.
pub const LEAST_WIDTH: usize = 64;

/// Most positions: sums of u8 x i8 must fit in 32 bits.
/// By arithmetic: 255 * 127 * 65,536 is just below 2^31.
pub const MOST_WIDTH: usize = 1 << 16;

/// The 8-bit copies of the items of a run, made as tiles need them, on any number of threads; and what they decided.
pub struct Screen {
    level: ByteLevel,
    n_items: usize,
    /// Empty where they would take too much memory: then each tile makes its own.
    panels: Vec<OnceLock<Panel>>,
    width: OnceLock<usize>,
    /// Multiplies the errors: 1, or less to plant a wrong bound in a test.
    trust: f32,
    axes: Option<Axes>,
    tally: Tally,
}

/// Pairs by what decided them.
#[derive(Default)]
pub(crate) struct Tally {
    pub dropped: AtomicU64,
    pub looked_at: AtomicU64,
    pub unscreened: AtomicU64,
    /// Bits of a non-negative float, which order as it does.
    pub largest: AtomicU32,
}

/// What screens have decided so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decided {
    /// Pairs that the bound ruled out.
    pub dropped: u64,
    /// Pairs that the bound did not rule out, which were computed exactly.
    pub looked_at: u64,
    /// Pairs that were computed exactly without a look at the bound, because it ruled too few out.
    pub unscreened: u64,
    /// The largest bound of the error of an inner product that was used.
    pub largest: f32,
}

impl Tally {
    pub(crate) fn note(&self, dropped: usize, looked_at: usize, largest: f32) {
        self.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        self.looked_at
            .fetch_add(looked_at as u64, Ordering::Relaxed);
        if largest.is_finite() {
            self.largest.fetch_max(largest.to_bits(), Ordering::Relaxed);
        }
    }
}

impl Screen {
    /// Screen `n_items` items of a width that the first tile tells; copies that take more than `most_bytes` are not kept.
    ///
    /// `trust` is 1. Errors are multiplied by it: what is less plants a wrong bound, for tests of those who check.
    pub fn new(
        n_items: usize,
        width: usize,
        most_bytes: usize,
        level: ByteLevel,
        trust: f32,
    ) -> Self {
        let n_panels = n_items.div_ceil(LANES);
        let bytes = n_panels * (width.div_ceil(4) * 4 * LANES + size_of::<Panel>());
        let kept = if bytes <= most_bytes { n_panels } else { 0 };
        Screen {
            level,
            n_items,
            panels: (0..kept).map(|_| OnceLock::new()).collect(),
            width: OnceLock::new(),
            trust,
            axes: None,
            tally: Tally::default(),
        }
    }

    /// Copy the coordinates of rows on some axes, in place of the rows.
    pub fn with_axes(self, axes: Axes, most_bytes: usize) -> Self {
        let copied = Screen::new(self.n_items, axes.len(), most_bytes, self.level, self.trust);
        Screen {
            axes: Some(axes),
            ..copied
        }
    }

    /// How many axes there are; 0 where rows are copied whole.
    pub fn n_axes(&self) -> usize {
        self.axes.as_ref().map_or(0, Axes::len)
    }

    /// Positions of the copies of rows of a width.
    pub(crate) fn copied(&self, width: usize) -> usize {
        self.axes.as_ref().map_or(width, Axes::len)
    }

    pub fn level(&self) -> ByteLevel {
        self.level
    }

    /// What was decided so far.
    pub fn decided(&self) -> Decided {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Decided {
            dropped: of(&self.tally.dropped),
            looked_at: of(&self.tally.looked_at),
            unscreened: of(&self.tally.unscreened),
            largest: f32::from_bits(self.tally.largest.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether rows of this width are screened; all tiles have the same.
    pub(crate) fn takes(&self, width: usize) -> bool {
        let fits = self.axes.as_ref().is_none_or(|axes| axes.width() == width);
        fits && (LEAST_WIDTH..MOST_WIDTH).contains(&width)
            && *self.width.get_or_init(|| width) == width
    }

    /// The panels that hold items `first .. first + rows.len()`, whose first `width` values are screened.
    pub(crate) fn side<T: Scalar>(&self, first: usize, rows: &[&[T]], width: usize) -> Side<'_> {
        let end = first + rows.len();
        let panel = |at: usize| -> Held<'_> {
            let items = at * LANES..self.n_items.max(end).min((at + 1) * LANES);
            let here = items.start.max(first)..items.end.min(end);
            let lanes = here.start - at * LANES;
            let make = || {
                let some = &rows[here.start - first..here.end - first];
                let how = (self.level, self.trust);
                rotate::copy_rows(some, lanes, width, self.axes.as_ref(), how)
            };
            match self.panels.get(at) {
                Some(kept) if here == items => Held::Kept(kept.get_or_init(make)),
                Some(kept) => kept
                    .get()
                    .map_or_else(|| Held::Own(Box::new(make())), Held::Kept),
                None => Held::Own(Box::new(make())),
            }
        };
        Side {
            panels: (first / LANES..end.div_ceil(LANES)).map(panel).collect(),
            skipped: first % LANES,
            len: rows.len(),
        }
    }
}

/// Find the pairs that the bound does not rule out, as (row of the group, column); false when there are more than `most`.
pub(crate) fn find(
    level: ByteLevel,
    group: &Group<'_>,
    side: &Side<'_>,
    columns: &[Columns],
    (wanted, most): (&dyn Fn(usize) -> bool, usize),
    found: &mut Vec<(u32, u32)>,
) -> bool {
    match level {
        // SAFETY: a level is made by `ByteLevel::available` alone, which asks for its features.
        #[cfg(target_arch = "x86_64")]
        ByteLevel::Avx512Vnni => unsafe {
            x86::find_avx512_vnni(group, side, columns, (wanted, most), found)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        ByteLevel::AvxVnni => unsafe {
            x86::find_avx_vnni(group, side, columns, (wanted, most), found)
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        ByteLevel::Avx2 => unsafe { x86::find_avx2(group, side, columns, (wanted, most), found) },
        // SAFETY: it wants no feature.
        _ => unsafe { find_with::<Plain>(group, side, columns, (wanted, most), found) },
    }
}
