//! Hierarchies of clusters by chains of nearest neighbours, over rows that may lie on disk; the numbering of their steps.
//!
//! A chain begins at any cluster and moves on to the nearest other one, until two clusters are nearest to each other;
//! these are joined, and the chain resumes below them (Murtagh 1983; Muellner, Modern hierarchical, agglomerative
//! clustering algorithms, arXiv:1109.2378). For the methods here, this joins the same clusters as a search
//! for the closest pair in every step, with n^2 work instead of n^3.
//!
//! Nothing is read or written but whole rows, and no row is ever brought up to date in its place. The row of a cluster
//! is what it was when the cluster came to be (an item: as it was given); the joins since then are applied to it, in
//! their order, whenever it is read. So each distance is computed by the operations, in the order, that work on a
//! matrix in memory applies to it, and hierarchies are equal to those of SciPy to the last bit.
//!
//! Ties are decided as SciPy decides them: among clusters that are equally near, the one before in the chain is
//! preferred, then the one with the lowest index; of two joined clusters the higher index stays; a chain begins at the
//! lowest index; steps are sorted by their distances, equal ones in the order in which they were found.
//!
//! The log of joins and of what was put on the chain is all state: rows of clusters that are lost are made again from
//! those of their parts, and those of items are given.

mod rows;

use std::io;

use crate::spanning::Forest;
pub use rows::{ArrayRows, FileRows, ItemRows, KeptRows, Log, Values};

/// The distance between a joined cluster and another one, from the distances of its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkageMethod {
    /// The larger one.
    Complete,
    /// The mean over all pairs of items (UPGMA).
    Average,
    /// The mean of the two (WPGMA).
    Weighted,
    /// Ward's rule: of points, the root of twice what joining adds to the sum of squares (SciPy's; R's ward.D2).
    Ward,
    /// What joining adds to the sum over clusters of all distances within (both ways), divided by the items: Ward's
    /// rule, which Lance and Williams showed to need no coordinates, on distances as they are (R's ward.D).
    WardUnsquared,
}

/// What the distance of a joined cluster to another one is made of.
struct Joined {
    /// Distances of the two parts to the other one, and to each other.
    low: f64,
    high: f64,
    parts: f64,
    /// Items of the two parts and of the other one.
    n_low: f64,
    n_high: f64,
    n_other: f64,
}

/// Two clusters that became one, which has the place of the higher one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Join {
    /// Places of the two.
    pub low: u32,
    pub high: u32,
    /// Items of the two.
    n_low: u32,
    n_high: u32,
    /// Their distance.
    pub distance: f64,
}

/// Why there is no hierarchy.
#[derive(Debug)]
pub enum Unjoined {
    /// The caller asked to stop.
    Stopped,
    /// A mean of distances exceeds the largest f64, or a distance was not finite to begin with.
    NotFinite,
    /// A distance of this item is missing.
    Missing(usize),
    /// Distances of both directions of a pair differ.
    Asymmetric,
    /// Edges that close a circle.
    Circle,
    /// The log is not one of these rows.
    ForeignLog,
    /// Rows cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for Unjoined {
    fn from(error: io::Error) -> Self {
        Unjoined::Io(error)
    }
}

/// One row of a hierarchy: the numbers of the two clusters, lower first, their distance, and the number of items.
pub type HierarchyRow = [f64; 4];

