//! The loop over pairs: some rows against a range of columns.
//!
//! A strip of rows shares every vector of columns, so that coordinates and sums of the columns are loaded once for
//! the strip. Half the inverse distance is what the square root gives for nothing, so all sums are of halves and
//! are doubled where they leave the loop.

#![allow(clippy::needless_range_loop)] // loops over dimensions index several arrays of vectors

use super::lanes::{Lanes, Number, Stored};

/// Rows of a strip.
/// By arithmetic: coordinates and sums of four rows in three dimensions fill the registers. `tartan bench mds` holds
/// the time.
pub const STRIP: usize = 4;
/// Columns that are summed in the lanes' own precision before the sum is carried over to f64.
/// By arithmetic: rounding of float32 grows with the chunk; the carry costs one addition of 1,024. `tartan bench mds`
/// holds time and stress.
pub const CHUNK: usize = 1024;
/// Most lanes of any vector, and the step to which columns are padded.
/// By arithmetic: 512 bits of float32.
pub const PAD: usize = 16;

/// Weights of the pairs of a block, besides missing pairs and Sammon's.
#[derive(Clone, Copy)]
pub enum Weights<'a, E> {
    Unit,
    /// The product of a weight of the row and one of the column (padded).
    Points {
        rows: &'a [E],
        columns: &'a [E],
    },
    /// A matrix like the dissimilarities, of 16-bit numbers.
    Short {
        values: &'a [i16],
        swap: bool,
    },
    /// A matrix of f32.
    Real {
        values: &'a [f32],
    },
}

/// How a stored value becomes a target distance and a weight. All lengths are in stored units.
#[derive(Clone, Copy)]
pub struct Rule<'a, E> {
    /// What the temperature takes off every dissimilarity.
    pub diff: E,
    /// Smaller dissimilarities count as this.
    pub floor: E,
    /// Squared distance that is added to all, so that nothing is divided by 0.
    pub tiny: E,
    /// Negative values and NaN are missing pairs.
    pub missing: bool,
    /// 16-bit dissimilarities lie in the other byte order.
    pub swap: bool,
    /// Divide weights by the dissimilarity, or by this where it is smaller.
    pub sammon: Option<E>,
    /// Multiply with the matrix of weights instead: the sums are `w (x_i - x_j)` and `w`.
    pub product: bool,
    pub weights: Weights<'a, E>,
}

impl<E: Number> Rule<'_, E> {
    /// Whether every pair counts alike, so that the short loop does.
    fn plain(&self) -> bool {
        let zero = E::default();
        let unit = matches!(self.weights, Weights::Unit);
        unit && !self.missing && !self.product && self.sammon.is_none() && self.floor == zero
    }
}

/// A block of rows against all columns.
#[derive(Clone, Copy)]
pub struct Block<'a, E, S> {
    /// Dissimilarities, `n` a row.
    pub delta: &'a [S],
    pub n: usize,
    pub dim: usize,
    /// Coordinates of the columns, one dimension after the other, each padded to `width`.
    pub columns: &'a [E],
    pub width: usize,
    /// Coordinates of the rows, point after point.
    pub rows: &'a [E],
    /// Which column is the first row itself; `None` when rows and columns are different points.
    pub first: Option<usize>,
    pub rule: Rule<'a, E>,
}

/// Rows `rows` of a block against the columns from `from` on; sums for rows go to `sums` and `losses`.
///
/// With `put`, each pair of points is met once: columns at or before the row are left out, and what the pair means
/// for the column is added to `put`, in half units.
pub struct Strips<'a, 'b, E, S> {
    pub block: &'b Block<'a, E, S>,
    pub rows: std::ops::Range<usize>,
    /// Sums of the rows, `dim` each, from `rows.start` on.
    pub sums: &'b mut [f64],
    /// Weighted squared errors (or weights) of the rows.
    pub losses: &'b mut [f64],
    pub put: Option<&'b mut [E]>,
}

impl<E: Number, S: Stored> Strips<'_, '_, E, S> {
    /// Do the work in vectors of this type.
    ///
    /// # Safety
    /// The machine has the instructions of `V`.
    #[inline(always)]
    pub unsafe fn run<V: Lanes<E = E>>(mut self) {
        // SAFETY: the promise of the caller is passed on; `check` has compared all lengths.
        unsafe {
            match (self.block.dim, self.block.rule.plain()) {
                (3, true) => self.all::<V, 3, true>(),
                (3, false) => self.all::<V, 3, false>(),
                (2, true) => self.all::<V, 2, true>(),
                (2, false) => self.all::<V, 2, false>(),
                _ => self.all_dimensions::<V>(),
            }
        }
    }
}

