//! F or B of two particles at a motion, with gradient and Hessian, in one pass over their pairs of points.

use super::cloud::Points;
use super::lanes::{Lanes, PlainLanes};
use super::motion::Motion;
#[cfg(target_arch = "x86_64")]
use super::x86::{Narrow, Wide};
use crate::dense::CpuVectors;

/// Points of a block of the target.
/// By arithmetic: a vector of AVX-512. Measured: skipping far blocks is 1.4 to 2.5 times faster.
const BLOCK: usize = 16;

/// Lanes of the widest vectors.
/// By arithmetic: 512 bits.
const MOST_LANES: usize = 16;

/// Pairs of blocks further apart than this exponent of 2 are left out: 5.2 s, where a term is 2e-12.
/// By arithmetic: below float32's rounding of a sum.
const FAR: f32 = 39.0;

/// A value with its gradient and Hessian by (x, y, theta).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub value: f64,
    pub gradient: [f64; 3],
    /// xx, xy, yy, x theta, y theta, theta theta.
    pub hessian: [f64; 6],
}

/// The vector instructions that the sums are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VectorLevel {
    Plain,
    Avx2,
    Avx512,
}

impl VectorLevel {
    /// The widest that this machine has.
    pub fn widest() -> Self {
        match CpuVectors::widest() {
            #[cfg(target_arch = "x86_64")]
            CpuVectors::Avx512 => VectorLevel::Avx512,
            #[cfg(target_arch = "x86_64")]
            CpuVectors::Avx2 => VectorLevel::Avx2,
            CpuVectors::Baseline => VectorLevel::Plain,
        }
    }
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SumKind {
    /// F at a scale.
    Gauss { scale: f64 },
    /// B; the unit of length is any near the uncertainties.
    Score { unit: f64 },
}

/// One objective of one pair of particles.
pub(super) struct PairObjective<'a> {
    source: &'a Points,
    /// Squared uncertainties of the source in the unit of the sums.
    variances: Vec<f32>,
    target: Vec<Block>,
    boxes: Boxes,
    score: bool,
    /// What coordinates are multiplied with.
    zoom: f64,
    /// What the sums of order 0, 1 and 2 and the value are multiplied with.
    factors: [f64; 4],
    level: VectorLevel,
}

/// Some points of the target, scaled.
#[derive(Clone, Copy, Default)]
struct Block {
    x: [f32; BLOCK],
    y: [f32; BLOCK],
    variance: [f32; BLOCK],
    len: usize,
}

/// The bounding boxes of the blocks, and their greatest variances.
#[derive(Default)]
struct Boxes {
    left: Vec<f32>,
    right: Vec<f32>,
    bottom: Vec<f32>,
    top: Vec<f32>,
    variance: Vec<f32>,
}

/// Memory of evaluations: the indices of near blocks.
#[derive(Default)]
pub(super) struct Near(Vec<f32>, Vec<u32>);

impl<'a> PairObjective<'a> {
    /// # Panics
    ///
    /// If the machine lacks the instructions of `level`.
    pub fn new(source: &'a Points, target: &Points, kind: SumKind, level: VectorLevel) -> Self {
        assert!(
            level <= VectorLevel::widest(),
            "this machine has no {level:?}"
        );
        let log2_e = std::f64::consts::LOG2_E;
        let pairs = (source.len() * target.len()) as f64;
        let (zoom, unit, factors) = match kind {
            SumKind::Gauss { scale } => {
                let zoom = log2_e.sqrt() / scale;
                let (k1, k2) = (2.0 / (scale * scale), 4.0 / scale.powi(4));
                let factors = [k1, k1 / zoom, k2 / (zoom * zoom), 1.0].map(|f| f / pairs);
                (zoom, 1.0, factors)
            }
            SumKind::Score { unit } => {
                let zoom = (log2_e / 2.0).sqrt() / unit;
                let (u2, u4, u6) = (unit.powi(2), unit.powi(4), unit.powi(6));
                let factors = [
                    1.0 / u4,
                    1.0 / (u4 * zoom),
                    1.0 / (u6 * zoom * zoom),
                    1.0 / u2,
                ];
                (zoom, unit, factors)
            }
        };
        let scaled = |variance: &f64| (variance / (unit * unit)) as f32;
        let blocks: Vec<Block> = (0..target.len().div_ceil(BLOCK))
            .map(|at| Block::new(target, at * BLOCK, zoom, scaled))
            .collect();
        PairObjective {
            source,
            variances: source.variance.iter().map(scaled).collect(),
            boxes: Boxes::new(&blocks),
            target: blocks,
            score: matches!(kind, SumKind::Score { .. }),
            zoom,
            factors,
            level,
        }
    }

