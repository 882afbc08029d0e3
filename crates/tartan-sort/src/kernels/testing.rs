//! What the tests of this family share.

use super::Path;

/// The paths that this machine can take.
pub(crate) fn paths() -> impl Iterator<Item = Path> {
    [Path::Auto, Path::Avx512, Path::Avx2, Path::Radix]
        .into_iter()
        .filter(|path| path.is_available())
}

pub(crate) use super::random::Random;

/// The shapes of input that break naive sorts, by name.
pub(crate) fn shapes(n: usize, random: &mut Random) -> Vec<(&'static str, Vec<u64>)> {
    let at = |f: &mut dyn FnMut(u64) -> u64| (0..n as u64).map(f).collect::<Vec<u64>>();
    let end = n as u64;
    vec![
        ("random", at(&mut |_| random.next())),
        ("equal", at(&mut |_| 0x0123_4567_89AB_CDEF)),
        ("two values", at(&mut |_| random.next() % 2 * u64::MAX)),
        (
            "extremes",
            at(&mut |i| [0, u64::MAX, 1, u64::MAX - 1][i as usize % 4]),
        ),
        ("sorted", at(&mut |i| i << 20)),
        ("reversed", at(&mut |i| (end - i) << 20)),
        ("organ pipe", at(&mut |i| i.min(end - i))),
        (
            "zipf",
            at(&mut |_| 1_000_000 / (1 + random.next() % 1_000_000)),
        ),
        ("few", at(&mut |_| random.next() % 7)),
        ("narrow", at(&mut |_| (7 << 50) + random.next() % 1000)),
        ("low half", at(&mut |_| random.next() >> 32)),
        (
            "doubles",
            at(&mut |_| ((random.next() as f64).sqrt() - 3e9).to_bits()),
        ),
        ("saw", at(&mut |i| i % 1000 * 0x0001_0001_0001)),
        (
            "nearly sorted",
            at(&mut |i| {
                if random.next().is_multiple_of(100) {
                    random.next()
                } else {
                    i << 40
                }
            }),
        ),
    ]
}
