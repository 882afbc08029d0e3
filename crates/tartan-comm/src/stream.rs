//! Large payloads within a node: sender and receiver copy at the same time, part by part.
//!
//! A part that was drained is filled again, the last one first: so of a receiver that keeps up little memory is touched,
//! and that stays in the caches. The sender never waits: where no part was drained it takes a fresh one, and there are as
//! many as the payload has. Where each part lies stands in a table; two words of the block tell how many bytes were
//! filled, written by the sender, and drained, by the receiver.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::arena::Window;
use crate::words;

/// Bytes of a part.
/// Measured by a program in C: copies from and to 64 KiB to 2 MiB that are in the caches go at 10 to 16 GB/s, to fresh
/// memory at 1; at 128 KiB the words cost nothing.
const PART: usize = 1 << 17;
/// Payloads of fewer bytes are laid out as a whole.
/// By judgement: four parts; with fewer, little is copied at the same time.
pub const LEAST: usize = 4 * PART;

/// Where the words lie in the header of a block.
/// FILLED and DRAINED, by format.
const FILLED: usize = 8;
const DRAINED: usize = 16;

/// Bytes of the table and of all parts of a payload.
pub fn stream_bytes(payload: usize) -> usize {
    table_bytes(payload) + payload.div_ceil(PART) * PART
}

fn table_bytes(payload: usize) -> usize {
    (4 * payload.div_ceil(PART)).next_multiple_of(64)
}

/// The side of the sender.
pub struct Filling {
    block: usize,
    begin: usize,
    from: *const u8,
    bytes: usize,
    at: usize,
    /// Where the parts lie that were filled and not seen to be drained, by their order; and where drained ones did.
    used: VecDeque<u32>,
    free: Vec<u32>,
    fresh: u32,
}

// SAFETY: the payload is only read, by whoever holds this; `new` asks for it to stay.
unsafe impl Send for Filling {}
// SAFETY: as above.
unsafe impl Sync for Filling {}

impl Filling {
    /// A stream in a block that was not published yet; its table begins at `begin`.
    ///
    /// # Safety
    /// The payload lives and stays the same until the stream is done or dropped.
    pub unsafe fn new(window: &Window, block: usize, begin: usize, payload: &[u8]) -> Self {
        window.long(block + FILLED).store(0, Ordering::Relaxed);
        window.long(block + DRAINED).store(0, Ordering::Relaxed);
        Self {
            block,
            begin,
            from: payload.as_ptr(),
            bytes: payload.len(),
            at: 0,
            used: VecDeque::new(),
            free: Vec::new(),
            fresh: 0,
        }
    }

    /// Whether all was filled, or nobody wants the rest.
    pub fn is_done(&self) -> bool {
        self.at == self.bytes
    }

    /// Copy a part.
    pub fn fill(&mut self, window: &Window) {
        if self.is_done() {
            return;
        }
        if words::is_free(window.word(self.block)) {
            self.at = self.bytes; // the receiver cannot take it
            return;
        }
        let place = self.take(window);
        let bytes = PART.min(self.bytes - self.at);
        window
            .word(self.begin + 4 * (self.at / PART))
            .store(place, Ordering::Relaxed);
        // SAFETY: inside the payload, which lives (see `new`).
        let part = unsafe { std::slice::from_raw_parts(self.from.add(self.at), bytes) };
        let parts = self.begin + table_bytes(self.bytes);
        window.write(parts + place as usize * PART, part);
        self.used.push_back(place);
        self.at += bytes;
        words::note_moved(window.long(self.block + FILLED), self.at as u64);
    }

