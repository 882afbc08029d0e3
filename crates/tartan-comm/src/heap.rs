//! Where payloads lie: blocks in a part of the arena that one process hands out and the receivers give back.
//!
//! The first word of a block says whether it is in use: the owner sets it before it publishes the block, the reader
//! clears it with release when it has copied. The owner looks for cleared blocks when it takes others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::arena::Window;
use crate::words;

/// Bytes before the description of a payload: in use (u32), bytes of the description (u32).
/// By format: a cache line, so that payloads begin with one.
pub const BLOCK_HEADER: usize = 64;

/// Hands out the blocks of one heap, each as low as there is room: so memory is used again while it is in the caches.
pub struct Heap {
    end: usize,
    /// The bytes of the blocks that may be in use, by where they begin.
    blocks: BTreeMap<usize, usize>,
    /// Nothing below is free.
    low: usize,
    /// Blocks taken since one last looked which were given back.
    taken: usize,
}

/// One looks which of n blocks were given back at the latest when n / 8 more were taken.
/// By judgement: looking costs n steps, so an eighth of it for each block taken; memory waits an eighth longer to be
/// used again. No benchmark of its own.
const LOOK_EVERY: usize = 8;

/// Where the payload begins in a block with a description of so many bytes.
pub fn payload_at(description: usize) -> usize {
    BLOCK_HEADER + description.next_multiple_of(64)
}

impl Heap {
    pub fn new(start: usize, bytes: usize) -> Self {
        Self {
            end: start + bytes,
            blocks: BTreeMap::new(),
            low: start,
            taken: 0,
        }
    }

    /// Take a block of at least so many bytes, marked as in use; None where there is no room.
    pub fn take(&mut self, window: &Window, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(64);
        self.taken += 1;
        let mut place = None;
        if LOOK_EVERY * self.taken < self.blocks.len() {
            place = self.place(bytes);
        }
        let place = match place {
            Some(place) => place,
            None => {
                self.collect(window);
                self.place(bytes)?
            }
        };
        self.blocks.insert(place, bytes);
        window.word(place).store(1, Ordering::Relaxed);
        Some(place)
    }

    /// Forget the blocks that were given back.
    fn collect(&mut self, window: &Window) {
        let low = &mut self.low;
        self.blocks.retain(|&at, _| {
            let used = !words::is_free(window.word(at));
            if !used {
                *low = (*low).min(at);
            }
            used
        });
        self.taken = 0;
    }

    /// The lowest place with so much room.
    fn place(&mut self, bytes: usize) -> Option<usize> {
        let mut at = self.low;
        for (&begin, &size) in self.blocks.range(self.low..) {
            if begin == self.low {
                self.low += size;
            } else if bytes <= begin - at {
                return Some(at);
            }
            at = begin + size;
        }
        (bytes <= self.end.saturating_sub(at)).then_some(at)
    }
}

/// Give a block back; nothing of it is read afterwards.
pub fn give_back(window: &Window, block: usize) {
    words::give_back(window.word(block));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaLayout};
    use std::collections::VecDeque;

    fn arena() -> Arena {
        let layout = ArenaLayout {
            ranks: 1,
            members: 1,
            heap: 4096,
            half: 4096,
            streams: true,
        };
        Arena::new(layout).unwrap()
    }

    #[test]
    fn blocks_never_overlap_and_come_back() {
        let arena = arena();
        let start = arena.layout.heap_at(0);
        let mut heap = Heap::new(start, 4096);
        let mut used: VecDeque<(usize, usize)> = VecDeque::new();
        let mut state = 7_u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bytes = (state >> 40) as usize % 900 + 1;
            if state >> 33 & 1 == 0 && !used.is_empty() {
                let which = (state >> 50) as usize % used.len();
                let (at, _) = used.remove(which).unwrap();
                give_back(&arena.base, at);
            } else if let Some(at) = heap.take(&arena.base, bytes) {
                assert!(at >= start && at + bytes <= start + 4096);
                assert!(used.iter().all(|&(b, n)| at + bytes <= b || b + n <= at));
                used.push_back((at, bytes));
            } else {
                refused += 1;
            }
        }
        assert!(refused > 0);
        for (at, _) in used {
            give_back(&arena.base, at);
        }
        assert_eq!(heap.take(&arena.base, 4096), Some(start));
        assert_eq!(heap.take(&arena.base, 1), None);
    }

    #[test]
    fn what_was_given_back_is_used_again_beside_a_block_that_stays() {
        let arena = arena();
        let start = arena.layout.heap_at(0);
        let mut heap = Heap::new(start, 4096);
        let first = heap.take(&arena.base, 100).unwrap();
        let kept = heap.take(&arena.base, 100).unwrap();
        assert_eq!((first, kept), (start, start + 128));
        give_back(&arena.base, first);
        let mut last = None;
        for _ in 0..100 {
            let next = heap.take(&arena.base, 100).unwrap();
            assert!(next < start + 3 * 128, "{}", next - start);
            last.replace(next)
                .inspect(|&block| give_back(&arena.base, block));
        }
    }
}
