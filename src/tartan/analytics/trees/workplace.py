"""The folder in which a linkage keeps rows that do not fit into memory, and its log of joins.

In it are ``rows.bin``, the square matrix row by row; ``joined.bin``, the rows of joined clusters; and ``joins.log``: a
line that says what is linked, and a record for each join. The log is all that a linkage goes on from, so it is written
before a row, and rows of clusters that are not whole are made again from the others. A second process is refused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.matrix.rows import squares
from tartan.analytics.matrix.sources import native
from tartan.base import machine
from tartan.base.checksum import checksum
from tartan.base.confined import ConfinedFolder
from tartan.base.files import disk_errors
from tartan.base.format import format_bytes
from tartan.base.json_input import parse_json
from tartan.base.lock import FolderLock
from tartan.errors import DiskFullError, StoreError

if TYPE_CHECKING:
    from tartan.analytics.matrix import Dissimilarities
    from tartan.analytics.monitor import Monitor

#: In the folder of a run.
FOLDER_NAME = "linkage"
#: By format: where the records of a log begin.
LOG_START = 1024
_FORMAT = 1
_LOG, _ROWS, _JOINED, _UNFINISHED = "joins.log", "rows.bin", "joined.bin", "rows.tmp"
_NAMES = (_LOG, _ROWS, _JOINED, _UNFINISHED)


@dataclass(frozen=True)
class LinkageJob:
    """What a linkage is of: two that differ do not go on from each other's log."""

    method: str
    n: int
    matrix: str
    """The fingerprint of the matrix."""

    def difference(self, other: LinkageJob) -> str:
        """Return in which way a log of another job is not one of this; "" if it is."""
        if self.n != other.n:
            return f"it is of {other.n:,} items, not of {self.n:,}"
        if self.matrix != other.matrix:
            return "its matrix had other values"
        return f"it is of {other.method} linkage, not of {self.method}" if self.method != other.method else ""


