//! Which neighbouring runs become one, until few enough are left to be merged at once.

use std::ops::Range;

/// The next runs to merge, as a range of positions in the order of the source; None when `fan_in` suffices.
///
/// Of all ways to bring the number down, the one that moves the fewest records now: as many runs as are needed, at most
/// `fan_in`, where they are smallest together.
pub fn next_group(records: &[u64], fan_in: usize) -> Option<Range<usize>> {
    let surplus = records
        .len()
        .checked_sub(fan_in)
        .filter(|&surplus| surplus > 0)?;
    let size = fan_in.min(surplus + 1);
    let mut sum: u128 = records[..size].iter().map(|&n| u128::from(n)).sum();
    let (mut best, mut start) = (sum, 0);
    for end in size..records.len() {
        sum = sum + u128::from(records[end]) - u128::from(records[end - size]);
        if sum < best {
            (best, start) = (sum, end + 1 - size);
        }
    }
    Some(start..start + size)
}

/// Records that all merges before the last one move.
pub fn records_moved(records: &[u64], fan_in: usize) -> u64 {
    let (mut records, mut moved) = (records.to_vec(), 0);
    while let Some(group) = next_group(&records, fan_in) {
        let sum: u64 = records[group.clone()].iter().sum();
        moved += sum;
        records.splice(group, [sum]);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_need_no_level() {
        assert_eq!(next_group(&[5, 5, 5], 3), None);
        assert_eq!(next_group(&[], 2), None);
    }

    #[test]
    fn a_small_surplus_moves_little() {
        assert_eq!(next_group(&[9, 9, 1, 2, 9], 4), Some(2..4));
        assert_eq!(records_moved(&[9, 9, 1, 2, 9], 4), 3);
    }

    #[test]
    fn many_runs_are_moved_little_more_than_once() {
        let moved = records_moved(&[10; 6400], 64);
        assert!((64_000..=90_000).contains(&moved), "{moved}");
        assert!(records_moved(&[10; 1000], 10) < 3 * 10_000);
    }
}
