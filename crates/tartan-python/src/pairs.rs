//! Pairs in the order of their scores: `tartan_kernels::pairs` and `spanning` on NumPy arrays.

use numpy::{
    IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tartan_kernels::pairs::{self, Block};
use tartan_kernels::spanning::Forest;

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(encode_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(count_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(decode_pairs, module)?)?;
    module.add_class::<SpanningForest>()
}

fn block<'a>(
    scores: &'a PyReadonlyArray2<f32>,
    codes: &'a PyReadonlyArray2<u8>,
) -> PyResult<Block<'a>> {
    if scores.shape() != codes.shape() {
        return Err(PyValueError::new_err("scores and codes differ in shape"));
    }
    Ok(Block {
        scores: scores.in_order()?,
        codes: codes.in_order()?,
        width: scores.shape()[1],
    })
}

#[pyfunction]
fn encode_pairs<'py>(
    py: Python<'py>,
    scores: PyReadonlyArray2<'py, f32>,
    codes: PyReadonlyArray2<'py, u8>,
    row: usize,
    column: usize,
    descending: bool,
    last: u32,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let block = block(&scores, &codes)?;
    let (rows, columns) = (scores.shape()[0], scores.shape()[1]);
    if row + rows > pairs::MOST_ITEMS || column + columns > pairs::MOST_ITEMS {
        return Err(PyValueError::new_err("an index has more than 16 bits"));
    }
    let words = py.detach(|| {
        let mut words = Vec::with_capacity(block.scores.len());
        pairs::encode(block, row, column, descending, last, &mut words);
        words
    });
    Ok(words.into_pyarray(py))
}

#[pyfunction]
fn count_pairs<'py>(
    py: Python<'py>,
    scores: PyReadonlyArray2<'py, f32>,
    codes: PyReadonlyArray2<'py, u8>,
    descending: bool,
    mut counts: PyReadwriteArray1<'py, u64>,
) -> PyResult<()> {
    let block = block(&scores, &codes)?;
    let counts = counts.in_order_mut()?;
    if counts.len() != 1 << 16 {
        return Err(PyValueError::new_err("counts must have 65,536 elements"));
    }
    py.detach(|| pairs::count(block, descending, counts));
    Ok(())
}

type Columns<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f32>>,
);

#[pyfunction]
fn decode_pairs<'py>(
    py: Python<'py>,
    words: PyReadonlyArray1<'py, u64>,
    descending: bool,
) -> PyResult<Columns<'py>> {
    let words = words.in_order()?;
    let (i, j, scores) = py.detach(|| {
        let (mut i, mut j, mut scores) = (
            vec![0; words.len()],
            vec![0; words.len()],
            vec![0.0; words.len()],
        );
        pairs::decode(words, descending, &mut i, &mut j, &mut scores);
        (i, j, scores)
    });
    Ok((
        i.into_pyarray(py),
        j.into_pyarray(py),
        scores.into_pyarray(py),
    ))
}

/// `tartan_kernels::spanning::Forest`.
#[pyclass(module = "tartan._native")]
struct SpanningForest {
    forest: Forest,
}

#[pymethods]
impl SpanningForest {
    #[new]
    fn new(n: usize) -> Self {
        SpanningForest {
            forest: Forest::new(n),
        }
    }

    #[getter]
    fn trees(&self) -> usize {
        self.forest.trees()
    }

    fn offer<'py>(
        &mut self,
        py: Python<'py>,
        i: PyReadonlyArray1<'py, i64>,
        j: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let (i, j) = (i.in_order()?, j.in_order()?);
        let n = self.forest.len() as i64;
        if i.len() != j.len() || i.iter().chain(j).any(|&vertex| vertex < 0 || vertex >= n) {
            return Err(PyValueError::new_err(format!(
                "edges must join two of the vertices 0 to {}",
                n - 1
            )));
        }
        Ok(py.detach(|| self.forest.offer(i, j)).into_pyarray(py))
    }
}
