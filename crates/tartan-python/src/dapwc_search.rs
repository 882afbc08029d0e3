//! The local search of pairwise clustering: `tartan_kernels::dapwc::Measured` on NumPy arrays.

use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use tartan_kernels::dapwc::{Measured, Partition};

use crate::dapwc::{as_swapped, same, shape, unsupported, value_error, AnyArray, Out};
use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pwc_sum_up, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_relabel, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_sweep, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_among, module)?)
}

/// How a matrix is stored: with swapped bytes, and what turns its values into dissimilarities: scale and level.
type Measure = (bool, f64, f64);

/// Labels (n,), sums to the clusters (k, n), and sizes and sums within the clusters (2, k).
type Labels<'py> = PyReadwriteArray1<'py, i64>;

/// Take a step on a square matrix of any stored type, whose side is `n`, without the interpreter.
macro_rules! on_stored {
    ($py:expr, $array:expr, $measure:expr, $n:expr, |$matrix:ident| $step:expr) => {{
        let (swapped, scale, level) = $measure;
        macro_rules! on {
            ($type:ty, $cast:expr) => {
                if let Ok(array) = $array.cast::<PyArray2<$type>>() {
                    let array = array.try_readonly().map_err(value_error)?;
                    let n = $n;
                    same(shape(&array) == [n, n])?;
                    let stored = $cast(array.in_order()?);
                    let $matrix = Measured {
                        stored,
                        n,
                        scale,
                        level,
                    };
                    return Ok($py.detach(|| $step));
                }
            };
        }
        if swapped {
            on!(i16, as_swapped);
        } else {
            on!(i16, |values| values);
            on!(f32, |values| values);
            on!(f64, |values| values);
        }
        Err(unsupported())
    }};
}

fn division<'a>(
    labels: &'a mut Labels,
    to_clusters: &'a mut Out,
    totals: &'a mut Out,
) -> PyResult<Partition<'a>> {
    let k = totals.shape()[1];
    same(to_clusters.shape() == [k, labels.len()] && totals.shape()[0] == 2)?;
    let labels = labels.in_order_mut()?;
    let known = |label: &i64| usize::try_from(*label).is_ok_and(|label| label < k);
    same(labels.iter().all(known))?;
    let (sizes, within) = totals.in_order_mut()?.split_at_mut(k);
    Ok(Partition {
        labels,
        to_clusters: to_clusters.in_order_mut()?,
        sizes,
        within,
    })
}

/// Whether items are numbers below `n`.
fn are_items(items: &[i64], n: usize) -> bool {
    let known = |item: &i64| usize::try_from(*item).is_ok_and(|item| item < n);
    items.iter().all(known)
}

#[pyfunction]
fn pwc_sum_up<'py>(
    py: Python<'py>,
    stored: AnyArray,
    measure: Measure,
    mut labels: Labels<'py>,
    mut to_clusters: Out<'py>,
    mut totals: Out<'py>,
) -> PyResult<()> {
    let mut division = division(&mut labels, &mut to_clusters, &mut totals)?;
    let n = division.labels.len();
    on_stored!(py, stored, measure, n, |matrix| matrix
        .sum_up(&mut division))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)] // the matrix, the clusters, and which items go where
fn pwc_relabel<'py>(
    py: Python<'py>,
    stored: AnyArray,
    measure: Measure,
    mut labels: Labels<'py>,
    mut to_clusters: Out<'py>,
    mut totals: Out<'py>,
    items: PyReadonlyArray1<i64>,
    to: usize,
) -> PyResult<()> {
    let mut division = division(&mut labels, &mut to_clusters, &mut totals)?;
    let (n, items) = (division.labels.len(), items.in_order()?);
    same(are_items(items, n) && to < division.sizes.len())?;
    on_stored!(py, stored, measure, n, |matrix| matrix.relabel(
        &mut division,
        items,
        to
    ))
}

#[pyfunction]
fn pwc_sweep<'py>(
    py: Python<'py>,
    stored: AnyArray,
    measure: Measure,
    mut labels: Labels<'py>,
    mut to_clusters: Out<'py>,
    mut totals: Out<'py>,
    least: f64,
) -> PyResult<usize> {
    let mut division = division(&mut labels, &mut to_clusters, &mut totals)?;
    let n = division.labels.len();
    on_stored!(py, stored, measure, n, |matrix| matrix
        .sweep(&mut division, least))
}

#[pyfunction]
fn pwc_among(
    py: Python,
    stored: AnyArray,
    measure: Measure,
    items: PyReadonlyArray1<i64>,
    mut values: Out,
) -> PyResult<()> {
    let (n, items) = (
        stored.shape().first().copied().unwrap_or(0),
        items.in_order()?,
    );
    same(are_items(items, n) && values.shape() == [items.len(), items.len()])?;
    let values = values.in_order_mut()?;
    on_stored!(py, stored, measure, n, |matrix| matrix.among(items, values))
}
