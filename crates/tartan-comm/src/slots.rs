//! What a slot, a thread group inside a kernel, knows of the memory of its node: the first argument of the kernel.

use std::io;
use std::sync::Arc;

use crate::arena::{Arena, Window, ABORT, HEADER, IN_GROUP, PAGE, SIGNATURE, SMALL, WAIT};
use crate::heap::BLOCK_HEADER;
use crate::line::{flag, op, status, INLINE, RING};
use crate::meeting::RELEASE;
use crate::refusal;

/// Addresses and sizes, as `tartan_comm.h` declares them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slots {
    /// The part of the arena that all map, and the window of all ranks.
    pub base: u64,
    pub window: u64,
    /// What each slot keeps between its calls.
    pub states: u64,
    /// Where the heap of local rank 0 begins, and how long each is.
    pub heaps: u64,
    pub heap: u64,
    /// In the window: headers, small contributions, results, and how long a half of the results is.
    pub headers: u64,
    pub smalls: u64,
    pub results: u64,
    pub half: u64,
    /// Of slot 0: its place on the node, and its rank.
    pub local: u32,
    pub rank: u32,
    /// All ranks, and those of this node.
    pub size: u32,
    pub locals: u32,
    /// Blocks of a slot.
    pub blocks: u32,
    pub unused: u32,
}

/// The memory of a node, mapped for slots.
pub struct SlotMemory {
    pub arena: Arc<Arena>,
    pub window: Window,
}

impl SlotMemory {
    /// Map what the slots of a node use.
    ///
    /// # Errors
    /// Where the window cannot be mapped.
    pub fn new(arena: Arc<Arena>) -> io::Result<Self> {
        let window = arena.window(0)?;
        Ok(Self { arena, window })
    }

    /// What a kernel is given whose slot 0 is this rank, at this place of its node.
    pub fn slots(&self, local: usize, rank: usize, blocks: u32, states: u64) -> Slots {
        let layout = self.arena.layout;
        Slots {
            base: self.arena.base.at(0, 0) as u64,
            window: self.window.at(0, 0) as u64,
            states,
            heaps: layout.heap_at(0) as u64,
            heap: layout.heap as u64,
            headers: layout.header_at(0, 0) as u64,
            smalls: layout.small_at(0, 0) as u64,
            results: layout.data_at(0) as u64,
            half: layout.half as u64,
            local: local as u32,
            rank: rank as u32,
            size: layout.members as u32,
            locals: layout.ranks as u32,
            blocks,
            unused: 0,
        }
    }
}

/// The constants of `tartan_comm.h`, by their names there.
pub const CONSTANTS: [(&str, u64); 38] = [
    ("PAGE", PAGE as u64),
    ("RING", RING),
    ("INLINE_BYTES", INLINE as u64),
    ("ABORT_AT", ABORT as u64),
    ("WAIT_AT", WAIT as u64),
    ("HEADER_BYTES", HEADER as u64),
    ("SIGNATURE_BYTES", SIGNATURE as u64),
    ("SMALL_BYTES", SMALL as u64),
    ("BLOCK_HEADER_BYTES", BLOCK_HEADER as u64),
    ("RELEASE_AT", RELEASE as u64),
    ("SLOTS_BYTES", size_of::<Slots>() as u64),
    ("SEND", op::SEND as u64),
    ("RECV", op::RECV as u64),
    ("WAIT", op::WAIT as u64),
    ("TEST", op::TEST as u64),
    ("PROBE", op::PROBE as u64),
    ("ARRIVE", op::ARRIVE as u64),
    ("FAIL", op::FAIL as u64),
    ("IN_GROUP", IN_GROUP as u64),
    ("ENDED", crate::arena::ENDED as u64),
    ("DEFERRED", flag::DEFER as u64),
    ("IN_LINE", flag::INLINE as u64),
    ("NOW", flag::NOW as u64),
    ("DONE", status::DONE as u64),
    ("IS_TOO_LONG", status::TOO_LONG as u64),
    ("PENDING", status::PENDING as u64),
    ("UNKNOWN", status::UNKNOWN as u64),
    ("NO_RANK", refusal::NO_RANK as u64),
    ("NO_TAG", refusal::NO_TAG as u64),
    ("SENT_TOO_LONG", refusal::SENT_TOO_LONG as u64),
    ("TOO_LONG", refusal::TOO_LONG as u64),
    ("OTHER_TYPE", refusal::OTHER_TYPE as u64),
    ("NO_ROOM", refusal::NO_ROOM as u64),
    ("MISMATCH", refusal::MISMATCH as u64),
    ("NOT_WHOLE", refusal::NOT_WHOLE as u64),
    ("FREED", refusal::FREED as u64),
    ("TWICE", refusal::TWICE as u64),
    ("RESULT_TOO_LONG", refusal::RESULT_TOO_LONG as u64),
];
