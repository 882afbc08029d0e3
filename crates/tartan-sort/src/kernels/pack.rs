//! Delta and bit packing of sorted keys.
//!
//! A block holds up to [`BLOCK`] keys: the first key, the number of bits of the widest difference of neighbours, the
//! number of keys, then the differences. Row r of `LANES` differences adds its bits to one stream of words per lane;
//! the words of the lanes alternate, so that a vector of any width packs and unpacks lanes side by side. Unsorted
//! keys are packed correctly, but not small: differences wrap around.
//!
//! All numbers are little-endian. One block of keys of B bytes and w bits:
//!
//! | bytes | what |
//! |---|---|
//! | B | first key |
//! | 1 | w, at most 8 B; and 128 if the bits of steps follow |
//! | 2 | number of keys, 1 to 512 |
//! | ceil(keys / 8) | only then: for each key a bit, whether it differs from the one before |
//! | ceil(rows * w / 8B) words a lane | differences; rows = ceil(differences / lanes), lanes = 64 / B |
//!
//! Where many keys repeat, as of Zipf's distribution, only the differences that are not 0 are written, and the bits say
//! which they are; this is done where it takes fewer bytes.
//!
//! The loops are written for the compiler to vectorise and compiled for each [`Path`].

use super::{Key, Path};

/// Keys in a full block.
/// By format of packed blocks; 43.4 bits a value in blocks of 256 where 41.5 is ideal (measured), and a header half as
/// often here.
pub const BLOCK: usize = 512;

/// Bit of the width that says that the bits of steps follow.
/// By format: widths are 64 at most.
const STEPS: u8 = 128;

/// Bytes of a row of lanes, whatever the key: one vector of 512 bits.
/// By format.
const ROW_BYTES: usize = 64;

/// Bytes that are not packed keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The bytes end before the block that begins at `offset` does.
    Truncated {
        /// First byte of the block.
        offset: usize,
    },
    /// The header at `offset` cannot have been written by [`pack`], or holds more keys than were asked for.
    Header {
        /// First byte of the block.
        offset: usize,
    },
}

impl std::fmt::Display for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PackError::Truncated { offset } => {
                write!(f, "packed keys end within the block at byte {offset}")
            }
            PackError::Header { offset } => {
                write!(f, "no header of packed keys at byte {offset}")
            }
        }
    }
}

impl std::error::Error for PackError {}

const fn header_bytes<K: Key>() -> usize {
    K::BYTES + 3
}

const fn lanes<K: Key>() -> usize {
    ROW_BYTES / K::BYTES
}

fn payload_bytes<K: Key>(count: usize, width: u32) -> usize {
    let rows = count.div_ceil(lanes::<K>());
    (rows * width as usize).div_ceil(K::BITS as usize) * ROW_BYTES
}

/// Bytes that `n` keys need at most.
pub fn pack_bound<K: Key>(n: usize) -> usize {
    let block = |count| header_bytes::<K>() + payload_bytes::<K>(count, K::BITS);
    n / BLOCK * block(BLOCK)
        + if n.is_multiple_of(BLOCK) {
            0
        } else {
            block(n % BLOCK)
        }
}

/// Pack keys into the beginning of `out`, and return how many bytes they took.
///
/// # Panics
/// When `out` is shorter than [`pack_bound`] says.
pub fn pack<K: Key>(keys: &[K], out: &mut [u8]) -> usize {
    pack_with(Path::Auto, keys, out)
}

