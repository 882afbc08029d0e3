//! Any bytes as packed keys of a run file.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the property tests call the rest")]
#[path = "../../crates/tartan-sort/tests/engine/common.rs"]
mod common;
#[allow(dead_code, reason = "the property tests call the rest")]
#[path = "../../crates/tartan-sort/tests/engine/hostile.rs"]
mod hostile;

fuzz_target!(|data: &[u8]| {
    hostile::packed_keys::<u32>(data);
    hostile::packed_keys::<u64>(data);
});
