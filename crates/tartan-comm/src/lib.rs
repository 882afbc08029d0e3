//! Messages among the ranks of a communicator on one node, without Python.
//!
//! `arena` is the memory that all processes of a node share, `line` requests and replies in it, `wait` how one sleeps
//! until the other has written, `words` the single words by which ranks agree, `heap` where payloads lie, `stream` how
//! large ones pass, `lists` and `shelf` what all remember together, `matching` which receive takes which send, `desk`
//! what is answered to each request, `carried` the heads of messages between nodes, `rank` the side of a rank, which
//! carries out its own requests, `proxy` the thread that carries out those of slots, `meeting` the window of a group,
//! `group` the collectives, which the ranks carry out themselves, `slots` what thread groups inside a kernel know of all this, and `refusal` why the proxy ends all waits
//! on behalf of one.
//!
//! Every word of the arena has one writer, except counters of one side. The rules of order are R1 to R8 in
//! `README.md`; each place that depends on one names it.

#[cfg(not(loom))]
pub mod arena;
pub mod carried;
#[cfg(not(loom))]
pub mod desk;
#[cfg(not(loom))]
pub mod group;
#[cfg(not(loom))]
pub mod heap;
pub mod line;
pub mod lists;
#[cfg(not(loom))]
pub mod matching;
#[cfg(not(loom))]
pub mod meeting;
#[cfg(not(loom))]
pub mod proxy;
#[cfg(not(loom))]
pub mod rank;
pub mod refusal;
#[cfg(not(loom))]
pub mod shelf;
#[cfg(not(loom))]
pub mod slots;
#[cfg(not(loom))]
pub mod stream;
pub mod sync;
pub mod wait;
pub mod words;
