//! CSV and TSV taken apart: every value as it stands in the file, row by row.
//!
//! There are two ways of quoting. In the first a value that begins with a quote ends with one, may hold separators and
//! line ends, and its own quotes are doubled; anywhere else a quote is a character. In the second all quotes are
//! characters. Lines end with LF or CR LF. A line without anything is not a row, unless there is one column.

/// How values stand in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub separator: u8,
    pub quoted: bool,
}

/// Why a text is not a table; rows count from 0 within the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A row of another number of values.
    Ragged { row: usize, values: usize },
    /// A carriage return that is no part of a line end.
    Return { row: usize },
    /// A value that goes on behind its quotes: where they open, and where they close.
    GoesOn {
        row: usize,
        opens: usize,
        closes: usize,
    },
    /// A value that the written form has no way to hold.
    Unwritable { row: usize, column: usize },
}

/// Values of one column, one after the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ColumnText {
    pub offsets: Vec<i64>,
    pub data: Vec<u8>,
    /// A bit for each value that is there; empty unless missing ones are told from empty ones.
    pub valid: Vec<u8>,
    pub nulls: usize,
}

impl ColumnText {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            ..Self::default()
        }
    }

    fn end(&mut self) {
        self.offsets.push(self.data.len() as i64);
    }
}

/// What is taken out of rows.
#[derive(Clone, Debug)]
pub struct WantedText {
    /// Number of columns of the table.
    pub width: usize,
    /// Places of the columns whose values are taken.
    pub columns: Vec<usize>,
    /// Whether values without anything, not even quotes, are missing; of a single column also those within quotes.
    pub nulls: bool,
    /// Columns that are written as a line of another form, and that form.
    pub line: Option<(Vec<usize>, Form)>,
}

/// Rows taken apart.
#[derive(Debug, Default)]
pub struct SplitText {
    pub columns: Vec<ColumnText>,
    /// Rows as they are written, with line ends.
    pub lines: ColumnText,
    pub rows: usize,
    /// Where the last whole row ends.
    pub end: usize,
}

struct Value {
    start: usize,
    end: usize,
    /// Whether it stands within quotes, which are outside of start and end.
    quoted: bool,
    /// Whether quotes within are doubled.
    doubled: bool,
}

impl Value {
    fn copy(&self, text: &[u8], out: &mut Vec<u8>) {
        let content = &text[self.start..self.end];
        if !self.doubled {
            out.extend_from_slice(content);
            return;
        }
        let mut skip = false; // the second of two quotes is a piece of its own
        for piece in content.split_inclusive(|&byte| byte == b'"') {
            if !skip {
                out.extend_from_slice(piece);
            }
            skip = !skip && piece.last() == Some(&b'"');
        }
    }
}

enum Found {
    /// Where the row ends, and whether a quote stands in it.
    Whole(usize, bool),
    Partial,
}

/// What a byte may be at the end of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Quote,
    End,
}

struct Scanner<'a> {
    text: &'a [u8],
    quoted: bool,
    separator: u8,
    kinds: [Kind; 256],
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8], form: Form) -> Self {
        let mut kinds = [Kind::Plain; 256];
        kinds[usize::from(b'"')] = Kind::Quote;
        for end in [b'\n', b'\r', form.separator] {
            kinds[usize::from(end)] = Kind::End;
        }
        Self {
            text,
            quoted: form.quoted,
            separator: form.separator,
            kinds,
        }
    }

    /// Find the values of the row at a place.
    #[inline]
    fn row(&self, start: usize, row: usize, values: &mut Vec<Value>) -> Result<Found, Wrong> {
        values.clear();
        let mut at = start;
        let mut has_quote = false;
        loop {
            let value = if self.quoted && self.text.get(at) == Some(&b'"') {
                has_quote = true;
                match self.close(at) {
                    Some(value) => value,
                    None => return Ok(Found::Partial),
                }
            } else {
                let mut end = at;
                loop {
                    let Some(&byte) = self.text.get(end) else {
                        return Ok(Found::Partial);
                    };
                    match self.kinds[usize::from(byte)] {
                        Kind::Plain => {}
                        Kind::Quote => has_quote = true,
                        Kind::End => break,
                    }
                    end += 1;
                }
                Value {
                    start: at,
                    end,
                    quoted: false,
                    doubled: false,
                }
            };
            let behind = value.end + usize::from(value.quoted);
            let (opens, quoted) = (at, value.quoted);
            values.push(value);
            match self.text.get(behind) {
                None => return Ok(Found::Partial),
                Some(&byte) if byte == self.separator => at = behind + 1,
                Some(b'\n') => return Ok(Found::Whole(behind + 1, has_quote)),
                Some(b'\r') => match self.text.get(behind + 1) {
                    None => return Ok(Found::Partial),
                    Some(b'\n') => return Ok(Found::Whole(behind + 2, has_quote)),
                    Some(_) => return Err(Wrong::Return { row }),
                },
                Some(_) => {
                    debug_assert!(quoted, "other values end before such a byte");
                    return Err(Wrong::GoesOn {
                        row,
                        opens,
                        closes: behind - 1,
                    });
                }
            }
        }
    }

    /// Find the value whose quotes open at a place; none if they do not close.
    fn close(&self, open: usize) -> Option<Value> {
        let (start, mut at, mut doubled) = (open + 1, open + 1, false);
        loop {
            at += self.text.get(at..)?.iter().position(|&byte| byte == b'"')?;
            if self.text.get(at + 1) != Some(&b'"') {
                return Some(Value {
                    start,
                    end: at,
                    quoted: true,
                    doubled,
                });
            }
            doubled = true;
            at += 2;
        }
    }
}

