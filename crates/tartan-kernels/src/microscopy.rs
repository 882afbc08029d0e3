//! Registration of particles of localisation microscopy: the rigid motion of one set of points onto another that
//! maximises their overlap.
//!
//! With T(p) = R(theta) a + t, d = T(a_i) - b_j and v = sigma_i^2 + sigma_j^2:
//!
//! ```text
//! F(p; s) = 1/(m n) sum exp(-|d|^2 / s^2)          the Gauss transform
//! B(p)    = sum exp(-|d|^2 / (2 v)) / v            the Bhattacharyya score
//! ```
//!
//! `cloud` orders the points along a Morton curve and cuts them into blocks; `sums` computes F or B with gradient and
//! Hessian in one pass, for AVX-512, AVX2 and plain code (`lanes`, `x86`); `spectra` finds the peaks of B over all angles and
//! translations by the transforms of `fourier`; `newton` climbs from one start; `search` puts them together.
//!
//! Inner loops are f32 in units of the length s, sums over points are f64. A result depends on the two particles, the
//! settings and the vectors of the machine alone: not on the tile, the threads, or which particle comes first.

use rayon::prelude::*;

mod cloud;
mod fourier;
mod lanes;
mod motion;
mod newton;
mod search;
mod spectra;
mod sums;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cloud::{thin, Particle};
pub use motion::Motion;
pub use search::{gauss_at, register, score_at, Registration, Settings};
pub use spectra::Square;
pub use sums::{Sums, VectorLevel};

use search::{is_swapped, register_turned};
use spectra::Turned;

/// Bytes of spectra at once.
/// By judgement: twenty particles of the largest squares.
const MOST_BYTES: usize = 256 << 20;

/// Register all particles of `left` onto all of `right`, row by row, on all threads of the pool.
///
/// With `wanted`, the pairs that it does not want stay `None`.
///
/// # Panics
///
/// If `wanted` has another length than there are pairs.
pub fn register_tile(
    left: &[Particle],
    right: &[Particle],
    wanted: Option<&[bool]>,
    settings: &Settings,
) -> Vec<Option<Registration>> {
    register_within(left, right, wanted, settings, MOST_BYTES)
}

/// As [`register_tile`], with so many bytes of spectra at once, or those of one particle.
fn register_within(
    left: &[Particle],
    right: &[Particle],
    wanted: Option<&[bool]>,
    settings: &Settings,
    most_bytes: usize,
) -> Vec<Option<Registration>> {
    let n = left.len() * right.len();
    assert!(
        wanted.is_none_or(|w| w.len() == n),
        "one mark for each pair"
    );
    let asked = |pair: &usize| wanted.is_none_or(|wanted| wanted[*pair]);
    let mut pairs: Vec<Job> = (0..n)
        .filter(asked)
        .map(|pair| Job::new(left, right, pair))
        .collect();
    pairs.sort_by_key(Job::order);
    let groups: Vec<&[Job]> = pairs
        .chunk_by(|one, other| one.order().0 == other.order().0)
        .collect();
    let mut found = vec![None; n];
    let mut rest = &groups[..];
    while !rest.is_empty() {
        let (some, others) = rest.split_at(affordable(rest, settings, most_bytes));
        rest = others;
        let turned: Vec<Turned> = some
            .par_iter()
            .with_max_len(1)
            .map(|group| group[0].turn(settings))
            .collect();
        let jobs: Vec<(&Job, &Turned)> = some
            .iter()
            .zip(&turned)
            .flat_map(|(group, turned)| group.iter().map(move |job| (job, turned)))
            .collect();
        let registered: Vec<Registration> = jobs
            .par_iter()
            .with_max_len(1)
            .map(|(job, turned)| register_turned(job.a, job.b, turned, settings))
            .collect();
        for ((job, _), one) in jobs.iter().zip(registered) {
            found[job.pair] = Some(one);
        }
    }
    found
}

/// One pair of a tile.
struct Job<'a> {
    pair: usize,
    a: &'a Particle,
    b: &'a Particle,
    /// The number of the one that moves, the left first.
    moving: usize,
    square: Square,
}

impl<'a> Job<'a> {
    fn new(left: &'a [Particle], right: &'a [Particle], pair: usize) -> Self {
        let (i, j) = (pair / right.len(), pair % right.len());
        let (a, b) = (&left[i], &right[j]);
        let moving = if is_swapped(a, b) { left.len() + j } else { i };
        Job {
            pair,
            a,
            b,
            moving,
            square: Square::of(a, b),
        }
    }

    /// Pairs of one order share spectra.
    fn order(&self) -> ((usize, (usize, i32)), usize) {
        ((self.moving, self.square.order()), self.pair)
    }

    fn moves(&self) -> &'a Particle {
        if is_swapped(self.a, self.b) {
            self.b
        } else {
            self.a
        }
    }

    fn turn(&self, settings: &Settings) -> Turned {
        Turned::new(self.moves(), self.square, settings.symmetry, settings.level)
    }
}

/// How many of the groups have spectra that memory is spent on at once; one at least.
fn affordable(groups: &[&[Job]], settings: &Settings, most_bytes: usize) -> usize {
    let mut bytes = 0;
    let fits = |group: &&&[Job]| {
        bytes += Turned::bytes(group[0].moves(), &group[0].square, settings.symmetry);
        bytes <= most_bytes
    };
    groups.iter().take_while(fits).count().max(1)
}
