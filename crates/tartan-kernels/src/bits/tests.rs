//! Screened tiles against all pairs computed one by one, and the kernels against their twin.

use proptest::prelude::*;

use super::heads::{choose_order, Heads, WORDS};
use super::*;
use crate::dense;
use crate::keeper::{Best, TileContext};
use crate::screened_bits::{bits_beyond, choose_bits};

/// Rows of so many words, each with a density of its own, and a last word: the number of ones, or of positions.
fn make_rows(n: usize, n_words: usize, metric: BitMetric, seed: u64) -> Vec<Vec<u64>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut rows: Vec<Vec<u64>> = (0..n)
        .map(|_| {
            let thin = next() % 6;
            let word = |_| (0..thin).fold(next(), |word, _| word & next());
            (0..n_words).map(word).collect()
        })
        .collect();
    for at in (0..n).step_by(7) {
        rows[at] = rows[(at * 5 + 3) % n].clone(); // equal rows
        let word = at % n_words;
        rows[at][word] ^= 1 << (at % 64);
    }
    for at in (0..n).step_by(11) {
        rows[at].fill(if at % 2 == 0 { 0 } else { u64::MAX });
    }
    for row in &mut rows {
        let ones: u32 = row.iter().map(|word| word.count_ones()).sum();
        row.push(match metric {
            BitMetric::Jaccard => u64::from(ones),
            BitMetric::Hamming => n_words as u64 * 64,
        });
    }
    rows
}

fn slices(rows: &[Vec<u64>]) -> Vec<&[u64]> {
    rows.iter().map(Vec::as_slice).collect()
}

/// The scores of a tile that is computed whole.
fn score_all(left: &[&[u64]], right: &[&[u64]], metric: BitMetric) -> Vec<Vec<f32>> {
    let mut out = vec![vec![0.0_f32; right.len()]; left.len()];
    let mut places: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    match metric {
        BitMetric::Jaccard => dense::jaccard_bits(left, right, &mut places),
        BitMetric::Hamming => dense::hamming_bits(left, right, &mut places),
    }
    out
}

