//! Where payloads lie: blocks in a part of the arena that one process hands out and the receivers give back.
//!
//! The first word of a block says whether it is in use: the owner sets it before it publishes the block, the reader
//! clears it with release when it has copied. The owner looks for cleared blocks when it needs room.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::arena::Window;
use crate::words;

/// Bytes before the description of a payload: in use (u32), bytes of the description (u32).
pub const BLOCK_HEADER: usize = 64;

/// Hands out the blocks of one heap as a ring; the oldest goes first.
pub struct Heap {
    start: usize,
    bytes: usize,
    /// Begin and size of blocks that may be in use, oldest first.
    blocks: VecDeque<(usize, usize)>,
}

/// Where the payload begins in a block with a description of so many bytes.
pub fn payload_at(description: usize) -> usize {
    BLOCK_HEADER + description.next_multiple_of(64)
}

impl Heap {
    pub fn new(start: usize, bytes: usize) -> Self {
        Self {
            start,
            bytes,
            blocks: VecDeque::new(),
        }
    }

    /// Take a block of at least so many bytes, marked as in use; None where there is no room.
    pub fn take(&mut self, window: &Window, bytes: usize) -> Option<usize> {
        self.collect(window);
        let bytes = bytes.next_multiple_of(64);
        let place = self.place(bytes)?;
        self.blocks.push_back((place, bytes));
        window.word(place).store(1, Ordering::Relaxed);
        Some(place)
    }

    /// Forget the oldest blocks that were given back.
    fn collect(&mut self, window: &Window) {
        while let Some(&(at, _)) = self.blocks.front() {
            if !words::is_free(window.word(at)) {
                break;
            }
            self.blocks.pop_front();
        }
    }

    fn place(&self, bytes: usize) -> Option<usize> {
        let end = self.start + self.bytes;
        let (Some(&(first, _)), Some(&(last, size))) = (self.blocks.front(), self.blocks.back())
        else {
            return (bytes <= self.bytes).then_some(self.start);
        };
        let next = last + size;
        if next > first {
            if bytes <= end - next {
                return Some(next);
            }
            return (bytes < first - self.start).then_some(self.start);
        }
        (bytes < first - next).then_some(next)
    }
}

/// Give a block back; nothing of it is read afterwards.
pub fn give_back(window: &Window, block: usize) {
    words::give_back(window.word(block));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, Layout};

    fn arena() -> Arena {
        let layout = Layout {
            ranks: 1,
            members: 1,
            heap: 4096,
            half: 4096,
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
}
