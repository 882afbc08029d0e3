//! One pass of SMACOF: distances, the residual of the majorising step and the stress, fused; and the product with the
//! matrix of weights.
//!
//! For coordinates x, dissimilarities delta and weights w, a pass computes for every point
//!
//! ```text
//! sum_j w_ij (t_ij / |x_i - x_j| - 1) (x_i - x_j)    and    sum_j w_ij (t_ij - |x_i - x_j|)^2,    t = max(delta - diff, 0)
//! ```
//!
//! over j != i. The first is row i of B(X) X - V X: the step of SMACOF solves V (X' - X) = that, and it is half the
//! descent direction of the second. A pair at the same place adds nothing to it. Nothing of the size of the matrix is
//! stored besides the matrix.
//!
//! Two forms: [`Workspace::triangle`] meets each unordered pair once and needs the whole square; several workspaces can
//! divide it among them by [`Workspace::keep`]. [`Workspace::rows`] takes any rows with all their columns, also of other points than the columns.
//!
//! Lanes are f32 or f64 (`E`); sums are carried over to f64 every [`walk::CHUNK`] columns, or every [`GROUP`] rows.
//! Results depend on neither the number of threads nor on which thread does what: every sum has its place, and
//! places are added in a fixed order. They depend on the width of the machine's vectors, and on the form, within
//! the rounding of E.

use std::ops::Range;

use rayon::prelude::*;

pub mod lanes;
pub mod walk;

use lanes::{Number, Portable, Stored};
use walk::{Block, Rule, Strips, Weights, PAD};

/// Rows that are summed into columns in the lanes' own precision before the sums are carried over to f64.
/// By arithmetic: float32 sums of 64 terms are right to some 1e-6. `tartan bench mds` holds time and stress.
pub const GROUP: usize = 64;

/// The instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorLevel {
    Portable,
    Avx2,
    Avx512,
}

impl VectorLevel {
    /// The widest that this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if wide && narrow {
                return Self::Avx512;
            }
            if narrow {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

/// f32 or f64: what lanes hold.
pub trait Real: Number {
    /// Do a task with the vectors of a level, which the machine must have.
    #[doc(hidden)]
    fn run<S: Entry>(level: VectorLevel, task: Strips<'_, '_, Self, S>);
}

impl Real for f32 {
    fn run<S: Entry>(level: VectorLevel, task: Strips<'_, '_, Self, S>) {
        S::narrow(level, task);
    }
}

impl Real for f64 {
    fn run<S: Entry>(level: VectorLevel, task: Strips<'_, '_, Self, S>) {
        S::wide(level, task);
    }
}

/// An entry of a matrix. The loops, which are long, are compiled here for each type, and not where they are used.
pub trait Entry: Stored {
    /// Do a task in lanes of f32.
    #[doc(hidden)]
    fn narrow(level: VectorLevel, task: Strips<'_, '_, f32, Self>);
    /// Do a task in lanes of f64.
    #[doc(hidden)]
    fn wide(level: VectorLevel, task: Strips<'_, '_, f64, Self>);
}

macro_rules! compiled {
    ($name:ident, $e:ty, $avx512:ident, $avx2:ident) => {
        #[inline(never)]
        fn $name(level: VectorLevel, task: Strips<'_, '_, $e, Self>) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512(task: Strips<'_, '_, $e, impl Stored>) {
                    // SAFETY: compiled for these instructions.
                    unsafe { task.run::<lanes::$avx512>() }
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2(task: Strips<'_, '_, $e, impl Stored>) {
                    // SAFETY: compiled for these instructions.
                    unsafe { task.run::<lanes::$avx2>() }
                }
                match level {
                    // SAFETY: a level is detected, or asked for by a test that asks the machine first.
                    VectorLevel::Avx512 => return unsafe { avx512(task) },
                    // SAFETY: as above.
                    VectorLevel::Avx2 => return unsafe { avx2(task) },
                    VectorLevel::Portable => {}
                }
            }
            let _ = level;
            // SAFETY: needs no instructions beyond the baseline.
            unsafe { task.run::<Portable<$e>>() }
        }
    };
}