class Workplace:
    """The folder of one linkage, locked; a context manager.

    Parameters
    ----------
    path : Path
        Of the folder; its parent must exist. It is made, and removed by ``finish``.
    lasts : bool
        Whether the same linkage finds it again.

    Raises
    ------
    StoreError
        On entering, if another process has it (code "locked"), or it cannot be written.
    """

    def __init__(self, path: Path, *, lasts: bool = True) -> None:
        self.path, self.lasts = path, lasts
        self._folder = ConfinedFolder(path)
        self._lock = FolderLock(path)
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Make and lock the folder."""
        with disk_errors(self.path):
            ConfinedFolder(self.path.parent).make_folder(self.path, exist_ok=True)
            self._lock.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all files, and let others have the folder."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
        self._lock.__exit__(None, None, None)

    def read_job(self) -> LinkageJob | None:
        """Return what the log in the folder is of; None where there is no log.

        Raises
        ------
        StoreError
            If its first line cannot be read, or a newer Tartan wrote it.
        """
        try:
            with open(self._folder.open(self._place(_LOG), os.O_RDONLY), "rb") as file:
                head = file.read(LOG_START)
        except FileNotFoundError:
            return None
        try:
            said = parse_json(head)
            known = said.pop("format") == _FORMAT
            return (
                LinkageJob(str(said["method"]), int(said["n"]), str(said["matrix"])) if known else self._refuse_newer()
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.damaged("its first line is not a description of a linkage") from error

    def damaged(self, why: str) -> StoreError:
        """Return the error of a log that cannot be used."""
        return StoreError(
            f"{self._place(_LOG)} cannot be read as a log of joins: {why}; {self._way_out()}", code="damaged-log"
        )

    def _refuse_newer(self) -> LinkageJob:
        raise StoreError(
            f"{self._place(_LOG)} is the log of another version of Tartan; use that one, or {self._way_out()}",
            code="newer-format",
        )

    def refuse_other(self, found: LinkageJob, wanted: LinkageJob) -> None:
        """Refuse the log of another matrix or method.

        Raises
        ------
        StoreError
        """
        problem = wanted.difference(found)
        if problem:
            raise StoreError(
                f"{self._place(_LOG)} is the log of another linkage: {problem}; {self._way_out()}", code="other-log"
            )

    def _way_out(self) -> str:
        return f"remove the folder to begin anew (rm -r {shlex.quote(str(self.path))})"

    def clear(self) -> None:
        """Remove what a linkage left, but for the lock."""
        for name in _NAMES:
            self._folder.remove(self._place(name), missing_ok=True)

    def write_rows(self, matrix: Dissimilarities, monitor: Monitor, n_bytes: int) -> str:
        """Write the matrix row by row; return its fingerprint.

        Raises
        ------
        DiskFullError
            If there is no space for it, before anything is written.
        """
        self._require_space(n_bytes)
        place = self._place(_UNFINISHED)
        with disk_errors(self.path), self._folder.new_file(place) as file:
            found = fingerprint_pairs(matrix, monitor, file.fileno())
        self._folder.move(place, self._place(_ROWS))
        return found

    def _require_space(self, n_bytes: int) -> None:
        space = machine.disk_space(self.path)
        if space is not None and space[1] < n_bytes:
            raise DiskFullError(
                f"the rows of this matrix take {format_bytes(n_bytes)}, and {format_bytes(space[1])} are free in "
                f"{self.path}; free some space, name a folder on another disk (`--checkpoint FOLDER`), or give more "
                "memory (`--memory`)",
                context={"path": str(self.path)},
                retryable=True,
            )

    def begin_log(self, job: LinkageJob) -> None:
        """Begin a log: its first line says what is linked."""
        line = json.dumps({"format": _FORMAT, "method": job.method, "n": job.n, "matrix": job.matrix})
        place = self._place(_LOG)
        with disk_errors(self.path), self._folder.new_file(place) as file:
            file.write(line.ljust(LOG_START - 1).encode() + b"\n")

    @property
    def has_rows(self) -> bool:
        """Whether the rows of the matrix are there, whole."""
        return any(name == _ROWS for name, _ in self._folder.entries(self.path))

    def rows(self) -> int:
        """Return the descriptor of the rows of the matrix."""
        return self._descriptor(_ROWS, os.O_RDONLY)

    def joined(self) -> int:
        """Return the descriptor of the rows of joined clusters."""
        return self._descriptor(_JOINED, os.O_RDWR | os.O_CREAT)

    def log(self) -> int:
        """Return the descriptor of the log."""
        return self._descriptor(_LOG, os.O_RDWR)

    def _descriptor(self, name: str, flags: int) -> int:
        if name not in self._open:
            with disk_errors(self.path):
                self._open[name] = self._folder.open(self._place(name), flags)
        return self._open[name]

    def finish(self) -> None:
        """Remove the folder: the linkage is done."""
        with contextlib.suppress(OSError):
            ConfinedFolder(self.path.parent).remove_tree(self.path)

    def _place(self, name: str) -> Path:
        return self.path / name


def fingerprint_pairs(matrix: Dissimilarities, monitor: Monitor, copy_to: int | None = None) -> str:
    """Return a short text that differs for different matrices, from one pass over the squares above the diagonal.

    Parameters
    ----------
    matrix : Dissimilarities
        Whose rows and columns are equal.
    monitor : Monitor
    copy_to : int, optional
        The descriptor of a file that receives the whole matrix, row by row.
    """
    return checksum(f"{matrix.n} {native(matrix.dtype)} {matrix.scale!r}", _squares(matrix, monitor, copy_to))


def _squares(matrix: Dissimilarities, monitor: Monitor, copy_to: int | None) -> Iterator[NDArray[Any]]:
    n = matrix.n
    for rows, columns in squares(n, matrix.dtype.itemsize):
        square = np.ascontiguousarray(matrix.source.tile(rows, columns), native(matrix.dtype))
        if copy_to is not None:
            _write_square(copy_to, square, rows.start * n + columns.start, n)
            if rows != columns:
                _write_square(copy_to, np.ascontiguousarray(square.T), columns.start * n + rows.start, n)
        yield square
        if columns.stop == n:  # the last of its rows
            matrix.source.release()
        monitor.report("rows", rows=rows.stop, of=n)
        monitor.check()


def _write_square(descriptor: int, square: NDArray[Any], start: int, n: int) -> None:
    for at, row in enumerate(square):
        if os.pwrite(descriptor, row.data, (start + at * n) * square.itemsize) < row.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def workplace_of(matrix: Dissimilarities, monitor: Monitor) -> Iterator[Workplace]:
    """Yield the folder of a linkage: the checkpoint, else one in the run, else a temporary one that goes at the end."""
    run: Any = matrix.run
    with contextlib.ExitStack() as stack:
        if monitor.checkpoint is not None:
            path = monitor.checkpoint
        elif run is not None:
            path = run.path / FOLDER_NAME
        else:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tartan-"))) / FOLDER_NAME
        yield stack.enter_context(Workplace(path, lasts=monitor.checkpoint is not None or run is not None))
