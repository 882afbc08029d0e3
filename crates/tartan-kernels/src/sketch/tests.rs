//! Sketches against the definition, and against hashes that sourmash gives.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::inflate::InflateError;

fn plain(data: &[u8], k: usize, max_hash: u64) -> Result<Sketch, SketchError> {
    sketch(data, k, max_hash, FileLimits::default(), u64::MAX)
}

/// The definition, string by string, of records of letters.
fn oracle(records: &[&[u8]], k: usize, max_hash: u64) -> Vec<u64> {
    let mut hashes = Vec::new();
    for record in records {
        let upper = record.to_ascii_uppercase();
        for window in upper.windows(k) {
            if window.iter().any(|letter| !b"ACGT".contains(letter)) {
                continue;
            }
            let complement = |letter: &u8| match letter {
                b'A' => b'T',
                b'C' => b'G',
                b'G' => b'C',
                _ => b'A',
            };
            let other: Vec<u8> = window.iter().rev().map(complement).collect();
            hashes.push(hash_text(window.min(&other)));
        }
    }
    hashes.retain(|&hash| hash <= max_hash);
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

#[test]
fn hashes_are_those_of_sourmash() {
    // sourmash.minhash.hash_murmur(text) of sourmash 4.9.4.
    for (text, hash) in [
        ("", 0xf02a_a77d_fa1b_8523),
        ("A", 0xe874_824f_39c2_6128),
        ("ACTG", 0x5de7_3732_98c6_7ffc),
        ("ACTGACTGACTGACTGACTGA", 0xb140_0549_3a30_18c0),
        (
            "the quick brown fox jumps over the lazy dog",
            0x8750_097a_a2c7_5df8,
        ),
    ] {
        assert_eq!(hash_text(text.as_bytes()), hash, "{text}");
    }
}

fn letters() -> impl Strategy<Value = Vec<u8>> {
    let letter = prop_oneof![
        60 => prop::sample::select(&b"ACGT"[..]),
        10 => prop::sample::select(&b"acgt"[..]),
        1 => prop::sample::select(&b"NnRYx-*@[`{\x21"[..]),
    ];
    prop::collection::vec(letter, 0..400)
}

/// Records in lines of some width, as FASTA.
fn fasta(records: &[Vec<u8>], width: usize, end: &str) -> Vec<u8> {
    let mut text = Vec::new();
    for record in records {
        text.extend_from_slice(b">name > of @ it");
        text.extend_from_slice(end.as_bytes());
        for line in record.chunks(width) {
            text.extend_from_slice(line);
            text.extend_from_slice(end.as_bytes());
        }
    }
    text
}

proptest! {
    #[test]
    fn equals_the_definition(
        records in prop::collection::vec(letters(), 1..5),
        k in prop_oneof![7..=12usize, Just(16), Just(21), Just(31), Just(32), Just(33), 47..=64usize],
        width in 1..90usize,
        end in prop::sample::select(&["\n", "\r\n", "\r"][..]),
    ) {
        let text = fasta(&records, width, end);
        let views: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        for max_hash in [u64::MAX, u64::MAX / 7] {
            match plain(&text, k, max_hash) {
                Ok(found) => {
                    prop_assert_eq!(&found.hashes, &oracle(&views, k, max_hash));
                    prop_assert_eq!(found.lengths, views.iter().map(|one| one.len() as u64).collect::<Vec<_>>());
                }
                Err(error) => {
                    let protein = matches!(error, SketchError::Protein { .. });
                    prop_assert!(protein, "{}", error);
                }
            }
        }
    }

    #[test]
    fn no_bytes_end_the_process(data in prop::collection::vec(any::<u8>(), 0..300), k in 7..60usize) {
        for start in ["", ">", "@", ">a\n", "@a\nACGTACGTACGTACGT\n+\n"] {
            let _ = plain(&[start.as_bytes(), &data].concat(), k, u64::MAX);
        }
    }
}

/// Letters of a small generator.
fn random(n: usize, mut state: u64) -> Vec<u8> {
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"ACGT"[(state >> 60) as usize % 4]
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn long_genomes_in_any_form_have_one_sketch() {
    let genome = random(700_000, 5);
    for k in [21, 31, 51, 80] {
        let expected = oracle(&[&genome], k, u64::MAX / 100);
        assert!(expected.len() > 6000);
        for width in [61, 700_000] {
            let text = fasta(std::slice::from_ref(&genome), width, "\n");
            assert_eq!(plain(&text, k, u64::MAX / 100).unwrap().hashes, expected);
        }
        let turned: Vec<u8> = genome
            .iter()
            .rev()
            .map(|letter| b"TGCA"[b"ACGT".iter().position(|one| one == letter).unwrap()])
            .collect();
        let text = fasta(&[turned.to_ascii_lowercase()], 80, "\r\n");
        let found = plain(&text, k, u64::MAX / 100).unwrap();
        assert_eq!(found.hashes, expected);
        assert_eq!((found.n_letters, found.n_known), (700_000, 700_000));
        let gc = genome
            .iter()
            .filter(|letter| b"CG".contains(letter))
            .count();
        assert_eq!(found.n_gc, gc as u64);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&text).unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(plain(&packed, k, u64::MAX / 100).unwrap(), found);
        let cut = plain(&packed[..packed.len() / 2], k, u64::MAX / 100);
        assert!(matches!(
            cut,
            Err(SketchError::File(InflateError::Truncated { .. }))
        ));
    }
}

#[test]
fn repeats_are_kept_once_in_bounded_memory() {
    let mut text = b">a\n".to_vec();
    text.extend(random(3000, 2).repeat(900));
    let found = sketch(&text, 31, u64::MAX, FileLimits::default(), 1 << 16).unwrap();
    assert_eq!(found.hashes.len(), 3000);
    let text = fasta(&[random(3_000_000, 3)], 80, "\n");
    let refused = sketch(&text, 31, u64::MAX, FileLimits::default(), 1 << 24);
    assert_eq!(
        refused,
        Err(SketchError::Memory {
            allowed_bytes: 1 << 24
        })
    );
}

#[test]
fn reads_fastq() {
    let reads = [random(150, 1), random(140, 2), Vec::new(), random(3, 4)];
    let views: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
    let expected = oracle(&views, 21, u64::MAX);
    for (end, width) in [("\n", 200), ("\r\n", 200), ("\n", 50)] {
        let mut text = String::new();
        for (read, quality) in reads.iter().zip(["@", ">", "", "+"]) {
            let lines = |letters: &[u8]| {
                let whole: Vec<_> = letters.chunks(width).map(String::from_utf8_lossy).collect();
                whole.join(end)
            };
            let qualities = quality.repeat(read.len());
            text += &[
                "@read 1",
                &lines(read),
                "+read 1",
                &lines(qualities.as_bytes()),
                "",
            ]
            .join(end);
        }
        let found = plain(text.as_bytes(), 21, u64::MAX).unwrap();
        assert_eq!(found.hashes, expected, "{text}");
        assert_eq!((found.n_records, found.lengths.len()), (4, 0));
    }
    for bad in [
        "@a\nACGT\n+\nIII\n",
        "@a\nACGT\n+\nIIIII\n",
        "@a\nACGT\n",
        "@a\nACGT\n+\nIII\n@b\nA\n+\nI\n",
    ] {
        let found = plain(bad.as_bytes(), 7, u64::MAX);
        assert!(
            matches!(found, Err(SketchError::BadRead { .. })),
            "{bad} {found:?}"
        );
    }
}

#[test]
fn says_why_a_file_has_no_sketch() {
    let reason = |data: &[u8]| plain(data, 21, u64::MAX).unwrap_err().to_string();
    assert!(reason(b"\xef\xbb\xbf \n\n").starts_with("the file is empty"));
    assert!(reason(b"ACGT").contains("but with \"ACGT\""));
    assert!(reason(b"BZh91AY").contains("compressed by bzip2"));
    assert!(reason(b">a\nAC\x00T").starts_with("line 2 holds the byte 0x00"));
    assert!(reason(b"\n>a\r\nACGT\r\nAC\xc3T").starts_with("line 4 holds the byte 0xc3"));
    let protein = reason(b">a\nMKVLAAGIVGLPNVGKSTLFNALTKAGIESANYPFCTIEPNVGVVPMPDPRL\n");
    assert!(protein.contains("this is protein"), "{protein}");
    let unknown = plain(
        b">a\nNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN\n>b\n\n>c\nACGT\n",
        21,
        u64::MAX,
    )
    .unwrap();
    assert_eq!(
        (unknown.hashes.len(), unknown.lengths, unknown.n_known),
        (0, vec![37, 0, 4], 4)
    );
    let rna = plain(b">a\nacguacguaugcuagcaugucguaguc\n", 21, u64::MAX).unwrap();
    assert_eq!(
        rna.hashes,
        plain(b">a\nACGTACGTATGCTAGCATGTCGTAGTC\n", 21, u64::MAX)
            .unwrap()
            .hashes
    );
}