/// The vectors of one strip in a chunk: which are whole, and which need a mask.
#[derive(Clone, Copy)]
struct Cut {
    start: usize,
    mask_start: usize,
    mask_end: usize,
    whole_end: usize,
    end: usize,
}

impl<E: Number, S: Stored> Strips<'_, '_, E, S> {
    #[inline(always)]
    unsafe fn all<V: Lanes<E = E>, const DIM: usize, const PLAIN: bool>(&mut self) {
        let mut chunk = self.start::<V>();
        while chunk < self.block.n {
            let end = (chunk + CHUNK).min(self.block.width);
            let mut row = self.rows.start;
            while row < self.rows.end {
                // SAFETY: rows and columns lie inside the block.
                unsafe {
                    if row + STRIP <= self.rows.end {
                        self.choose::<V, DIM, PLAIN, STRIP>(row, chunk, end);
                        row += STRIP;
                    } else {
                        self.choose::<V, DIM, PLAIN, 1>(row, chunk, end);
                        row += 1;
                    }
                }
            }
            chunk = end;
        }
    }

    /// The first column that concerns these rows, at the beginning of a vector.
    #[inline(always)]
    fn start<V: Lanes<E = E>>(&self) -> usize {
        match (self.block.first, &self.put) {
            (Some(first), Some(_)) => (first + self.rows.start) / V::N * V::N,
            _ => 0,
        }
    }

    #[inline(always)]
    fn cut<V: Lanes<E = E>>(&self, row: usize, rows: usize, start: usize, end: usize) -> Cut {
        let whole_end = (self.block.n / V::N * V::N).clamp(start, end);
        let end = self.block.n.div_ceil(V::N).saturating_mul(V::N).min(end);
        let Some(first) = self.block.first else {
            return Cut {
                start,
                mask_start: start,
                mask_end: start,
                whole_end,
                end,
            };
        };
        let own = (first + row) / V::N * V::N;
        let behind = (first + row + rows).div_ceil(V::N) * V::N;
        let start = if self.put.is_some() {
            start.max(own).min(end)
        } else {
            start
        };
        let clip = |column: usize| column.clamp(start, whole_end.max(start));
        Cut {
            start,
            mask_start: clip(own),
            mask_end: clip(behind),
            whole_end: whole_end.max(start),
            end,
        }
    }

    #[inline(always)]
    unsafe fn choose<V: Lanes<E = E>, const DIM: usize, const PLAIN: bool, const R: usize>(
        &mut self,
        row: usize,
        start: usize,
        end: usize,
    ) {
        // SAFETY: passed on.
        unsafe {
            if self.put.is_some() {
                self.strip::<V, DIM, PLAIN, R, true>(row, start, end);
            } else {
                self.strip::<V, DIM, PLAIN, R, false>(row, start, end);
            }
        }
    }

    #[inline(always)]
    unsafe fn strip<
        V: Lanes<E = E>,
        const DIM: usize,
        const PLAIN: bool,
        const R: usize,
        const PUT: bool,
    >(
        &mut self,
        row: usize,
        start: usize,
        end: usize,
    ) {
        let cut = self.cut::<V>(row, R, start, end);
        let block = self.block;
        // SAFETY: every column is below `width`, to which coordinates and sums of columns are padded; whole
        // vectors of dissimilarities end below n, and the others are copied.
        unsafe {
            let ready = Ready::<V>::new(&block.rule);
            let mut state = State::<V, DIM, R>::new(&block.rows[row * DIM..(row + R) * DIM]);
            let put = self
                .put
                .as_mut()
                .map_or(std::ptr::null_mut(), |put| put.as_mut_ptr());
            for (from, to, masked) in [
                (cut.start, cut.mask_start, false),
                (cut.mask_start, cut.mask_end, true),
                (cut.mask_end, cut.whole_end, false),
                (cut.whole_end, cut.end, true),
            ] {
                let place = Place {
                    block,
                    ready: &ready,
                    row,
                    put,
                };
                if masked {
                    place.edge::<DIM, PLAIN, R, PUT>(&mut state, from, to);
                } else {
                    place.sweep::<DIM, PLAIN, R, PUT>(&mut state, from, to);
                }
            }
            for r in 0..R {
                let place = row + r - self.rows.start;
                for k in 0..DIM {
                    self.sums[place * DIM + k] -= 2.0 * state.sums[r][k].sum();
                }
                self.losses[place] += state.losses[r].sum();
            }
        }
    }

