//! Hashes of the canonical strings of a run of letters.
//!
//! A string is read as words of eight letters from the run or, where that is less, from its reverse complement. The
//! plain loop takes one string at a time; with AVX-512 eight strings that follow each other lie in one register of 64
//! letters, and permutations of its bytes give their words. With AVX2 a word of four strings that follow each other is a
//! permutation of sixteen letters, and a product of 64 bits is three of 32.

/// Seed of sourmash and mash.
/// By contract: sketches are exchanged with them.
const SEED: u64 = 42;
/// Constants of MurmurHash3 (A. Appleby, public domain).
/// By format of the hash, as the five below.
const C1: u64 = 0x87c3_7b91_1142_53d5;
/// By format: as C1.
const C2: u64 = 0x4cf5_ad43_2745_937f;
/// By format: as C1.
const MIX1: u64 = 0xff51_afd7_ed55_8ccd;
/// By format: as C1.
const MIX2: u64 = 0xc4ce_b9fe_1a85_ec53;
/// By format: as C1.
const ADD1: u64 = 0x52dc_e729;
/// By format: as C1.
const ADD2: u64 = 0x3849_5ab5;

/// Zeros behind a run and its reverse complement, so that words and registers may be read beyond their ends.
/// By format: a register is the longest.
const PADDING: usize = 64;

/// Append the hashes up to `max_hash` of all strings of k letters of a run of A, C, G, T, in the order of the run.
///
/// `reverse` is memory that is kept between runs.
pub fn hash_run(
    run: &mut Vec<u8>,
    reverse: &mut Vec<u8>,
    k: usize,
    max_hash: u64,
    out: &mut Vec<u64>,
) {
    hash_by(Vectors::widest(k), run, reverse, k, max_hash, out);
}

/// How strings are hashed; both ways give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vectors {
    None,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Vectors {
    fn widest(k: usize) -> Self {
        Self::all(k)[0]
    }

    /// All that this machine has for strings of k letters, the widest first.
    fn all(k: usize) -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if k <= x86::LARGEST_K && x86::is_supported() {
                found.push(Self::Avx512);
            }
            if k <= avx2::LARGEST_K && is_x86_feature_detected!("avx2") {
                found.push(Self::Avx2);
            }
        }
        let _ = k;
        found.push(Self::None);
        found
    }
}

fn hash_by(
    vectors: Vectors,
    run: &mut Vec<u8>,
    reverse: &mut Vec<u8>,
    k: usize,
    max_hash: u64,
    out: &mut Vec<u64>,
) {
    let n_letters = run.len();
    if n_letters < k {
        return;
    }
    reverse.clear();
    reverse.extend(run.iter().rev().map(|&letter| complement(letter)));
    run.resize(n_letters + PADDING, 0);
    reverse.resize(n_letters + PADDING, 0);
    let strings = Strings {
        run,
        reverse,
        k,
        n: n_letters + 1 - k,
    };
    let done = match vectors {
        Vectors::None => 0,
        // SAFETY: `widest` found every feature that it is compiled for.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => unsafe { x86::hash_strings(&strings, max_hash, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => unsafe { avx2::hash_strings(&strings, max_hash, out) },
    };
    match k / 16 {
        0 => strings.hash::<0>(done, max_hash, out),
        1 => strings.hash::<1>(done, max_hash, out),
        2 => strings.hash::<2>(done, max_hash, out),
        3 => strings.hash::<3>(done, max_hash, out),
        _ => (done..strings.n)
            .map(|at| hash_text(strings.canonical(at)))
            .filter(|&hash| hash <= max_hash)
            .for_each(|hash| out.push(hash)),
    }
    run.truncate(n_letters);
}

/// The n strings of k letters of a run.
struct Strings<'a> {
    run: &'a [u8],
    reverse: &'a [u8],
    k: usize,
    n: usize,
}

