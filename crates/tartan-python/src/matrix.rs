//! Looking at matrices of dissimilarities: `tartan_kernels::check` on NumPy arrays.

use numpy::{Element, PyArray2, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::check::{self, MatrixSurvey, Stored, SurveyRule};

use crate::dense::rows;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(survey_square, module)?)
}

type AnyArray<'a, 'py> = &'a Bound<'py, PyUntypedArray>;
type Found = (
    (u64, u64, u64),
    (f64, f64, f64, f64),
    (f64, usize, usize),
    (f64, usize),
    Option<(usize, usize)>,
);

/// Return what a square of a matrix shows: (valid, missing, zero), (smallest, largest, total, squares), (asymmetry,
/// row, column), (diagonal, item), and the pair that is wrong, or None.
#[pyfunction]
#[pyo3(signature = (upper, lower, on_diagonal, swapped, missing_allowed))]
fn survey_square(
    upper: AnyArray,
    lower: Option<AnyArray>,
    on_diagonal: bool,
    swapped: bool,
    missing_allowed: bool,
) -> PyResult<Found> {
    let rule = SurveyRule {
        swapped,
        missing_allowed,
        on_diagonal,
    };
    let found = match look::<i16>(upper, lower, rule)? {
        None => match look::<f32>(upper, lower, rule)? {
            None => look::<f64>(upper, lower, rule)?,
            found => found,
        },
        found => found,
    };
    found.map(plain).ok_or_else(|| {
        PyTypeError::new_err("a matrix is a two-dimensional array of int16, float32 or float64")
    })
}

fn look<T: Element + Stored>(
    upper: AnyArray,
    lower: Option<AnyArray>,
    rule: SurveyRule,
) -> PyResult<Option<MatrixSurvey>> {
    let Ok(array) = upper.cast::<PyArray2<T>>() else {
        return Ok(None);
    };
    let mirrored = match lower.map(|lower| lower.cast::<PyArray2<T>>()) {
        Some(Ok(lower)) => Some(lower.try_readonly()?),
        Some(Err(_)) => return Ok(None),
        None => None,
    };
    let (n_rows, n_columns) = (array.shape()[0], array.shape()[1]);
    let fitting = mirrored
        .as_ref()
        .is_none_or(|lower| lower.shape() == [n_columns, n_rows]);
    if !fitting || (rule.on_diagonal && n_rows != n_columns) {
        return Err(PyValueError::new_err(
            "the rectangle and its mirror image do not fit together",
        ));
    }
    let array = array.try_readonly()?;
    let upper = rows(&array)?;
    let lower = mirrored.as_ref().map(rows).transpose()?;
    Ok(Some(
        array
            .py()
            .detach(|| check::survey(&upper, lower.as_deref(), rule)),
    ))
}

fn plain(found: MatrixSurvey) -> Found {
    (
        (found.n_valid, found.n_missing, found.n_zero),
        (found.smallest, found.largest, found.total, found.squares),
        (found.asymmetry, found.asymmetric.0, found.asymmetric.1),
        (found.diagonal, found.diagonal_item),
        found.wrong,
    )
}
