//! Lone numbers through both phases, against a plain sort.

use crate::common::*;
use tartan_sort::disk::{Direct, IoMethod};
use tartan_sort::pack_policy::Pack;

fn check_u64(words: &[u64], change: impl Fn(&mut tartan_sort::engine::JobPlan)) {
    let folder = Folder::new();
    let mut plan = plan(form(8, &[(0, "<u8", false)]), &folder);
    change(&mut plan);
    let (sorted, _job) = sort(plan, &folder, &bytes_of(words), 128).unwrap();
    let mut wanted = words.to_vec();
    wanted.sort_unstable();
    assert!(sorted == bytes_of(&wanted), "{} words", words.len());
}

/// A block holds 512 words, a buffer 8192.
const SIZES: [usize; 14] = [
    0, 1, 2, 511, 512, 513, 8191, 8192, 8193, 16_384, 20_000, 32_768, 32_769, 100_003,
];

#[test]
fn every_boundary() {
    for n in SIZES {
        check_u64(&noise(n, 1), |_| {});
    }
}

#[test]
fn every_boundary_packed_and_plain() {
    for n in SIZES {
        let small: Vec<u64> = noise(n, 2).iter().map(|word| word >> 40).collect();
        for pack in [Pack::Always, Pack::Never] {
            check_u64(&small, |plan| plan.pack = pack);
        }
    }
}

#[test]
fn every_way_to_the_disk() {
    let words = noise(50_000, 3);
    for direct in [Direct::Auto, Direct::Never] {
        for method in [IoMethod::Auto, IoMethod::Threads] {
            check_u64(&words, |plan| {
                plan.direct = direct;
                plan.ring.method = method;
            });
        }
    }
}

#[test]
fn every_shape_of_input() {
    let n = 60_000_u64;
    let shapes: [Vec<u64>; 7] = [
        vec![7; n as usize],
        (0..n).map(|i| i % 2).collect(),
        (0..n).collect(),
        (0..n).rev().collect(),
        noise(n as usize, 4)
            .iter()
            .map(|word| word.leading_zeros() as u64)
            .collect(),
        noise(n as usize, 5)
            .iter()
            .map(|word| if word % 2 == 0 { 0 } else { u64::MAX })
            .collect(),
        (0..n).map(|i| i % 8192).collect(),
    ];
    for words in &shapes {
        check_u64(words, |_| {});
        check_u64(words, |plan| plan.pack = Pack::Always);
    }
}

#[test]
fn any_number_of_threads_and_buffers() {
    let words = noise(70_000, 6);
    for (threads, buffers, fan_in) in [(1, 3, 2), (1, 9, 8), (2, 3, 3), (3, 4, 8), (4, 12, 5)] {
        check_u64(&words, |plan| {
            plan.threads = threads;
            plan.buffers = buffers;
            plan.fan_in = fan_in;
        });
    }
}

/// Types, their order as numbers, and whether the output is compared as bits.
#[test]
fn every_type_both_ways() {
    let words = noise(20_000, 7);
    let total = |value: f64| {
        if value.is_nan() {
            (1, 0)
        } else {
            (0, order_of(value))
        }
    };
    for (kind, swap) in [("<", false), (">", true)] {
        for down in [false, true] {
            let sign = if down { -1 } else { 1 };
            let native = |record: &[u8]| {
                let mut bytes = record.to_vec();
                if swap {
                    bytes.reverse();
                }
                bytes
            };
            check_type(8, &format!("{kind}i8"), down, &words, |r| {
                sign * i128::from(i64::from_le_bytes(native(r).try_into().unwrap()))
            });
            check_type(8, &format!("{kind}u8"), down, &words, |r| {
                sign * i128::from(u64::from_le_bytes(native(r).try_into().unwrap()))
            });
            check_type(4, &format!("{kind}i4"), down, &words, |r| {
                sign * i128::from(i32::from_le_bytes(native(r).try_into().unwrap()))
            });
            check_type(4, &format!("{kind}u4"), down, &words, |r| {
                sign * i128::from(u32::from_le_bytes(native(r).try_into().unwrap()))
            });
            check_type(8, &format!("{kind}f8"), down, &words, |r| {
                let (nan, order) = total(f64::from_le_bytes(native(r).try_into().unwrap()));
                (nan, sign * order)
            });
            check_type(4, &format!("{kind}f4"), down, &words, |r| {
                let (nan, order) = total(f32::from_le_bytes(native(r).try_into().unwrap()).into());
                (nan, sign * order)
            });
            check_type(2, &format!("{kind}i2"), down, &words, |r| {
                sign * i128::from(i16::from_le_bytes(native(r).try_into().unwrap()))
            });
            check_type(1, "|u1", down, &words, |r| sign * i128::from(r[0]));
        }
    }
}

fn order_of(value: f64) -> i128 {
    let bits = value.to_bits() as i64;
    i128::from(if bits < 0 { i64::MIN - bits } else { bits }) - i128::from(bits < 0)
}

fn check_type<K: Ord + std::fmt::Debug>(
    width: usize,
    kind: &str,
    down: bool,
    words: &[u64],
    key: impl Fn(&[u8]) -> K,
) {
    let mut bytes = bytes_of(words);
    bytes.truncate(bytes.len() / width * width);
    let specials = [
        f64::NAN,
        -f64::NAN,
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let specials: Vec<u8> = specials
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    bytes.extend(&specials);
    let folder = Folder::new();
    let mut plan = plan(form(width, &[(0, kind, down)]), &folder);
    plan.buffer_bytes = if width < 4 {
        512 << 10
    } else {
        plan.buffer_bytes
    };
    let (sorted, _job) = sort(plan, &folder, &bytes, 0).unwrap();
    let keys: Vec<K> = sorted.chunks_exact(width).map(&key).collect();
    assert!(keys.is_sorted(), "{kind} down: {down}");
    let multiset = |bytes: &[u8]| {
        let mut records: Vec<Vec<u8>> = bytes.chunks_exact(width).map(<[u8]>::to_vec).collect();
        records.sort_unstable();
        records
    };
    assert!(
        multiset(&sorted) == multiset(&bytes),
        "{kind}: records were lost or changed"
    );
}
