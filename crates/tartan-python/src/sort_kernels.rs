//! Sort of numbers in memory: `tartan_sort::kernels` on a NumPy array, for tests and benchmarks.

use numpy::{Element, PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use tartan_sort::kernels::{self, NumberKind, Path, Vectorised};

use crate::in_order::InOrderMut;

/// Add the functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sort_keys, module)?)
}

#[pyfunction]
fn sort_keys(py: Python<'_>, array: &Bound<'_, PyAny>, path: &str, threads: usize) -> PyResult<()> {
    let path = parse(path)?;
    macro_rules! attempt {
        ($($number:ty, $key:ty, $kind:ident;)*) => {
            $(if let Ok(array) = array.cast::<PyArray1<$number>>() {
                return sort_array::<$number, $key>(py, array, NumberKind::$kind, path, threads);
            })*
        };
    }
    attempt!(
        i32, u32, I32;
        u32, u32, U32;
        f32, u32, F32;
        i64, u64, I64;
        u64, u64, U64;
        f64, u64, F64;
    );
    Err(PyTypeError::new_err(
        "array must be one-dimensional and hold integers or floats of 4 or 8 bytes",
    ))
}

fn parse(name: &str) -> PyResult<Path> {
    let path = match name {
        "auto" => Path::Auto,
        "avx512" => Path::Avx512,
        "avx2" => Path::Avx2,
        "radix" => Path::Radix,
        _ => {
            return Err(PyValueError::new_err(format!(
                "path is {name:?}; it must be 'auto', 'avx512', 'avx2' or 'radix'"
            )))
        }
    };
    if path.is_available() {
        return Ok(path);
    }
    Err(PyValueError::new_err(format!(
        "this machine lacks the instructions of path {name:?}; use 'auto'"
    )))
}

fn sort_array<T: Element, K: Vectorised>(
    py: Python<'_>,
    array: &Bound<'_, PyArray1<T>>,
    kind: NumberKind,
    path: Path,
    threads: usize,
) -> PyResult<()> {
    let mut writable = array
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let numbers = writable.in_order_mut()?;
    assert!(size_of::<T>() == size_of::<K>(), "a key for each number");
    // SAFETY: numbers and keys have the same size and alignment, and all bits are valid in both.
    let keys =
        unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast::<K>(), numbers.len()) };
    py.detach(|| {
        let capacity = if path == Path::Radix {
            keys.len()
        } else {
            kernels::scratch_len::<K>(keys.len())
        };
        let mut scratch = vec![K::default(); capacity];
        kernels::encode(keys, kind, false);
        kernels::sort(keys, &mut scratch, path, threads);
        kernels::decode(keys, kind, false);
    });
    Ok(())
}
