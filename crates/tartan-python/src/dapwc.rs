//! Pairwise clustering: `tartan_kernels::dapwc` on NumPy arrays.

use numpy::{
    Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadwriteArray1, PyReadwriteArray2, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::dapwc::{self, Below, ColumnCosts, Real, Stored, Swapped};

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pwc_padded, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_scratch_len, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_pack, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_product, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_costs, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_assign, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_nearest, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_below, module)?)?;
    module.add_function(wrap_pyfunction!(pwc_measure, module)?)
}

pub(crate) type AnyArray<'a, 'py> = &'a Bound<'py, PyUntypedArray>;
type In<'py> = PyReadonlyArray2<'py, f64>;
pub(crate) type Out<'py> = PyReadwriteArray2<'py, f64>;
type Sums<'py> = PyReadwriteArray1<'py, f64>;

#[pyfunction]
fn pwc_padded(n: usize) -> usize {
    dapwc::padded(n)
}

#[pyfunction]
fn pwc_scratch_len(n: usize, k: usize) -> usize {
    dapwc::scratch_len(n, k)
}

#[pyfunction]
fn pwc_pack(py: Python, columns: In, packed: AnyArray) -> PyResult<()> {
    fn on<F: Element + Real>(py: Python, columns: &In, packed: AnyArray) -> PyResult<bool> {
        let Ok(packed) = packed.cast::<PyArray1<F>>() else {
            return Ok(false);
        };
        let [n, k] = shape(columns);
        let mut packed = packed.try_readwrite().map_err(value_error)?;
        let (columns, packed) = (columns.in_order()?, packed.in_order_mut()?);
        same(k > 0 && packed.len() == dapwc::padded(n) * k)?;
        py.detach(|| dapwc::pack(columns, k, packed));
        Ok(true)
    }
    expect(on::<f32>(py, &columns, packed)? || on::<f64>(py, &columns, packed)?)
}

#[pyfunction]
#[pyo3(signature = (rows, swapped, packed, out, mass=None))]
fn pwc_product(
    py: Python,
    rows: AnyArray,
    swapped: bool,
    packed: AnyArray,
    out: Out,
    mass: Option<Out>,
) -> PyResult<()> {
    let mut to = Products { out, mass };
    expect(
        multiply::<i16, i16>(py, rows, packed, !swapped, |v| v, &mut to)?
            || multiply::<i16, Swapped>(py, rows, packed, swapped, as_swapped, &mut to)?
            || multiply::<f32, f32>(py, rows, packed, !swapped, |v| v, &mut to)?
            || multiply::<f64, f64>(py, rows, packed, !swapped, |v| v, &mut to)?,
    )
}

/// What a product writes.
struct Products<'py> {
    out: Out<'py>,
    mass: Option<Out<'py>>,
}

pub(crate) fn as_swapped(values: &[i16]) -> &[Swapped] {
    // SAFETY: `Swapped` is a transparent wrapper of i16.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

/// Multiply without the GIL when `rows` hold E and are wanted as T; false when they are not.
fn multiply<E: Element, T: Stored>(
    py: Python,
    rows: AnyArray,
    packed: AnyArray,
    wanted: bool,
    cast: impl Fn(&[E]) -> &[T] + Sync,
    to: &mut Products,
) -> PyResult<bool>
where
    T::Real: Element,
{
    let (Ok(rows), Ok(packed), true) = (
        rows.cast::<PyArray2<E>>(),
        packed.cast::<PyArray1<T::Real>>(),
        wanted,
    ) else {
        return Ok(false);
    };
    let (rows, packed) = (
        rows.try_readonly().map_err(value_error)?,
        packed.try_readonly().map_err(value_error)?,
    );
    let ([r, n], [out_rows, k]) = (shape(&rows), [to.out.shape()[0], to.out.shape()[1]]);
    let mass_fits = to.mass.as_ref().is_none_or(|m| m.shape() == [r, k]);
    same(n > 0 && k > 0 && out_rows == r && mass_fits)?;
    if !rows.data().is_aligned() {
        return Err(PyValueError::new_err("rows must be aligned in memory"));
    }
    let (rows, packed) = (cast(rows.in_order()?), packed.in_order()?);
    same(packed.len() == dapwc::padded(n) * k)?;
    let out = to.out.in_order_mut()?;
    let mass = to.mass.as_mut().map(|m| m.in_order_mut()).transpose()?;
    py.detach(|| dapwc::product(rows, n, packed, k, out, mass));
    Ok(true)
}

#[pyfunction]
#[allow(clippy::too_many_arguments)] // the state of one step and what is written
fn pwc_costs(
    py: Python,
    product: In,
    mass: Option<In>,
    members: In,
    scale: f64,
    unknown: f64,
    mut eps: Out,
    mut sizes: Sums,
    mut inner: Sums,
    mut change: Sums,
    mut scratch: Sums,
) -> PyResult<()> {
    let [n, k] = shape(&members);
    let same_shape = |m: &In| m.shape() == [n, k];
    let matrices = same_shape(&product) && mass.as_ref().is_none_or(same_shape);
    let sums = [sizes.len(), inner.len(), change.len()] == [k, k, k];
    same(k > 0 && matrices && eps.shape() == [n, k] && sums)?;
    same(scratch.len() == dapwc::scratch_len(n, k))?;
    let (product, members) = (product.in_order()?, members.in_order()?);
    let mass = mass.as_ref().map(|m| m.in_order()).transpose()?;
    let (eps, scratch) = (eps.in_order_mut()?, scratch.in_order_mut()?);
    let mut written = ColumnCosts {
        sizes: sizes.in_order_mut()?,
        inner: inner.in_order_mut()?,
        change: change.in_order_mut()?,
    };
    py.detach(|| {
        dapwc::costs(
            product,
            mass,
            members,
            scale,
            unknown,
            eps,
            &mut written,
            scratch,
        );
    });
    Ok(())
}

#[pyfunction]
fn pwc_assign(
    py: Python,
    eps: In,
    prior: PyReadonlyArray1<f64>,
    copies: PyReadonlyArray1<f64>,
    width: usize,
    temperature: f64,
    mut members: Out,
) -> PyResult<()> {
    let [n, k] = shape(&eps);
    let whole = width > 0 && k > 0 && k.is_multiple_of(width);
    same(whole && members.shape() == [n, k] && prior.len() == k && copies.len() == k)?;
    let (eps, prior, copies) = (eps.in_order()?, prior.in_order()?, copies.in_order()?);
    let members = members.in_order_mut()?;
    py.detach(|| dapwc::assign(eps, prior, copies, width, temperature, members));
    Ok(())
}

#[pyfunction]
fn pwc_nearest(py: Python, rows: AnyArray, first: usize, mut least: Sums) -> PyResult<()> {
    fn on<T: Element + Stored>(
        py: Python,
        rows: AnyArray,
        first: usize,
        least: &mut Sums,
    ) -> PyResult<bool> {
        let Ok(rows) = rows.cast::<PyArray2<T>>() else {
            return Ok(false);
        };
        let rows = rows.try_readonly().map_err(value_error)?;
        let [r, n] = shape(&rows);
        same(n > 0 && least.len() == r && first + r <= n)?;
        let (rows, least) = (rows.in_order()?, least.in_order_mut()?);
        py.detach(|| dapwc::nearest(rows, n, first, least));
        Ok(true)
    }
    expect(
        on::<i16>(py, rows, first, &mut least)?
            || on::<f32>(py, rows, first, &mut least)?
            || on::<f64>(py, rows, first, &mut least)?,
    )
}

/// Pairs of each row: how many, their columns and values, or None where there are too many.
type Pairs<'py> = Option<(
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<f64>>,
)>;

