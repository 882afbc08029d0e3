//! Passes of least-squares maps: `tartan_kernels::lmmds` on NumPy arrays.

use numpy::{
    Element, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::lmmds::{self, MatrixRows, Modelled, Points, Stored, Swapped};

use crate::in_order::{InOrder, InOrderMut};

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CHISQ_MAX_DIMENSION", lmmds::MAX_DIMENSION)?;
    module.add_function(wrap_pyfunction!(chisq_derivatives, module)?)?;
    module.add_function(wrap_pyfunction!(chisq_product, module)?)?;
    module.add_function(wrap_pyfunction!(chisq_survey, module)?)?;
    module.add_function(wrap_pyfunction!(chisq_density, module)?)
}

/// The attributes of the Python object that describes an objective.
#[derive(FromPyObject)]
struct Objective {
    squared: bool,
    minimum: f64,
    weighting: u8,
    factor: f64,
    floor: f64,
    scale: f64,
    cut: f64,
    missing: f64,
    limits: Vec<f64>,
    bin_weights: Vec<f64>,
    second: bool,
    swapped: bool,
}

impl Objective {
    fn native(self) -> PyResult<lmmds::Objective> {
        let bins = self.bin_weights.len();
        if self.weighting > 4 || !(bins == 0 || bins == self.limits.len() + 1) {
            return Err(PyValueError::new_err(format!(
                "weighting {} is not 0 to 4, or {} limits do not go with {bins} weights of bins",
                self.weighting,
                self.limits.len()
            )));
        }
        let formula = if self.squared {
            Modelled::Squared
        } else {
            Modelled::Distance {
                minimum_squared: self.minimum * self.minimum,
            }
        };
        Ok(lmmds::Objective {
            formula,
            weighting: self.weighting,
            factor: self.factor,
            floor: self.floor,
            scale: self.scale,
            cut: self.cut,
            missing: self.missing,
            limits: self.limits,
            bin_weights: self.bin_weights,
            second: self.second,
        })
    }
}

/// The points of a map: coordinates of shape (L, n) and weights of shape (n,).
struct Map<'py> {
    columns: PyReadonlyArray2<'py, f64>,
    weights: PyReadonlyArray1<'py, f64>,
}

impl<'py> Map<'py> {
    fn new(
        columns: &Bound<'py, PyArray2<f64>>,
        weights: &Bound<'py, PyArray1<f64>>,
    ) -> PyResult<Self> {
        let dimension = columns.shape()[0];
        if !(1..=lmmds::MAX_DIMENSION).contains(&dimension) {
            return Err(PyValueError::new_err(format!(
                "{dimension} dimensions; there may be 1 to {}",
                lmmds::MAX_DIMENSION
            )));
        }
        same("coordinates", columns.shape()[1], weights.len())?;
        Ok(Map {
            columns: columns.try_readonly()?,
            weights: weights.try_readonly()?,
        })
    }

    fn points(&self) -> PyResult<Points<'_>> {
        Ok(Points {
            columns: self.columns.in_order()?,
            weights: self.weights.in_order()?,
        })
    }
}

