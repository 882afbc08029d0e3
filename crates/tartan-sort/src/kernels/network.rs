//! Sorting networks in registers: the leaves of the vectorised sort.
//!
//! Keys lie in a matrix of `R` rows of lanes. A network sorts the columns; then groups of columns are merged, two by
//! two, by bitonic merges. Reversing every second row once lets all steps between rows compare like lanes: with
//! rows r and s - 1 - r of a group of s rows as partners, one of the two has an odd number.

use super::vector::Vector;

/// Rows of the largest matrix.
/// By arithmetic: 16 of 32 registers. `tartan bench sort_kernels` measures the sort.
pub(crate) const SMALL: usize = 16;

macro_rules! network {
    ($rows:ident: $(($a:literal, $b:literal))*) => {
        {
            $(exchange($rows, $a, $b);)*
        }
    };
}

#[inline(always)]
unsafe fn exchange<V: Vector>(rows: &mut [V], a: usize, b: usize) {
    (rows[a], rows[b]) = rows[a].exchange(rows[b]);
}

/// Sort each column: M. Green's network of 60 exchanges for 16 rows, optimal ones below.
#[inline(always)]
unsafe fn sort_columns<V: Vector, const R: usize>(rows: &mut [V; R]) {
    match R {
        2 => network!(rows: (0, 1)),
        4 => network!(rows: (0, 1) (2, 3) (0, 2) (1, 3) (1, 2)),
        8 => network!(rows:
            (0, 2) (1, 3) (4, 6) (5, 7) (0, 4) (1, 5) (2, 6) (3, 7) (0, 1) (2, 3) (4, 5) (6, 7)
            (2, 4) (3, 5) (1, 4) (3, 6) (1, 2) (3, 4) (5, 6)),
        16 => network!(rows:
            (0, 1) (2, 3) (4, 5) (6, 7) (8, 9) (10, 11) (12, 13) (14, 15)
            (0, 2) (4, 6) (8, 10) (12, 14) (1, 3) (5, 7) (9, 11) (13, 15)
            (0, 4) (8, 12) (1, 5) (9, 13) (2, 6) (10, 14) (3, 7) (11, 15)
            (0, 8) (1, 9) (2, 10) (3, 11) (4, 12) (5, 13) (6, 14) (7, 15)
            (5, 10) (6, 9) (3, 12) (13, 14) (4, 8) (7, 11) (1, 2)
            (1, 4) (7, 13) (2, 8) (11, 14)
            (2, 4) (5, 6) (9, 10) (11, 13) (3, 8) (7, 12)
            (6, 8) (10, 12) (3, 5) (7, 9)
            (3, 4) (5, 6) (7, 8) (9, 10) (11, 12)
            (6, 7) (8, 9)),
        _ => {}
    }
}

/// Exchange rows within groups of `S`, first with last.
#[inline(always)]
unsafe fn fold_rows<V: Vector, const R: usize, const S: usize>(rows: &mut [V; R]) {
    if S <= R {
        for group in 0..R / S {
            for i in 0..S / 2 {
                exchange(rows, group * S + i, group * S + S - 1 - i);
            }
        }
    }
}

/// Exchange lanes at distance `D`, where a bitonic merge of `W` lanes comes to that.
#[inline(always)]
unsafe fn exchange_lanes<V: Vector, const D: usize, const PAIR: usize, const W: usize>(
    row: V,
) -> V {
    if PAIR >= W {
        return row;
    }
    let (low, high) = row.exchange(row.swap::<D>());
    V::halves::<PAIR>(low, high)
}

/// Make groups of `W` sorted columns from sorted groups of half as many.
#[inline(always)]
unsafe fn merge_columns<V: Vector, const R: usize, const W: usize>(rows: &mut [V; R]) {
    if W > V::LANES {
        return;
    }
    for i in 0..R / 2 {
        rows[2 * i + 1] = rows[2 * i + 1].reverse::<W>();
    }
    fold_rows::<V, R, 16>(rows);
    fold_rows::<V, R, 8>(rows);
    fold_rows::<V, R, 4>(rows);
    fold_rows::<V, R, 2>(rows);
    for row in rows {
        let (low, high) = row.exchange(row.reverse::<W>());
        let mut merged = V::halves::<W>(low, high);
        merged = exchange_lanes::<V, 4, 8, W>(merged);
        merged = exchange_lanes::<V, 2, 4, W>(merged);
        merged = exchange_lanes::<V, 1, 2, W>(merged);
        *row = merged;
    }
}

#[inline(always)]
unsafe fn sort_matrix<V: Vector, const R: usize>(keys: *mut V::Key, n: usize) {
    let mut rows = [V::splat(V::Key::default()); R];
    for (i, row) in rows.iter_mut().enumerate() {
        let start = (i * V::LANES).min(n);
        *row = V::load_first(keys.add(start), (n - start).min(V::LANES));
    }
    sort_columns::<V, R>(&mut rows);
    merge_columns::<V, R, 2>(&mut rows);
    merge_columns::<V, R, 4>(&mut rows);
    merge_columns::<V, R, 8>(&mut rows);
    merge_columns::<V, R, 16>(&mut rows);
    for (i, row) in rows.iter().enumerate() {
        let start = (i * V::LANES).min(n);
        row.store_first(keys.add(start), (n - start).min(V::LANES));
    }
}

/// Sort up to `SMALL * LANES` keys.
///
/// # Safety
/// As for all methods of [`Vector`].
#[inline(always)]
pub(crate) unsafe fn sort_small<V: Vector>(keys: *mut V::Key, n: usize) {
    match n.div_ceil(V::LANES) {
        0..=1 => sort_matrix::<V, 1>(keys, n),
        2 => sort_matrix::<V, 2>(keys, n),
        3..=4 => sort_matrix::<V, 4>(keys, n),
        5..=8 => sort_matrix::<V, 8>(keys, n),
        _ => sort_matrix::<V, 16>(keys, n),
    }
}
