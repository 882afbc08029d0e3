//! The passes over points: masses and their sums, second moments, labels.

use rayon::prelude::*;

use super::{CentreLists, Centres, SpongePass};
use crate::exponential::exponential;
use crate::sparse::dispatch::dispatch;

/// Numbers that [`assign`] gives for each chunk: mass of the sponge, change of masses, sum of logarithms of the norms.
/// By format.
pub const TOTALS: usize = 3;

/// Room of one thread, kept between chunks.
#[derive(Default)]
struct Scratch {
    /// Coordinates, weights and logarithm of the prior of each centre of the chunk.
    centres: Vec<f64>,
    /// Of each entry of the chunk's lists.
    energies: Vec<f64>,
    masses: Vec<f64>,
    /// Of each point: the mass of the sponge, and the sum by which masses were divided.
    sponge: Vec<f64>,
    norms: Vec<f64>,
}

impl Scratch {
    fn load(&mut self, numbers: &[u32], centres: Centres, log_priors: &[f64]) {
        let dim = centres.dim;
        self.centres.clear();
        for &number in numbers {
            let at = number as usize * dim;
            self.centres
                .extend_from_slice(&centres.positions[at..at + dim]);
            self.centres
                .extend_from_slice(&centres.weights[at..at + dim]);
            self.centres.push(log_priors[number as usize]);
        }
    }

    /// Compute energies and masses of the points of a chunk; return the sum of the logarithms of their norms.
    ///
    /// `D` is the number of coordinates, or 0 where it is known only when the program runs. Exponentials of a whole
    /// chunk are one loop: lists are too short for vectors.
    #[inline(always)]
    fn weigh<const D: usize>(
        &mut self,
        points: &[f64],
        dim: usize,
        lists: &[&[u16]],
        step: &SpongePass,
    ) -> f64 {
        let d = if D == 0 { dim } else { D };
        self.sponge.resize(lists.len(), 0.0);
        self.norms.resize(lists.len(), 0.0);
        let mut at = 0;
        let mut tops = 0.0;
        for (a, list) in lists.iter().enumerate() {
            tops += self.exponents::<D>(&points[a * d..(a + 1) * d], a, at, list, step);
            at += list.len();
        }
        for mass in &mut self.masses[..at] {
            *mass = exponential(*mass);
        }
        for mass in &mut self.sponge {
            *mass = exponential(*mass);
        }
        tops + self.divide(lists)
    }

    /// Put the energies and exponents of one point at `at`; return the largest exponent, which was subtracted from all.
    #[inline(always)]
    fn exponents<const D: usize>(
        &mut self,
        point: &[f64],
        a: usize,
        at: usize,
        list: &[u16],
        step: &SpongePass,
    ) -> f64 {
        let d = if D == 0 { point.len() } else { D };
        let (stride, beta) = (2 * d + 1, 0.5 / step.temperature);
        let (mut least, mut top, mut sponge) =
            (f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
        if let Some((log_prior, energy)) = step.sponge {
            sponge = log_prior - energy * beta;
            (least, top) = (energy, sponge);
        }
        let energies = &mut self.energies[at..at + list.len()];
        let masses = &mut self.masses[at..at + list.len()];
        for ((&entry, energy), mass) in list.iter().zip(&mut *energies).zip(&mut *masses) {
            let centre = &self.centres[entry as usize * stride..][..stride];
            let mut sum = 0.0;
            for i in 0..d {
                let delta = point[i] - centre[i];
                sum += delta * delta * centre[d + i];
            }
            *energy = sum;
            *mass = centre[2 * d] - sum * beta;
        }
        // Loops of their own: together the two become one slow chain.
        for &energy in &*energies {
            least = if energy < least { energy } else { least };
        }
        for &mass in &*masses {
            top = if mass > top { mass } else { top };
        }
        let bound = least + 2.0 * step.cut * step.temperature;
        for (mass, &energy) in masses.iter_mut().zip(&*energies) {
            *mass = if energy < bound {
                *mass - top
            } else {
                f64::NEG_INFINITY
            };
        }
        self.sponge[a] = sponge - top;
        top
    }

    /// Divide the masses of each point by their sum; return the sum of the logarithms of these sums.
    #[inline(always)]
    fn divide(&mut self, lists: &[&[u16]]) -> f64 {
        let mut at = 0;
        for ((list, sponge), norm) in lists.iter().zip(&mut self.sponge).zip(&mut self.norms) {
            let masses = &mut self.masses[at..at + list.len()];
            *norm = *sponge + masses.iter().sum::<f64>();
            let share = 1.0 / *norm;
            for mass in masses {
                *mass *= share;
            }
            *sponge *= share;
            at += list.len();
        }
        // One logarithm for eight norms: each is at least exp(-20) or so, and at most the length of a list.
        let products = self
            .norms
            .chunks(8)
            .map(|part| part.iter().product::<f64>().ln());
        products.sum()
    }
}

/// One chunk of points and the part of each output that belongs to it.
struct Job<'a> {
    number: usize,
    sums: &'a mut [f64],
    totals: &'a mut [f64],
    memory: &'a mut [f32],
}

