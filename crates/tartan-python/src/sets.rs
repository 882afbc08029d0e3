//! Sets of hashes, what they share, shingles of text and sketches of DNA: `tartan_kernels::{sets, shingles, sketch}` on
//! NumPy arrays.

use numpy::{
    Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tartan_kernels::inflate::FileLimits;
use tartan_kernels::sets::{shared, Set, Weight};
use tartan_kernels::shingles;
use tartan_kernels::sketch::scores::{score, Extent, Scores};
use tartan_kernels::sketch::{self, K_RANGE};

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(shared_counts, module)?)?;
    module.add_function(wrap_pyfunction!(shared_products, module)?)?;
    module.add_function(wrap_pyfunction!(hash_texts, module)?)?;
    module.add_function(wrap_pyfunction!(hash_shingles, module)?)?;
    module.add_function(wrap_pyfunction!(sketch_dna, module)?)?;
    module.add_function(wrap_pyfunction!(parse_hashes, module)?)?;
    module.add_function(wrap_pyfunction!(score_sketches, module)?)
}

type Arrays<'py, T> = Vec<PyReadonlyArray1<'py, T>>;

fn borrow<'py, T: Element>(arrays: &Bound<'py, PyList>) -> PyResult<Arrays<'py, T>> {
    arrays.iter().map(|array| Ok(array.extract()?)).collect()
}

#[pyfunction]
fn shared_counts<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyList>,
    columns: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyArray2<i32>>> {
    let (rows, columns) = (borrow::<u64>(rows)?, borrow::<u64>(columns)?);
    let longest = rows.iter().chain(&columns).map(|array| array.len()).max();
    let units = vec![(); longest.unwrap_or(0)];
    tile(
        py,
        &unweighted(&rows, &units)?,
        &unweighted(&columns, &units)?,
    )
}

fn unweighted<'a>(arrays: &'a Arrays<'_, u64>, units: &'a [()]) -> PyResult<Vec<Set<'a, ()>>> {
    let whole = |array: &'a PyReadonlyArray1<'_, u64>| {
        let hashes = array.in_order()?;
        let weights = &units[..hashes.len()];
        Ok(Set { hashes, weights })
    };
    arrays.iter().map(whole).collect()
}

#[pyfunction]
fn shared_products<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyList>,
    columns: &Bound<'py, PyList>,
    row_weights: &Bound<'py, PyList>,
    column_weights: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (rows, columns) = (borrow(rows)?, borrow(columns)?);
    let (row_weights, column_weights) = (borrow(row_weights)?, borrow(column_weights)?);
    tile(
        py,
        &weighted(&rows, &row_weights)?,
        &weighted(&columns, &column_weights)?,
    )
}

fn weighted<'a>(
    arrays: &'a Arrays<'_, u64>,
    weights: &'a Arrays<'_, f64>,
) -> PyResult<Vec<Set<'a, f64>>> {
    if arrays.len() != weights.len() {
        return Err(PyValueError::new_err(
            "every item needs an array of weights",
        ));
    }
    let both = arrays.iter().zip(weights);
    both.map(|(array, weights)| {
        Ok(Set {
            hashes: array.in_order()?,
            weights: weights.in_order()?,
        })
    })
    .collect()
}

fn tile<'py, W: Weight>(
    py: Python<'py>,
    rows: &[Set<'_, W>],
    columns: &[Set<'_, W>],
) -> PyResult<Bound<'py, PyArray2<W::Sum>>>
where
    W::Sum: Element,
{
    check("rows", rows)?;
    check("columns", columns)?;
    let out = PyArray2::<W::Sum>::zeros(py, [rows.len(), columns.len()], false);
    {
        let mut writable = out.readwrite();
        let sums = writable.in_order_mut()?;
        py.detach(|| shared(rows, columns, sums));
    }
    Ok(out)
}

/// Check that each set is in order; the error names the first that is not.
fn check<W: Weight>(side: &str, sets: &[Set<'_, W>]) -> PyResult<()> {
    match sets.iter().position(|set| !set.fits()) {
        None => Ok(()),
        Some(place) => Err(PyValueError::new_err(format!(
            "item {place} of {side} is not a set: its hashes must ascend, each once, and have as many weights"
        ))),
    }
}

#[pyfunction]
fn hash_texts<'py>(py: Python<'py>, texts: Vec<Bound<'py, PyBytes>>) -> Bound<'py, PyArray1<u64>> {
    let hashes = texts.iter().map(|text| sketch::hash_text(text.as_bytes()));
    PyArray1::from_iter(py, hashes)
}

#[pyfunction]
fn hash_shingles<'py>(
    py: Python<'py>,
    text: &str,
    n: usize,
    words: bool,
) -> Bound<'py, PyArray1<u64>> {
    let hashes = py.detach(|| shingles::hash_shingles(text, n, words));
    PyArray1::from_vec(py, hashes)
}

