//! Rows as 8-bit copies: what is kept of them, and on which processor they are multiplied.

use std::ops::{Deref, Range};
use std::sync::OnceLock;

/// Rows of a panel: the 32-bit lanes of a vector of AVX-512.
/// By arithmetic.
pub(crate) const LANES: usize = 16;

/// Rows that meet a panel at a time.
/// By arithmetic: 8 rows and three panels are 24 of 32 registers.
pub(crate) const ROWS: usize = 8;

/// What multiplies whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteLevel {
    /// No vectors but those that the compiler finds: the twin of the others.
    Plain,
    /// `vpmaddubsw`, whose 16-bit sums hold 7 bits.
    Avx2,
    /// `vpdpbusd` of 256 bits.
    AvxVnni,
    /// `vpdpbusd` of 512 bits.
    Avx512Vnni,
}

impl ByteLevel {
    /// All that this machine can run, the fastest last.
    pub fn available() -> Vec<ByteLevel> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let mut found = vec![ByteLevel::Plain];
            if !(has!("avx2") && has!("fma")) {
                return found;
            }
            found.push(ByteLevel::Avx2);
            if has!("avxvnni") {
                found.push(ByteLevel::AvxVnni);
            }
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            if wide && has!("avx512vnni") {
                found.push(ByteLevel::Avx512Vnni);
            }
            found
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![ByteLevel::Plain]
    }

    /// The fastest on this machine.
    pub fn fastest() -> ByteLevel {
        static FOUND: OnceLock<ByteLevel> = OnceLock::new();
        *FOUND.get_or_init(|| *ByteLevel::available().last().expect("there is a plain one"))
    }

    /// The largest magnitude of a rounded value.
    pub fn largest(self) -> i8 {
        match self {
            ByteLevel::Avx2 => 63,
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
    /// The length of what the copy leaves out; 0 where it leaves out nothing.
    pub tail: [f32; LANES],
}

/// A panel that is kept, or of this tile only.
pub(crate) enum Held<'a> {
    Kept(&'a Panel),
    Own(Box<Panel>),
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
