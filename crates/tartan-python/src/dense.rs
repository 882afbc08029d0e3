//! Tiles of dense distances: `tartan_kernels::dense` on NumPy arrays.

use std::ops::Range;

use numpy::ndarray::Axis;
use numpy::npyffi::flags::{NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE};
use numpy::{
    Element, PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1,
    PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::dense::listed::{self as pairs, ListedPairs};
use tartan_kernels::dense::terms::{self, Terms};
use tartan_kernels::dense::{self, finish, Real, Value};
use tartan_kernels::keeper::DONE;
use tartan_kernels::product;
use tartan_kernels::sparse_rows;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("REFINE_BELOW", finish::REFINE_BELOW)?;
    module.add_function(wrap_pyfunction!(manhattan_tile, module)?)?;
    module.add_function(wrap_pyfunction!(euclidean_tile, module)?)?;
    module.add_function(wrap_pyfunction!(hamming_tile, module)?)?;
    module.add_function(wrap_pyfunction!(hamming_bits_tile, module)?)?;
    module.add_function(wrap_pyfunction!(jaccard_bits_tile, module)?)?;
    module.add_function(wrap_pyfunction!(chebyshev_tile, module)?)?;
    module.add_function(wrap_pyfunction!(bray_curtis_tile, module)?)?;
    module.add_function(wrap_pyfunction!(canberra_tile, module)?)?;
    module.add_function(wrap_pyfunction!(nan_euclidean_tile, module)?)?;
    module.add_function(wrap_pyfunction!(jensen_shannon_tile, module)?)?;
    module.add_function(wrap_pyfunction!(minkowski_tile, module)?)?;
    module.add("HAS_PRODUCTS", product::available())?;
    module.add_function(wrap_pyfunction!(cosine_tile, module)?)?;
    module.add_function(wrap_pyfunction!(inner_tile, module)?)?;
    module.add_function(wrap_pyfunction!(product_tile, module)?)?;
    module.add("MOST_POSITIONS", sparse_rows::MOST_POSITIONS)?;
    module.add_function(wrap_pyfunction!(sparse_cosine_tile, module)?)?;
    module.add_function(wrap_pyfunction!(sparse_jaccard_tile, module)?)?;
    module.add_function(wrap_pyfunction!(score_listed, module)?)?;
    module.add_function(wrap_pyfunction!(finish_cosine, module)?)?;
    module.add_function(wrap_pyfunction!(finish_euclidean, module)?)
}

type AnyArray<'a, 'py> = &'a Bound<'py, PyUntypedArray>;

#[pyfunction]
fn manhattan_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    fn on<T: Element + Real>(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<bool> {
        Ok(tile(left, right, out, 0, dense::manhattan::<T, f32>)?
            || tile(left, right, out, 0, dense::manhattan::<T, f64>)?)
    }
    expect(on::<f32>(left, right, out)? || on::<f64>(left, right, out)?)
}

/// A function of Python for a kernel of two types of items and two of scores.
macro_rules! plain_tile {
    ($name:ident, $kernel:path) => {
        #[pyfunction]
        fn $name(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
            use $kernel as kernel;
            expect(
                tile(left, right, out, 0, kernel::<f32, f32>)?
                    || tile(left, right, out, 0, kernel::<f32, f64>)?
                    || tile(left, right, out, 0, kernel::<f64, f32>)?
                    || tile(left, right, out, 0, kernel::<f64, f64>)?,
            )
        }
    };
}

plain_tile!(chebyshev_tile, terms::chebyshev);
plain_tile!(bray_curtis_tile, terms::bray_curtis);
plain_tile!(canberra_tile, terms::canberra);
plain_tile!(nan_euclidean_tile, terms::nan_euclidean);

#[pyfunction]
fn jensen_shannon_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, out, 0, terms::jensen_shannon::<f32>)?
            || tile(left, right, out, 0, terms::jensen_shannon::<f64>)?,
    )
}