impl Strings<'_> {
    /// The lesser of a string and its reverse complement, and what follows it.
    #[inline(always)]
    fn canonical_from(&self, at: usize) -> &[u8] {
        let (forward, backward) = (&self.run[at..], &self.reverse[self.n - 1 - at..]);
        let head = |letters: &[u8]| u64::from_be_bytes(letters[..8].try_into().unwrap_or([0; 8]));
        let (a, b) = (head(forward), head(backward));
        // Strings that begin as their reverse complements do are rare. Heads may reach beyond short strings.
        let less = if a == b || self.k < 8 {
            forward[..self.k] <= backward[..self.k]
        } else {
            a < b
        };
        if less {
            forward
        } else {
            backward
        }
    }

    fn canonical(&self, at: usize) -> &[u8] {
        &self.canonical_from(at)[..self.k]
    }

    /// Append the hashes of the strings from `first` on, which have so many whole blocks of 16 letters.
    fn hash<const BLOCKS: usize>(&self, first: usize, max_hash: u64, out: &mut Vec<u64>) {
        let tail = self.k % 16;
        let masks = [tail.min(8), tail.saturating_sub(8)].map(|length| match length {
            0 => 0,
            _ => u64::MAX >> (64 - 8 * length),
        });
        for at in first..self.n {
            let letters = self.canonical_from(at);
            let word = |number: usize| {
                u64::from_le_bytes(letters[8 * number..][..8].try_into().unwrap_or([0; 8]))
            };
            let mut state = (SEED, SEED);
            for block in 0..BLOCKS {
                state = add_block(state, word(2 * block), word(2 * block + 1));
            }
            let hash = end(
                state,
                word(2 * BLOCKS) & masks[0],
                word(2 * BLOCKS + 1) & masks[1],
                self.k,
            );
            if hash <= max_hash {
                out.push(hash);
            }
        }
    }
}

/// The complement of A, C, G or T.
#[inline(always)]
fn complement(letter: u8) -> u8 {
    // The second bit tells C and G from A and T; each is its complement but for these bits.
    letter
        ^ if letter & 2 == 0 {
            b'A' ^ b'T'
        } else {
            b'C' ^ b'G'
        }
}

/// The first half of MurmurHash3_x64_128.
pub fn hash_text(text: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    };
    let blocks = text.chunks_exact(16);
    let tail = blocks.remainder();
    let state = blocks.fold((SEED, SEED), |state, block| {
        add_block(state, word(&block[..8]), word(&block[8..]))
    });
    let (k1, k2) = tail.split_at(tail.len().min(8));
    end(state, word(k1), word(k2), text.len())
}

#[inline(always)]
fn add_block((mut h1, mut h2): (u64, u64), k1: u64, k2: u64) -> (u64, u64) {
    h1 ^= scramble(k1, C1, 31, C2);
    h1 = h1
        .rotate_left(27)
        .wrapping_add(h2)
        .wrapping_mul(5)
        .wrapping_add(ADD1);
    h2 ^= scramble(k2, C2, 33, C1);
    h2 = h2
        .rotate_left(31)
        .wrapping_add(h1)
        .wrapping_mul(5)
        .wrapping_add(ADD2);
    (h1, h2)
}

