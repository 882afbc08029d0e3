//! Particles: points around their centroid, along a Morton curve, thinned where there are many.

/// Bits of each coordinate on the Morton curve.
/// By arithmetic: two coordinates fill a word of 32 bits.
const BITS: u32 = 16;

/// A cell of the density has this many median uncertainties a side.
/// By judgement: the sites of a structure are further apart.
const CELL: f64 = 4.0;

/// Points around the centroid, along a Morton curve.
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub variance: Vec<f64>,
}

impl Points {
    pub fn len(&self) -> usize {
        self.x.len()
    }

    fn chosen(&self, order: &[usize]) -> Self {
        let pick = |values: &[f64]| order.iter().map(|&at| values[at]).collect();
        Points {
            x: pick(&self.x),
            y: pick(&self.y),
            variance: pick(&self.variance),
        }
    }
}

/// One particle, prepared for registration.
#[derive(Clone, Debug)]
pub struct Particle {
    pub(super) points: Points,
    /// A fixed sample of points, where there are more than [`Particle::SAMPLE`].
    pub(super) sample: Option<Points>,
    pub(super) centroid: [f64; 2],
    /// Root mean square and greatest distance from the centroid.
    pub(super) radius: f64,
    pub(super) reach: f64,
    /// Median of the squared uncertainties.
    pub(super) variance: f64,
    pub(super) fingerprint: u64,
}

impl Particle {
    /// Points that the coarse stages of a search use at most.
    /// Measured: of 1,500 points a pair took 51 ms for 218, with the same answers in 15 pairs (error 0.0005 rad).
    pub const SAMPLE: usize = 400;

    /// Prepare points given as rows (x, y, uncertainty); `None` where there is none or a number is out of range.
    pub fn new(rows: &[[f64; 3]]) -> Option<Self> {
        let usable = |row: &[f64; 3]| row.iter().all(|v| v.is_finite()) && row[2] > 0.0;
        if rows.is_empty() || !rows.iter().all(usable) {
            return None;
        }
        let n = rows.len() as f64;
        let centroid = [0, 1].map(|axis| rows.iter().map(|row| row[axis] / n).sum::<f64>());
        let plain = Points {
            x: rows.iter().map(|row| row[0] - centroid[0]).collect(),
            y: rows.iter().map(|row| row[1] - centroid[1]).collect(),
            variance: rows.iter().map(|row| row[2] * row[2]).collect(),
        };
        let points = plain.chosen(&morton_order(&plain));
        let square = |at: usize| points.x[at].powi(2) + points.y[at].powi(2);
        let reach = (0..rows.len()).map(square).fold(0.0, f64::max).sqrt();
        let radius = ((0..rows.len()).map(square).sum::<f64>() / n).sqrt();
        let variance = median(&points.variance);
        let sampled = rows.len() > Self::SAMPLE;
        let sample =
            sampled.then(|| points.chosen(&systematic(&points, variance.sqrt(), Self::SAMPLE)));
        Some(Particle {
            sample,
            centroid,
            radius,
            reach,
            variance,
            fingerprint: fingerprint(rows),
            points,
        })
    }

    /// Root mean square distance of the points from their centroid.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// The centroid (x, y), the root mean square and the greatest distance from it, and the median squared uncertainty.
    pub fn facts(&self) -> [f64; 5] {
        let [x, y] = self.centroid;
        [x, y, self.radius, self.reach, self.variance]
    }

    /// A number that two particles share if they hold the same numbers in the same order.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Rows (x, y, squared uncertainty) around the centroid along the Morton curve: of all points, and of the sample,
    /// which is empty where the coarse stages use all points.
    pub fn rows(&self) -> [Vec<[f64; 3]>; 2] {
        let rows = |points: &Points| {
            let row = |at: usize| [points.x[at], points.y[at], points.variance[at]];
            (0..points.len()).map(row).collect()
        };
        [
            rows(&self.points),
            self.sample.as_ref().map_or_else(Vec::new, rows),
        ]
    }

