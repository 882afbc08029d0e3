//! What one look at a square of a matrix of dissimilarities shows: counts, sums, extremes, and what is wrong.
//!
//! A rectangle above the diagonal is read together with its mirror image, in squares that fit the nearest cache, so
//! that the transposed reads cost little. Pairs are counted once, by the value above the diagonal; the other one is
//! only compared with it. Sums are f64, in an order that depends on the shape alone.

use std::hint::black_box;

use rayon::prelude::*;

use crate::sparse::dispatch::dispatch;

/// i16, f32 or f64: what dissimilarities are stored as.
pub trait Stored: Copy + Default + Send + Sync {
    /// The value, NaN where it is missing; `swapped` says that its bytes are in the order of other machines.
    fn get(self, swapped: bool) -> f64;
}

impl Stored for i16 {
    /// Negative values stand for missing pairs.
    #[inline(always)]
    fn get(self, swapped: bool) -> f64 {
        let value = if swapped { self.swap_bytes() } else { self };
        pick(f64::from(value), f64::NAN, value < 0)
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn get(self, _: bool) -> f64 {
        f64::from(self)
    }
}

impl Stored for f64 {
    #[inline(always)]
    fn get(self, _: bool) -> f64 {
        self
    }
}

/// How a matrix is stored and what may be in it.
#[derive(Clone, Copy, Debug)]
pub struct SurveyRule {
    /// The bytes of integers are in the order of other machines.
    pub swapped: bool,
    /// Pairs may be missing: negative integers, or NaN.
    pub missing_allowed: bool,
    /// Rows and columns are the same items: only pairs above the diagonal count.
    pub on_diagonal: bool,
}

/// What was found; of pairs that are not missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixSurvey {
    pub n_valid: u64,
    pub n_missing: u64,
    pub n_zero: u64,
    /// Smallest value above 0; infinite if there is none.
    pub smallest: f64,
    /// Largest value; 0 if there is none.
    pub largest: f64,
    pub total: f64,
    pub squares: f64,
    /// Largest difference between the two values of a pair, and where it is.
    pub asymmetry: f64,
    pub asymmetric: (usize, usize),
    /// Largest absolute value on the diagonal, and its item.
    pub diagonal: f64,
    pub diagonal_item: usize,
    /// The first pair in the order of squares of which a value is negative, not finite, or missing where it must not
    /// be or on one side only. Sums and extremes mean nothing where there is one.
    pub wrong: Option<(usize, usize)>,
}

/// Side of the squares in which a rectangle and its mirror image are read.
/// By arithmetic: two squares of 64 x 64 float32 are 32 KiB, a first cache.
const SIDE: usize = 64;

/// By arithmetic: a cache line.
const LINE_BYTES: usize = 64;

impl MatrixSurvey {
    fn nothing() -> Self {
        Self {
            n_valid: 0,
            n_missing: 0,
            n_zero: 0,
            smallest: f64::INFINITY,
            largest: 0.0,
            total: 0.0,
            squares: 0.0,
            asymmetry: 0.0,
            asymmetric: (0, 0),
            diagonal: 0.0,
            diagonal_item: 0,
            wrong: None,
        }
    }

    fn and(mut self, other: &Self) -> Self {
        self.n_valid += other.n_valid;
        self.n_missing += other.n_missing;
        self.n_zero += other.n_zero;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
        self.total += other.total;
        self.squares += other.squares;
        if other.asymmetry > self.asymmetry {
            (self.asymmetry, self.asymmetric) = (other.asymmetry, other.asymmetric);
        }
        if other.diagonal > self.diagonal {
            (self.diagonal, self.diagonal_item) = (other.diagonal, other.diagonal_item);
        }
        self.wrong = self.wrong.or(other.wrong);
        self
    }
}

