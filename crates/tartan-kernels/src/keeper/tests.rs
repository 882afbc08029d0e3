use super::*;
use crate::screened::{choose_rows, rows_beyond, RowMetric};

/// Whole numbers below `n`, always the same for the same seed (an xorshift generator): many of them are equal.
fn numbers(count: usize, n: u64, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % n
    };
    (0..count).map(|_| next() as f32).collect()
}

/// The k best of each row of an n x n matrix, by sorting all of it.
fn sorted(matrix: &[f32], codes: &[u8], n: usize, k: usize, largest: bool) -> Vec<Vec<usize>> {
    let row = |i: usize| {
        let key = |j: &usize| {
            let score = matrix[i * n + j];
            (if largest { -score } else { score }).min(f32::MAX)
        };
        let good = |j: &usize| *j != i && codes[i * n + j] == DONE && !matrix[i * n + j].is_nan();
        let mut order: Vec<usize> = (0..n).filter(good).collect();
        order.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap().then(a.cmp(b)));
        order.truncate(k);
        order
    };
    (0..n).map(row).collect()
}

/// Offer a symmetric matrix by tiles of its upper triangle; return what is held in the end, row by row.
fn offered(
    matrix: &[f32],
    codes: &[u8],
    n: usize,
    k: usize,
    largest: bool,
    side: usize,
) -> Vec<Vec<usize>> {
    let best = Best::<f32>::new(0, n, k);
    let mut pairs = (Vec::new(), Vec::new());
    let starts: Vec<usize> = (0..n).step_by(side).collect();
    for &top in starts.iter().rev() {
        for &left in starts.iter().filter(|left| **left >= top) {
            let cut = |r: usize| r * n + left..r * n + n.min(left + side);
            let lines = top..n.min(top + side);
            let scores: Vec<&[f32]> = lines.clone().map(|r| &matrix[cut(r)]).collect();
            // Of a tile on the diagonal only what lies above it is done.
            let above: Vec<Vec<u8>> = lines
                .map(|r| cut(r).map(|at| codes[at] * u8::from(at % n > r)).collect())
                .collect();
            let codes: Vec<&[u8]> = above.iter().map(Vec::as_slice).collect();
            let tile = Tile {
                scores: &scores,
                codes: Some(&codes),
                corner: (top, left),
                largest,
                skip_self: true,
            };
            let (rows, columns) = choose(tile, &best, Some(&best));
            for (r, c) in rows.rows.iter().zip(&rows.columns) {
                pairs.0.push(top as i64 + r);
                pairs.1.push(left as i64 + c);
            }
            for (r, c) in columns.rows.iter().zip(&columns.columns) {
                pairs.0.push(left as i64 + c);
                pairs.1.push(top as i64 + r);
            }
        }
    }
    let mut found = vec![Vec::new(); n];
    let held = best.holds(&pairs.0, &pairs.1);
    for ((item, id), _) in pairs
        .0
        .iter()
        .zip(&pairs.1)
        .zip(held)
        .filter(|(_, held)| *held)
    {
        found[*item as usize].push(*id as usize);
    }
    found
}

fn symmetric(n: usize, values: u64, seed: u64) -> Vec<f32> {
    let mut matrix = numbers(n * n, values, seed);
    for i in 0..n {
        for j in 0..i {
            matrix[i * n + j] = matrix[j * n + i];
        }
    }
    matrix
}

#[test]
fn what_is_held_in_the_end_is_what_sorting_finds() {
    for (n, k, values, side) in [
        (1, 1, 5, 1),
        (70, 3, 9, 7),
        (150, 10, 1_000_000, 64),
        (40, 60, 3, 40),
        (131, 1, 2, 100),
    ] {
        for largest in [false, true] {
            let matrix = symmetric(n, values, 7);
            let codes = vec![DONE; n * n];
            let mut found = offered(&matrix, &codes, n, k, largest, side);
            let mut expected = sorted(&matrix, &codes, n, k, largest);
            found.iter_mut().for_each(|row| row.sort_unstable());
            expected.iter_mut().for_each(|row| row.sort_unstable());
            assert_eq!(found, expected, "n {n}, k {k}, largest {largest}");
        }
    }
}

#[test]
fn pairs_that_are_not_done_nan_and_infinities() {
    let (n, k) = (90, 4);
    let mut matrix = symmetric(n, 6, 3);
    let mut codes = vec![DONE; n * n];
    for i in 0..n {
        for j in 0..i {
            let special = (i * 7 + j * 3) % 11;
            let value = match special {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                _ => matrix[i * n + j],
            };
            let code = if special == 3 { 3 } else { DONE };
            for at in [i * n + j, j * n + i] {
                (matrix[at], codes[at]) = (value, code);
            }
        }
    }
    for largest in [false, true] {
        let mut found = offered(&matrix, &codes, n, k, largest, 25);
        let mut expected = sorted(&matrix, &codes, n, k, largest);
        found.iter_mut().for_each(|row| row.sort_unstable());
        expected.iter_mut().for_each(|row| row.sort_unstable());
        assert_eq!(found, expected, "largest {largest}");
    }
}

