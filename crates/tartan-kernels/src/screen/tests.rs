//! Copies, bounds and passes against plain arithmetic in float64, and screened choices against unscreened ones.

use super::panel::ROWS;
use super::pass::{sum_plainly, Kernel, PANELS};
use super::*;
use crate::keeper::{Best, TileContext};
use crate::product;
use crate::screened::{choose_rows, rows_beyond, RowMetric};

/// A small generator of numbers (xorshift), of which a test prints the seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About a normal number: a sum of uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12)
            .map(|_| (self.next() >> 11) as f64 / (1_u64 << 53) as f64)
            .sum::<f64>()
            - 6.0
    }
}

const KINDS: [&str; 11] = [
    "gaussian",
    "huge",
    "equal",
    "rank 1",
    "sparse",
    "denormal",
    "unlike norms",
    "zero rows",
    "one sign",
    "close",
    "mixed",
];

fn rows_of(kind: &str, n: usize, width: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut draws = Draws(seed);
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|_| (0..width).map(|_| draws.normal()).collect())
        .collect();
    let first = rows[0].clone();
    for (at, row) in rows.iter_mut().enumerate() {
        match kind {
            "huge" => row[at % 3] = 1e4,
            "equal" => row.clone_from(&first),
            "rank 1" => {
                let factor = row[0];
                row.iter_mut()
                    .zip(&first)
                    .for_each(|(value, &of)| *value = factor * of);
            }
            "sparse" => row
                .iter_mut()
                .skip(1 + at % 2)
                .for_each(|value| *value = 0.0),
            "denormal" => row.iter_mut().for_each(|value| *value *= 1e-42),
            "unlike norms" => {
                let factor = 10_f64.powi(at as i32 % 31 - 15);
                row.iter_mut().for_each(|value| *value *= factor);
            }
            "zero rows" if at % 3 == 0 => row.fill(0.0),
            "one sign" => row.iter_mut().for_each(|value| *value = value.abs() + 1.0),
            "close" => {
                row.iter_mut()
                    .zip(&first)
                    .for_each(|(value, &of)| *value = 100.0 * of + 0.1 * *value);
            }
            "mixed" if at % 2 == 0 => row.iter_mut().for_each(|value| *value = value.round()),
            _ => (),
        }
    }
    rows.iter()
        .map(|row| row.iter().map(|&value| value as f32).collect())
        .collect()
}

/// Make unit rows of those that have a direction.
fn unit(rows: &mut Vec<Vec<f32>>) {
    for row in rows.iter_mut() {
        let norm = row
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
            .sqrt();
        row.iter_mut()
            .for_each(|value| *value = (f64::from(*value) / norm) as f32);
    }
    rows.retain(|row| row.iter().all(|value| value.is_finite()));
}

fn with_norms(rows: &mut [Vec<f32>]) {
    for row in rows {
        let norm: f64 = row.iter().map(|&value| f64::from(value).powi(2)).sum();
        row.push(norm as f32);
    }
}

fn heads(rows: &[Vec<f32>]) -> Vec<&[f32]> {
    rows.iter().map(Vec::as_slice).collect()
}

