//! Stored values of a row to dissimilarities and weights, a chunk of columns at a time.

use super::types::{Objective, VectorLevel, CHUNK};

/// A stored dissimilarity.
pub trait Stored: Copy + Send + Sync {
    /// The stored number; NaN for a missing pair.
    fn number(self) -> f64;
}

impl Stored for i16 {
    #[inline(always)]
    fn number(self) -> f64 {
        if self < 0 {
            f64::NAN
        } else {
            f64::from(self)
        }
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn number(self) -> f64 {
        f64::from(self)
    }
}

impl Stored for f64 {
    #[inline(always)]
    fn number(self) -> f64 {
        self
    }
}

/// An int16 in the byte order that is not this machine's.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Swapped(pub i16);

impl Stored for Swapped {
    #[inline(always)]
    fn number(self) -> f64 {
        self.0.swap_bytes().number()
    }
}

/// Dissimilarities and weights of consecutive columns; the weight of the row's own point is not in it.
#[derive(Clone, Copy)]
pub struct ColumnPairs<'a> {
    pub delta: &'a [f64],
    pub weight: &'a [f64],
}

impl ColumnPairs<'_> {
    pub fn len(&self) -> usize {
        self.delta.len()
    }
}

/// Give the pairs of row `i` to `use_pairs(first column, pairs)`, chunk after chunk.
pub fn walk<T: Stored>(
    objective: &Objective,
    row: &[T],
    weights: &[f64],
    i: usize,
    mut use_pairs: impl FnMut(usize, ColumnPairs<'_>),
) {
    let (mut delta, mut weight) = ([0.0; CHUNK], [0.0; CHUNK]);
    let vectors = VectorLevel::widest();
    for (chunk, values) in row.chunks(CHUNK).enumerate() {
        let (start, length) = (chunk * CHUNK, values.len());
        let (delta, weight) = (&mut delta[..length], &mut weight[..length]);
        let points = &weights[start..start + length];
        match vectors {
            // SAFETY: `widest` found every feature that this level is compiled for.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx512 => unsafe { load_avx512(objective, values, points, delta, weight) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx2 => unsafe { load_avx2(objective, values, points, delta, weight) },
            VectorLevel::Baseline => load(objective, values, points, delta, weight),
        }
        if (start..start + length).contains(&i) {
            weight[i - start] = 0.0;
        }
        use_pairs(start, ColumnPairs { delta, weight });
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn load_avx512<T: Stored>(
    o: &Objective,
    values: &[T],
    points: &[f64],
    delta: &mut [f64],
    weight: &mut [f64],
) {
    load(o, values, points, delta, weight);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn load_avx2<T: Stored>(
    o: &Objective,
    values: &[T],
    points: &[f64],
    delta: &mut [f64],
    weight: &mut [f64],
) {
    load(o, values, points, delta, weight);
}

#[inline(always)]
fn load<T: Stored>(
    objective: &Objective,
    values: &[T],
    points: &[f64],
    delta: &mut [f64],
    weight: &mut [f64],
) {
    let (scale, missing, cut) = (objective.scale, objective.missing, objective.cut);
    for ((value, point), (d, w)) in values
        .iter()
        .zip(points)
        .zip(delta.iter_mut().zip(weight.iter_mut()))
    {
        let number = value.number();
        let found = if number.is_nan() {
            missing
        } else {
            number * scale
        };
        // NaN fails the comparison too: what is still missing has no weight.
        let counts = found <= cut;
        *d = if counts { found } else { 0.0 };
        *w = if counts { *point } else { 0.0 };
    }
    weigh(objective, delta, weight);
}

/// Multiply the weights with what the dissimilarities make of them.
#[inline(always)]
fn weigh(objective: &Objective, delta: &[f64], weight: &mut [f64]) {
    let (factor, floor) = (objective.factor, objective.floor);
    let pairs = weight.iter_mut().zip(delta);
    match objective.weighting {
        0 => pairs.for_each(|(w, d)| {
            let d = d.max(floor);
            *w = *w * factor / (d * d);
        }),
        1 => pairs.for_each(|(w, d)| {
            let d = d.max(floor);
            *w = *w * factor / (d * d.sqrt());
        }),
        2 => pairs.for_each(|(w, d)| *w = *w * factor / d.max(floor)),
        3 => pairs.for_each(|(w, _)| *w *= factor),
        _ => pairs.for_each(|(w, d)| *w *= factor * d),
    }
    if objective.bin_weights.is_empty() {
        return;
    }
    for (w, d) in weight.iter_mut().zip(delta) {
        let mut of_bin = objective.bin_weights[0];
        for (limit, next) in objective.limits.iter().zip(&objective.bin_weights[1..]) {
            of_bin = if d >= limit { *next } else { of_bin };
        }
        *w *= of_bin;
    }
}