fn frame<'a>(codes: Option<&'a [&'a [u8]]>, corner: (usize, usize)) -> TileContext<'a> {
    TileContext {
        codes,
        corner,
        largest: false,
        skip_self: false,
    }
}

const METRICS: [BitMetric; 2] = [BitMetric::Jaccard, BitMetric::Hamming];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pairs_within_a_limit_are_those_of_all_scores(
        seed in 1_u64..1_000_000,
        n in 1_usize..90,
        n_words in 1_usize..40,
        limit in prop_oneof![Just(0.0_f32), Just(0.3), Just(1.0), Just(-0.5), 0.0_f32..1.0],
        most_bytes in prop_oneof![Just(0_usize), Just(1 << 20)],
    ) {
        for metric in METRICS {
            let rows = make_rows(n, n_words, metric, seed);
            let rows = slices(&rows);
            let scores = score_all(&rows, &rows, metric);
            let mut expected = Vec::new();
            for (r, row) in scores.iter().enumerate() {
                for (c, &score) in row.iter().enumerate() {
                    if score <= limit {
                        expected.push((r as i64, c as i64, score.to_bits()));
                    }
                }
            }
            for level in BitLevel::available() {
                let screen = BitScreen::new(n, most_bytes, level, 1.0);
                let (places, kept) =
                    bits_beyond((&rows, &rows), metric, frame(None, (0, 0)), limit, &screen).unwrap();
                let pairs = places.rows.iter().zip(&places.columns).zip(&kept);
                let mut found: Vec<_> =
                    pairs.map(|((&r, &c), &score)| (r, c, score.to_bits())).collect();
                found.sort_unstable();
                prop_assert_eq!(&found, &expected);
                let (ruled_out, counted) = screen.decided();
                prop_assert_eq!(ruled_out + counted, (n * n) as u64);
            }
        }
    }

    #[test]
    fn best_pairs_are_those_of_all_scores(
        seed in 1_u64..1_000_000,
        n in 2_usize..120,
        n_words in 1_usize..40,
        k in 1_usize..12,
        side in 20_usize..70,
    ) {
        for metric in METRICS {
            let rows = make_rows(n, n_words, metric, seed);
            let rows = slices(&rows);
            let scores = score_all(&rows, &rows, metric);
            for level in BitLevel::available() {
                let screen = BitScreen::new(n, 1 << 20, level, 1.0);
                let best = Best::<f32>::new(0, n, k);
                for top in (0..n).step_by(side) {
                    for start in (top..n).step_by(side) {
                        let (left, right) = (&rows[top..n.min(top + side)], &rows[start..n.min(start + side)]);
                        let upper: Vec<Vec<u8>> = (0..left.len())
                            .map(|r| (0..right.len()).map(|c| u8::from(top + r < start + c)).collect())
                            .collect();
                        let codes: Vec<&[u8]> = upper.iter().map(Vec::as_slice).collect();
                        let codes = (top == start).then_some(codes.as_slice());
                        assert!(choose_bits((left, right), metric, frame(codes, (top, start)), (&best, Some(&best)), &screen));
                    }
                }
                let found = best.pairs(0..n, 0..n, false);
                let mut expected = Vec::new();
                for (item, row) in scores.iter().enumerate() {
                    let mut others: Vec<usize> = (0..n).filter(|&other| other != item).collect();
                    others.sort_by(|&a, &b| row[a].total_cmp(&row[b]).then(a.cmp(&b)));
                    expected.extend(others.iter().take(k).map(|&other| (item as i64, other as i64, row[other].to_bits())));
                }
                let pairs = found.items.iter().zip(&found.ids).zip(&found.scores);
                let found: Vec<_> = pairs.map(|((&i, &j), &score)| (i, j, score.to_bits())).collect();
                prop_assert_eq!(found, expected);
                let (ruled_out, counted) = screen.decided();
                prop_assert_eq!(ruled_out + counted, (n * (n - 1) / 2) as u64);
            }
        }
    }

    #[test]
    fn kernels_are_their_twin(
        words in prop::collection::vec(prop::array::uniform8(any::<u32>()), 1..70),
        seed in any::<u64>(),
        share in 0.0_f32..0.6,
        extra in -1.0_f32..200.0,
    ) {
        let other = |at: usize, lane: usize| {
            let mixed = seed.wrapping_add((at * LANES + lane) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 32) as u32 & mixed as u32
        };
        let panel: Vec<[u32; LANES]> =
            (0..words.len()).map(|at| std::array::from_fn(|lane| other(at, lane))).collect();
        let mut rows = Bounds::<ROWS>::NONE;
        let mut columns = Bounds::<LANES>::NONE;
        for r in 0..ROWS {
            rows.ones[r] = (words.len() * (5 + 3 * r)) as f32;
            rows.rest[r] = r as i32 * 7;
            rows.share[r] = share + r as f32 / 50.0;
            rows.extra[r] = extra;
        }
        for lane in 0..LANES {
            columns.ones[lane] = (words.len() * (3 + lane)) as f32;
            columns.rest[lane] = lane as i32 * 4;
            columns.share[lane] = if lane % 3 == 0 { share / 2.0 } else { 4.0 };
        }
        let expected = pass(BitLevel::Plain, &words, &panel, &rows, &columns);
        let row: Vec<u64> = words.iter().map(|few| u64::from(few[0]) << 32 | u64::from(few[1])).collect();
        let column: Vec<u64> = panel.iter().map(|few| u64::from(few[0]) << 32 | u64::from(few[1])).collect();
        for level in BitLevel::available() {
            prop_assert_eq!(pass(level, &words, &panel, &rows, &columns), expected);
            prop_assert_eq!(common(level, &row, &column), common(BitLevel::Plain, &row, &column));
        }
    }
}