    /// The same for any dimension: forces of a chunk first, then one dimension after the other.
    #[inline(always)]
    unsafe fn all_dimensions<V: Lanes<E = E>>(&mut self) {
        for row in self.rows.clone() {
            let mut chunk = self.start::<V>();
            while chunk < self.block.n {
                let end = (chunk + CHUNK).min(self.block.width);
                // SAFETY: rows and columns lie inside the block.
                unsafe { self.one_row::<V>(row, chunk, end) };
                chunk = end;
            }
        }
    }

    #[inline(always)]
    unsafe fn one_row<V: Lanes<E = E>>(&mut self, row: usize, start: usize, end: usize) {
        let cut = self.cut::<V>(row, 1, start, end);
        let (block, place) = (self.block, row - self.rows.start);
        let mut forces = [E::default(); CHUNK + PAD];
        // SAFETY: as in `strip`; `forces` has room for the columns of a chunk.
        unsafe {
            let ready = Ready::<V>::new(&block.rule);
            let mut loss = V::splat(E::default());
            let mut column = cut.start;
            while column < cut.end {
                let masked =
                    (cut.mask_start..cut.mask_end).contains(&column) || column >= cut.whole_end;
                let (target, weight) = match (masked, self.put.is_some()) {
                    (true, true) => masked_target::<V, S, false, true>(block, &ready, row, column),
                    (true, false) => {
                        masked_target::<V, S, false, false>(block, &ready, row, column)
                    }
                    (false, _) => target::<V, S, false>(block, &ready, row, column),
                };
                let mut squared = ready.tiny;
                for k in 0..block.dim {
                    let apart = V::load(block.columns.as_ptr().add(k * block.width + column))
                        .minus(V::splat(block.rows[row * block.dim + k]));
                    squared = apart.times_plus(apart, squared);
                }
                let force;
                (force, loss) = ready.pair::<false>(target, weight, squared, loss, true);
                force.store(forces.as_mut_ptr().add(column - cut.start));
                column += V::N;
            }
            self.losses[place] += loss.sum();
            for k in 0..block.dim {
                let at = V::splat(block.rows[row * block.dim + k]);
                let mut sum = V::splat(E::default());
                for column in (cut.start..cut.end).step_by(V::N) {
                    let force = V::load(forces.as_ptr().add(column - cut.start));
                    let place = k * block.width + column;
                    let moved = force.times(V::load(block.columns.as_ptr().add(place)).minus(at));
                    sum = sum.plus(moved);
                    if let Some(put) = &mut self.put {
                        let back = put.as_mut_ptr().add(place);
                        V::load(back).plus(moved).store(back);
                    }
                }
                self.sums[place * block.dim + k] -= 2.0 * sum.sum();
            }
        }
    }
}

/// Where the rows of a strip are, and what they have summed.
#[derive(Clone, Copy)]
struct State<V, const DIM: usize, const R: usize> {
    at: [[V; DIM]; R],
    sums: [[V; DIM]; R],
    losses: [V; R],
}

impl<V: Lanes, const DIM: usize, const R: usize> State<V, DIM, R> {
    #[inline(always)]
    unsafe fn new(points: &[V::E]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let zero = V::splat(V::E::default());
            let mut at = [[zero; DIM]; R];
            for (x, &value) in at.iter_mut().flatten().zip(points) {
                *x = V::splat(value);
            }
            Self {
                at,
                sums: [[zero; DIM]; R],
                losses: [zero; R],
            }
        }
    }
}

/// A strip of rows in its block.
struct Place<'a, 'b, V: Lanes, S> {
    block: &'b Block<'a, V::E, S>,
    ready: &'b Ready<V>,
    row: usize,
    put: *mut V::E,
}

impl<V: Lanes, S: Stored> Place<'_, '_, V, S> {
    /// Add columns `from..to`, which begin and end with a vector, of which none needs a mask.
    #[inline(always)]
    unsafe fn sweep<const DIM: usize, const PLAIN: bool, const R: usize, const PUT: bool>(
        &self,
        state: &mut State<V, DIM, R>,
        from: usize,
        to: usize,
    ) {
        let mut own = *state;
        // SAFETY: the caller keeps columns inside the block.
        unsafe {
            let mut column = from;
            while column < to {
                let (there, mut back) = self.columns::<DIM, PUT>(column);
                // Unrolled by hand, since only then do the sums stay in registers.
                self.meet::<DIM, PLAIN, R, PUT, false>(&mut own, 0, column, &there, &mut back);
                if R == STRIP {
                    self.meet::<DIM, PLAIN, R, PUT, false>(&mut own, 1, column, &there, &mut back);
                    self.meet::<DIM, PLAIN, R, PUT, false>(&mut own, 2, column, &there, &mut back);
                    self.meet::<DIM, PLAIN, R, PUT, false>(&mut own, 3, column, &there, &mut back);
                }
                self.give_back::<DIM, PUT>(column, &back);
                column += V::N;
            }
        }
        *state = own;
    }

