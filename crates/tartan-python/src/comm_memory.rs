//! Where received payloads lie: the memory of this node, or that of another one of this machine.

use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tartan_comm::arena::Window;
use tartan_comm::rank::BlockMemory;

use crate::in_order::InOrderMut;

/// A range of a memory as an array of bytes.
pub(crate) fn view<'py>(
    owner: Bound<'py, PyAny>,
    window: &Window,
    at: usize,
    bytes: usize,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    if at > window.len() || bytes > window.len() - at {
        return Err(PyValueError::new_err("outside the memory of the node"));
    }
    // SAFETY: inside the window, which lives as long as its owner, the base of the array.
    unsafe {
        let bytes = ArrayView1::from_shape_ptr(bytes, window.at(at, bytes).cast_const());
        Ok(PyArray1::borrow_from_array(&bytes, owner))
    }
}

/// The memory in which the block of a message lies.
#[pyclass(frozen, module = "tartan._native")]
pub struct CommMemory {
    pub(crate) memory: BlockMemory,
}

#[pymethods]
impl CommMemory {
    /// The description of a received block, and where its payload begins.
    fn description<'py>(&self, py: Python<'py>, block: u64) -> (Bound<'py, PyBytes>, usize) {
        let (text, begin) = self.memory.description(block);
        (PyBytes::new(py, &text), begin)
    }

    /// Copy a payload and give its block back.
    fn fetch(
        &self,
        py: Python<'_>,
        block: u64,
        begin: usize,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let out = out.in_order_mut()?;
        py.detach(|| self.memory.window().read(begin, out));
        self.memory.give_back(block);
        Ok(())
    }

    fn give_back(&self, block: u64) {
        self.memory.give_back(block);
    }

    fn view(
        slf: Bound<'_, Self>,
        begin: usize,
        n_bytes: usize,
    ) -> PyResult<Bound<'_, PyArray1<u8>>> {
        view(
            slf.clone().into_any(),
            slf.get().memory.window(),
            begin,
            n_bytes,
        )
    }
}
