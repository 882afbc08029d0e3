//! Two-dimensional Fourier transforms of small squares, in f32, many columns at once.
//!
//! A pass loads [`WIDE`] columns into a buffer that stays in the first cache, transforms them together by Stockham's
//! radix-4 steps, and stores them. Two passes, the first of which transposes, are a transform of the square. Nothing is
//! fused: every level of vectors gives the same bits.

use std::f64::consts::TAU;

use super::sums::VectorLevel;

/// Columns of one pass.
/// By arithmetic: a vector of AVX-512.
pub(super) const WIDE: usize = 16;

/// The least and the greatest side that is transformed; all are powers of two.
/// By arithmetic: two passes of columns at least. Measured: 128 resolve the published particles
/// (`tartan bench microscopy`); finer structures go from coarse to fine.
pub(super) const SIDES: (usize, usize) = (32, 128);

type Line = [f32; WIDE];

/// Twiddles and buffers for squares of one side.
pub(super) struct Fourier {
    side: usize,
    level: VectorLevel,
    twiddles: Vec<[f32; 2]>,
    lines: [Vec<Line>; 4],
    middle: [Vec<f32>; 2],
}

impl Fourier {
    /// # Panics
    ///
    /// If the side is none of [`SIDES`], or the machine lacks the instructions of `level`.
    pub fn new(side: usize, level: VectorLevel) -> Self {
        assert!(
            level <= VectorLevel::widest(),
            "this machine has no {level:?}"
        );
        assert!(side.is_power_of_two() && (SIDES.0..=SIDES.1).contains(&side));
        let twiddle = |k: usize| {
            let (sin, cos) = (-TAU * k as f64 / side as f64).sin_cos();
            [cos as f32, sin as f32]
        };
        Fourier {
            side,
            level,
            twiddles: (0..side).map(twiddle).collect(),
            lines: std::array::from_fn(|_| vec![[0.0; WIDE]; side]),
            middle: std::array::from_fn(|_| vec![0.0; side * side]),
        }
    }

    /// Replace a complex square by its transform, exponents negative.
    pub fn forward(&mut self, re: &mut [f32], im: &mut [f32]) {
        self.run(&mut Job::Forward(re, im));
    }

    /// Transform the product of a spectrum with a real one back, unscaled.
    ///
    /// With `real` the Hartley transform of a picture, `re` becomes the correlation with the other picture, `im` that
    /// with the picture turned by half a circle; both lie transposed. Returns the highest values of both.
    pub fn correlate(
        &mut self,
        real: &[f32],
        spectrum: [&[f32]; 2],
        re: &mut [f32],
        im: &mut [f32],
    ) -> [f32; 2] {
        let mut highest = [0.0; 2];
        self.run(&mut Job::Correlate {
            real,
            spectrum,
            out: [re, im],
            highest: &mut highest,
        });
        highest
    }

    fn run(&mut self, job: &mut Job) {
        match self.level {
            // SAFETY: `new` has checked that the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx512 => unsafe { run_wide(self, job) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            VectorLevel::Avx2 => unsafe { run_narrow(self, job) },
            _ => run_plain(self, job),
        }
    }
}