    /// The same with masks, one row after the other: such vectors are few, and the code, which is long, is compiled
    /// once. The sums are the same to the last bit.
    #[inline(always)]
    unsafe fn edge<const DIM: usize, const PLAIN: bool, const R: usize, const PUT: bool>(
        &self,
        state: &mut State<V, DIM, R>,
        from: usize,
        to: usize,
    ) {
        for r in 0..R {
            for column in (from..to).step_by(V::N) {
                // SAFETY: the caller keeps columns inside the block.
                unsafe {
                    let (there, mut back) = self.columns::<DIM, PUT>(column);
                    self.meet::<DIM, PLAIN, R, PUT, true>(state, r, column, &there, &mut back);
                    self.give_back::<DIM, PUT>(column, &back);
                }
            }
        }
    }

    /// Coordinates of one vector of columns, and with `PUT` their sums.
    #[inline(always)]
    unsafe fn columns<const DIM: usize, const PUT: bool>(
        &self,
        column: usize,
    ) -> ([V; DIM], [V; DIM]) {
        let (mut there, mut back) = ([self.ready.zero; DIM], [self.ready.zero; DIM]);
        for k in 0..DIM {
            let place = k * self.block.width + column;
            // SAFETY: the caller keeps columns inside the block.
            unsafe {
                there[k] = V::load(self.block.columns.as_ptr().add(place));
                if PUT {
                    back[k] = V::load(self.put.add(place));
                }
            }
        }
        (there, back)
    }

    /// Store the sums of one vector of columns.
    #[inline(always)]
    unsafe fn give_back<const DIM: usize, const PUT: bool>(&self, column: usize, back: &[V; DIM]) {
        if PUT {
            for k in 0..DIM {
                // SAFETY: the caller keeps columns inside the block.
                unsafe { back[k].store(self.put.add(k * self.block.width + column)) };
            }
        }
    }

    /// Add what row `r` of the strip and the columns of one vector mean for each other.
    #[inline(always)]
    unsafe fn meet<
        const DIM: usize,
        const PLAIN: bool,
        const R: usize,
        const PUT: bool,
        const MASKED: bool,
    >(
        &self,
        own: &mut State<V, DIM, R>,
        r: usize,
        column: usize,
        there: &[V; DIM],
        back: &mut [V; DIM],
    ) {
        // SAFETY: the caller keeps columns inside the block.
        unsafe {
            let (target, weight) = if MASKED {
                masked_target::<V, S, PLAIN, PUT>(self.block, self.ready, self.row + r, column)
            } else {
                target::<V, S, PLAIN>(self.block, self.ready, self.row + r, column)
            };
            let mut apart = [self.ready.zero; DIM];
            let mut squared = self.ready.tiny;
            for k in 0..DIM {
                apart[k] = there[k].minus(own.at[r][k]);
                squared = apart[k].times_plus(apart[k], squared);
            }
            let (force, loss) =
                self.ready
                    .pair::<PLAIN>(target, weight, squared, own.losses[r], MASKED || !PLAIN);
            own.losses[r] = loss;
            for k in 0..DIM {
                own.sums[r][k] = force.times_plus(apart[k], own.sums[r][k]);
                if PUT {
                    back[k] = force.times_plus(apart[k], back[k]);
                }
            }
        }
    }
}

/// The numbers of a rule in all lanes.
struct Ready<V> {
    diff: V,
    floor: V,
    tiny: V,
    zero: V,
    minus_half: V,
    sammon: Option<V>,
    missing: bool,
    product: bool,
}

