//! Order-preserving maps between numbers and unsigned keys, in place.
//!
//! Signed integers flip the sign bit. Floats are totally ordered: negative infinity, ..., -0.0, 0.0, ..., infinity,
//! then every NaN, whatever its sign. Flipping all bits of negative floats and the sign bit of the others (the order
//! of IEEE 754 `totalOrder`) puts NaNs with a sign first; subtracting their number from every key, with wrap around,
//! takes them to the end. Descending orders map the complement (integers) or the negated number (floats), so that
//! NaNs stay last. Every map is a bijection of the bit patterns: payloads of NaNs survive.

use super::Key;

/// The type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum NumberKind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl NumberKind {
    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            NumberKind::I8 | NumberKind::U8 => 1,
            NumberKind::I16 | NumberKind::U16 | NumberKind::F16 => 2,
            NumberKind::I32 | NumberKind::U32 | NumberKind::F32 => 4,
            NumberKind::I64 | NumberKind::U64 | NumberKind::F64 => 8,
        }
    }

    /// Bits of the fraction of a float.
    const fn fraction_bits(self) -> Option<u32> {
        match self {
            NumberKind::F16 => Some(10),
            NumberKind::F32 => Some(23),
            NumberKind::F64 => Some(52),
            _ => None,
        }
    }

    const fn is_signed_integer(self) -> bool {
        matches!(
            self,
            NumberKind::I8 | NumberKind::I16 | NumberKind::I32 | NumberKind::I64
        )
    }
}

/// One map, as constants of a short formula. The low `8 * kind.bytes()` bits of a word are the number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    /// Flipped before anything else.
    flip: u64,
    /// For floats: the sign bit, and the number of NaNs with a sign.
    float: Option<(u64, u64)>,
    mask: u64,
}

impl Map {
    pub(crate) const fn new(kind: NumberKind, descending: bool) -> Map {
        let bits = 8 * kind.bytes() as u32;
        let mask = u64::MAX >> (64 - bits);
        let sign = 1 << (bits - 1);
        let float = match kind.fraction_bits() {
            Some(fraction) => Some((sign, (1 << fraction) - 1)),
            None => None,
        };
        let base = if kind.is_signed_integer() { sign } else { 0 };
        let flip = match (float.is_some(), descending) {
            (true, true) => sign,
            (true, false) => 0,
            (false, true) => base ^ mask,
            (false, false) => base,
        };
        Map { flip, float, mask }
    }

    /// The key of the number with these bits.
    #[inline(always)]
    pub(crate) fn encode(self, bits: u64) -> u64 {
        let bits = bits ^ self.flip;
        match self.float {
            None => bits,
            Some((sign, nans)) => {
                let ordered = if bits & sign != 0 {
                    bits ^ self.mask
                } else {
                    bits | sign
                };
                ordered.wrapping_sub(nans) & self.mask
            }
        }
    }

    /// The bits of the number with this key.
    #[inline(always)]
    pub(crate) fn decode(self, key: u64) -> u64 {
        let bits = match self.float {
            None => key,
            Some((sign, nans)) => {
                let ordered = key.wrapping_add(nans) & self.mask;
                if ordered & sign != 0 {
                    ordered ^ sign
                } else {
                    ordered ^ self.mask
                }
            }
        };
        bits ^ self.flip
    }

    const fn is_identity(self) -> bool {
        self.flip == 0 && self.float.is_none()
    }
}

fn checked<K: Key>(kind: NumberKind, descending: bool) -> Map {
    assert!(
        kind.bytes() == K::BYTES,
        "{kind:?} has {} bytes, the keys have {}",
        kind.bytes(),
        K::BYTES
    );
    Map::new(kind, descending)
}

/// Replace the bits of numbers (native byte order) by keys in their order.
///
/// # Panics
/// When `kind` is not as wide as the key.
pub fn encode<K: Key>(values: &mut [K], kind: NumberKind, descending: bool) {
    let map = checked::<K>(kind, descending);
    if map.is_identity() {
        return;
    }
    if map.float.is_none() {
        return flip(values, map.flip);
    }
    for value in values {
        *value = K::from_u64(map.encode(value.to_u64()));
    }
}