#[pyfunction]
fn pwc_below<'py>(
    py: Python<'py>,
    rows: AnyArray,
    first: usize,
    limit: f64,
    most: usize,
) -> PyResult<Pairs<'py>> {
    type Found = Option<Vec<Vec<(usize, f64)>>>;
    fn on<T: Element + Stored>(
        py: Python,
        rows: AnyArray,
        first: usize,
        limit: f64,
        most: usize,
    ) -> PyResult<Option<Found>> {
        let Ok(rows) = rows.cast::<PyArray2<T>>() else {
            return Ok(None);
        };
        let rows = rows.try_readonly().map_err(value_error)?;
        let [r, n] = shape(&rows);
        same(n > 0 && first + r <= n && i32::try_from(n).is_ok())?;
        let rows = rows.in_order()?;
        Ok(Some(
            py.detach(|| dapwc::below(rows, n, first, limit, most)),
        ))
    }
    let mut found = on::<i16>(py, rows, first, limit, most)?;
    if found.is_none() {
        found = on::<f32>(py, rows, first, limit, most)?;
    }
    if found.is_none() {
        found = on::<f64>(py, rows, first, limit, most)?;
    }
    expect(found.is_some())?;
    Ok(found.flatten().map(|rows| {
        let counts = rows.iter().map(|row| row.len() as i32);
        let columns = rows.iter().flatten().map(|(column, _)| *column as i32);
        let values = rows.iter().flatten().map(|(_, value)| *value);
        (
            PyArray1::from_iter(py, counts),
            PyArray1::from_iter(py, columns),
            PyArray1::from_iter(py, values),
        )
    }))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)] // a sparse matrix is three arrays
fn pwc_measure(
    py: Python,
    mut products: Out,
    mass: Option<In>,
    members: In,
    level: f64,
    starts: PyReadonlyArray1<i32>,
    columns: PyReadonlyArray1<i32>,
    gaps: PyReadonlyArray1<f64>,
) -> PyResult<()> {
    let [n, k] = shape(&members);
    same(k > 0 && products.shape() == [n, k])?;
    same(mass.as_ref().is_none_or(|mass| mass.shape() == [n, k]))?;
    let (products, members) = (products.in_order_mut()?, members.in_order()?);
    let mass = mass.as_ref().map(|m| m.in_order()).transpose()?;
    let (starts, columns) = (starts.in_order()?, columns.in_order()?);
    let gaps = gaps.in_order()?;
    let ordered = starts.windows(2).all(|pair| pair[0] <= pair[1]) && starts.first() == Some(&0);
    let ends = starts.len() == n + 1 && starts[n] as usize == columns.len();
    same(ordered && ends && gaps.len() == columns.len())?;
    let below = Below {
        starts,
        columns,
        gaps,
    };
    py.detach(|| dapwc::measure(products, mass, members, k, level, below));
    Ok(())
}

pub(crate) fn shape<T: Element>(array: &PyReadonlyArray2<T>) -> [usize; 2] {
    [array.shape()[0], array.shape()[1]]
}

pub(crate) fn same(fits: bool) -> PyResult<()> {
    let message = "the shapes of the arrays do not belong together";
    fits.then_some(())
        .ok_or_else(|| PyValueError::new_err(message))
}

pub(crate) fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Turn "no combination of dtypes fitted" into an error.
fn expect(fitted: bool) -> PyResult<()> {
    fitted.then_some(()).ok_or_else(unsupported)
}

pub(crate) fn unsupported() -> PyErr {
    PyTypeError::new_err(
        "the dtypes of the arrays are not supported together, or an array has other dimensions",
    )
}