impl<V: Lanes> Ready<V> {
    #[inline(always)]
    unsafe fn new(rule: &Rule<'_, V::E>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                diff: V::splat(rule.diff),
                floor: V::splat(rule.floor),
                tiny: V::splat(rule.tiny),
                zero: V::splat(V::E::default()),
                minus_half: V::splat(V::E::of(-0.5)),
                sammon: rule.sammon.map(|least| V::splat(least)),
                missing: rule.missing,
                product: rule.product,
            }
        }
    }

    /// Return half the force of a pair, and the loss with that of the pair added.
    #[inline(always)]
    unsafe fn pair<const PLAIN: bool>(
        &self,
        target: V,
        weight: V,
        squared: V,
        loss: V,
        weighted: bool,
    ) -> (V, V) {
        // SAFETY: the caller's promise.
        unsafe {
            if !PLAIN && self.product {
                return (weight.times(V::splat(V::E::of(0.5))), loss.plus(weight));
            }
            let (distance, half_inverse) = squared.root_and_half_inverse();
            let error = target.minus(distance);
            let force = target.times_plus(half_inverse, self.minus_half);
            if weighted {
                let loss = weight.times(error).times_plus(error, loss);
                (force.times(weight), loss)
            } else {
                (force, error.times_plus(error, loss))
            }
        }
    }
}

/// Target distances and weights of a row and the columns of one whole vector.
#[inline(always)]
unsafe fn target<V: Lanes, S: Stored, const PLAIN: bool>(
    block: &Block<'_, V::E, S>,
    ready: &Ready<V>,
    row: usize,
    column: usize,
) -> (V, V) {
    let offset = row * block.n + column;
    // SAFETY: the vector lies inside the row, as the caller promises.
    unsafe {
        let delta = S::load::<V>(block.delta.as_ptr().add(offset), block.rule.swap);
        if PLAIN {
            return (delta.minus(ready.diff).at_least(ready.zero), ready.zero);
        }
        let weight = match block.rule.weights {
            Weights::Unit => V::splat(V::E::of(1.0)),
            Weights::Points { rows, columns } => {
                V::splat(rows[row]).times(V::load(columns.as_ptr().add(column)))
            }
            Weights::Short { values, swap } => V::from_i16(values.as_ptr().add(offset), swap),
            Weights::Real { values } => V::from_f32(values.as_ptr().add(offset)),
        };
        general(ready, delta, weight)
    }
}

/// The same where the row's own column (with `PUT`: all up to it) or columns past the end are left out.
#[inline(always)]
unsafe fn masked_target<V: Lanes, S: Stored, const PLAIN: bool, const PUT: bool>(
    block: &Block<'_, V::E, S>,
    ready: &Ready<V>,
    row: usize,
    column: usize,
) -> (V, V) {
    let present = block.n.saturating_sub(column).min(V::N);
    let offset = row * block.n + column;
    let mut values = [S::default(); PAD];
    values[..present].copy_from_slice(&block.delta[offset..offset + present]);
    let mut mask = [V::E::default(); PAD];
    let own = block.first.map(|first| first + row);
    for (lane, place) in mask[..present].iter_mut().enumerate() {
        let counts = own.is_none_or(|own| {
            if PUT {
                column + lane > own
            } else {
                column + lane != own
            }
        });
        *place = V::E::of(f64::from(u8::from(counts)));
    }
    // SAFETY: the arrays are as long as the longest vector; columns of points are padded.
    unsafe {
        let delta = S::load::<V>(values.as_ptr(), block.rule.swap);
        let mask = V::load(mask.as_ptr());
        if PLAIN {
            return (delta.minus(ready.diff).at_least(ready.zero), mask);
        }
        let weight = match block.rule.weights {
            Weights::Unit => mask,
            Weights::Points { rows, columns } => mask
                .times(V::splat(rows[row]))
                .times(V::load(columns.as_ptr().add(column))),
            Weights::Short { values, swap } => {
                let mut some = [0i16; PAD];
                some[..present].copy_from_slice(&values[offset..offset + present]);
                mask.times(V::from_i16(some.as_ptr(), swap))
            }
            Weights::Real { values } => {
                let mut some = [0f32; PAD];
                some[..present].copy_from_slice(&values[offset..offset + present]);
                mask.times(V::from_f32(some.as_ptr()))
            }
        };
        general(ready, delta, weight)
    }
}

/// Missing pairs, the floor, the temperature and Sammon's weights.
#[inline(always)]
unsafe fn general<V: Lanes>(ready: &Ready<V>, delta: V, weight: V) -> (V, V) {
    // SAFETY: the caller's promise.
    unsafe {
        let weight = if ready.missing {
            weight.times(delta.is_valid())
        } else {
            weight
        };
        let delta = delta.at_least(ready.floor);
        let weight = match ready.sammon {
            Some(least) => weight.over(delta.at_least(least)),
            None => weight,
        };
        (delta.minus(ready.diff).at_least(ready.zero), weight)
    }
}
