//! The disk-to-disk sort: `tartan_sort::job` as a Python class.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tartan_sort::control::EDGES;
use tartan_sort::disk::{Direct, IoMethod, RingPlan};
use tartan_sort::engine::JobPlan;
use tartan_sort::error::JobFailure;
use tartan_sort::form::{parse_field, Form};
use tartan_sort::job::Sorting;
use tartan_sort::pack_policy::Pack;
use tartan_sort::run::SortedRun;
use tartan_sort::sort_phase::Chunk;
use tartan_sort::source::RecordSource;

use crate::in_order::{InOrder, InOrderMut};

create_exception!(
    _native,
    SortFailure,
    PyException,
    "What went wrong in a sort: attributes kind, path, offset, errno."
);

/// Add the classes and functions of this family to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SortFailure", module.py().get_type::<SortFailure>())?;
    module.add_class::<SortJob>()?;
    module.add_function(wrap_pyfunction!(run_facts, module)?)?;
    module.add_function(wrap_pyfunction!(verify_run, module)?)?;
    module.add_function(wrap_pyfunction!(copy_file, module)?)?;
    module.add_function(wrap_pyfunction!(sort_overhead, module)?)
}

pub fn raise(py: Python<'_>, failure: JobFailure) -> PyErr {
    let error = SortFailure::new_err(failure.message);
    let value = error.value(py);
    let path = failure.path.map(|path| path.display().to_string());
    let attributes = value
        .setattr("kind", failure.kind.name())
        .and_then(|()| value.setattr("path", path))
        .and_then(|()| value.setattr("offset", failure.offset))
        .and_then(|()| value.setattr("errno", failure.errno));
    match attributes {
        Ok(()) => error,
        Err(other) => other,
    }
}

pub type PyFields = Vec<(usize, String, bool)>;

pub fn form(py: Python<'_>, record_bytes: usize, key: &PyFields) -> PyResult<Form> {
    let fields = key
        .iter()
        .map(|(offset, text, descending)| parse_field(*offset, text, *descending));
    let fields = fields
        .collect::<Result<Vec<_>, _>>()
        .map_err(|failure| raise(py, failure))?;
    Form::new(record_bytes, &fields).map_err(|failure| raise(py, failure))
}

fn choose<T: Copy>(option: &str, text: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let chosen = choices.iter().find(|choice| choice.0 == text);
    chosen.map(|choice| choice.1).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
        PyValueError::new_err(format!(
            "{option} is {text:?}; it must be one of {}",
            names.join(", ")
        ))
    })
}

const METHODS: [(&str, IoMethod); 3] = [
    ("auto", IoMethod::Auto),
    ("uring", IoMethod::Uring),
    ("threads", IoMethod::Threads),
];

const DIRECT: [(&str, Direct); 3] = [
    ("auto", Direct::Auto),
    ("always", Direct::Always),
    ("never", Direct::Never),
];

/// One sort; its threads are its own.
#[pyclass(frozen, module = "tartan._native")]
struct SortJob {
    job: Sorting,
}

