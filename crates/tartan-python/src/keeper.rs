//! What a reduced run keeps: `tartan_kernels::keeper` on NumPy arrays.

use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_kernels::bits::{self, BitLevel, BitMetric};
use tartan_kernels::keeper::{self, Best, Places, Score, Tile, TileContext};
use tartan_kernels::product::{self, Scalar};
use tartan_kernels::screen::{self, ByteLevel};
use tartan_kernels::screened::{self, RowMetric};
use tartan_kernels::screened_bits;

use crate::dense::rows;
use crate::in_order::InOrder;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(scores_beyond, module)?)?;
    module.add_function(wrap_pyfunction!(rows_beyond, module)?)?;
    module.add("LEAST_SCREENED", screen::LEAST_WIDTH)?;
    module.add_class::<Screen>()?;
    module.add_function(wrap_pyfunction!(bits_beyond, module)?)?;
    module.add_class::<BitScreen>()?;
    module.add_function(wrap_pyfunction!(first_of_groups, module)?)?;
    module.add_class::<RunningBest>()
}

type Positions<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// The running k best of each of some consecutive items; may be used by several threads.
#[pyclass(frozen, module = "tartan._native")]
struct RunningBest {
    best: Precision,
}

enum Precision {
    Single(Best<f32>),
    Double(Best<f64>),
}

#[pymethods]
impl RunningBest {
    #[new]
    fn new(first: usize, n_items: usize, k: usize, single: bool) -> PyResult<Self> {
        if k == 0 || first + n_items >= u32::MAX as usize {
            let message = "k must be positive, and items below 2^32 - 1";
            return Err(PyValueError::new_err(message));
        }
        let best = if single {
            Precision::Single(Best::new(first, n_items, k))
        } else {
            Precision::Double(Best::new(first, n_items, k))
        };
        Ok(RunningBest { best })
    }

