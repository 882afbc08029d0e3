//! Rows of text and of any length for the sort: `tartan_sort::delimited` and `tartan_sort::rows` on NumPy arrays.

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tartan_sort::decimals;
use tartan_sort::delimited::{self, ColumnText, Form, WantedText, Wrong};
use tartan_sort::rows::{Cut, MOST_PIECE_BYTES};

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_first_row, module)?)?;
    module.add_function(wrap_pyfunction!(find_end_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(split_rows, module)?)?;
    module.add_function(wrap_pyfunction!(cut_rows, module)?)?;
    module.add_function(wrap_pyfunction!(join_pieces, module)?)?;
    module.add_function(wrap_pyfunction!(place_texts, module)?)?;
    module.add_function(wrap_pyfunction!(survey_decimals, module)?)?;
    module.add_function(wrap_pyfunction!(read_decimals, module)?)
}

/// What is wrong, by its name: the row, and two numbers more.
type Refused = (&'static str, usize, usize, usize);

fn name_of(wrong: Wrong) -> Refused {
    match wrong {
        Wrong::Ragged { row, values } => ("ragged", row, values, 0),
        Wrong::Return { row } => ("return", row, 0, 0),
        Wrong::GoesOn { row, opens, closes } => ("goes on", row, opens, closes),
        Wrong::Unwritable { row, column } => ("unwritable", row, column, 0),
    }
}

type FirstRow<'py> = (
    usize,
    usize,
    Option<Vec<Bound<'py, PyBytes>>>,
    Option<Refused>,
);

#[pyfunction]
fn read_first_row<'py>(py: Python<'py>, text: &[u8], separator: u8, quoted: bool) -> FirstRow<'py> {
    match delimited::read_first(text, Form { separator, quoted }) {
        Ok((end, blank, values)) => {
            let values = values.map(|all| all.iter().map(|one| PyBytes::new(py, one)).collect());
            (end, blank, values, None)
        }
        Err(wrong) => (0, 0, None, Some(name_of(wrong))),
    }
}

#[pyfunction]
fn find_end_of_rows(py: Python<'_>, text: &[u8], separator: u8, quoted: bool) -> usize {
    py.detach(|| delimited::end_of_rows(text, Form { separator, quoted }))
}

type Bytes<'py> = Bound<'py, PyArray1<u8>>;
type Values<'py> = (Bound<'py, PyArray1<i64>>, Bytes<'py>, Bytes<'py>, usize);
type Split<'py> = (usize, usize, Vec<Values<'py>>, Option<Refused>);

fn export(py: Python<'_>, column: ColumnText) -> Values<'_> {
    (
        PyArray1::from_vec(py, column.offsets),
        PyArray1::from_vec(py, column.data),
        PyArray1::from_vec(py, column.valid),
        column.nulls,
    )
}

#[pyfunction]
#[pyo3(signature = (text, separator, quoted, *, width, columns, nulls=false, line=None))]
#[allow(clippy::too_many_arguments, reason = "keywords of Python")]
fn split_rows<'py>(
    py: Python<'py>,
    text: &[u8],
    separator: u8,
    quoted: bool,
    width: usize,
    columns: Vec<usize>,
    nulls: bool,
    line: Option<(Vec<usize>, u8, bool)>,
) -> PyResult<Split<'py>> {
    let line = line.map(|(places, separator, quoted)| (places, Form { separator, quoted }));
    let places = columns
        .iter()
        .chain(line.iter().flat_map(|(places, _)| places));
    if places.into_iter().any(|&place| place >= width) {
        return Err(PyValueError::new_err(format!(
            "a column is not below {width}"
        )));
    }
    let has_lines = line.is_some();
    let wanted = WantedText {
        width,
        columns,
        nulls,
        line,
    };
    let form = Form { separator, quoted };
    Ok(match py.detach(|| delimited::split(text, form, &wanted)) {
        Ok(found) => {
            let lines = has_lines.then_some(found.lines);
            let columns = found.columns.into_iter().chain(lines);
            let columns = columns.map(|column| export(py, column)).collect();
            (found.rows, found.end, columns, None)
        }
        Err(wrong) => (0, 0, Vec::new(), Some(name_of(wrong))),
    })
}