    /// The points of the coarse stages.
    pub(super) fn coarse(&self) -> &Points {
        self.sample.as_ref().unwrap_or(&self.points)
    }
}

/// Choose `most` of many points, the more of a region the denser it is; indices in ascending order.
///
/// A point counts as often as its cell of four median uncertainties has points. Points are passed along a Morton curve
/// and taken at equal distances of the sum: the choice is fixed and even. Points without direction or
/// uncertainty are no matter here.
pub fn thin(rows: &[[f64; 3]], most: usize) -> Vec<usize> {
    if rows.len() <= most {
        return (0..rows.len()).collect();
    }
    let points = Points {
        x: rows.iter().map(|row| row[0]).collect(),
        y: rows.iter().map(|row| row[1]).collect(),
        variance: rows.iter().map(|row| row[2] * row[2]).collect(),
    };
    let order = morton_order(&points);
    let ordered = points.chosen(&order);
    let kept = systematic(&ordered, median(&ordered.variance).sqrt(), most);
    let mut chosen: Vec<usize> = kept.into_iter().map(|at| order[at]).collect();
    chosen.sort_unstable();
    chosen
}

/// Take `most` points in their order, at equal distances of the sum of their weights; each at most once.
fn systematic(points: &Points, sigma: f64, most: usize) -> Vec<usize> {
    let weights = densities(points, sigma);
    let mut taken = vec![false; points.len()];
    let mut left = most;
    // A point heavier than the distance is taken once; what it leaves over is drawn again from the others.
    while left > 0 {
        let total: f64 = (0..weights.len())
            .filter(|&at| !taken[at])
            .map(|at| weights[at])
            .sum();
        let step = total / left as f64;
        let mut next = step / 2.0;
        let (mut sum, mut found) = (0.0, 0);
        for (at, weight) in weights.iter().enumerate() {
            if taken[at] {
                continue;
            }
            sum += weight;
            if sum >= next && found < left {
                taken[at] = true;
                found += 1;
                while next <= sum {
                    next += step;
                }
            }
        }
        left -= found;
        if found == 0 {
            break;
        }
    }
    (0..taken.len()).filter(|&at| taken[at]).collect()
}

/// How many points share the cell of each point.
fn densities(points: &Points, sigma: f64) -> Vec<f64> {
    let cell = |at: usize| {
        let side = CELL * sigma;
        (
            (points.x[at] / side).floor() as i64,
            (points.y[at] / side).floor() as i64,
        )
    };
    let mut counts = std::collections::HashMap::new();
    for at in 0..points.len() {
        *counts.entry(cell(at)).or_insert(0_u32) += 1;
    }
    (0..points.len())
        .map(|at| f64::from(counts[&cell(at)]))
        .collect()
}

/// The order of the points along a Morton curve; equal places keep their order.
fn morton_order(points: &Points) -> Vec<usize> {
    let ends = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    };
    let ((left, right), (bottom, top)) = (ends(&points.x), ends(&points.y));
    let side = (right - left).max(top - bottom).max(f64::MIN_POSITIVE);
    let steps = f64::from((1_u32 << BITS) - 1);
    let place = |value: f64, low: f64| spread(((value - low) / side * steps) as u32);
    let mut order: Vec<(u32, usize)> = (0..points.len())
        .map(|at| {
            let code = place(points.x[at], left) | (place(points.y[at], bottom) << 1);
            (code, at)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

/// Put a zero between the low 16 bits.
fn spread(value: u32) -> u32 {
    let mut x = value & 0xffff;
    x = (x | (x << 8)) & 0x00ff_00ff;
    x = (x | (x << 4)) & 0x0f0f_0f0f;
    x = (x | (x << 2)) & 0x3333_3333;
    (x | (x << 1)) & 0x5555_5555
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// A number that two particles share if they hold the same numbers in the same order.
fn fingerprint(rows: &[[f64; 3]]) -> u64 {
    let mut state = rows.len() as u64;
    for value in rows.iter().flatten() {
        state = (state ^ value.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^= state >> 29;
    }
    state
}
