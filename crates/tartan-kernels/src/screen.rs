//! Which pairs of rows may pass a bar: inner products of 8-bit copies, with an error that is proven.
//!
//! A row x is turned (`rotate`: an orthogonal map R, the same for all rows) and rounded to x' = s q, where q are whole
//! numbers of at most [`Level::largest`] and s is a float. What is lost is *measured* for each row and kept beside it,
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
//! These are at most three roundings of each product and five of each partial sum, so the left side is wrong by at most
//! 9 u times the sum of its terms' magnitudes. Of these |s_r s_c q.q| <= N_r N_c is paid by 32 u N in E, twice; E N by
//! the factor of E; shift, bar and goal by the 16 u that [`Metric`] puts on each; and what underflows by `TINY`. NaN and
//! infinities, which a row that cannot be compared has for its E, are not less than a goal: such pairs stay.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::product::Scalar;

pub(crate) mod pass;
mod rotate;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Rows of a panel: the 32-bit lanes of a vector of AVX-512.
/// By arithmetic.
pub(crate) const LANES: usize = 16;

/// Rows that meet a panel at a time.
/// By arithmetic: 8 rows and three panels are 24 of 32 registers.
pub(crate) const ROWS: usize = 8;

/// Fewest positions of rows that are screened: of fewer the float product is as fast.
/// By judgement: two vectors of 8-bit words, beside which the look at the sums no longer vanishes. `tartan bench vectors
/// parts=screen` holds widths.
pub const LEAST_WIDTH: usize = 64;

/// Most positions: sums of u8 x i8 must fit in 32 bits.
/// By arithmetic: 255 * 127 * 65,536 is just below 2^31.
pub const MOST_WIDTH: usize = 1 << 16;

/// What multiplies whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// No vectors but those that the compiler finds: the twin of the others.
    Plain,
    /// `vpmaddubsw`, whose 16-bit sums hold 7 bits.
    Avx2,
    /// `vpdpbusd` of 256 bits.
    AvxVnni,
    /// `vpdpbusd` of 512 bits.
    Avx512Vnni,
}

impl Level {
    /// All that this machine can run, the fastest last.
    pub fn available() -> Vec<Level> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let mut found = vec![Level::Plain];
            if !(has!("avx2") && has!("fma")) {
                return found;
            }
            found.push(Level::Avx2);
            if has!("avxvnni") {
                found.push(Level::AvxVnni);
            }
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            if wide && has!("avx512vnni") {
                found.push(Level::Avx512Vnni);
            }
            found
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Level::Plain]
    }

    /// The fastest on this machine.
    pub fn fastest() -> Level {
        static FOUND: OnceLock<Level> = OnceLock::new();
        *FOUND.get_or_init(|| *Level::available().last().expect("there is a plain one"))
    }

    /// The largest magnitude of a rounded value.
    pub fn largest(self) -> i8 {
        match self {
            Level::Avx2 => 63,
            _ => 127,
        }
    }

    /// What makes one of two factors unsigned, which the instructions want.
    pub(crate) fn offset(self) -> i32 {
        i32::from(self.largest()) + 1
    }
}

/// The 8-bit copies of up to 16 consecutive rows; absent ones are zero.
pub(crate) struct Panel {
    /// Four positions of each row in a word.
    pub words: Vec<[u32; LANES]>,
    /// Minus what the offset of the other factor adds to each sum.
    pub start: [i32; LANES],
    pub scale: [f32; LANES],
    pub error: [f32; LANES],
    pub reach: [f32; LANES],
    pub copy: [f32; LANES],
}

/// A panel that is kept, or of this tile only.
pub(crate) enum Held<'a> {
    Kept(&'a Panel),
    Own(Panel),
}

impl Deref for Held<'_> {
    type Target = Panel;
    fn deref(&self) -> &Panel {
        match self {
            Held::Kept(panel) => panel,
            Held::Own(panel) => panel,
        }
    }
}

/// The 8-bit copies of the items of a run, made as tiles need them, on any number of threads; and what they decided.
pub struct Screen {
    level: Level,
    n_items: usize,
    /// Empty where they would take too much memory: then each tile makes its own.
    panels: Vec<OnceLock<Panel>>,
    width: OnceLock<usize>,
    /// Multiplies the errors: 1, or less to plant a wrong bound in a test.
    trust: f32,
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
    pub fn new(n_items: usize, width: usize, most_bytes: usize, level: Level, trust: f32) -> Self {
        let n_panels = n_items.div_ceil(LANES);
        let bytes = n_panels * (width.div_ceil(4) * 4 * LANES + size_of::<Panel>());
        let kept = if bytes <= most_bytes { n_panels } else { 0 };
        Screen {
            level,
            n_items,
            panels: (0..kept).map(|_| OnceLock::new()).collect(),
            width: OnceLock::new(),
            trust,
            tally: Tally::default(),
        }
    }

    pub fn level(&self) -> Level {
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
        (LEAST_WIDTH..MOST_WIDTH).contains(&width) && *self.width.get_or_init(|| width) == width
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
                rotate::copy_rows(some, lanes, width, self.level, self.trust)
            };
            match self.panels.get(at) {
                Some(kept) if here == items => Held::Kept(kept.get_or_init(make)),
                Some(kept) => kept.get().map_or_else(|| Held::Own(make()), Held::Kept),
                None => Held::Own(make()),
            }
        };
        Side {
            panels: (first / LANES..end.div_ceil(LANES)).map(panel).collect(),
            skipped: first % LANES,
            len: rows.len(),
        }
    }
}

/// The panels of one side of a tile.
pub(crate) struct Side<'a> {
    pub panels: Vec<Held<'a>>,
    /// Lanes of the first panel before the first row.
    pub skipped: usize,
    pub len: usize,
}

impl Side<'_> {
    /// Panel and lane of a row.
    pub(crate) fn place(&self, row: usize) -> (&Panel, usize) {
        let at = self.skipped + row;
        (&self.panels[at / LANES], at % LANES)
    }

    /// The rows of a panel.
    pub(crate) fn rows_of(&self, panel: usize) -> Range<usize> {
        let start = (panel * LANES).saturating_sub(self.skipped);
        start..self.len.min((panel + 1) * LANES - self.skipped)
    }
}

/// The smallest float32 that is not below a number.
pub(crate) fn round_up(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) < value {
        near.next_up()
    } else {
        near
    }
}
