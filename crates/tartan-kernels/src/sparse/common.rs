//! The strings that a row and a column both have: sum(b b').
//!
//! Where strings are dense (k up to 5), the columns' b of a few middles stand in a table (slot, column), and an
//! entry of a row is multiplied with a whole line of it. Where they are rare, a slot has a list of the columns that
//! have it.

use super::dispatch::dispatch;
use super::group::{Group, GROUP, LANES, SIDE, SLOTS};
use crate::phylogeny::{Composition, Word};

/// Largest k with a table.
/// By arithmetic: 20**3 middles of a table of 2 MiB at k = 5; 20 times that at 6.
const K_TABLE: usize = 5;
/// Places of one middle: 20 right letters for each left one. Those of the 12 left letters that do not exist are
/// never touched.
/// By format.
const PAIRS: usize = SIDE * 20;
/// Values of a table; those that are touched fit half of a second cache level.
/// By format.
const TABLE: usize = 2 * PAIRS * GROUP;
/// Middles of a block.
/// By arithmetic: slots are 16 bits wide.
const BLOCK: usize = (u16::MAX as usize + 1) / SLOTS;

/// Memory for one group of columns, kept between blocks.
#[derive(Default)]
pub(super) struct Common {
    /// b of each string and column, 0 where it is absent; empty between uses.
    table: Vec<f64>,
    /// The list of each string; all empty between uses.
    places: Vec<List>,
    lists: Vec<Entry>,
    /// Entries of a row that have a list.
    found: Vec<(f32, List)>,
}

#[derive(Clone, Copy, Default)]
struct List {
    start: u32,
    length: u32,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    value: f32,
    item: u32,
}

/// A group of rows, its items, and its sums with the columns.
type Rows<'a, 'b, W> = (
    (&'a Group, &'a [Composition<'b, W>]),
    &'a mut [[f64; GROUP]],
);

/// Place of a slot among the strings of a block.
#[inline(always)]
fn place(slot: u16) -> usize {
    slot as usize / SIDE * 20 + slot as usize % SIDE
}

impl Common {
    /// Add the products of the common entries of columns and of each group of rows.
    pub(super) fn add<'a, W: Word>(
        &mut self,
        columns: &Group,
        items: &[Composition<'_, W>],
        rows: impl Iterator<Item = Rows<'a, 'a, W>>,
        k: usize,
    ) {
        if k > K_TABLE {
            self.list(columns, items);
            for ((group, items), sums) in rows {
                self.add_lists(group, items, sums);
            }
            for (slots, _) in columns.each(items, 0..BLOCK) {
                slots
                    .iter()
                    .for_each(|&slot| self.places[place(slot)] = List::default());
            }
        } else {
            self.add_tables(columns, items, rows.collect());
        }
    }

    /// Multiply through tables of as many middles as fit the cache.
    fn add_tables<W: Word>(
        &mut self,
        columns: &Group,
        items: &[Composition<'_, W>],
        mut rows: Vec<Rows<'_, '_, W>>,
    ) {
        let width = columns.len().div_ceil(LANES).next_power_of_two() * LANES;
        let step = (TABLE / (PAIRS * width)).min(BLOCK);
        self.table.resize(step * PAIRS * width, 0.0);
        for base in (0..BLOCK).step_by(step) {
            let middles = base..BLOCK.min(base + step);
            let first = base * PAIRS;
            for (item, (slots, values)) in columns.each(items, middles.clone()).enumerate() {
                for (&slot, &value) in slots.iter().zip(values) {
                    self.table[(place(slot) - first) * width + item] = f64::from(value) + 1.0;
                }
            }
            for ((group, items), sums) in &mut rows {
                for ((slots, values), sums) in
                    group.each(items, middles.clone()).zip(sums.iter_mut())
                {
                    add_table(slots, values, &self.table, first, width, sums);
                }
            }
            for (item, (slots, _)) in columns.each(items, middles.clone()).enumerate() {
                for &slot in slots {
                    self.table[(place(slot) - first) * width + item] = 0.0;
                }
            }
        }
    }

    /// Make the lists of a block. Those that exist follow each other in the order of first use.
    fn list<W: Word>(&mut self, columns: &Group, items: &[Composition<'_, W>]) {
        self.places.resize(BLOCK * PAIRS, List::default());
        let mut n = 0;
        for (slots, _) in columns.each(items, 0..BLOCK) {
            slots
                .iter()
                .for_each(|&slot| self.places[place(slot)].length += 1);
            n += slots.len();
        }
        if self.lists.len() < n {
            self.lists.resize(n, Entry::default());
        }
        let mut used = 0;
        for (item, (slots, values)) in columns.each(items, 0..BLOCK).enumerate() {
            for (&slot, &value) in slots.iter().zip(values) {
                let list = &mut self.places[place(slot)];
                // A list is filled from its end; its start is zero before the first entry, and never between two.
                if list.start == 0 {
                    used += list.length;
                    list.start = used;
                }
                list.start -= 1;
                self.lists[list.start as usize] = Entry {
                    value,
                    item: item as u32,
                };
            }
        }
    }

    fn add_lists<W: Word>(
        &mut self,
        rows: &Group,
        items: &[Composition<'_, W>],
        sums: &mut [[f64; GROUP]],
    ) {
        for ((slots, values), sums) in rows.each(items, 0..BLOCK).zip(sums) {
            if self.found.len() < slots.len() {
                self.found.resize(slots.len(), (0.0, List::default()));
            }
            let mut n_found = 0;
            for (&slot, &value) in slots.iter().zip(values) {
                let list = self.places[place(slot)];
                // Written always, kept where there is a list: whether there is one cannot be foreseen.
                self.found[n_found] = (value, list);
                n_found += usize::from(list.length > 0);
            }
            for &(value, list) in &self.found[..n_found] {
                let value = f64::from(value) + 1.0;
                for entry in &self.lists[list.start as usize..][..list.length as usize] {
                    sums[entry.item as usize % GROUP] += value * (f64::from(entry.value) + 1.0);
                }
            }
        }
    }
}

fn add_table(
    slots: &[u16],
    values: &[f32],
    table: &[f64],
    first: usize,
    width: usize,
    sums: &mut [f64; GROUP],
) {
    match width {
        8 => add_table_lanes::<8>(slots, values, table, first, sums),
        16 => add_table_lanes::<16>(slots, values, table, first, sums),
        32 => add_table_lanes::<32>(slots, values, table, first, sums),
        _ => add_table_lanes::<GROUP>(slots, values, table, first, sums),
    }
}

// One flat array of sums: with an array of vectors the compiler gathers across them.
#[inline(always)]
fn table_loop<const N: usize>(
    slots: &[u16],
    values: &[f32],
    table: &[f64],
    first: usize,
    sums: &mut [f64; GROUP],
) {
    let mut lanes = [0.0; N];
    lanes.copy_from_slice(&sums[..N]);
    for (&slot, &value) in slots.iter().zip(values) {
        let value = f64::from(value) + 1.0;
        let line = &table[(place(slot) - first) * N..][..N];
        for (sum, other) in lanes.iter_mut().zip(line) {
            *sum += value * other;
        }
    }
    sums[..N].copy_from_slice(&lanes);
}

dispatch!(
    add_table_lanes, table_avx512, table_avx2, table_loop, [<const N: usize>], [::<N>],
    (slots: &[u16], values: &[f32], table: &[f64], first: usize, sums: &mut [f64; GROUP])
);
