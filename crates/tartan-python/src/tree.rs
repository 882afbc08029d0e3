//! Trees of distances: `tartan_kernels::tree` on NumPy arrays.

use numpy::{Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::tree::{self, Distance, NotDistances};

use crate::in_order::InOrderMut;
use crate::report::reporting;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(neighbor_joining, module)?)
}

type Arrays<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

#[pyfunction]
#[pyo3(signature = (distances, report=None))]
fn neighbor_joining<'py>(
    py: Python<'py>,
    distances: &Bound<'py, PyAny>,
    report: Option<Py<PyAny>>,
) -> PyResult<Arrays<'py>> {
    if let Ok(matrix) = distances.cast::<PyArray2<f32>>() {
        return join(py, matrix, report);
    }
    if let Ok(matrix) = distances.cast::<PyArray2<f64>>() {
        return join(py, matrix, report);
    }
    Err(PyTypeError::new_err(
        "distances must be a two-dimensional array of float32 or float64",
    ))
}

fn join<'py, T: Element + Distance>(
    py: Python<'py>,
    matrix: &Bound<'py, PyArray2<T>>,
    report: Option<Py<PyAny>>,
) -> PyResult<Arrays<'py>> {
    let [n, columns] = [matrix.shape()[0], matrix.shape()[1]];
    if n != columns || n == 0 {
        return Err(PyValueError::new_err(format!(
            "distances have shape ({n}, {columns}); they must be square"
        )));
    }
    let mut writable = matrix
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let values = writable.in_order_mut()?;
    let mut raised = None;
    let joined = py.detach(|| {
        let mut goes_on = reporting(report, &mut raised);
        let whole = tree::check_while(values, n, &mut goes_on)?;
        Ok(whole
            .then(|| tree::neighbor_joining_while(values, n, goes_on))
            .flatten())
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let joined = joined
        .map_err(|problem: NotDistances| PyValueError::new_err(describe(problem)))?
        .expect("only a report that raises stops it");
    Ok((
        joined.parents.into_pyarray(py),
        joined.lengths.into_pyarray(py),
    ))
}

fn describe(problem: NotDistances) -> String {
    match problem {
        NotDistances::NotFinite { row, column } => {
            format!(
                "the distance in row {row}, column {column} is not finite; leave failed items out"
            )
        }
        NotDistances::Unequal { row, column } => {
            format!("row {row}, column {column} differs from row {column}, column {row}; make the matrix symmetric")
        }
    }
}
