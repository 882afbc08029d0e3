//! Fixed-size records with keys of every kind, against a stable plain sort.

use std::cmp::Reverse;

use crate::common::*;
use tartan_sort::engine::JobPlan;

fn random_bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut bytes = bytes_of(&noise(n.div_ceil(8), seed));
    bytes.truncate(n);
    bytes
}

fn check<K: Ord>(
    width: usize,
    fields: &[(usize, &str, bool)],
    bytes: &[u8],
    change: impl Fn(&mut JobPlan),
    key: impl Fn(&[u8]) -> K,
) {
    let folder = Folder::new();
    let mut plan = plan(form(width, fields), &folder);
    change(&mut plan);
    let (sorted, job) = sort(plan, &folder, bytes, 100).unwrap();
    assert!(
        sorted == oracle(bytes, width, key),
        "{fields:?} of {width} bytes, {} records",
        bytes.len() / width
    );
    job.close(false);
    assert!(folder.runs().is_empty(), "runs are left behind");
}

#[test]
fn ten_bytes_of_a_hundred() {
    // 40 records a block, 606 a buffer.
    for n in [0, 1, 39, 40, 41, 605, 606, 607, 1212, 1213, 20_000] {
        let bytes = random_bytes(n * 100, n as u64);
        check(
            100,
            &[(0, "S10", false)],
            &bytes,
            |_| {},
            |r| r[..10].to_vec(),
        );
    }
}

#[test]
fn equal_keys_keep_their_order() {
    let bytes = random_bytes(16 * 30_000, 1);
    let two = |r: &[u8]| r[5] & 1;
    let mut tied = bytes.clone();
    tied.chunks_exact_mut(16).for_each(|r| r[5] &= 1);
    check(16, &[(5, "|u1", false)], &tied, |_| {}, two);
    check(16, &[(5, "|b1", true)], &tied, |_| {}, |r| Reverse(two(r)));
    tied.chunks_exact_mut(16).for_each(|r| r[5] = 7);
    check(16, &[(5, "|u1", true)], &tied, |_| {}, |_| 0);
}

#[test]
fn several_fields() {
    let mut bytes = random_bytes(24 * 12_000, 2);
    bytes.chunks_exact_mut(24).for_each(|r| {
        r[2] %= 3;
        r[12] %= 5;
    });
    let fields = [(2, "|u1", true), (12, "|i1", false), (16, ">u8", true)];
    check(
        24,
        &fields,
        &bytes,
        |_| {},
        |r| {
            let last = u64::from_be_bytes(r[16..24].try_into().unwrap());
            (Reverse(r[2]), r[12] as i8, Reverse(last))
        },
    );
}

#[test]
fn a_key_longer_than_a_word_with_a_common_beginning() {
    let mut bytes = random_bytes(40 * 8000, 3);
    bytes.chunks_exact_mut(40).for_each(|r| r[4..28].fill(b'a'));
    check(
        40,
        &[(4, "S30", false)],
        &bytes,
        |_| {},
        |r| r[4..34].to_vec(),
    );
}

#[test]
fn narrow_and_wide_records() {
    let wide = |plan: &mut JobPlan| {
        plan.buffer_bytes = 1 << 20;
        plan.block_bytes = 64 << 10;
        plan.ring.bytes = 128 << 10;
    };
    let bytes = random_bytes(3 * 50_000, 4);
    let roomy = |plan: &mut JobPlan| plan.buffer_bytes = 256 << 10;
    check(3, &[(1, "<u2", false)], &bytes, roomy, |r| {
        u16::from_le_bytes([r[1], r[2]])
    });
    let bytes = random_bytes(5000 * 700, 5);
    check(5000, &[(4000, "<u8", false)], &bytes, wide, |r| {
        u64_at(r, 4000)
    });
    let bytes = random_bytes(65_536 * 60, 6);
    check(65_536, &[(65_528, "<u8", true)], &bytes, wide, |r| {
        Reverse(u64_at(r, 65_528))
    });
}

#[test]
fn the_output_does_not_depend_on_the_numbers() {
    let mut bytes = random_bytes(20 * 20_000, 7);
    bytes.chunks_exact_mut(20).for_each(|r| r[8] %= 4);
    for (threads, buffers, fan_in) in [(1, 3, 2), (2, 4, 3), (3, 8, 4)] {
        let change = |plan: &mut JobPlan| {
            (plan.threads, plan.buffers, plan.fan_in) = (threads, buffers, fan_in);
        };
        check(20, &[(8, "|u1", false)], &bytes, change, |r| r[8]);
    }
}
