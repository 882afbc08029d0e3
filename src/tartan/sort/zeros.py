"""Sort records with -0.0 in their keys, which equals 0.0: where there are some, their signs are kept apart.

The engine compares the bits of floats and tells the two zeros apart. A -0.0 in a key is rare, so files are looked
through first; only if there is one do records get a byte for each float of the key that says which zero it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.base.confined import open_unfinished
from tartan.base.files import disk_errors
from tartan.errors import InputChangedError
from tartan.sort.engine import Order, SortOptions
from tartan.sort.formats import Destination, SourceFile
from tartan.sort.keys import KeyPart
from tartan.sort.pushed import PushedRun
from tartan.sort.result import SortResult

if TYPE_CHECKING:
    from tartan._native import SortJob
    from tartan.sort.progress import SortProgress
    from tartan.sort.work import WorkFolders

READ_BYTES = 4 << 20


def float_parts(order: Order) -> list[KeyPart]:
    """Return the floats of a key that are not all of a record: of lone numbers nothing else tells equal ones apart."""
    parts = [part for part in order.parts if np.dtype(part.kind).kind == "f"]
    alone = len(order.parts) == 1 and order.parts[0].width_bytes == order.dtype.itemsize
    return [] if alone else parts


def has_minus_zero(sources: Sequence[SourceFile], order: Order) -> bool:
    """Whether a float of a key is -0.0 anywhere; reads the files once, unless no key has a float."""
    parts = float_parts(order)
    if not parts:
        return False
    width = order.dtype.itemsize
    return any(
        _minus_zeros(_field(block, part)).any()
        for source in sources
        for block in _blocks(source, width, 0, source.n_bytes // width)
        for part in parts
    )


def zero_run(sources: Sequence[SourceFile], destination: Destination, order: Order, options: SortOptions) -> ZeroRun:
    """Prepare a sort in which -0.0 equals 0.0."""
    parts = float_parts(order)
    dtype = np.dtype([("record", f"V{order.dtype.itemsize}"), ("minus", "u1", (len(parts),))])
    return ZeroRun(sources, destination, Order(dtype, order.parts), options)


class ZeroRun(PushedRun):
    """A sort of records in which -0.0 equals 0.0."""

    @property
    def n_bytes(self) -> int:
        """Bytes of the records as they are sorted."""
        return self._n_records * self.order.dtype.itemsize

    @property
    def _width(self) -> int:
        return int(self.order.dtype["record"].itemsize)

    @property
    def _n_records(self) -> int:
        return sum(source.n_bytes for source in self.sources) // self._width

    def run(self, *, resume: bool, quiet: bool) -> SortResult:
        """Sort, and return what was done."""
        result = super().run(resume=resume, quiet=quiet)
        return replace(result, n_bytes=self._n_records * self._width, record_bytes=self._width)

    def _kept_bytes(self) -> int:
        return 8 * READ_BYTES

    def _records(self, first: int, count: int) -> Iterator[np.ndarray]:
        left = count if count >= 0 else self._n_records - first
        for source in self.sources:
            n = source.n_bytes // self._width
            if first >= n:
                first -= n
                continue
            for block in _blocks(source, self._width, first, min(left, n - first)):
                left -= len(block)
                yield self._without_signs(block)
            first = 0

    def _without_signs(self, block: np.ndarray) -> np.ndarray:
        records = np.zeros(len(block), self.order.dtype)
        for place, part in enumerate(float_parts(self.order)):
            values = _field(block, part)
            minus = _minus_zeros(values)
            records["minus"][:, place] = minus
            values[minus] = 0.0
        records["record"] = block
        return records

    def _write(self, engine: SortJob, work: WorkFolders, progress: SortProgress) -> None:
        self.destination.begin()
        part = self.destination.part
        with self._timed("merge"), disk_errors(part), open(open_unfinished(part, os.O_RDWR), "wb") as file:
            file.seek(self.destination.offset)
            for records in self._sorted_blocks(engine, work, progress):
                block = np.ascontiguousarray(records["record"])
                for place, key in enumerate(float_parts(self.order)):
                    _field(block, key)[records["minus"][:, place] > 0] = -0.0
                file.write(block.view(np.uint8).data)


def _blocks(source: SourceFile, width: int, first: int, count: int) -> Iterator[np.ndarray]:
    """Yield records of a file as opaque bytes, from record ``first`` on."""
    height = max(1, READ_BYTES // width)
    with source.path.open("rb") as file:
        file.seek(source.offset + first * width)
        while count > 0:
            block = np.fromfile(file, np.dtype(f"V{width}"), min(height, count))
            if not len(block):
                raise InputChangedError(
                    f"{source.path} was changed while it was read; keep it unchanged and sort it again",
                    context={"path": str(source.path)},
                )
            count -= len(block)
            yield block


def _field(block: np.ndarray, part: KeyPart) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a float of every record, as a view."""
    width = block.dtype.itemsize
    flat = block.view(np.uint8)
    return np.ndarray((len(block),), np.dtype(part.kind), flat, part.offset, (width,))


def _minus_zeros(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = (values == 0) & np.signbit(values)
    return found
