//! Proteins that come back, and files that are refused.

use super::hostile::{across_pieces, any_text, codes, gzip};
use super::*;
use proptest::prelude::*;

fn letters(data: &[u8], unknown: Unknown) -> Result<String, FastaError> {
    Ok(codes(data, unknown, FileLimits::default())?
        .iter()
        .map(|&code| ALPHABET.get(code as usize).map_or('|', |&l| l as char))
        .collect())
}

#[test]
fn reads_records_lines_and_cases() {
    let expected = "||ACDEF||GHIK|";
    assert_eq!(
        letters(b">a\nACD\nEF\n>b\n>c\nghik\n", Unknown::Skip).unwrap(),
        expected
    );
    for ends in ["\r\n", "\r", "\n"] {
        let text = format!(">a b{ends}ACD{ends}{ends}E F{ends}>c{ends}ghik");
        assert_eq!(
            letters(text.as_bytes(), Unknown::Skip).unwrap(),
            "||ACDEF|GHIK|"
        );
    }
}

#[test]
fn breaks_at_stops_and_unknown_letters() {
    assert_eq!(
        letters(b">a\nAC*DX.E*\n", Unknown::Skip).unwrap(),
        "||AC|D||E||"
    );
    assert_eq!(
        letters(b">a\nBUXZJOxA?\n", Unknown::Map).unwrap(),
        "||DCGEAAGA||"
    );
}

#[test]
fn refuses_what_is_no_fasta() {
    assert_eq!(letters(b"", Unknown::Skip), Err(FastaError::Empty));
    assert_eq!(letters(b" \r\n\n", Unknown::Skip), Err(FastaError::Empty));
    assert!(matches!(
        letters(b"ACDE\n>a\nAC", Unknown::Skip),
        Err(FastaError::NoHeader { .. })
    ));
    let bad = letters(b">a\nAC\x00D", Unknown::Skip);
    let (byte, offset, line) = (0, 5, 2);
    assert_eq!(bad, Err(FastaError::BadByte { byte, offset, line }));
    let gap = letters(b"\n>a-1\r\nAC\n\nA-D", Unknown::Map).unwrap_err();
    assert!(gap
        .to_string()
        .starts_with("line 5 holds '-', a gap of an alignment"));
    let digit = letters(b">a 1\n 10 AC", Unknown::Skip).unwrap_err();
    assert!(digit.to_string().starts_with("line 2 holds '1', a digit"));
    let comment = letters(b">a;b\nAC\n; a comment\nDE", Unknown::Map).unwrap_err();
    assert!(comment
        .to_string()
        .starts_with("line 3 holds ';', a comment"));
    let on_top = letters(b"; a comment\n>a\nAC", Unknown::Skip).unwrap_err();
    assert!(on_top
        .to_string()
        .starts_with("the file begins with ';', a comment"));
    for (text, program) in [(&b"BZh91AY&SY"[..], "bzip2"), (b"PK\x03\x04", "zip")] {
        let said = letters(text, Unknown::Skip).unwrap_err().to_string();
        assert!(said.starts_with(&format!("the file is compressed by {program}")));
    }
    assert_eq!(
        letters("\u{feff}>a\nAC\n".as_bytes(), Unknown::Skip).unwrap(),
        "||AC|"
    );
}

#[test]
fn reads_gzip_of_several_members_and_padding() {
    let mut data = gzip(b">a\nACD");
    data.extend(gzip(b"EF\n>b\nGH"));
    data.extend(gzip(b""));
    assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACDEF|GH|");
    data.extend([0; 512]);
    assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACDEF|GH|");
}

#[test]
fn names_garbage_truncation_and_damage() {
    let whole = gzip(&b">a\nACDEFGHIKLMNPQ\n".repeat(50));
    let mut garbage = whole.clone();
    garbage.extend(b"junk");
    assert_eq!(
        letters(&garbage, Unknown::Skip),
        Err(FastaError::File(InflateError::Garbage {
            offset: whole.len(),
            bytes: 4
        }))
    );
    for length in [2, 9, 12, whole.len() - 9, whole.len() - 1] {
        let result = letters(&whole[..length], Unknown::Skip);
        assert_eq!(
            result,
            Err(FastaError::File(InflateError::Truncated {
                compressed: length
            })),
            "{length}"
        );
    }
    let mut damaged = whole.clone();
    let at = whole.len() - 6;
    damaged[at] ^= 1;
    assert!(matches!(
        letters(&damaged, Unknown::Skip),
        Err(FastaError::File(InflateError::BadGzip { .. }))
    ));
    assert!(matches!(
        letters(b"\x1f\x8b\x07\0\0\0\0\0\0\0\0", Unknown::Skip),
        Err(FastaError::File(InflateError::BadGzip { .. }))
    ));
}

