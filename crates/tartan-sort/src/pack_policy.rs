//! Whether runs are packed: decided from the first chunk, by what packing saves and costs.

use crate::kernels;

use crate::control::thread_seconds;
use crate::form::Form;
use crate::memory::words;
use crate::run::writer::{pack, PackScratch};

/// What the caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    Auto,
    Always,
    Never,
}

/// What was measured, and what follows. Bandwidths are bytes of plain values in a second.
#[derive(Clone, Debug)]
pub struct Decision {
    pub packed: bool,
    pub reason: String,
    pub pack_bytes_per_second: Option<f64>,
    pub unpack_bytes_per_second: Option<f64>,
}

/// Speeds of the first chunk, in bytes of plain values in a second.
#[derive(Clone, Copy, Debug)]
pub struct Speeds {
    /// One stream from the source, with nothing else to do for the disk.
    pub disk: f64,
    /// All sorting threads together, by processor time.
    pub sort: f64,
    /// Sorting threads.
    pub threads: usize,
}

/// How many blocks are tried.
/// By judgement: 32 blocks of 512 keys, tens of microseconds, tell ratio and speed of the codec.
const TRIED_BLOCKS: usize = 32;

/// Decide from a sorted chunk.
pub fn decide(
    wish: Pack,
    form: &Form,
    sorted: &[u8],
    block_records: usize,
    scratch: &mut PackScratch,
    speeds: Speeds,
) -> Decision {
    let plain = |reason: &str| Decision {
        packed: false,
        reason: reason.to_owned(),
        pack_bytes_per_second: None,
        unpack_bytes_per_second: None,
    };
    if !form.is_word() {
        return plain("records are not packed");
    }
    if wish == Pack::Never {
        return plain("asked for");
    }
    let trial = try_blocks(form, sorted, block_records, scratch);
    let (packed, reason) = match wish {
        Pack::Always => (true, "asked for".to_owned()),
        _ => trial.judge(speeds),
    };
    Decision {
        packed,
        reason,
        pack_bytes_per_second: trial.speed(trial.pack_seconds),
        unpack_bytes_per_second: trial.speed(trial.unpack_seconds),
    }
}

#[derive(Default)]
struct Trial {
    plain: usize,
    stored: usize,
    pack_seconds: f64,
    unpack_seconds: f64,
}

impl Trial {
    fn speed(&self, seconds: f64) -> Option<f64> {
        (seconds > 0.0).then(|| self.plain as f64 / seconds)
    }

    /// Saved transfers against the time of the codec, all for one byte of plain values. Each byte of a run is
    /// written once and read once; the source is read and the output written besides.
    fn judge(&self, speeds: Speeds) -> (bool, String) {
        let plain = self.plain.max(1) as f64;
        let saved = 1.0 - self.stored as f64 / plain;
        let gain = saved * 2.0 / speeds.disk;
        let cost = (self.pack_seconds + self.unpack_seconds) / plain / speeds.threads as f64;
        let storage_bound = 4.0 / speeds.disk > 2.0 / speeds.sort;
        if saved < 0.02 {
            return (false, format!("packing saves {:.0} %", 100.0 * saved));
        }
        let bound = if storage_bound {
            "storage"
        } else {
            "the processor"
        };
        let text = format!(
            "{bound} is the bottleneck: packing saves {:.0} %, {:.2} ns a byte of transfers for {:.2} ns of codec",
            100.0 * saved, 1e9 * gain, 1e9 * cost
        );
        (storage_bound || gain > cost, text)
    }
}

fn try_blocks(
    form: &Form,
    sorted: &[u8],
    block_records: usize,
    scratch: &mut PackScratch,
) -> Trial {
    let block_bytes = block_records * form.width();
    let n_blocks = sorted.len().div_ceil(block_bytes);
    let step = n_blocks.div_ceil(TRIED_BLOCKS).max(1);
    let mut trial = Trial::default();
    let mut back = vec![0_u64; block_bytes.div_ceil(8)];
    for start in (0..n_blocks).step_by(step).map(|block| block * block_bytes) {
        let block = &sorted[start..sorted.len().min(start + block_bytes)];
        let since = thread_seconds();
        let packed = pack(form, block, scratch);
        trial.pack_seconds += thread_seconds() - since;
        trial.plain += block.len();
        trial.stored += packed.map_or(block.len(), <[u8]>::len);
        let since = thread_seconds();
        unpack_trial(form, packed, block, &mut back);
        trial.unpack_seconds += thread_seconds() - since;
    }
    trial
}

fn unpack_trial(form: &Form, packed: Option<&[u8]>, block: &[u8], back: &mut [u64]) {
    let Some(packed) = packed else { return };
    let whole = match form {
        Form::Word32(_) => {
            let n = words::<u32>(block).len();
            // SAFETY: u64 memory holds any u32 values, and is aligned for them.
            let (_, back, _) = unsafe { back.align_to_mut::<u32>() };
            kernels::unpack(packed, &mut back[..n]).is_ok()
        }
        _ => kernels::unpack(packed, &mut back[..block.len() / 8]).is_ok(),
    };
    debug_assert!(whole, "what was packed can be unpacked");
}
