//! Run files of a sort whose checksums are right and whose content is not.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the property tests call the rest")]
#[path = "../../crates/tartan-sort/tests/engine/common.rs"]
mod common;
#[allow(dead_code, reason = "the property tests call the rest")]
#[path = "../../crates/tartan-sort/tests/engine/hostile.rs"]
mod hostile;

fuzz_target!(|data: &[u8]| hostile::made_up_run(data));