/// Add the words behind the last block, of which one without letters is 0 and changes nothing.
#[inline(always)]
fn end((mut h1, mut h2): (u64, u64), k1: u64, k2: u64, length: usize) -> u64 {
    h2 ^= scramble(k2, C2, 33, C1) ^ length as u64;
    h1 ^= scramble(k1, C1, 31, C2) ^ length as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

#[inline(always)]
fn scramble(word: u64, first: u64, turn: u32, second: u64) -> u64 {
    word.wrapping_mul(first)
        .rotate_left(turn)
        .wrapping_mul(second)
}

#[inline(always)]
fn finish(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(MIX1);
    h ^= h >> 33;
    h = h.wrapping_mul(MIX2);
    h ^ (h >> 33)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{hash_text, Strings, ADD1, ADD2, C1, C2, MIX1, MIX2, SEED};

    /// Eight strings one letter apart fit a register of 64 letters.
    /// By arithmetic: k + 7 letters.
    pub const LARGEST_K: usize = 57;
    /// Strings of a step.
    /// By format: words of 8 bytes in 64.
    const LANES: usize = 8;
    /// Words of eight letters of the longest string, rounded up to whole blocks.
    /// By arithmetic.
    const WORDS: usize = 8;

    pub fn is_supported() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vbmi")
    }

    /// Hash all strings but the last seven or fewer; return how many were.
    ///
    /// # Safety
    /// The machine has the features that are named.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    pub unsafe fn hash_strings(strings: &Strings<'_>, max_hash: u64, out: &mut Vec<u64>) -> usize {
        match strings.k / 16 {
            0 => hash_blocks::<0>(strings, max_hash, out),
            1 => hash_blocks::<1>(strings, max_hash, out),
            2 => hash_blocks::<2>(strings, max_hash, out),
            _ => hash_blocks::<3>(strings, max_hash, out),
        }
    }

    /// Places of the letters of eight words in a register: of lane j, those from `first(j)` on.
    fn places(first: impl Fn(usize) -> usize, backwards: bool) -> [u8; 64] {
        std::array::from_fn(|at| {
            let (lane, byte) = (at / 8, at % 8);
            (first(lane) + if backwards { 7 - byte } else { byte }) as u8 & 63
        })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are there, in any alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn all(value: u64) -> __m512i {
        _mm512_set1_epi64(value as i64)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn times(a: __m512i, value: u64) -> __m512i {
        _mm512_mullo_epi64(a, all(value))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn times5_plus(a: __m512i, value: u64) -> __m512i {
        _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(a, 2), a), all(value))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn first_word(word: __m512i) -> __m512i {
        times(_mm512_rol_epi64(times(word, C1), 31), C2)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn second_word(word: __m512i) -> __m512i {
        times(_mm512_rol_epi64(times(word, C2), 33), C1)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn finish(h: __m512i) -> __m512i {
        let h = times(_mm512_xor_si512(h, _mm512_srli_epi64(h, 33)), MIX1);
        let h = times(_mm512_xor_si512(h, _mm512_srli_epi64(h, 33)), MIX2);
        _mm512_xor_si512(h, _mm512_srli_epi64(h, 33))
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi")]
    fn hash_blocks<const BLOCKS: usize>(
        strings: &Strings<'_>,
        max_hash: u64,
        out: &mut Vec<u64>,
    ) -> usize {
        let &Strings { run, reverse, k, n } = strings;
        // Words of the strings that begin at letters 0 to 7 of the run, and at 7 to 0 of the reverse complement.
        let mut ahead = [_mm512_setzero_si512(); WORDS];
        let mut back = ahead;
        let mut masks = [0u64; WORDS];
        for word in 0..WORDS {
            ahead[word] = load(&places(|lane| lane + 8 * word, false));
            back[word] = load(&places(|lane| 7 - lane + 8 * word, false));
            let length = k.saturating_sub(8 * word).min(8);
            masks[word] = 0x0101_0101_0101_0101 * ((1u64 << length) - 1).min(0xff);
        }
        // The first eight letters as numbers that compare as the letters do.
        let head_ahead = load(&places(|lane| lane, true));
        let head_back = load(&places(|lane| 7 - lane, true));
        let head_mask =
            0x0101_0101_0101_0101 * u64::from(if k >= 8 { 0xffu8 } else { !(0xff >> k) });
        let limit = all(max_hash);
        let mut at = 0;
        while at + LANES <= n {
            // Of the reverse complement, from where the last string of the eight begins.
            let letters = load(run[at..at + 64].try_into().unwrap_or(&[0; 64]));
            let turned = load(
                reverse[n - LANES - at..][..64]
                    .try_into()
                    .unwrap_or(&[0; 64]),
            );
            let a = _mm512_maskz_permutexvar_epi8(head_mask, head_ahead, letters);
            let b = _mm512_maskz_permutexvar_epi8(head_mask, head_back, turned);
            if _mm512_cmpeq_epu64_mask(a, b) != 0 {
                // Strings that begin as their reverse complements do are rare: these eight go one by one.
                for place in at..at + LANES {
                    let hash = hash_text(strings.canonical(place));
                    if hash <= max_hash {
                        out.push(hash);
                    }
                }
                at += LANES;
                continue;
            }
            let turn = _mm512_cmplt_epu64_mask(b, a);
            let word = |number: usize| {
                let forward = _mm512_maskz_permutexvar_epi8(masks[number], ahead[number], letters);
                let backward = _mm512_maskz_permutexvar_epi8(masks[number], back[number], turned);
                _mm512_mask_blend_epi64(turn, forward, backward)
            };
            let (mut h1, mut h2) = (all(SEED), all(SEED));
            for block in 0..BLOCKS {
                h1 = _mm512_xor_si512(h1, first_word(word(2 * block)));
                h1 = times5_plus(_mm512_add_epi64(_mm512_rol_epi64(h1, 27), h2), ADD1);
                h2 = _mm512_xor_si512(h2, second_word(word(2 * block + 1)));
                h2 = times5_plus(_mm512_add_epi64(_mm512_rol_epi64(h2, 31), h1), ADD2);
            }
            h2 = _mm512_xor_si512(h2, second_word(word(2 * BLOCKS + 1)));
            h1 = _mm512_xor_si512(h1, first_word(word(2 * BLOCKS)));
            h1 = _mm512_xor_si512(h1, all(k as u64));
            h2 = _mm512_xor_si512(h2, all(k as u64));
            h1 = _mm512_add_epi64(h1, h2);
            h2 = _mm512_add_epi64(h2, h1);
            let hash = _mm512_add_epi64(finish(h1), finish(h2));
            let kept = _mm512_cmple_epu64_mask(hash, limit);
            if kept != 0 {
                let mut hashes = [0u64; LANES];
                // SAFETY: eight words of eight bytes are there.
                unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().cast(), hash) };
                let inside = (0..LANES).filter(|lane| kept >> lane & 1 == 1);
                out.extend(inside.map(|lane| hashes[lane]));
            }
            at += LANES;
        }
        at
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{hash_text, Strings, ADD1, ADD2, C1, C2, MIX1, MIX2, SEED};

    /// Three whole blocks of sixteen letters and a tail.
    /// By arithmetic.
    pub const LARGEST_K: usize = 63;
    /// Strings of a step.
    /// By format: words of 8 bytes in 32.
    const LANES: usize = 4;
    /// Words of eight letters of the longest string, rounded up to whole blocks.
    /// By arithmetic.
    const WORDS: usize = 8;

    /// Hash all strings but the last three or fewer; return how many were.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn hash_strings(strings: &Strings<'_>, max_hash: u64, out: &mut Vec<u64>) -> usize {
        match strings.k / 16 {
            0 => hash_blocks::<0>(strings, max_hash, out),
            1 => hash_blocks::<1>(strings, max_hash, out),
            2 => hash_blocks::<2>(strings, max_hash, out),
            _ => hash_blocks::<3>(strings, max_hash, out),
        }
    }

    /// Places of the letters of four words in sixteen: of lane j, those from `first(j)` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn places(first: impl Fn(usize) -> usize, backwards: bool) -> __m256i {
        let at: [u8; 32] = std::array::from_fn(|at| {
            let (lane, byte) = (at / 8, at % 8);
            (first(lane) + if backwards { 7 - byte } else { byte }) as u8
        });
        // SAFETY: 32 bytes are there, in any alignment.
        unsafe { _mm256_loadu_si256(at.as_ptr().cast()) }
    }

    /// Sixteen letters, in both halves of a register.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn both(letters: &[u8]) -> __m256i {
        let bytes: &[u8; 16] = letters[..16].try_into().unwrap_or(&[0; 16]);
        // SAFETY: 16 bytes are there, in any alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn all(value: u64) -> __m256i {
        _mm256_set1_epi64x(value as i64)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn times(a: __m256i, value: u64) -> __m256i {
        let (low, high) = (all(value & 0xffff_ffff), all(value >> 32));
        let crossed = _mm256_add_epi64(
            _mm256_mul_epu32(_mm256_srli_epi64(a, 32), low),
            _mm256_mul_epu32(a, high),
        );
        _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(crossed, 32))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate<const LEFT: i32, const RIGHT: i32>(a: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_slli_epi64(a, LEFT), _mm256_srli_epi64(a, RIGHT))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn times5_plus(a: __m256i, value: u64) -> __m256i {
        _mm256_add_epi64(_mm256_add_epi64(_mm256_slli_epi64(a, 2), a), all(value))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn first_word(word: __m256i) -> __m256i {
        times(rotate::<31, 33>(times(word, C1)), C2)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn second_word(word: __m256i) -> __m256i {
        times(rotate::<33, 31>(times(word, C2)), C1)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(h: __m256i) -> __m256i {
        let h = times(_mm256_xor_si256(h, _mm256_srli_epi64(h, 33)), MIX1);
        let h = times(_mm256_xor_si256(h, _mm256_srli_epi64(h, 33)), MIX2);
        _mm256_xor_si256(h, _mm256_srli_epi64(h, 33))
    }

    #[target_feature(enable = "avx2")]
    fn hash_blocks<const BLOCKS: usize>(
        strings: &Strings<'_>,
        max_hash: u64,
        out: &mut Vec<u64>,
    ) -> usize {
        let &Strings { run, reverse, k, n } = strings;
        // Words of the strings that begin at letters 0 to 3 of the run, and at 3 to 0 of the reverse complement.
        let (ahead, back) = (
            places(|lane| lane, false),
            places(|lane| LANES - 1 - lane, false),
        );
        // The first eight letters as numbers that compare as the letters do; of shorter strings, those that they have.
        let (head_ahead, head_back) = (
            places(|lane| lane, true),
            places(|lane| LANES - 1 - lane, true),
        );
        let head_mask = all(if k >= 8 {
            u64::MAX
        } else {
            !(u64::MAX >> (8 * k))
        });
        let mut masks = [_mm256_setzero_si256(); WORDS];
        for (word, mask) in masks.iter_mut().enumerate() {
            *mask = match k.saturating_sub(8 * word).min(8) {
                0 => *mask,
                length => all(u64::MAX >> (64 - 8 * length)),
            };
        }
        let sign = all(1 << 63);
        let limit = _mm256_xor_si256(all(max_hash), sign);
        let mut at = 0;
        while at + LANES <= n {
            // Of the reverse complement, from where the last string of the four begins.
            let (letters, turned) = (&run[at..], &reverse[n - LANES - at..]);
            let a = _mm256_and_si256(_mm256_shuffle_epi8(both(letters), head_ahead), head_mask);
            let b = _mm256_and_si256(_mm256_shuffle_epi8(both(turned), head_back), head_mask);
            if _mm256_movemask_epi8(_mm256_cmpeq_epi64(a, b)) != 0 {
                // Strings that begin as their reverse complements do are rare: these four go one by one.
                for place in at..at + LANES {
                    let hash = hash_text(strings.canonical(place));
                    if hash <= max_hash {
                        out.push(hash);
                    }
                }
                at += LANES;
                continue;
            }
            // Letters are below 128, so that signed numbers compare alike.
            let turn = _mm256_cmpgt_epi64(a, b);
            let word = |number: usize| {
                let forward = _mm256_shuffle_epi8(both(&letters[8 * number..]), ahead);
                let backward = _mm256_shuffle_epi8(both(&turned[8 * number..]), back);
                _mm256_and_si256(_mm256_blendv_epi8(forward, backward, turn), masks[number])
            };
            let (mut h1, mut h2) = (all(SEED), all(SEED));
            for block in 0..BLOCKS {
                h1 = _mm256_xor_si256(h1, first_word(word(2 * block)));
                h1 = times5_plus(_mm256_add_epi64(rotate::<27, 37>(h1), h2), ADD1);
                h2 = _mm256_xor_si256(h2, second_word(word(2 * block + 1)));
                h2 = times5_plus(_mm256_add_epi64(rotate::<31, 33>(h2), h1), ADD2);
            }
            h2 = _mm256_xor_si256(h2, second_word(word(2 * BLOCKS + 1)));
            h1 = _mm256_xor_si256(h1, first_word(word(2 * BLOCKS)));
            h1 = _mm256_xor_si256(h1, all(k as u64));
            h2 = _mm256_xor_si256(h2, all(k as u64));
            h1 = _mm256_add_epi64(h1, h2);
            h2 = _mm256_add_epi64(h2, h1);
            let hash = _mm256_add_epi64(finish(h1), finish(h2));
            let above = _mm256_cmpgt_epi64(_mm256_xor_si256(hash, sign), limit);
            let above = _mm256_movemask_pd(_mm256_castsi256_pd(above));
            if above != 0b1111 {
                let mut hashes = [0u64; LANES];
                // SAFETY: four words of eight bytes are there.
                unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), hash) };
                let inside = (0..LANES).filter(|lane| above >> lane & 1 == 0);
                out.extend(inside.map(|lane| hashes[lane]));
            }
            at += LANES;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_the_plain_loop_agree() {
        // Repeats of few letters begin as their reverse complements do.
        let mut texts = ["ACGGT", "AT", "ACGT", "A", "GATTACACCGTTGA"]
            .map(|unit| unit.repeat(200))
            .to_vec();
        let drawn = (0..400u64).map(|at| hash_text(&at.to_le_bytes()));
        texts.push(
            drawn
                .map(|hash| b"ACGT"[(hash >> 62) as usize] as char)
                .collect(),
        );
        for text in &texts {
            for k in super::super::K_RANGE.take_while(|&k| k <= 80) {
                for n in [k, k + 1, k + 6, k + 7, k + 8, k + 63, 111, 120] {
                    let mut run = text.as_bytes()[..n.max(k)].to_vec();
                    let mut reverse = Vec::new();
                    let mut by = |vectors: Vectors, max_hash: u64| {
                        let mut out = Vec::new();
                        hash_by(vectors, &mut run, &mut reverse, k, max_hash, &mut out);
                        out
                    };
                    let plain = by(Vectors::None, u64::MAX / 2);
                    for vectors in Vectors::all(k) {
                        let wide = by(vectors, u64::MAX / 2);
                        assert_eq!(plain, wide, "{text} {k} {n} {vectors:?}");
                    }
                    assert_eq!(by(Vectors::None, u64::MAX).len(), n.max(k) + 1 - k);
                }
            }
        }
    }
}
