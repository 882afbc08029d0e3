//! Composition vectors from FASTA and their distances: `tartan_kernels::{fasta, phylogeny, sparse}` on NumPy
//! arrays.

use std::cell::RefCell;

use numpy::{Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tartan_kernels::allowance::Exceeded;
use tartan_kernels::fasta::{self, FastaError, Unknown};
use tartan_kernels::inflate::FileLimits;
use tartan_kernels::phylogeny::{Composition, Counter, Vector, Word, K_NARROW, K_RANGE};
use tartan_kernels::sparse;

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(composition_vector, module)?)?;
    module.add_function(wrap_pyfunction!(composition_distances, module)?)
}

/// Memory of one thread, kept between files.
#[derive(Default)]
struct Scratch {
    narrow: Counter<u32>,
    wide: Counter<u64>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[pyfunction]
#[pyo3(signature = (data, k, *, map_unknown = false, max_bytes = 2 << 30, max_ratio = 200, memory_bytes = u64::MAX))]
fn composition_vector<'py>(
    py: Python<'py>,
    data: &[u8],
    k: usize,
    map_unknown: bool,
    max_bytes: u64,
    max_ratio: u64,
    memory_bytes: u64,
) -> PyResult<Bound<'py, PyTuple>> {
    check_k(k)?;
    let unknown = if map_unknown {
        Unknown::Map
    } else {
        Unknown::Skip
    };
    let limits = FileLimits {
        max_bytes,
        max_ratio,
    };
    let read = |sink: Sink<'_>| fasta::read(data, unknown, limits, sink);
    SCRATCH.with_borrow_mut(|Scratch { narrow, wide }| {
        if k <= K_NARROW {
            count(py, narrow, k, memory_bytes, read)
        } else {
            count(py, wide, k, memory_bytes, read)
        }
    })
}

/// Takes the codes of a file, a piece at a time.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Exceeded>;

fn count<'py, W: Element + Word>(
    py: Python<'py>,
    counter: &mut Counter<W>,
    k: usize,
    memory_bytes: u64,
    read: impl FnOnce(Sink<'_>) -> Result<(), FastaError> + Send,
) -> PyResult<Bound<'py, PyTuple>> {
    let vector = py
        .detach(|| {
            let mut counting = counter.start(k, memory_bytes);
            read(&mut |piece| counting.push(piece))?;
            Ok(counting.finish()?)
        })
        .map_err(|error: FastaError| PyValueError::new_err(error.to_string()))?;
    arrays(py, vector)
}

/// The arrays of a vector; they own its memory.
fn arrays<'py, W: Element + Word>(
    py: Python<'py>,
    vector: Vector<W>,
) -> PyResult<Bound<'py, PyTuple>> {
    let summary = vector.summary;
    let numbers = [
        summary.norm,
        summary.n_expected as f64,
        summary.n_windows[0] as f64,
    ];
    let n_middles = vector.middles.len();
    let masks = PyArray1::from_vec(py, vector.masks).reshape([n_middles, 2])?;
    PyTuple::new(
        py,
        [
            PyArray1::from_vec(py, vector.middles).into_any(),
            masks.into_any(),
            PyArray1::from_vec(py, vector.codes).into_any(),
            PyArray1::from_vec(py, vector.values).into_any(),
            PyArray1::from_slice(py, &numbers).into_any(),
        ],
    )
}

#[pyfunction]
fn composition_distances<'py>(
    py: Python<'py>,
    left: &Bound<'py, PyList>,
    right: &Bound<'py, PyList>,
    k: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    check_k(k)?;
    if k <= K_NARROW {
        tile::<u32>(py, left, right, k)
    } else {
        tile::<u64>(py, left, right, k)
    }
}

fn tile<'py, W: Element + Word>(
    py: Python<'py>,
    left: &Bound<'py, PyList>,
    right: &Bound<'py, PyList>,
    k: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (left, right) = (borrow::<W>(left)?, borrow::<W>(right)?);
    let left_views = left.iter().map(Item::view).collect::<PyResult<Vec<_>>>()?;
    let right_views = right.iter().map(Item::view).collect::<PyResult<Vec<_>>>()?;
    let out = PyArray2::<f64>::zeros(py, [left.len(), right.len()], false);
    {
        let mut writable = out.readwrite();
        let scores = writable.in_order_mut()?;
        py.detach(|| sparse::distances(&left_views, &right_views, k, scores));
    }
    Ok(out)
}

type Item<'py, W> = ItemArrays<'py, W>;

/// The arrays of one item, borrowed for the time of a call.
struct ItemArrays<'py, W: Element> {
    middles: PyReadonlyArray1<'py, W>,
    masks: PyReadonlyArray2<'py, u32>,
    codes: PyReadonlyArray1<'py, u16>,
    values: PyReadonlyArray1<'py, f32>,
    numbers: PyReadonlyArray1<'py, f64>,
}

fn borrow<'py, W: Element>(items: &Bound<'py, PyList>) -> PyResult<Vec<Item<'py, W>>> {
    items
        .iter()
        .map(|item| {
            let (middles, masks, codes, values, numbers) = item.extract()?;
            Ok(ItemArrays {
                middles,
                masks,
                codes,
                values,
                numbers,
            })
        })
        .collect()
}

impl<W: Element + Word> ItemArrays<'_, W> {
    fn view(&self) -> PyResult<Composition<'_, W>> {
        let vector = Composition {
            middles: self.middles.in_order()?,
            masks: self.masks.in_order()?,
            codes: self.codes.in_order()?,
            values: self.values.in_order()?,
            norm: *self.numbers.in_order()?.first().ok_or_else(misfit)?,
        };
        vector.fits().then_some(vector).ok_or_else(misfit)
    }
}

fn misfit() -> PyErr {
    PyValueError::new_err("the arrays of a composition vector do not fit each other")
}

fn check_k(k: usize) -> PyResult<()> {
    if K_RANGE.contains(&k) {
        return Ok(());
    }
    let (least, most) = (K_RANGE.start(), K_RANGE.end());
    Err(PyValueError::new_err(format!(
        "k={k} is outside {least}..{most}"
    )))
}
