//! Hierarchies of clusters: `tartan_kernels::linkage` on NumPy arrays.

use std::fs::File;
use std::os::fd::BorrowedFd;

use numpy::{
    Element, IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods,
};
use pyo3::exceptions::{
    PyIndexError, PyKeyError, PyOSError, PyOverflowError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use tartan_kernels::linkage::{
    self as kernels, ArrayRows, FileRows, HierarchyRow, ItemRows, KeptRows, LinkageMethod, Log,
    Unjoined, Values,
};

use crate::in_order::InOrder;
use crate::report::reporting;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_rows, module)?)?;
    module.add_function(wrap_pyfunction!(dendrogram, module)?)
}

type Steps<'py> = Bound<'py, PyArray2<f64>>;

/// Join by rows: a square array, or the descriptor of a file, where the rows begin in it, their number and type.
#[pyfunction]
#[pyo3(signature = (rows, method, *, scale=1.0, level=None, kept=None, log=None, report=None))]
#[allow(clippy::too_many_arguments)] // the names are those of Python
fn link_rows<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    method: &str,
    scale: f64,
    level: Option<f64>,
    kept: Option<i32>,
    log: Option<(i32, u64)>,
    report: Option<Py<PyAny>>,
) -> PyResult<Steps<'py>> {
    let call = Call {
        method: method_of(method)?,
        values: Values { scale, level },
        kept: match kept {
            None => KeptRows::in_memory(),
            Some(descriptor) => KeptRows::in_file(file_of(descriptor)?),
        },
        log: match log {
            None => None,
            Some((descriptor, start)) => Some(Log::new(file_of(descriptor)?, start)),
        },
        report,
    };
    if let Ok((descriptor, start, n, kind)) = rows.extract::<(i32, u64, usize, String)>() {
        let (file, values) = (file_of(descriptor)?, call.values);
        return match kind.as_str() {
            "int16" => call.join(py, FileRows::<i16>::new(file, start, n, values)),
            "float32" => call.join(py, FileRows::<f32>::new(file, start, n, values)),
            "float64" => call.join(py, FileRows::<f64>::new(file, start, n, values)),
            _ => Err(PyValueError::new_err(format!("type {kind:?} is unknown"))),
        };
    }
    if let Ok(array) = rows.cast::<PyArray2<i16>>() {
        return call.join_array(py, array);
    }
    if let Ok(array) = rows.cast::<PyArray2<f32>>() {
        return call.join_array(py, array);
    }
    if let Ok(array) = rows.cast::<PyArray2<f64>>() {
        return call.join_array(py, array);
    }
    Err(PyTypeError::new_err(
        "rows must be a two-dimensional array of int16, float32 or float64, or (descriptor, start, n, type)",
    ))
}

struct Call {
    method: LinkageMethod,
    values: Values,
    kept: KeptRows,
    log: Option<Log>,
    report: Option<Py<PyAny>>,
}

impl Call {
    fn join_array<'py, T: Element + Sync>(
        self,
        py: Python<'py>,
        array: &Bound<'py, PyArray2<T>>,
    ) -> PyResult<Steps<'py>>
    where
        for<'a> ArrayRows<'a, T>: ItemRows,
    {
        let [n, columns] = [array.shape()[0], array.shape()[1]];
        if n != columns || n == 0 {
            return Err(PyValueError::new_err(format!(
                "rows have shape ({n}, {columns}); they must be square"
            )));
        }
        let readable =
            (array.try_readonly()).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let values = self.values;
        self.join(py, ArrayRows::new(readable.in_order()?, n, values))
    }

    fn join<'py>(self, py: Python<'py>, mut items: impl ItemRows + Send) -> PyResult<Steps<'py>> {
        let mut raised = None;
        let Call {
            method,
            kept,
            log,
            report,
            ..
        } = self;
        let steps = py.detach(|| {
            let goes_on = reporting(report, &mut raised);
            kernels::link_rows(&mut items, kept, log, method, goes_on)
        });
        match raised {
            Some(error) => Err(error),
            None => to_array(py, steps),
        }
    }
}

/// Return a file of its own of an open descriptor.
fn file_of(descriptor: i32) -> PyResult<File> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!(
            "descriptor {descriptor} is below 0"
        )));
    }
    // SAFETY: the descriptor is borrowed for this one call, in which the caller keeps it open; a closed one is EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let owned = borrowed.try_clone_to_owned().map_err(os_error)?;
    Ok(File::from(owned))
}

/// Return an OSError with the number of the system.
fn os_error(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

fn method_of(name: &str) -> PyResult<LinkageMethod> {
    match name {
        "complete" => Ok(LinkageMethod::Complete),
        "average" => Ok(LinkageMethod::Average),
        "weighted" => Ok(LinkageMethod::Weighted),
        "ward" => Ok(LinkageMethod::Ward),
        "ward unsquared" => Ok(LinkageMethod::WardUnsquared),
        _ => Err(PyValueError::new_err(format!("method {name:?} is unknown"))),
    }
}

#[pyfunction]
fn dendrogram<'py>(
    py: Python<'py>,
    n: usize,
    i: PyReadonlyArray1<'py, i64>,
    j: PyReadonlyArray1<'py, i64>,
    distances: PyReadonlyArray1<'py, f64>,
) -> PyResult<Steps<'py>> {
    let (i, j, distances) = (i.in_order()?, j.in_order()?, distances.in_order()?);
    if i.len() != j.len() || i.len() != distances.len() || i.len() + 1 != n {
        return Err(PyValueError::new_err(format!(
            "a tree of {n} items has one edge less, and a distance for each"
        )));
    }
    if i.iter()
        .chain(j)
        .any(|&item| item < 0 || item as usize >= n)
    {
        return Err(PyValueError::new_err(format!(
            "edges must join two of the {n} items"
        )));
    }
    let ends = i.iter().zip(j).map(|(&a, &b)| (a as usize, b as usize));
    let edges = ends
        .zip(distances)
        .map(|((a, b), &distance)| (a, b, distance));
    to_array(py, py.detach(|| kernels::dendrogram(n, edges)))
}

fn to_array(py: Python<'_>, steps: Result<Vec<HierarchyRow>, Unjoined>) -> PyResult<Steps<'_>> {
    let steps = steps.map_err(to_error)?;
    let n_steps = steps.len();
    steps
        .into_flattened()
        .into_pyarray(py)
        .reshape([n_steps, 4])
}

fn to_error(problem: Unjoined) -> PyErr {
    let text = match problem {
        Unjoined::Io(error) => return os_error(error),
        Unjoined::Missing(item) => return PyIndexError::new_err(item),
        Unjoined::NotFinite => {
            return PyOverflowError::new_err("distances or their means exceed the largest float64")
        }
        Unjoined::Stopped => "stopped",
        Unjoined::Asymmetric => "distances of both directions of a pair differ",
        Unjoined::Circle => "the edges close a circle; they are not a tree",
        Unjoined::ForeignLog => return PyKeyError::new_err("the log is not one of these rows"),
    };
    PyValueError::new_err(text)
}