#[pymethods]
impl SortJob {
    #[new]
    #[pyo3(signature = (*, record_bytes, key, fingerprint, folders, buffer_bytes, buffers, threads=2, fan_in=256,
        block_bytes=32768, ring_bytes=1048576, ring_depth=8, pack="auto", direct="auto", io="auto"))]
    #[allow(
        clippy::too_many_arguments,
        reason = "keyword-only, each a plain number or choice"
    )]
    fn new(
        py: Python<'_>,
        record_bytes: usize,
        key: PyFields,
        fingerprint: &[u8],
        folders: Vec<PathBuf>,
        buffer_bytes: usize,
        buffers: usize,
        threads: usize,
        fan_in: usize,
        block_bytes: usize,
        ring_bytes: usize,
        ring_depth: usize,
        pack: &str,
        direct: &str,
        io: &str,
    ) -> PyResult<SortJob> {
        let fingerprint = fingerprint.try_into().map_err(|_| {
            PyValueError::new_err(format!(
                "the fingerprint has {} bytes; it must have 32",
                fingerprint.len()
            ))
        })?;
        let plan = JobPlan {
            form: form(py, record_bytes, &key)?,
            fingerprint,
            folders,
            buffer_bytes,
            buffers,
            threads,
            fan_in,
            block_bytes,
            ring: RingPlan {
                bytes: ring_bytes,
                depth: ring_depth,
                method: choose("io", io, &METHODS)?,
            },
            pack: choose(
                "pack",
                pack,
                &[
                    ("auto", Pack::Auto),
                    ("always", Pack::Always),
                    ("never", Pack::Never),
                ],
            )?,
            direct: choose("direct", direct, &DIRECT)?,
        };
        let job = Sorting::new(plan).map_err(|failure| raise(py, failure))?;
        Ok(SortJob { job })
    }

    #[pyo3(signature = (sources, runs=Vec::new()))]
    fn sort_files(
        &self,
        py: Python<'_>,
        sources: Vec<(PathBuf, u64, u64)>,
        runs: Vec<PathBuf>,
    ) -> PyResult<()> {
        let source = |(path, offset, bytes)| RecordSource {
            path,
            offset,
            bytes,
        };
        let sources = sources.into_iter().map(source).collect();
        self.call(py, |job| job.sort_files(sources, &runs))
    }

    /// Make one run of each chunk (first record, records) of files.
    fn make_runs(
        &self,
        py: Python<'_>,
        sources: Vec<(PathBuf, u64, u64)>,
        chunks: Vec<(u64, u64)>,
    ) -> PyResult<()> {
        let source = |(path, offset, bytes)| RecordSource {
            path,
            offset,
            bytes,
        };
        let chunk = |(first_record, records)| Chunk {
            first_record,
            records,
        };
        let sources = sources.into_iter().map(source).collect();
        let chunks = chunks.into_iter().map(chunk).collect();
        self.call(py, |job| job.make_runs(sources, chunks))
    }

    fn push(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_of(data)?.try_readonly();
        let data = data.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes = data.in_order()?;
        self.call(py, |job| job.push(bytes))
    }

    fn adopt(&self, py: Python<'_>, runs: Vec<PathBuf>) -> PyResult<()> {
        self.call(py, |job| job.adopt(&runs))
    }

    /// Ranges of records (first, count) that adopted runs leave out; the last one has no end: count -1.
    fn missing(&self) -> Vec<(u64, i64)> {
        let (gaps, end) = self.job.missing();
        let gaps = gaps
            .iter()
            .map(|gap| (gap.first_record, gap.records as i64));
        gaps.chain([(end, -1)]).collect()
    }

    /// Make one run of what is pushed between two calls of `seek`; the caller merges them elsewhere.
    fn push_runs(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Sorting::push_runs)
    }

    fn seek(&self, py: Python<'_>, record: u64) -> PyResult<()> {
        self.call(py, |job| job.seek(record))
    }

    fn finish_push(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Sorting::finish_push)
    }

    #[pyo3(signature = (path, offset=0, sync=true))]
    fn write_file(&self, py: Python<'_>, path: PathBuf, offset: u64, sync: bool) -> PyResult<()> {
        self.call(py, |job| job.write_file(path, offset, sync))
    }

    fn open_sorted(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Sorting::open_sorted)
    }

    fn read_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        let out = bytes_of(out)?.try_readwrite();
        let mut out = out.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let bytes = out.in_order_mut()?;
        self.call(py, |job| job.read_into(bytes))
    }

    fn wait(&self, py: Python<'_>, timeout_seconds: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_seconds).map_err(|_| {
            PyValueError::new_err(format!(
                "timeout_seconds is {timeout_seconds}; it must be 0 or more"
            ))
        })?;
        self.call(py, |job| job.wait(timeout))
    }

    /// For tests: abort the process, as if it were killed, once this many runs or ranges are done; 0 is never.
    #[pyo3(signature = (*, runs=0, ranges=0))]
    fn abort_after(&self, runs: u64, ranges: u64) {
        self.job.engine().faults.abort_after(runs, ranges);
    }

    fn cancel(&self) {
        self.job.engine().control.cancel();
    }

    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let control = &self.job.engine().control;
        let progress = PyDict::new(py);
        progress.set_item("phase", control.phase().name())?;
        progress.set_item("bytes_done", control.bytes_done.load(Relaxed))?;
        progress.set_item("bytes_total", control.bytes_total.load(Relaxed))?;
        progress.set_item("runs_done", control.runs_done.load(Relaxed))?;
        progress.set_item("ranges_done", control.ranges_done.load(Relaxed))?;
        Ok(progress)
    }

    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.job
            .runs()
            .iter()
            .map(|run| describe(py, run))
            .collect()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = PyDict::new(py);
        self.facts(&statistics)?;
        self.decision(&statistics)?;
        let edges = PyDict::new(py);
        for (edge, name) in EDGES {
            let (bytes, busy, wait) = self.job.engine().control.flow(edge).totals();
            let flow = PyDict::new(py);
            flow.set_item("bytes", bytes)?;
            flow.set_item("busy_seconds", busy)?;
            flow.set_item("wait_seconds", wait)?;
            edges.set_item(name, flow)?;
        }
        statistics.set_item("edges", edges)?;
        Ok(statistics)
    }

    fn close(&self, py: Python<'_>, keep_runs: bool) {
        py.detach(|| self.job.close(keep_runs));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        py.detach(|| self.job.close(true));
    }
}

