//! Arrays as slices, in the order of their rows.
//!
//! `as_slice` of the NumPy binding also takes arrays in the order of columns, and would hand out their elements
//! transposed without a word.

use numpy::ndarray::Dimension;
use numpy::npyffi::NPY_ARRAY_CARRAY_RO;
use numpy::{Element, PyArray, PyReadonlyArray, PyReadwriteArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Elements to read.
pub trait InOrder<T> {
    /// # Errors
    /// If rows do not follow each other without gaps, or elements are not aligned.
    fn in_order(&self) -> PyResult<&[T]>;
}

/// Elements to write.
pub trait InOrderMut<T>: InOrder<T> {
    /// # Errors
    /// As for `in_order`.
    fn in_order_mut(&mut self) -> PyResult<&mut [T]>;
}

impl<T: Element, D: Dimension> InOrder<T> for PyReadonlyArray<'_, T, D> {
    fn in_order(&self) -> PyResult<&[T]> {
        require(self)?;
        Ok(self.as_slice()?)
    }
}

impl<T: Element, D: Dimension> InOrder<T> for PyReadwriteArray<'_, T, D> {
    fn in_order(&self) -> PyResult<&[T]> {
        require(self)?;
        Ok(self.as_slice()?)
    }
}

impl<T: Element, D: Dimension> InOrderMut<T> for PyReadwriteArray<'_, T, D> {
    fn in_order_mut(&mut self) -> PyResult<&mut [T]> {
        require(self)?;
        Ok(self.as_slice_mut()?)
    }
}

fn require<T: Element, D: Dimension>(array: &Bound<'_, PyArray<T, D>>) -> PyResult<()> {
    // SAFETY: reading a field of an array object that the GIL and the reference keep alive.
    let found = unsafe { (*array.as_array_ptr()).flags };
    let shape = array.shape();
    (found & NPY_ARRAY_CARRAY_RO == NPY_ARRAY_CARRAY_RO)
        .then_some(())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "an array of shape {shape:?} must be contiguous in the order of its rows, and aligned"
            ))
        })
}
