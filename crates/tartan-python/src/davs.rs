//! Soft clusters of points with a sponge: `tartan_kernels::davs` on NumPy arrays.

use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tartan_kernels::davs::{self, CentreLists, Centres, ListLimits, SpongePass};

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sponge_lists, module)?)?;
    module.add_function(wrap_pyfunction!(sponge_assign, module)?)?;
    module.add_function(wrap_pyfunction!(sponge_moments, module)?)?;
    module.add_function(wrap_pyfunction!(sponge_label, module)?)?;
    module.add_function(wrap_pyfunction!(sponge_sum, module)?)
}

type Vector<'py, T> = PyReadonlyArray1<'py, T>;
type Matrix<'py, T> = PyReadonlyArray2<'py, T>;
type OwnedLists<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u16>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
);
/// Positions and weights of centres.
type CentreArrays<'py> = (Matrix<'py, f64>, Matrix<'py, f64>);
/// Points of a chunk, then the four arrays of lists.
type ListArrays<'py> = (
    usize,
    Vector<'py, u64>,
    Vector<'py, u16>,
    Vector<'py, u64>,
    Vector<'py, u32>,
);
/// Temperature, cut, logarithms of the priors, and the sponge's.
type StepArrays<'py> = (f64, f64, Vector<'py, f64>, Option<(f64, f64)>);

#[pyfunction]
fn sponge_lists<'py>(
    py: Python<'py>,
    points: Matrix<f64>,
    centres: CentreArrays,
    limits: (usize, usize, f64),
    chunk: usize,
) -> PyResult<OwnedLists<'py>> {
    let (values, centres) = (points.in_order()?, centres_of(&centres)?);
    require(
        points.shape()[1] == centres.dim,
        "points and centres have unlike dimensions",
    )?;
    let (most, least, reach) = limits;
    require(
        least >= 1 && most >= least,
        "lists must hold one centre or more",
    )?;
    let fits = chunk >= 1 && chunk.saturating_mul(most) <= usize::from(u16::MAX);
    require(fits, "chunks are too long for their lists")?;
    let lists =
        py.detach(|| davs::build(values, centres, ListLimits { most, least, reach }, chunk));
    Ok((
        lists.starts.into_pyarray(py),
        lists.entries.into_pyarray(py),
        lists.chunk_starts.into_pyarray(py),
        lists.chunk_centres.into_pyarray(py),
    ))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn sponge_assign(
    py: Python<'_>,
    points: Matrix<f64>,
    lists: ListArrays,
    centres: CentreArrays,
    step: StepArrays,
    memory: &Bound<'_, PyArray1<f32>>,
    sums: &Bound<'_, PyArray2<f64>>,
    totals: &Bound<'_, PyArray2<f64>>,
) -> PyResult<()> {
    let (values, lists, centres, step) = inputs(&points, &lists, &centres, &step)?;
    let rows = lists.chunk_centres.len();
    require(
        sums.shape() == [rows, centres.dim + 2],
        "sums have the wrong shape",
    )?;
    require(
        totals.shape() == [lists.chunk_starts.len() - 1, 3],
        "totals have the wrong shape",
    )?;
    require(
        memory.len() == lists.entries.len(),
        "memory has the wrong length",
    )?;
    let (mut memory, mut sums, mut totals) = (
        memory.try_readwrite()?,
        sums.try_readwrite()?,
        totals.try_readwrite()?,
    );
    let (memory, sums, totals) = (
        memory.in_order_mut()?,
        sums.in_order_mut()?,
        totals.in_order_mut()?,
    );
    py.detach(|| davs::assign(values, lists, centres, step, memory, sums, totals));
    Ok(())
}

#[pyfunction]
fn sponge_moments(
    py: Python<'_>,
    points: Matrix<f64>,
    lists: ListArrays,
    centres: CentreArrays,
    step: StepArrays,
    sums: &Bound<'_, PyArray2<f64>>,
) -> PyResult<()> {
    let (values, lists, centres, step) = inputs(&points, &lists, &centres, &step)?;
    let shape = [lists.chunk_centres.len(), davs::moments_width(centres.dim)];
    require(sums.shape() == shape, "sums have the wrong shape")?;
    let mut sums = sums.try_readwrite()?;
    let sums = sums.in_order_mut()?;
    py.detach(|| davs::moments(values, lists, centres, step, sums));
    Ok(())
}