/// Join items by the rows of their distances.
///
/// Item i is cluster i, and step s makes cluster n + s. `goes_on` is called with the number of clusters that are left,
/// after work of order n each time; the work ends when it returns false. It begins after what the log has.
pub fn link_rows(
    items: &mut dyn ItemRows,
    kept: KeptRows,
    log: Option<Log>,
    method: LinkageMethod,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Result<Vec<HierarchyRow>, Unjoined> {
    let n = items.len();
    let chain = Chain::new(items, kept, log);
    let joins = match method {
        LinkageMethod::Complete => chain.join_all(&mut goes_on, |of| of.low.max(of.high)),
        LinkageMethod::Average => chain.join_all(&mut goes_on, |of| {
            (of.n_low * of.low + of.n_high * of.high) / (of.n_low + of.n_high)
        }),
        LinkageMethod::Weighted => chain.join_all(&mut goes_on, |of| 0.5 * (of.low + of.high)),
        LinkageMethod::Ward => chain.join_all(&mut goes_on, |of| {
            let share = 1.0 / (of.n_low + of.n_high + of.n_other);
            let low = (of.n_other + of.n_low) * share * of.low * of.low;
            let high = (of.n_other + of.n_high) * share * of.high * of.high;
            (low + high - of.n_other * share * of.parts * of.parts).sqrt()
        }),
        LinkageMethod::WardUnsquared => chain.join_all(&mut goes_on, |of| {
            let (with_low, with_high) = (of.n_low + of.n_other, of.n_high + of.n_other);
            (with_low * of.low + with_high * of.high - of.n_other * of.parts)
                / (with_low + of.n_high)
        }),
    }?;
    let mut edges: Vec<_> = (joins.iter())
        .map(|join| (join.low as usize, join.high as usize, join.distance))
        .collect();
    edges.sort_by(|a, b| a.2.partial_cmp(&b.2).expect("distances are finite"));
    dendrogram(n, edges)
}

/// Number the clusters along the edges of a tree of n items, which come in the order of their distances.
///
/// # Panics
/// If an edge ends at an item that is not there.
pub fn dendrogram(
    n: usize,
    edges: impl IntoIterator<Item = (usize, usize, f64)>,
) -> Result<Vec<HierarchyRow>, Unjoined> {
    let mut forest = Forest::new(n);
    let mut numbers: Vec<usize> = (0..n).collect();
    let number = |(step, (a, b, distance))| {
        let (left, right) = (numbers[forest.root(a)], numbers[forest.root(b)]);
        let root = forest.join(a, b).ok_or(Unjoined::Circle)?;
        numbers[root] = n + step;
        let (low, high) = (left.min(right), left.max(right));
        let size = forest.size(root);
        Ok([low as f64, high as f64, distance, size as f64])
    };
    edges.into_iter().enumerate().map(number).collect()
}

/// Rows that are kept up to date in memory: those of the top of the chain are read again and again.
/// By judgement: 64 rows of 100,000 items are 51 MB; rows deeper in the chain are rarely read before they are old.
const CACHED_ROWS: usize = 64;
/// And at most this much: by judgement, a share of the least memory that anyone gives.
const CACHED_BYTES: usize = 64 << 20;

const LIVING: u32 = u32::MAX;

/// The row of the cluster in a place, as it was after so many joins.
struct CachedRow {
    place: usize,
    as_of: usize,
    used: u64,
    row: Vec<f64>,
}

/// What was in a place from one join on: the join that made it, counted from 1, or 0 for an item.
#[derive(Clone, Copy)]
struct Version {
    place: usize,
    made_by: u32,
}

/// What is to be done for a row, from last to first.
enum Task {
    /// Make the row of a version as of a number of joins.
    Make(Version, usize),
    /// Join the two rows that were made last into that of a step, as of a number of joins; the second one is `low`
    /// or not.
    Combine(usize, usize, bool),
}

struct Chain<'a> {
    items: &'a mut dyn ItemRows,
    kept: KeptRows,
    log: Option<Log>,
    n: usize,
    n_living: usize,
    joins: Vec<Join>,
    /// Of each join: what its two parts were made by.
    parts: Vec<[u32; 2]>,
    /// Of each place: items of its cluster, what made it, and the join by which it went.
    sizes: Vec<u32>,
    made_by: Vec<u32>,
    gone_at: Vec<u32>,
    /// The places that were there after a number of joins: anew whenever half of them are gone.
    living: Vec<(usize, Vec<u32>)>,
    /// Each place but the first is the nearest one to the place before it.
    chain: Vec<usize>,
    /// What was put on the chain since the last join.
    pushed: Vec<usize>,
    cache: Vec<CachedRow>,
    n_cached: usize,
    clock: u64,
    spare: Vec<Vec<f64>>,
    packed: Vec<f64>,
}

impl<'a> Chain<'a> {
    fn new(items: &'a mut dyn ItemRows, kept: KeptRows, log: Option<Log>) -> Self {
        let n = items.len();
        Self {
            items,
            kept,
            log,
            n,
            n_living: n,
            joins: Vec::with_capacity(n.saturating_sub(1)),
            parts: Vec::with_capacity(n.saturating_sub(1)),
            sizes: vec![1; n],
            made_by: vec![0; n],
            gone_at: vec![LIVING; n],
            living: vec![(0, (0..n as u32).collect())],
            chain: Vec::new(),
            pushed: Vec::new(),
            cache: Vec::new(),
            n_cached: (CACHED_BYTES / (8 * n).max(1)).clamp(2, CACHED_ROWS),
            clock: 0,
            spare: Vec::new(),
            packed: Vec::new(),
        }
    }