#[test]
fn reads_optional_header_fields() {
    let plain = gzip(b">a\nACD\n");
    let mut data = plain[..10].to_vec();
    data[3] = 4 | 8 | 16 | 2;
    data.extend(b"\x03\0abcname\0comment\0");
    let checksum = crc32fast::hash(&data).to_le_bytes();
    data.extend(&checksum[..2]);
    data.extend(&plain[10..]);
    assert_eq!(letters(&data, Unknown::Skip).unwrap(), "||ACD|");
    assert!(matches!(
        letters(&data[..16], Unknown::Skip),
        Err(FastaError::File(InflateError::Truncated { .. }))
    ));
}

#[test]
fn stops_at_the_limits() {
    let data = gzip(&[b">a\n".to_vec(), vec![b'A'; 32 << 20]].concat());
    let length = |data: &[u8], max_bytes, max_ratio| {
        let limits = FileLimits {
            max_bytes,
            max_ratio,
        };
        codes(data, Unknown::Skip, limits).map(|codes| codes.len())
    };
    assert!(matches!(
        length(&data, 1 << 20, 10_000),
        Err(FastaError::File(InflateError::TooLarge { .. }))
    ));
    assert!(matches!(
        length(&data, 1 << 30, 100),
        Err(FastaError::File(InflateError::TooDense { .. }))
    ));
    assert_eq!(length(&data, 1 << 30, 10_000), Ok((32 << 20) + 3));
    assert_eq!(
        length(b">a\nAC", 3, 1),
        Err(FastaError::File(InflateError::TooLarge { max_bytes: 3 }))
    );
}

#[test]
fn pieces_may_end_anywhere() {
    let text = b"\xef\xbb\xbf \r\n>a name>\r\nAC>D\n\n>\rEF *\n>c\n";
    let whole = letters(text, Unknown::Skip).unwrap();
    assert_eq!(whole, "||AC|D|EF||| ".trim());
    for step in 3..text.len() {
        let mut encoder = Encoder::new(Unknown::Skip);
        let mut found = Vec::new();
        for piece in text.chunks(step) {
            found.extend_from_slice(encoder.piece(piece).unwrap());
        }
        encoder.finish().unwrap();
        found.push(BREAK);
        assert_eq!(
            found,
            codes(text, Unknown::Skip, FileLimits::default()).unwrap(),
            "{step}"
        );
    }
}

#[test]
fn a_sink_may_refuse() {
    let refused = read(b">a\nACD", Unknown::Skip, FileLimits::default(), |_| {
        Err(Exceeded { allowed_bytes: 7 })
    });
    assert_eq!(
        refused,
        Err(FastaError::Memory(Exceeded { allowed_bytes: 7 }))
    );
}
/// Bytes that are mostly of FASTA.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        12 => prop::sample::select(b"\n\n\r>>ACDEFGHIKLMNPQRSTVWYacgtBXZ*- \t".to_vec()),
        1 => any::<u8>(),
    ];
    let start = prop::sample::select(vec![
        &b">a\n"[..],
        b"\xef\xbb\xbf>",
        b" \n>",
        b"",
        b"\x1f\x8b\x08\0",
    ]);
    (start, prop::collection::vec(byte, 0..150)).prop_map(|(start, rest)| [start, &rest].concat())
}

proptest! {
    #[test]
    fn hostile_text_is_read_as_the_plain_reader_does(text in text()) {
        any_text(&text);
        across_pieces(&text);
    }

    #[test]
    fn hostile_gzip_never_panics(text in text(), edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
        let mut data = gzip(&text);
        for (place, byte) in edits {
            let length = data.len();
            data[place % length] = byte;
        }
        any_text(&data);
    }
}
