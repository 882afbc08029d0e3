//! Columns of plain decimals, which most numbers in text are: `-12`, `0.25`. All others are left to the caller.

/// What a column of plain decimals holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether all are whole numbers without a point.
    pub whole: bool,
    /// The largest of the absolute values, if all are whole.
    pub largest: u64,
    /// Most digits of a value, without zeros in front and behind.
    pub digits: usize,
}

/// A number as its digits, all of them, its sign, and how many of the digits are behind the point.
struct Decimal {
    digits: u64,
    negative: bool,
    behind: usize,
    has_point: bool,
}

// By arithmetic: whole numbers below 10^15 are exact as float64, and so are powers of ten up to 10^22 (Clinger's fast
// path): their quotient is rounded once.
const MOST_DIGITS: usize = 15;
// By arithmetic: 10^18 is below 2^63.
const MOST_WHOLE_DIGITS: usize = 18;

/// Read a value of sign, digits, and a point at most; none if it is anything else, minus zero, or has too many digits.
fn read(text: &[u8]) -> Option<Decimal> {
    let (negative, text) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        _ => (false, text),
    };
    if text.is_empty() || text.len() > MOST_WHOLE_DIGITS {
        return None;
    }
    let (mut digits, mut behind, mut has_point) = (0u64, 0usize, false);
    for &byte in text {
        match byte {
            b'0'..=b'9' => {
                digits = digits * 10 + u64::from(byte - b'0');
                behind += usize::from(has_point);
            }
            b'.' if !has_point => has_point = true,
            _ => return None,
        }
    }
    let count = text.len() - usize::from(has_point);
    let fits = count > 0 && (!has_point || count <= MOST_DIGITS);
    (fits && !(negative && digits == 0)).then_some(Decimal {
        digits,
        negative,
        behind,
        has_point,
    })
}

fn values<'a>(offsets: &'a [i64], data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    offsets
        .windows(2)
        .map(|pair| &data[pair[0] as usize..pair[1] as usize])
}

/// Find out what a column holds, empty values aside; none if a value is no plain decimal.
#[must_use]
pub fn survey(offsets: &[i64], data: &[u8]) -> Option<Facts> {
    let mut facts = Facts {
        whole: true,
        ..Facts::default()
    };
    for value in values(offsets, data).filter(|value| !value.is_empty()) {
        let number = read(value)?;
        facts.whole &= !number.has_point;
        facts.largest = facts.largest.max(number.digits);
        let mut digits = number.digits;
        while digits != 0 && digits % 10 == 0 {
            digits /= 10;
        }
        facts.digits = facts
            .digits
            .max(digits.checked_ilog10().map_or(0, |log| log as usize + 1));
    }
    Some(facts)
}

/// Read a column of whole numbers; an empty value is 0. None if a value is no plain whole number.
#[must_use]
pub fn read_whole(offsets: &[i64], data: &[u8]) -> Option<Vec<i64>> {
    values(offsets, data)
        .map(|value| {
            if value.is_empty() {
                return Some(0);
            }
            let number = read(value).filter(|number| !number.has_point)?;
            Some(if number.negative {
                -(number.digits as i64)
            } else {
                number.digits as i64
            })
        })
        .collect()
}

/// Read a column of decimals as the nearest float64; an empty value is 0. None if a value is no plain short decimal.
#[must_use]
pub fn read_floats(offsets: &[i64], data: &[u8]) -> Option<Vec<f64>> {
    const POWERS: [f64; MOST_DIGITS + 1] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    ];
    values(offsets, data)
        .map(|value| {
            if value.is_empty() {
                return Some(0.0);
            }
            let number = read(value).filter(|number| number.digits < 10u64.pow(15))?;
            let found = number.digits as f64 / POWERS[number.behind];
            Some(if number.negative { -found } else { found })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column(texts: &[&str]) -> (Vec<i64>, Vec<u8>) {
        let mut offsets = vec![0];
        let mut data = Vec::new();
        for text in texts {
            data.extend_from_slice(text.as_bytes());
            offsets.push(data.len() as i64);
        }
        (offsets, data)
    }

    #[test]
    fn plain_decimals_are_surveyed_and_others_left() {
        let (offsets, data) = column(&["12", "", "-300", "007"]);
        assert_eq!(
            survey(&offsets, &data),
            Some(Facts {
                whole: true,
                largest: 300,
                digits: 2
            })
        );
        assert_eq!(read_whole(&offsets, &data), Some(vec![12, 0, -300, 7]));
        for odd in [
            "+1",
            "-0",
            "1e5",
            " 1",
            "nan",
            ".",
            "-",
            "1.2.3",
            "0x10",
            "1234567890123456789",
            "-0.0",
        ] {
            let (offsets, data) = column(&["1", odd]);
            assert_eq!(survey(&offsets, &data), None, "{odd}");
            assert_eq!(read_floats(&offsets, &data), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn floats_are_those_of_the_standard_library(text in "-?[0-9]{1,8}(\\.[0-9]{0,7})?") {
            let (offsets, data) = column(&[&text]);
            if let Some(found) = read_floats(&offsets, &data) {
                prop_assert_eq!(found[0].to_bits(), text.parse::<f64>().unwrap().to_bits());
            } else {
                prop_assert_eq!(text.parse::<f64>().unwrap(), 0.0);
            }
        }
    }
}