enum Job<'a> {
    Forward(&'a mut [f32], &'a mut [f32]),
    Correlate {
        real: &'a [f32],
        spectrum: [&'a [f32]; 2],
        out: [&'a mut [f32]; 2],
        highest: &'a mut [f32; 2],
    },
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
fn run_wide(fourier: &mut Fourier, job: &mut Job) {
    run_plain(fourier, job);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_narrow(fourier: &mut Fourier, job: &mut Job) {
    run_plain(fourier, job);
}

#[inline(always)]
fn run_plain(fourier: &mut Fourier, job: &mut Job) {
    let n = fourier.side;
    let Fourier {
        twiddles,
        lines,
        middle: [across, across_im],
        ..
    } = fourier;
    match job {
        Job::Forward(a, b) => {
            pass(twiddles, lines, [a, b], None, [across, across_im]);
            pass(twiddles, lines, [across, across_im], None, [a, b]);
        }
        Job::Correlate {
            real,
            spectrum,
            out,
            highest,
        } => {
            // The inverse of (x, y) is the transform of (y, x), swapped.
            let [x, y] = *spectrum;
            pass(twiddles, lines, [y, x], Some(real), [across, across_im]);
            let [re, im, re2, im2] = lines;
            let [plus, minus] = out;
            let mut most = [[0.0_f32; WIDE]; 2];
            for column in (0..n).step_by(WIDE) {
                for k in 0..n {
                    let at = k * n + column;
                    (re[k], im[k]) = (line(&across[at..]), line(&across_im[at..]));
                }
                transform(twiddles, re, im, re2, im2);
                for k in 0..n {
                    let at = k * n + column;
                    let one = each(&im[k], &re[k], |a, b| a - b);
                    let other = each(&im[k], &re[k], |a, b| a + b);
                    most[0] = each(&most[0], &one, larger);
                    most[1] = each(&most[1], &other, larger);
                    plus[at..at + WIDE].copy_from_slice(&one);
                    minus[at..at + WIDE].copy_from_slice(&other);
                }
            }
            **highest = most.map(|line| line.into_iter().fold(0.0, larger));
        }
    }
}

/// Transform the columns of a square, times a real one, into the rows of another.
#[inline(always)]
fn pass(
    twiddles: &[[f32; 2]],
    [re, im, re2, im2]: &mut [Vec<Line>; 4],
    from: [&[f32]; 2],
    real: Option<&[f32]>,
    [to_re, to_im]: [&mut [f32]; 2],
) {
    let n = twiddles.len();
    for column in (0..n).step_by(WIDE) {
        for k in 0..n {
            let at = k * n + column;
            let (x, y) = (line(&from[0][at..]), line(&from[1][at..]));
            (re[k], im[k]) = match real {
                Some(real) => {
                    let by = line(&real[at..]);
                    (each(&x, &by, |a, b| a * b), each(&y, &by, |a, b| a * b))
                }
                None => (x, y),
            };
        }
        transform(twiddles, re, im, re2, im2);
        transpose(re, &mut to_re[column * n..], n);
        transpose(im, &mut to_im[column * n..], n);
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b {
        a
    } else {
        b
    }
}

#[inline(always)]
fn line(values: &[f32]) -> Line {
    let mut found = [0.0; WIDE];
    found.copy_from_slice(&values[..WIDE]);
    found
}

#[inline(always)]
fn each(a: &Line, b: &Line, f: impl Fn(f32, f32) -> f32) -> Line {
    let mut found = [0.0; WIDE];
    for lane in 0..WIDE {
        found[lane] = f(a[lane], b[lane]);
    }
    found
}

/// Store lines as columns of a square.
#[inline(always)]
fn transpose(lines: &[Line], to: &mut [f32], n: usize) {
    for block in (0..n).step_by(WIDE) {
        let mut square = [[0.0; WIDE]; WIDE];
        square.copy_from_slice(&lines[block..block + WIDE]);
        // Four perfect shuffles of sixteen lines transpose them.
        for _ in 0..WIDE.ilog2() {
            let before = square;
            for k in 0..WIDE / 2 {
                let (a, b) = (&before[k], &before[k + WIDE / 2]);
                for lane in 0..WIDE / 2 {
                    square[2 * k][2 * lane] = a[lane];
                    square[2 * k][2 * lane + 1] = b[lane];
                    square[2 * k + 1][2 * lane] = a[WIDE / 2 + lane];
                    square[2 * k + 1][2 * lane + 1] = b[WIDE / 2 + lane];
                }
            }
        }
        for (lane, row) in square.iter().enumerate() {
            to[lane * n + block..lane * n + block + WIDE].copy_from_slice(row);
        }
    }
}

/// Transform along the lines; the result is in `re` and `im`.
#[inline(always)]
fn transform(
    twiddles: &[[f32; 2]],
    re: &mut Vec<Line>,
    im: &mut Vec<Line>,
    re2: &mut Vec<Line>,
    im2: &mut Vec<Line>,
) {
    let whole = twiddles.len();
    let (mut n, mut stride) = (whole, 1);
    while n > 1 {
        if n == 2 {
            halve(stride, re, im, re2, im2);
            n = 1;
        } else {
            quarter(twiddles, n, stride, [re, im], [re2, im2]);
            n /= 4;
            stride *= 4;
        }
        std::mem::swap(re, re2);
        std::mem::swap(im, im2);
    }
}

#[inline(always)]
fn halve(stride: usize, re: &[Line], im: &[Line], to_re: &mut [Line], to_im: &mut [Line]) {
    for q in 0..stride {
        for (from, to) in [(re, &mut *to_re), (im, &mut *to_im)] {
            let (a, b) = (from[q], from[q + stride]);
            to[q] = each(&a, &b, |a, b| a + b);
            to[q + stride] = each(&a, &b, |a, b| a - b);
        }
    }
}

#[inline(always)]
fn quarter(
    twiddles: &[[f32; 2]],
    n: usize,
    stride: usize,
    [re, im]: [&[Line]; 2],
    [to_re, to_im]: [&mut [Line]; 2],
) {
    let quarter = n / 4;
    let step = twiddles.len() / n;
    for p in 0..quarter {
        let [w1, w2, w3] = [1, 2, 3].map(|k| twiddles[k * p * step]);
        for q in 0..stride {
            let [a, b, c, d] = [0, 1, 2, 3].map(|k| q + stride * (p + k * quarter));
            let [y0, y1, y2, y3] = [0, 1, 2, 3].map(|k| q + stride * (4 * p + k));
            let mut r = [[0.0; WIDE]; 4];
            let mut i = [[0.0; WIDE]; 4];
            for lane in 0..WIDE {
                let (ar, ai, br, bi) = (re[a][lane], im[a][lane], re[b][lane], im[b][lane]);
                let (cr, ci, dr, di) = (re[c][lane], im[c][lane], re[d][lane], im[d][lane]);
                let (sr, si, tr, ti) = (ar + cr, ai + ci, ar - cr, ai - ci);
                let (ur, ui, vr, vi) = (br + dr, bi + di, br - dr, bi - di);
                // i times (v) is (-vi, vr).
                let (er, ei, fr, fi) = (tr + vi, ti - vr, tr - vi, ti + vr);
                let (gr, gi) = (sr - ur, si - ui);
                r[0][lane] = sr + ur;
                i[0][lane] = si + ui;
                r[1][lane] = er * w1[0] - ei * w1[1];
                i[1][lane] = er * w1[1] + ei * w1[0];
                r[2][lane] = gr * w2[0] - gi * w2[1];
                i[2][lane] = gr * w2[1] + gi * w2[0];
                r[3][lane] = fr * w3[0] - fi * w3[1];
                i[3][lane] = fr * w3[1] + fi * w3[0];
            }
            (to_re[y0], to_re[y1], to_re[y2], to_re[y3]) = (r[0], r[1], r[2], r[3]);
            (to_im[y0], to_im[y1], to_im[y2], to_im[y3]) = (i[0], i[1], i[2], i[3]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(n: usize, mut state: u32) -> Vec<f32> {
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..n).map(|_| draw()).collect()
    }

    fn levels() -> Vec<VectorLevel> {
        [VectorLevel::Plain, VectorLevel::Avx2, VectorLevel::Avx512]
            .into_iter()
            .filter(|&level| level <= VectorLevel::widest())
            .collect()
    }

    /// One element of the transform, as the formula says.
    fn element(re: &[f32], im: &[f32], side: usize, row: usize, column: usize) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for (at, (&x, &y)) in re.iter().zip(im).enumerate() {
            let turns = (row * (at / side) + column * (at % side)) % side;
            let (sin, cos) = (-TAU * turns as f64 / side as f64).sin_cos();
            sum[0] += f64::from(x) * cos - f64::from(y) * sin;
            sum[1] += f64::from(x) * sin + f64::from(y) * cos;
        }
        sum
    }

    #[test]
    fn transforms_are_those_of_the_formula_and_equal_at_every_level() {
        for side in [32, 64, 128] {
            let (re, im) = (draws(side * side, 1), draws(side * side, 2));
            let mut before: Option<[Vec<f32>; 2]> = None;
            for level in levels() {
                let (mut x, mut y) = (re.clone(), im.clone());
                Fourier::new(side, level).forward(&mut x, &mut y);
                for (row, column) in [(0, 0), (1, 0), (0, 1), (3, 17), (side - 1, side / 2)] {
                    let at = row * side + column;
                    let wanted = element(&re, &im, side, row, column);
                    assert!((f64::from(x[at]) - wanted[0]).abs() < 1e-5 * side as f64);
                    assert!((f64::from(y[at]) - wanted[1]).abs() < 1e-5 * side as f64);
                }
                let found = [x, y];
                assert!(before.is_none_or(|before| before == found));
                before = Some(found);
            }
        }
    }

    #[test]
    fn correlations_of_a_picture_and_of_it_turned_by_half_a_circle() {
        let side = 32;
        let size = side * side;
        let (moving, target) = (draws(size, 3), draws(size, 4));
        let mut fourier = Fourier::new(side, VectorLevel::widest());
        let (mut re, mut im) = (moving.clone(), vec![0.0; size]);
        fourier.forward(&mut re, &mut im);
        let hartley: Vec<f32> = re.iter().zip(&im).map(|(x, y)| x - y).collect();
        let (mut x, mut y) = (target.clone(), vec![0.0; size]);
        fourier.forward(&mut x, &mut y);
        let (mut plus, mut minus) = (vec![0.0; size], vec![0.0; size]);
        let highest = fourier.correlate(&hartley, [&x, &y], &mut plus, &mut minus);
        for (map, sign, most) in [(&plus, 1, highest[0]), (&minus, -1, highest[1])] {
            for (row, column) in [(0_i32, 0_i32), (5, 0), (0, 7), (30, 11)] {
                let n = side as i32;
                let wanted: f64 = (0..n * n)
                    .map(|at| {
                        let (r, c) = (sign * (at / n), sign * (at % n));
                        let there = (r + row).rem_euclid(n) * n + (c + column).rem_euclid(n);
                        f64::from(moving[at as usize]) * f64::from(target[there as usize])
                    })
                    .sum();
                let found = f64::from(map[(column * n + row) as usize]) / size as f64;
                assert!((found - wanted).abs() < 1e-3, "{found} is not {wanted}");
            }
            let top = map.iter().copied().fold(0.0, larger);
            assert_eq!(most.to_bits(), top.to_bits());
        }
    }
}