#[test]
fn sums_of_all_kernels_are_those_of_the_plain_twin() {
    for level in ByteLevel::available() {
        for n_words in [1, 16, 24, 97] {
            for extreme in [false, true] {
                let (seed, largest) = (n_words as u64 + 5, i64::from(level.largest()));
                let mut draws = Draws(seed);
                let mut whole = || match (extreme, draws.next()) {
                    (true, draw) => largest * if draw & 256 == 0 { -1 } else { 1 },
                    (false, draw) => {
                        (draw >> 20) as i64 % (largest + 1) * if draw & 1 == 0 { -1 } else { 1 }
                    }
                };
                let offset = i64::from(level.offset());
                let mut words = vec![[0; ROWS]; n_words];
                words.iter_mut().flatten().for_each(|word| {
                    *word = u32::from_le_bytes([0; 4].map(|_: u8| (whole() + offset) as u8));
                });
                let panels: Vec<Vec<[u32; LANES]>> = (0..PANELS)
                    .map(|_| {
                        let mut word =
                            || u32::from_le_bytes([0; 4].map(|_: u8| whole() as i8 as u8));
                        (0..n_words)
                            .map(|_| [0; LANES].map(|_: u8| word()))
                            .collect()
                    })
                    .collect();
                let panels: [&[[u32; LANES]]; PANELS] = std::array::from_fn(|p| &panels[p][..]);
                let (mut found, mut expected) =
                    ([[[7; LANES]; ROWS]; PANELS], [[[7; LANES]; ROWS]; PANELS]);
                // SAFETY: the level is available.
                unsafe {
                    match level {
                        #[cfg(target_arch = "x86_64")]
                        ByteLevel::Avx512Vnni => x86::Avx512Vnni::sum(&words, panels, &mut found),
                        #[cfg(target_arch = "x86_64")]
                        ByteLevel::AvxVnni => x86::AvxVnni::sum(&words, panels, &mut found),
                        #[cfg(target_arch = "x86_64")]
                        ByteLevel::Avx2 => x86::Avx2::sum(&words, panels, &mut found),
                        _ => pass::Plain::sum(&words, panels, &mut found),
                    }
                }
                sum_plainly(&words, panels, &mut expected);
                assert_eq!(found, expected, "{level:?}, {n_words} words, seed {seed}");
            }
        }
    }
}

#[test]
fn the_rotation_keeps_products() {
    for width in [64, 65, 100, 384, 512, 1000] {
        let mut draws = Draws(width as u64);
        let mut work: Vec<[f64; 8]> = (0..width)
            .map(|_| [0.0; 8].map(|_| draws.normal()))
            .collect();
        work[0][1] = 1e4;
        let product =
            |work: &[[f64; 8]], a, b| work.iter().map(|values| values[a] * values[b]).sum::<f64>();
        let pairs = [(0, 0), (1, 1), (0, 1), (2, 7)];
        let before = pairs.map(|(a, b)| product(&work, a, b));
        rotate::rotate(&mut work);
        for (at, (a, b)) in pairs.into_iter().enumerate() {
            let size = (product(&work, a, a) * product(&work, b, b)).sqrt();
            assert!(
                (product(&work, a, b) - before[at]).abs() < 1e-13 * size,
                "{width}"
            );
        }
        let most = work
            .iter()
            .map(|values| values[1].abs())
            .fold(0.0, f64::max);
        assert!(
            most < 1e4 / (width as f64).sqrt() * 5.0 + 10.0,
            "{width}: one large value is spread out, {most}"
        );
    }
}

/// Axes along some rows, and along positions where these are too few.
fn axes_of(rows: &[&[f32]], n: usize, width: usize) -> Axes {
    let mut found: Vec<Vec<f64>> = Vec::new();
    let position = |at: usize| {
        (0..width)
            .map(move |p| f64::from(u8::from(p == at)))
            .collect::<Vec<f64>>()
    };
    let along = rows
        .iter()
        .map(|row| row[..width].iter().map(|&value| f64::from(value)).collect());
    for mut axis in along.chain((0..width).map(position)) {
        if found.len() == n {
            break;
        }
        for _ in 0..2 {
            for other in &found {
                let product: f64 = other
                    .iter()
                    .zip(&axis)
                    .map(|(a, b): (&f64, &f64)| a * b)
                    .sum();
                axis.iter_mut()
                    .zip(other)
                    .for_each(|(a, b)| *a -= product * b);
            }
            let norm = axis
                .iter()
                .map(|value: &f64| value * value)
                .sum::<f64>()
                .sqrt();
            axis.iter_mut().for_each(|value| *value /= norm);
        }
        let lasts = found.iter().all(|other| {
            other
                .iter()
                .zip(&axis)
                .map(|(a, b)| a * b)
                .sum::<f64>()
                .abs()
                < 1e-12
        });
        if lasts && axis.iter().all(|value| value.is_finite()) {
            found.push(axis);
        }
    }
    Axes::new(found.concat(), width).unwrap()
}

