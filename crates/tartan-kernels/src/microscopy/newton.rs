//! Trust-region Newton from one start, with the exact 3 x 3 Hessian.
//!
//! The angle is measured as the way of a point at the radius of the particles, so that a step has one length.

use super::motion::Motion;
use super::sums::Sums;

/// Evaluations of one climb at most.
/// By judgement: climbs converge in some ten steps. `tartan bench microscopy` holds answers and time.
const MOST_EVALUATIONS: u32 = 30;

/// A step counts if the value grows by more than this part of what the quadratic model says.
/// ACCEPTED, TRUSTED and DOUBTED, by convention of trust regions: Nocedal and Wright, Numerical Optimization (2006),
/// section 4.1, have 0 to 1/4, 3/4 and 1/4. `tartan bench microscopy` holds answers and time.
const ACCEPTED: f64 = 0.01;

/// Above and below these parts the trusted region grows and shrinks.
/// TRUSTED and DOUBTED, by convention, see ACCEPTED.
const TRUSTED: f64 = 0.7;
const DOUBTED: f64 = 0.25;

/// Halvings of the interval of the damping.
/// By arithmetic: 2**-40 of the interval.
const HALVINGS: u32 = 40;

/// What a climb needs to know besides the objective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    /// Length over which the objective changes.
    pub scale: f64,
    /// Way of a turn by one radian.
    pub radius: f64,
    /// Shifts stay within it, in x and in y.
    pub reach: f64,
    /// The climb ends where the gradient times the scale is below this part of the value,
    pub flat: f64,
    /// and at steps below this part of the scale.
    pub short: f64,
}

/// Where a climb ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClimbEnd {
    pub motion: Motion,
    pub value: f64,
}

impl Climb {
    /// Maximise from a start; add the evaluations to `evaluations`.
    pub fn from(
        &self,
        start: Motion,
        evaluations: &mut u32,
        mut at: impl FnMut(&Motion) -> Sums,
    ) -> ClimbEnd {
        let mut motion = start;
        let mut here = self.in_lengths(&at(&motion));
        let mut trusted = self.scale / 2.0;
        let mut n = 1;
        while n < MOST_EVALUATIONS && norm(&here.gradient) * self.scale > self.flat * here.value {
            let wanted = step(&here.hessian, &here.gradient, trusted);
            let next = self.moved(&motion, &wanted);
            let taken = [
                next.x - motion.x,
                next.y - motion.y,
                (next.theta - motion.theta) * self.radius,
            ];
            if norm(&taken) < self.short * self.scale {
                break;
            }
            let there = self.in_lengths(&at(&next));
            n += 1;
            let ratio = (there.value - here.value) / gain(&here, &taken);
            if ratio > TRUSTED {
                trusted = (2.0 * trusted).min(2.0 * self.scale);
            } else if ratio.is_nan() || ratio < DOUBTED {
                trusted *= 0.4;
            }
            if ratio > ACCEPTED && there.value > here.value {
                (motion, here) = (next, there);
            }
        }
        *evaluations += n;
        ClimbEnd {
            motion,
            value: here.value,
        }
    }

    fn moved(&self, motion: &Motion, step: &[f64; 3]) -> Motion {
        Motion {
            x: (motion.x + step[0]).clamp(-self.reach, self.reach),
            y: (motion.y + step[1]).clamp(-self.reach, self.reach),
            theta: motion.theta + step[2] / self.radius,
        }
    }

    /// Derivatives by the way of a turn in place of its angle.
    fn in_lengths(&self, sums: &Sums) -> Sums {
        let r = self.radius;
        let [gx, gy, gt] = sums.gradient;
        let [xx, xy, yy, xt, yt, tt] = sums.hessian;
        Sums {
            value: sums.value,
            gradient: [gx, gy, gt / r],
            hessian: [xx, xy, yy, xt / r, yt / r, tt / (r * r)],
        }
    }
}