fn is_blank(values: &[Value]) -> bool {
    matches!(values, [only] if only.start == only.end && !only.quoted)
}

/// Where the first line that is not blank ends, how many blank ones come before it, and its values; the end of the last
/// whole line if all are blank.
///
/// # Errors
/// If the line is not one of a table.
#[allow(clippy::type_complexity, reason = "a place, a number, and the values")]
pub fn read_first(text: &[u8], form: Form) -> Result<(usize, usize, Option<Vec<Vec<u8>>>), Wrong> {
    let scanner = Scanner::new(text, form);
    let (mut values, mut at, mut blank) = (Vec::new(), 0, 0);
    while let Found::Whole(end, _) = scanner.row(at, blank, &mut values)? {
        at = end;
        if !is_blank(&values) {
            let copied = values.iter().map(|value| {
                let mut out = Vec::new();
                value.copy(text, &mut out);
                out
            });
            return Ok((at, blank, Some(copied.collect())));
        }
        blank += 1;
    }
    Ok((at, blank, None))
}

/// Where the last whole row of a text that begins with a row ends, without a look at its values: some times as fast as
/// taking it apart, so that the rest can be read on while others take the rows apart.
///
/// Of a text that is no table it may be anywhere; what comes before it is refused as the text is.
#[must_use]
pub fn end_of_rows(text: &[u8], form: Form) -> usize {
    let last_end = |start: usize, end: usize| {
        memchr::memrchr(b'\n', &text[start..end]).map(|place| start + place + 1)
    };
    if !form.quoted {
        return last_end(0, text.len()).unwrap_or(0);
    }
    let (mut found, mut plain, mut at) = (0, 0, 0);
    while let Some(place) = memchr::memchr(b'"', &text[at..]) {
        let open = at + place;
        let begins_value = open == 0 || [b'\n', form.separator].contains(&text[open - 1]);
        if !begins_value {
            at = open + 1;
            continue;
        }
        found = last_end(plain, open).unwrap_or(found);
        // A quote at the very end may be the first of two.
        match close_of(text, open).filter(|&close| close + 1 < text.len()) {
            Some(close) => (plain, at) = (close + 1, close + 1),
            None => return found,
        }
    }
    last_end(plain, text.len()).unwrap_or(found)
}