/// Screens of rows: of whole ones, and of their coordinates on a few axes.
fn screens(
    n: usize,
    (rows, width): (&[&[f32]], usize),
    level: ByteLevel,
    most: usize,
) -> [Screen; 2] {
    let new = || Screen::new(n, width, most, level, 1.0);
    [new(), new().with_axes(axes_of(rows, 21, width), most)]
}

#[test]
fn axes_that_are_not_orthonormal_are_refused() {
    assert!(
        Axes::new(vec![1.0, 0.0, 0.0, 1.0], 2).is_none(),
        "as many as positions"
    );
    assert!(Axes::new(vec![1.0, 0.0, 0.0], 2).is_none());
    assert!(Axes::new(vec![], 2).is_none());
    assert!(Axes::new(vec![1.0], 0).is_none());
    assert!(Axes::new(vec![0.6, 0.8, 0.0, 0.8, -0.6, 1e-3], 3).is_none());
    assert!(Axes::new(vec![f64::NAN, 0.8, 0.0], 3).is_none());
    let axes = Axes::new(vec![0.6, 0.8, 0.0, 0.8, -0.6, 0.0], 3).unwrap();
    assert_eq!((axes.len(), axes.width()), (2, 3));
}

#[test]
fn no_product_is_farther_off_than_its_bound() {
    for level in ByteLevel::available() {
        for (seed, kind) in KINDS.into_iter().enumerate() {
            let rows = rows_of(kind, 45, 100, seed as u64 + 1);
            let rows = heads(&rows);
            for screen in &screens(100, (&rows, 100), level, 1 << 20) {
                let (side, copied) = (screen.side(3, &rows, 100), screen.copied(100));
                let byte = |(panel, lane): (&Panel, usize), p: usize| {
                    i64::from(panel.words[p / 4][lane].to_le_bytes()[p % 4] as i8)
                };
                for (i, a) in rows.iter().enumerate() {
                    for (j, b) in rows.iter().enumerate() {
                        let exact: f64 = a
                            .iter()
                            .zip(*b)
                            .map(|(&a, &b)| f64::from(a) * f64::from(b))
                            .sum();
                        let ((left, m), (right, n)) = (side.place(i), side.place(j));
                        let whole: i64 = (0..copied)
                            .map(|p| byte((left, m), p) * byte((right, n), p))
                            .sum();
                        let scales = f64::from(left.scale[m]) * f64::from(right.scale[n]);
                        let bound = f64::from(left.error[m]) * f64::from(right.reach[n])
                            + f64::from(left.copy[m]) * f64::from(right.error[n])
                            + f64::from(left.tail[m]) * f64::from(right.tail[n]);
                        let off = (scales * whole as f64 - exact).abs();
                        assert!(
                            off <= bound,
                            "{level:?} {kind} {i} {j}: {off} above {bound}"
                        );
                    }
                }
            }
        }
    }
}

/// All that is chosen from rows in tiles of `side`, by a screen or without one.
fn chosen(
    (rows, width): (&[&[f32]], usize),
    (metric, largest, k): (RowMetric, bool, usize),
    (tile, first): (usize, usize),
    screen: Option<&Screen>,
) -> (Vec<i64>, Vec<i64>, Vec<u32>) {
    assert!(rows.iter().all(|row| row.len() >= width));
    let n = rows.len();
    let best = Best::<f32>::new(first, n, k);
    for top in (0..n).step_by(tile) {
        for left in (top..n).step_by(tile) {
            let (bottom, right) = (n.min(top + tile), n.min(left + tile));
            let codes: Vec<Vec<u8>> = (top..bottom)
                .map(|r| {
                    (left..right)
                        .map(|c| u8::from(c > r && (r + c) % 9 > 0))
                        .collect()
                })
                .collect();
            let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
            let frame = TileContext {
                codes: Some(codes.as_slice()),
                corner: (first + top, first + left),
                largest,
                skip_self: true,
            };
            let sides = (&rows[top..bottom], &rows[left..right]);
            assert!(choose_rows(
                sides,
                metric,
                frame,
                (&best, Some(&best)),
                screen
            ));
        }
    }
    let found = best.pairs(first..first + n, first..first + n, largest);
    (
        found.items,
        found.ids,
        found.scores.iter().map(|score| score.to_bits()).collect(),
    )
}

