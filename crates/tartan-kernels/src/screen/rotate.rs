//! Rows turned and rounded to whole numbers, with what that loses.

use super::axes::Axes;
use super::panel::{round_up, ByteLevel, Panel, LANES};
use crate::dense::CpuVectors;
use crate::product::Scalar;

/// Rows that are turned side by side.
/// By arithmetic: float64 lanes of a vector of AVX-512.
const LANE: usize = 8;

/// What the rotation may lose, in parts of the norm.
/// By arithmetic: two windows of at most 2^15 positions are 2 (15 + 3) roundings of 2^-53 of a vector's norm, below 2^-46.
const TURNED: f64 = 1.0 / (1_u64 << 46) as f64;

/// Pays for the roundings of sums of squares in float64.
/// By arithmetic: 2^16 terms lose at most 2^16 2^-53, less than 1e-11.
const SUMMED: f64 = 1.0 + 1e-9;

/// 2^-24, the unit of float32.
/// By format.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// Copy up to 16 rows, of which the first goes to lane `first`; only their first `width` values count, or their
/// coordinates on some axes.
pub(super) fn copy_rows<T: Scalar>(
    rows: &[&[T]],
    first: usize,
    width: usize,
    axes: Option<&Axes>,
    (level, trust): (ByteLevel, f32),
) -> Panel {
    let copied = axes.map_or(width, Axes::len);
    let mut panel = Panel {
        words: vec![[0; LANES]; copied.div_ceil(4)],
        start: [0; LANES],
        scale: [0.0; LANES],
        error: [0.0; LANES],
        reach: [0.0; LANES],
        copy: [0.0; LANES],
        tail: [0.0; LANES],
    };
    let mut work = vec![[0.0; LANE]; width];
    for (at, some) in rows.chunks(LANE).enumerate() {
        for (lane, row) in some.iter().enumerate() {
            for (place, value) in work.iter_mut().zip(&row[..width]) {
                place[lane] = value.to_f64();
            }
        }
        let (norms, copies) = match CpuVectors::widest() {
            // SAFETY: `widest` found every feature that this level is compiled for.
            #[cfg(target_arch = "x86_64")]
            CpuVectors::Avx512 => unsafe { round_avx512(&mut work, axes, level) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            CpuVectors::Avx2 => unsafe { round_avx2(&mut work, axes, level) },
            _ => round(&mut work, axes, level),
        };
        let start = first + at * LANE;
        for (word, whole) in panel.words.iter_mut().zip(&copies.words) {
            word[start..start + some.len()].copy_from_slice(&whole[..some.len()]);
        }
        for (lane, &norm) in norms.iter().enumerate().take(some.len()) {
            let place = start + lane;
            let numbers = Numbers {
                norm,
                scale: copies.scale[lane],
                lost: copies.lost[lane],
                whole: copies.whole[lane],
            };
            if let Some(axes) = axes {
                panel.tail[place] = axes.tail(norm, copies.turned[lane]) * trust.max(0.0);
            }
            let finite = numbers.norm.is_finite();
            let sum: i32 = if finite { copies.sum[lane] as i32 } else { 0 };
            panel.start[place] = -level.offset() * sum;
            let turned = axes.map_or(TURNED, Axes::lost);
            numbers.enter::<T>(&mut panel, place, width, (turned, trust));
        }
    }
    panel
}

/// What is known of a copy.
struct Numbers {
    /// The sum of squares.
    norm: f64,
    scale: f32,
    /// The sum of squares of what rounding has lost.
    lost: f64,
    /// The sum of squares of the whole numbers.
    whole: f64,
}

impl Numbers {
    /// Enter the bounds of a row; see the head of the module above.
    fn enter<T: Scalar>(
        &self,
        panel: &mut Panel,
        place: usize,
        width: usize,
        (turned, trust): (f64, f32),
    ) {
        if !self.norm.is_finite() {
            (panel.error[place], panel.reach[place]) = (f32::INFINITY, f32::INFINITY);
            panel.copy[place] = f32::INFINITY;
            return;
        }
        let unit = if size_of::<T>() == 4 {
            UNIT
        } else {
            f64::EPSILON / 2.0
        };
        let terms = width as f64 * unit;
        let gamma = terms / (1.0 - terms);
        let norm = (self.norm * SUMMED).sqrt() * SUMMED;
        let copy = f64::from(self.scale) * self.whole.sqrt() * SUMMED;
        let reach = norm.max(copy);
        let lost = (self.lost * SUMMED).sqrt() * SUMMED + turned * norm;
        let error = (lost + (gamma + 32.0 * UNIT) * reach) * (1.0 + 32.0 * UNIT);
        panel.scale[place] = self.scale;
        // Never 0: products with it decide about absent columns.
        panel.error[place] = round_up(error).max(f32::MIN_POSITIVE) * trust;
        panel.reach[place] = round_up(reach);
        panel.copy[place] = round_up(copy).max(f32::MIN_POSITIVE);
    }
}

/// Of eight rows.
struct Copied {
    /// The sum of squares of what was rounded.
    turned: [f64; LANE],
    scale: [f32; LANE],
    lost: [f64; LANE],
    whole: [f64; LANE],
    sum: [f64; LANE],
    /// Four positions of each row in a word; of rows that are no numbers zeros.
    words: Vec<[u32; LANE]>,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn round_avx512(
    work: &mut [[f64; LANE]],
    axes: Option<&Axes>,
    level: ByteLevel,
) -> ([f64; LANE], Copied) {
    round(work, axes, level)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn round_avx2(
    work: &mut [[f64; LANE]],
    axes: Option<&Axes>,
    level: ByteLevel,
) -> ([f64; LANE], Copied) {
    round(work, axes, level)
}

/// Turn rows and round them in place; return their sums of squares, and what the copies lose.
#[inline(always)]
fn round(rows: &mut [[f64; LANE]], axes: Option<&Axes>, level: ByteLevel) -> ([f64; LANE], Copied) {
    let norms = sum_squares(rows);
    let mut coordinates;
    let (work, turned) = match axes {
        None => {
            rotate(rows);
            (rows, [0.0; LANE])
        }
        Some(axes) => {
            coordinates = axes.project(rows);
            let turned = sum_squares(&coordinates);
            rotate(&mut coordinates);
            (&mut coordinates[..], turned)
        }
    };
    let mut most = [0.0_f64; LANE];
    for values in work.iter() {
        for lane in 0..LANE {
            let size = values[lane].abs();
            most[lane] = if size > most[lane] { size } else { most[lane] };
        }
    }
    let largest = f64::from(level.largest());
    let scale = most.map(|most| (most / largest) as f32);
    let wide = scale.map(f64::from);
    let inverse = wide.map(|scale| if scale > 0.0 { 1.0 / scale } else { 0.0 });
    let mut found = Copied {
        turned,
        scale,
        lost: [0.0; LANE],
        whole: [0.0; LANE],
        sum: [0.0; LANE],
        words: vec![[0; LANE]; work.len().div_ceil(4)],
    };
    for values in work.iter_mut() {
        for lane in 0..LANE {
            let near = (values[lane] * inverse[lane]).round_ties_even();
            let near = if near > largest { largest } else { near };
            let near = if near < -largest { -largest } else { near };
            let rest = values[lane] - wide[lane] * near;
            found.lost[lane] += rest * rest;
            found.whole[lane] += near * near;
            found.sum[lane] += near;
            values[lane] = near;
        }
    }
    for (four, word) in work.chunks(4).zip(&mut found.words) {
        for (byte, values) in four.iter().enumerate() {
            for lane in 0..LANE {
                let whole = if norms[lane].is_finite() {
                    values[lane] as i32
                } else {
                    0
                };
                word[lane] |= (whole as u32 & 0xFF) << (8 * byte);
            }
        }
    }
    (norms, found)
}

#[inline(always)]
fn sum_squares(rows: &[[f64; LANE]]) -> [f64; LANE] {
    let mut sums = [0.0; LANE];
    for values in rows {
        for lane in 0..LANE {
            sums[lane] += values[lane] * values[lane];
        }
    }
    sums
}

/// Turn rows by signs and Hadamard's matrix, over the first and over the last 2^k positions: an orthogonal map.
///
/// A window of 2^k positions is one product with a constant, which two roundings have made, and k sums of two numbers. A
/// step loses at most 2^-53 of the norm of what it returns, and the steps after it enlarge both alike; so the window
/// loses at most (k + 3) 2^-53 of the norm.
#[inline(always)]
pub(super) fn rotate(work: &mut [[f64; LANE]]) {
    let window = if work.is_empty() {
        return;
    } else {
        1 << work.len().ilog2()
    };
    spread(&mut work[..window], 1);
    if window < work.len() {
        let start = work.len() - window;
        spread(&mut work[start..], 2);
    }
}

#[inline(always)]
fn spread(work: &mut [[f64; LANE]], seed: u64) {
    let scale = 1.0 / (work.len() as f64).sqrt();
    let mut state = seed;
    for values in work.iter_mut() {
        // The generator of Steele, Lea and Flood (SplitMix64), of which one bit is the sign.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let factor = if mixed >> 63 == 0 { scale } else { -scale };
        for value in values.iter_mut() {
            *value *= factor;
        }
    }
    let mut step = 1;
    while step < work.len() {
        for pair in work.chunks_exact_mut(2 * step) {
            let (low, high) = pair.split_at_mut(step);
            for (a, b) in low.iter_mut().zip(high) {
                for lane in 0..LANE {
                    let (sum, difference) = (a[lane] + b[lane], a[lane] - b[lane]);
                    (a[lane], b[lane]) = (sum, difference);
                }
            }
        }
        step *= 2;
    }
}