macro_rules! entry {
    ($($stored:ty),*) => {
        $(impl Entry for $stored {
            compiled!(narrow, f32, Avx512, Avx2);
            compiled!(wide, f64, Avx512Wide, Avx2Wide);
        })*
    };
}

entry!(i16, f32, f64);

/// Sums of one share of the rows: each share is worked on by one thread at a time, in a fixed order.
struct Share<E> {
    /// Sums for columns within a group, in half units.
    columns: Vec<E>,
    /// All sums, one dimension after the other.
    sums: Vec<f64>,
    loss: f64,
    row_sums: Vec<f64>,
    row_losses: Vec<f64>,
}

/// Coordinates and sums, allocated once for many passes.
pub struct PassMemory<E> {
    n: usize,
    dim: usize,
    width: usize,
    level: VectorLevel,
    columns: Vec<E>,
    points: Vec<E>,
    centre: Vec<f64>,
    /// The shares that this workspace works on.
    kept: Range<usize>,
    shares: Vec<Share<E>>,
    guests: Vec<E>,
}

impl<E: Real> PassMemory<E> {
    /// Room for `n` points. Panics without points or dimensions.
    pub fn new(n: usize, dim: usize) -> Self {
        Self::with_level(n, dim, VectorLevel::detect())
    }

    /// The same with chosen instructions, which the machine must have.
    pub fn with_level(n: usize, dim: usize, level: VectorLevel) -> Self {
        assert!(n > 0 && dim > 0, "no points or no dimensions");
        let width = n.div_ceil(PAD) * PAD;
        Self {
            n,
            dim,
            width,
            level,
            columns: vec![E::default(); dim * width],
            points: vec![E::default(); dim * n],
            centre: vec![0.0; dim],
            kept: 0..n_shares(n),
            shares: Vec::new(),
            guests: Vec::new(),
        }
    }

    /// Number of points.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Number of dimensions.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Take new coordinates, point after point, and forget all sums.
    ///
    /// They are centred first, since lanes have a limited precision and only differences matter.
    pub fn place(&mut self, points: &[f64]) {
        assert_eq!(
            points.len(),
            self.n * self.dim,
            "coordinates of other points"
        );
        for (k, centre) in self.centre.iter_mut().enumerate() {
            let all = points.iter().skip(k).step_by(self.dim);
            *centre = all.sum::<f64>() / self.n as f64;
        }
        for (i, point) in points.chunks_exact(self.dim).enumerate() {
            for (k, &x) in point.iter().enumerate() {
                let x = E::of(x - self.centre[k]);
                self.points[i * self.dim + k] = x;
                self.columns[k * self.width + i] = x;
            }
        }
        for share in &mut self.shares {
            share.sums.fill(0.0);
            share.loss = 0.0;
        }
    }

    /// How many shares the rows are divided into, and how long a row of [`Self::partial`] is.
    pub fn shares(&self) -> (usize, usize) {
        (n_shares(self.n), self.dim * self.width + 1)
    }

    /// Work on these shares of the triangle alone; other workspaces work on the others. Forgets all sums.
    pub fn keep(&mut self, shares: Range<usize>) {
        assert!(
            shares.start <= shares.end && shares.end <= n_shares(self.n),
            "shares out of range"
        );
        self.kept = shares;
        self.shares.clear();
    }

    fn make_shares(&mut self) {
        if self.shares.is_empty() {
            let share = || Share {
                columns: vec![E::default(); self.dim * self.width],
                sums: vec![0.0; self.dim * self.width],
                loss: 0.0,
                row_sums: vec![0.0; self.dim * GROUP],
                row_losses: vec![0.0; GROUP],
            };
            self.shares = self.kept.clone().map(|_| share()).collect();
        }
    }

