//! Registration of particles: `tartan_kernels::microscopy` on NumPy arrays.

use numpy::{PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tartan_kernels::microscopy::{
    gauss_at, register_tile, score_at, thin, Motion, Particle, Settings, Square, VectorLevel,
};

use crate::in_order::InOrder;

/// Numbers of one registration: B, tx, ty, theta, evaluations.
/// By format.
const OUTPUTS: usize = 5;

/// Numbers of one evaluation: the value, the gradient (3), the Hessian (6).
/// By format.
const SUMS: usize = 10;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(microscopy_register, module)?)?;
    module.add_function(wrap_pyfunction!(microscopy_evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(microscopy_prepare, module)?)?;
    module.add_function(wrap_pyfunction!(microscopy_square, module)?)?;
    module.add_function(wrap_pyfunction!(microscopy_thin, module)?)
}

type Rows<'py> = PyReadonlyArray2<'py, f64>;

#[pyfunction]
#[pyo3(signature = (left, right, wanted = None, *, symmetry = 1, level = None))]
fn microscopy_register<'py>(
    py: Python<'py>,
    left: Vec<Rows<'py>>,
    right: Vec<Rows<'py>>,
    wanted: Option<PyReadonlyArray2<'py, bool>>,
    symmetry: usize,
    level: Option<&str>,
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let settings = Settings {
        symmetry,
        level: level_of(level)?,
    };
    if symmetry == 0 {
        return Err(PyValueError::new_err("symmetry=0 must be above zero"));
    }
    let shape = [left.len(), right.len(), OUTPUTS];
    let wanted = wanted.as_ref().map(|w| w.in_order()).transpose()?;
    if wanted.is_some_and(|w| w.len() != left.len() * right.len()) {
        return Err(PyValueError::new_err(
            "wanted has another shape than the tile",
        ));
    }
    let (left, right) = (prepared(&left)?, prepared(&right)?);
    let found = py.detach(|| register_tile(&left, &right, wanted, &settings));
    let numbers = found.iter().flat_map(|one| {
        one.map_or([f64::NAN; OUTPUTS], |one| {
            let Motion { x, y, theta } = one.motion;
            [one.score, x, y, theta, f64::from(one.evaluations)]
        })
    });
    PyArray1::from_vec(py, numbers.collect()).reshape(shape)
}

#[pyfunction]
#[pyo3(signature = (left, right, motions, *, scale = None, level = None))]
fn microscopy_evaluate<'py>(
    py: Python<'py>,
    left: Rows<'py>,
    right: Rows<'py>,
    motions: Rows<'py>,
    scale: Option<f64>,
    level: Option<&str>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let (a, b, level) = (particle(&left)?, particle(&right)?, level_of(level)?);
    let motions = motions.in_order()?;
    let numbers: Vec<f64> = py.detach(|| {
        motions
            .chunks_exact(3)
            .flat_map(|m| {
                let motion = Motion {
                    x: m[0],
                    y: m[1],
                    theta: m[2],
                };
                let sums = match scale {
                    Some(scale) => gauss_at(&a, &b, &motion, scale, level),
                    None => score_at(&a, &b, &motion, level),
                };
                [sums.value]
                    .into_iter()
                    .chain(sums.gradient)
                    .chain(sums.hessian)
            })
            .collect()
    });
    let n = numbers.len() / SUMS;
    PyArray1::from_vec(py, numbers).reshape([n, SUMS])
}

/// Facts of a particle, its fingerprint, its points, and the sample of the coarse stages; see `Particle`.
type Prepared<'py> = (
    [f64; 5],
    u64,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
);

#[pyfunction]
fn microscopy_prepare<'py>(py: Python<'py>, points: Rows<'py>) -> PyResult<Prepared<'py>> {
    let particle = particle(&points)?;
    let [all, sample] = particle.rows().map(|rows| {
        let n = rows.len();
        PyArray1::from_vec(py, rows.into_flattened()).reshape([n, 3])
    });
    Ok((particle.facts(), particle.fingerprint(), all?, sample?))
}

/// The square for two particles of these radii and variances: its side in pixels, the length of a pixel, and the angles
/// that the first is turned to.
#[pyfunction]
fn microscopy_square<'py>(
    py: Python<'py>,
    radii: [f64; 2],
    variances: [f64; 2],
    symmetry: usize,
) -> (usize, f64, Bound<'py, PyArray1<f64>>) {
    let square = Square::for_sizes(radii, variances);
    let angles = square.angles(radii[0], symmetry.max(1));
    (square.side, square.pixel(), PyArray1::from_vec(py, angles))
}

#[pyfunction]
fn microscopy_thin<'py>(
    py: Python<'py>,
    points: Rows<'py>,
    most: usize,
) -> PyResult<Bound<'py, PyArray1<usize>>> {
    let rows = rows_of(&points)?;
    let kept = py.detach(|| thin(&rows, most));
    Ok(PyArray1::from_vec(py, kept))
}

fn rows_of(points: &Rows) -> PyResult<Vec<[f64; 3]>> {
    let (rows, rest) = points.in_order()?.as_chunks::<3>();
    let fits = points.as_array().shape()[1] == 3 && rest.is_empty();
    fits.then(|| rows.to_vec())
        .ok_or_else(|| PyValueError::new_err("points are rows of x, y and uncertainty"))
}

fn particle(points: &Rows) -> PyResult<Particle> {
    Particle::new(&rows_of(points)?).ok_or_else(|| {
        PyValueError::new_err("a particle needs points of finite numbers, uncertainties above zero")
    })
}

fn prepared(items: &[Rows]) -> PyResult<Vec<Particle>> {
    items.iter().map(particle).collect()
}

/// The named level, or the widest.
fn level_of(name: Option<&str>) -> PyResult<VectorLevel> {
    let level = match name {
        None => VectorLevel::widest(),
        Some("plain") => VectorLevel::Plain,
        Some("avx2") => VectorLevel::Avx2,
        Some("avx512") => VectorLevel::Avx512,
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "level {other:?} is none of plain, avx2, avx512"
            )))
        }
    };
    let has = level <= VectorLevel::widest();
    has.then_some(level)
        .ok_or_else(|| PyValueError::new_err(format!("this machine has no {level:?}")))
}