/// Look at a rectangle, whose rows are given, and at its mirror image, whose rows are the columns of the rectangle.
/// Without a mirror image every pair is stored once.
///
/// # Panics
/// If the shapes do not fit.
pub fn survey<T: Stored>(upper: &[&[T]], lower: Option<&[&[T]]>, rule: SurveyRule) -> MatrixSurvey {
    let n_columns = upper.first().map_or(0, |row| row.len());
    assert!(upper.iter().all(|row| row.len() == n_columns));
    if let Some(lower) = lower {
        assert!(lower.len() == n_columns && lower.iter().all(|row| row.len() == upper.len()));
    }
    assert!(!rule.on_diagonal || n_columns == upper.len());
    let strips: Vec<MatrixSurvey> = (0..upper.len())
        .into_par_iter()
        .step_by(SIDE)
        .map(|top| strip(upper, lower, rule, top))
        .collect();
    strips
        .iter()
        .fold(MatrixSurvey::nothing(), |sum, strip| sum.and(strip))
}

fn strip<T: Stored>(
    upper: &[&[T]],
    lower: Option<&[&[T]]>,
    rule: SurveyRule,
    top: usize,
) -> MatrixSurvey {
    let rows = &upper[top..upper.len().min(top + SIDE)];
    let n_columns = rows[0].len();
    let mut found = MatrixSurvey::nothing();
    if rule.on_diagonal {
        found = found.and(&diagonal(rows, top, rule));
    }
    let mut mirror = vec![T::default(); if lower.is_some() { SIDE * SIDE } else { 0 }];
    let first = if rule.on_diagonal { top } else { 0 };
    for left in (first..n_columns).step_by(SIDE) {
        let width = SIDE.min(n_columns - left);
        if let Some(lower) = lower {
            transpose(
                &lower[left..left + width],
                top..top + rows.len(),
                &mut mirror,
            );
        }
        let square = Square {
            rows,
            mirror: lower.map(|_| mirror.as_slice()),
            top,
            left,
            width,
            triangle: rule.on_diagonal && left == top,
        };
        found = found.and(&square.look(rule));
    }
    found
}

/// Copy columns of some rows into the rows of a square of side `SIDE`.
fn transpose<T: Copy>(rows: &[&[T]], columns: std::ops::Range<usize>, into: &mut [T]) {
    // One value of each cache line first: all lines are then on their way at once.
    for row in rows {
        for value in row[columns.clone()]
            .iter()
            .step_by(LINE_BYTES / size_of::<T>())
        {
            black_box(*value);
        }
    }
    for (at, row) in rows.iter().enumerate() {
        for (line, value) in row[columns.clone()].iter().enumerate() {
            into[line * SIDE + at] = *value;
        }
    }
}

fn diagonal<T: Stored>(rows: &[&[T]], top: usize, rule: SurveyRule) -> MatrixSurvey {
    let mut found = MatrixSurvey::nothing();
    for (at, row) in rows.iter().enumerate() {
        let value = row[top + at].get(rule.swapped);
        if value.is_infinite() || (value.is_nan() && !rule.missing_allowed) {
            found.wrong = found.wrong.or(Some((top + at, top + at)));
        } else if value.abs() > found.diagonal {
            (found.diagonal, found.diagonal_item) = (value.abs(), top + at);
        }
    }
    found
}

/// A square of at most `SIDE` rows and columns, with its mirror image in rows of `SIDE`.
struct Square<'a, T> {
    rows: &'a [&'a [T]],
    mirror: Option<&'a [T]>,
    top: usize,
    left: usize,
    width: usize,
    triangle: bool,
}

impl<T: Stored> Square<'_, T> {
    fn look(&self, rule: SurveyRule) -> MatrixSurvey {
        let mut columns = Columns::new();
        take(self, rule.swapped, &mut columns);
        let mut found = columns.survey();
        let forbidden = |a: f64, b: f64| odd(a, b) || (a.is_nan() && !rule.missing_allowed);
        if found.asymmetry == f64::INFINITY || (found.n_missing > 0 && !rule.missing_allowed) {
            found.wrong = self.find(forbidden, rule.swapped);
        }
        if found.asymmetry > 0.0 {
            let worst = found.asymmetry;
            let at = self.find(|a, b| (a - b).abs() == worst, rule.swapped);
            found.asymmetric = at.unwrap_or((self.top, self.left));
        }
        found
    }

    /// The values of a row that count, and their mirror images.
    fn pair_of_rows(&self, row: usize) -> (&[T], &[T]) {
        let skip = if self.triangle { row + 1 } else { 0 };
        let values = &self.rows[row][self.left + skip..self.left + self.width];
        let mirrored = self.mirror.map_or(values, |mirror| {
            &mirror[row * SIDE + skip..row * SIDE + self.width]
        });
        (values, mirrored)
    }

    /// The first pair for which something holds.
    fn find(&self, holds: impl Fn(f64, f64) -> bool, swapped: bool) -> Option<(usize, usize)> {
        (0..self.rows.len()).find_map(|row| {
            let (values, mirrored) = self.pair_of_rows(row);
            let at = values
                .iter()
                .zip(mirrored)
                .position(|(a, b)| holds(a.get(swapped), b.get(swapped)))?;
            let column = self.left + self.width - values.len() + at;
            Some((self.top + row, column))
        })
    }
}

