//! Lists that the processes of a node share: what the desk remembers. Who uses one holds the desk.
//!
//! All items lie in nodes of one size, which are taken from a common stock and given back to it. Memory that nobody has
//! touched is a shelf of empty lists.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use crate::arena::Arena;

/// Bytes of a node: the number of the next one, then the item.
/// NODE and ITEM, by format: two cache lines.
pub const NODE: usize = 128;
const ITEM: usize = 8;

/// There is no node left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where a list of items lies.
pub struct List<T> {
    at: usize,
    items: PhantomData<T>,
}

impl<T> List<T> {
    /// The list that begins here.
    pub fn new(at: usize) -> Self {
        Self {
            at,
            items: PhantomData,
        }
    }
}

/// The stock of nodes of an arena.
#[derive(Clone)]
pub struct Shelf {
    arena: Arc<Arena>,
    stock: usize,
    nodes: usize,
    count: u32,
}

impl Shelf {
    /// The shelf whose stock lies at an address, and whose nodes fill a range.
    pub fn new(arena: Arc<Arena>, stock: usize, nodes: usize, bytes: usize) -> Self {
        let count = (bytes / NODE) as u32;
        Self {
            arena,
            stock,
            nodes,
            count,
        }
    }

    /// How many items it holds at most.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it can hold none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn load(&self, at: usize) -> u32 {
        self.arena.base.word(at).load(Ordering::Relaxed)
    }

    fn store(&self, at: usize, value: u32) {
        self.arena.base.word(at).store(value, Ordering::Relaxed);
    }

    /// Where a node lies; they count from 1.
    fn node(&self, number: u32) -> usize {
        self.nodes + (number as usize - 1) * NODE
    }

    fn item<T: Copy>(&self, number: u32) -> *mut T {
        const {
            assert!(size_of::<T>() <= NODE - ITEM && align_of::<T>() <= ITEM);
        }
        let at = self.node(number) + ITEM;
        self.arena.base.at(at, size_of::<T>()).cast()
    }

    fn take_node(&self) -> Result<u32, Full> {
        let given_back = self.load(self.stock);
        if given_back != 0 {
            self.store(self.stock, self.load(self.node(given_back)));
            return Ok(given_back);
        }
        let taken = self.load(self.stock + 4);
        if taken == self.count {
            return Err(Full);
        }
        self.store(self.stock + 4, taken + 1);
        Ok(taken + 1)
    }

    /// Append an item.
    ///
    /// # Errors
    /// Where no node is left.
    pub fn push<T: Copy>(&self, list: &List<T>, item: T) -> Result<(), Full> {
        let number = self.take_node()?;
        self.store(self.node(number), 0);
        // SAFETY: a node that is in no list; who calls holds the desk, so nobody else uses it.
        unsafe { self.item::<T>(number).write(item) };
        let last = self.load(list.at + 4);
        let before = if last == 0 { list.at } else { self.node(last) };
        self.store(before, number);
        self.store(list.at + 4, number);
        Ok(())
    }

    /// Whether a list has no item; also without the desk, and then as it was or will be.
    pub fn is_bare<T>(&self, list: &List<T>) -> bool {
        self.load(list.at) == 0
    }

    /// The first item that is wanted, and the node before it, 0 where it is the first.
    fn seek<T: Copy>(&self, list: &List<T>, wanted: impl Fn(&T) -> bool) -> Option<(u32, u32)> {
        let (mut before, mut number) = (0, self.load(list.at));
        while number != 0 {
            // SAFETY: a node of this list, which holds an item of its type; who calls holds the desk.
            if wanted(unsafe { &*self.item::<T>(number) }) {
                return Some((before, number));
            }
            (before, number) = (number, self.load(self.node(number)));
        }
        None
    }

    /// The first item that is wanted.
    pub fn find<T: Copy>(&self, list: &List<T>, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let (_, number) = self.seek(list, wanted)?;
        // SAFETY: as in `seek`.
        Some(unsafe { self.item::<T>(number).read() })
    }

    /// Change the first item that is wanted; return whether there was one.
    pub fn replace<T: Copy>(&self, list: &List<T>, wanted: impl Fn(&T) -> bool, by: T) -> bool {
        let Some((_, number)) = self.seek(list, wanted) else {
            return false;
        };
        // SAFETY: as in `seek`.
        unsafe { self.item::<T>(number).write(by) };
        true
    }

    /// Take the first item out that is wanted.
    pub fn remove<T: Copy>(&self, list: &List<T>, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let (before, number) = self.seek(list, wanted)?;
        // SAFETY: as in `seek`.
        let item = unsafe { self.item::<T>(number).read() };
        let next = self.load(self.node(number));
        let place = if before == 0 {
            list.at
        } else {
            self.node(before)
        };
        self.store(place, next);
        if next == 0 {
            self.store(list.at + 4, before);
        }
        self.store(self.node(number), self.load(self.stock));
        self.store(self.stock, number);
        Some(item)
    }

    /// Take all items out, the first one first.
    pub fn take_all<T: Copy>(&self, list: &List<T>) -> Vec<T> {
        std::iter::from_fn(|| self.remove(list, |_| true)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{ArenaLayout, PAGE};
    use crate::lists::{LIST, STOCK};
    use proptest::prelude::*;

    fn shelf(nodes: usize) -> (Shelf, Vec<List<u64>>) {
        let layout = ArenaLayout {
            ranks: 1,
            members: 1,
            heap: 16 * PAGE,
            half: PAGE,
            streams: true,
        };
        let arena = Arc::new(Arena::new(layout).unwrap());
        let at = layout.heap_at(0);
        let lists = (0..3).map(|n| List::new(at + STOCK + n * LIST)).collect();
        (Shelf::new(arena, at, at + PAGE, nodes * NODE), lists)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lists_are_as_vectors(steps in prop::collection::vec((0..4_u8, 0..3_usize, 0..5_u64), 0..200)) {
            let (shelf, lists) = shelf(20);
            let mut slow: Vec<Vec<u64>> = vec![Vec::new(); 3];
            for (what, which, item) in steps {
                let (list, expected) = (&lists[which], &mut slow[which]);
                let place = expected.iter().position(|&other| other == item);
                match what {
                    0 | 1 => {
                        let room = slow.iter().map(Vec::len).sum::<usize>() < 20;
                        prop_assert_eq!(shelf.push(list, item).is_ok(), room);
                        if room {
                            slow[which].push(item);
                        }
                    }
                    2 => {
                        prop_assert_eq!(shelf.find(list, |&other| other == item), place.map(|_| item));
                        let found = place.map(|place| expected.remove(place));
                        prop_assert_eq!(shelf.remove(list, |&other| other == item), found);
                    }
                    _ => {
                        prop_assert_eq!(shelf.replace(list, |&other| other == item, 9), place.is_some());
                        expected.iter_mut().filter(|other| **other == item).take(1).for_each(|other| *other = 9);
                    }
                }
                prop_assert_eq!(shelf.is_bare(&lists[which]), slow[which].is_empty());
            }
            for (list, expected) in lists.iter().zip(slow) {
                prop_assert_eq!(shelf.take_all(list), expected);
            }
        }
    }
}