#[pyfunction]
fn sponge_label(
    py: Python<'_>,
    points: Matrix<f64>,
    lists: ListArrays,
    centres: CentreArrays,
    offsets: Vector<f64>,
    labels: &Bound<'_, PyArray1<i64>>,
    energies: &Bound<'_, PyArray1<f64>>,
) -> PyResult<()> {
    let step = (1.0, 1.0, offsets, None);
    let (values, lists, centres, step) = inputs(&points, &lists, &centres, &step)?;
    let n = points.shape()[0];
    require(
        labels.len() == n && energies.len() == n,
        "outputs have the wrong length",
    )?;
    let (mut labels, mut energies) = (labels.try_readwrite()?, energies.try_readwrite()?);
    let (labels, energies) = (labels.in_order_mut()?, energies.in_order_mut()?);
    py.detach(|| davs::label(values, lists, centres, step.log_priors, labels, energies));
    Ok(())
}

#[pyfunction]
fn sponge_sum<'py>(
    py: Python<'py>,
    chunk_centres: Vector<u32>,
    sums: Matrix<f64>,
    n_centres: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (numbers, values, width) = (chunk_centres.in_order()?, sums.in_order()?, sums.shape()[1]);
    let fits = numbers.len() == sums.shape()[0] && width > 0;
    require(
        fits,
        "there must be one row of sums for each centre of each chunk",
    )?;
    let known = numbers.iter().all(|&number| (number as usize) < n_centres);
    require(known, "a chunk names a centre that is not there")?;
    let out = PyArray2::zeros(py, [n_centres, width], false);
    let mut writable = out.readwrite();
    let total = writable.in_order_mut()?;
    py.detach(|| davs::sum_chunks(numbers, values, width, total));
    drop(writable);
    Ok(out)
}

type Inputs<'a> = (&'a [f64], CentreLists<'a>, Centres<'a>, SpongePass<'a>);

fn inputs<'a>(
    points: &'a Matrix<f64>,
    lists: &'a ListArrays,
    centres: &'a CentreArrays,
    step: &'a StepArrays,
) -> PyResult<Inputs<'a>> {
    let centres = centres_of(centres)?;
    require(
        points.shape()[1] == centres.dim,
        "points and centres have unlike dimensions",
    )?;
    let n_centres = centres.positions.len() / centres.dim;
    let lists = CentreLists {
        chunk: lists.0,
        starts: slice(&lists.1)?,
        entries: slice(&lists.2)?,
        chunk_starts: slice(&lists.3)?,
        chunk_centres: slice(&lists.4)?,
    };
    lists
        .check(points.shape()[0], n_centres)
        .map_err(PyValueError::new_err)?;
    let log_priors = slice(&step.2)?;
    require(
        log_priors.len() == n_centres,
        "there must be one prior for each centre",
    )?;
    let step = SpongePass {
        temperature: step.0,
        cut: step.1,
        log_priors,
        sponge: step.3,
    };
    Ok((points.in_order()?, lists, centres, step))
}

fn centres_of<'a>(arrays: &'a CentreArrays) -> PyResult<Centres<'a>> {
    let (positions, weights) = arrays;
    let same = positions.shape() == weights.shape() && positions.shape()[1] > 0;
    require(same, "centres and weights must have the same shape")?;
    let dim = positions.shape()[1];
    Ok(Centres {
        positions: positions.in_order()?,
        weights: weights.in_order()?,
        dim,
    })
}

fn slice<'a, T: Element>(array: &'a Vector<T>) -> PyResult<&'a [T]> {
    array.in_order()
}

fn require(met: bool, message: &'static str) -> PyResult<()> {
    met.then_some(())
        .ok_or_else(|| PyValueError::new_err(message))
}
