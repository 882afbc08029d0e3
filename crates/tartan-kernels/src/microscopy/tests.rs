//! Every level against f64 sums written as the formulas are, derivatives against finite differences, and searches on
//! particles whose motion is known.

use super::*;

/// Numbers from 0 to 1 of a linear congruence.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// Sites of a letter without symmetry, each localised some times.
fn letter(draws: &mut Draws, times: usize, motion: &Motion) -> Vec<[f64; 3]> {
    let sites = [
        [0.0, 0.0],
        [0.0, 0.1],
        [0.0, 0.2],
        [0.0, 0.3],
        [0.1, 0.3],
        [0.2, 0.3],
        [0.2, 0.2],
        [0.1, 0.15],
        [0.25, 0.0],
    ];
    let mut rows = Vec::new();
    for site in sites {
        for _ in 0..times {
            let sigma = 0.006 + 0.006 * draws.next();
            let [x, y] = motion.of(site);
            rows.push([
                x + sigma * draws.normal(),
                y + sigma * draws.normal(),
                sigma,
            ]);
        }
    }
    rows
}

fn levels() -> Vec<VectorLevel> {
    [VectorLevel::Plain, VectorLevel::Avx2, VectorLevel::Avx512]
        .into_iter()
        .filter(|&level| level <= VectorLevel::widest())
        .collect()
}

/// F and B as the formulas say.
fn plainly(a: &[[f64; 3]], b: &[[f64; 3]], motion: &Motion, scale: f64) -> (f64, f64) {
    let (mut gauss, mut score) = (0.0, 0.0);
    for p in a {
        let [x, y] = motion.of([p[0], p[1]]);
        for q in b {
            let square = (x - q[0]).powi(2) + (y - q[1]).powi(2);
            let v = p[2] * p[2] + q[2] * q[2];
            gauss += (-square / (scale * scale)).exp();
            score += (-square / (2.0 * v)).exp() / v;
        }
    }
    (gauss / (a.len() * b.len()) as f64, score)
}

/// Turn about the centroid by `turn` more, and shift.
fn nudged(motion: &Motion, particle: &Particle, step: [f64; 3]) -> Motion {
    let origin = [0.0, 0.0];
    let about = motion.about_centres(particle.centroid, origin);
    let about = Motion {
        x: about.x + step[0],
        y: about.y + step[1],
        theta: about.theta + step[2],
    };
    about.from_centres(particle.centroid, origin)
}

fn close(found: f64, expected: f64, scale: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 1e-5 * scale,
        "{what}: {found} is not {expected}"
    );
}

#[test]
fn every_level_agrees_with_the_formulas_and_with_finite_differences() {
    let mut draws = Draws(1);
    let rows = letter(&mut draws, 5, &Motion::default());
    let other = letter(&mut draws, 7, &Motion::default());
    let (a, b) = (
        Particle::new(&rows).unwrap(),
        Particle::new(&other).unwrap(),
    );
    let motion = Motion {
        x: 0.01,
        y: -0.02,
        theta: 0.3,
    };
    for scale in [0.01, 0.1] {
        let values = |m: &Motion| plainly(&rows, &other, m, scale);
        for level in levels() {
            let found = [
                gauss_at(&a, &b, &motion, scale, level),
                score_at(&a, &b, &motion, level),
            ];
            for (which, sums) in found.iter().enumerate() {
                let value = |step: [f64; 3]| {
                    let (gauss, score) = values(&nudged(&motion, &a, step));
                    [gauss, score][which]
                };
                check(sums, &value, 1e-5);
            }
        }
    }
}

/// Compare sums with a value and its finite differences.
fn check(sums: &Sums, value: &impl Fn([f64; 3]) -> f64, h: f64) {
    let step = |axis: usize, by: f64| {
        let mut x = [0.0; 3];
        x[axis] = by;
        x
    };
    let both = |p: usize, i: f64, q: usize, j: f64| {
        let mut x = step(p, i * h);
        x[q] += j * h;
        value(x)
    };
    close(sums.value, value([0.0; 3]), sums.value, "value");
    let size = sums.gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    for axis in 0..3 {
        let slope = (value(step(axis, h)) - value(step(axis, -h))) / (2.0 * h);
        close(sums.gradient[axis], slope, size, "gradient");
    }
    let most = sums.hessian.iter().fold(0.0_f64, |m, h| m.max(h.abs()));
    for (at, (p, q)) in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
        .into_iter()
        .enumerate()
    {
        let curve = (both(p, 1.0, q, 1.0) - both(p, 1.0, q, -1.0) - both(p, -1.0, q, 1.0)
            + both(p, -1.0, q, -1.0))
            / (4.0 * h * h);
        assert!(
            (sums.hessian[at] - curve).abs() <= 1e-4 * most,
            "hessian {at}: {} is not {curve}",
            sums.hessian[at]
        );
    }
}