    /// Add the pairs (i, j), i < j, with i in `rows`, which begins at a multiple of [`GROUP`], and in a share that is
    /// kept.
    ///
    /// `delta` is the whole square matrix; so are weights that are one.
    pub fn triangle<S: Entry>(&mut self, delta: &[S], rule: &Rule<'_, E>, rows: Range<usize>) {
        assert_eq!(delta.len(), self.n * self.n, "a matrix of another size");
        assert!(
            rows.start.is_multiple_of(GROUP) && rows.end <= self.n,
            "rows out of range"
        );
        check(rule, self.n, self.n, self.width);
        self.make_shares();
        let block = Block {
            delta,
            n: self.n,
            dim: self.dim,
            columns: &self.columns,
            width: self.width,
            rows: &self.points,
            first: Some(0),
            rule: *rule,
        };
        let (level, n_shares, first) = (self.level, n_shares(self.n), self.kept.start);
        self.shares
            .par_iter_mut()
            .enumerate()
            .for_each(|(place, share)| {
                for group in rows.start / GROUP..rows.end.div_ceil(GROUP) {
                    if owner(group, n_shares) == first + place {
                        let last = ((group + 1) * GROUP).min(rows.end);
                        share.add(&block, group * GROUP..last, level);
                    }
                }
            });
    }

    /// Write the sums of all points (`dim` each) since [`Self::place`]; return the loss of all unordered pairs.
    pub fn finish(&self, out: &mut [f64]) -> f64 {
        let parts: Vec<_> = self.shares.iter().map(|s| (&s.sums[..], s.loss)).collect();
        self.fold(&parts, out)
    }

    /// Write sums and loss of each share that is kept, since [`Self::place`], one row each.
    pub fn partial(&mut self, out: &mut [f64]) {
        self.make_shares();
        let length = self.shares().1;
        assert_eq!(out.len(), self.shares.len() * length, "other shares");
        for (row, share) in out.chunks_exact_mut(length).zip(&self.shares) {
            row[..length - 1].copy_from_slice(&share.sums);
            row[length - 1] = share.loss;
        }
    }

    /// [`Self::finish`], of the rows of all shares as workspaces that keep parts of them have written them: the same
    /// bits as of one workspace that keeps all.
    pub fn finish_partials(&self, rows: &[f64], out: &mut [f64]) -> f64 {
        let (n_shares, length) = self.shares();
        assert_eq!(rows.len(), n_shares * length, "rows of other shares");
        let parts: Vec<_> = rows
            .chunks_exact(length)
            .map(|row| (&row[..length - 1], row[length - 1]))
            .collect();
        self.fold(&parts, out)
    }

    /// Add up shares in their order.
    fn fold(&self, parts: &[(&[f64], f64)], out: &mut [f64]) -> f64 {
        assert_eq!(out.len(), self.n * self.dim, "sums of other points");
        let (dim, width) = (self.dim, self.width);
        out.par_chunks_mut(dim * PAD * 16)
            .enumerate()
            .for_each(|(number, chunk)| {
                for (i, sums) in chunk.chunks_exact_mut(dim).enumerate() {
                    for (k, sum) in sums.iter_mut().enumerate() {
                        let place = k * width + number * PAD * 16 + i;
                        *sum = parts.iter().map(|part| part.0[place]).sum();
                    }
                }
            });
        parts.iter().map(|part| part.1).sum()
    }

