//! One pass of a few rows over many columns: which pairs a bound does not rule out.

use super::panel::{ByteLevel, Side, LANES, ROWS};

/// Panels that meet a few rows at a time.
/// By arithmetic: see `ROWS`.
pub(crate) const PANELS: usize = 3;

/// Sums of a few rows with the columns of a panel.
pub(crate) type Sums = [[i32; LANES]; ROWS];

/// What the bound needs of the columns of a panel.
#[derive(Clone)]
pub(crate) struct Columns {
    pub scale: [f32; LANES],
    pub reach: [f32; LANES],
    pub error: [f32; LANES],
    pub shift: [f32; LANES],
    pub bar: [f32; LANES],
    pub tail: [f32; LANES],
}

/// What the bound needs of a row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    pub scale: f32,
    pub error: f32,
    pub copy: f32,
    pub bar: f32,
    pub goal: f32,
    pub tail: f32,
}

/// A few rows, made ready for a pass.
pub(crate) struct Group<'a> {
    /// Four unsigned positions of each row in a word.
    pub words: &'a [[u32; ROWS]],
    pub bounds: [Bounds; ROWS],
    pub height: usize,
}

/// Fill `words` with rows `row .. row + height` of a side, made unsigned.
pub(crate) fn pack(
    side: &Side<'_>,
    row: usize,
    height: usize,
    level: ByteLevel,
    words: &mut [[u32; ROWS]],
) {
    let less = 0x0101_0101 * (128 - level.offset() as u32);
    for r in 0..ROWS {
        let (panel, lane) = side.place(row + r.min(height - 1));
        for (word, four) in words.iter_mut().zip(&panel.words) {
            word[r] = (four[lane] ^ 0x8080_8080).wrapping_sub(less);
        }
    }
}

/// The plain twin of all kernels: sums of one panel.
pub(crate) fn sum_plainly(
    words: &[[u32; ROWS]],
    panels: [&[[u32; LANES]]; PANELS],
    sums: &mut [Sums; PANELS],
) {
    for (sums, panel) in sums.iter_mut().zip(panels) {
        for (fours, columns) in words.iter().zip(panel) {
            for r in 0..ROWS {
                for lane in 0..LANES {
                    let (a, b) = (fours[r].to_le_bytes(), columns[lane].to_le_bytes());
                    for byte in 0..4 {
                        sums[r][lane] += i32::from(a[byte]) * i32::from(b[byte] as i8);
                    }
                }
            }
        }
    }
}

/// Sums the products of a few rows with three panels.
pub(crate) trait Kernel {
    /// Add to `sums`.
    ///
    /// # Safety
    ///
    /// The machine has the features of the kernel.
    unsafe fn sum(
        words: &[[u32; ROWS]],
        panels: [&[[u32; LANES]]; PANELS],
        sums: &mut [Sums; PANELS],
    );
}

/// The twin.
pub(crate) struct Plain;

impl Kernel for Plain {
    unsafe fn sum(
        words: &[[u32; ROWS]],
        panels: [&[[u32; LANES]]; PANELS],
        sums: &mut [Sums; PANELS],
    ) {
        sum_plainly(words, panels, sums);
    }
}

/// [`find`] with one kernel.
///
/// # Safety
///
/// As [`Kernel::sum`].
#[inline(always)]
pub(crate) unsafe fn find_with<K: Kernel>(
    group: &Group<'_>,
    side: &Side<'_>,
    columns: &[Columns],
    (wanted, most): (&dyn Fn(usize) -> bool, usize),
    found: &mut Vec<(u32, u32)>,
) -> bool {
    for first in (0..side.panels.len()).step_by(PANELS) {
        let last = side.panels.len().min(first + PANELS);
        if !(first..last).any(wanted) {
            continue;
        }
        let at: [usize; PANELS] = std::array::from_fn(|p| (first + p).min(last - 1));
        let mut sums = at.map(|p| [side.panels[p].start; ROWS]);
        // SAFETY: contract of this function.
        unsafe {
            K::sum(
                group.words,
                at.map(|p| &side.panels[p].words[..]),
                &mut sums,
            )
        };
        for (p, sums) in (first..last).zip(&sums) {
            for (r, sums) in sums.iter().enumerate().take(group.height) {
                if may_any_pass(&group.bounds[r], sums, &columns[p]) {
                    list(&group.bounds[r], sums, &columns[p], |lane| {
                        let at = p * LANES + lane;
                        if at >= side.skipped && at - side.skipped < side.len {
                            found.push((r as u32, (at - side.skipped) as u32));
                        }
                    });
                }
            }
        }
        if found.len() > most {
            return false;
        }
    }
    true
}

/// The left side of the inequality at the head of the module above.
#[inline(always)]
fn reach_of(row: &Bounds, sum: i32, columns: &Columns, lane: usize) -> f32 {
    let bar = columns.bar[lane];
    let bar = if bar > row.bar { bar } else { row.bar };
    row.scale * (columns.scale[lane] * sum as f32)
        + row.error * columns.reach[lane]
        + row.copy * columns.error[lane]
        + row.tail * columns.tail[lane]
        + columns.shift[lane]
        + bar
}

#[inline(always)]
fn is_less(value: f32, goal: f32) -> bool {
    value < goal // not so of NaN
}

#[inline(always)]
fn may_any_pass(row: &Bounds, sums: &[i32; LANES], columns: &Columns) -> bool {
    let mut any = false;
    for (lane, &sum) in sums.iter().enumerate() {
        any |= !is_less(reach_of(row, sum, columns, lane), row.goal);
    }
    any
}

#[cold]
#[inline(never)]
fn list(row: &Bounds, sums: &[i32; LANES], columns: &Columns, mut take: impl FnMut(usize)) {
    for (lane, &sum) in sums.iter().enumerate() {
        if !is_less(reach_of(row, sum, columns, lane), row.goal) {
            take(lane);
        }
    }
}
