//! Messages among the ranks of a communicator on one node, without Python.
//!
//! `arena` is the memory that all processes of a node share, `line` what a rank and the proxy write to each other in it,
//! `wait` how one sleeps until the other has written, `heap` where payloads lie, `matching` which receive takes which
//! send, `desk` what the proxy answers to each request, `proxy` its thread, `rank` the side of a rank, `group` the
//! collectives, which the ranks carry out themselves, `slots` what thread groups inside a kernel know of all this, and
//! `refusal` why the proxy ends all waits on behalf of one.
//!
//! Every word of the arena has one writer, except counters of one side. The rules of order are R1 to R8 in
//! `docs/comm.md`; each place that depends on one names it.

pub mod arena;
pub mod desk;
pub mod group;
pub mod heap;
pub mod line;
pub mod matching;
pub mod proxy;
pub mod rank;
pub mod refusal;
pub mod slots;
pub mod wait;
