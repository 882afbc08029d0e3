//! Passes of SMACOF: `tartan_smacof` on NumPy arrays.

use numpy::{
    Element, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_smacof::lanes::Number;
use tartan_smacof::walk::{Rule, Weights, PAD};
use tartan_smacof::{BlockRows, Entry, PassMemory, Real, VectorLevel, GROUP};

use crate::in_order::{InOrder, InOrderMut};

/// Add the class of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SMACOF_GROUP", GROUP)?;
    module.add_class::<SmacofPass>()
}

/// A rule as Python has it: an object with these attributes.
#[derive(FromPyObject)]
struct Asked {
    diff: f64,
    floor: f64,
    tiny: f64,
    missing: bool,
    swap: bool,
    sammon: Option<f64>,
    product: bool,
    weights_swap: bool,
}

/// A workspace, and the weights of points: of columns (padded), and of guests, which are 1.
struct Space<E> {
    work: PassMemory<E>,
    weights: Option<Vec<E>>,
    ones: Vec<E>,
}

enum Precision {
    Narrow(Space<f32>),
    Wide(Space<f64>),
}

#[pyclass(module = "tartan._native")]
struct SmacofPass {
    space: Precision,
    n: usize,
    dim: usize,
    kept: usize,
}

/// Run a body for the precision at hand.
macro_rules! with_space {
    ($self:ident, $space:ident => $body:expr) => {
        match &mut $self.space {
            Precision::Narrow($space) => $body,
            Precision::Wide($space) => $body,
        }
    };
}

#[pymethods]
impl SmacofPass {
    #[new]
    #[pyo3(signature = (n, dim, wide, point_weights=None, *, level=None))]
    fn new(
        n: usize,
        dim: usize,
        wide: bool,
        point_weights: Option<PyReadonlyArray1<'_, f64>>,
        level: Option<&str>,
    ) -> PyResult<Self> {
        if n == 0 || dim == 0 {
            return Err(PyValueError::new_err("no points or no dimensions"));
        }
        let weights = point_weights
            .map(|w| w.in_order().map(<[f64]>::to_vec))
            .transpose()?;
        if weights.as_ref().is_some_and(|w| w.len() != n) {
            return Err(PyValueError::new_err(
                "the weights are those of other points",
            ));
        }
        let level = chosen(level)?;
        let space = if wide {
            Precision::Wide(Space::new(n, dim, weights, level))
        } else {
            Precision::Narrow(Space::new(n, dim, weights, level))
        };
        let mut pass = Self {
            space,
            n,
            dim,
            kept: 0,
        };
        pass.kept = pass.shares().0;
        Ok(pass)
    }

    fn place(&mut self, py: Python<'_>, points: PyReadonlyArray2<'_, f64>) -> PyResult<()> {
        expect_shape(points.shape(), [self.n, self.dim], "points")?;
        let points = points.in_order()?;
        with_space!(self, space => py.detach(|| space.work.place(points)));
        Ok(())
    }

    #[pyo3(signature = (delta, rule, start, stop, weights=None))]
    fn triangle(
        &mut self,
        delta: &Bound<'_, PyAny>,
        rule: Asked,
        start: usize,
        stop: usize,
        weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if !start.is_multiple_of(GROUP) || start > stop || stop > self.n {
            let message = format!(
                "rows {start} to {stop} of {} points, in groups of {GROUP}",
                self.n
            );
            return Err(PyValueError::new_err(message));
        }
        let shape = [self.n, self.n];
        let weights = Matrix::of(weights, shape)?;
        with_space!(self, space => stored(delta, shape, Triangle { space, rule, weights, rows: start..stop }))
    }

    /// How many shares the rows of the triangle are divided into, and how long a row of `partial` is.
    #[getter]
    fn shares(&self) -> (usize, usize) {
        match &self.space {
            Precision::Narrow(space) => space.work.shares(),
            Precision::Wide(space) => space.work.shares(),
        }
    }

    /// Work on some shares of the triangle alone.
    fn keep(&mut self, first: usize, last: usize) -> PyResult<()> {
        if first > last || last > self.shares().0 {
            return Err(PyValueError::new_err(format!(
                "shares {first} to {last} of {}",
                self.shares().0
            )));
        }
        self.kept = last - first;
        with_space!(self, space => space.work.keep(first..last));
        Ok(())
    }