    /// Write sums and losses of rows with all their columns.
    ///
    /// `delta` holds the rows. They are the points `first..` themselves, or `guests`: other points, at these
    /// coordinates, which meet every column. Losses count ordered pairs.
    pub fn rows<S: Entry>(
        &mut self,
        delta: &[S],
        rule: &Rule<'_, E>,
        at: BlockRows<'_>,
        sums: &mut [f64],
        losses: &mut [f64],
    ) {
        let (n, dim, m) = (self.n, self.dim, losses.len());
        assert_eq!(delta.len(), m * n, "rows of another length");
        assert_eq!(sums.len(), m * dim, "sums of other rows");
        check(rule, m, n, self.width);
        let (rows, first) = match at {
            BlockRows::From(first) => (&self.points[first * dim..(first + m) * dim], Some(first)),
            BlockRows::Guests(points) => {
                assert_eq!(points.len(), m * dim, "coordinates of other rows");
                self.guests.clear();
                let places = points.iter().enumerate();
                let centre = &self.centre;
                self.guests
                    .extend(places.map(|(at, &x)| E::of(x - centre[at % dim])));
                (&self.guests[..], None)
            }
        };
        let (columns, width, rule) = (&self.columns[..], self.width, *rule);
        let block = Block {
            delta,
            n,
            dim,
            columns,
            width,
            rows,
            first,
            rule,
        };
        let level = self.level;
        let parts = sums
            .par_chunks_mut(ROWS * dim)
            .zip(losses.par_chunks_mut(ROWS));
        parts.enumerate().for_each(|(number, (sums, losses))| {
            sums.fill(0.0);
            losses.fill(0.0);
            let rows = number * ROWS..number * ROWS + losses.len();
            E::run(
                level,
                Strips {
                    block: &block,
                    rows,
                    sums,
                    losses,
                    put: None,
                },
            );
        });
    }
}

/// Rows of one task of [`Workspace::rows`].
/// By judgement: few enough that threads end together. `tartan bench mds` holds the time.
const ROWS: usize = 16;

/// Who the rows of a block are.
#[derive(Clone, Copy, Debug)]
pub enum BlockRows<'a> {
    /// The points from this one on.
    From(usize),
    /// Other points at these coordinates.
    Guests(&'a [f64]),
}

/// How many shares the rows are divided into: a function of n alone, so that results are too.
fn n_shares(n: usize) -> usize {
    (n / GROUP).clamp(1, 16).max((n / 1024).min(64))
}

/// Which share a group of rows belongs to. There and back again, so that short and long rows even out.
fn owner(group: usize, n_shares: usize) -> usize {
    let place = group % (2 * n_shares);
    place.min(2 * n_shares - 1 - place)
}

fn check<E>(rule: &Rule<'_, E>, m: usize, n: usize, width: usize) {
    match rule.weights {
        Weights::Unit => {}
        Weights::Points { rows, columns } => {
            assert!(
                rows.len() == m && columns.len() == width,
                "weights of other points"
            );
        }
        Weights::Short { values, .. } => {
            assert_eq!(values.len(), m * n, "a matrix of weights of another size")
        }
        Weights::Real { values } => {
            assert_eq!(values.len(), m * n, "a matrix of weights of another size")
        }
    }
}

impl<E: Real> Share<E> {
    fn add<S: Entry>(&mut self, block: &Block<'_, E, S>, rows: Range<usize>, level: VectorLevel) {
        let (dim, width, from) = (block.dim, block.width, rows.start / PAD * PAD);
        for k in 0..dim {
            self.columns[k * width + from..(k + 1) * width].fill(E::default());
        }
        let (row_sums, row_losses) = (
            &mut self.row_sums[..dim * rows.len()],
            &mut self.row_losses[..rows.len()],
        );
        row_sums.fill(0.0);
        row_losses.fill(0.0);
        let task = Strips {
            block,
            rows: rows.clone(),
            sums: row_sums,
            losses: row_losses,
            put: Some(&mut self.columns),
        };
        E::run(level, task);
        self.loss += self.row_losses[..rows.len()].iter().sum::<f64>();
        for k in 0..dim {
            let span = k * width + from..(k + 1) * width;
            for (sum, &part) in self.sums[span.clone()].iter_mut().zip(&self.columns[span]) {
                *sum += 2.0 * part.wide();
            }
            for (i, row) in rows.clone().enumerate() {
                self.sums[k * width + row] += self.row_sums[i * dim + k];
            }
        }
    }
}