    /// Choose from a tile for its rows, whose best these are, and for its columns where theirs are given.
    #[pyo3(signature = (scores, codes, corner, largest, columns=None))]
    fn choose<'py>(
        &self,
        scores: &Bound<'py, PyUntypedArray>,
        codes: Option<PyReadonlyArray2<'py, u8>>,
        corner: (usize, usize),
        largest: bool,
        columns: Option<&RunningBest>,
    ) -> PyResult<(Positions<'py>, Positions<'py>)> {
        let codes = codes.as_ref();
        let (first, second) = match (&self.best, columns.map(|best| &best.best)) {
            (Precision::Single(own), None) => {
                with_tile(scores, codes, corner, (largest, true), |tile| {
                    checked(tile, own, None)
                })
            }
            (Precision::Single(own), Some(Precision::Single(other))) => {
                with_tile(scores, codes, corner, (largest, true), |tile| {
                    checked(tile, own, Some(other))
                })
            }
            (Precision::Double(own), None) => {
                with_tile(scores, codes, corner, (largest, true), |tile| {
                    checked(tile, own, None)
                })
            }
            (Precision::Double(own), Some(Precision::Double(other))) => {
                with_tile(scores, codes, corner, (largest, true), |tile| {
                    checked(tile, own, Some(other))
                })
            }
            _ => Err(PyTypeError::new_err("rows and columns differ in precision")),
        }??;
        let py = scores.py();
        Ok((positions(py, first), positions(py, second)))
    }

    /// Score rows and take what is among the best; false: a score is NaN.
    ///
    /// metric: "cosine" of unit rows, "inner", or "euclidean" or "sqeuclidean" of rows that end in their squared norms.
    #[pyo3(signature = (left, right, codes, corner, largest, columns=None, *, metric="cosine", screen=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn choose_rows<'py>(
        &self,
        left: &Bound<'py, PyUntypedArray>,
        right: &Bound<'py, PyUntypedArray>,
        codes: Option<PyReadonlyArray2<'py, u8>>,
        corner: (usize, usize),
        largest: bool,
        columns: Option<&RunningBest>,
        metric: &str,
        screen: Option<&Screen>,
    ) -> PyResult<bool> {
        let (codes, other) = (codes.as_ref(), columns.map(|best| &best.best));
        let how = (largest, true);
        let by = (row_metric(metric)?, screen.map(|screen| &screen.screen));
        match (&self.best, other) {
            (Precision::Single(own), None) => {
                with_rows(left, right, codes, corner, how, |l, r, frame| {
                    checked_rows((l, r), by, frame, own, None)
                })
            }
            (Precision::Single(own), Some(Precision::Single(other))) => {
                with_rows(left, right, codes, corner, how, |l, r, frame| {
                    checked_rows((l, r), by, frame, own, Some(other))
                })
            }
            (Precision::Double(own), None) => {
                with_rows(left, right, codes, corner, how, |l, r, frame| {
                    checked_rows((l, r), by, frame, own, None)
                })
            }
            (Precision::Double(own), Some(Precision::Double(other))) => {
                with_rows(left, right, codes, corner, how, |l, r, frame| {
                    checked_rows((l, r), by, frame, own, Some(other))
                })
            }
            _ => Err(PyTypeError::new_err("rows and columns differ in precision")),
        }?
    }

    /// Score rows of bits, which end in one more word, and take what is among the best; false: `choose` must.
    ///
    /// metric: "jaccard", or "hamming" of rows whose last word is their number of positions.
    #[pyo3(signature = (left, right, codes, corner, columns=None, *, metric, screen))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn choose_bits<'py>(
        &self,
        left: &Bound<'py, PyUntypedArray>,
        right: &Bound<'py, PyUntypedArray>,
        codes: Option<PyReadonlyArray2<'py, u8>>,
        corner: (usize, usize),
        columns: Option<&RunningBest>,
        metric: &str,
        screen: &BitScreen,
    ) -> PyResult<bool> {
        fn on<T: Score>(
            sides: (&[&[u64]], &[&[u64]]),
            metric: BitMetric,
            frame: TileContext<'_>,
            (own, other): (&Best<T>, Option<&Best<T>>),
            screen: &bits::BitScreen,
        ) -> PyResult<bool> {
            require_inside(frame.corner, (sides.0.len(), sides.1.len()), own, other)?;
            let best = (own, other);
            Ok(screened_bits::choose_bits(
                sides, metric, frame, best, screen,
            ))
        }
        let (codes, screen, metric) = (codes.as_ref(), &screen.screen, bit_metric(metric)?);
        with_bits(left, right, codes, corner, |l, r, frame| {
            match (&self.best, columns.map(|best| &best.best)) {
                (Precision::Single(own), None) => on((l, r), metric, frame, (own, None), screen),
                (Precision::Single(own), Some(Precision::Single(other))) => {
                    on((l, r), metric, frame, (own, Some(other)), screen)
                }
                (Precision::Double(own), None) => on((l, r), metric, frame, (own, None), screen),
                (Precision::Double(own), Some(Precision::Double(other))) => {
                    on((l, r), metric, frame, (own, Some(other)), screen)
                }
                _ => Err(PyTypeError::new_err("rows and columns differ in precision")),
            }
        })?
    }

    /// The best pairs of some items whose other end lies in a range: items, ids and scores, best first in an item.
    fn pairs<'py>(
        &self,
        py: Python<'py>,
        items: (usize, usize),
        ids: (usize, usize),
        largest: bool,
    ) -> PyResult<(Positions<'py>, Bound<'py, PyUntypedArray>)> {
        let covered = |covers: bool| covers && items.0 <= items.1 && ids.0 <= ids.1;
        let count = items.1.saturating_sub(items.0);
        let out_of_range = || PyValueError::new_err("items or ids out of range");
        match &self.best {
            Precision::Single(best) => {
                covered(best.covers(items.0, count))
                    .then_some(())
                    .ok_or_else(out_of_range)?;
                let found = py.detach(|| best.pairs(items.0..items.1, ids.0..ids.1, largest));
                Ok(of_pairs(py, found))
            }
            Precision::Double(best) => {
                covered(best.covers(items.0, count))
                    .then_some(())
                    .ok_or_else(out_of_range)?;
                let found = py.detach(|| best.pairs(items.0..items.1, ids.0..ids.1, largest));
                Ok(of_pairs(py, found))
            }
        }
    }

    /// Say which of the pairs (items[m], ids[m]) are among the best of their items.
    fn holds<'py>(
        &self,
        py: Python<'py>,
        items: PyReadonlyArray1<'py, i64>,
        ids: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let (items, ids) = (items.in_order()?, ids.in_order()?);
        let inside = match &self.best {
            Precision::Single(best) => all_inside(best, items),
            Precision::Double(best) => all_inside(best, items),
        };
        if !inside || items.len() != ids.len() {
            return Err(PyValueError::new_err("items or ids out of range"));
        }
        let found = py.detach(|| match &self.best {
            Precision::Single(best) => best.holds(items, ids),
            Precision::Double(best) => best.holds(items, ids),
        });
        Ok(found.into_pyarray(py))
    }
}

