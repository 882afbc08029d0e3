//! All angles and all translations of a pair at once: B as a correlation of pictures.
//!
//! B is 2 pi times the integral of the product of both particles, each point drawn as a Gaussian of its own uncertainty:
//! one correlation of two such pictures has B of all translations at an angle. Of the particle that moves, the spectra
//! of all angles are kept ([`Turned`]): they serve all its pairs. They are Hartley transforms, real numbers, of half a
//! circle: the picture turned by pi more has the conjugate spectrum, and one complex transform has both correlations.
//!
//! Pictures wrap around: a peak stands for several translations ([`Square::unwrap`]), of which B tells the right one.

use std::f64::consts::{PI, TAU};

use super::cloud::Particle;
use super::fourier::{Fourier, SIDES, WIDE};
use super::motion::Motion;
use super::sums::VectorLevel;

/// Width of the square, in the sum of both radii (root mean squares).
/// Measured: 2 reach the best B in all of 315 pairs; 1.7 in 312, as peaks of wrapped translations hide others.
const WIDTH: f64 = 2.0;

/// Pixels in median uncertainties, at most, where the square has enough of them.
/// Measured: 1.5 to 3 reach the best B in all of 315 pairs, 5 in 298; 2.5 takes half the time of 1.5.
pub(super) const PIXEL: f64 = 2.5;

/// Way of a point at the radius between two angles, in pixels.
/// Measured: up to 1.5 the best B is reached in all of 315 pairs, from 2 on with pixels of 3 uncertainties in 310.
const TURN: f64 = 1.2;

/// Angles of half a circle at most.
/// By arithmetic: the square of the most pixels tells no more apart.
const MOST_ANGLES: usize = 192;

/// Uncertainties in pixels that are drawn: narrower Gaussians would fall between pixels, wider ones add nothing but time.
/// By judgement: 315 pairs of `tests/support/exhaustive_registration.py` reach the best B.
const DRAWN: (f64, f64) = (0.6, 2.5);

/// Uncertainties to either side of its middle that a Gaussian is drawn on.
/// By arithmetic: beyond are 0.5 % of it.
const BRUSH: f64 = 2.8;

/// Pixels of a Gaussian to either side of its middle, at most.
/// By arithmetic: [`BRUSH`] of the widest that are drawn.
const TAPS: usize = 7;

/// Peaks below this part of the highest so far are left out.
/// By judgement: a peak between pixels and angles loses at most a third, and climbs are few anyway.
const WORTH: f32 = 0.6;

/// Steps of the width of squares within a factor of two, so that pairs of like particles share spectra.
/// By judgement: particles of one experiment need two or three widths.
const STEPS: f64 = 4.0;

/// Peaks of one angle that are kept.
/// By judgement: those of neighbouring angles come on top. 315 pairs of `tests/support/exhaustive_registration.py` reach
/// the best B.
const OF_ANGLE: usize = 4;

/// A square that pictures of a pair are drawn on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Square {
    pub side: usize,
    /// Its width is 2 to this number over [`STEPS`].
    width: i32,
}

impl Square {
    /// The square for a pair.
    pub(super) fn of(a: &Particle, b: &Particle) -> Self {
        Self::for_sizes([a.radius, b.radius], [a.variance, b.variance])
    }

    /// The square for two particles of these radii and median squared uncertainties.
    pub fn for_sizes(radii: [f64; 2], variances: [f64; 2]) -> Self {
        let wide = WIDTH * (radii[0] + radii[1]);
        let width = (wide.log2() * STEPS).ceil() as i32;
        let sigma = ((variances[0] + variances[1]) / 2.0).sqrt();
        let pixels = (f64::from(width) / STEPS).exp2() / (PIXEL * sigma);
        let side = (pixels.max(1.0).log2().ceil().exp2() as usize).clamp(SIDES.0, SIDES.1);
        Square { side, width }
    }

    /// Length of a pixel.
    pub fn pixel(&self) -> f64 {
        (f64::from(self.width) / STEPS).exp2() / self.side as f64
    }

    /// The places that one place of a picture stands for: pictures wrap around. Those within a reach, in x and in y.
    pub(super) fn unwrap(&self, at: f64, reach: f64) -> Vec<f64> {
        let width = self.pixel() * self.side as f64;
        let turns = (reach / width).ceil() as i64 + 1;
        (-turns..=turns)
            .map(|turn| at + turn as f64 * width)
            .filter(|place| place.abs() <= reach)
            .collect()
    }

    /// Angles that a particle of a radius is turned to; the same number counts half a circle further.
    pub fn angles(&self, radius: f64, symmetry: usize) -> Vec<f64> {
        let period = TAU / symmetry as f64;
        let range = if symmetry % 2 == 1 {
            period / 2.0
        } else {
            period
        };
        let wanted = range * radius / (TURN * self.pixel());
        let most = (MOST_ANGLES as f64 * range / PI).ceil().max(1.0);
        let n = wanted.ceil().clamp(1.0, most) as usize;
        (0..n)
            .map(|k| range * (k as f64 / n as f64) - range)
            .collect()
    }

