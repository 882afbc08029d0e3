"""Linkage by chains of nearest neighbours over the rows of a matrix, in memory or on disk.

The kernel (``crates/tartan-kernels/src/linkage.rs``) reads rows and joins; here it is decided where they lie
(``core/linkage.py``), what was there before is taken up (``workplace.py``), and what goes wrong is said.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.matrix.check import Check
from tartan.analytics.matrix.sources import ArrayInFile, Triangle, native
from tartan.analytics.monitor import Monitor
from tartan.analytics.trees.workplace import LOG_START, LinkageJob, Workplace, fingerprint_pairs, workplace_of
from tartan.base import machine
from tartan.base.files import disk_errors
from tartan.base.format import format_bytes, format_duration
from tartan.base.logs import logger_of
from tartan.core.linkage import LinkagePlan, plan_linkage
from tartan.errors import ConfigError, StoreError
from tartan.options import parse_bytes
from tartan.store.manifest import FILE_NAME

_log = logger_of(__name__)
Steps = NDArray[np.float64]

# By judgement: the least eigenvalue of some 200 items is known in a tenth of a second.
_SAMPLED_ITEMS = 200
# By judgement: 30 times what int16 makes of distances that are Euclidean, 3e-5 of the largest eigenvalue or less.
_NEGATIVE_SHARE = 1e-3


def join_rows(
    matrix: Dissimilarities,
    method: str,
    monitor: Monitor,
    *,
    memory: str | int | None = None,
    level: float | None = None,
) -> Steps:
    """Join by the rows of a checked matrix without missing pairs.

    Parameters
    ----------
    matrix : Dissimilarities
    method : str
        "complete", "average", "weighted", "ward" (of Euclidean distances), or "ward unsquared": the distance of two
        clusters is what joining them adds to the sum over clusters of all distances within, both ways, divided by the
        number of items.
    monitor : Monitor
        Its checkpoint, where it has one, is the folder of what lies on disk.
    memory : str or int, optional
        Most memory; default: half of what is free.
    level : float, optional
        What is subtracted from distances, which end at 0.

    Returns
    -------
    float64 array (n - 1, 4)
        As SciPy has it.

    Raises
    ------
    ConfigError
        If a mean of distances exceeds the largest float64, or the memory is no size.
    StoreError
        If the matrix was changed meanwhile, or the folder of the rows is in use, of another linkage, or not writable.
    DiskFullError
        If the disk is full.
    """
    free = machine.memory().available_bytes
    most = _read_memory(memory)
    matrix = _symmetric(matrix)
    given = _given_rows(matrix)
    plan = plan_linkage(matrix.n, matrix.dtype.itemsize, most, there=given is not None, free_bytes=free)
    call = _LinkageCall(matrix, method, monitor, level)
    before = _stamp(matrix)
    if plan.on_disk:
        steps = _join_on_disk(call, plan, given)
    else:
        rows = matrix.materialized(native(matrix.dtype), memory_bytes=sys.maxsize, monitor=monitor).array
        steps = call.join(rows)
    if _stamp(matrix) != before:
        raise StoreError(
            f"{matrix.label} was changed while it was clustered, and what was found is of neither; cluster it again",
            code="changed",
        )
    return steps


def check_rows(matrix: Dissimilarities, monitor: Monitor | None, *, memory: str | int | None = None) -> Check:
    """Check a matrix as ``matrix.check`` does, a file that is larger than the memory without mapping it."""
    array, mapped = matrix.array, _mapped(matrix.array)
    if array is None or mapped is None or array.nbytes <= _read_memory(memory) or matrix.checked is not None:
        return matrix.check(monitor=monitor)
    if array.dtype != native(matrix.dtype):
        return matrix.check(monitor=monitor)
    source = ArrayInFile(str(mapped.filename), _start_of(array, mapped), matrix.n, array.dtype)
    read = Dissimilarities(source, scale=matrix.scale, label=matrix.label, missing_allowed=matrix.missing_allowed)
    read.names = matrix.names
    matrix.checked = read.like(matrix).check(monitor=monitor)
    return matrix.checked


def _read_memory(memory: str | int | None) -> int:
    """Return how many bytes may be used: by default half of what is free."""
    return machine.memory().available_bytes // 2 if memory is None else parse_bytes(memory, option="memory")


def _start_of(array: NDArray[Any], mapped: np.memmap[Any, Any]) -> int:
    """Return where in the file an array begins."""
    return int(mapped.offset) + array.ctypes.data - mapped.ctypes.data


def _join_on_disk(call: _LinkageCall, plan: LinkagePlan, given: NDArray[Any] | None) -> Steps:
    with workplace_of(call.matrix, call.monitor) as place:
        _say_plan(call, plan, place)
        _prepare(call, plan, place, is_given=given is not None)
        with disk_errors(place.path), _opened(call, place, given) as rows:
            try:
                steps = call.join(rows, kept=place.joined(), log=(place.log(), LOG_START))
            except KeyError:  # records that no linkage of this matrix makes
                raise place.damaged("it has records that no linkage of this matrix makes") from None
        place.finish()
    return steps


@contextlib.contextmanager
def _opened(call: _LinkageCall, place: Workplace, given: NDArray[Any] | None) -> Iterator[_RowsInFile | NDArray[Any]]:
    """Yield the rows of the items: of a mapped file by its descriptor, so that what is read is not memory of ours."""
    n, mapped = call.matrix.n, _mapped(given)
    if given is None:
        yield _RowsInFile(place.rows(), 0, n, call.kind)
    elif mapped is None:
        yield given
    else:
        with open(str(mapped.filename), "rb") as file:
            yield _RowsInFile(file.fileno(), _start_of(given, mapped), n, call.kind)


def _say_plan(call: _LinkageCall, plan: LinkagePlan, place: Workplace) -> None:
    call.monitor.report(
        call.phase,
        rows=f"on disk in {place.path}",
        disk=f"up to {format_bytes(plan.disk_bytes)}",
        about=format_duration(plan.seconds),
    )


def _prepare(call: _LinkageCall, plan: LinkagePlan, place: Workplace, *, is_given: bool) -> None:
    """Take up what is there, or write the rows and begin a log."""
    found = place.read_job()
    if found is not None and (is_given or place.has_rows):
        fingerprint = fingerprint_pairs(call.matrix, call.monitor)
        place.refuse_other(found, LinkageJob(call.name, call.matrix.n, fingerprint))
        _log.info("resumes from %s", place.path)
        return
    place.clear()
    if not is_given:
        fingerprint = place.write_rows(call.matrix, call.monitor, plan.item_bytes)
    else:
        fingerprint = fingerprint_pairs(call.matrix, call.monitor) if place.lasts else ""
    place.begin_log(LinkageJob(call.name, call.matrix.n, fingerprint))


class _RowsInFile(NamedTuple):
    """A square matrix in a file: its descriptor, where it begins, its side and type."""

    descriptor: int
    start: int
    n: int
    kind: str


class _LinkageCall:
    """One linkage: of what, how, and who watches."""

    def __init__(self, matrix: Dissimilarities, method: str, monitor: Monitor, level: float | None) -> None:
        self.matrix, self.method, self.monitor, self.level = matrix, method, monitor, level
        self.phase, self.kind = f"{method} linkage", native(matrix.dtype).name
        self.name = method if level is None else f"{method} from {level!r}"

    def join(self, rows: Any, **files: Any) -> Steps:
        """Join rows: an array, or those of a file."""
        matrix = self.matrix
        try:
            return _native.link_rows(
                rows, self.method, scale=matrix.scale, level=self.level, report=self._report, **files
            )
        except OverflowError as error:
            largest = matrix.check().largest
            raise ConfigError(f"{matrix.label}: {error}; divide all by {largest:g}") from error
        except IndexError as error:  # the check has found none
            raise StoreError(
                f"{matrix.label} was changed while it was clustered: {matrix.name_of(int(error.args[0]))} has a pair "
                "without a distance now; cluster it again",
                code="changed",
            ) from None

    def _report(self, left: int) -> None:
        self.monitor.report(self.phase, joined=self.matrix.n - left, of=self.matrix.n)
        self.monitor.check()


def _symmetric(matrix: Dissimilarities) -> Dissimilarities:
    """Return a matrix whose rows agree: of values that differ by rounding, those above the diagonal."""
    if matrix.source.symmetric or not matrix.check().largest_asymmetry > 0:
        return matrix
    source = Triangle(matrix.source, upper=True)
    made = Dissimilarities(source, scale=matrix.scale, label=matrix.label, missing_allowed=matrix.missing_allowed)
    made.names, made.checked = matrix.names, matrix.checked
    return made.like(matrix)


def _mapped(array: NDArray[Any] | None) -> np.memmap[Any, Any] | None:
    """Return the map of a file that an array is a view of."""
    found: Any = array
    while isinstance(found, np.ndarray) and isinstance(found.base, np.ndarray):
        found = found.base
    # A map of another mode may hold changes that are in memory only.
    shared = isinstance(found, np.memmap) and found.filename is not None and found.mode in ("r", "r+")
    return found if shared else None


def _given_rows(matrix: Dissimilarities) -> NDArray[Any] | None:
    """Return the rows of a matrix that are one array already, in the order of bytes of this machine."""
    array = matrix.array
    return array if array is not None and array.dtype == native(matrix.dtype) and array.flags.aligned else None


def _stamp(matrix: Dissimilarities) -> object:
    """Return what tells a run or a file from what it becomes when it is changed."""
    if matrix.run is not None:
        if getattr(matrix.run, "folder", matrix.run).version is not None:
            return None  # a version stays what it is
        return (matrix.run.path / FILE_NAME).read_bytes()
    mapped = _mapped(matrix.array)
    if mapped is None:
        return None
    state = Path(str(mapped.filename)).stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


def note_on_ward(matrix: Dissimilarities) -> str | None:
    """Say that distances are not Euclidean, as Ward's method wants them; None where nothing shows it.

    Of points, the matrix of their products has no negative eigenvalue (Schoenberg 1935; Gower 1966): looked at for up
    to 200 items.
    """
    items = np.unique(np.linspace(0, matrix.n - 1, min(matrix.n, _SAMPLED_ITEMS)).astype(np.int64))
    some = matrix.chosen(items)
    squared: Steps = np.square(some.values(slice(0, some.n), slice(0, some.n)))
    np.fill_diagonal(squared, 0.0)
    if some.n < 3 or not np.isfinite(squared).all() or not squared.any():
        return None
    centred = squared - squared.mean(axis=0)
    values = np.linalg.eigvalsh(-(centred - centred.mean(axis=1)[:, None]) / 2)
    if values[0] >= -_NEGATIVE_SHARE * values[-1]:
        return None
    return (
        f"the distances are not Euclidean, as Ward's method wants them (of {some.n} items an eigenvalue is "
        f"{values[0]:.3g} beside {values[-1]:.3g}): its formula joins them all the same, but not by sums of squares"
    )
