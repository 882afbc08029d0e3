use super::*;

/// Numbers between -1 and 1, always the same for the same seed.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as f64 / (1_u64 << 43) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Keeps every product it gets, and counts how often it gets each.
struct Matrix<T> {
    products: Vec<T>,
    times: Vec<usize>,
    n_columns: usize,
    unwanted: Option<Range<usize>>,
}

impl<T: Scalar> Consumer<T> for Matrix<T> {
    fn wants(&self, _rows: Range<usize>, columns: Range<usize>) -> bool {
        let inside =
            |range: &Range<usize>| range.start <= columns.start && columns.end <= range.end;
        !self.unwanted.as_ref().is_some_and(inside)
    }

    fn take(&mut self, row: usize, first: usize, products: &mut [T]) {
        for (lane, product) in products.iter().enumerate() {
            let at = row * self.n_columns + first + lane;
            self.products[at] = *product;
            self.times[at] += 1;
        }
    }
}

fn empty<T: Scalar>(n_rows: usize, n_columns: usize) -> Matrix<T> {
    Matrix {
        products: vec![T::default(); n_rows * n_columns],
        times: vec![0; n_rows * n_columns],
        n_columns,
        unwanted: None,
    }
}

type Level<T> = unsafe fn(&[&[T]], &[&[T]], &mut Vec<T>, &mut Matrix<T>);

/// All products, at a level, against sums from the first position to the last.
fn compare_with_sums<T: Scalar + PartialEq + std::fmt::Debug>(
    levels: &[Level<T>],
    of: fn(f64) -> T,
    fma: fn(T, T, T) -> T,
) {
    if !available() {
        return;
    }
    for (n_rows, n_columns, width) in [
        (1, 1, 1),
        (7, 47, 5),
        (9, 49, 33),
        (16, 96, 17),
        (3, 13, RUN),
        (10, 50, RUN + 1),
        (5, 3, 2 * RUN + 7),
    ] {
        let values: Vec<T> = numbers((n_rows + n_columns) * width, 5)
            .into_iter()
            .map(of)
            .collect();
        let rows: Vec<&[T]> = values.chunks(width).collect();
        let (left, right) = rows.split_at(n_rows);
        for level in levels {
            let mut found = empty(n_rows, n_columns);
            // SAFETY: the caller gives levels that the machine has.
            unsafe { level(left, right, &mut Vec::new(), &mut found) };
            assert!(found.times.iter().all(|times| *times == 1));
            for (r, a) in left.iter().enumerate() {
                for (c, b) in right.iter().enumerate() {
                    let terms = a.iter().zip(*b);
                    let sum = terms.fold(T::default(), |sum, (&a, &b)| fma(a, b, sum));
                    assert_eq!(found.products[r * n_columns + c], sum, "{width}: {r}, {c}");
                }
            }
        }
    }
}

/// The levels that this machine has.
fn levels<T: Scalar>() -> Vec<Level<T>> {
    let all: [(bool, Level<T>); 2] = [
        (available(), T::avx2),
        (CpuVectors::widest() > CpuVectors::Avx2, T::avx512),
    ];
    all.into_iter()
        .filter(|(has, _)| *has)
        .map(|(_, level)| level)
        .collect()
}

#[test]
fn products_of_every_level_are_the_sums_in_order() {
    compare_with_sums::<f32>(&levels(), |value| value as f32, f32::mul_add);
    compare_with_sums::<f64>(&levels(), |value| value, f64::mul_add);
}

#[test]
fn batches_of_columns_and_blocks_of_rows_meet_all() {
    if !available() {
        return;
    }
    // More bytes than are packed at a time, and more rows than are multiplied one after the other.
    let (n_rows, n_columns, width) = (140, 1100, 1000);
    let values = vec![1.0_f32; (n_rows + n_columns) * width];
    let rows: Vec<&[f32]> = values.chunks(width).collect();
    let mut found = empty(n_rows, n_columns);
    tile(&rows[..n_rows], &rows[n_rows..], &mut found);
    assert!(found.times.iter().all(|times| *times == 1));
    assert!(found.products.iter().all(|product| *product == 1000.0));
}

#[test]
fn what_is_not_wanted_is_left_out() {
    if !available() {
        return;
    }
    let values = vec![1.0_f64; 300 * 4];
    let rows: Vec<&[f64]> = values.chunks(4).collect();
    let mut found = empty(100, 200);
    found.unwanted = Some(0..120);
    tile(&rows[..100], &rows[100..], &mut found);
    for row in found.times.chunks(200) {
        assert!(row[120..].iter().all(|times| *times == 1));
        assert!(row[..24].iter().all(|times| *times == 0));
    }
}

#[test]
fn nothing_and_rows_without_positions() {
    if !available() {
        return;
    }
    let none: [&[f32]; 0] = [];
    let empty_row: [&[f32]; 1] = [&[]];
    let mut found = empty(1, 1);
    tile(&none, &empty_row, &mut found);
    tile(&empty_row, &none, &mut found);
    assert_eq!(found.times, [0]);
}

#[test]
#[should_panic(expected = "rows differ in length")]
fn rows_of_unlike_length() {
    tile(&[&[1.0_f32]], &[&[1.0, 2.0]], &mut empty(1, 1));
}