    fn join_all(
        mut self,
        goes_on: &mut impl FnMut(usize) -> bool,
        distance_of: impl Fn(Joined) -> f64,
    ) -> Result<Vec<Join>, Unjoined> {
        self.replay_log()?;
        while self.n_living > 1 {
            let (low, high, distance) = self.closest(goes_on, &distance_of)?;
            self.join(low, high, distance, &distance_of)?;
        }
        Ok(self.joins)
    }

    /// Take over what the log has.
    fn replay_log(&mut self) -> Result<(), Unjoined> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        for (low, high, distance) in log.read()? {
            let (low, high) = (low as usize, high as usize);
            let is_push = high == Log::PUSHED as usize;
            let is_living = |place: usize| place < self.n && self.gone_at[place] == LIVING;
            if !is_living(low)
                || !(is_push || (is_living(high) && low < high && distance.is_finite()))
            {
                return Err(Unjoined::ForeignLog);
            }
            if is_push {
                self.chain.push(low);
            } else {
                let top = self.chain.len().saturating_sub(2);
                self.chain.truncate(top);
                self.settle(low, high, distance);
                self.kept.take_place(self.joins.len() - 1, self.n_living);
            }
        }
        Ok(())
    }

    /// Follow the chain to two places that are nearest to each other, and take them off it.
    fn closest(
        &mut self,
        goes_on: &mut impl FnMut(usize) -> bool,
        distance_of: &impl Fn(Joined) -> f64,
    ) -> Result<(usize, usize, f64), Unjoined> {
        if self.chain.is_empty() {
            let (_, places) = self.living.last().expect("places were listed at first");
            let first = places
                .iter()
                .find(|&&place| self.gone_at[place as usize] == LIVING);
            self.push(*first.expect("a place that is not gone") as usize);
        }
        loop {
            if !goes_on(self.n_living) {
                return Err(Unjoined::Stopped);
            }
            let (&top, below) = self.chain.split_last().expect("a chain has a place");
            let before = below.last().copied();
            let at = self.current_row(top, distance_of)?;
            let (nearest, distance) = self.nearest(&self.cache[at].row, before);
            if !distance.is_finite() {
                return Err(Unjoined::NotFinite);
            }
            if Some(nearest) == before {
                self.chain.truncate(self.chain.len() - 2);
                return Ok((top.min(nearest), top.max(nearest), distance));
            }
            if self.chain.len() > self.n_living {
                return Err(Unjoined::Asymmetric);
            }
            self.push(nearest);
        }
    }

    fn push(&mut self, place: usize) {
        self.chain.push(place);
        self.pushed.push(place);
    }

    /// Find the nearest place in a row; `before` is preferred among equals, then the lowest.
    fn nearest(&self, row: &[f64], before: Option<usize>) -> (usize, f64) {
        let (_, places) = self.living.last().expect("places were listed at first");
        let (place, distance) = if places.len() == self.n {
            nearest_of_all(row)
        } else {
            nearest_of(row, places)
        };
        match before {
            Some(before) if row[before] <= distance => (before, row[before]),
            _ => (place, distance),
        }
    }

    /// Join two places: the lower one is gone, the higher one holds both.
    fn join(
        &mut self,
        low: usize,
        high: usize,
        distance: f64,
        distance_of: &impl Fn(Joined) -> f64,
    ) -> Result<(), Unjoined> {
        let of_low = self.current_row(low, distance_of)?;
        let low_row = std::mem::take(&mut self.cache[of_low].row);
        self.cache.swap_remove(of_low);
        let of_high = self.current_row(high, distance_of)?;
        if let Some(log) = &mut self.log {
            log.note(&self.pushed, low as u32, high as u32, distance)?;
        }
        self.pushed.clear();
        self.settle(low, high, distance);
        let step = self.joins.len() - 1;
        let (_, places) = self.living.last().expect("places were listed at first");
        let slot = &mut self.cache[of_high];
        combine(
            &mut slot.row,
            &low_row,
            &self.joins[step],
            places,
            &self.sizes,
            distance_of,
        );
        slot.as_of = step + 1;
        self.packed.clear();
        let there = places
            .iter()
            .filter(|&&place| self.gone_at[place as usize] == LIVING);
        self.packed
            .extend(there.map(|&place| slot.row[place as usize]));
        self.spare.push(low_row);
        self.kept.take_place(step, self.n_living);
        self.kept.keep(step, &self.packed)?;
        Ok(())
    }

    /// Note that two places were joined: all of it but their rows.
    ///
    /// Where rounding makes a mean smaller than the distances that it is of, the lower one may be on the chain still;
    /// the chain then ends before it.
    fn settle(&mut self, low: usize, high: usize, distance: f64) {
        let (n_low, n_high, step) = (self.sizes[low], self.sizes[high], self.joins.len());
        self.joins.push(Join {
            low: low as u32,
            high: high as u32,
            n_low,
            n_high,
            distance,
        });
        self.parts.push([self.made_by[low], self.made_by[high]]);
        for made_by in [self.made_by[low], self.made_by[high]] {
            if made_by > 0 {
                self.kept.forget(made_by as usize - 1);
            }
        }
        self.sizes[high] = n_low + n_high;
        self.sizes[low] = 0;
        self.made_by[high] = step as u32 + 1;
        self.gone_at[low] = step as u32;
        self.n_living -= 1;
        let kept = self.chain.iter().position(|&place| place == low);
        self.chain.truncate(kept.unwrap_or(self.chain.len()));
        let (_, places) = self.living.last().expect("places were listed at first");
        if 2 * self.n_living <= places.len() {
            let there = |&place: &u32| self.gone_at[place as usize] == LIVING;
            let left = places.iter().copied().filter(there).collect();
            self.living.push((step + 1, left));
        }
    }

    /// Return where in the cache the row of a place is, brought up to date.
    fn current_row(
        &mut self,
        place: usize,
        distance_of: &impl Fn(Joined) -> f64,
    ) -> Result<usize, Unjoined> {
        self.clock += 1;
        if let Some(at) = self.cache.iter().position(|cached| cached.place == place) {
            let (cached, size) = (&mut self.cache[at], self.sizes[place]);
            apply(
                &mut cached.row,
                &self.joins[cached.as_of..],
                size,
                distance_of,
            );
            (cached.as_of, cached.used) = (self.joins.len(), self.clock);
            return Ok(at);
        }
        let version = Version {
            place,
            made_by: self.made_by[place],
        };
        let row = self.make_row(version, self.joins.len(), distance_of)?;
        let made = CachedRow {
            place,
            as_of: self.joins.len(),
            used: self.clock,
            row,
        };
        if self.cache.len() < self.n_cached {
            self.cache.push(made);
            return Ok(self.cache.len() - 1);
        }
        let oldest = (0..self.cache.len()).min_by_key(|&at| self.cache[at].used);
        let at = oldest.expect("a cache has two rows");
        self.spare
            .push(std::mem::replace(&mut self.cache[at], made).row);
        Ok(at)
    }

    /// Read the row of a version, or make it from those of its parts where it is lost; as of a number of joins.
    fn make_row(
        &mut self,
        version: Version,
        as_of: usize,
        distance_of: &impl Fn(Joined) -> f64,
    ) -> Result<Vec<f64>, Unjoined> {
        let mut tasks = vec![Task::Make(version, as_of)];
        let mut made: Vec<Vec<f64>> = Vec::new();
        while let Some(task) = tasks.pop() {
            match task {
                Task::Make(version, as_of) => match self.read_row(version)? {
                    Some(mut row) => {
                        let since = version.made_by as usize;
                        let size = self.size_of(version);
                        apply(&mut row, &self.joins[since..as_of], size, distance_of);
                        made.push(row);
                    }
                    None => self.divide(version, as_of, &mut tasks),
                },
                Task::Combine(step, as_of, low_last) => {
                    let (last, first) = (made.pop(), made.pop());
                    let (last, first) = (last.expect("a row"), first.expect("a row"));
                    let (low, mut high) = if low_last {
                        (last, first)
                    } else {
                        (first, last)
                    };
                    let (places, sizes) = self.places_and_sizes(step + 1);
                    combine(
                        &mut high,
                        &low,
                        &self.joins[step],
                        places,
                        &sizes,
                        distance_of,
                    );
                    let size = self.joins[step].n_low + self.joins[step].n_high;
                    apply(&mut high, &self.joins[step + 1..as_of], size, distance_of);
                    self.spare.push(low);
                    made.push(high);
                }
            }
        }
        Ok(made.pop().expect("a row"))
    }

    /// Have the rows of both parts made, that of the larger one first: so few rows wait at a time.
    fn divide(&self, version: Version, as_of: usize, tasks: &mut Vec<Task>) {
        let step = version.made_by as usize - 1;
        let (join, [low, high]) = (&self.joins[step], self.parts[step]);
        let low_last = join.n_low <= join.n_high;
        tasks.push(Task::Combine(step, as_of, low_last));
        let parts = [(join.low, low), (join.high, high)];
        let order = if low_last { [0, 1] } else { [1, 0] };
        for part in order {
            let (place, made_by) = (parts[part].0 as usize, parts[part].1);
            tasks.push(Task::Make(Version { place, made_by }, step));
        }
    }

    /// Read the row of a version as it was when the version came to be; None if it is lost.
    fn read_row(&mut self, version: Version) -> Result<Option<Vec<f64>>, Unjoined> {
        let mut row = self
            .spare
            .pop()
            .unwrap_or_else(|| vec![f64::INFINITY; self.n]);
        let as_of = version.made_by as usize;
        if as_of == 0 {
            if !self.items.read(version.place, &mut row)? {
                return Err(Unjoined::Missing(version.place));
            }
            row[version.place] = f64::INFINITY;
            return Ok(Some(row));
        }
        self.packed.resize(self.n - as_of, 0.0);
        if !self.kept.read(as_of - 1, &mut self.packed)? {
            self.spare.push(row);
            return Ok(None);
        }
        let (places, gone_at) = (listed(&self.living, as_of), &self.gone_at);
        let mut values = self.packed.iter();
        for &place in places {
            let is_there = gone_at[place as usize] >= as_of as u32;
            row[place as usize] = match is_there {
                true => *values.next().expect("a value for each place"),
                false => f64::INFINITY,
            };
        }
        Ok(Some(row))
    }

    fn size_of(&self, version: Version) -> u32 {
        match version.made_by {
            0 => 1,
            step => self.joins[step as usize - 1].n_low + self.joins[step as usize - 1].n_high,
        }
    }

    /// Return the places that were listed by a number of joins, and the items that each cluster had after it.
    fn places_and_sizes(&self, as_of: usize) -> (&[u32], Vec<u32>) {
        let mut sizes = vec![1; self.n];
        for join in &self.joins[..as_of] {
            sizes[join.high as usize] = join.n_low + join.n_high;
            sizes[join.low as usize] = 0;
        }
        (listed(&self.living, as_of), sizes)
    }
}