#[pyfunction]
fn minkowski_tile(left: AnyArray, right: AnyArray, power: f64, out: AnyArray) -> PyResult<()> {
    fn on<T: Element + Terms, S: Element + Real>(
        left: AnyArray,
        right: AnyArray,
        power: f64,
        out: AnyArray,
    ) -> PyResult<bool> {
        let kernel = |l: &[&[T]], r: &[&[T]], o: &mut [&mut [S]]| terms::minkowski(l, r, power, o);
        tile(left, right, out, 0, kernel)
    }
    expect(
        on::<f32, f32>(left, right, power, out)?
            || on::<f32, f64>(left, right, power, out)?
            || on::<f64, f32>(left, right, power, out)?
            || on::<f64, f64>(left, right, power, out)?,
    )
}

#[pyfunction]
fn euclidean_tile(left: AnyArray, right: AnyArray, root: bool, out: AnyArray) -> PyResult<()> {
    fn on<T: Element + Real, S: Element + Real>(
        left: AnyArray,
        right: AnyArray,
        root: bool,
        out: AnyArray,
    ) -> PyResult<bool> {
        let kernel = |l: &[&[T]], r: &[&[T]], o: &mut [&mut [S]]| dense::euclidean(l, r, root, o);
        tile(left, right, out, 0, kernel)
    }
    expect(
        on::<f32, f32>(left, right, root, out)?
            || on::<f32, f64>(left, right, root, out)?
            || on::<f64, f32>(left, right, root, out)?
            || on::<f64, f64>(left, right, root, out)?,
    )
}

#[pyfunction]
fn hamming_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    fn on<T: Element + Value>(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<bool> {
        Ok(tile(left, right, out, 0, dense::hamming::<T, f32>)?
            || tile(left, right, out, 0, dense::hamming::<T, f64>)?)
    }
    expect(
        on::<i8>(left, right, out)?
            || on::<i16>(left, right, out)?
            || on::<i32>(left, right, out)?
            || on::<i64>(left, right, out)?,
    )
}

#[pyfunction]
fn hamming_bits_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, out, 1, dense::hamming_bits::<f32>)?
            || tile(left, right, out, 1, dense::hamming_bits::<f64>)?,
    )
}

#[pyfunction]
fn jaccard_bits_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, out, 1, dense::jaccard_bits::<f32>)?
            || tile(left, right, out, 1, dense::jaccard_bits::<f64>)?,
    )
}

/// Write cosine distances; return whether none is NaN. Blocks of which no code is DONE may be left as they are.
#[pyfunction]
#[pyo3(signature = (left, right, out, codes=None))]
fn cosine_tile(
    left: AnyArray,
    right: AnyArray,
    out: AnyArray,
    codes: Option<PyReadonlyArray2<'_, u8>>,
) -> PyResult<bool> {
    products_tile(
        left,
        right,
        out,
        codes,
        finish::cosine::<f32>,
        finish::cosine::<f64>,
    )
}

/// Write the inner products of rows; see `cosine_tile`.
#[pyfunction]
#[pyo3(signature = (left, right, out, codes=None))]
fn inner_tile(
    left: AnyArray,
    right: AnyArray,
    out: AnyArray,
    codes: Option<PyReadonlyArray2<'_, u8>>,
) -> PyResult<bool> {
    products_tile(
        left,
        right,
        out,
        codes,
        finish::inner::<f32>,
        finish::inner::<f64>,
    )
}

/// What makes scores of products: rows of both sides, codes with the one that asks for a score, and the scores.
type Finish<T> = fn(&[&[T]], &[&[T]], (Option<&[&[u8]]>, u8), &mut [&mut [T]]) -> bool;

fn products_tile(
    left: AnyArray,
    right: AnyArray,
    out: AnyArray,
    codes: Option<PyReadonlyArray2<'_, u8>>,
    single: Finish<f32>,
    double: Finish<f64>,
) -> PyResult<bool> {
    require_products()?;
    if codes
        .as_ref()
        .is_some_and(|codes| codes.shape() != out.shape())
    {
        return Err(PyValueError::new_err("out and codes differ in shape"));
    }
    let codes = codes.as_ref().map(rows).transpose()?;
    let codes = (codes.as_deref(), DONE);
    let mut numbers = true;
    let fitted = tile(left, right, out, 0, |l, r, o: &mut [&mut [f32]]| {
        numbers = single(l, r, codes, o);
    })? || tile(left, right, out, 0, |l, r, o: &mut [&mut [f64]]| {
        numbers = double(l, r, codes, o);
    })?;
    expect(fitted)?;
    Ok(numbers)
}

