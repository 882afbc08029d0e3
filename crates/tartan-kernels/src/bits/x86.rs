//! Shared bits counted by vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;
use std::array::from_fn;

use super::pass::{count_common, Bounds, LANES, ROWS};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt")]
pub(super) fn pass_avx512(
    words: &[[u32; ROWS]],
    panel: &[[u32; LANES]],
    rows: &Bounds<ROWS>,
    columns: &Bounds<LANES>,
) -> [u16; ROWS] {
    let mut sums = [_mm512_setzero_si512(); ROWS];
    for (few, column) in words.iter().zip(panel) {
        // SAFETY: a panel has 16 words of 32 bits in a row; so below.
        let b = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
        for r in 0..ROWS {
            let both = _mm512_and_si512(_mm512_set1_epi32(few[r] as i32), b);
            sums[r] = _mm512_add_epi32(sums[r], _mm512_popcnt_epi32(both));
        }
    }
    // SAFETY: as above.
    let (ones, rest, share, extra) = unsafe {
        (
            _mm512_loadu_ps(columns.ones.as_ptr()),
            _mm512_loadu_si512(columns.rest.as_ptr().cast()),
            _mm512_loadu_ps(columns.share.as_ptr()),
            _mm512_loadu_ps(columns.extra.as_ptr()),
        )
    };
    from_fn(|r| {
        let rest = _mm512_min_epi32(rest, _mm512_set1_epi32(rows.rest[r]));
        let most = _mm512_cvtepi32_ps(_mm512_add_epi32(sums[r], rest));
        let may = _mm512_add_ps(most, _mm512_max_ps(extra, _mm512_set1_ps(rows.extra[r])));
        let share = _mm512_min_ps(share, _mm512_set1_ps(rows.share[r]));
        let must = _mm512_mul_ps(share, _mm512_add_ps(ones, _mm512_set1_ps(rows.ones[r])));
        _mm512_cmp_ps_mask::<_CMP_GE_OQ>(may, must)
    })
}

/// Words whose bits are counted in bytes.
/// By arithmetic: 31 words of at most 8 bits a byte are below 256.
const RUN: usize = 31;

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn pass_avx2(
    words: &[[u32; ROWS]],
    panel: &[[u32; LANES]],
    rows: &Bounds<ROWS>,
    columns: &Bounds<LANES>,
) -> [u16; ROWS] {
    /// Rows at a time.
    /// By arithmetic: 4 of 16 registers hold sums, 2 columns, 3 a table, a mask and a factor.
    const FEW: usize = 2;
    let mut found = [0; ROWS];
    for start in (0..ROWS).step_by(FEW) {
        let mut sums = [[_mm256_setzero_si256(); 2]; FEW];
        for (words, panel) in words.chunks(RUN).zip(panel.chunks(RUN)) {
            let mut bytes = [[_mm256_setzero_si256(); 2]; FEW];
            for (few, column) in words.iter().zip(panel) {
                // SAFETY: half a panel is 8 words of 32 bits in a row; so below.
                let b: [__m256i; 2] =
                    from_fn(|v| unsafe { _mm256_loadu_si256(column[8 * v..].as_ptr().cast()) });
                for r in 0..FEW {
                    let a = _mm256_set1_epi32(few[start + r] as i32);
                    for v in 0..2 {
                        let ones = count_bytes(_mm256_and_si256(a, b[v]));
                        bytes[r][v] = _mm256_add_epi8(bytes[r][v], ones);
                    }
                }
            }
            for r in 0..FEW {
                for v in 0..2 {
                    sums[r][v] = _mm256_add_epi32(sums[r][v], add_bytes(bytes[r][v]));
                }
            }
        }
        for r in 0..FEW {
            for (v, &sums) in sums[r].iter().enumerate() {
                let mask = test(sums, start + r, rows, v, columns);
                found[start + r] |= (mask as u16) << (8 * v);
            }
        }
    }
    found
}

/// Count the bits of each byte by its halves.
#[target_feature(enable = "avx2")]
#[inline]
fn count_bytes(values: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
    ));
    let half = _mm256_set1_epi8(15);
    let low = _mm256_and_si256(values, half);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(values), half);
    _mm256_add_epi8(
        _mm256_shuffle_epi8(table, low),
        _mm256_shuffle_epi8(table, high),
    )
}

/// Add the four bytes of each word of 32 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn add_bytes(bytes: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

/// Test half a panel of sums of a row against the bound.
#[target_feature(enable = "avx2")]
#[inline]
fn test(
    sums: __m256i,
    row: usize,
    rows: &Bounds<ROWS>,
    half: usize,
    columns: &Bounds<LANES>,
) -> i32 {
    let at = 8 * half;
    // SAFETY: half a panel is 8 numbers of 32 bits.
    let (ones, rest, share, extra) = unsafe {
        (
            _mm256_loadu_ps(columns.ones[at..].as_ptr()),
            _mm256_loadu_si256(columns.rest[at..].as_ptr().cast()),
            _mm256_loadu_ps(columns.share[at..].as_ptr()),
            _mm256_loadu_ps(columns.extra[at..].as_ptr()),
        )
    };
    let rest = _mm256_min_epi32(rest, _mm256_set1_epi32(rows.rest[row]));
    let most = _mm256_cvtepi32_ps(_mm256_add_epi32(sums, rest));
    let may = _mm256_add_ps(most, _mm256_max_ps(extra, _mm256_set1_ps(rows.extra[row])));
    let share = _mm256_min_ps(share, _mm256_set1_ps(rows.share[row]));
    let must = _mm256_mul_ps(share, _mm256_add_ps(ones, _mm256_set1_ps(rows.ones[row])));
    _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(may, must))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,popcnt")]
pub(super) fn common_avx512(left: &[u64], right: &[u64]) -> u32 {
    count_common(left, right)
}

#[target_feature(enable = "avx2,popcnt")]
pub(super) fn common_avx2(left: &[u64], right: &[u64]) -> u32 {
    count_common(left, right)
}