#[test]
fn known_motions_are_found_at_every_level() {
    let mut draws = Draws(2);
    for theta in [-2.5, -0.4, 1.0, 3.0] {
        let true_motion = Motion {
            x: 0.3,
            y: -0.1,
            theta,
        };
        let a = Particle::new(&letter(&mut draws, 8, &Motion::default())).unwrap();
        let b = Particle::new(&letter(&mut draws, 8, &true_motion)).unwrap();
        for level in levels() {
            let settings = Settings {
                level,
                ..Settings::default()
            };
            let found = register(&a, &b, &settings);
            let turned = (found.motion.theta - theta).sin().abs();
            assert!(turned < 0.03, "{level:?}: {:?}", found.motion);
            let off = [found.motion.of([0.1, 0.1]), true_motion.of([0.1, 0.1])];
            assert!((off[0][0] - off[1][0]).hypot(off[0][1] - off[1][1]) < 0.01);
            let again = score_at(&a, &b, &found.motion, level).value;
            assert!((again / found.score - 1.0).abs() < 1e-4);
        }
    }
}

#[test]
fn both_orders_agree_to_the_bit_and_threads_do_not_matter() {
    let mut draws = Draws(3);
    let particles: Vec<Particle> = (0..5)
        .map(|k| {
            let motion = Motion {
                theta: f64::from(k),
                ..Motion::default()
            };
            Particle::new(&letter(&mut draws, 4 + k as usize, &motion)).unwrap()
        })
        .collect();
    let settings = Settings::default();
    let whole: Vec<Registration> = register_tile(&particles, &particles, None, &settings)
        .into_iter()
        .flatten()
        .collect();
    let in_parts = register_within(&particles, &particles, None, &settings, 0);
    assert!(in_parts.into_iter().flatten().eq(whole.iter().copied()));
    let marks: Vec<bool> = (0..25).map(|pair| pair % 3 == 0).collect();
    let some = register_tile(&particles, &particles, Some(&marks), &settings);
    for (pair, found) in some.iter().enumerate() {
        assert_eq!(*found, marks[pair].then_some(whole[pair]));
    }
    for i in 0..5 {
        for j in 0..5 {
            let one = register(&particles[i], &particles[j], &settings);
            assert_eq!(one, whole[i * 5 + j]);
            let (there, back) = (whole[i * 5 + j], whole[j * 5 + i]);
            assert_eq!(there.score.to_bits(), back.score.to_bits());
            assert_eq!(there.evaluations, back.evaluations);
            let round = back.motion.of(there.motion.of([0.1, 0.2]));
            assert!(i == j || (round[0] - 0.1).hypot(round[1] - 0.2) < 1e-12);
        }
    }
}

#[test]
fn units_and_far_frames_do_not_matter() {
    let mut draws = Draws(4);
    let rows = letter(&mut draws, 5, &Motion::default());
    let turned = letter(
        &mut draws,
        5,
        &Motion {
            theta: 2.0,
            ..Motion::default()
        },
    );
    let in_unit = |rows: &[[f64; 3]], unit: f64, shift: f64| {
        let moved: Vec<[f64; 3]> = rows
            .iter()
            .map(|p| [p[0] * unit + shift, p[1] * unit, p[2] * unit])
            .collect();
        Particle::new(&moved).unwrap()
    };
    let plain = register(
        &in_unit(&rows, 1.0, 0.0),
        &in_unit(&turned, 1.0, 0.0),
        &Settings::default(),
    );
    for unit in [1e-6, 130.0, 1e6] {
        let other = register(
            &in_unit(&rows, unit, 500.0 * unit),
            &in_unit(&turned, unit, 0.0),
            &Settings::default(),
        );
        assert!((other.motion.theta - plain.motion.theta).abs() < 1e-3);
        assert!((other.score * unit * unit / plain.score - 1.0).abs() < 1e-4);
    }
}