fn prepared(kind: &str, metric: RowMetric, n: usize, width: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut rows = rows_of(kind, n, width, seed);
    match metric {
        RowMetric::Cosine => unit(&mut rows),
        RowMetric::Inner => (),
        RowMetric::Euclidean { .. } => with_norms(&mut rows),
    }
    rows
}

const METRICS: [RowMetric; 4] = [
    RowMetric::Cosine,
    RowMetric::Inner,
    RowMetric::Euclidean { root: true },
    RowMetric::Euclidean { root: false },
];

#[test]
fn what_is_chosen_by_a_screen_is_what_is_chosen_without() {
    if !product::available() {
        return;
    }
    let (n, width) = (230, 67);
    let mut dropped = [0; 2];
    for level in ByteLevel::available() {
        for metric in METRICS {
            for (seed, kind) in KINDS.into_iter().enumerate() {
                let rows = prepared(kind, metric, n, width, seed as u64 + 40);
                let rows = heads(&rows);
                for (largest, k) in [(false, 2), (true, 3), (false, 400)] {
                    for (tile, most_bytes) in [(100, 1 << 20), (64, 0)] {
                        let (how, place) = ((metric, largest, k), (tile, 5));
                        let expected = chosen((&rows, width), how, place, None);
                        for (at, screen) in screens(n + 5, (&rows, width), level, most_bytes)
                            .iter()
                            .enumerate()
                        {
                            let found = chosen((&rows, width), how, place, Some(screen));
                            assert_eq!(
                                found, expected,
                                "{level:?} {metric:?} {kind} {largest} {k} {tile}"
                            );
                            dropped[at] += screen.decided().dropped;
                        }
                    }
                }
            }
        }
    }
    assert!(
        dropped.iter().all(|&n| n > 10_000),
        "{dropped:?}: hardly anything was screened"
    );
}