/// Undo [`encode`], bit for bit.
///
/// # Panics
/// When `kind` is not as wide as the key.
pub fn decode<K: Key>(keys: &mut [K], kind: NumberKind, descending: bool) {
    let map = checked::<K>(kind, descending);
    if map.is_identity() {
        return;
    }
    if map.float.is_none() {
        return flip(keys, map.flip);
    }
    for key in keys {
        *key = K::from_u64(map.decode(key.to_u64()));
    }
}

fn flip<K: Key>(values: &mut [K], mask: u64) {
    for value in values {
        *value = K::from_u64(value.to_u64() ^ mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    /// The order that is promised, said plainly.
    fn compare(a: f64, b: f64, descending: bool) -> Ordering {
        match (a.is_nan(), b.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ if descending => b.total_cmp(&a),
            _ => a.total_cmp(&b),
        }
    }

    fn doubles() -> Vec<f64> {
        let bits = [
            0u64,
            1,
            0x000F_FFFF_FFFF_FFFF,
            0x0010_0000_0000_0000,
            0x3FF0_0000_0000_0000,
            0x7FEF_FFFF_FFFF_FFFF,
            0x7FF0_0000_0000_0000,
            0x7FF0_0000_0000_0001,
            0x7FF8_0000_0000_0000,
            0x7FFF_FFFF_FFFF_FFFF,
        ];
        let signed = bits.iter().map(|b| b | 1 << 63);
        bits.iter()
            .copied()
            .chain(signed)
            .map(f64::from_bits)
            .collect()
    }

    #[test]
    fn floats_are_totally_ordered_with_nans_last() {
        for descending in [false, true] {
            let values = doubles();
            let mut keys: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
            encode(&mut keys, NumberKind::F64, descending);
            for (&a, ka) in values.iter().zip(&keys) {
                for (&b, kb) in values.iter().zip(&keys) {
                    let expected = compare(a, b, descending);
                    let both_nan = a.is_nan() && b.is_nan();
                    assert!(both_nan || ka.cmp(kb) == expected, "{a} {b} {descending}");
                }
            }
            decode(&mut keys, NumberKind::F64, descending);
            let back: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
            assert_eq!(keys, back);
        }
    }

    #[test]
    fn single_floats_follow_the_same_order() {
        let values: Vec<f32> = doubles().iter().map(|&v| v as f32).collect();
        for descending in [false, true] {
            let mut keys: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
            encode(&mut keys, NumberKind::F32, descending);
            for (a, ka) in values.iter().zip(&keys) {
                for (b, kb) in values.iter().zip(&keys) {
                    let expected = compare(f64::from(*a), f64::from(*b), descending);
                    assert!(
                        a.is_nan() && b.is_nan() || ka.cmp(kb) == expected,
                        "{a} {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn integers_keep_their_order_and_come_back() {
        let values = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 9, i64::MAX];
        for descending in [false, true] {
            let mut keys: Vec<u64> = values.iter().map(|&v| v as u64).collect();
            encode(&mut keys, NumberKind::I64, descending);
            assert!(keys.is_sorted_by(|a, b| (a < b) ^ descending));
            decode(&mut keys, NumberKind::I64, descending);
            assert!(keys.iter().zip(values).all(|(&k, v)| k as i64 == v));
            let mut keys = [0u32, 5, u32::MAX];
            encode(&mut keys, NumberKind::U32, descending);
            assert!(keys.is_sorted_by(|a, b| (a < b) ^ descending));
        }
    }

    #[test]
    fn narrow_kinds_are_bijections_in_order() {
        for kind in [
            NumberKind::I8,
            NumberKind::U8,
            NumberKind::I16,
            NumberKind::U16,
            NumberKind::F16,
        ] {
            for descending in [false, true] {
                let map = Map::new(kind, descending);
                let count = 1u64 << (8 * kind.bytes());
                let mut keys: Vec<u64> = (0..count).map(|bits| map.encode(bits)).collect();
                assert!(keys
                    .iter()
                    .enumerate()
                    .all(|(b, &k)| map.decode(k) == b as u64));
                keys.sort_unstable();
                assert!(keys.iter().enumerate().all(|(i, &k)| k == i as u64));
            }
        }
    }

    #[test]
    #[should_panic(expected = "has 4 bytes")]
    fn a_kind_of_another_width_is_refused() {
        encode(&mut [0u64], NumberKind::F32, false);
    }
}