    /// Bits by which squares are sorted.
    pub(super) fn order(&self) -> (usize, i32) {
        (self.side, self.width)
    }
}

/// The Hartley transforms of a particle turned to many angles.
pub(super) struct Turned {
    square: Square,
    angles: Vec<f64>,
    /// Of each angle, the square.
    values: Vec<f32>,
}

/// A place to climb from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub motion: Motion,
    pub value: f32,
}

impl Turned {
    /// Bytes of a particle.
    pub fn bytes(particle: &Particle, square: &Square, symmetry: usize) -> usize {
        4 * square.side * square.side * square.angles(particle.radius, symmetry).len()
    }

    pub fn new(particle: &Particle, square: Square, symmetry: usize, level: VectorLevel) -> Self {
        let angles = square.angles(particle.radius, symmetry);
        let size = square.side * square.side;
        let brush = Brush::new(particle, &square);
        let mut fourier = Fourier::new(square.side, level);
        let mut values = vec![0.0; size * angles.len()];
        let (mut re, mut im) = (vec![0.0; size], vec![0.0; size]);
        for (pair, to) in angles.chunks(2).zip(values.chunks_mut(2 * size)) {
            brush.draw(pair[0], &mut re);
            match pair.get(1) {
                Some(&second) => brush.draw(second, &mut im),
                None => im.fill(0.0),
            }
            fourier.forward(&mut re, &mut im);
            let (first, second) = to.split_at_mut(size);
            separate(&re, &im, square.side, first, second);
        }
        Turned {
            square,
            angles,
            values,
        }
    }
}

/// Hartley transforms of two pictures from the Fourier transform of the first plus i times the second.
fn separate(re: &[f32], im: &[f32], side: usize, first: &mut [f32], second: &mut [f32]) {
    let mask = side - 1;
    for row in 0..side {
        let other = (side - row) & mask;
        for column in 0..side {
            let (at, back) = (row * side + column, other * side + ((side - column) & mask));
            // A1 = (F(f) + conj F(-f)) / 2, A2 = (F(f) - conj F(-f)) / 2i; the Hartley transform is Re - Im.
            let (ar, ai) = ((re[at] + re[back]) / 2.0, (im[at] - im[back]) / 2.0);
            first[at] = ar - ai;
            if let Some(to) = second.get_mut(at) {
                let (br, bi) = ((im[at] + im[back]) / 2.0, (re[back] - re[at]) / 2.0);
                *to = br - bi;
            }
        }
    }
}

/// Points as they are drawn.
struct Brush {
    side: usize,
    points: Vec<Dot>,
}

struct Dot {
    x: f64,
    y: f64,
    /// Pixels to either side that it is drawn on.
    taps: usize,
    height: f32,
    /// 1 / variance in pixels.
    sharp: f64,
    /// exp(-k^2 / (2 variance)).
    fall: [f32; TAPS + 1],
}

impl Brush {
    fn new(particle: &Particle, square: &Square) -> Self {
        let pixel = square.pixel();
        let points = &particle.points;
        let dot = |at: usize| {
            let sigma = points.variance[at].sqrt() / pixel;
            let drawn = sigma.clamp(DRAWN.0, DRAWN.1);
            let larger = sigma.max(drawn);
            let sharp = 1.0 / (drawn * drawn);
            Dot {
                x: points.x[at] / pixel,
                y: points.y[at] / pixel,
                taps: ((BRUSH * drawn).ceil() as usize).min(TAPS),
                height: (1.0 / (larger * larger)) as f32,
                sharp,
                fall: std::array::from_fn(|k| (-((k * k) as f64) * sharp / 2.0).exp() as f32),
            }
        };
        Brush {
            side: square.side,
            points: (0..points.len()).map(dot).collect(),
        }
    }

    /// Draw the points turned by an angle, the centroid at the first pixel.
    fn draw(&self, angle: f64, picture: &mut [f32]) {
        picture.fill(0.0);
        let (sin, cos) = angle.sin_cos();
        let mask = self.side as isize - 1;
        for dot in &self.points {
            let (x, y) = (cos * dot.x - sin * dot.y, sin * dot.x + cos * dot.y);
            let (column, row) = (x.round(), y.round());
            let across = dot.taps(x - column);
            let down = dot.taps(y - row);
            let (across, down) = (&across[..=2 * dot.taps], &down[..=2 * dot.taps]);
            let first = |at: f64| (at as isize - dot.taps as isize) & mask;
            let (left, top) = (first(column) as usize, first(row) as usize);
            for (k, by) in down.iter().enumerate() {
                let row = (top + k) & mask as usize;
                let by = by * dot.height;
                let line = &mut picture[row * self.side..(row + 1) * self.side];
                if left + across.len() <= self.side {
                    for (to, value) in line[left..left + across.len()].iter_mut().zip(across) {
                        *to += value * by;
                    }
                } else {
                    for (at, value) in across.iter().enumerate() {
                        line[(left + at) & mask as usize] += value * by;
                    }
                }
            }
        }
    }
}

