//! Lists of whole numbers as JSON has them, without the brackets: what most bytes of a file of signatures are.

/// Return the numbers of `text`, such as `1, 20,3`; none where it is no such list, or one has more than 64 bits.
///
/// # Examples
///
/// ```
/// use tartan_kernels::sketch::parse_numbers;
/// assert_eq!(parse_numbers(b" 1,20 , 3\n"), Some(vec![1, 20, 3]));
/// assert_eq!(parse_numbers(b"1,,2"), None);
/// ```
pub fn parse_numbers(text: &[u8]) -> Option<Vec<u64>> {
    let mut found = Vec::with_capacity(text.len() / 21);
    let mut rest = text.trim_ascii();
    if rest.is_empty() {
        return Some(found);
    }
    loop {
        let end = rest.iter().position(|byte| !byte.is_ascii_digit());
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        found.push(parse_number(number)?);
        match after.trim_ascii_start().split_first() {
            None => return Some(found),
            Some((b',', more)) => rest = more.trim_ascii_start(),
            Some(_) => return None,
        }
    }
}

/// Return a number of digits alone; JSON has no zeros in front.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::parse_numbers;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let numbers: Vec<u64> = (0..64)
            .flat_map(|bit| [1 << bit, (1 << bit) - 1, u64::MAX >> bit])
            .collect();
        for separator in [",", ", ", " ,\n", "\t,\r\n"] {
            let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
            assert_eq!(
                parse_numbers(texts.join(separator).as_bytes()),
                Some(numbers.clone())
            );
        }
        assert_eq!(parse_numbers(b""), Some(vec![]));
        assert_eq!(parse_numbers(b" \n"), Some(vec![]));
    }

    #[test]
    fn what_json_does_not_have_is_no_list() {
        for text in [
            "1,",
            ",1",
            "1,,2",
            "1 2",
            "01",
            "00",
            "-1",
            "1.5",
            "1e3",
            "x",
            "1,x",
            "18446744073709551616",
            "99999999999999999999999",
            "1\u{b},2",
        ] {
            assert_eq!(parse_numbers(text.as_bytes()), None, "{text:?}");
        }
    }
}