/// What to do with a block of rows, whatever its values are.
trait Pass {
    fn run<T: Stored>(&mut self, objective: &lmmds::Objective, rows: MatrixRows<'_, T>);
}

/// Run a pass without the GIL on a block of shape (rows, n).
fn run(
    objective: Objective,
    block: &Bound<'_, PyAny>,
    items: &Bound<'_, PyArray1<i64>>,
    n: usize,
    pass: &mut (impl Pass + Send),
) -> PyResult<()> {
    let swapped = objective.swapped;
    let objective = objective.native()?;
    if let Ok(block) = block.cast::<PyArray2<i16>>() {
        if !swapped {
            return run_on(&objective, block, items, n, |o, rows| pass.run(o, rows));
        }
        return run_on(&objective, block, items, n, |o, rows| {
            // SAFETY: `Swapped` is a transparent wrapper of i16.
            let values: &[Swapped] =
                unsafe { std::mem::transmute::<&[i16], &[Swapped]>(rows.values) };
            pass.run(
                o,
                MatrixRows {
                    values,
                    items: rows.items,
                },
            );
        });
    }
    if let Ok(block) = block.cast::<PyArray2<f32>>() {
        return run_on(&objective, block, items, n, |o, rows| pass.run(o, rows));
    }
    if let Ok(block) = block.cast::<PyArray2<f64>>() {
        return run_on(&objective, block, items, n, |o, rows| pass.run(o, rows));
    }
    Err(PyTypeError::new_err(
        "a block of rows must be two-dimensional, of int16, float32 or float64",
    ))
}

fn run_on<T: Element>(
    objective: &lmmds::Objective,
    block: &Bound<'_, PyArray2<T>>,
    items: &Bound<'_, PyArray1<i64>>,
    n: usize,
    call: impl FnOnce(&lmmds::Objective, MatrixRows<'_, T>) + Send,
) -> PyResult<()> {
    same("columns of the block", block.shape()[1], n)?;
    same("row numbers", items.len(), block.shape()[0])?;
    let items = items.try_readonly()?;
    let items = items.in_order()?;
    let outside = |&&item: &&i64| !usize::try_from(item).is_ok_and(|i| i < n);
    if let Some(item) = items.iter().find(outside) {
        return Err(PyValueError::new_err(format!(
            "row {item} is not in a matrix of {n}"
        )));
    }
    let values = block.try_readonly()?;
    let values = values.in_order()?;
    block
        .py()
        .detach(|| call(objective, MatrixRows { values, items }));
    Ok(())
}

fn same(what: &str, found: usize, expected: usize) -> PyResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{what}: {found}, where {expected} are expected"
    )))
}

struct DerivativesPass<'a> {
    points: Points<'a>,
    marked: &'a [f64],
    chisq: &'a mut [f64],
    gradient: &'a mut [f64],
    blocks: &'a mut [f64],
}

impl Pass for DerivativesPass<'_> {
    fn run<T: Stored>(&mut self, objective: &lmmds::Objective, rows: MatrixRows<'_, T>) {
        let out = lmmds::Derivatives {
            chisq: self.chisq,
            gradient: self.gradient,
            blocks: self.blocks,
        };
        lmmds::derivatives(objective, rows, self.points, self.marked, out);
    }
}

// A parameter for each array of Python that it reads or writes.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn chisq_derivatives(
    objective: Objective,
    block: &Bound<'_, PyAny>,
    items: &Bound<'_, PyArray1<i64>>,
    columns: &Bound<'_, PyArray2<f64>>,
    weights: &Bound<'_, PyArray1<f64>>,
    marked: &Bound<'_, PyArray1<f64>>,
    chisq: &Bound<'_, PyArray2<f64>>,
    gradient: &Bound<'_, PyArray2<f64>>,
    blocks: &Bound<'_, PyArray3<f64>>,
) -> PyResult<()> {
    let map = Map::new(columns, weights)?;
    let (points, marked) = (map.points()?, marked.try_readonly()?);
    let (n, dimension, m) = (points.len(), columns.shape()[0], block.len()?);
    same("marks", marked.len(), n)?;
    same("places of chi2", chisq.len(), 2 * m)?;
    same("places of the gradient", gradient.len(), dimension * m)?;
    same("places of blocks", blocks.len(), dimension * dimension * m)?;
    let (mut chisq, mut gradient, mut blocks) = (
        chisq.try_readwrite()?,
        gradient.try_readwrite()?,
        blocks.try_readwrite()?,
    );
    let mut pass = DerivativesPass {
        points,
        marked: marked.in_order()?,
        chisq: chisq.in_order_mut()?,
        gradient: gradient.in_order_mut()?,
        blocks: blocks.in_order_mut()?,
    };
    run(objective, block, items, n, &mut pass)
}

struct ProductPass<'a> {
    points: Points<'a>,
    vector: &'a [f64],
    out: &'a mut [f64],
}