fn all_inside<T: Score>(best: &Best<T>, items: &[i64]) -> bool {
    items
        .iter()
        .all(|&item| item >= 0 && best.covers(item as usize, 1))
}

fn of_pairs<T: Element>(
    py: Python<'_>,
    pairs: keeper::ScoredPairs<T>,
) -> (Positions<'_>, Bound<'_, PyUntypedArray>) {
    let places = (pairs.items.into_pyarray(py), pairs.ids.into_pyarray(py));
    (places, pairs.scores.into_pyarray(py).as_untyped().clone())
}

fn checked_rows<T: Score + Scalar>(
    sides: (&[&[T]], &[&[T]]),
    (metric, screen): (RowMetric, Option<&screen::Screen>),
    frame: TileContext<'_>,
    own: &Best<T>,
    columns: Option<&Best<T>>,
) -> PyResult<bool> {
    require_inside(frame.corner, (sides.0.len(), sides.1.len()), own, columns)?;
    Ok(screened::choose_rows(
        sides,
        metric,
        frame,
        (own, columns),
        screen,
    ))
}

fn row_metric(name: &str) -> PyResult<RowMetric> {
    match name {
        "cosine" => Ok(RowMetric::Cosine),
        "inner" => Ok(RowMetric::Inner),
        "euclidean" => Ok(RowMetric::Euclidean { root: true }),
        "sqeuclidean" => Ok(RowMetric::Euclidean { root: false }),
        _ => Err(PyValueError::new_err(format!(
            "metric: {name:?} is none of cosine, inner, euclidean, sqeuclidean"
        ))),
    }
}

/// 8-bit copies of the items of a run, by which pairs are ruled out; may be used by several threads.
#[pyclass(frozen, module = "tartan._native")]
struct Screen {
    screen: screen::Screen,
}

#[pymethods]
impl Screen {
    #[new]
    #[pyo3(signature = (n_items, width, most_bytes, *, level="", trust=1.0, axes=None))]
    fn new(
        n_items: usize,
        width: usize,
        most_bytes: usize,
        level: &str,
        trust: f32,
        axes: Option<PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let named = |found: &ByteLevel| format!("{found:?}").eq_ignore_ascii_case(level);
        let level = match level {
            "" => Some(ByteLevel::fastest()),
            _ => ByteLevel::available().into_iter().find(named),
        };
        let level = level.ok_or_else(|| PyValueError::new_err("level: not on this machine"))?;
        let screen = screen::Screen::new(n_items, width, most_bytes, level, trust);
        let Some(axes) = axes else {
            return Ok(Screen { screen });
        };
        let values = axes.as_array().iter().copied().collect();
        let axes = screen::Axes::new(values, width).ok_or_else(|| {
            PyValueError::new_err("axes: not orthonormal, or not fewer than width")
        })?;
        Ok(Screen {
            screen: screen.with_axes(axes, most_bytes),
        })
    }

    /// What multiplies 8-bit numbers: plain, avx2, avxvnni or avx512vnni.
    #[getter]
    fn level(&self) -> String {
        format!("{:?}", self.screen.level()).to_lowercase()
    }

    /// How many coordinates of rows decide; 0: all of them.
    #[getter]
    fn n_axes(&self) -> usize {
        self.screen.n_axes()
    }

    /// Names of the levels of this machine, the fastest last.
    #[staticmethod]
    fn levels() -> Vec<String> {
        let name = |level: &ByteLevel| format!("{level:?}").to_lowercase();
        ByteLevel::available().iter().map(name).collect()
    }

    /// Pairs that the bound ruled out, that it did not, and that were computed without it; the largest bound used.
    fn decided(&self) -> (u64, u64, u64, f32) {
        let found = self.screen.decided();
        (
            found.dropped,
            found.looked_at,
            found.unscreened,
            found.largest,
        )
    }
}