fn jobs<'a>(
    lists: CentreLists,
    n_points: usize,
    width: usize,
    mut sums: &'a mut [f64],
    totals: &'a mut [f64],
    mut memory: &'a mut [f32],
) -> Vec<Job<'a>> {
    let mut all = Vec::with_capacity(lists.chunk_starts.len());
    for (number, totals) in totals.chunks_exact_mut(TOTALS).enumerate() {
        let (own, rest) = sums.split_at_mut(lists.centres_of(number).len() * width);
        let entries = if memory.is_empty() {
            0
        } else {
            lists.entries_of(number, n_points).len()
        };
        let (remembered, others) = memory.split_at_mut(entries);
        (sums, memory) = (rest, others);
        all.push(Job {
            number,
            sums: own,
            totals,
            memory: remembered,
        });
    }
    all
}

/// Assign each point to the centres of its list and sum what the next centres need.
///
/// `sums` gets, for each centre of each chunk: the mass, the mass times displacement from the centre in each coordinate,
/// the mass times energy (`dim + 2` numbers). `totals` gets [`TOTALS`] numbers for each chunk. `memory` holds the masses
/// of the call before, in the order of the entries, and gets those of this one.
pub fn assign(
    points: &[f64],
    lists: CentreLists,
    centres: Centres,
    step: SpongePass,
    memory: &mut [f32],
    sums: &mut [f64],
    totals: &mut [f64],
) {
    let n_points = points.len() / centres.dim;
    assert_eq!(memory.len(), lists.entries.len());
    jobs(lists, n_points, centres.dim + 2, sums, totals, memory)
        .into_par_iter()
        .for_each_init(Scratch::default, |scratch, job| match centres.dim {
            1 => assign_fast::<1>(points, lists, centres, step, scratch, job),
            2 => assign_fast::<2>(points, lists, centres, step, scratch, job),
            3 => assign_fast::<3>(points, lists, centres, step, scratch, job),
            _ => assign_fast::<0>(points, lists, centres, step, scratch, job),
        });
}

dispatch!(
    assign_fast, assign_avx512, assign_avx2, assign_chunk, [<const D: usize>], [::<D>],
    (points: &[f64], lists: CentreLists, centres: Centres, step: SpongePass, scratch: &mut Scratch, job: Job)
);