#[test]
fn equal_infinities_come_in_the_order_of_their_indices() {
    let scores = [f32::INFINITY, f32::INFINITY, f32::INFINITY];
    let best = Best::<f32>::new(0, 1, 1);
    let tile = |part: &'static [f32], column: usize| (vec![part], column);
    static ALL: [f32; 3] = [f32::INFINITY; 3];
    assert_eq!(scores, ALL);
    for (rows, column) in [tile(&ALL[2..], 7), tile(&ALL[..2], 3)] {
        let tile = Tile {
            scores: &rows,
            codes: None,
            corner: (0, column),
            largest: false,
            skip_self: true,
        };
        choose(tile, &best, None);
    }
    assert_eq!(best.holds(&[0, 0, 0], &[3, 4, 7]), [true, false, false]);
}

#[test]
fn a_pair_that_comes_again_counts_once() {
    let best = Best::<f64>::new(5, 1, 2);
    let scores = [1.0, 4.0];
    let tile = Tile {
        scores: &[&scores],
        codes: None,
        corner: (5, 10),
        largest: false,
        skip_self: true,
    };
    let once = choose(tile, &best, None).0;
    assert_eq!(choose(tile, &best, None).0, once, "and is chosen again");
    assert_eq!(best.holds(&[5, 5], &[10, 11]), [true, true]);
}

#[test]
fn threads_find_what_one_finds() {
    let n = 200;
    let matrix = symmetric(n, 50, 11);
    let lines: Vec<&[f32]> = matrix.chunks(n).collect();
    let best = Best::<f32>::new(0, n, 5);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (best, lines) = (&best, &lines[part * 50..part * 50 + 50]);
            scope.spawn(move || {
                let tile = Tile {
                    scores: lines,
                    codes: None,
                    corner: (part * 50, 0),
                    largest: true,
                    skip_self: true,
                };
                // Each thread offers rows of its own, and all columns, which are those of the others.
                choose(tile, best, Some(best))
            });
        }
    });
    let expected = sorted(&matrix, &vec![DONE; n * n], n, 5, true);
    for (i, row) in expected.iter().enumerate() {
        let ids: Vec<i64> = row.iter().map(|&j| j as i64).collect();
        let items = vec![i as i64; ids.len()];
        assert!(best.holds(&items, &ids).iter().all(|held| *held), "row {i}");
    }
}