fn bit_metric(name: &str) -> PyResult<BitMetric> {
    match name {
        "jaccard" => Ok(BitMetric::Jaccard),
        "hamming" => Ok(BitMetric::Hamming),
        _ => Err(PyValueError::new_err(format!(
            "metric: {name:?} is none of jaccard, hamming"
        ))),
    }
}

/// Numbers of bits of the items of a run, by which pairs are ruled out; may be used by several threads.
#[pyclass(frozen, module = "tartan._native")]
struct BitScreen {
    screen: bits::BitScreen,
}

#[pymethods]
impl BitScreen {
    #[new]
    #[pyo3(signature = (n_items, most_bytes, *, level="", trust=1.0))]
    fn new(n_items: usize, most_bytes: usize, level: &str, trust: f32) -> PyResult<Self> {
        let named = |found: &BitLevel| format!("{found:?}").eq_ignore_ascii_case(level);
        let level = match level {
            "" => Some(BitLevel::fastest()),
            _ => BitLevel::available().into_iter().find(named),
        };
        let level = level.ok_or_else(|| PyValueError::new_err("level: not on this machine"))?;
        let screen = bits::BitScreen::new(n_items, most_bytes, level, trust);
        Ok(BitScreen { screen })
    }

    /// What counts bits: plain, avx2 or avx512.
    #[getter]
    fn level(&self) -> String {
        format!("{:?}", self.screen.level()).to_lowercase()
    }

    /// Names of the levels of this machine, the fastest last.
    #[staticmethod]
    fn levels() -> Vec<String> {
        let name = |level: &BitLevel| format!("{level:?}").to_lowercase();
        BitLevel::available().iter().map(name).collect()
    }

    /// Pairs that numbers of bits ruled out, and pairs whose bits were all counted.
    fn decided(&self) -> (u64, u64) {
        self.screen.decided()
    }
}

/// Refuse a tile of items that are not all known.
fn require_inside<T: Score>(
    (row, column): (usize, usize),
    (n_rows, n_columns): (usize, usize),
    own: &Best<T>,
    columns: Option<&Best<T>>,
) -> PyResult<()> {
    let inside = own.covers(row, n_rows)
        && columns.is_none_or(|best| best.covers(column, n_columns))
        && row + n_rows < u32::MAX as usize
        && column + n_columns < u32::MAX as usize;
    inside
        .then_some(())
        .ok_or_else(|| PyValueError::new_err("the tile is out of range"))
}

fn checked<T: Score>(
    tile: Tile<'_, T>,
    own: &Best<T>,
    columns: Option<&Best<T>>,
) -> PyResult<(Places, Places)> {
    let width = tile.scores.first().map_or(0, |row| row.len());
    require_inside(tile.corner, (tile.scores.len(), width), own, columns)?;
    Ok(keeper::choose(tile, own, columns))
}

/// Choose from a tile the scores that are as good as a limit or better: positions of rows and of columns.
#[pyfunction]
#[pyo3(signature = (scores, codes, corner, largest, limit, skip_self=false))]
fn scores_beyond<'py>(
    scores: &Bound<'py, PyUntypedArray>,
    codes: Option<PyReadonlyArray2<'py, u8>>,
    corner: (usize, usize),
    largest: bool,
    limit: f64,
    skip_self: bool,
) -> PyResult<Positions<'py>> {
    let (codes, how) = (codes.as_ref(), (largest, skip_self));
    let found = if scores.cast::<PyArray2<f32>>().is_ok() {
        with_tile(scores, codes, corner, how, |tile| {
            keeper::beyond::<f32>(tile, limit as f32)
        })
    } else {
        with_tile(scores, codes, corner, how, |tile| {
            keeper::beyond::<f64>(tile, limit)
        })
    }?;
    Ok(positions(scores.py(), found))
}