#[test]
fn what_is_beyond_a_limit_is_the_same_with_a_screen() {
    if !product::available() {
        return;
    }
    let (n, width) = (230, 130);
    for level in ByteLevel::available() {
        for metric in METRICS {
            for (seed, kind) in KINDS.into_iter().enumerate() {
                let rows = prepared(kind, metric, n, width, seed as u64 + 70);
                let rows = heads(&rows);
                for largest in [false, true] {
                    let frame = TileContext {
                        codes: None,
                        corner: (0, 0),
                        largest,
                        skip_self: false,
                    };
                    let open = if largest {
                        f32::NEG_INFINITY
                    } else {
                        f32::INFINITY
                    };
                    let every = rows_beyond((&rows, &rows), metric, frame, open, None)
                        .unwrap()
                        .1;
                    let mut sorted = every.clone();
                    sorted.sort_unstable_by(f32::total_cmp);
                    for share in [0.0, 0.005, 0.5, 0.999] {
                        let limit = sorted[(share * sorted.len() as f64) as usize];
                        let of = |screen| {
                            let (places, scores) =
                                rows_beyond((&rows, &rows), metric, frame, limit, screen).unwrap();
                            let mut found: Vec<_> = places
                                .rows
                                .into_iter()
                                .zip(places.columns)
                                .zip(scores.iter().map(|score| score.to_bits()))
                                .collect();
                            found.sort_unstable();
                            found
                        };
                        let expected = of(None);
                        for screen in &screens(n, (&rows, width), level, 1 << 20) {
                            let found = of(Some(screen));
                            assert_eq!(
                                found.len(),
                                expected.len(),
                                "{level:?} {metric:?} {kind} {largest} {share}"
                            );
                            assert_eq!(
                                found, expected,
                                "{level:?} {metric:?} {kind} {largest} {share}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_limit_of_either_direction_is_screened() {
    if !product::available() {
        return;
    }
    let (n, width) = (300, 64);
    for metric in METRICS {
        let rows = prepared("gaussian", metric, n, width, 11);
        let rows = heads(&rows);
        for largest in [false, true] {
            let frame = TileContext {
                codes: None,
                corner: (0, 0),
                largest,
                skip_self: true,
            };
            let open = if largest { -f32::MAX } else { f32::MAX };
            let mut scores = rows_beyond((&rows, &rows), metric, frame, open, None)
                .unwrap()
                .1;
            scores.sort_unstable_by(f32::total_cmp);
            let rare = scores.len() / 500 + 2 * n;
            let limit = scores[if largest { scores.len() - rare } else { rare }];
            let screen = Screen::new(n, width, 1 << 20, ByteLevel::Plain, 1.0);
            rows_beyond((&rows, &rows), metric, frame, limit, Some(&screen)).unwrap();
            let dropped = screen.decided().dropped;
            assert!(dropped > 0, "{metric:?} {largest}: nothing was screened");
        }
    }
}

#[test]
fn a_bound_that_is_wrong_shows() {
    if !product::available() {
        return;
    }
    let (n, width) = (300, 64);
    for metric in METRICS {
        let rows = prepared("gaussian", metric, n, width, 3);
        let rows = heads(&rows);
        let frame = TileContext {
            codes: None,
            corner: (0, 0),
            largest: false,
            skip_self: false,
        };
        let open = rows_beyond((&rows, &rows), metric, frame, f32::INFINITY, None);
        let mut scores = open.unwrap().1;
        scores.sort_unstable_by(f32::total_cmp);
        let limit = scores[scores.len() / 100];
        let n_found = |trust: Option<f32>, n_axes: usize| {
            let screen = trust.map(|trust| {
                let whole = Screen::new(n, width, 1 << 20, ByteLevel::Plain, trust);
                match n_axes {
                    0 => whole,
                    _ => whole.with_axes(axes_of(&rows, n_axes, width), 1 << 20),
                }
            });
            let found = rows_beyond((&rows, &rows), metric, frame, limit, screen.as_ref());
            if let Some(screen) = screen {
                assert!(screen.decided().dropped > 0, "nothing was screened");
            }
            found.unwrap().1.len()
        };
        for n_axes in [0, 60] {
            assert_eq!(n_found(Some(1.0), n_axes), n_found(None, 0));
            assert!(
                n_found(Some(-1.0), n_axes) < n_found(None, 0),
                "{metric:?}, {n_axes} axes: a bound that is turned round loses pairs"
            );
        }
    }
}

#[test]
fn rows_that_are_no_numbers_are_told() {
    if !product::available() {
        return;
    }
    for bad in [f32::NAN, -f32::NAN] {
        let mut rows = prepared("gaussian", RowMetric::Cosine, 50, 64, 9);
        rows[20][3] = bad;
        let rows = heads(&rows);
        let frame = TileContext {
            codes: None,
            corner: (0, 0),
            largest: false,
            skip_self: true,
        };
        let (best, screen) = (
            Best::<f32>::new(0, 50, 1),
            Screen::new(50, 64, 1 << 20, ByteLevel::fastest(), 1.0),
        );
        assert!(!choose_rows(
            (&rows, &rows),
            RowMetric::Cosine,
            frame,
            (&best, Some(&best)),
            Some(&screen)
        ));
        assert!(
            rows_beyond((&rows, &rows), RowMetric::Cosine, frame, 0.1, Some(&screen)).is_none()
        );
    }
}