/// Sums that are taken side by side. Divides SIDE.
/// By arithmetic: 512 bits of float32.
const LANES: usize = 16;

type Lanes = [f64; LANES];

/// Sums and extremes of the columns of a square, every `LANES`-th together. Counts are f64, which vectors add with
/// everything else.
#[derive(Clone, Copy)]
struct Columns {
    valid: Lanes,
    zero: Lanes,
    smallest: Lanes,
    largest: Lanes,
    total: Lanes,
    squares: Lanes,
    /// Infinite where a value must not be there.
    asymmetry: Lanes,
    n_values: u64,
}

dispatch!(
    take, take_avx512, take_avx2, take_rows, [<T: Stored>], [::<T>],
    (square: &Square<'_, T>, swapped: bool, columns: &mut Columns)
);

/// Take all rows of a square.
#[inline(always)]
fn take_rows<T: Stored>(square: &Square<'_, T>, swapped: bool, columns: &mut Columns) {
    let mut found = *columns;
    for row in 0..square.rows.len() {
        let (values, mirrored) = square.pair_of_rows(row);
        found.n_values += values.len() as u64;
        for (values, mirrored) in values.chunks(LANES).zip(mirrored.chunks(LANES)) {
            found.take(values, mirrored, swapped);
        }
    }
    *columns = found;
}

impl Columns {
    fn new() -> Self {
        let zero = [0.0; LANES];
        Self {
            valid: zero,
            zero,
            smallest: [f64::INFINITY; LANES],
            largest: zero,
            total: zero,
            squares: zero,
            asymmetry: zero,
            n_values: 0,
        }
    }

    #[inline(always)]
    fn take<T: Stored>(&mut self, values: &[T], mirrored: &[T], swapped: bool) {
        // Lanes beyond the last value stay missing on both sides, which adds nothing.
        let (mut a, mut b) = ([f64::NAN; LANES], [f64::NAN; LANES]);
        if let (Ok(values), Ok(mirrored)) = (
            <&[T; LANES]>::try_from(values),
            <&[T; LANES]>::try_from(mirrored),
        ) {
            a = values.map(|value| value.get(swapped));
            b = mirrored.map(|value| value.get(swapped));
        } else {
            for (wide, value) in a.iter_mut().zip(values) {
                *wide = value.get(swapped);
            }
            for (wide, value) in b.iter_mut().zip(mirrored) {
                *wide = value.get(swapped);
            }
        }
        self.count(&a);
        self.compare(&a, &b);
    }

    /// One loop for each sum, so that each becomes a few instructions.
    #[inline(always)]
    fn count(&mut self, a: &Lanes) {
        for (sum, a) in self.valid.iter_mut().zip(a) {
            *sum += pick(0.0, 1.0, *a >= 0.0);
        }
        for (sum, a) in self.zero.iter_mut().zip(a) {
            *sum += pick(0.0, 1.0, *a == 0.0);
        }
        for (least, a) in self.smallest.iter_mut().zip(a) {
            *least = pick(*least, *a, (*a > 0.0) & (*a < *least));
        }
        for (most, a) in self.largest.iter_mut().zip(a) {
            *most = pick(*most, *a, *a > *most);
        }
        for (sum, a) in self.total.iter_mut().zip(a) {
            *sum += pick(0.0, *a, *a >= 0.0);
        }
        for (sum, a) in self.squares.iter_mut().zip(a) {
            let value = pick(0.0, *a, *a >= 0.0);
            *sum += value * value;
        }
    }

    #[inline(always)]
    fn compare(&mut self, a: &Lanes, b: &Lanes) {
        for (most, (a, b)) in self.asymmetry.iter_mut().zip(a.iter().zip(b)) {
            let apart = (a - b).abs();
            *most = pick(*most, apart, apart > *most);
            *most = pick(*most, f64::INFINITY, odd(*a, *b));
        }
    }

    fn survey(&self) -> MatrixSurvey {
        let sum = |lanes: &Lanes| lanes.iter().sum::<f64>();
        let most = |lanes: &Lanes| lanes.iter().fold(0.0, |a: f64, b| a.max(*b));
        let n_valid = sum(&self.valid) as u64;
        MatrixSurvey {
            n_valid,
            n_missing: self.n_values - n_valid,
            n_zero: sum(&self.zero) as u64,
            smallest: self.smallest.iter().fold(f64::INFINITY, |a, b| a.min(*b)),
            largest: most(&self.largest),
            total: sum(&self.total),
            squares: sum(&self.squares),
            asymmetry: most(&self.asymmetry),
            ..MatrixSurvey::nothing()
        }
    }
}

/// Whether one of the two values of a pair must not be there, whatever may be missing.
#[inline(always)]
fn odd(a: f64, b: f64) -> bool {
    let outside = (a < 0.0) | (b < 0.0) | (a == f64::INFINITY) | (b == f64::INFINITY);
    outside | (a.is_nan() != b.is_nan())
}

#[inline(always)]
fn pick(old: f64, new: f64, take_new: bool) -> f64 {
    if take_new {
        new
    } else {
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..n)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1u64 << 53) as f64
            })
            .collect()
    }

    fn symmetric(n: usize) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; n]; n];
        for (at, value) in random(n * n, n as u64).into_iter().enumerate() {
            let (i, j) = (at / n, at % n);
            if i < j {
                rows[i][j] = (value * 1000.0).round();
                rows[j][i] = rows[i][j];
            }
        }
        rows
    }

    fn rows<T>(matrix: &[Vec<T>]) -> Vec<&[T]> {
        matrix.iter().map(Vec::as_slice).collect()
    }

    /// The same by the definitions, pair by pair.
    fn oracle(
        upper: &[Vec<f64>],
        lower: &[Vec<f64>],
        on_diagonal: bool,
        integer: bool,
    ) -> MatrixSurvey {
        let mut found = MatrixSurvey::nothing();
        for (i, row) in upper.iter().enumerate() {
            for (j, &a) in row.iter().enumerate() {
                if on_diagonal && i == j && a.abs() > found.diagonal {
                    (found.diagonal, found.diagonal_item) = (a.abs(), i);
                }
                if on_diagonal && j <= i {
                    continue;
                }
                if a.is_nan() || (integer && a < 0.0) {
                    found.n_missing += 1;
                    continue;
                }
                found.n_valid += 1;
                found.n_zero += u64::from(a == 0.0);
                found.total += a;
                found.squares += a * a;
                found.largest = found.largest.max(a);
                if a > 0.0 {
                    found.smallest = found.smallest.min(a);
                }
                let difference = (a - lower[j][i]).abs();
                if difference > found.asymmetry {
                    (found.asymmetry, found.asymmetric) = (difference, (i, j));
                }
            }
        }
        found
    }

    const PLAIN: SurveyRule = SurveyRule {
        swapped: false,
        missing_allowed: true,
        on_diagonal: true,
    };

    #[test]
    fn every_size_gives_what_the_definitions_give() {
        for n in [1, 2, 15, 16, 17, 63, 64, 65, 130, 200] {
            let mut matrix = symmetric(n);
            if n > 60 {
                matrix[3][50] += 2.5; // asymmetric by so much
                matrix[7][7] = 4.0;
                (matrix[1][59], matrix[59][1]) = (f64::NAN, f64::NAN);
            }
            let expected = oracle(&matrix, &matrix, true, false);
            let rows_ = rows(&matrix);
            assert_eq!(survey(&rows_, Some(&rows_), PLAIN), expected, "n = {n}");
            let narrow: Vec<Vec<f32>> = matrix
                .iter()
                .map(|row| row.iter().map(|d| *d as f32).collect())
                .collect();
            let rows_ = rows(&narrow);
            assert_eq!(
                survey(&rows_, Some(&rows_), PLAIN),
                expected,
                "n = {n}, f32"
            );
        }
    }

    #[test]
    fn integers_of_either_byte_order() {
        let n = 150;
        let mut matrix = symmetric(n);
        (matrix[1][59], matrix[59][1]) = (-1.0, -1.0);
        let expected = oracle(&matrix, &matrix, true, true);
        for swapped in [false, true] {
            let stored: Vec<Vec<i16>> = matrix
                .iter()
                .map(|row| {
                    let value = |d: &f64| {
                        if swapped {
                            (*d as i16).swap_bytes()
                        } else {
                            *d as i16
                        }
                    };
                    row.iter().map(value).collect()
                })
                .collect();
            let rows_ = rows(&stored);
            let rule = SurveyRule { swapped, ..PLAIN };
            assert_eq!(survey(&rows_, Some(&rows_), rule), expected);
        }
    }

    #[test]
    fn a_rectangle_beside_the_diagonal() {
        let matrix = symmetric(200);
        let upper: Vec<Vec<f64>> = matrix[..70].iter().map(|row| row[70..].to_vec()).collect();
        let lower: Vec<Vec<f64>> = matrix[70..].iter().map(|row| row[..70].to_vec()).collect();
        let rule = SurveyRule {
            on_diagonal: false,
            ..PLAIN
        };
        let expected = oracle(&upper, &lower, false, false);
        assert_eq!(survey(&rows(&upper), Some(&rows(&lower)), rule), expected);
        assert_eq!(survey(&rows(&upper), None, rule), expected);
        assert_eq!(expected.n_valid, 70 * 130);
    }

    #[test]
    fn what_must_not_be_there_is_found() {
        let forbidden = SurveyRule {
            missing_allowed: false,
            ..PLAIN
        };
        for (value, mirrored, rule, wrong) in [
            (f64::NAN, f64::NAN, PLAIN, false),
            (f64::NAN, f64::NAN, forbidden, true),
            (f64::NAN, 1.0, PLAIN, true),
            (1.0, f64::NAN, PLAIN, true),
            (-1.0, -1.0, PLAIN, true),
            (1.0, -1.0, PLAIN, true),
            (f64::INFINITY, f64::INFINITY, PLAIN, true),
            (1.0, f64::NEG_INFINITY, PLAIN, true),
            (1.0, 1.0, forbidden, false),
        ] {
            let mut matrix = symmetric(100);
            (matrix[20][81], matrix[81][20]) = (value, mirrored);
            let rows_ = rows(&matrix);
            let found = survey(&rows_, Some(&rows_), rule).wrong;
            assert_eq!(found, wrong.then_some((20, 81)), "{value} {mirrored}");
        }
        for (value, rule, wrong) in [
            (f64::NAN, PLAIN, None),
            (f64::NAN, forbidden, Some((70, 70))),
            (f64::INFINITY, PLAIN, Some((70, 70))),
        ] {
            let mut matrix = symmetric(100);
            matrix[70][70] = value;
            let rows_ = rows(&matrix);
            assert_eq!(survey(&rows_, Some(&rows_), rule).wrong, wrong);
        }
    }

    #[test]
    fn the_baseline_adds_as_wide_vectors_do() {
        let (a, b) = (random(SIDE * SIDE, 1), random(SIDE * SIDE, 2));
        let values: Vec<&[f64]> = a.chunks(SIDE).collect();
        for (width, triangle) in [(SIDE, false), (SIDE, true), (37, false)] {
            let square = Square {
                rows: &values,
                mirror: Some(&b),
                top: 0,
                left: 0,
                width,
                triangle,
            };
            let (mut wide, mut plain) = (Columns::new(), Columns::new());
            take(&square, false, &mut wide);
            take_rows(&square, false, &mut plain);
            assert_eq!(wide.survey(), plain.survey());
        }
    }
}
