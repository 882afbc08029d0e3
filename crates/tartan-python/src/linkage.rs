//! Hierarchies of clusters: `tartan_kernels::linkage` on NumPy arrays.

use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tartan_kernels::linkage::{self as kernels, HierarchyRow, LinkageMethod, Unjoined};

use crate::in_order::{InOrder, InOrderMut};
use crate::report::reporting;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(linkage, module)?)?;
    module.add_function(wrap_pyfunction!(dendrogram, module)?)
}

type Steps<'py> = Bound<'py, PyArray2<f64>>;

#[pyfunction]
#[pyo3(signature = (pairs, n, method, report=None))]
fn linkage<'py>(
    py: Python<'py>,
    mut pairs: PyReadwriteArray1<'py, f64>,
    n: usize,
    method: &str,
    report: Option<Py<PyAny>>,
) -> PyResult<Steps<'py>> {
    let method = method_of(method)?;
    let values = pairs.in_order_mut()?;
    if n == 0 || n.checked_mul(n - 1) != Some(2 * values.len()) {
        let given = values.len();
        return Err(PyValueError::new_err(format!(
            "{given} distances are not those of all pairs of {n} items"
        )));
    }
    let mut raised = None;
    let steps =
        py.detach(|| kernels::link_while(values, n, method, reporting(report, &mut raised)));
    match raised {
        Some(error) => Err(error),
        None => to_array(py, steps),
    }
}

fn method_of(name: &str) -> PyResult<LinkageMethod> {
    match name {
        "complete" => Ok(LinkageMethod::Complete),
        "average" => Ok(LinkageMethod::Average),
        "weighted" => Ok(LinkageMethod::Weighted),
        "ward" => Ok(LinkageMethod::Ward),
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
    let steps = steps.map_err(|problem| PyValueError::new_err(describe(problem)))?;
    let n_steps = steps.len();
    steps
        .into_flattened()
        .into_pyarray(py)
        .reshape([n_steps, 4])
}

fn describe(problem: Unjoined) -> &'static str {
    match problem {
        Unjoined::Stopped => "stopped",
        Unjoined::NotFinite => "distances or their means exceed the largest float64",
        Unjoined::Circle => "the edges close a circle; they are not a tree",
    }
}
