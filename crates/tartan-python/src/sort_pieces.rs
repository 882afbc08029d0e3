//! Pieces of run files, for sorts on several ranks: `tartan_sort::pieces` as Python classes.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tartan_sort::pieces::{PieceBlocks, RangeBuffer, RunPieces};

use crate::in_order::{InOrder, InOrderMut};
use crate::sort::{bytes_of, describe, form, raise, PyFields};

/// Add the classes of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SortPieces>()?;
    module.add_class::<SortRange>()
}

/// A whole run file, open for questions; threads may ask at the same time.
#[pyclass(frozen, module = "tartan._native")]
struct SortPieces {
    pieces: RunPieces,
}

#[pymethods]
impl SortPieces {
    #[new]
    #[pyo3(signature = (path, *, record_bytes, key))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        record_bytes: usize,
        key: PyFields,
    ) -> PyResult<SortPieces> {
        let form = form(py, record_bytes, &key)?;
        let pieces = py
            .detach(|| RunPieces::open(&path, form))
            .map_err(|failure| raise(py, failure))?;
        Ok(SortPieces { pieces })
    }

    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = describe(py, self.pieces.run())?;
        facts.set_item("block_records", self.pieces.run().header.block_records)?;
        facts.set_item("key_bytes", self.pieces.run().header.key_bytes)?;
        Ok(facts)
    }

    /// Stored bytes and checksums of blocks.
    #[allow(clippy::type_complexity, reason = "two arrays")]
    fn blocks<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        count: usize,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>)> {
        let blocks = first
            .checked_add(count)
            .and_then(|end| self.pieces.blocks().get(first..end))
            .ok_or_else(|| PyValueError::new_err("the run does not have these blocks"))?;
        let stored = PyArray1::from_iter(py, blocks.iter().map(|block| block.stored));
        let checksums = PyArray1::from_iter(py, blocks.iter().map(|block| block.checksum));
        Ok((stored, checksums))
    }

    /// The step that was taken, and the keys at its multiples, one behind the other.
    fn sample<'py>(&self, py: Python<'py>, step: u64) -> PyResult<(u64, Bound<'py, PyArray1<u8>>)> {
        let (step, keys) = py
            .detach(|| self.pieces.sample(step))
            .map_err(|failure| raise(py, failure))?;
        Ok((step, PyArray1::from_vec(py, keys)))
    }

    /// How many records come before each key, and before or at it where `equal` says so.
    fn cut<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        equal: Vec<bool>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let keys = bytes_of(keys)?.try_readonly();
        let keys = keys.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let keys = keys.in_order()?;
        let cuts = py
            .detach(|| self.pieces.cut(keys, &equal))
            .map_err(|failure| raise(py, failure))?;
        Ok(PyArray1::from_vec(py, cuts))
    }

    /// Read blocks as they are stored.
    fn read(
        &self,
        py: Python<'_>,
        first: usize,
        count: usize,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let out = bytes_of(out)?.try_readwrite();
        let mut out = out.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes = out.in_order_mut()?;
        py.detach(|| self.pieces.read(first, count, bytes))
            .map_err(|failure| raise(py, failure))
    }
}

/// A range of the result, put together from pieces of run files; one thread uses it at a time.
#[pyclass(frozen, module = "tartan._native")]
struct SortRange {
    range: Mutex<RangeBuffer>,
}

#[pymethods]
impl SortRange {
    #[new]
    #[pyo3(signature = (buffer_bytes, *, record_bytes, key))]
    fn new(
        py: Python<'_>,
        buffer_bytes: usize,
        record_bytes: usize,
        key: PyFields,
    ) -> PyResult<SortRange> {
        let range = RangeBuffer::new(form(py, record_bytes, &key)?, buffer_bytes)
            .map_err(|failure| raise(py, failure))?;
        Ok(SortRange {
            range: Mutex::new(range),
        })
    }

    #[getter]
    fn capacity(&self) -> usize {
        self.range.lock().expect("no holder panics").capacity()
    }

    #[getter]
    fn records(&self) -> usize {
        self.range.lock().expect("no holder panics").records()
    }

    fn clear(&self) {
        self.range.lock().expect("no holder panics").clear();
    }

    /// Append the records of stored blocks that are wanted.
    #[pyo3(signature = (stored, sizes, checksums, *, block_records, records, first, wanted))]
    #[allow(clippy::too_many_arguments, reason = "keyword-only, plain numbers")]
    fn add(
        &self,
        py: Python<'_>,
        stored: &Bound<'_, PyAny>,
        sizes: PyReadonlyArray1<'_, u32>,
        checksums: PyReadonlyArray1<'_, u32>,
        block_records: u64,
        records: u64,
        first: u64,
        wanted: (u64, u64),
    ) -> PyResult<()> {
        let stored = bytes_of(stored)?.try_readonly();
        let stored = stored.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes = stored.in_order()?;
        let (sizes, checksums) = (sizes.in_order()?, checksums.in_order()?);
        if sizes.len() != checksums.len() {
            return Err(PyValueError::new_err(
                "as many sizes as checksums are needed",
            ));
        }
        let blocks: Vec<(u32, u32)> = sizes
            .iter()
            .copied()
            .zip(checksums.iter().copied())
            .collect();
        let piece = PieceBlocks {
            blocks: &blocks,
            block_records,
            records,
            first,
            wanted: wanted.0..wanted.1,
        };
        py.detach(|| {
            self.range
                .lock()
                .expect("no holder panics")
                .add(&piece, bytes)
        })
        .map_err(|failure| raise(py, failure))
    }

    fn end_piece(&self) {
        self.range.lock().expect("no holder panics").end_piece();
    }

    #[pyo3(signature = (threads=1))]
    fn sort(&self, py: Python<'_>, threads: usize) {
        py.detach(|| self.range.lock().expect("no holder panics").sort(threads));
    }

    /// Write the sorted records to an open file.
    fn write(&self, py: Python<'_>, descriptor: i32, path: PathBuf, offset: u64) -> PyResult<()> {
        if descriptor < 0 {
            return Err(PyValueError::new_err("the file is closed"));
        }
        // SAFETY: the caller holds the descriptor open during the call, and it is not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let write = |path: &Path| {
            self.range
                .lock()
                .expect("no holder panics")
                .write(&file, path, offset)
        };
        py.detach(|| write(&path))
            .map_err(|failure| raise(py, failure))
    }

    /// Fill an array with sorted records, from record `first` on; the bytes filled.
    fn take(&self, py: Python<'_>, first: usize, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        let out = bytes_of(out)?.try_readwrite();
        let mut out = out.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes = out.in_order_mut()?;
        py.detach(|| {
            self.range
                .lock()
                .expect("no holder panics")
                .take(first, bytes)
        })
        .map_err(|failure| raise(py, failure))
    }
}