/// Score rows and return the scores as good as a limit or better, with their places.
///
/// None: a score is NaN. See `RunningBest.choose_rows`.
#[pyfunction]
#[pyo3(signature = (left, right, codes, corner, largest, limit, *, metric="cosine", screen=None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
fn rows_beyond<'py>(
    left: &Bound<'py, PyUntypedArray>,
    right: &Bound<'py, PyUntypedArray>,
    codes: Option<PyReadonlyArray2<'py, u8>>,
    corner: (usize, usize),
    largest: bool,
    limit: f64,
    metric: &str,
    screen: Option<&Screen>,
) -> PyResult<Option<(Positions<'py>, Bound<'py, PyUntypedArray>)>> {
    let (py, codes, how) = (left.py(), codes.as_ref(), (largest, false));
    let (metric, screen) = (row_metric(metric)?, screen.map(|screen| &screen.screen));
    if left.cast::<PyArray2<f32>>().is_ok() {
        let found = with_rows(left, right, codes, corner, how, |l, r, frame| {
            screened::rows_beyond::<f32>((l, r), metric, frame, limit as f32, screen)
        })?;
        return Ok(found.map(|found| with_places(py, found)));
    }
    let found = with_rows(left, right, codes, corner, how, |l, r, frame| {
        screened::rows_beyond::<f64>((l, r), metric, frame, limit, screen)
    })?;
    Ok(found.map(|found| with_places(py, found)))
}

/// Score rows of bits, which end in one more word, and return the distances as small as a limit or smaller.
///
/// None: the scores must be looked at. See `RunningBest.choose_bits`.
#[pyfunction]
#[pyo3(signature = (left, right, codes, corner, limit, *, metric, single, screen))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
fn bits_beyond<'py>(
    left: &Bound<'py, PyUntypedArray>,
    right: &Bound<'py, PyUntypedArray>,
    codes: Option<PyReadonlyArray2<'py, u8>>,
    corner: (usize, usize),
    limit: f64,
    metric: &str,
    single: bool,
    screen: &BitScreen,
) -> PyResult<Option<(Positions<'py>, Bound<'py, PyUntypedArray>)>> {
    let (py, codes) = (left.py(), codes.as_ref());
    let (metric, screen) = (bit_metric(metric)?, &screen.screen);
    if single {
        let found = with_bits(left, right, codes, corner, |l, r, frame| {
            screened_bits::bits_beyond::<f32>((l, r), metric, frame, limit as f32, screen)
        })?;
        return Ok(found.map(|found| with_places(py, found)));
    }
    let found = with_bits(left, right, codes, corner, |l, r, frame| {
        screened_bits::bits_beyond::<f64>((l, r), metric, frame, limit, screen)
    })?;
    Ok(found.map(|found| with_places(py, found)))
}

/// Run `call` without the GIL on the rows of two arrays of 64-bit words.
fn with_bits<R: Send>(
    left: &Bound<'_, PyUntypedArray>,
    right: &Bound<'_, PyUntypedArray>,
    codes: Option<&PyReadonlyArray2<'_, u8>>,
    corner: (usize, usize),
    call: impl FnOnce(&[&[u64]], &[&[u64]], TileContext<'_>) -> R + Send,
) -> PyResult<R> {
    let (left, right) = (typed::<u64>(left)?, typed::<u64>(right)?);
    let shape = [left.shape()[0], right.shape()[0]];
    let fits = codes.is_none_or(|codes| codes.shape() == shape);
    if !fits || left.shape()[1] != right.shape()[1] || left.shape()[1] == 0 {
        return Err(PyValueError::new_err("rows or codes differ in shape"));
    }
    let (py, codes) = (left.py(), codes.map(rows).transpose()?);
    let (left, right) = (rows(&left)?, rows(&right)?);
    py.detach(|| {
        let frame = TileContext {
            codes: codes.as_deref(),
            corner,
            largest: false,
            skip_self: false,
        };
        Ok(call(&left, &right, frame))
    })
}

fn with_places<T: Element>(
    py: Python<'_>,
    (places, scores): (Places, Vec<T>),
) -> (Positions<'_>, Bound<'_, PyUntypedArray>) {
    let scores = scores.into_pyarray(py).as_untyped().clone();
    (positions(py, places), scores)
}

/// Run `call` without the GIL on the rows of two arrays of type T.
fn with_rows<T: Element + Scalar, R: Send>(
    left: &Bound<'_, PyUntypedArray>,
    right: &Bound<'_, PyUntypedArray>,
    codes: Option<&PyReadonlyArray2<'_, u8>>,
    corner: (usize, usize),
    (largest, skip_self): (bool, bool),
    call: impl FnOnce(&[&[T]], &[&[T]], TileContext<'_>) -> R + Send,
) -> PyResult<R> {
    let (left, right) = (typed::<T>(left)?, typed::<T>(right)?);
    let shape = [left.shape()[0], right.shape()[0]];
    let fits = codes.is_none_or(|codes| codes.shape() == shape);
    if !fits || left.shape()[1] != right.shape()[1] || !product::available() {
        return Err(PyValueError::new_err(
            "rows or codes differ in shape, or this machine has no kernel for products",
        ));
    }
    let (py, codes) = (left.py(), codes.map(rows).transpose()?);
    let (left, right) = (rows(&left)?, rows(&right)?);
    py.detach(|| {
        let codes = codes.as_deref();
        Ok(call(
            &left,
            &right,
            TileContext {
                codes,
                corner,
                largest,
                skip_self,
            },
        ))
    })
}

fn typed<'py, T: Element>(
    array: &Bound<'py, PyUntypedArray>,
) -> PyResult<PyReadonlyArray2<'py, T>> {
    let message = "left and right must both be 2-D, float32 or float64, as the best are, or uint64";
    let array = array.cast::<PyArray2<T>>();
    let array = array.map_err(|_| PyTypeError::new_err(message))?;
    Ok(array.try_readonly()?)
}

