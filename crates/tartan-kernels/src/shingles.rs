//! Shingles of a text: every n words or letters that follow each other, as hashes.
//!
//! Broder: On the resemblance and containment of documents (1997).

use crate::sketch::hash_text;

/// Hash the shingles of a text, in ascending order, each once.
///
/// A word is what stands between blanks, however many. A text of fewer than `n` words or letters is one shingle; an
/// empty one has none.
pub fn hash_shingles(text: &str, n: usize, words: bool) -> Vec<u64> {
    if !words {
        let letters = text.char_indices();
        return hash_windows(
            text,
            letters
                .map(|(at, letter)| (at, at + letter.len_utf8()))
                .collect(),
            n,
        );
    }
    let mut joined = String::with_capacity(text.len());
    let mut bounds = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !joined.is_empty() {
            joined.push(' ');
        }
        bounds.push((joined.len(), joined.len() + word.len()));
        joined.push_str(word);
    }
    hash_windows(&joined, bounds, n)
}

/// Hash the text from the begin of a part to the end of the n-th from there, for each part.
fn hash_windows(text: &str, bounds: Vec<(usize, usize)>, n: usize) -> Vec<u64> {
    if bounds.is_empty() {
        return Vec::new();
    }
    let n = n.clamp(1, bounds.len());
    let shingles = bounds
        .windows(n)
        .map(|shingle| &text[shingle[0].0..shingle[n - 1].1]);
    let mut hashes: Vec<u64> = shingles.map(|text| hash_text(text.as_bytes())).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(shingles: &[&str]) -> Vec<u64> {
        let mut hashes: Vec<u64> = shingles
            .iter()
            .map(|text| hash_text(text.as_bytes()))
            .collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn shingles_are_words_or_letters_that_follow_each_other() {
        assert_eq!(
            hash_shingles("a  bc d a bc ", 2, true),
            expected(&["a bc", "bc d", "d a"])
        );
        assert_eq!(hash_shingles("a bc", 3, true), expected(&["a bc"]));
        assert_eq!(
            hash_shingles("\u{e4}bab", 2, false),
            expected(&["\u{e4}b", "ba", "ab"])
        );
        assert_eq!(hash_shingles("", 2, true), []);
        assert_eq!(hash_shingles(" ", 2, true), []);
        assert_eq!(hash_shingles("a", 0, false), expected(&["a"]));
    }
}
