//! What must hold of any bytes. Property tests and `cargo fuzz` call the same functions.

use std::io::Write;

use super::{read, FastaError, FileLimits, Unknown, ALPHABET, BREAK};

/// Reading goes by pieces of this size.
/// By contract: as STEP_BYTES of fasta.
const PIECE_BYTES: usize = 1 << 18;

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub fn codes(data: &[u8], unknown: Unknown, limits: FileLimits) -> Result<Vec<u8>, FastaError> {
    let mut codes = Vec::new();
    read(data, unknown, limits, |piece| {
        codes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(codes)
}

/// The same by a reader that is slow and plain; of text that is not compressed.
fn plain_codes(data: &[u8], unknown: Unknown) -> Result<Vec<u8>, FastaError> {
    let text = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let first = text.iter().position(|byte| !byte.is_ascii_whitespace());
    let first = first.ok_or(FastaError::Empty)?;
    if text[first] != b'>' {
        let shown = &text[first..text.len().min(first + 20)];
        let found = String::from_utf8_lossy(shown).into_owned();
        return Err(FastaError::NoHeader {
            found,
            compressed: None,
        });
    }
    let (mut codes, mut offset) = (vec![BREAK], first);
    for line in text[first..].split(|byte| b"\n\r".contains(byte)) {
        if line.first() == Some(&b'>') {
            codes.push(BREAK);
        } else {
            for (place, &byte) in line.iter().enumerate() {
                match plain_code(byte, unknown) {
                    Some(code) => codes.push(code),
                    None if b" \t".contains(&byte) => {}
                    None => {
                        let offset = offset + place;
                        let before = &text[..offset];
                        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                        return Err(FastaError::BadByte { byte, offset, line });
                    }
                }
            }
        }
        offset += line.len() + 1;
    }
    codes.push(BREAK);
    Ok(codes)
}

fn plain_code(byte: u8, unknown: Unknown) -> Option<u8> {
    let of = |letter: u8| ALPHABET.iter().position(|&known| known == letter);
    let letter = byte.to_ascii_uppercase();
    let known = match (unknown, letter) {
        (Unknown::Map, b'B') => of(b'D'),
        (Unknown::Map, b'U') => of(b'C'),
        (Unknown::Map, b'X') => of(b'G'),
        (Unknown::Map, b'Z') => of(b'E'),
        (Unknown::Map, b'J' | b'O') => of(b'A'),
        _ => of(letter),
    };
    match (known, byte) {
        (Some(code), _) => Some(code as u8),
        (None, b'-' | b';' | b'0'..=b'9') => None,
        (None, 0x21..0x7f) => Some(BREAK),
        _ => None,
    }
}

/// Any bytes: as the plain reader has it, compressed or not; or codes with breaks around them; or an error.
pub fn any_text(data: &[u8]) {
    for unknown in [Unknown::Skip, Unknown::Map] {
        let found = codes(data, unknown, FileLimits::default());
        if data.starts_with(b"\x1f\x8b") {
            let Ok(found) = found else { continue };
            assert!(found.iter().all(|&code| code <= BREAK));
            assert_eq!((found.first(), found.last()), (Some(&BREAK), Some(&BREAK)));
            continue;
        }
        assert_eq!(found, plain_codes(data, unknown));
        let (left, right) = data.split_at(data.len() / 2);
        let packed = [gzip(left), gzip(right)].concat();
        assert_eq!(codes(&packed, unknown, FileLimits::default()), found);
    }
}

/// The same where a piece ends in the middle of the bytes.
pub fn across_pieces(data: &[u8]) {
    let mut text = b">a\n".to_vec();
    text.resize(PIECE_BYTES - 1 - data.len() / 2, b'A');
    text.push(b'\n');
    text.extend(data);
    let found = codes(&text, Unknown::Skip, FileLimits::default());
    assert!(found == plain_codes(&text, Unknown::Skip));
}
