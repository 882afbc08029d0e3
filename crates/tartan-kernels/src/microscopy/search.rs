//! All angles and translations at the scale of the uncertainties, then Newton on B: the best motion of one particle onto
//! another.
//!
//! The motion is one about the two centroids until the end. The particle with the lower fingerprint moves, and the result
//! is inverted where it is the other that was asked for.

use std::f64::consts::{SQRT_2, TAU};

use super::cloud::{Particle, Points};
use super::motion::Motion;
use super::newton::{Climb, ClimbEnd};
use super::spectra::{find_peaks, Square, Start, Turned, PIXEL};
use super::sums::{Near, PairObjective, SumKind, Sums, VectorLevel};

/// How many peaks are climbed.
/// Measured: 8 reach the best B in all of 315 pairs, 4 in 313 at pixels of 3 uncertainties, 1 in 301.
const CLIMBS: usize = 8;

/// Peaks closer than this many pixels are one, and results of a stage closer than this many scales.
/// By judgement: neighbours of a peak among the angles are a pixel away. Measured: all of 315 pairs reach the best B.
const SAME: f64 = 1.0;

/// How a search is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The structure looks the same after a turn by a full circle over this number.
    pub symmetry: usize,
    pub level: VectorLevel,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
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

/// Whether `b` moves where the motion of `a` onto `b` is asked for.
pub(super) fn is_swapped(a: &Particle, b: &Particle) -> bool {
    a.fingerprint > b.fingerprint
}

/// Find the motion of `a` onto `b` with the greatest B.
pub fn register(a: &Particle, b: &Particle, settings: &Settings) -> Registration {
    let moving = if is_swapped(a, b) { b } else { a };
    let square = Square::of(a, b);
    let turned = Turned::new(moving, square, settings.symmetry, settings.level);
    register_turned(a, b, &turned, settings)
}

/// As [`register`], with the spectra of the one that moves.
pub(super) fn register_turned(
    a: &Particle,
    b: &Particle,
    turned: &Turned,
    settings: &Settings,
) -> Registration {
    if is_swapped(a, b) {
        let found = search(b, a, turned, settings);
        let motion = found.motion.inverse();
        return Registration {
            motion: motion.from_centres(a.centroid, b.centroid),
            ..found
        };
    }
    let found = search(a, b, turned, settings);
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

/// What all climbs of one search share.
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
fn search(a: &Particle, b: &Particle, turned: &Turned, settings: &Settings) -> Registration {
    let scale = (a.variance + b.variance).sqrt();
    let mut search = Search {
        a,
        b,
        radius: (a.radius * b.radius).sqrt().max(scale * 1e-3),
        period: TAU / settings.symmetry as f64,
        level: settings.level,
        evaluations: 0,
        near: Near::default(),
    };
    let mut peaks: Vec<ClimbEnd> = find_peaks(turned, b, settings.level)
        .iter()
        .map(|start: &Start| ClimbEnd {
            motion: start.motion,
            value: f64::from(start.value),
        })
        .collect();
    // Stable: of equal peaks the first comes first.
    peaks.sort_by(|x, y| y.value.total_cmp(&x.value));
    let square = Square::of(a, b);
    let starts = search.different(&peaks, SAME * square.pixel(), CLIMBS);
    let mut starts: Vec<ClimbEnd> = starts
        .iter()
        .map(|start| search.unwrap(start, &square))
        .collect();
    let mut coarse = SQRT_2 * square.pixel();
    while coarse > PIXEL * scale {
        starts = search.stage(&starts, coarse, Stage::Coarse, CLIMBS);
        coarse /= 2.0;
    }
    let fine = search.stage(&starts, scale, Stage::Fine, 1);
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
    /// F, with samples of the points, roughly: where no square shows uncertainties.
    Coarse,
    /// B itself, with all points, to the end.
    Fine,
}

impl Search<'_> {
    /// Of all translations that a peak stands for the one with the greatest F at the scale of a pixel.
    fn unwrap(&mut self, peak: &ClimbEnd, square: &Square) -> ClimbEnd {
        let reach = self.a.reach + self.b.reach;
        let (across, up) = (
            square.unwrap(peak.motion.x, reach),
            square.unwrap(peak.motion.y, reach),
        );
        let places = across.iter().flat_map(|&x| {
            up.iter().map(move |&y| Motion {
                x,
                y,
                ..peak.motion
            })
        });
        let places: Vec<Motion> = places.collect();
        if places.len() < 2 {
            return *peak;
        }
        let kind = SumKind::Gauss {
            scale: SQRT_2 * square.pixel(),
        };
        let objective = PairObjective::new(self.a.coarse(), self.b.coarse(), kind, self.level);
        self.evaluations += places.len() as u32;
        places
            .into_iter()
            .map(|motion| ClimbEnd {
                motion,
                value: objective.at(&motion, &mut self.near).value,
            })
            .fold(None, |best: Option<ClimbEnd>, one| match best {
                Some(best) if best.value >= one.value => Some(best),
                _ => Some(one),
            })
            .unwrap_or(*peak)
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