    /// The value and its derivatives at a motion about the centroids.
    pub fn at(&self, motion: &Motion, near: &mut Near) -> Sums {
        match (self.level, self.score) {
            // SAFETY: `new` made sure of the instructions; so below.
            #[cfg(target_arch = "x86_64")]
            (VectorLevel::Avx512, false) => unsafe { wide::<false>(self, motion, near) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (VectorLevel::Avx512, true) => unsafe { wide::<true>(self, motion, near) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (VectorLevel::Avx2, false) => unsafe { narrow::<false>(self, motion, near) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (VectorLevel::Avx2, true) => unsafe { narrow::<true>(self, motion, near) },
            // SAFETY: plain code needs no instructions.
            (_, false) => unsafe { sum::<PlainLanes, false>(self, motion, near) },
            // SAFETY: as above.
            (_, true) => unsafe { sum::<PlainLanes, true>(self, motion, near) },
        }
    }
}

impl Block {
    fn new(points: &Points, start: usize, zoom: f64, scaled: impl Fn(&f64) -> f32) -> Self {
        let len = BLOCK.min(points.len() - start);
        let mut block = Block {
            len,
            ..Block::default()
        };
        for lane in 0..len {
            block.x[lane] = (points.x[start + lane] * zoom) as f32;
            block.y[lane] = (points.y[start + lane] * zoom) as f32;
            block.variance[lane] = scaled(&points.variance[start + lane]);
        }
        block
    }
}

impl Boxes {
    fn new(blocks: &[Block]) -> Self {
        let each = |ends: fn(&Block) -> f32| blocks.iter().map(ends).collect();
        Boxes {
            left: each(|b| least(&b.x[..b.len])),
            right: each(|b| greatest(&b.x[..b.len])),
            bottom: each(|b| least(&b.y[..b.len])),
            top: each(|b| greatest(&b.y[..b.len])),
            variance: each(|b| greatest(&b.variance[..b.len])),
        }
    }
}

#[inline(always)]
fn least(values: &[f32]) -> f32 {
    values
        .iter()
        .fold(f32::INFINITY, |a, &b| if b < a { b } else { a })
}

#[inline(always)]
fn greatest(values: &[f32]) -> f32 {
    values
        .iter()
        .fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn wide<const SCORE: bool>(objective: &PairObjective, motion: &Motion, near: &mut Near) -> Sums {
    // SAFETY: the features of this function.
    unsafe { sum::<Wide, SCORE>(objective, motion, near) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn narrow<const SCORE: bool>(objective: &PairObjective, motion: &Motion, near: &mut Near) -> Sums {
    // SAFETY: the features of this function.
    unsafe { sum::<Narrow, SCORE>(objective, motion, near) }
}

/// Some points of the source, moved: rotated in f64, and scaled in f32. Lanes beyond the last point repeat it.
struct Moved {
    qx: [f64; MOST_LANES],
    qy: [f64; MOST_LANES],
    x: [f32; MOST_LANES],
    y: [f32; MOST_LANES],
    variance: [f32; MOST_LANES],
}

/// # Safety
///
/// The machine has the instructions of L.
#[inline(always)]
unsafe fn sum<L: Lanes, const SCORE: bool>(
    objective: &PairObjective,
    motion: &Motion,
    near: &mut Near,
) -> Sums {
    let n = objective.source.len();
    let mut total = [0.0; 10];
    for start in (0..n).step_by(L::COUNT) {
        let count = L::COUNT.min(n - start);
        let moved = moved::<L>(objective, motion, start, count);
        find_near::<L, SCORE>(objective, &moved, near);
        // SAFETY: contract of this function.
        let lanes = unsafe { sum_near::<L, SCORE>(objective, &moved, &near.1) };
        for lane in 0..count {
            fold(&mut total, &lanes, lane, &moved, &objective.factors);
        }
    }
    let [s0, gx, gy, gt, xx, xy, yy, xt, yt, tt] = total;
    Sums {
        value: s0 * objective.factors[3],
        gradient: [gx, gy, gt],
        hessian: [xx, xy, yy, xt, yt, tt],
    }
}

#[inline(always)]
fn moved<L: Lanes>(
    objective: &PairObjective,
    motion: &Motion,
    start: usize,
    count: usize,
) -> Moved {
    let (sin, cos) = motion.theta.sin_cos();
    let mut moved = Moved {
        qx: [0.0; MOST_LANES],
        qy: [0.0; MOST_LANES],
        x: [0.0; MOST_LANES],
        y: [0.0; MOST_LANES],
        variance: [0.0; MOST_LANES],
    };
    for lane in 0..L::COUNT {
        let at = start + lane.min(count - 1);
        let (x, y) = (objective.source.x[at], objective.source.y[at]);
        let (qx, qy) = (cos * x - sin * y, sin * x + cos * y);
        moved.qx[lane] = qx;
        moved.qy[lane] = qy;
        moved.x[lane] = ((qx + motion.x) * objective.zoom) as f32;
        moved.y[lane] = ((qy + motion.y) * objective.zoom) as f32;
        moved.variance[lane] = objective.variances[at];
    }
    moved
}

/// List the blocks of the target that are near enough to count.
#[inline(always)]
fn find_near<L: Lanes, const SCORE: bool>(
    objective: &PairObjective,
    moved: &Moved,
    near: &mut Near,
) {
    let boxes = &objective.boxes;
    let (left, right) = (least(&moved.x[..L::COUNT]), greatest(&moved.x[..L::COUNT]));
    let (bottom, top) = (least(&moved.y[..L::COUNT]), greatest(&moved.y[..L::COUNT]));
    let variance = greatest(&moved.variance[..L::COUNT]);
    let n = boxes.left.len();
    let above = |value: f32| if value > 0.0 { value } else { 0.0 };
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    near.0.clear();
    near.0.extend((0..n).map(|at| {
        let x = above(larger(boxes.left[at] - right, left - boxes.right[at]));
        let y = above(larger(boxes.bottom[at] - top, bottom - boxes.top[at]));
        let limit = if SCORE {
            FAR * (variance + boxes.variance[at])
        } else {
            FAR
        };
        x * x + y * y - limit
    }));
    near.1.clear();
    for (at, &beyond) in near.0.iter().enumerate() {
        if beyond <= 0.0 {
            near.1.push(at as u32);
        }
    }
}

/// Sums of each lane: of weights, of w d (2), of w d d^T (3), and of the terms of the value.
///
/// # Safety
///
/// The machine has the instructions of L.
#[inline(always)]
unsafe fn sum_near<L: Lanes, const SCORE: bool>(
    objective: &PairObjective,
    moved: &Moved,
    near: &[u32],
) -> [[f32; MOST_LANES]; 7] {
    // SAFETY: contract of this function; the arrays have at least as many values as there are lanes.
    unsafe {
        let (x, y) = (L::load(moved.x.as_ptr()), L::load(moved.y.as_ptr()));
        let variance = L::load(moved.variance.as_ptr());
        let mut s = [L::splat(0.0); 7];
        for &at in near {
            let block = &objective.target[at as usize];
            for j in 0..block.len {
                let dx = x.sub(L::splat(block.x[j]));
                let dy = y.sub(L::splat(block.y[j]));
                let square = dx.mul(dx).add_product(dy, dy);
                let (first, second) = if SCORE {
                    let inverse = variance.add(L::splat(block.variance[j])).reciprocal();
                    let term = square.mul(inverse).power().mul(inverse);
                    s[6] = s[6].add(term);
                    let first = term.mul(inverse);
                    (first, first.mul(inverse))
                } else {
                    let term = square.power();
                    (term, term)
                };
                s[0] = s[0].add(first);
                if SCORE {
                    s[1] = s[1].add_product(first, dx);
                    s[2] = s[2].add_product(first, dy);
                    let (ex, ey) = (second.mul(dx), second.mul(dy));
                    s[3] = s[3].add_product(ex, dx);
                    s[4] = s[4].add_product(ex, dy);
                    s[5] = s[5].add_product(ey, dy);
                } else {
                    let (ex, ey) = (second.mul(dx), second.mul(dy));
                    s[1] = s[1].add(ex);
                    s[2] = s[2].add(ey);
                    s[3] = s[3].add_product(ex, dx);
                    s[4] = s[4].add_product(ex, dy);
                    s[5] = s[5].add_product(ey, dy);
                }
            }
        }
        let mut lanes = [[0.0; MOST_LANES]; 7];
        for (sums, lane) in s.iter().zip(&mut lanes) {
            sums.store(lane.as_mut_ptr());
        }
        if !SCORE {
            lanes[6] = lanes[0];
        }
        lanes
    }
}

/// Add what one point contributes: the value, the gradient (3) and the Hessian (6).
#[inline(always)]
fn fold(
    total: &mut [f64; 10],
    lanes: &[[f32; MOST_LANES]; 7],
    lane: usize,
    moved: &Moved,
    factors: &[f64; 4],
) {
    let at = |sum: usize, factor: usize| f64::from(lanes[sum][lane]) * factors[factor];
    let (s0, s1x, s1y) = (at(0, 0), at(1, 1), at(2, 1));
    let (xx, xy, yy) = (at(3, 2), at(4, 2), at(5, 2));
    let (qx, qy) = (moved.qx[lane], moved.qy[lane]);
    let (ux, uy) = (-qy, qx);
    let (vx, vy) = (xx * ux + xy * uy, xy * ux + yy * uy);
    total[0] += f64::from(lanes[6][lane]);
    total[1] -= s1x;
    total[2] -= s1y;
    total[3] -= s1x * ux + s1y * uy;
    total[4] += xx - s0;
    total[5] += xy;
    total[6] += yy - s0;
    total[7] += vx - s0 * ux;
    total[8] += vy - s0 * uy;
    total[9] += ux * vx + uy * vy - s0 * (ux * ux + uy * uy) + s1x * qx + s1y * qy;
}