/// Pictures are as wide as both radii twice: a piece far off the centre lies elsewhere on them.
#[test]
fn a_small_piece_finds_its_place_at_the_edge_of_a_large_particle() {
    let mut draws = Draws(8);
    let mut rows: Vec<[f64; 3]> = (0..100)
        .map(|_| [0.4 * draws.normal(), 0.4 * draws.normal(), 0.02])
        .collect();
    let at = |k: usize| [2.6 + 0.05 * (k % 4) as f64, -2.2 + 0.1 * (k * k % 7) as f64];
    rows.extend((0..12).map(|k| [at(k)[0], at(k)[1], 0.02]));
    let motion = Motion {
        x: 0.5,
        y: -3.0,
        theta: 2.0,
    };
    let piece: Vec<[f64; 3]> = (0..12)
        .map(|k| {
            let [x, y] = motion.of(at(k));
            [x, y, 0.02]
        })
        .collect();
    let (a, b) = (
        Particle::new(&rows).unwrap(),
        Particle::new(&piece).unwrap(),
    );
    for level in levels() {
        let settings = Settings {
            level,
            ..Settings::default()
        };
        let found = register(&a, &b, &settings);
        let truth = score_at(&a, &b, &motion, level).value;
        assert!(found.score >= 0.999 * truth, "{found:?}, {truth}");
        assert!((found.motion.theta - 2.0).abs() < 0.1, "{found:?}");
        let back = register(&b, &a, &settings);
        assert_eq!(back.score.to_bits(), found.score.to_bits());
    }
}

#[test]
fn a_symmetric_structure_needs_angles_within_its_period_only() {
    let mut draws = Draws(5);
    let mut ring = |phase: f64| {
        let rows: Vec<[f64; 3]> = (0..80)
            .map(|k| {
                let angle = phase + std::f64::consts::TAU * f64::from(k % 8) / 8.0;
                let (x, y) = (0.4 * angle.cos(), 0.4 * angle.sin());
                [x + 0.01 * draws.normal(), y + 0.01 * draws.normal(), 0.01]
            })
            .collect();
        Particle::new(&rows).unwrap()
    };
    let (a, b) = (ring(0.0), ring(0.2));
    let settings = Settings {
        symmetry: 8,
        ..Settings::default()
    };
    let found = register(&a, &b, &settings);
    let off = (8.0 * (found.motion.theta - 0.2)).sin().abs();
    assert!(off < 0.2, "{found:?}");
    let all = register(&a, &b, &Settings::default());
    assert!(found.score > 0.95 * all.score);
    let square = Square::of(&a, &b);
    let n = |symmetry| square.angles(a.radius, symmetry).len() as f64;
    // Each stands for the opposite angle too: half a circle is all, and of odd periods a half.
    assert!((n(1) / n(8) - 4.0).abs() < 0.5 && (n(1) / n(2) - 1.0).abs() < 0.1);
    assert!((n(1) / n(3) - 3.0).abs() < 0.2 && n(1) > 20.0);
}

#[test]
fn thinning_is_fixed_and_prefers_dense_places() {
    let mut draws = Draws(6);
    let mut rows: Vec<[f64; 3]> = (0..900)
        .map(|_| [0.02 * draws.normal(), 0.02 * draws.normal(), 0.01])
        .collect();
    rows.extend((0..100).map(|_| [4.0 * draws.next() + 1.0, 4.0 * draws.next(), 0.01]));
    let kept = thin(&rows, 200);
    assert_eq!(kept.len(), 200);
    assert_eq!(kept, thin(&rows, 200));
    assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(kept.iter().filter(|&&at| at >= 900).count() < 10);
    assert_eq!(thin(&rows[..5], 200), vec![0, 1, 2, 3, 4]);
}

#[test]
fn what_cannot_be_a_particle_is_refused() {
    assert!(Particle::new(&[]).is_none());
    assert!(Particle::new(&[[0.0, f64::NAN, 0.1]]).is_none());
    assert!(Particle::new(&[[0.0, 0.0, 0.0]]).is_none());
    assert!(Particle::new(&[[1.0, 2.0, 0.1]]).is_some());
}
