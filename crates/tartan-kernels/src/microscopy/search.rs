//! From coarse to fine, from many angles: the best motion of one particle onto another.
//!
//! The motion is one about the two centroids until the end. The particle with the lower fingerprint moves, and the result
//! is inverted where it is the other that was asked for.

use std::f64::consts::TAU;

use super::cloud::{Particle, Points};
use super::motion::Motion;
use super::newton::{Climb, ClimbEnd};
use super::sums::{Near, PairObjective, SumKind, Sums, VectorLevel};

/// Scales of the first two stages, in those of the third.
/// COARSE and MIDDLE, measured on 40 pairs: scales of 4, 2 and 1 reach 0.986 of the best B in the mean; from 2 on 0.962
/// in twice the time, from 6 on 0.978 (`tartan bench microscopy`).
const COARSE: f64 = 4.0;
const MIDDLE: f64 = 2.0;

/// How many results of a stage start the next.
/// TO_MIDDLE and TO_FINE, measured on 40 pairs: 8 and 6 reach 0.986 of the best B in the mean, 24 and 16 from more
/// starts 0.995 in 2.6 times the time; these lie between (`tartan bench microscopy`).
const TO_MIDDLE: usize = 16;
const TO_FINE: usize = 12;

/// Results closer than this many scales are one.
/// By judgement: poses so close climb to one place. `tartan bench microscopy` holds answers.
const SAME: f64 = 0.3;

/// Way of the outermost points between two starts, in coarse scales.
/// Measured on 40 pairs: 24 starts at this distance reach 0.986 of the best B, 16 of them 0.979 (`tartan bench
/// microscopy`).
const BETWEEN: f64 = 1.25;

const STARTS: (usize, usize) = (6, 96);

/// How a search is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Angles that a search starts from; 0: as many as the particles need.
    pub starts: usize,
    /// Length of the finest stage; 0: from the uncertainties.
    pub scale: f64,
    /// The structure looks the same after a turn by a full circle over this number.
    pub symmetry: usize,
    pub level: VectorLevel,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            starts: 0,
            scale: 0.0,
            symmetry: 1,
            level: VectorLevel::widest(),
        }
    }
}

/// The best motion of one particle onto another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registration {
    pub motion: Motion,
    /// B at this motion.
    pub score: f64,
    pub evaluations: u32,
}

/// Find the motion of `a` onto `b` with the greatest B.
pub fn register(a: &Particle, b: &Particle, settings: &Settings) -> Registration {
    if a.fingerprint > b.fingerprint {
        let found = search(b, a, settings);
        let motion = found.motion.inverse();
        return Registration {
            motion: motion.from_centres(a.centroid, b.centroid),
            ..found
        };
    }
    let found = search(a, b, settings);
    Registration {
        motion: found.motion.from_centres(a.centroid, b.centroid),
        ..found
    }
}

/// B and its derivatives at a motion of `a` onto `b`, by x, y and the turn about the centroid of `a`.
pub fn score_at(a: &Particle, b: &Particle, motion: &Motion, level: VectorLevel) -> Sums {
    let unit = (a.variance + b.variance).sqrt();
    let objective = PairObjective::new(&a.points, &b.points, SumKind::Score { unit }, level);
    let about = motion.about_centres(a.centroid, b.centroid);
    objective.at(&about, &mut Near::default())
}

/// F at a scale and its derivatives, as of `score_at`.
pub fn gauss_at(
    a: &Particle,
    b: &Particle,
    motion: &Motion,
    scale: f64,
    level: VectorLevel,
) -> Sums {
    let objective = PairObjective::new(&a.points, &b.points, SumKind::Gauss { scale }, level);
    let about = motion.about_centres(a.centroid, b.centroid);
    objective.at(&about, &mut Near::default())
}

/// What all stages of one search share.
struct Search<'a> {
    a: &'a Particle,
    b: &'a Particle,
    radius: f64,
    period: f64,
    level: VectorLevel,
    evaluations: u32,
    near: Near,
}