#[inline(always)]
fn assign_chunk<const D: usize>(
    points: &[f64],
    lists: CentreLists,
    centres: Centres,
    step: SpongePass,
    scratch: &mut Scratch,
    job: Job,
) {
    let dim = if D == 0 { centres.dim } else { D };
    let range = lists.points_of(job.number, points.len() / dim);
    let own = &points[range.start * dim..range.end * dim];
    let of_points = scratch.prepare(lists, job.number, range.clone(), centres, step.log_priors);
    let norms = scratch.weigh::<D>(own, dim, &of_points, &step);
    job.sums.fill(0.0);
    let (mut change, mut at) = (0.0, 0);
    for (a, list) in of_points.iter().enumerate() {
        let point = &own[a * dim..(a + 1) * dim];
        let memory = &mut job.memory[at..at + list.len()];
        change += scratch.add::<D>(point, at, list, memory, job.sums, step.sponge.is_some());
        at += list.len();
    }
    let sponge = scratch.sponge.iter().sum();
    job.totals.copy_from_slice(&[sponge, change, norms]);
}

impl Scratch {
    /// Make room for a chunk and load its centres; return the list of each of its points.
    fn prepare<'a>(
        &mut self,
        lists: CentreLists<'a>,
        chunk: usize,
        points: std::ops::Range<usize>,
        centres: Centres,
        log_priors: &[f64],
    ) -> Vec<&'a [u16]> {
        self.load(lists.centres_of(chunk), centres, log_priors);
        let starts = &lists.starts[points.start..=points.end];
        let entries = (starts[points.len()] - starts[0]) as usize;
        self.energies.resize(entries, 0.0);
        self.masses.resize(entries, 0.0);
        let ranges = starts
            .windows(2)
            .map(|pair| pair[0] as usize..pair[1] as usize);
        ranges.map(|range| &lists.entries[range]).collect()
    }

    /// Add one point to the sums of its chunk; return how much its masses changed.
    #[inline(always)]
    fn add<const D: usize>(
        &self,
        point: &[f64],
        at: usize,
        list: &[u16],
        memory: &mut [f32],
        sums: &mut [f64],
        has_sponge: bool,
    ) -> f64 {
        let d = if D == 0 { point.len() } else { D };
        let (mut change, mut gained) = (0.0, 0.0);
        let (masses, energies) = (
            &self.masses[at..at + list.len()],
            &self.energies[at..at + list.len()],
        );
        for (((&entry, &mass), &energy), old) in list.iter().zip(masses).zip(energies).zip(memory) {
            let delta = mass - f64::from(*old);
            change += delta.abs();
            gained += delta;
            *old = mass as f32;
            if mass == 0.0 {
                continue;
            }
            let centre = &self.centres[entry as usize * (2 * d + 1)..][..d];
            let sum = &mut sums[entry as usize * (d + 2)..][..d + 2];
            sum[0] += mass;
            for i in 0..d {
                sum[1 + i] += mass * (point[i] - centre[i]);
            }
            sum[d + 1] += mass * energy;
        }
        // What centres lose the sponge gains.
        change + if has_sponge { f64::abs(gained) } else { 0.0 }
    }
}

/// Numbers that [`moments`] gives for each centre: the upper triangle of second moments, then the gradient.
pub fn moments_width(dim: usize) -> usize {
    dim * (dim + 1) / 2 + dim
}

/// Sum what the split test needs, for each centre of each chunk.
///
/// With `z_i = (x_i - y_i) sqrt(w_i)`: the upper triangle of `sum M z z^T`, then `sum z m (1 - m) / T` for `m = M / 2`,
/// the change of mass of one of two coincident halves when it moves.
pub fn moments(
    points: &[f64],
    lists: CentreLists,
    centres: Centres,
    step: SpongePass,
    sums: &mut [f64],
) {
    let n_points = points.len() / centres.dim;
    let mut totals = vec![0.0; (lists.chunk_starts.len() - 1) * TOTALS];
    jobs(
        lists,
        n_points,
        moments_width(centres.dim),
        sums,
        &mut totals,
        &mut [],
    )
    .into_par_iter()
    .for_each_init(
        || (Scratch::default(), vec![0.0; centres.dim]),
        |(scratch, z), job| moments_chunk(points, lists, centres, &step, scratch, z, job),
    );
}

