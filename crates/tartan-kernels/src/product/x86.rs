//! Products by vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use super::{Consumer, Scalar, CHAINS, RUN};

/// One width of vectors: the block of pairs whose sums fill the registers, and the loop over all blocks of a tile.
macro_rules! level {
    (
        $tile:ident, $meet:ident, $block:ident, $real:ty, $features:literal, rows $rows:literal, vectors $vectors:literal of
        $lanes:literal, $load:ident, $store:ident, $splat:ident, $fma:ident
    ) => {
        /// Add the products of some positions of a few rows and of the first vectors of a panel to `sums`.
        #[target_feature(enable = $features)]
        #[inline]
        fn $block<const VECTORS: usize>(
            rows: &[[$real; $rows]],
            panel: &[[$real; $vectors * $lanes]],
            sums: &mut [[$real; $vectors * $lanes]; $rows],
        ) {
            const { assert!(VECTORS <= $vectors) };
            let mut kept: [[_; VECTORS]; $rows] = from_fn(|r| {
                from_fn(|v| {
                    // SAFETY: vector v of a row of `sums` lies in it, from v * LANES on; so below.
                    unsafe { $load(sums[r].as_ptr().add(v * $lanes)) }
                })
            });
            for (row, column) in rows.iter().zip(panel) {
                let b: [_; VECTORS] = from_fn(|v| {
                    // SAFETY: as above.
                    unsafe { $load(column.as_ptr().add(v * $lanes)) }
                });
                for r in 0..$rows {
                    let a = $splat(row[r]);
                    for v in 0..VECTORS {
                        kept[r][v] = $fma(a, b[v], kept[r][v]);
                    }
                }
            }
            for r in 0..$rows {
                for v in 0..VECTORS {
                    // SAFETY: as above.
                    unsafe { $store(sums[r].as_mut_ptr().add(v * $lanes), kept[r][v]) };
                }
            }
        }

        /// Multiply a few rows, `height` of them real, with the columns of some panels, one panel after the other.
        #[target_feature(enable = $features)]
        fn $meet(
            (row, height, rows): (usize, usize, &[[$real; $rows]]),
            (columns, panels): (Range<usize>, &[[$real; $vectors * $lanes]]),
            waiting: &mut [[[$real; $vectors * $lanes]; $rows]],
            consumer: &mut impl Consumer<$real>,
        ) {
            const N: usize = $vectors * $lanes;
            for start in (0..rows.len().max(1)).step_by(RUN) {
                let run = start..rows.len().min(start + RUN);
                for (at, first) in columns.clone().step_by(N).enumerate() {
                    let range = first..columns.end.min(first + N);
                    if !consumer.wants(row..row + height, range.clone()) {
                        continue;
                    }
                    let mut sums = match start {
                        0 => [[0.0; N]; $rows],
                        _ => waiting[at],
                    };
                    let panel = &panels[at * rows.len()..][run.clone()];
                    match range.len().div_ceil($lanes) {
                        1 => $block::<1>(&rows[run.clone()], panel, &mut sums),
                        2 => $block::<2>(&rows[run.clone()], panel, &mut sums),
                        _ => $block::<$vectors>(&rows[run.clone()], panel, &mut sums),
                    }
                    if run.end < rows.len() {
                        waiting[at] = sums;
                        continue;
                    }
                    for (r, sums) in sums.iter_mut().enumerate().take(height) {
                        match range.len() {
                            N => consumer.take(row + r, first, sums), // of a length known to the compiler
                            length => consumer.take(row + r, first, &mut sums[..length]),
                        }
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        fn $tile(
            left: &[&[$real]],
            right: &[&[$real]],
            packed: &mut Vec<$real>,
            consumer: &mut impl Consumer<$real>,
        ) {
            const N: usize = $vectors * $lanes;
            let width = left.first().map_or(0, |row| row.len());
            let n_columns = (PANEL_BYTES / size_of::<$real>() / width.max(1) / N).max(1) * N;
            let mut waiting = vec![[[0.0; N]; $rows]; n_columns.min(right.len()).div_ceil(N)];
            let values_of_rows = left.len().next_multiple_of($rows) * width;
            packed.resize(values_of_rows + waiting.len() * width * N, 0.0);
            let (rows, panels) = packed.split_at_mut(values_of_rows);
            let (rows, panels) = (rows.as_chunks_mut().0, panels.as_chunks_mut().0);
            pack::<_, $rows, $rows>(left, rows);
            for (batch, columns) in right.chunks(n_columns).enumerate() {
                pack::<_, N, $rows>(columns, panels);
                let range = batch * n_columns..batch * n_columns + columns.len();
                for row in (0..left.len()).step_by($rows) {
                    let height = $rows.min(left.len() - row);
                    let group = (row, height, &rows[row / $rows * width..][..width]);
                    $meet(group, (range.clone(), panels), &mut waiting, consumer);
                }
            }
        }
    };
}

/// Bytes of the panels that meet a few rows one after the other, before the next rows: the second cache holds them.
/// By arithmetic: half of a second cache of 1 MiB. `tartan bench vectors` measures whole runs.
const PANEL_BYTES: usize = 512 << 10;

/// Transpose rows into panels of N, one after the other, a few rows at a time. What absent rows of the last panel hold
/// is of no use.
#[target_feature(enable = "avx2")]
fn pack<T: Scalar, const N: usize, const FEW: usize>(rows: &[&[T]], packed: &mut [[T; N]]) {
    const { assert!(N / FEW * FEW == N) };
    let width = rows[0].len();
    for (rows, panel) in rows.chunks(N).zip(packed.chunks_exact_mut(width.max(1))) {
        for first in (0..rows.len()).step_by(FEW) {
            let few: [&[T]; FEW] = from_fn(|r| rows[rows.len().min(first + r + 1) - 1]);
            let mut fours = panel.chunks_exact_mut(4);
            for (p, four) in (&mut fours).enumerate() {
                let heads: [&[T; 4]; FEW] =
                    few.map(|row| row[4 * p..].first_chunk().expect("four positions"));
                for (c, place) in four.iter_mut().enumerate() {
                    place[first..first + FEW].copy_from_slice(&heads.map(|head| head[c]));
                }
            }
            for (p, place) in fours.into_remainder().iter_mut().enumerate() {
                let values = few.map(|row| row[width / 4 * 4 + p]);
                place[first..first + FEW].copy_from_slice(&values);
            }
        }
    }
}

level!(
    wide_single, wide_meet_single, wide_block_single, f32, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", rows 8, vectors 3 of 16,
    _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps
);
level!(
    wide_double, wide_meet_double, wide_block_double, f64, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", rows 8, vectors 3 of 8,
    _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd
);
level!(
    half_single, half_meet_single, half_block_single, f32, "avx2,fma", rows 4, vectors 3 of 8,
    _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps
);
level!(
    half_double, half_meet_double, half_block_double, f64, "avx2,fma", rows 4, vectors 3 of 4,
    _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd
);

macro_rules! scalar {
    ($real:ty, $wide:ident, $half:ident, $chains:ident) => {
        #[target_feature(enable = "avx2,fma")]
        fn $chains(left: [&[$real]; CHAINS], right: [&[$real]; CHAINS]) -> [$real; CHAINS] {
            let n = left[0].len();
            let (left, right) = (left.map(|row| &row[..n]), right.map(|row| &row[..n]));
            let mut sums = [0.0; CHAINS];
            for p in 0..n {
                for at in 0..CHAINS {
                    sums[at] = <$real>::mul_add(left[at][p], right[at][p], sums[at]);
                }
            }
            sums
        }

        impl Scalar for $real {
            unsafe fn chains(left: [&[Self]; CHAINS], right: [&[Self]; CHAINS]) -> [Self; CHAINS] {
                // SAFETY: contract of the trait.
                unsafe { $chains(left, right) }
            }

            fn kept() -> &'static LocalKey<Cell<Vec<Self>>> {
                thread_local! {
                    static KEPT: Cell<Vec<$real>> = const { Cell::new(Vec::new()) };
                }
                &KEPT
            }

            fn scratch() -> &'static LocalKey<Cell<Vec<Self>>> {
                thread_local! {
                    static SCRATCH: Cell<Vec<$real>> = const { Cell::new(Vec::new()) };
                }
                &SCRATCH
            }

            unsafe fn avx512(
                left: &[&[Self]],
                right: &[&[Self]],
                packed: &mut Vec<Self>,
                consumer: &mut impl Consumer<Self>,
            ) {
                // SAFETY: contract of the trait.
                unsafe { $wide(left, right, packed, consumer) }
            }

            unsafe fn avx2(
                left: &[&[Self]],
                right: &[&[Self]],
                packed: &mut Vec<Self>,
                consumer: &mut impl Consumer<Self>,
            ) {
                // SAFETY: contract of the trait.
                unsafe { $half(left, right, packed, consumer) }
            }
        }
    };
}

scalar!(f32, wide_single, half_single, chains_single);
scalar!(f64, wide_double, half_double, chains_double);