/// Search with the motion about the centroids.
fn search(a: &Particle, b: &Particle, settings: &Settings) -> Registration {
    let scale = if settings.scale > 0.0 {
        settings.scale
    } else {
        (a.variance + b.variance).sqrt()
    };
    let mut search = Search {
        a,
        b,
        radius: (a.radius * b.radius).sqrt().max(scale * 1e-3),
        period: TAU / settings.symmetry as f64,
        level: settings.level,
        evaluations: 0,
        near: Near::default(),
    };
    let starts = search.starts(settings, COARSE * scale);
    let coarse = search.stage(&starts, COARSE * scale, Stage::Coarse, TO_MIDDLE);
    let middle = search.stage(&coarse, MIDDLE * scale, Stage::Coarse, TO_FINE);
    let fine = search.stage(&middle, scale, Stage::Fine, 1);
    let best = fine[0];
    Registration {
        motion: best.motion,
        score: best.value,
        evaluations: search.evaluations,
    }
}

/// What a stage climbs on.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// F, with samples of the points, roughly.
    Coarse,
    /// B itself, with all points, to the end.
    Fine,
}

impl Search<'_> {
    /// Angles at even distances, no shift.
    fn starts(&self, settings: &Settings, scale: f64) -> Vec<ClimbEnd> {
        let whole = if settings.starts > 0 {
            settings.starts
        } else {
            let ways = TAU * self.radius / (BETWEEN * scale);
            (2.0 * (ways / 2.0).round()).clamp(STARTS.0 as f64, STARTS.1 as f64) as usize
        };
        let n = whole.div_ceil(settings.symmetry).max(1);
        let angle = |k: usize| self.period * (k as f64 / n as f64 - 0.5);
        (0..n)
            .map(|k| ClimbEnd {
                motion: Motion {
                    theta: angle(k),
                    ..Motion::default()
                },
                value: 0.0,
            })
            .collect()
    }

    /// Climb from each start; return the best different results, best first.
    fn stage(
        &mut self,
        starts: &[ClimbEnd],
        scale: f64,
        stage: Stage,
        most: usize,
    ) -> Vec<ClimbEnd> {
        let (a, b, kind): (&Points, &Points, SumKind) = match stage {
            Stage::Coarse => (self.a.coarse(), self.b.coarse(), SumKind::Gauss { scale }),
            Stage::Fine => {
                let unit = (self.a.variance + self.b.variance).sqrt();
                (&self.a.points, &self.b.points, SumKind::Score { unit })
            }
        };
        let objective = PairObjective::new(a, b, kind, self.level);
        let (flat, short) = match stage {
            Stage::Coarse => (1e-2, 1e-2),
            Stage::Fine => (1e-4, 1e-5),
        };
        let climb = Climb {
            scale,
            radius: self.radius,
            reach: self.a.reach + self.b.reach,
            flat,
            short,
        };
        let mut peaks: Vec<ClimbEnd> = starts
            .iter()
            .map(|start| {
                let at = |motion: &Motion| objective.at(motion, &mut self.near);
                climb.from(start.motion, &mut self.evaluations, at)
            })
            .collect();
        // Stable: of equal results that of the lower start comes first.
        peaks.sort_by(|x, y| y.value.total_cmp(&x.value));
        self.different(&peaks, SAME * scale, most)
    }

    fn different(&self, peaks: &[ClimbEnd], near: f64, most: usize) -> Vec<ClimbEnd> {
        let mut kept: Vec<ClimbEnd> = Vec::with_capacity(most);
        for peak in peaks {
            let apart = |other: &ClimbEnd| {
                peak.motion
                    .distance(&other.motion, self.radius, self.period)
                    > near
            };
            if kept.len() < most && kept.iter().all(apart) {
                kept.push(*peak);
            }
        }
        kept
    }
}