fn moments_chunk(
    points: &[f64],
    lists: CentreLists,
    centres: Centres,
    step: &SpongePass,
    scratch: &mut Scratch,
    z: &mut [f64],
    job: Job,
) {
    let (dim, width) = (centres.dim, moments_width(centres.dim));
    let range = lists.points_of(job.number, points.len() / dim);
    let own = &points[range.start * dim..range.end * dim];
    let of_points = scratch.prepare(lists, job.number, range, centres, step.log_priors);
    scratch.weigh::<0>(own, dim, &of_points, step);
    job.sums.fill(0.0);
    let owners = of_points
        .iter()
        .zip(own.chunks_exact(dim))
        .flat_map(|(list, point)| list.iter().map(move |&e| (e, point)));
    for ((entry, point), &mass) in owners.zip(&scratch.masses).filter(|(_, &mass)| mass > 0.0) {
        let centre = &scratch.centres[entry as usize * (2 * dim + 1)..][..2 * dim];
        for i in 0..dim {
            z[i] = (point[i] - centre[i]) * centre[dim + i].sqrt();
        }
        let half = 0.5 * mass;
        let slope = half * (1.0 - half) / step.temperature;
        add_moments(
            z,
            mass,
            slope,
            &mut job.sums[entry as usize * width..][..width],
        );
    }
}

fn add_moments(z: &[f64], mass: f64, slope: f64, sum: &mut [f64]) {
    let mut at = 0;
    for i in 0..z.len() {
        for j in i..z.len() {
            sum[at] += mass * z[i] * z[j];
            at += 1;
        }
    }
    for (value, gradient) in z.iter().zip(&mut sum[at..]) {
        *gradient += slope * value;
    }
}

/// Find for each point the centre of its list with the lowest energy and offset; of equal ones the lower number.
///
/// `labels` gets its number, -1 for an empty list; `energies` its energy without the offset.
pub fn label(
    points: &[f64],
    lists: CentreLists,
    centres: Centres,
    offsets: &[f64],
    labels: &mut [i64],
    energies: &mut [f64],
) {
    let dim = centres.dim;
    labels
        .par_chunks_mut(lists.chunk)
        .zip(energies.par_chunks_mut(lists.chunk))
        .enumerate()
        .for_each_init(Scratch::default, |scratch, (chunk, (labels, energies))| {
            let numbers = lists.centres_of(chunk);
            scratch.load(numbers, centres, offsets);
            for (j, (label, energy)) in labels.iter_mut().zip(energies).enumerate() {
                let a = chunk * lists.chunk + j;
                let list = &lists.entries[lists.starts[a] as usize..lists.starts[a + 1] as usize];
                (*label, *energy) = scratch.lowest(&points[a * dim..(a + 1) * dim], list, numbers);
            }
        });
}

impl Scratch {
    fn lowest(&self, point: &[f64], list: &[u16], numbers: &[u32]) -> (i64, f64) {
        let d = point.len();
        let (mut best, mut found) = (f64::INFINITY, (-1, f64::INFINITY));
        for &entry in list {
            let centre = &self.centres[entry as usize * (2 * d + 1)..][..2 * d + 1];
            let energy: f64 = (0..d)
                .map(|i| (point[i] - centre[i]).powi(2) * centre[d + i])
                .sum();
            if energy + centre[2 * d] < best {
                best = energy + centre[2 * d];
                found = (i64::from(numbers[entry as usize]), energy);
            }
        }
        found
    }
}

/// Add what chunks have summed, in the order of chunks, into one row for each centre.
pub fn sum_chunks(chunk_centres: &[u32], sums: &[f64], width: usize, out: &mut [f64]) {
    for (&number, part) in chunk_centres.iter().zip(sums.chunks_exact(width)) {
        let total = &mut out[number as usize * width..][..width];
        for (total, value) in total.iter_mut().zip(part) {
            *total += value;
        }
    }
}