fn norm(x: &[f64; 3]) -> f64 {
    dot(x, x).sqrt()
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// By how much the quadratic model grows along a step.
fn gain(sums: &Sums, x: &[f64; 3]) -> f64 {
    let [xx, xy, yy, xt, yt, tt] = sums.hessian;
    let product = [
        xx * x[0] + xy * x[1] + xt * x[2],
        xy * x[0] + yy * x[1] + yt * x[2],
        xt * x[0] + yt * x[1] + tt * x[2],
    ];
    dot(&sums.gradient, x) + dot(x, &product) / 2.0
}

/// The step of at most `trusted` along which the quadratic model grows most.
///
/// With A = -H it solves (A + lambda I) x = g, lambda 0 where A is positive definite and x short enough, else found by
/// bisection. Where the gradient has no part along the lowest eigenvector, the step is filled up along it.
fn step(hessian: &[f64; 6], gradient: &[f64; 3], trusted: f64) -> [f64; 3] {
    let (values, vectors) = eigen(&hessian.map(|h| -h));
    let parts = [0, 1, 2].map(|k| dot(&vectors[k], gradient));
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    let damped = |lambda: f64| [0, 1, 2].map(|k| parts[k] / (values[k] + lambda));
    let tiny = 1e-12 * largest.max(f64::MIN_POSITIVE);
    let mut low = if lowest > tiny { 0.0 } else { tiny - lowest };
    let mut found = damped(low);
    if norm(&found) > trusted {
        let mut high = low + norm(&parts) / trusted + tiny;
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if norm(&damped(middle)) > trusted {
                low = middle;
            } else {
                high = middle;
            }
        }
        found = damped(high);
    } else if lowest <= tiny {
        let k = (0..3).find(|&k| values[k] == lowest).unwrap_or(0);
        let rest = (trusted * trusted - dot(&found, &found)).max(0.0).sqrt();
        found[k] += if found[k] < 0.0 { -rest } else { rest };
    }
    let along = |axis: usize| (0..3).map(|k| found[k] * vectors[k][axis]).sum();
    let mut x = [along(0), along(1), along(2)];
    let length = norm(&x);
    if length > trusted {
        x = x.map(|value| value * trusted / length);
    }
    x
}

/// Eigenvalues and eigenvectors of a symmetric matrix (xx, xy, yy, xz, yz, zz), by Jacobi rotations.
fn eigen(h: &[f64; 6]) -> ([f64; 3], [[f64; 3]; 3]) {
    let mut a = [[h[0], h[1], h[3]], [h[1], h[2], h[4]], [h[3], h[4], h[5]]];
    let mut vectors = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    for _ in 0..12 {
        let off = a[0][1].abs() + a[0][2].abs() + a[1][2].abs();
        if off <= 1e-15 * (a[0][0].abs() + a[1][1].abs() + a[2][2].abs()) {
            break;
        }
        for (p, q) in [(0, 1), (0, 2), (1, 2)] {
            if a[p][q] != 0.0 {
                rotate(&mut a, &mut vectors, p, q);
            }
        }
    }
    ([a[0][0], a[1][1], a[2][2]], vectors)
}

/// Make the element (p, q) zero; rows of `vectors` are the eigenvectors.
fn rotate(a: &mut [[f64; 3]; 3], vectors: &mut [[f64; 3]; 3], p: usize, q: usize) {
    let ratio = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let sign = if ratio < 0.0 { -1.0 } else { 1.0 };
    let tan = sign / (ratio.abs() + ratio.hypot(1.0));
    let cos = 1.0 / tan.hypot(1.0);
    let sin = tan * cos;
    for row in a.iter_mut() {
        (row[p], row[q]) = (cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]);
    }
    for k in 0..3 {
        (a[p][k], a[q][k]) = (cos * a[p][k] - sin * a[q][k], sin * a[p][k] + cos * a[q][k]);
        (vectors[p][k], vectors[q][k]) = (
            cos * vectors[p][k] - sin * vectors[q][k],
            sin * vectors[p][k] + cos * vectors[q][k],
        );
    }
}