/// [`pack`] by a forced path.
pub fn pack_with<K: Key>(path: Path, keys: &[K], out: &mut [u8]) -> usize {
    assert!(
        out.len() >= pack_bound::<K>(keys.len()),
        "no room for the packed keys"
    );
    match path.resolve() {
        // SAFETY: `resolve` found the features.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => unsafe { pack_avx512(keys, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => unsafe { pack_avx2(keys, out) },
        _ => pack_blocks(keys, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn pack_avx512<K: Key>(keys: &[K], out: &mut [u8]) -> usize {
    pack_blocks(keys, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn pack_avx2<K: Key>(keys: &[K], out: &mut [u8]) -> usize {
    pack_blocks(keys, out)
}

#[inline(always)]
fn pack_blocks<K: Key>(keys: &[K], out: &mut [u8]) -> usize {
    let mut end = 0;
    for block in keys.chunks(BLOCK) {
        end += pack_block(block, &mut out[end..]);
    }
    end
}

#[inline(always)]
fn pack_block<K: Key>(keys: &[K], out: &mut [u8]) -> usize {
    let mut deltas = [K::default(); BLOCK];
    let width = differences(keys, &mut deltas);
    let header = header_bytes::<K>();
    out[..K::BYTES].copy_from_slice(&keys[0].to_u64().to_le_bytes()[..K::BYTES]);
    out[K::BYTES] = width as u8;
    out[K::BYTES + 1..header].copy_from_slice(&(keys.len() as u16).to_le_bytes());
    let steps = deltas
        .iter()
        .filter(|&&delta| delta != K::default())
        .count();
    let bits = keys.len().div_ceil(8);
    let (dense, sparse) = (
        payload_bytes::<K>(keys.len(), width),
        bits + payload_bytes::<K>(steps, width),
    );
    if sparse >= dense {
        pack_payload(&deltas, keys.len(), width, &mut out[header..header + dense]);
        return header + dense;
    }
    out[K::BYTES] |= STEPS;
    let (places, out) = out[header..header + sparse].split_at_mut(bits);
    let mut kept = [K::default(); BLOCK];
    take_steps(&deltas[..keys.len()], places, &mut kept);
    pack_payload(&kept, steps, width, out);
    header + sparse
}

#[inline(always)]
fn pack_payload<K: Key>(deltas: &[K; BLOCK], count: usize, width: u32, out: &mut [u8]) {
    let rows = count.div_ceil(lanes::<K>());
    if K::BYTES == 8 {
        pack_rows::<K, 8>(deltas, rows, width, out);
    } else {
        pack_rows::<K, 16>(deltas, rows, width, out);
    }
}

/// Move the differences that are not 0 to the front, and set the bits of their places.
#[inline(always)]
fn take_steps<K: Key>(deltas: &[K], places: &mut [u8], kept: &mut [K; BLOCK]) {
    let mut n = 0;
    for (byte, eight) in places.iter_mut().zip(deltas.chunks(8)) {
        *byte = 0;
        for (bit, &delta) in eight.iter().enumerate() {
            let is_step = delta != K::default();
            *byte |= u8::from(is_step) << bit;
            kept[n] = delta; // the next one takes its place if it is 0
            n += usize::from(is_step);
        }
    }
    if n < BLOCK {
        kept[n] = K::default();
    }
}

/// Write each key's difference to the one before (0 for the first), and return the bits of the widest.
#[inline(always)]
fn differences<K: Key>(keys: &[K], deltas: &mut [K; BLOCK]) -> u32 {
    let mut all = K::default();
    for ((delta, key), before) in deltas[1..].iter_mut().zip(&keys[1..]).zip(keys) {
        *delta = key.minus(*before);
        all = all.or(*delta);
    }
    K::BITS - all.zeros()
}

#[inline(always)]
fn pack_rows<K: Key, const L: usize>(deltas: &[K], rows: usize, width: u32, out: &mut [u8]) {
    if width == 0 {
        return;
    }
    let mut words = out.chunks_exact_mut(ROW_BYTES);
    let mut write = |row: &[K; L]| {
        let word = words.next().expect("a word for each row");
        for (bytes, lane) in word.chunks_exact_mut(K::BYTES).zip(row) {
            bytes.copy_from_slice(&lane.to_u64().to_le_bytes()[..K::BYTES]);
        }
    };
    let (mut word, mut filled) = ([K::default(); L], 0);
    for row in deltas.chunks_exact(L).take(rows) {
        for l in 0..L {
            word[l] = word[l].or(row[l].left(filled));
        }
        filled += width;
        if filled >= K::BITS {
            write(&word);
            filled -= K::BITS;
            // The bits that did not fit; in two steps, since all bits may have fitted.
            for l in 0..L {
                word[l] = row[l].right(width - filled - 1).right(1);
            }
        }
    }
    if filled > 0 {
        write(&word);
    }
}

/// Unpack as many keys as `out` holds, and return how many bytes they took.
///
/// # Errors
/// When the bytes end early or a header cannot be one. Damage of the differences themselves is not seen: that takes
/// a checksum. No input makes this panic or read outside.
pub fn unpack<K: Key>(bytes: &[u8], out: &mut [K]) -> Result<usize, PackError> {
    unpack_with(Path::Auto, bytes, out)
}

/// [`unpack`] by a forced path.
///
/// # Errors
/// As there.
pub fn unpack_with<K: Key>(path: Path, bytes: &[u8], out: &mut [K]) -> Result<usize, PackError> {
    match path.resolve() {
        // SAFETY: `resolve` found the features.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => unsafe { unpack_avx512(bytes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => unsafe { unpack_avx2(bytes, out) },
        _ => unpack_blocks(bytes, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2,popcnt")]
fn unpack_avx512<K: Key>(bytes: &[u8], out: &mut [K]) -> Result<usize, PackError> {
    unpack_blocks(bytes, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn unpack_avx2<K: Key>(bytes: &[u8], out: &mut [K]) -> Result<usize, PackError> {
    unpack_blocks(bytes, out)
}

#[inline(always)]
fn unpack_blocks<K: Key>(bytes: &[u8], out: &mut [K]) -> Result<usize, PackError> {
    let (mut offset, mut done) = (0, 0);
    while done < out.len() {
        let header = Header::read::<K>(bytes, offset, out.len() - done)?;
        let mut begin = offset + header_bytes::<K>();
        let take = |begin: usize, length: usize| {
            bytes
                .get(begin..begin + length)
                .ok_or(PackError::Truncated { offset })
        };
        let mut places = None;
        let mut kept = header.count;
        if header.has_steps {
            let bits = take(begin, header.count.div_ceil(8))?;
            kept = bits.iter().map(|byte| byte.count_ones() as usize).sum();
            if kept > header.count {
                return Err(PackError::Header { offset });
            }
            begin += bits.len();
            places = Some(bits);
        }
        let payload = take(begin, payload_bytes::<K>(kept, header.width))?;
        let block = &mut out[done..done + header.count];
        if K::BYTES == 8 {
            unpack_block::<K, 8>(payload, &header, kept, places, block);
        } else {
            unpack_block::<K, 16>(payload, &header, kept, places, block);
        }
        done += header.count;
        offset = begin + payload.len();
    }
    Ok(offset)
}

struct Header {
    first: u64,
    width: u32,
    has_steps: bool,
    count: usize,
}

impl Header {
    #[inline(always)]
    fn read<K: Key>(bytes: &[u8], offset: usize, wanted: usize) -> Result<Header, PackError> {
        let header = bytes
            .get(offset..offset + header_bytes::<K>())
            .ok_or(PackError::Truncated { offset })?;
        let width = u32::from(header[K::BYTES] & !STEPS);
        let count = usize::from(u16::from_le_bytes([
            header[K::BYTES + 1],
            header[K::BYTES + 2],
        ]));
        if width > K::BITS || count == 0 || count > BLOCK.min(wanted) {
            return Err(PackError::Header { offset });
        }
        Ok(Header {
            first: word::<K>(header).to_u64(),
            width,
            has_steps: header[K::BYTES] & STEPS != 0,
            count,
        })
    }
}

#[inline(always)]
fn word<K: Key>(bytes: &[u8]) -> K {
    let mut word = [0; 8];
    word[..K::BYTES].copy_from_slice(&bytes[..K::BYTES]);
    K::from_u64(u64::from_le_bytes(word))
}

#[inline(always)]
fn unpack_block<K: Key, const L: usize>(
    payload: &[u8],
    header: &Header,
    kept: usize,
    places: Option<&[u8]>,
    out: &mut [K],
) {
    let mut deltas = [K::default(); BLOCK];
    if !payload.is_empty() {
        unpack_rows::<K, L>(payload, header.width, kept.div_ceil(L), &mut deltas);
    }
    let mut key = K::from_u64(header.first);
    let Some(places) = places else {
        for (place, delta) in out.iter_mut().zip(&deltas) {
            key = key.plus(*delta);
            *place = key;
        }
        return;
    };
    let mut n = 0;
    for (&byte, eight) in places.iter().zip(out.chunks_mut(8)) {
        for (bit, place) in eight.iter_mut().enumerate() {
            if byte >> bit & 1 != 0 {
                key = key.plus(deltas[n]);
                n += 1;
            }
            *place = key;
        }
    }
}

#[inline(always)]
fn unpack_rows<K: Key, const L: usize>(payload: &[u8], width: u32, rows: usize, deltas: &mut [K]) {
    let mask = K::MAX.right(K::BITS - width);
    let last = payload.len() / ROW_BYTES - 1;
    let read = |i: usize| -> [K; L] {
        let row = &payload[i * ROW_BYTES..(i + 1) * ROW_BYTES];
        std::array::from_fn(|l| word(&row[l * K::BYTES..]))
    };
    for (r, row) in deltas.chunks_exact_mut(L).take(rows).enumerate() {
        let bit = r as u32 * width;
        let (i, shift) = ((bit / K::BITS) as usize, bit % K::BITS);
        // Beyond the last word there is nothing that the mask would keep.
        let (low, high) = (read(i), read((i + 1).min(last)));
        for l in 0..L {
            let bits = low[l]
                .right(shift)
                .or(high[l].left(1).left(K::BITS - 1 - shift));
            row[l] = bits.and(mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{paths, Random};

    fn round_trip<K: Key>(path: Path, keys: &[K]) -> usize {
        let mut bytes = vec![0xA5; pack_bound::<K>(keys.len())];
        let n = pack_with(path, keys, &mut bytes);
        let mut back = vec![K::default(); keys.len()];
        assert_eq!(unpack_with(path, &bytes[..n], &mut back), Ok(n));
        assert_eq!(back, keys);
        let mut plain = vec![0; pack_bound::<K>(keys.len())];
        let m = pack_with(Path::Radix, keys, &mut plain);
        assert_eq!(bytes[..n], plain[..m], "all paths write the same bytes");
        n
    }

    fn every_width<K: Key>(path: Path) {
        let mut random = Random(7);
        for width in 0..=K::BITS {
            for n in [1, 2, 7, 8, 9, 15, 16, 17, 255, 511, 512, 513, 1000, 1536] {
                let mask = if width == 0 {
                    0
                } else {
                    u64::MAX >> (64 - width)
                };
                let mut key = random.next();
                let keys: Vec<K> = (0..n)
                    .map(|_| {
                        key = key.wrapping_add(random.next() & mask);
                        K::from_u64(key)
                    })
                    .collect();
                round_trip(path, &keys);
            }
        }
    }

    #[test]
    fn every_width_and_tail_comes_back() {
        for path in paths() {
            every_width::<u32>(path);
            every_width::<u64>(path);
            assert_eq!(round_trip::<u64>(path, &[]), 0);
        }
    }

    #[test]
    fn keys_that_repeat_cost_a_bit() {
        let mut random = Random(3);
        for path in paths() {
            for share in [0, 1, 2, 5, 50] {
                for n in [1, 8, 9, 511, 512, 513, 2000] {
                    let mut key = random.next();
                    let keys: Vec<u64> = (0..n)
                        .map(|_| {
                            if random.next() % 100 < share {
                                key = key.wrapping_add(random.next() >> 20);
                            }
                            key
                        })
                        .collect();
                    let bytes = round_trip(path, &keys);
                    let halves: Vec<u32> = keys.iter().map(|&key| (key >> 32) as u32).collect();
                    round_trip(path, &halves);
                    if share == 5 && n == 2000 {
                        assert!(bytes < n * 8 / 10, "{bytes} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn equal_keys_cost_their_headers() {
        assert_eq!(round_trip(Path::Auto, &[9u32; 1024]), 2 * 7);
    }

    #[test]
    fn damage_is_an_error_or_other_keys_but_never_a_panic() {
        let mut random = Random(11);
        let keys: Vec<u64> = (0..1500)
            .map(|i| if i < 700 { i * i } else { i / 9 * 1_000_003 })
            .collect();
        let mut bytes = vec![0; pack_bound::<u64>(keys.len())];
        let n = pack(&keys, &mut bytes);
        let mut out = vec![0u64; keys.len()];
        for cut in 0..n {
            assert!(unpack(&bytes[..cut], &mut out).is_err(), "cut at {cut}");
        }
        for _ in 0..3000 {
            let mut damaged = bytes[..n].to_vec();
            for _ in 0..=random.next() % 4 {
                let place = random.next() as usize % n;
                damaged[place] = random.next() as u8;
            }
            let used = unpack(&damaged, &mut out);
            assert!(used.is_err() || used.is_ok_and(|used| used <= n));
        }
        for _ in 0..3000 {
            let noise: Vec<u8> = (0..random.next() % 300)
                .map(|_| random.next() as u8)
                .collect();
            assert!(unpack::<u32>(&noise, &mut [0; 600]).is_err());
        }
    }

    #[test]
    fn blocks_beyond_the_wanted_keys_are_refused() {
        let mut bytes = vec![0; pack_bound::<u32>(10)];
        let n = pack(&[1u32; 10], &mut bytes);
        let refused = unpack(&bytes[..n], &mut [0u32; 9]);
        assert_eq!(refused, Err(PackError::Header { offset: 0 }));
        assert!(refused.unwrap_err().to_string().contains("byte 0"));
    }
}