#[pyfunction]
fn product_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    require_products()?;
    expect(
        tile(left, right, out, 1, finish::products::<f32>)?
            || tile(left, right, out, 1, finish::products::<f64>)?,
    )
}

/// Write cosine distances of unit rows given as positions and then bits of values, uint32 of float32 or uint64 of
/// float64.
#[pyfunction]
fn sparse_cosine_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, out, 0, sparse_rows::cosine::<u32>)?
            || tile(left, right, out, 0, sparse_rows::cosine::<u64>)?,
    )
}

/// Write Jaccard distances of rows given as positions, uint32.
#[pyfunction]
fn sparse_jaccard_tile(left: AnyArray, right: AnyArray, out: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, out, 0, sparse_rows::jaccard::<f32>)?
            || tile(left, right, out, 0, sparse_rows::jaccard::<f64>)?,
    )
}

/// Write the scores of listed pairs, bit for bit those of the tile; `kernel` says which.
#[pyfunction]
fn score_listed(
    kernel: &str,
    left: AnyArray,
    right: AnyArray,
    places: (PyReadonlyArray1<'_, i64>, PyReadonlyArray1<'_, i64>),
    out: AnyArray,
) -> PyResult<()> {
    let at = (places.0.as_slice()?, places.1.as_slice()?);
    let fitted = match kernel {
        "manhattan" => {
            listed(left, right, at, out, pairs::manhattan::<f32, f32>)?
                || listed(left, right, at, out, pairs::manhattan::<f32, f64>)?
                || listed(left, right, at, out, pairs::manhattan::<f64, f32>)?
                || listed(left, right, at, out, pairs::manhattan::<f64, f64>)?
        }
        "direct euclidean" | "direct sqeuclidean" => {
            let root = kernel.ends_with(" euclidean");
            listed(left, right, at, out, |p, o| {
                pairs::euclidean::<f32, f32>(p, root, o)
            })? || listed(left, right, at, out, |p, o| {
                pairs::euclidean::<f32, f64>(p, root, o)
            })? || listed(left, right, at, out, |p, o| {
                pairs::euclidean::<f64, f32>(p, root, o)
            })? || listed(left, right, at, out, |p, o| {
                pairs::euclidean::<f64, f64>(p, root, o)
            })?
        }
        "euclidean" | "sqeuclidean" => {
            require_products()?;
            let root = kernel == "euclidean";
            listed(left, right, at, out, |p, o| {
                pairs::norm_euclidean::<f32>(p, root, o)
            })? || listed(left, right, at, out, |p, o| {
                pairs::norm_euclidean::<f64>(p, root, o)
            })?
        }
        "cosine" => {
            require_products()?;
            listed(left, right, at, out, pairs::cosine::<f32>)?
                || listed(left, right, at, out, pairs::cosine::<f64>)?
        }
        "inner" => {
            require_products()?;
            listed(left, right, at, out, pairs::inner::<f32>)?
                || listed(left, right, at, out, pairs::inner::<f64>)?
        }
        "hamming" => {
            listed(left, right, at, out, pairs::hamming::<i8, f32>)?
                || listed(left, right, at, out, pairs::hamming::<i16, f32>)?
                || listed(left, right, at, out, pairs::hamming::<i32, f32>)?
                || listed(left, right, at, out, pairs::hamming::<i64, f32>)?
                || listed(left, right, at, out, pairs::hamming::<i8, f64>)?
                || listed(left, right, at, out, pairs::hamming::<i16, f64>)?
                || listed(left, right, at, out, pairs::hamming::<i32, f64>)?
                || listed(left, right, at, out, pairs::hamming::<i64, f64>)?
        }
        "hamming bits" => {
            listed(left, right, at, out, pairs::hamming_bits::<f32>)?
                || listed(left, right, at, out, pairs::hamming_bits::<f64>)?
        }
        "jaccard bits" => {
            listed(left, right, at, out, pairs::jaccard_bits::<f32>)?
                || listed(left, right, at, out, pairs::jaccard_bits::<f64>)?
        }
        "sparse cosine" => {
            listed(left, right, at, out, sparse_rows::cosine_listed::<u32>)?
                || listed(left, right, at, out, sparse_rows::cosine_listed::<u64>)?
        }
        "sparse jaccard" => {
            listed(left, right, at, out, sparse_rows::jaccard_listed::<f32>)?
                || listed(left, right, at, out, sparse_rows::jaccard_listed::<f64>)?
        }
        other => return Err(PyValueError::new_err(format!("no kernel {other:?}"))),
    };
    expect(fitted)
}