#[pyfunction]
#[pyo3(signature = (data, k, max_hash, *, max_bytes = 2 << 30, max_ratio = 200, memory_bytes = u64::MAX))]
fn sketch_dna<'py>(
    py: Python<'py>,
    data: &[u8],
    k: usize,
    max_hash: u64,
    max_bytes: u64,
    max_ratio: u64,
    memory_bytes: u64,
) -> PyResult<Bound<'py, PyTuple>> {
    if !K_RANGE.contains(&k) {
        let (least, most) = (K_RANGE.start(), K_RANGE.end());
        return Err(PyValueError::new_err(format!(
            "k={k} is outside {least}..{most}"
        )));
    }
    let limits = FileLimits {
        max_bytes,
        max_ratio,
    };
    let found = py
        .detach(|| sketch::sketch(data, k, max_hash, limits, memory_bytes))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let numbers = [found.n_letters, found.n_known, found.n_gc, found.n_records];
    PyTuple::new(
        py,
        [
            PyArray1::from_vec(py, found.hashes).into_any(),
            PyArray1::from_vec(py, found.lengths).into_any(),
            PyArray1::from_slice(py, &numbers).into_any(),
        ],
    )
}

/// Read what is known of sketches, a row each: size, own, complete.
fn read_extents(rows: &PyReadonlyArray2<'_, f64>) -> PyResult<Vec<Extent>> {
    if rows.shape()[1] != 3 {
        return Err(PyValueError::new_err("a sketch is known by three numbers"));
    }
    let extent = |row: &[f64]| Extent {
        size: row[0],
        own: row[1],
        complete: row[2],
    };
    Ok(rows.in_order()?.chunks_exact(3).map(extent).collect())
}

#[pyfunction]
fn parse_hashes<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let text = text.as_bytes();
    let found = py.detach(|| sketch::parse_numbers(text));
    let numbers =
        found.ok_or_else(|| PyValueError::new_err("no list of whole numbers of 64 bits"))?;
    Ok(PyArray1::from_vec(py, numbers))
}

#[pyfunction]
fn score_sketches<'py>(
    py: Python<'py>,
    shared: PyReadonlyArray2<'py, i32>,
    left: PyReadonlyArray2<'py, f64>,
    right: PyReadonlyArray2<'py, f64>,
    k: usize,
    scaled: f64,
) -> PyResult<Bound<'py, PyTuple>> {
    let shape = [left.shape()[0], right.shape()[0]];
    let (left, right) = (read_extents(&left)?, read_extents(&right)?);
    if shared.shape() != shape || k == 0 {
        return Err(PyValueError::new_err(format!(
            "counts of shape {:?} and sketches of {shape:?} do not fit, or k is 0",
            shared.shape()
        )));
    }
    let found: [Bound<'py, PyArray2<f32>>; 4] =
        std::array::from_fn(|_| PyArray2::zeros(py, shape, false));
    {
        let [mut ani, mut error, mut containment, mut jaccard] =
            [&found[0], &found[1], &found[2], &found[3]].map(|array| array.readwrite());
        let out = Scores {
            ani: ani.in_order_mut()?,
            error: error.in_order_mut()?,
            containment: containment.in_order_mut()?,
            jaccard: jaccard.in_order_mut()?,
        };
        let shared = shared.in_order()?;
        py.detach(|| score(shared, &left, &right, k, scaled, out));
    }
    PyTuple::new(py, found)
}
