//! Sums over the columns of a row: what depends on the map.
//!
//! A chunk of columns is treated in two stages. First everything that belongs to one column is computed, element by
//! element; then products of such arrays are summed, in lanes that are added at the end. Both stages are loops that
//! the compiler turns into vector instructions.

// The loops index several arrays at once.
#![allow(clippy::needless_range_loop)]

use super::load::ColumnPairs;
use super::types::{Modelled, Objective, VectorLevel, CHUNK};

/// Columns that are summed side by side.
/// By arithmetic: a vector of eight float64.
const LANES: usize = 8;

type Column = [f64; CHUNK];

/// chi2, half gradient and diagonal block of one row.
pub struct Derived<'a, const L: usize> {
    objective: &'a Objective,
    x: &'a [&'a [f64]; L],
    own: [f64; L],
    chisq: f64,
    marked: f64,
    gradient: [f64; L],
    blocks: [[f64; L]; L],
    identity: f64,
    dx: [Column; L],
    factors: Factors,
}

impl<'a, const L: usize> Derived<'a, L> {
    pub fn new(objective: &'a Objective, x: &'a [&'a [f64]; L], i: usize) -> Self {
        Derived {
            objective,
            x,
            own: x.map(|column| column[i]),
            chisq: 0.0,
            marked: 0.0,
            gradient: [0.0; L],
            blocks: [[0.0; L]; L],
            identity: 0.0,
            dx: [[0.0; CHUNK]; L],
            factors: Factors::new(),
        }
    }

    /// Add the pairs of the columns from `start`.
    pub fn add(&mut self, start: usize, pairs: ColumnPairs<'_>, marked: &[f64]) {
        match VectorLevel::widest() {
            // SAFETY: `widest` found every feature that this level is compiled for.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx512 => unsafe { self.add_avx512(start, pairs, marked) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx2 => unsafe { self.add_avx2(start, pairs, marked) },
            VectorLevel::Baseline => self.add_inline(start, pairs, marked),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    fn add_avx512(&mut self, start: usize, pairs: ColumnPairs<'_>, marked: &[f64]) {
        self.add_inline(start, pairs, marked);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn add_avx2(&mut self, start: usize, pairs: ColumnPairs<'_>, marked: &[f64]) {
        self.add_inline(start, pairs, marked);
    }

    #[inline(always)]
    pub(super) fn add_inline(&mut self, start: usize, pairs: ColumnPairs<'_>, marked: &[f64]) {
        let n = pairs.len().min(CHUNK);
        differences(&self.own, self.x, start, n, &mut self.dx);
        self.factors.derive(self.objective, pairs, &self.dx);
        let c = &self.factors;
        self.chisq += sum(&c.chisq[..n]);
        self.marked += dot(&c.chisq[..n], marked);
        if self.objective.second {
            self.identity += sum(&c.identity[..n]);
        }
        let mut weighted = [0.0; CHUNK];
        for a in 0..L {
            self.gradient[a] += dot(&c.gradient[..n], &self.dx[a]);
            multiply(&c.outer[..n], &self.dx[a], &mut weighted);
            for b in 0..=a {
                self.blocks[a][b] += dot(&weighted[..n], &self.dx[b]);
            }
        }
    }

    /// Write the sums, times the weight of the row's own point.
    pub fn store(&self, own: f64, chisq: &mut [f64], gradient: &mut [f64], blocks: &mut [f64]) {
        chisq.copy_from_slice(&[own * self.chisq, own * self.marked]);
        for a in 0..L {
            gradient[a] = -2.0 * own * self.gradient[a];
            for b in 0..=a {
                let mut sum = self.blocks[a][b];
                if a == b {
                    sum -= self.identity;
                }
                blocks[a * L + b] = 2.0 * own * sum;
                blocks[b * L + a] = 2.0 * own * sum;
            }
        }
    }
}

/// The product of one row of the half Hessian with a vector.
pub struct HessianProduct<'a, const L: usize> {
    objective: &'a Objective,
    x: &'a [&'a [f64]; L],
    v: &'a [&'a [f64]; L],
    own_x: [f64; L],
    own_v: [f64; L],
    sums: [f64; L],
    dx: [Column; L],
    dv: [Column; L],
    factors: Factors,
}

impl<'a, const L: usize> HessianProduct<'a, L> {
    pub fn new(
        objective: &'a Objective,
        x: &'a [&'a [f64]; L],
        v: &'a [&'a [f64]; L],
        i: usize,
    ) -> Self {
        HessianProduct {
            objective,
            x,
            v,
            own_x: x.map(|column| column[i]),
            own_v: v.map(|column| column[i]),
            sums: [0.0; L],
            dx: [[0.0; CHUNK]; L],
            dv: [[0.0; CHUNK]; L],
            factors: Factors::new(),
        }
    }

    /// Add the pairs of the columns from `start`.
    pub fn add(&mut self, start: usize, pairs: ColumnPairs<'_>) {
        match VectorLevel::widest() {
            // SAFETY: `widest` found every feature that this level is compiled for.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx512 => unsafe { self.add_avx512(start, pairs) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx2 => unsafe { self.add_avx2(start, pairs) },
            VectorLevel::Baseline => self.add_inline(start, pairs),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    fn add_avx512(&mut self, start: usize, pairs: ColumnPairs<'_>) {
        self.add_inline(start, pairs);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn add_avx2(&mut self, start: usize, pairs: ColumnPairs<'_>) {
        self.add_inline(start, pairs);
    }

    #[inline(always)]
    pub(super) fn add_inline(&mut self, start: usize, pairs: ColumnPairs<'_>) {
        let n = pairs.len().min(CHUNK);
        differences(&self.own_x, self.x, start, n, &mut self.dx);
        differences(&self.own_v, self.v, start, n, &mut self.dv);
        if self.objective.second {
            self.factors.derive(self.objective, pairs, &self.dx);
            for a in 0..L {
                self.sums[a] -= dot(&self.factors.identity[..n], &self.dv[a]);
            }
        } else {
            self.factors.derive_outer(self.objective, pairs, &self.dx);
        }
        self.factors.multiply_outer(n, &self.dx, &self.dv);
        for a in 0..L {
            self.sums[a] += dot(&self.factors.outer[..n], &self.dx[a]);
        }
    }

    /// Write the sums, times the weight of the row's own point.
    pub fn store(&self, own: f64, out: &mut [f64]) {
        for a in 0..L {
            out[a] = 2.0 * own * self.sums[a];
        }
    }
}

/// Factors of each pair: of chi2; of dx in the gradient; of dx dx^T and of -1 in the Hessian.
struct Factors {
    chisq: Column,
    gradient: Column,
    outer: Column,
    identity: Column,
}

impl Factors {
    fn new() -> Self {
        Factors {
            chisq: [0.0; CHUNK],
            gradient: [0.0; CHUNK],
            outer: [0.0; CHUNK],
            identity: [0.0; CHUNK],
        }
    }

    #[inline(always)]
    fn derive<const L: usize>(&mut self, o: &Objective, pairs: ColumnPairs<'_>, dx: &[Column; L]) {
        let second = if o.second { 1.0 } else { 0.0 };
        let n = pairs.len().min(CHUNK);
        let (weight, delta) = (&pairs.weight[..n], &pairs.delta[..n]);
        match o.formula {
            Modelled::Distance { minimum_squared } => {
                for k in 0..n {
                    let square = squared(dx, k) + minimum_squared;
                    let inverse = inverse_root(square);
                    let error = delta[k] - square * inverse;
                    let gradient = weight[k] * error * inverse;
                    self.chisq[k] = weight[k] * error * error;
                    self.gradient[k] = gradient;
                    self.identity[k] = second * gradient;
                    self.outer[k] = (weight[k] + second * gradient) * (inverse * inverse);
                }
            }
            Modelled::Squared => {
                for k in 0..n {
                    let error = delta[k] - squared(dx, k);
                    let gradient = 2.0 * weight[k] * error;
                    self.chisq[k] = weight[k] * error * error;
                    self.gradient[k] = gradient;
                    self.identity[k] = second * gradient;
                    self.outer[k] = 4.0 * weight[k];
                }
            }
        }
    }

    /// The factor of dx dx^T in the Hessian of Gauss and Newton, which needs no root.
    #[inline(always)]
    fn derive_outer<const L: usize>(
        &mut self,
        o: &Objective,
        pairs: ColumnPairs<'_>,
        dx: &[Column; L],
    ) {
        let n = pairs.len().min(CHUNK);
        let weight = &pairs.weight[..n];
        match o.formula {
            Modelled::Distance { minimum_squared } => {
                for k in 0..n {
                    let square = squared(dx, k) + minimum_squared;
                    self.outer[k] = if square > 0.0 {
                        weight[k] / square
                    } else {
                        0.0
                    };
                }
            }
            Modelled::Squared => {
                for k in 0..n {
                    self.outer[k] = 4.0 * weight[k];
                }
            }
        }
    }

    /// Multiply the factor of dx dx^T with dx^T dv.
    #[inline(always)]
    fn multiply_outer<const L: usize>(&mut self, n: usize, dx: &[Column; L], dv: &[Column; L]) {
        for k in 0..n.min(CHUNK) {
            let mut inner = 0.0;
            for a in 0..L {
                inner += dx[a][k] * dv[a][k];
            }
            self.outer[k] *= inner;
        }
    }
}

/// 1 / sqrt(square). Points in one place have no direction: such a pair has no derivatives.
#[inline(always)]
fn inverse_root(square: f64) -> f64 {
    let inverse = 1.0 / square.sqrt();
    if square > 0.0 {
        inverse
    } else {
        0.0
    }
}

#[inline(always)]
fn squared<const L: usize>(dx: &[Column; L], k: usize) -> f64 {
    let mut square = 0.0;
    for column in dx {
        square += column[k] * column[k];
    }
    square
}

/// The own coordinates less those of `n` columns from `start`.
#[inline(always)]
fn differences<const L: usize>(
    own: &[f64; L],
    of: &[&[f64]; L],
    start: usize,
    n: usize,
    out: &mut [Column; L],
) {
    for d in 0..L {
        for (place, other) in out[d].iter_mut().zip(&of[d][start..start + n]) {
            *place = own[d] - other;
        }
    }
}

#[inline(always)]
fn multiply(a: &[f64], b: &[f64], out: &mut [f64]) {
    for ((place, a), b) in out.iter_mut().zip(a).zip(b) {
        *place = a * b;
    }
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let b = &b[..a.len()];
    let mut lanes = [0.0; LANES];
    let (a_rest, b_rest) = (
        a.chunks_exact(LANES).remainder(),
        b.chunks_exact(LANES).remainder(),
    );
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for k in 0..LANES {
            lanes[k] += a[k] * b[k];
        }
    }
    for (k, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[k] += a * b;
    }
    lanes.iter().sum()
}

#[inline(always)]
fn sum(a: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for a in a.chunks_exact(LANES) {
        for k in 0..LANES {
            lanes[k] += a[k];
        }
    }
    let rest: f64 = a.chunks_exact(LANES).remainder().iter().sum();
    lanes.iter().sum::<f64>() + rest
}
