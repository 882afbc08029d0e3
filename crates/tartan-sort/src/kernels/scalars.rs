//! Sort of keys.

use super::check::is_sorted;
use super::plain::radix_sort;
use super::split::sort_in_place;
use super::table::{Kernels, Vectorised};
use super::{Key, Path};

/// Length of the scratch that [`sort`] can use on this machine. Only [`Path::Radix`] does; vectors sort in place.
pub fn scratch_len<K: Vectorised>(n: usize) -> usize {
    if Kernels::<K>::new(Path::Auto).radix {
        n
    } else {
        0
    }
}

/// Sort keys in place. Scratch shorter than [`scratch_len`] is not used.
///
/// # Panics
/// When a path is forced that this machine lacks.
pub fn sort<K: Vectorised>(keys: &mut [K], scratch: &mut [K], path: Path, threads: usize) {
    let kernels = Kernels::new(path);
    if is_ordered(keys) {
        return;
    }
    if kernels.radix && scratch.len() >= keys.len() {
        return radix_sort(keys, &mut scratch[..keys.len()], false, threads);
    }
    sort_in_place(&kernels, keys, K::default(), K::MAX, threads);
}

/// Sort the keys of `source` into `target`; afterwards `source` holds rubbish.
///
/// # Panics
/// When the lengths differ, or a path is forced that this machine lacks.
pub fn sort_into<K: Vectorised>(source: &mut [K], target: &mut [K], path: Path, threads: usize) {
    assert!(
        source.len() == target.len(),
        "{} keys, room for {}",
        source.len(),
        target.len()
    );
    let kernels = Kernels::<K>::new(path);
    if kernels.radix && !is_ordered(source) {
        return radix_sort(source, target, true, threads);
    }
    target.copy_from_slice(source);
    sort(target, &mut [], path, threads);
}

/// Whether the keys are sorted, after turning them around if they fall. Other keys are given up after a few.
fn is_ordered<K: Key>(keys: &mut [K]) -> bool {
    if is_sorted(keys) {
        return true;
    }
    let falls = keys.is_sorted_by(|a, b| a >= b);
    if falls {
        keys.reverse();
    }
    falls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{paths, shapes, Random};

    fn check<K: Vectorised>(name: &str, keys: &[u64], path: Path, threads: usize) {
        let keys: Vec<K> = keys.iter().map(|&k| K::from_u64(k)).collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        let mut scratch = vec![K::default(); keys.len()];
        for scratch in [&mut [][..], &mut scratch[..]] {
            let mut sorted = keys.clone();
            sort(&mut sorted, scratch, path, threads);
            assert!(
                sorted == expected,
                "{name} {path:?} {threads} {}",
                keys.len()
            );
        }
        let (mut source, mut target) = (keys.clone(), keys.clone());
        target.fill(K::default());
        sort_into(&mut source, &mut target, path, threads);
        assert!(
            target == expected,
            "into {name} {path:?} {threads} {}",
            keys.len()
        );
    }

    fn check_all(n: usize, random: &mut Random, threads: &[usize]) {
        for (name, keys) in shapes(n, random) {
            for path in paths() {
                for &threads in threads {
                    check::<u64>(name, &keys, path, threads);
                    check::<u32>(name, &keys, path, threads);
                }
            }
        }
    }

    #[test]
    fn every_small_length() {
        let mut random = Random(1);
        // Every tail of every leaf, and a few more.
        for n in (0..140).chain((141..600).step_by(7)) {
            check_all(n, &mut random, &[1]);
        }
    }

    #[test]
    fn larger_lengths_on_several_threads() {
        let mut random = Random(2);
        for n in [1000, 4097, 70_001, 200_000] {
            check_all(n, &mut random, &[1, 3]);
        }
    }
}