#[test]
fn counts_of_full_words_do_not_overflow() {
    let (words, panel) = (vec![[u32::MAX; ROWS]; 200], vec![[u32::MAX; LANES]; 200]);
    let (mut rows, mut columns) = (Bounds::<ROWS>::NONE, Bounds::<LANES>::NONE);
    (rows.ones, columns.ones) = ([6400.0; ROWS], [6400.0; LANES]);
    (rows.extra, columns.extra) = ([0.0; ROWS], [0.0; LANES]);
    for level in BitLevel::available() {
        rows.share = [0.5; ROWS];
        assert_eq!(
            pass(level, &words, &panel, &rows, &columns),
            [u16::MAX; ROWS]
        );
        rows.share = [0.5001; ROWS];
        assert_eq!(pass(level, &words, &panel, &rows, &columns), [0; ROWS]);
    }
}

#[test]
fn a_wrong_bound_loses_pairs() {
    for metric in METRICS {
        let rows = make_rows(300, 32, metric, 5);
        let rows = slices(&rows);
        let count = |trust| {
            let screen = BitScreen::new(300, 1 << 20, BitLevel::fastest(), trust);
            let found = bits_beyond(
                (&rows, &rows),
                metric,
                frame(None, (0, 0)),
                0.02_f32,
                &screen,
            );
            found.expect("rows are short").1.len()
        };
        assert!(count(0.5) < count(1.0), "{metric:?}");
    }
}

#[test]
fn numbers_of_bits_rule_pairs_out() {
    // One bit more in each row: 0.3 is reached by at most 43 % more bits.
    let mut rows = vec![vec![0_u64; 9]; 500];
    for (at, row) in rows.iter_mut().enumerate() {
        for bit in 0..at {
            row[bit / 64] |= 1 << (bit % 64);
        }
        row[8] = at as u64;
    }
    let rows = slices(&rows);
    let screen = BitScreen::new(500, 1 << 20, BitLevel::fastest(), 1.0);
    let frame = frame(None, (0, 0));
    let (_, kept) =
        bits_beyond((&rows, &rows), BitMetric::Jaccard, frame, 0.3_f32, &screen).unwrap();
    // Every pair that the numbers allow is within the limit, so that these decide all.
    assert_eq!(screen.decided().1, kept.len() as u64);
}

#[test]
fn the_head_holds_bits_that_tell() {
    let mut rows = vec![vec![0_u64; 41]; 64];
    for (at, row) in rows.iter_mut().enumerate() {
        row[7] = u64::MAX; // all have these
        row[33] = (at as u64 % 2) * 5; // half of them have two bits
    }
    let rows = slices(&rows);
    let order = choose_order(&rows);
    assert_eq!(order.len(), WORDS * 32);
    assert_eq!(order[..2], [33 * 64, 33 * 64 + 2]);
    let heads = Heads::of(&rows[1..2], &order);
    assert_eq!(heads.words[0][0] & 3, 3);
    assert_eq!(heads.ones[0], 66);
}

#[test]
fn what_cannot_be_screened_is_left() {
    let rows = make_rows(4, 2, BitMetric::Jaccard, 1);
    let rows = slices(&rows);
    let screen = BitScreen::new(4, 1 << 20, BitLevel::fastest(), 1.0);
    let mut largest = frame(None, (0, 0));
    largest.largest = true;
    assert!(bits_beyond(
        (&rows, &rows),
        BitMetric::Jaccard,
        largest,
        0.5_f32,
        &screen
    )
    .is_none());
    let within = |rows: &[&[u64]]| {
        bits_beyond(
            (rows, rows),
            BitMetric::Jaccard,
            frame(None, (0, 0)),
            0.5_f32,
            &screen,
        )
        .is_some()
    };
    assert!(within(&rows));
    let wider = make_rows(4, 3, BitMetric::Jaccard, 1);
    assert!(!within(&slices(&wider)));
    assert!(within(&[]));
}
