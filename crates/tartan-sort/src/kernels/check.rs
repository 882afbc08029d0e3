//! Are keys sorted, are records whole.

use super::Key;

/// # Panics
/// When `records` is not a whole number of records.
pub(crate) fn assert_whole(records: &[u8], width: usize) {
    assert!(
        width > 0 && records.len().is_multiple_of(width),
        "{} bytes are not a whole number of records of {width} bytes",
        records.len()
    );
}

/// Whether no key is followed by a smaller one.
pub(crate) fn is_sorted<K: Key>(keys: &[K]) -> bool {
    // Blocks without an early exit inside are vectorised.
    let pieces = (0..keys.len()).step_by(1024);
    pieces.into_iter().all(|start| {
        let piece = &keys[start..keys.len().min(start + 1025)];
        let later = &piece[1..];
        !later
            .iter()
            .zip(piece)
            .fold(false, |bad, (b, a)| bad | (b < a))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_seen_at_every_place() {
        assert!(is_sorted::<u32>(&[]) && is_sorted(&[3u64]));
        for n in [2usize, 1023, 1024, 1025, 1026, 3000] {
            let keys: Vec<u64> = (0..n as u64).map(|i| i / 2).collect();
            assert!(is_sorted(&keys));
            for place in [1, n / 2, n - 1] {
                let mut broken = keys.clone();
                broken[place] = 0;
                broken[place - 1] = 1;
                assert!(!is_sorted(&broken), "{n} {place}");
            }
        }
    }
}
