//! Progress of a detached kernel, and its cancellation by an exception.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Time between two calls of Python.
/// By judgement: LIVE_SECONDS of base/progress; taking the interpreter lock more often would cost.
const BETWEEN_REPORTS: Duration = Duration::from_millis(100);

/// Make the question whether to continue, which a kernel asks with the number of nodes that are left.
///
/// It passes the number to Python at first, and then every [`BETWEEN_REPORTS`]. What Python raises is kept in
/// `raised`, and the answer is no.
pub fn reporting(
    report: Option<Py<PyAny>>,
    raised: &mut Option<PyErr>,
) -> impl FnMut(usize) -> bool + '_ {
    let mut last: Option<Instant> = None;
    move |left| {
        let Some(call) = &report else { return true };
        if last.is_some_and(|last| last.elapsed() < BETWEEN_REPORTS) {
            return true;
        }
        *raised = Python::attach(|py| call.call1(py, (left,)).err());
        last = Some(Instant::now());
        raised.is_none()
    }
}