    /// Write sums and loss of each share that is kept.
    fn partial(&mut self, py: Python<'_>, mut out: PyReadwriteArray2<'_, f64>) -> PyResult<()> {
        expect_shape(out.shape(), [self.kept, self.shares().1], "shares")?;
        let out = out.in_order_mut()?;
        with_space!(self, space => py.detach(|| space.work.partial(out)));
        Ok(())
    }

    /// Write the sums of all points, of the shares of this object or of rows of all shares.
    #[pyo3(signature = (sums, partials=None))]
    fn finish(
        &mut self,
        py: Python<'_>,
        mut sums: PyReadwriteArray2<'_, f64>,
        partials: Option<PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<f64> {
        expect_shape(sums.shape(), [self.n, self.dim], "sums")?;
        let (n_shares, length) = self.shares();
        let sums = sums.in_order_mut()?;
        let Some(partials) = partials else {
            if self.kept < n_shares {
                return Err(PyValueError::new_err("some shares only; give all"));
            }
            return Ok(with_space!(self, space => py.detach(|| space.work.finish(sums))));
        };
        expect_shape(partials.shape(), [n_shares, length], "shares")?;
        let rows = partials.in_order()?;
        Ok(with_space!(self, space => py.detach(|| space.work.finish_partials(rows, sums))))
    }

    #[pyo3(signature = (delta, rule, at, sums, losses, weights=None))]
    fn rows(
        &mut self,
        delta: &Bound<'_, PyAny>,
        rule: Asked,
        at: &Bound<'_, PyAny>,
        mut sums: PyReadwriteArray2<'_, f64>,
        mut losses: PyReadwriteArray1<'_, f64>,
        weights: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let shape = [losses.len(), self.n];
        expect_shape(sums.shape(), [shape[0], self.dim], "sums")?;
        let weights = Matrix::of(weights, shape)?;
        let (sums, losses) = (sums.in_order_mut()?, losses.in_order_mut()?);
        let guests = at
            .cast::<PyArray2<f64>>()
            .ok()
            .map(PyArrayMethods::try_readonly)
            .transpose()?;
        let at = match &guests {
            Some(points) => {
                expect_shape(
                    points.shape(),
                    [shape[0], self.dim],
                    "coordinates of the rows",
                )?;
                BlockRows::Guests(points.in_order()?)
            }
            None => BlockRows::From(first_row(at, shape)?),
        };
        with_space!(self, space => stored(delta, shape, Block { space, rule, weights, at, sums, losses }))
    }
}

fn first_row(at: &Bound<'_, PyAny>, [m, n]: [usize; 2]) -> PyResult<usize> {
    let first: usize = at.extract()?;
    if first + m > n {
        return Err(PyValueError::new_err(format!(
            "rows {first} to {} of {n} points",
            first + m
        )));
    }
    Ok(first)
}

fn chosen(level: Option<&str>) -> PyResult<VectorLevel> {
    match level {
        None => Ok(VectorLevel::detect()),
        Some("portable") => Ok(VectorLevel::Portable),
        Some(other) => Err(PyValueError::new_err(format!(
            "level {other:?} is neither None nor 'portable'"
        ))),
    }
}

fn expect_shape(found: &[usize], expected: [usize; 2], what: &str) -> PyResult<()> {
    let message =
        || PyValueError::new_err(format!("{what} of shape {found:?} instead of {expected:?}"));
    (found == expected).then_some(()).ok_or_else(message)
}

impl<E: Real> Space<E> {
    fn new(n: usize, dim: usize, weights: Option<Vec<f64>>, level: VectorLevel) -> Self {
        let pad = |w: Vec<f64>| {
            let mut w: Vec<E> = w.into_iter().map(E::of).collect();
            w.resize(n.div_ceil(PAD) * PAD, E::default());
            w
        };
        Self {
            work: PassMemory::with_level(n, dim, level),
            weights: weights.map(pad),
            ones: Vec::new(),
        }
    }
}

/// A matrix of weights.
enum Matrix<'py> {
    Absent,
    Short(PyReadonlyArray2<'py, i16>),
    Real(PyReadonlyArray2<'py, f32>),
}

impl<'py> Matrix<'py> {
    fn of(array: Option<&Bound<'py, PyAny>>, shape: [usize; 2]) -> PyResult<Self> {
        let Some(array) = array else {
            return Ok(Self::Absent);
        };
        if let Ok(values) = array.cast::<PyArray2<i16>>() {
            expect_shape(values.shape(), shape, "weights")?;
            return Ok(Self::Short(values.try_readonly()?));
        }
        let message = |_| PyTypeError::new_err("weights must be an array of int16 or float32");
        let values = array.cast::<PyArray2<f32>>().map_err(message)?;
        expect_shape(values.shape(), shape, "weights")?;
        Ok(Self::Real(values.try_readonly()?))
    }

    fn view(&self) -> PyResult<View<'_>> {
        Ok(match self {
            Self::Absent => View::Absent,
            Self::Short(values) => View::Short(values.in_order()?),
            Self::Real(values) => View::Real(values.in_order()?),
        })
    }
}

#[derive(Clone, Copy)]
enum View<'a> {
    Absent,
    Short(&'a [i16]),
    Real(&'a [f32]),
}

impl Asked {
    fn rule<'a, E: Number>(
        &self,
        matrix: View<'a>,
        points: Option<(&'a [E], &'a [E])>,
    ) -> Rule<'a, E> {
        let weights = match (matrix, points) {
            (View::Short(values), _) => Weights::Short {
                values,
                swap: self.weights_swap,
            },
            (View::Real(values), _) => Weights::Real { values },
            (View::Absent, Some((rows, columns))) => Weights::Points { rows, columns },
            (View::Absent, None) => Weights::Unit,
        };
        Rule {
            diff: E::of(self.diff),
            floor: E::of(self.floor),
            tiny: E::of(self.tiny),
            missing: self.missing,
            swap: self.swap,
            sammon: self.sammon.map(E::of),
            product: self.product,
            weights,
        }
    }
}

