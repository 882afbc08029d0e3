//! Disk-to-disk sort: more records than memory holds, at the speed of the disk.
//!
//! Phase 1 cuts the input into chunks that fit a buffer, sorts them, and stores each as a run (`sort_phase`, `run`).
//! Phase 2 fetches ranges of all runs, merges each in memory and writes it to its place (`forecast`, `fetch`,
//! `merge_phase`, `sink`). Within a phase reading, sorting, packing and writing run at the same time, in threads
//! that pass buffers through bounded queues. Memory is what `engine::JobPlan` says; the output does not depend on it,
//! nor on the number of threads, and equal keys keep their order.
//!
//! Python does not appear here.

pub mod buffer;
pub mod control;
pub mod copy;
pub mod decimals;
pub mod delimited;
pub mod disk;
pub mod engine;
pub mod error;
pub mod faults;
pub mod fetch;
pub mod folders;
pub mod forecast;
pub mod form;
pub mod job;
pub mod kernels;
pub mod levels;
pub mod memory;
pub mod merge_phase;
pub mod pack_policy;
pub mod pieces;
pub mod queue;
pub mod resume;
pub mod rows;
pub mod run;
pub mod sink;
pub mod sort_phase;
pub mod source;

#[cfg(test)]
mod testing;