impl SortJob {
    /// Call without the interpreter lock, and raise what fails.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Sorting) -> Result<T, JobFailure> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&self.job))
            .map_err(|failure| raise(py, failure))
    }

    fn facts(&self, statistics: &Bound<'_, PyDict>) -> PyResult<()> {
        let engine = self.job.engine();
        let facts = engine.facts.lock().expect("no holder panics").clone();
        let bits = 8.0 * facts.packed_bytes as f64 / facts.packed_values.max(1) as f64;
        statistics.set_item("records", facts.records)?;
        statistics.set_item("record_bytes", engine.plan.form.width())?;
        statistics.set_item("runs", facts.runs)?;
        statistics.set_item("runs_adopted", facts.runs_adopted)?;
        statistics.set_item("packed_runs", facts.packed_runs)?;
        statistics.set_item("bits_per_value", (facts.packed_values > 0).then_some(bits))?;
        statistics.set_item("levels", facts.levels)?;
        statistics.set_item("ranges", engine.control.ranges_done.load(Relaxed))?;
        statistics.set_item("direct_read", facts.direct_read)?;
        statistics.set_item("direct_write", facts.direct_write)?;
        statistics.set_item("direct_runs", facts.direct_runs)?;
        statistics.set_item("io", facts.method)?;
        statistics.set_item("read_bytes_per_second", facts.read_bytes_per_second)?;
        statistics.set_item("write_bytes_per_second", facts.write_bytes_per_second)
    }

    fn decision(&self, statistics: &Bound<'_, PyDict>) -> PyResult<()> {
        let decision = self
            .job
            .engine()
            .decision
            .lock()
            .expect("no holder panics")
            .clone();
        statistics.set_item(
            "pack_reason",
            decision.as_ref().map(|made| made.reason.clone()),
        )?;
        statistics.set_item(
            "pack_bytes_per_second",
            decision
                .as_ref()
                .and_then(|made| made.pack_bytes_per_second),
        )?;
        statistics.set_item(
            "unpack_bytes_per_second",
            decision
                .as_ref()
                .and_then(|made| made.unpack_bytes_per_second),
        )
    }
}

pub fn bytes_of<'a, 'py>(array: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyArray1<u8>>> {
    array.cast::<PyArray1<u8>>().map_err(|_| {
        PyTypeError::new_err(
            "the array must be one-dimensional and of uint8; use array.view(numpy.uint8)",
        )
    })
}

pub fn describe<'py>(py: Python<'py>, run: &SortedRun) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("path", run.path.display().to_string())?;
    facts.set_item("fingerprint", PyBytes::new(py, &run.header.fingerprint))?;
    facts.set_item("version", tartan_sort::run::format::VERSION)?;
    facts.set_item("record_bytes", run.header.record_bytes)?;
    facts.set_item("first_record", run.header.first_record)?;
    facts.set_item("records", run.header.records)?;
    facts.set_item("level", run.header.level)?;
    facts.set_item("packed", run.header.packed)?;
    facts.set_item("file_bytes", run.file_bytes)?;
    facts.set_item("data_bytes", run.footer.data_bytes)?;
    facts.set_item("bits_per_value", run.bits_per_value())?;
    Ok(facts)
}

#[pyfunction]
fn run_facts<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let run = py
        .detach(|| SortedRun::inspect(&path))
        .map_err(|failure| raise(py, failure))?;
    describe(py, &run)
}

#[pyfunction]
fn verify_run<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let run = py
        .detach(|| SortedRun::verify(&path))
        .map_err(|failure| raise(py, failure))?;
    describe(py, &run)
}

#[pyfunction]
#[pyo3(signature = (*, record_bytes, key, buffer_bytes, buffers, threads=2, fan_in=256, block_bytes=32768,
    ring_bytes=1048576, ring_depth=8))]
#[allow(clippy::too_many_arguments, reason = "the numbers of SortJob")]
fn sort_overhead(
    py: Python<'_>,
    record_bytes: usize,
    key: PyFields,
    buffer_bytes: usize,
    buffers: usize,
    threads: usize,
    fan_in: usize,
    block_bytes: usize,
    ring_bytes: usize,
    ring_depth: usize,
) -> PyResult<usize> {
    let plan = JobPlan {
        form: form(py, record_bytes, &key)?,
        fingerprint: [0; 32],
        folders: Vec::new(),
        buffer_bytes,
        buffers,
        threads,
        fan_in,
        block_bytes,
        ring: RingPlan {
            bytes: ring_bytes,
            depth: ring_depth,
            method: IoMethod::Auto,
        },
        pack: Pack::Auto,
        direct: Direct::Auto,
    };
    plan.check().map_err(|failure| raise(py, failure))?;
    Ok(plan.memory_bytes())
}

/// Copy a file through the rings of a sort; what a sort is measured against.
#[pyfunction]
#[pyo3(signature = (source, target, *, ring_bytes=1048576, ring_depth=8, direct="auto", io="auto"))]
fn copy_file(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    ring_bytes: usize,
    ring_depth: usize,
    direct: &str,
    io: &str,
) -> PyResult<u64> {
    let method = choose("io", io, &METHODS)?;
    let ring = RingPlan {
        bytes: ring_bytes,
        depth: ring_depth,
        method,
    };
    let direct = choose("direct", direct, &DIRECT)?;
    py.detach(|| tartan_sort::copy::copy(&source, &target, ring, direct))
        .map_err(|failure| raise(py, failure))
}