/// Run `call` without the GIL on a tile of scores of type T.
fn with_tile<T: Element + Score, R: Send>(
    scores: &Bound<'_, PyUntypedArray>,
    codes: Option<&PyReadonlyArray2<'_, u8>>,
    corner: (usize, usize),
    (largest, skip_self): (bool, bool),
    call: impl FnOnce(Tile<'_, T>) -> R + Send,
) -> PyResult<R> {
    let array = scores
        .cast::<PyArray2<T>>()
        .map_err(|_| PyTypeError::new_err("scores must be float32 or float64, as the best are"))?;
    if codes.is_some_and(|codes| codes.shape() != array.shape()) {
        return Err(PyValueError::new_err("scores and codes differ in shape"));
    }
    let array = array.try_readonly()?;
    let (scores, codes) = (rows(&array)?, codes.map(rows).transpose()?);
    scores_py(&array).detach(|| {
        Ok(call(Tile {
            scores: &scores,
            codes: codes.as_deref(),
            corner,
            largest,
            skip_self,
        }))
    })
}

fn scores_py<'py, T: Element>(array: &PyReadonlyArray2<'py, T>) -> Python<'py> {
    array.py()
}

fn positions(py: Python<'_>, places: Places) -> Positions<'_> {
    (
        places.rows.into_pyarray(py),
        places.columns.into_pyarray(py),
    )
}

/// Positions of the k best entries of each group, sorted by group, score and id.
#[pyfunction]
fn first_of_groups<'py>(
    groups: PyReadonlyArray1<'py, i64>,
    ids: PyReadonlyArray1<'py, i64>,
    scores: &Bound<'py, PyUntypedArray>,
    k: usize,
    largest: bool,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (py, groups, ids) = (scores.py(), groups.in_order()?, ids.in_order()?);
    if groups.len() != ids.len() || scores.shape() != [ids.len()] || ids.len() >= u32::MAX as usize
    {
        return Err(PyValueError::new_err(
            "groups, ids and scores differ in length",
        ));
    }
    let first = groups.iter().copied().min().unwrap_or(0);
    let last = groups.iter().copied().max().unwrap_or(0);
    if first < 0 || last - first >= i64::from(u32::MAX) {
        return Err(PyValueError::new_err("groups out of range"));
    }
    let span = (first, (last - first) as usize + 1);
    let found = if let Ok(scores) = scores.cast::<PyArray1<f32>>() {
        let scores = scores.try_readonly()?;
        let scores = scores.in_order()?;
        py.detach(|| keeper::first_of_groups(groups, ids, scores, span, k, largest))
    } else {
        let message = "scores must be float32 or float64";
        let scores = scores.cast::<PyArray1<f64>>();
        let scores = scores
            .map_err(|_| PyTypeError::new_err(message))?
            .try_readonly()?;
        let scores = scores.in_order()?;
        py.detach(|| keeper::first_of_groups(groups, ids, scores, span, k, largest))
    };
    Ok(found.into_pyarray(py))
}
