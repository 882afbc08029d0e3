//! Eight rows against a panel of 16 columns: which pairs the bits that they share may let pass.

use std::array::from_fn;
use std::sync::OnceLock;

/// Columns of a panel: the 32-bit lanes of a vector of AVX-512.
/// By arithmetic.
pub(crate) const LANES: usize = 16;

/// Rows that meet a panel at a time.
/// By arithmetic: 8 sums and a column are 9 of 32 registers, and a load feeds three instructions.
pub(crate) const ROWS: usize = 8;

/// What counts bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitLevel {
    /// No vectors but those that the compiler finds: the twin of the others.
    Plain,
    /// Counts of half bytes by `vpshufb`.
    Avx2,
    /// `vpopcntd` of 512 bits.
    Avx512,
}

impl BitLevel {
    /// All that this machine can run, the fastest last.
    pub fn available() -> Vec<BitLevel> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let mut found = vec![BitLevel::Plain];
            if !(has!("avx2") && has!("popcnt")) {
                return found;
            }
            found.push(BitLevel::Avx2);
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            if wide && has!("avx512vpopcntdq") {
                found.push(BitLevel::Avx512);
            }
            found
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![BitLevel::Plain]
    }

    /// The fastest on this machine.
    pub fn fastest() -> BitLevel {
        static FOUND: OnceLock<BitLevel> = OnceLock::new();
        *FOUND.get_or_init(|| *BitLevel::available().last().expect("there is a plain one"))
    }
}

/// What the bound needs of rows or columns, side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds<const N: usize> {
    /// Bits of each.
    pub ones: [f32; N],
    /// Bits that are not counted here.
    pub rest: [i32; N],
    /// A pair is ruled out where what it may share, and the larger extra, are below the smaller share of all bits.
    pub share: [f32; N],
    pub extra: [f32; N],
}

impl<const N: usize> Bounds<N> {
    /// Those that let nothing pass.
    pub const NONE: Bounds<N> = Bounds {
        ones: [0.0; N],
        rest: [0; N],
        share: [4.0; N],
        extra: [-1.0; N],
    };

    /// The least share and the largest extra.
    pub fn loosest(&self) -> (f32, f32) {
        let least = self.share.iter().fold(f32::INFINITY, |a, &b| a.min(b));
        let largest = self.extra.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        (least, largest)
    }
}

/// The twin of the kernels; see [`pass`](super::pass).
pub(super) fn pass_plain(
    words: &[[u32; ROWS]],
    panel: &[[u32; LANES]],
    rows: &Bounds<ROWS>,
    columns: &Bounds<LANES>,
) -> [u16; ROWS] {
    let mut sums = [[0_u32; LANES]; ROWS];
    for (few, column) in words.iter().zip(panel) {
        for (sums, &a) in sums.iter_mut().zip(few) {
            for (sum, &b) in sums.iter_mut().zip(column) {
                *sum += (a & b).count_ones();
            }
        }
    }
    from_fn(|r| {
        (0..LANES).fold(0, |found, lane| {
            let most = sums[r][lane] as i32 + columns.rest[lane].min(rows.rest[r]);
            let may = most as f32 + columns.extra[lane].max(rows.extra[r]);
            let must = columns.share[lane].min(rows.share[r]) * (columns.ones[lane] + rows.ones[r]);
            found | (u16::from(may >= must) << lane)
        })
    })
}

/// Count the bits that two rows share, one word after the other.
#[inline(always)]
pub(super) fn count_common(left: &[u64], right: &[u64]) -> u32 {
    let both = left.iter().zip(right);
    both.map(|(a, b)| (a & b).count_ones()).sum()
}
