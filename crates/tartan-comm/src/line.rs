//! Request and reply lines: 64 bytes each, one writer each.

use crate::sync::{order, AtomicU64, OrderNeed, Ordering, PlainCell};

/// Lines of a ring. A rank has one blocking call at most; requests that need not wait are answered at once.
/// By construction, as said; a power of two.
pub const RING: u64 = 8;
/// Payload that travels inside a line.
/// By format: what is left of a cache line.
pub const INLINE: usize = 24;

/// Any source; any tag.
pub const ANY: i32 = -1;

/// What a rank can ask for.
pub mod op {
    pub const SEND: u16 = 1;
    pub const RECV: u16 = 2;
    pub const WAIT: u16 = 3;
    pub const TEST: u16 = 4;
    pub const PROBE: u16 = 5;
    pub const MEET: u16 = 6;
    /// Of a slot: it has come to a meeting of its group, and the proxy counts it.
    pub const ARRIVE: u16 = 7;
    /// Of a slot: it cannot go on; the flags are a code of `refusal`.
    pub const FAIL: u16 = 8;
    /// Have the `WAIT_ANY` of a later number answered when a request ends: its number, that of the `WAIT_ANY`.
    pub const WATCH: u16 = 9;
    /// Wait until one of the requests ends that were watched for it; how many were (bytes).
    pub const WAIT_ANY: u16 = 10;
}

/// Bits of the upper half of the flags of a request; the lower half describes an inline payload to its receiver.
pub mod flag {
    /// Answer at once; the outcome is asked for by WAIT or TEST.
    pub const DEFER: u16 = 1 << 15;
    /// The payload lies in the line.
    pub const INLINE: u16 = 1 << 14;
    /// Of PROBE: answer at once, whether there is a message or not.
    pub const NOW: u16 = 1 << 13;
    /// The sender fills the block while the receiver drains it (`stream`).
    pub const STREAM: u16 = 1 << 12;
}

/// How a request ended.
pub mod status {
    pub const DONE: i32 = 0;
    /// The message is longer than the buffer; nothing was written.
    pub const TOO_LONG: i32 = 1;
    /// Deferred, or not yet done.
    pub const PENDING: i32 = 2;
    /// There is no such request.
    pub const UNKNOWN: i32 = 3;
}

/// A request, without its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RequestBody {
    pub op: u16,
    pub flags: u16,
    pub peer: i32,
    pub tag: i32,
    pub group: u32,
    pub address: u64,
    pub bytes: u64,
    pub inline: [u8; INLINE],
}

/// A reply, without its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReplyBody {
    pub status: i32,
    pub source: i32,
    pub tag: i32,
    pub flags: u32,
    pub bytes: u64,
    pub address: u64,
    pub inline: [u8; INLINE],
}

/// The line of a request.
#[repr(C, align(64))]
pub struct RequestLine {
    seq: AtomicU64,
    request: PlainCell<RequestBody>,
}

/// The line of a reply.
#[repr(C, align(64))]
pub struct ReplyLine {
    ack: AtomicU64,
    reply: PlainCell<ReplyBody>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RequestLine>() == 64 && size_of::<ReplyLine>() == 64);

#[cfg(loom)]
impl Default for RequestLine {
    fn default() -> Self {
        Self {
            seq: AtomicU64::new(0),
            request: PlainCell::new(RequestBody::default()),
        }
    }
}

#[cfg(loom)]
impl Default for ReplyLine {
    fn default() -> Self {
        Self {
            ack: AtomicU64::new(0),
            reply: PlainCell::new(ReplyBody::default()),
        }
    }
}

impl RequestLine {
    /// Write the words, then the number with release (R1).
    ///
    /// # Safety
    /// Only the rank that the line belongs to writes it, after the request before in this line was answered.
    pub unsafe fn publish(&self, seq: u64, request: RequestBody) {
        self.request.set(request);
        self.seq
            .store(seq, order(OrderNeed::Publish, Ordering::Release));
    }

    /// Read the request of this number, if it was published (R2).
    ///
    /// # Safety
    /// Only who has the desk reads, and a line is not written again before it was answered.
    pub unsafe fn take(&self, seq: u64) -> Option<RequestBody> {
        if self
            .seq
            .load(order(OrderNeed::TakeRequest, Ordering::Acquire))
            != seq
        {
            return None;
        }
        Some(self.request.get())
    }
}

impl ReplyLine {
    /// Write the words, then the acknowledgement with release (R3).
    ///
    /// # Safety
    /// Only who has the desk writes, once for each request.
    pub unsafe fn publish(&self, seq: u64, reply: ReplyBody) {
        self.reply.set(reply);
        self.ack
            .store(seq, order(OrderNeed::Answer, Ordering::Release));
    }

    /// Read the reply to the request of this number, if there is one (R4).
    ///
    /// # Safety
    /// Only the asker reads, before it publishes the request `RING` later.
    pub unsafe fn take(&self, seq: u64) -> Option<ReplyBody> {
        if self
            .ack
            .load(order(OrderNeed::TakeAnswer, Ordering::Acquire))
            != seq
        {
            return None;
        }
        Some(self.reply.get())
    }

    /// The latest request of this line that was answered.
    pub fn acknowledged(&self) -> u64 {
        self.ack.load(Ordering::Acquire)
    }
}
