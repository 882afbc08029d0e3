//! Shared hashes against sets of the standard library.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(SPREAD) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn counts(left: &[Vec<u64>], right: &[Vec<u64>]) -> Vec<i32> {
    let units = vec![(); left.iter().chain(right).map(Vec::len).max().unwrap_or(0)];
    fn view<'a>(sets: &'a [Vec<u64>], units: &'a [()]) -> Vec<Set<'a, ()>> {
        let whole = |hashes: &'a Vec<u64>| Set {
            hashes,
            weights: &units[..hashes.len()],
        };
        sets.iter().map(whole).collect()
    }
    let mut out = vec![-1; left.len() * right.len()];
    shared(&view(left, &units), &view(right, &units), &mut out);
    out
}

fn oracle(left: &[Vec<u64>], right: &[Vec<u64>]) -> Vec<i32> {
    let sets: Vec<BTreeSet<u64>> = right
        .iter()
        .map(|set| set.iter().copied().collect())
        .collect();
    left.iter()
        .flat_map(|a| {
            sets.iter()
                .map(|b| a.iter().filter(|hash| b.contains(hash)).count() as i32)
        })
        .collect()
}

fn sorted(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

proptest! {
    #[test]
    fn equals_sets_of_the_library(
        left in prop::collection::vec(prop::collection::vec(any_hash(), 0..40), 0..60),
        right in prop::collection::vec(prop::collection::vec(any_hash(), 0..40), 0..60),
    ) {
        let left: Vec<_> = left.into_iter().map(sorted).collect();
        let right: Vec<_> = right.into_iter().map(sorted).collect();
        prop_assert_eq!(counts(&left, &right), oracle(&left, &right));
        prop_assert_eq!(counts(&left, &left), oracle(&left, &left));
    }
}

/// Small numbers, which are shared by many, and both ends of the range.
fn any_hash() -> impl Strategy<Value = u64> {
    prop_oneof![0..30u64, any::<u64>(), u64::MAX - 3..=u64::MAX]
}

#[test]
fn many_parts_and_common_hashes_are_counted() {
    let mut next = numbers(7);
    // Of 200 sets most hold 40 of 20,000 near numbers, 900 that all may hold, and some hundred of the whole range.
    let mut sets: Vec<Vec<u64>> = (0..200)
        .map(|number| {
            let own = (0..next() % 3000)
                .map(|_| next() >> (number % 3))
                .collect::<Vec<_>>();
            let near = (0..40).map(|_| next() % 20_000).collect::<Vec<_>>();
            let common = (0..9000)
                .filter(|_| next() % 10 < 1 + number % 10)
                .map(|one: u64| one.wrapping_mul(SPREAD));
            sorted(common.chain(own).chain(near).collect())
        })
        .collect();
    sets[17] = Vec::new();
    sets[18] = sets[19].clone();
    assert!(
        cut(&[Set {
            hashes: &sets[0],
            weights: &[(); 0]
        }])
        .len()
            == 2
    );
    let (few, all) = (&sets[..40], &sets[..]);
    assert_eq!(counts(few, all), oracle(few, all));
    assert_eq!(counts(all, few), oracle(all, few));
}

#[test]
fn equal_sets_of_any_hashes_share_all() {
    for hashes in [
        vec![0, u64::MAX],
        vec![u64::MAX],
        vec![0],
        (0..100_000).collect(),
        (0..100_000).map(|one| u64::MAX - 100_000 + one).collect(),
    ] {
        let n = hashes.len() as i32;
        assert_eq!(
            counts(&vec![hashes.clone(); 50], &vec![hashes; 40]),
            vec![n; 2000]
        );
    }
}

#[test]
fn weights_are_multiplied_in_the_order_of_hashes() {
    let mut next = numbers(3);
    let sets: Vec<(Vec<u64>, Vec<f64>)> = (0..50)
        .map(|_| {
            let hashes = sorted((0..2000).map(|_| next() % 5000).collect());
            let weights = hashes.iter().map(|_| next() as f64 / 1e18).collect();
            (hashes, weights)
        })
        .collect();
    let views: Vec<Set<'_, f64>> = sets
        .iter()
        .map(|(hashes, weights)| Set { hashes, weights })
        .collect();
    let mut out = vec![0.0; 2500];
    shared(&views, &views, &mut out);
    for (i, (hashes, weights)) in sets.iter().enumerate() {
        for (j, (others, theirs)) in sets.iter().enumerate() {
            let mut sum = 0.0;
            for (hash, weight) in hashes.iter().zip(weights) {
                if let Ok(place) = others.binary_search(hash) {
                    sum += weight * theirs[place];
                }
            }
            assert_eq!(out[i * 50 + j], sum);
        }
    }
}

#[test]
fn order_is_checked_across_runs() {
    let hashes: Vec<u64> = (0..5000).collect();
    assert!(ascends(&hashes) && ascends(&[]) && ascends(&[3]));
    for place in [1, 1023, 1024, 1025, 4999] {
        let mut wrong = hashes.clone();
        wrong[place] = wrong[place - 1];
        assert!(!ascends(&wrong), "{place}");
    }
}