/// Run `kernel` on listed pairs without the GIL when the dtypes are T, T and S; false when they are not.
fn listed<T: Element + Copy, S: Element>(
    left: AnyArray,
    right: AnyArray,
    (at_rows, at_columns): (&[i64], &[i64]),
    out: AnyArray,
    kernel: impl FnOnce(ListedPairs<'_, T>, &mut [S]) + Send,
) -> PyResult<bool> {
    let arrays = (
        left.cast::<PyArray2<T>>(),
        right.cast::<PyArray2<T>>(),
        out.cast::<PyArray1<S>>(),
    );
    let (Ok(left), Ok(right), Ok(out)) = arrays else {
        return Ok(false);
    };
    let (left, right) = (left.try_readonly()?, right.try_readonly()?);
    let (left, right) = (rows(&left)?, rows(&right)?);
    let mut out = out.try_readwrite()?;
    let py = out.py();
    let scores = out.as_slice_mut()?;
    let pairs = ListedPairs::new(&left, &right, at_rows, at_columns)
        .filter(|pairs| pairs.len() == scores.len())
        .ok_or_else(|| {
            PyValueError::new_err("the listed pairs, the rows and out do not fit together")
        })?;
    py.detach(|| kernel(pairs, scores));
    Ok(true)
}

fn require_products() -> PyResult<()> {
    let message = "this machine has no kernel for products; see HAS_PRODUCTS";
    product::available()
        .then_some(())
        .ok_or_else(|| PyValueError::new_err(message))
}

#[pyfunction]
fn finish_euclidean(
    left: AnyArray,
    right: AnyArray,
    root: bool,
    products: AnyArray,
) -> PyResult<()> {
    fn on<T: Element + Real>(
        left: AnyArray,
        right: AnyArray,
        root: bool,
        out: AnyArray,
    ) -> PyResult<bool> {
        let kernel =
            |l: &[&[T]], r: &[&[T]], o: &mut [&mut [T]]| finish::finish_euclidean(l, r, root, o);
        tile(left, right, out, 1, kernel)
    }
    expect(on::<f32>(left, right, root, products)? || on::<f64>(left, right, root, products)?)
}

#[pyfunction]
fn finish_cosine(left: AnyArray, right: AnyArray, products: AnyArray) -> PyResult<()> {
    expect(
        tile(left, right, products, 0, finish::finish_cosine::<f32>)?
            || tile(left, right, products, 0, finish::finish_cosine::<f64>)?,
    )
}

/// Turn "no combination of dtypes fitted" into an error.
fn expect(fitted: bool) -> PyResult<()> {
    let message = "the dtypes of the arrays are not supported together, or an array is not 2-D";
    fitted
        .then_some(())
        .ok_or_else(|| PyTypeError::new_err(message))
}

/// Run `kernel` without the GIL when the dtypes are T, T and S; false when they are not.
fn tile<T: Element, S: Element>(
    left: AnyArray,
    right: AnyArray,
    out: AnyArray,
    trailing: usize,
    kernel: impl FnOnce(&[&[T]], &[&[T]], &mut [&mut [S]]) + Send,
) -> PyResult<bool> {
    let overlapping = may_overlap(left, out) || may_overlap(right, out);
    let arrays = (
        left.cast::<PyArray2<T>>(),
        right.cast::<PyArray2<T>>(),
        out.cast::<PyArray2<S>>(),
    );
    let (Ok(left), Ok(right), Ok(out)) = arrays else {
        return Ok(false);
    };
    let (n_rows, n_columns, width) = (left.shape()[0], right.shape()[0], left.shape()[1]);
    if right.shape()[1] != width || width <= trailing || out.shape() != [n_rows, n_columns] {
        let message = format!(
            "left {:?}, right {:?} and out {:?} do not fit together",
            left.shape(),
            right.shape(),
            out.shape()
        );
        return Err(PyValueError::new_err(message));
    }
    if overlapping {
        return Err(PyValueError::new_err(
            "the output shares memory with an input",
        ));
    }
    let (left, right) = (left.try_readonly()?, right.try_readonly()?);
    let (left, right) = (rows(&left)?, rows(&right)?);
    with_rows_mut(out, |places| {
        kernel(&left, &right, places);
    })?;
    Ok(true)
}

/// The rows of an array that is read.
pub(crate) fn rows<'a, T: Element>(array: &'a PyReadonlyArray2<'_, T>) -> PyResult<Vec<&'a [T]>> {
    require(array, NPY_ARRAY_ALIGNED)?;
    let view = array.as_array();
    let row = |i| view.index_axis_move(Axis(0), i).to_slice();
    (0..view.nrows())
        .map(|i| row(i).ok_or_else(not_contiguous))
        .collect()
}

/// Run `kernel` without the GIL on the rows of an array that is written.
fn with_rows_mut<T: Element>(
    array: &Bound<'_, PyArray2<T>>,
    kernel: impl FnOnce(&mut [&mut [T]]) + Send,
) -> PyResult<()> {
    require(array, NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE)?;
    let (shape, row_bytes) = (array.shape(), std::mem::size_of::<T>() * array.shape()[1]);
    if shape[0] > 1 && array.strides()[0].unsigned_abs() < row_bytes {
        return Err(PyValueError::new_err("the rows of the output overlap"));
    }
    // SAFETY: the array is aligned, writeable, and its rows are apart (checked above). `tile` refuses inputs that
    // share memory with it. No other thread writes these elements meanwhile: that is the caller's promise, as
    // with every NumPy function that releases the GIL. The borrow checker of the numpy crate is not used, since
    // it takes two column blocks of one array, which threads fill side by side, for a conflict.
    let mut view = unsafe { array.as_array_mut() };
    let rows = view
        .outer_iter_mut()
        .map(|row| row.into_slice().ok_or_else(not_contiguous));
    let mut rows = rows.collect::<PyResult<Vec<_>>>()?;
    array.py().detach(|| kernel(&mut rows));
    Ok(())
}

/// Whether two arrays may share memory: the spans of their addresses meet.
fn may_overlap(a: AnyArray, b: AnyArray) -> bool {
    let (a, b) = (extent(a), extent(b));
    a.start < b.end && b.start < a.end
}

/// The addresses from the first to the last byte of an array.
fn extent(array: AnyArray) -> Range<isize> {
    // SAFETY: reading a field of an array object that the GIL and the reference keep alive.
    let first = unsafe { (*array.as_array_ptr()).data } as isize;
    let (mut low, mut high) = (first, first + array.dtype().itemsize() as isize);
    for (&length, &stride) in array.shape().iter().zip(array.strides()) {
        let reach = (length as isize - 1) * stride;
        low += reach.min(0);
        high += reach.max(0);
    }
    if array.is_empty() {
        first..first
    } else {
        low..high
    }
}

fn require<T: Element>(array: &Bound<'_, PyArray2<T>>, flags: i32) -> PyResult<()> {
    // SAFETY: reading a field of an array object that the GIL and the reference keep alive.
    let found = unsafe { (*array.as_array_ptr()).flags };
    let message = "arrays must be aligned, and the output writeable";
    (found & flags == flags)
        .then_some(())
        .ok_or_else(|| PyValueError::new_err(message))
}

fn not_contiguous() -> PyErr {
    PyValueError::new_err("the rows of an array must be contiguous")
}