/// Where the quotes that open at a place close.
fn close_of(text: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        at += memchr::memchr(b'"', text.get(at..)?)?;
        if text.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// Take the whole rows of a text apart.
///
/// # Errors
/// At the first row that is not one of the table, or cannot be written.
pub fn split(text: &[u8], form: Form, wanted: &WantedText) -> Result<SplitText, Wrong> {
    let scanner = Scanner::new(text, form);
    let mut out = SplitText {
        columns: wanted.columns.iter().map(|_| ColumnText::new()).collect(),
        lines: ColumnText::new(),
        ..SplitText::default()
    };
    let as_it_is = wanted.line.as_ref().is_some_and(|(columns, target)| {
        columns.iter().copied().eq(0..wanted.width) && target.separator == form.separator
    });
    if as_it_is {
        out.lines.data.reserve(text.len());
    }
    let mut values = Vec::with_capacity(wanted.width);
    loop {
        let start = out.end;
        let Found::Whole(end, has_quote) = scanner.row(start, out.rows, &mut values)? else {
            break;
        };
        out.end = end;
        if wanted.width != 1 && is_blank(&values) {
            continue;
        }
        if values.len() != wanted.width {
            return Err(Wrong::Ragged {
                row: out.rows,
                values: values.len(),
            });
        }
        for (column, &place) in out.columns.iter_mut().zip(&wanted.columns) {
            take(text, &values[place], column, out.rows, wanted);
        }
        if let Some((columns, target)) = &wanted.line {
            let last = values.last().map_or(start, |value| value.end);
            let one_empty = wanted.width == 1 && last == start;
            if as_it_is && !one_empty && (!has_quote || (!form.quoted && !target.quoted)) {
                out.lines.data.extend_from_slice(&text[start..last]);
                out.lines.data.push(b'\n');
            } else {
                write(
                    text,
                    &values,
                    columns,
                    *target,
                    form == *target,
                    &mut out.lines.data,
                )
                .map_err(|column| Wrong::Unwritable {
                    row: out.rows,
                    column,
                })?;
            }
            out.lines.end();
        }
        out.rows += 1;
    }
    Ok(out)
}

fn take(text: &[u8], value: &Value, column: &mut ColumnText, row: usize, wanted: &WantedText) {
    value.copy(text, &mut column.data);
    column.end();
    if !wanted.nulls {
        return;
    }
    if row.is_multiple_of(8) {
        column.valid.push(0);
    }
    if value.start == value.end && (!value.quoted || wanted.width == 1) {
        column.nulls += 1;
    } else {
        *column
            .valid
            .last_mut()
            .expect("a byte was pushed for this row") |= 1 << (row % 8);
    }
}

/// Append a line; the place of a column that the form cannot hold is the error.
fn write(
    text: &[u8],
    values: &[Value],
    columns: &[usize],
    target: Form,
    same: bool,
    out: &mut Vec<u8>,
) -> Result<(), usize> {
    for (number, &place) in columns.iter().enumerate() {
        if number > 0 {
            out.push(target.separator);
        }
        let start = out.len();
        values[place].copy(text, out);
        let written = &out[start..];
        let splits = |&byte: &u8| byte == target.separator || byte == b'\n' || byte == b'\r';
        if !target.quoted {
            if !same && written.iter().any(splits) {
                return Err(place);
            }
        } else if written.iter().any(|byte| *byte == b'"' || splits(byte))
            || (columns.len() == 1 && written.is_empty())
        {
            let plain = out.split_off(start);
            out.push(b'"');
            for byte in plain {
                if byte == b'"' {
                    out.push(b'"');
                }
                out.push(byte);
            }
            out.push(b'"');
        }
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CSV: Form = Form {
        separator: b',',
        quoted: true,
    };

    fn values(rows: &SplitText) -> Vec<Vec<String>> {
        let one = |column: &ColumnText| {
            let slices = column.offsets.windows(2);
            slices
                .map(|pair| {
                    String::from_utf8(column.data[pair[0] as usize..pair[1] as usize].to_vec())
                        .unwrap()
                })
                .collect()
        };
        rows.columns.iter().map(one).collect()
    }

    #[test]
    fn values_are_taken_and_lines_written_in_another_form() {
        let text = b"a,\"b,\"\"\nc\"\n\n1,\"\"\r\nrest";
        let tabs = Form {
            separator: b'\t',
            quoted: true,
        };
        let wanted = WantedText {
            width: 2,
            columns: vec![1],
            nulls: true,
            line: Some((vec![1, 0], tabs)),
        };
        let rows = split(text, CSV, &wanted).unwrap();
        assert_eq!((rows.rows, rows.end), (2, text.len() - 4));
        assert_eq!(values(&rows), [["b,\"\nc", ""]]);
        assert_eq!(
            (rows.columns[0].nulls, &rows.columns[0].valid[..]),
            (0, &[3u8][..])
        );
        assert_eq!(rows.lines.data, b"\"b,\"\"\nc\"\ta\n\t1\n");
    }

    proptest! {
        #[test]
        fn whole_rows_end_where_taking_them_apart_does(text in "[a,\"\n]{0,40}", quoted: bool) {
            let form = Form { separator: b',', quoted };
            for width in 1..4 {
                let wanted = WantedText { width, columns: vec![], nulls: false, line: None };
                if let Ok(rows) = split(text.as_bytes(), form, &wanted) {
                    prop_assert_eq!(end_of_rows(text.as_bytes(), form), rows.end);
                }
            }
        }
    }

    #[test]
    fn what_is_no_table_is_named() {
        let plain = Form {
            separator: b'|',
            quoted: false,
        };
        let wanted = WantedText {
            width: 2,
            columns: vec![0],
            nulls: false,
            line: Some((vec![0, 1], plain)),
        };
        let wrong = |text: &[u8]| split(text, CSV, &wanted).unwrap_err();
        assert_eq!(wrong(b"1,2\n3\n"), Wrong::Ragged { row: 1, values: 1 });
        assert_eq!(wrong(b"1,2\r3\n"), Wrong::Return { row: 0 });
        assert_eq!(
            wrong(b"1,\"2\"3\n"),
            Wrong::GoesOn {
                row: 0,
                opens: 2,
                closes: 4
            }
        );
        assert_eq!(
            wrong(b"1,2\n1,2|3\n"),
            Wrong::Unwritable { row: 1, column: 1 }
        );
    }
}