/// Return the last list of places that was made by a number of joins.
fn listed(living: &[(usize, Vec<u32>)], as_of: usize) -> &[u32] {
    let at = living.partition_point(|(since, _)| *since <= as_of);
    &living[at - 1].1
}

/// Bring the row of a cluster of so many items up to date; what is gone is infinitely far.
#[inline(always)]
fn apply(row: &mut [f64], joins: &[Join], size: u32, distance_of: &impl Fn(Joined) -> f64) {
    for join in joins {
        let (low, high) = (join.low as usize, join.high as usize);
        row[high] = distance_of(Joined {
            low: row[low],
            high: row[high],
            parts: join.distance,
            n_low: f64::from(join.n_low),
            n_high: f64::from(join.n_high),
            n_other: f64::from(size),
        });
        row[low] = f64::INFINITY;
    }
}

/// Make the row of a joined cluster of those of its parts, in place of that of the higher one.
#[inline(always)]
fn combine(
    high: &mut [f64],
    low: &[f64],
    join: &Join,
    places: &[u32],
    sizes: &[u32],
    distance_of: &impl Fn(Joined) -> f64,
) {
    for &place in places {
        let place = place as usize;
        high[place] = distance_of(Joined {
            low: low[place],
            high: high[place],
            parts: join.distance,
            n_low: f64::from(join.n_low),
            n_high: f64::from(join.n_high),
            n_other: f64::from(sizes[place]),
        });
    }
    (high[join.low as usize], high[join.high as usize]) = (f64::INFINITY, f64::INFINITY);
}

/// Numbers that are compared at once. By arithmetic: those of a vector of 512 bits.
const LANES: usize = 8;

/// Return the first of the least values of a row, and it.
fn nearest_of_all(row: &[f64]) -> (usize, f64) {
    let mut least = [f64::INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (least, &value) in least.iter_mut().zip(chunk) {
            *least = if value < *least { value } else { *least };
        }
    }
    let distance = least
        .iter()
        .chain(rest)
        .copied()
        .fold(f64::INFINITY, f64::min);
    let place = row.iter().position(|&value| value == distance);
    (place.unwrap_or(0), distance)
}

/// The same, of some places in order.
fn nearest_of(row: &[f64], places: &[u32]) -> (usize, f64) {
    let nearer = |best: (usize, f64), &place: &u32| match row[place as usize] < best.1 {
        true => (place as usize, row[place as usize]),
        false => best,
    };
    places.iter().fold((0, f64::INFINITY), nearer)
}

#[cfg(test)]
mod tests;
