//! Sums of products of whole numbers by vectors of AVX-512 VNNI, AVX-VNNI and AVX2.

use std::arch::x86_64::*;
use std::array::from_fn;

use super::panel::{Side, LANES, ROWS};
use super::pass::{find_with, Columns, Group, Kernel, Sums, PANELS};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
pub(super) fn find_avx512_vnni(
    group: &Group<'_>,
    side: &Side<'_>,
    columns: &[Columns],
    how: (&dyn Fn(usize) -> bool, usize),
    found: &mut Vec<(u32, u32)>,
) -> bool {
    // SAFETY: the features of the kernel are those of this function.
    unsafe { find_with::<Avx512Vnni>(group, side, columns, how, found) }
}

#[target_feature(enable = "avxvnni,avx2,fma")]
pub(super) fn find_avx_vnni(
    group: &Group<'_>,
    side: &Side<'_>,
    columns: &[Columns],
    how: (&dyn Fn(usize) -> bool, usize),
    found: &mut Vec<(u32, u32)>,
) -> bool {
    // SAFETY: the features of the kernel are those of this function.
    unsafe { find_with::<AvxVnni>(group, side, columns, how, found) }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn find_avx2(
    group: &Group<'_>,
    side: &Side<'_>,
    columns: &[Columns],
    how: (&dyn Fn(usize) -> bool, usize),
    found: &mut Vec<(u32, u32)>,
) -> bool {
    // SAFETY: the features of the kernel are those of this function.
    unsafe { find_with::<Avx2>(group, side, columns, how, found) }
}

/// Add the products of 8 rows with three panels of 16 columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn sum_avx512_vnni(
    words: &[[u32; ROWS]],
    panels: [&[[u32; LANES]]; PANELS],
    sums: &mut [Sums; PANELS],
) {
    let n = words.len();
    let [p0, p1, p2] = panels.map(|panel| &panel[..n]);
    let mut kept: [[__m512i; PANELS]; ROWS] = from_fn(|r| {
        from_fn(|v| {
            // SAFETY: a row of sums is 16 numbers of 32 bits; so below.
            unsafe { _mm512_loadu_si512(sums[v][r].as_ptr().cast()) }
        })
    });
    for at in 0..n {
        let b = [&p0[at], &p1[at], &p2[at]].map(|four| {
            // SAFETY: as above.
            unsafe { _mm512_loadu_si512(four.as_ptr().cast()) }
        });
        for r in 0..ROWS {
            let a = _mm512_set1_epi32(words[at][r] as i32);
            for v in 0..PANELS {
                kept[r][v] = _mm512_dpbusd_epi32(kept[r][v], a, b[v]);
            }
        }
    }
    for r in 0..ROWS {
        for v in 0..PANELS {
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(sums[v][r].as_mut_ptr().cast(), kept[r][v]) };
        }
    }
}

/// Half a panel of 4 rows: what fits in 16 registers.
macro_rules! narrow {
    ($name:ident, $features:literal, $sum:expr) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(
            words: &[[u32; ROWS]],
            panels: [&[[u32; LANES]]; PANELS],
            sums: &mut [Sums; PANELS],
        ) {
            /// Rows at a time.
            /// By arithmetic: 8 of 16 registers hold sums, 3 factors.
            const FEW: usize = 4;
            for (panel, sums) in panels.iter().zip(sums) {
                let panel = &panel[..words.len()];
                for start in (0..ROWS).step_by(FEW) {
                    let mut kept: [[__m256i; 2]; FEW] = from_fn(|r| {
                        from_fn(|v| {
                            // SAFETY: half a row of sums is 8 numbers of 32 bits; so below.
                            unsafe { _mm256_loadu_si256(sums[start + r][8 * v..].as_ptr().cast()) }
                        })
                    });
                    for (fours, columns) in words.iter().zip(panel) {
                        let b: [__m256i; 2] = from_fn(|v| {
                            // SAFETY: as above.
                            unsafe { _mm256_loadu_si256(columns[8 * v..].as_ptr().cast()) }
                        });
                        for r in 0..FEW {
                            let a = _mm256_set1_epi32(fours[start + r] as i32);
                            for v in 0..2 {
                                kept[r][v] = $sum(kept[r][v], a, b[v]);
                            }
                        }
                    }
                    for r in 0..FEW {
                        for v in 0..2 {
                            let place = sums[start + r][8 * v..].as_mut_ptr().cast();
                            // SAFETY: as above.
                            unsafe { _mm256_storeu_si256(place, kept[r][v]) };
                        }
                    }
                }
            }
        }
    };
}

narrow!(sum_avx_vnni, "avxvnni,avx2", |sum, a, b| {
    _mm256_dpbusd_avx_epi32(sum, a, b)
});
// Two products of 127 x 63 fit in 16 bits.
narrow!(sum_avx2, "avx2", |sum, a, b| {
    let pairs = _mm256_maddubs_epi16(a, b);
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
});

macro_rules! kernel {
    ($name:ident, $sum:ident) => {
        pub(super) struct $name;

        impl Kernel for $name {
            #[inline(always)]
            unsafe fn sum(
                words: &[[u32; ROWS]],
                panels: [&[[u32; LANES]]; PANELS],
                sums: &mut [Sums; PANELS],
            ) {
                // SAFETY: contract of the trait.
                unsafe { $sum(words, panels, sums) }
            }
        }
    };
}

kernel!(Avx512Vnni, sum_avx512_vnni);
kernel!(AvxVnni, sum_avx_vnni);
kernel!(Avx2, sum_avx2);