fn cut_of(key_bytes: usize, piece_bytes: usize) -> PyResult<Cut> {
    if piece_bytes == 0 || piece_bytes > MOST_PIECE_BYTES {
        return Err(PyValueError::new_err(format!(
            "piece_bytes is {piece_bytes}; it must be from 1 to {MOST_PIECE_BYTES}"
        )));
    }
    Ok(Cut {
        key_bytes,
        piece_bytes,
    })
}

#[pyfunction]
fn cut_rows<'py>(
    py: Python<'py>,
    keys: PyReadonlyArray1<'py, u8>,
    offsets: PyReadonlyArray1<'py, i64>,
    data: PyReadonlyArray1<'py, u8>,
    key_bytes: usize,
    piece_bytes: usize,
) -> PyResult<Bytes<'py>> {
    let cut = cut_of(key_bytes, piece_bytes)?;
    let (keys, offsets, data) = (keys.in_order()?, offsets.in_order()?, data.in_order()?);
    require_texts(offsets, data)?;
    if keys.len() != offsets.len().saturating_sub(1) * key_bytes {
        return Err(PyValueError::new_err("there must be a key for each row"));
    }
    let records = py.detach(|| {
        let mut out = Vec::new();
        cut.cut(keys, offsets, data, &mut out);
        out
    });
    Ok(PyArray1::from_vec(py, records))
}

fn require_texts(offsets: &[i64], data: &[u8]) -> PyResult<()> {
    let rising = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    let inside = offsets.first().is_none_or(|&first| first >= 0)
        && offsets
            .last()
            .is_none_or(|&last| last as usize <= data.len());
    if rising && inside {
        return Ok(());
    }
    Err(PyValueError::new_err("offsets must rise within the data"))
}

#[pyfunction]
fn place_texts(
    py: Python<'_>,
    records: &Bound<'_, PyArray1<u8>>,
    record_bytes: usize,
    field: (usize, usize),
    offsets: PyReadonlyArray1<'_, i64>,
    data: PyReadonlyArray1<'_, u8>,
) -> PyResult<()> {
    let mut records = records
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let (offsets, data) = (offsets.in_order()?, data.in_order()?);
    require_texts(offsets, data)?;
    if field.0 > field.1 || field.1 > record_bytes || record_bytes == 0 {
        return Err(PyValueError::new_err(
            "the field must lie within the record",
        ));
    }
    let records = records.in_order_mut()?;
    py.detach(|| {
        tartan_sort::rows::place_texts(records, record_bytes, field.0..field.1, offsets, data)
    });
    Ok(())
}

#[pyfunction]
fn survey_decimals(
    py: Python<'_>,
    offsets: PyReadonlyArray1<'_, i64>,
    data: PyReadonlyArray1<'_, u8>,
) -> PyResult<Option<(bool, u64, usize)>> {
    let (offsets, data) = (offsets.in_order()?, data.in_order()?);
    require_texts(offsets, data)?;
    let found = py.detach(|| decimals::survey(offsets, data));
    Ok(found.map(|facts| (facts.whole, facts.largest, facts.digits)))
}

#[pyfunction]
fn read_decimals<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'py, i64>,
    data: PyReadonlyArray1<'py, u8>,
    whole: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (offsets, data) = (offsets.in_order()?, data.in_order()?);
    require_texts(offsets, data)?;
    Ok(if whole {
        let found = py.detach(|| decimals::read_whole(offsets, data));
        found.map(|values| PyArray1::from_vec(py, values).into_any())
    } else {
        let found = py.detach(|| decimals::read_floats(offsets, data));
        found.map(|values| PyArray1::from_vec(py, values).into_any())
    })
}

type Joined<'py> = (Bytes<'py>, Bound<'py, PyArray1<i64>>);

#[pyfunction]
fn join_pieces<'py>(
    py: Python<'py>,
    records: PyReadonlyArray1<'py, u8>,
    key_bytes: usize,
    piece_bytes: usize,
) -> PyResult<Joined<'py>> {
    let cut = cut_of(key_bytes, piece_bytes)?;
    let records = records.in_order()?;
    let (mut data, mut starts) = (Vec::with_capacity(records.len()), Vec::new());
    py.detach(|| cut.join(records, &mut data, &mut starts))
        .map_err(|number| {
            PyValueError::new_err(format!(
                "record {number} says that it holds more than {piece_bytes} bytes"
            ))
        })?;
    Ok((PyArray1::from_vec(py, data), PyArray1::from_vec(py, starts)))
}
