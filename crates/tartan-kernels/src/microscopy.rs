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
//! Hessian in one pass, for AVX-512, AVX2 and plain code (`lanes`, `x86`); `newton` climbs from one start; `search`
//! goes from coarse to fine from many angles.
//!
//! Inner loops are f32 in units of the length s, sums over points are f64. A result depends on the two particles, the
//! settings and the vectors of the machine alone: not on the tile, the threads, or which particle comes first.

use rayon::prelude::*;

mod cloud;
mod lanes;
mod motion;
mod newton;
mod search;
mod sums;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cloud::{thin, Particle};
pub use motion::Motion;
pub use search::{gauss_at, register, score_at, Registration, Settings};
pub use sums::{Sums, VectorLevel};

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
    let n = left.len() * right.len();
    assert!(
        wanted.is_none_or(|w| w.len() == n),
        "one mark for each pair"
    );
    (0..n)
        .into_par_iter()
        .with_max_len(1)
        .map(|pair| {
            let (i, j) = (pair / right.len(), pair % right.len());
            let asked = wanted.is_none_or(|wanted| wanted[pair]);
            asked.then(|| register(&left[i], &right[j], settings))
        })
        .collect()
}