#[test]
fn scores_beyond_a_limit() {
    let nan = f32::NAN;
    let low = f32::NEG_INFINITY;
    let lines: [&[f32]; 2] = [&[0.5, nan, 0.2, low], &[0.6, 0.4, 0.5, 0.9]];
    let codes: [&[u8]; 2] = [&[1, 1, 1, 1], &[1, 1, 1, 3]];
    let found = |largest: bool, skip_self: bool| {
        let tile = Tile {
            scores: &lines,
            codes: Some(&codes),
            corner: (4, 3),
            largest,
            skip_self,
        };
        let places = beyond(tile, 0.5);
        let pairs = places.rows.into_iter().zip(places.columns);
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(found(true, false), [(0, 0), (1, 0), (1, 2)]);
    assert_eq!(
        found(false, false),
        [(0, 0), (0, 2), (0, 3), (1, 1), (1, 2)]
    );
    assert_eq!(found(true, true), [(0, 0), (1, 0)]);
}

#[test]
fn first_of_groups_sorts_by_group_key_and_id() {
    let groups = [9, 7, 9, 9, 7, 9];
    let ids = [4, 1, 2, 3, 0, 9];
    let scores = [0.5, 2.0, 0.5, f64::NAN, 2.0, 0.1];
    let found = |k, largest| first_of_groups(&groups, &ids, &scores, (7, 3), k, largest);
    assert_eq!(found(2, false), [4, 1, 5, 2]);
    assert_eq!(found(9, false), [4, 1, 5, 2, 0]);
    assert_eq!(found(2, true), [4, 1, 2, 0]);
    assert!(first_of_groups::<f64>(&[], &[], &[], (0, 1), 3, true).is_empty());
}

/// Unit rows of which many are equal, and all their cosine distances.
fn unit_rows(n: usize, width: usize) -> (Vec<f32>, Vec<f32>) {
    let mut values = numbers(n * width, 3, 5);
    for row in values.chunks_mut(width) {
        row[0] += 1.0;
        let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        row.iter_mut().for_each(|value| *value /= norm);
    }
    let rows: Vec<&[f32]> = values.chunks(width).collect();
    let mut matrix = vec![0.0; n * n];
    let mut lines: Vec<&mut [f32]> = matrix.chunks_mut(n).collect();
    crate::dense::finish::cosine(&rows, &rows, (None, DONE), &mut lines);
    (values.clone(), matrix)
}

#[test]
fn the_best_by_cosine_are_those_of_the_matrix() {
    if !product::available() {
        return;
    }
    let (n, width, k) = (150, 7, 6);
    let (values, matrix) = unit_rows(n, width);
    let rows: Vec<&[f32]> = values.chunks(width).collect();
    for largest in [false, true] {
        let best = Best::<f32>::new(0, n, k);
        for top in (0..n).step_by(60) {
            for left in (top..n).step_by(60) {
                let (bottom, right) = (n.min(top + 60), n.min(left + 60));
                let codes: Vec<Vec<u8>> = (top..bottom)
                    .map(|r| {
                        (left..right)
                            .map(|c| u8::from(c > r && (r + c) % 9 > 0))
                            .collect()
                    })
                    .collect();
                let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
                let frame = TileContext {
                    codes: Some(&codes),
                    corner: (top, left),
                    largest,
                    skip_self: true,
                };
                let (a, b) = (&rows[top..bottom], &rows[left..right]);
                assert!(choose_rows(
                    (a, b),
                    RowMetric::Cosine,
                    frame,
                    (&best, Some(&best)),
                    None
                ));
            }
        }
        let codes: Vec<u8> = (0..n * n)
            .map(|at| u8::from((at / n + at % n) % 9 > 0))
            .collect();
        let expected = sorted(&matrix, &codes, n, k, largest);
        let found = best.pairs(0..n, 0..n, largest);
        let mut places = expected
            .iter()
            .enumerate()
            .flat_map(|(i, row)| row.iter().map(move |j| (i, *j)));
        for m in 0..found.items.len() {
            let (i, j) = places.next().unwrap();
            assert_eq!(
                (found.items[m], found.ids[m]),
                (i as i64, j as i64),
                "largest {largest}"
            );
            assert_eq!(found.scores[m], matrix[i * n + j]);
        }
        assert_eq!(places.next(), None);
    }
}

#[test]
fn scores_beyond_a_limit_by_cosine_are_those_of_the_matrix() {
    if !product::available() {
        return;
    }
    let (n, width) = (130, 5);
    let (values, matrix) = unit_rows(n, width);
    let rows: Vec<&[f32]> = values.chunks(width).collect();
    for (largest, limit) in [(false, 0.25), (true, 0.5)] {
        let frame = TileContext {
            codes: None,
            corner: (0, 0),
            largest,
            skip_self: false,
        };
        let (mut places, scores) =
            rows_beyond((&rows, &rows), RowMetric::Cosine, frame, limit, None).unwrap();
        assert!(places
            .rows
            .iter()
            .zip(&places.columns)
            .zip(&scores)
            .all(|((r, c), score)| { matrix[*r as usize * n + *c as usize] == *score }));
        let lines: Vec<&[f32]> = matrix.chunks(n).collect();
        let tile = Tile {
            scores: &lines,
            codes: None,
            corner: (0, 0),
            largest,
            skip_self: false,
        };
        let expected = beyond(tile, limit);
        let mut found: Vec<_> = places
            .rows
            .drain(..)
            .zip(places.columns.drain(..))
            .collect();
        found.sort_unstable();
        let expected: Vec<_> = expected.rows.into_iter().zip(expected.columns).collect();
        assert_eq!(found, expected, "largest {largest}");
    }
}

#[test]
fn a_score_that_is_no_number_is_told() {
    if !product::available() {
        return;
    }
    let (bad, good) = ([f32::NAN, 0.0], [1.0_f32, 0.0]);
    let frame = TileContext {
        codes: None,
        corner: (0, 2),
        largest: false,
        skip_self: true,
    };
    let best = Best::<f32>::new(0, 4, 1);
    let (left, right): ([&[f32]; 2], [&[f32]; 2]) = ([&good, &bad], [&good, &good]);
    assert!(!choose_rows(
        (&left, &right),
        RowMetric::Cosine,
        frame,
        (&best, Some(&best)),
        None
    ));
    assert!(rows_beyond((&left, &right), RowMetric::Cosine, frame, 0.5, None).is_none());
    assert!(rows_beyond((&left[..1], &right), RowMetric::Cosine, frame, 0.5, None).is_some());
}

#[test]
fn pairs_of_a_range_keep_infinite_scores() {
    let best = Best::<f32>::new(10, 2, 3);
    let scores: [f32; 3] = [f32::INFINITY, 2.0, f32::NEG_INFINITY];
    let tile = Tile {
        scores: &[&scores],
        codes: None,
        corner: (11, 20),
        largest: true,
        skip_self: true,
    };
    choose(tile, &best, None);
    let found = best.pairs(10..12, 20..22, true);
    assert_eq!((found.items, found.ids), (vec![11, 11], vec![20, 21]));
    assert_eq!(found.scores, [f32::INFINITY, 2.0]);
    assert_eq!(best.pairs(11..12, 22..23, true).scores, [f32::NEG_INFINITY]);
    assert!(best.pairs(10..11, 0..100, true).items.is_empty());
}
