//! Rows by their coordinates on a few axes: what is left of them is bounded by its length.
//!
//! Of rows that lie near few axes (embeddings, whose spectrum falls fast) products of the coordinates decide most pairs.
//! With the axes as rows of R, P the projection on what they span, X = R x, and R R^T = I + D, |D| <= d:
//!
//! ```text
//! x.y  =  Px.Py + (x - Px).(y - Py)  <=  X.Y + 2 d |x| |y| + T_x T_y,    T_x^2  =  |x|^2 - |Px|^2  <=  |x|^2 - (1 - d) |X|^2
//! ```
//!
//! and X.Y is bounded as in the module above. Where the axes lie does not matter to that; they come from a sample of rows.

use super::panel::round_up;

/// How far from orthonormal axes may be.
/// By arithmetic: far above what float64 loses of 2^16 positions, far below the 32 u that bounds are enlarged by.
const SKEW: f64 = 1e-8;

/// Pays for the roundings of sums of squares in float64, and for those of their difference.
/// By arithmetic: 2^16 terms lose at most 2^16 2^-53, less than 1e-11.
const SUMMED: f64 = 1e-9;

/// Orthonormal axes, of fewer positions than rows have.
pub struct Axes {
    /// One axis after the other.
    values: Vec<f64>,
    width: usize,
    /// Of a norm: what the coordinates may be off by.
    lost: f64,
    /// Of a squared norm: what its rest may be off by.
    slack: f64,
}

impl Axes {
    /// Take axes of `width` positions each; None where they are not orthonormal, or not fewer than positions.
    pub fn new(values: Vec<f64>, width: usize) -> Option<Self> {
        let n = values.len().checked_div(width)?;
        if n * width != values.len() || n == 0 || n >= width {
            return None;
        }
        let axis = |at: usize| &values[at * width..(at + 1) * width];
        let mut square = 0.0;
        for i in 0..n {
            for j in 0..=i {
                let product: f64 = axis(i).iter().zip(axis(j)).map(|(a, b)| a * b).sum();
                let off = if i == j { product - 1.0 } else { 2.0 * product };
                square += off * off;
            }
        }
        let positions = width as f64;
        // Twice what is found pays for the roundings of finding it, which are below the second term.
        let skew = 2.0 * square.sqrt() + positions * positions * f64::EPSILON;
        if skew.partial_cmp(&SKEW) != Some(std::cmp::Ordering::Less) {
            return None;
        }
        // A coordinate is a sum of d products: wrong by d 2^-53 |x|, and all of at most d by sqrt(d) of that.
        let rounded = positions * positions.sqrt() * f64::EPSILON;
        Some(Axes {
            values,
            width,
            lost: rounded + 2.0 * skew,
            slack: skew + 4.0 * rounded + 4.0 * SUMMED,
        })
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Positions of the rows.
    pub fn width(&self) -> usize {
        self.width
    }

    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    /// Coordinates of some rows, side by side.
    #[inline(always)]
    pub(super) fn project<const N: usize>(&self, rows: &[[f64; N]]) -> Vec<[f64; N]> {
        let along = |axis: &[f64]| {
            let mut sums = [0.0; N];
            for (values, &weight) in rows.iter().zip(axis) {
                for lane in 0..N {
                    sums[lane] += values[lane] * weight;
                }
            }
            sums
        };
        self.values.chunks_exact(self.width).map(along).collect()
    }

    /// An upper bound of the length of what coordinates leave of a row, from the sums of squares of both.
    pub(super) fn tail(&self, whole: f64, coordinates: f64) -> f32 {
        let rest = (whole - coordinates).max(0.0) + self.slack * whole;
        round_up(rest.sqrt() * (1.0 + 1e-6))
    }
}
