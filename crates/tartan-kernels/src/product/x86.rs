//! Products by vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;
use std::array::from_fn;
use std::ops::Range;

use super::{Consumer, Scalar, RUN};

/// One width of vectors: the block of pairs whose sums fill the registers, and the loop over all blocks of a tile.
macro_rules! level {
    (
        $tile:ident, $meet:ident, $block:ident, $real:ty, $features:literal, rows $rows:literal, vectors $vectors:literal of
        $lanes:literal, $load:ident, $store:ident, $splat:ident, $fma:ident
    ) => {
        /// Add the products of some positions of a few rows and of a panel to `sums`.
        #[target_feature(enable = $features)]
        #[inline]
        fn $block(
            rows: [&[$real]; $rows],
            panel: &[[$real; $vectors * $lanes]],
            sums: &mut [[$real; $vectors * $lanes]; $rows],
        ) {
            assert!(rows.iter().all(|row| row.len() == panel.len()));
            let mut kept: [[_; $vectors]; $rows] = from_fn(|r| {
                from_fn(|v| {
                    // SAFETY: vector v of a row of `sums` lies in it, from v * LANES on; so below.
                    unsafe { $load(sums[r].as_ptr().add(v * $lanes)) }
                })
            });
            for (p, column) in panel.iter().enumerate() {
                let b: [_; $vectors] = from_fn(|v| {
                    // SAFETY: as above.
                    unsafe { $load(column.as_ptr().add(v * $lanes)) }
                });
                for r in 0..$rows {
                    // SAFETY: every row is as long as the panel.
                    let a = $splat(unsafe { *rows[r].get_unchecked(p) });
                    for v in 0..$vectors {
                        kept[r][v] = $fma(a, b[v], kept[r][v]);
                    }
                }
            }
            for r in 0..$rows {
                for v in 0..$vectors {
                    // SAFETY: as above.
                    unsafe { $store(sums[r].as_mut_ptr().add(v * $lanes), kept[r][v]) };
                }
            }
        }

        /// Multiply some rows, the first of which is `row`, with the columns of a panel.
        #[target_feature(enable = $features)]
        fn $meet(
            (row, rows): (usize, &[&[$real]]),
            (columns, panel): (Range<usize>, &[[$real; $vectors * $lanes]]),
            waiting: &mut [[[$real; $vectors * $lanes]; $rows]],
            consumer: &mut impl Consumer<$real>,
        ) {
            let mut start = 0;
            while start < panel.len() {
                let stop = panel.len().min(start + RUN);
                for (group, rows) in rows.chunks($rows).enumerate() {
                    let row = row + group * $rows;
                    if !consumer.wants(row..row + rows.len(), columns.clone()) {
                        continue;
                    }
                    let mut sums = match start {
                        0 => [[0.0; $vectors * $lanes]; $rows],
                        _ => waiting[group],
                    };
                    let heads = from_fn(|r| &rows[r.min(rows.len() - 1)][start..stop]);
                    $block(heads, &panel[start..stop], &mut sums);
                    if stop < panel.len() {
                        waiting[group] = sums;
                        continue;
                    }
                    for (r, sums) in sums.iter_mut().enumerate().take(rows.len()) {
                        consumer.take(row + r, columns.start, &mut sums[..columns.len()]);
                    }
                }
                start = stop;
            }
        }

        #[target_feature(enable = $features)]
        fn $tile(left: &[&[$real]], right: &[&[$real]], consumer: &mut impl Consumer<$real>) {
            const N: usize = $vectors * $lanes;
            let width = left.first().map_or(0, |row| row.len());
            let (length, run) = (width.max(1), width.clamp(1, RUN));
            let n_columns = (PACKED_BYTES / size_of::<$real>() / length / N).max(1) * N;
            let n_rows = (ROW_BYTES / size_of::<$real>() / run / $rows).max(1) * $rows;
            let mut waiting = vec![[[0.0; N]; $rows]; n_rows.min(left.len()).div_ceil($rows)];
            let mut packed = Vec::new();
            for (batch, columns) in right.chunks(n_columns).enumerate() {
                pack::<_, N>(columns, &mut packed);
                for (block, rows) in left.chunks(n_rows).enumerate() {
                    for (at, panel) in packed.chunks(width.max(1)).enumerate() {
                        let first = batch * n_columns + at * N;
                        let range = first..right.len().min(first + N);
                        $meet(
                            (block * n_rows, rows),
                            (range, panel),
                            &mut waiting,
                            consumer,
                        );
                    }
                }
            }
        }
    };
}

/// Bytes of the columns that are packed at a time, and of the rows that meet them one after the other: the second cache
/// holds the rows.
const PACKED_BYTES: usize = 4 << 20;
const ROW_BYTES: usize = 512 << 10;

/// Positions that are transposed at a time, so that what is written stays in the first cache.
const TRANSPOSED: usize = 16;

/// Transpose rows into panels of N, one after the other; absent rows of the last one are zeros.
#[inline(always)]
fn pack<T: Copy + Default, const N: usize>(rows: &[&[T]], packed: &mut Vec<[T; N]>) {
    let width = rows[0].len();
    packed.clear();
    packed.resize(rows.len().div_ceil(N) * width, [T::default(); N]);
    for (rows, panel) in rows.chunks(N).zip(packed.chunks_mut(width.max(1))) {
        for (block, panel) in panel.chunks_mut(TRANSPOSED).enumerate() {
            for (lane, row) in rows.iter().enumerate() {
                for (column, &value) in panel.iter_mut().zip(&row[block * TRANSPOSED..]) {
                    column[lane] = value;
                }
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
    ($real:ty, $wide:ident, $half:ident) => {
        impl Scalar for $real {
            unsafe fn avx512(
                left: &[&[Self]],
                right: &[&[Self]],
                consumer: &mut impl Consumer<Self>,
            ) {
                // SAFETY: contract of the trait.
                unsafe { $wide(left, right, consumer) }
            }

            unsafe fn avx2(
                left: &[&[Self]],
                right: &[&[Self]],
                consumer: &mut impl Consumer<Self>,
            ) {
                // SAFETY: contract of the trait.
                unsafe { $half(left, right, consumer) }
            }
        }
    };
}

scalar!(f32, wide_single, half_single);
scalar!(f64, wide_double, half_double);