impl Dot {
    /// exp(-(k - d)^2 / (2 variance)) for k from -taps to taps.
    fn taps(&self, d: f64) -> [f32; 2 * TAPS + 1] {
        let middle = (-d * d * self.sharp / 2.0).exp() as f32;
        let ratio = (d * self.sharp).exp();
        let (up, down) = (ratio as f32, (1.0 / ratio) as f32);
        let mut found = [0.0; 2 * TAPS + 1];
        let (mut above, mut below) = (middle, middle);
        found[self.taps] = middle;
        for k in 1..=self.taps {
            above *= up;
            below *= down;
            found[self.taps + k] = above * self.fall[k];
            found[self.taps - k] = below * self.fall[k];
        }
        found
    }
}

/// Peaks of B over all angles and translations, in no order.
///
/// `turned` is the particle that moves; motions are about the centroids.
pub(super) fn find_peaks(turned: &Turned, target: &Particle, level: VectorLevel) -> Vec<Start> {
    let side = turned.square.side;
    let size = side * side;
    let (mut re, mut im) = (vec![0.0; size], vec![0.0; size]);
    Brush::new(target, &turned.square).draw(0.0, &mut re);
    let mut fourier = Fourier::new(side, level);
    fourier.forward(&mut re, &mut im);
    let (mut plus, mut minus) = (vec![0.0; size], vec![0.0; size]);
    let mut starts = Vec::new();
    let mut best = 0.0_f32;
    for (&angle, real) in turned.angles.iter().zip(turned.values.chunks_exact(size)) {
        let highest = fourier.correlate(real, [&re, &im], &mut plus, &mut minus);
        for (turn, map, most) in [(0.0, &plus, highest[0]), (PI, &minus, highest[1])] {
            best = best.max(most);
            if most < WORTH * best {
                continue;
            }
            let mut peaks = Vec::new();
            let pixel = turned.square.pixel();
            scan(map, side, WORTH * best, |place, x, y, value| {
                let motion = Motion {
                    x: x * pixel,
                    y: y * pixel,
                    theta: angle + turn,
                };
                peaks.push((place, Start { motion, value }));
            });
            // By the height on the map; of equal ones the first.
            peaks.sort_by(|(one, _), (other, _)| map[*other].total_cmp(&map[*one]));
            starts.extend(peaks.into_iter().take(OF_ANGLE).map(|(_, start)| start));
        }
    }
    starts.retain(|start| start.value >= WORTH * best);
    starts
}

/// Report the local maxima of a map that lies transposed, from a threshold on: where, the place between pixels, the value.
fn scan(map: &[f32], side: usize, least: f32, mut found: impl FnMut(usize, f64, f64, f32)) {
    let mask = side - 1;
    for row in 0..side {
        let line = &map[row * side..(row + 1) * side];
        for block in (0..side).step_by(WIDE) {
            let some = &line[block..block + WIDE];
            if !some
                .iter()
                .fold(false, |any, &value| any | (value >= least))
            {
                continue;
            }
            for column in block..block + WIDE {
                let here = line[column];
                if here < least {
                    continue;
                }
                let at = |down: usize, right: usize| {
                    map[((row + down + side - 1) & mask) * side
                        + ((column + right + side - 1) & mask)]
                };
                let around = (0..9).filter(|&k| k != 4);
                let top = around
                    .map(|k| (k, at(k / 3, k % 3)))
                    .all(|(k, other)| other < here || (other == here && k > 4));
                if top {
                    let (x, over_x) = between(at(0, 1), here, at(2, 1));
                    let (y, over_y) = between(at(1, 0), here, at(1, 2));
                    // The map lies transposed: its rows are x.
                    let place = |at: usize, off: f64| {
                        let signed = if at >= side / 2 {
                            at as f64 - side as f64
                        } else {
                            at as f64
                        };
                        signed + off
                    };
                    found(
                        row * side + column,
                        place(row, x),
                        place(column, y),
                        here * over_x * over_y,
                    );
                }
            }
        }
    }
}

/// Where the top of a Gaussian through three values lies from the middle one, and how much higher it is.
fn between(before: f32, here: f32, after: f32) -> (f64, f32) {
    let tiny = here * 1e-3;
    let [a, b, c] = [before, here, after].map(|value| value.max(tiny).ln());
    let curve = a - 2.0 * b + c;
    if curve >= -1e-6 {
        return (0.0, 1.0);
    }
    let off = ((a - c) / (2.0 * curve)).clamp(-0.5, 0.5);
    (f64::from(off), ((c - a) * off / 4.0).exp())
}