impl Pass for ProductPass<'_> {
    fn run<T: Stored>(&mut self, objective: &lmmds::Objective, rows: MatrixRows<'_, T>) {
        lmmds::product(objective, rows, self.points, self.vector, self.out);
    }
}

#[pyfunction]
fn chisq_product(
    objective: Objective,
    block: &Bound<'_, PyAny>,
    items: &Bound<'_, PyArray1<i64>>,
    columns: &Bound<'_, PyArray2<f64>>,
    weights: &Bound<'_, PyArray1<f64>>,
    vector: &Bound<'_, PyArray2<f64>>,
    out: &Bound<'_, PyArray2<f64>>,
) -> PyResult<()> {
    let map = Map::new(columns, weights)?;
    let points = map.points()?;
    let (n, dimension) = (points.len(), columns.shape()[0]);
    same("numbers of the vector", vector.len(), dimension * n)?;
    same("places of the product", out.len(), dimension * block.len()?)?;
    let (vector, mut out) = (vector.try_readonly()?, out.try_readwrite()?);
    let mut pass = ProductPass {
        points,
        vector: vector.in_order()?,
        out: out.in_order_mut()?,
    };
    run(objective, block, items, n, &mut pass)
}

struct SurveyPass<'a> {
    weights: &'a [f64],
    numbers: &'a mut [f64],
    counts: &'a mut [i64],
}

impl Pass for SurveyPass<'_> {
    fn run<T: Stored>(&mut self, objective: &lmmds::Objective, rows: MatrixRows<'_, T>) {
        let out = lmmds::Survey {
            numbers: self.numbers,
            counts: self.counts,
        };
        lmmds::survey(objective, rows, self.weights, out);
    }
}

#[pyfunction]
fn chisq_survey(
    objective: Objective,
    block: &Bound<'_, PyAny>,
    items: &Bound<'_, PyArray1<i64>>,
    weights: &Bound<'_, PyArray1<f64>>,
    numbers: &Bound<'_, PyArray2<f64>>,
    counts: &Bound<'_, PyArray2<i64>>,
) -> PyResult<()> {
    let (n, m) = (weights.len(), block.len()?);
    same("places of numbers", numbers.len(), 3 * m)?;
    let bins = objective.limits.len() + 1;
    same("places of counts", counts.len(), bins * m)?;
    let weights = weights.try_readonly()?;
    let (mut numbers, mut counts) = (numbers.try_readwrite()?, counts.try_readwrite()?);
    let mut pass = SurveyPass {
        weights: weights.in_order()?,
        numbers: numbers.in_order_mut()?,
        counts: counts.in_order_mut()?,
    };
    run(objective, block, items, n, &mut pass)
}

struct DensityPass<'a> {
    points: Points<'a>,
    histogram: lmmds::Histogram<'a>,
}

impl Pass for DensityPass<'_> {
    fn run<T: Stored>(&mut self, objective: &lmmds::Objective, rows: MatrixRows<'_, T>) {
        lmmds::density(objective, rows, self.points, &mut self.histogram);
    }
}

#[pyfunction]
fn chisq_density(
    objective: Objective,
    block: &Bound<'_, PyAny>,
    items: &Bound<'_, PyArray1<i64>>,
    columns: &Bound<'_, PyArray2<f64>>,
    weights: &Bound<'_, PyArray1<f64>>,
    ends: [f64; 2],
    counts: &Bound<'_, PyArray2<i64>>,
) -> PyResult<()> {
    let map = Map::new(columns, weights)?;
    let points = map.points()?;
    let n = points.len();
    let across = counts.shape()[1];
    if across == 0 || ends.iter().any(|end| !end.is_finite() || *end <= 0.0) {
        return Err(PyValueError::new_err(
            "a histogram needs cells and ends above zero",
        ));
    }
    let mut counts = counts.try_readwrite()?;
    let mut pass = DensityPass {
        points,
        histogram: lmmds::Histogram {
            counts: counts.in_order_mut()?,
            columns: across,
            ends,
        },
    };
    run(objective, block, items, n, &mut pass)
}
