//! Pairwise clustering: the product of stored dissimilarities and a few columns, and the small steps around it.
//!
//! `product` reads each stored value once and multiplies it with all columns: it is bound by memory up to about
//! ten columns. Missing pairs are left out, and the sum of the column over the known pairs (the mass) is written
//! beside the sum. `costs` and `assign` are the rest of a step of expectation-maximisation. `measure` takes a level off
//! products; `Measured` and `Partition` are the local search at the end.
//!
//! Precision: int16 and f32 are multiplied in f32. Lanes sum at most [`PANEL`] terms together before they are carried
//! over to f64, so a sum of terms of one sign is right to about 1e-6 of itself, mostly to 1e-7. f64 is multiplied
//! in f64. Each row of the result depends on its own row of the matrix only, never on the number of threads or on
//! the other rows of the call; sums over rows are taken in fixed chunks in order.

use std::sync::Mutex;

use rayon::prelude::*;

mod block;
mod level;
mod search;
mod steps;
#[cfg(test)]
mod tests;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use block::Stored;
pub use level::{below, measure, nearest, Below};
pub use search::{Measured, Partition};
pub use steps::{assign, costs, scratch_len, ColumnCosts};
pub use types::{padded, Real, Swapped, PADDING, PANEL};

use block::VectorLevel;
use types::SMALL;

/// Rows of one task: a multiple of every register block's rows.
/// By judgement: few enough that threads end together. `tartan bench pwc` holds the time.
const TASK_ROWS: usize = 24;

/// Columns that are packed, and mostly multiplied, together.
/// By arithmetic: eight accumulators and three rows fill the registers. `tartan bench pwc` measures the product.
const STRIP: usize = 8;

/// Transpose n x k columns into k runs of `padded(n)` values, zeros at their ends.
pub fn pack<F: Real>(columns: &[f64], k: usize, packed: &mut [F]) {
    assert!(
        k > 0 && columns.len().is_multiple_of(k),
        "columns are not n x k"
    );
    let n = columns.len() / k;
    let stride = padded(n);
    assert!(
        packed.len() == stride * k,
        "packed columns have another length"
    );
    let pack_run = |(number, run): (usize, &mut [F])| {
        // A few rows at a time: of a row and of each column a cache line or two.
        for (block, rows) in columns.chunks(PADDING * k).enumerate() {
            for (c, column) in run.chunks_exact_mut(stride).enumerate() {
                let values = rows.iter().skip(number * STRIP + c).step_by(k);
                for (to, value) in column[block * PADDING..].iter_mut().zip(values) {
                    *to = F::of(*value);
                }
            }
        }
        for column in run.chunks_exact_mut(stride) {
            column[n..].fill(F::default());
        }
    };
    if columns.len() < SMALL {
        packed
            .chunks_mut(STRIP * stride)
            .enumerate()
            .for_each(pack_run);
    } else {
        packed
            .par_chunks_mut(STRIP * stride)
            .enumerate()
            .for_each(pack_run);
    }
}

/// Write rows times columns: `out[r][c]` is the sum of `rows[r][b] * column[c][b]` over all known pairs (r, b).
///
/// `rows` holds rows of n stored values, `packed` the k columns from [`pack`], `out` k sums a row. With `mass`,
/// missing values are left out of the sums, and `mass[r][c]` is the sum of `column[c][b]` over the known pairs;
/// without it no value may be missing. Panics when lengths disagree.
pub fn product<T: Stored>(
    rows: &[T],
    n: usize,
    packed: &[T::Real],
    k: usize,
    out: &mut [f64],
    mass: Option<&mut [f64]>,
) {
    product_at(VectorLevel::widest(), rows, n, packed, k, out, mass);
}

fn product_at<T: Stored>(
    level: VectorLevel,
    rows: &[T],
    n: usize,
    packed: &[T::Real],
    k: usize,
    out: &mut [f64],
    mass: Option<&mut [f64]>,
) {
    assert!(
        n > 0 && k > 0 && rows.len().is_multiple_of(n),
        "rows are not r x n"
    );
    assert!(
        packed.len() == padded(n) * k,
        "packed columns have another length"
    );
    assert!(out.len() == rows.len() / n * k, "out must be r x k");
    if let Some(mass) = &mass {
        assert!(mass.len() == out.len(), "mass must be r x k");
    }
    if rows.len() * k < 4 * SMALL {
        T::task(level, rows, n, packed, out, mass);
        return;
    }
    let tasks = rows
        .chunks(TASK_ROWS * n)
        .zip(out.chunks_mut(TASK_ROWS * k));
    match mass {
        None => hand_out(tasks, |(rows, out)| {
            T::task(level, rows, n, packed, out, None);
        }),
        Some(mass) => hand_out(
            tasks.zip(mass.chunks_mut(TASK_ROWS * k)),
            |((rows, out), mass)| T::task(level, rows, n, packed, out, Some(mass)),
        ),
    }
}

/// Do tasks on all threads, the calling one among them: it begins at once, while the others wake up. A product of
/// some thousand items takes a millisecond, and waking a thread and being woken by it a tenth of that.
fn hand_out<T: Send>(tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let tasks = Mutex::new(tasks);
    let next = || tasks.lock().ok().and_then(|mut tasks| tasks.next());
    let serve = || {
        while let Some(task) = next() {
            work(task);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..rayon::current_num_threads() {
            scope.spawn(|_| serve());
        }
        serve();
    });
}