/// What is done with a matrix once its type is known.
trait Work {
    fn on<S: Element + Entry>(self, py: Python<'_>, delta: &[S]) -> PyResult<()>;
}

/// Find the type of a matrix and do the work.
fn stored(delta: &Bound<'_, PyAny>, shape: [usize; 2], work: impl Work) -> PyResult<()> {
    fn on<'py, S: Element>(
        delta: &Bound<'py, PyAny>,
        shape: [usize; 2],
    ) -> PyResult<Option<PyReadonlyArray2<'py, S>>> {
        let Ok(array) = delta.cast::<PyArray2<S>>() else {
            return Ok(None);
        };
        expect_shape(array.shape(), shape, "dissimilarities")?;
        Ok(Some(array.try_readonly()?))
    }
    let py = delta.py();
    if let Some(values) = on::<i16>(delta, shape)? {
        return work.on(py, values.in_order()?);
    }
    if let Some(values) = on::<f32>(delta, shape)? {
        return work.on(py, values.in_order()?);
    }
    if let Some(values) = on::<f64>(delta, shape)? {
        return work.on(py, values.in_order()?);
    }
    Err(PyTypeError::new_err(
        "dissimilarities must be a two-dimensional array of int16, float32 or float64",
    ))
}

struct Triangle<'a, 'py, E> {
    space: &'a mut Space<E>,
    rule: Asked,
    weights: Matrix<'py>,
    rows: std::ops::Range<usize>,
}

impl<E: Real> Work for Triangle<'_, '_, E> {
    fn on<S: Element + Entry>(self, py: Python<'_>, delta: &[S]) -> PyResult<()> {
        let (matrix, n, space) = (self.weights.view()?, self.space.work.n(), self.space);
        let points = space.weights.as_ref().map(|w| (&w[..n], &w[..]));
        let rule = self.rule.rule(matrix, points);
        let (work, rows) = (&mut space.work, self.rows);
        py.detach(|| work.triangle(delta, &rule, rows));
        Ok(())
    }
}

struct Block<'a, 'py, E> {
    space: &'a mut Space<E>,
    rule: Asked,
    weights: Matrix<'py>,
    at: BlockRows<'a>,
    sums: &'a mut [f64],
    losses: &'a mut [f64],
}

impl<E: Real> Work for Block<'_, '_, E> {
    fn on<S: Element + Entry>(self, py: Python<'_>, delta: &[S]) -> PyResult<()> {
        let (matrix, m, space) = (self.weights.view()?, self.losses.len(), self.space);
        space.ones.resize(m, E::of(1.0));
        let points = space.weights.as_ref().map(|w| match self.at {
            BlockRows::From(first) => (&w[first..first + m], &w[..]),
            BlockRows::Guests(_) => (&space.ones[..], &w[..]),
        });
        let rule = self.rule.rule(matrix, points);
        let work = &mut space.work;
        py.detach(|| work.rows(delta, &rule, self.at, self.sums, self.losses));
        Ok(())
    }
}