    fn take(&mut self, window: &Window) -> u32 {
        let drained = words::moved(window.long(self.block + DRAINED)) as usize / PART;
        let seen = self.at / PART - self.used.len();
        self.free.extend(self.used.drain(..drained - seen));
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

/// The side of the receiver.
pub struct Draining {
    block: usize,
    begin: usize,
    at: usize,
}

impl Draining {
    /// The stream in a block that was received; its table begins at `begin`.
    pub fn new(block: usize, begin: usize) -> Self {
        Self {
            block,
            begin,
            at: 0,
        }
    }

    /// Where a payload of so many bytes lies as a whole, if it is there and no part of it was drained.
    pub fn whole(&self, window: &Window, bytes: usize) -> Option<usize> {
        let filled = words::moved(window.long(self.block + FILLED)) as usize;
        (filled == bytes).then(|| self.begin + table_bytes(bytes))
    }

    /// How many bytes were copied.
    pub fn drained(&self) -> usize {
        self.at
    }

    /// Copy a part to its place in `out`, which is as long as the payload, if one is there; return whether there was one.
    pub fn drain(&mut self, window: &Window, out: &mut [u8]) -> bool {
        let filled = words::moved(window.long(self.block + FILLED)) as usize;
        let bytes = filled.saturating_sub(self.at).min(PART);
        if bytes == 0 {
            return false;
        }
        let place = window.word(self.begin + 4 * (self.at / PART));
        let parts = self.begin + table_bytes(out.len());
        let from = parts + place.load(Ordering::Relaxed) as usize * PART;
        window.read(from, &mut out[self.at..self.at + bytes]);
        self.at += bytes;
        words::note_moved(window.long(self.block + DRAINED), self.at as u64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaLayout};
    use proptest::prelude::*;

    /// A memory with room for 64 parts, and a block of it that is taken.
    fn taken_block() -> (Arena, usize) {
        let layout = ArenaLayout {
            ranks: 1,
            members: 1,
            heap: 64 * PART,
            half: 4096,
            streams: true,
        };
        let arena = Arena::new(layout).unwrap();
        let block = layout.heap_at(0);
        arena.base.word(block).store(1, Ordering::Relaxed);
        (arena, block)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn a_stream_is_the_payload_however_both_take_turns(
            bytes in LEAST..40 * PART,
            turns in prop::collection::vec((any::<bool>(), 1..20_usize), 0..12),
        ) {
            let (arena, block) = taken_block();
            let window = &arena.base;
            let payload: Vec<u8> = (0..bytes).map(|at| (at / 1000) as u8 ^ at as u8).collect();
            let mut out = vec![0; bytes];
            // SAFETY: the payload outlives the stream.
            let mut filling = unsafe { Filling::new(window, block, block + 128, &payload) };
            let mut draining = Draining::new(block, block + 128);
            for (fills, times) in turns {
                for _ in 0..times {
                    if fills {
                        filling.fill(window);
                    } else {
                        draining.drain(window, &mut out);
                    }
                }
            }
            while draining.drained() < bytes {
                filling.fill(window);
                prop_assert!(draining.drain(window, &mut out));
            }
            prop_assert!(filling.is_done());
            prop_assert!(out == payload);
        }
    }

    #[test]
    fn of_a_receiver_that_keeps_up_little_memory_is_touched() {
        let (arena, block) = taken_block();
        let (payload, mut out) = (vec![1; 30 * PART], vec![0; 30 * PART]);
        // SAFETY: the payload outlives the stream.
        let mut filling = unsafe { Filling::new(&arena.base, block, block + 128, &payload) };
        let mut draining = Draining::new(block, block + 128);
        filling.fill(&arena.base);
        while draining.drained() < payload.len() {
            filling.fill(&arena.base);
            assert!(draining.drain(&arena.base, &mut out));
        }
        assert_eq!(filling.fresh, 2);
    }

    #[test]
    fn what_is_given_back_is_not_filled_any_more() {
        let (arena, block) = taken_block();
        let payload = vec![1; 20 * PART];
        // SAFETY: the payload outlives the stream.
        let mut filling = unsafe { Filling::new(&arena.base, block, block + 128, &payload) };
        filling.fill(&arena.base);
        assert!(!filling.is_done());
        words::give_back(arena.base.word(block));
        filling.fill(&arena.base);
        assert!(filling.is_done());
    }
}
