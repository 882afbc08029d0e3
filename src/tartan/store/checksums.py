"""The checksums of the items of a run, as they were when their scores were computed: ``checksums.bin``.

A log of records of 24 bytes: item, checksum, and a check of both. What is torn or damaged counts as absent; of several
records of one item the last holds. A record is appended before the first chunk that the item has scores in, so a
checksum is lacking only where nothing was computed, or an earlier Tartan computed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tartan.base.checksum import NOT_KNOWN
from tartan.base.files import FileWriter, disk_errors, open_regular

FILE_NAME = "checksums.bin"
NOTED = "checksums"
"""Entry of the statistics of a writer that does not see the run folder: its records, in base64."""
_RECORD = np.dtype([("item", "<u8"), ("sum", "<u8"), ("check", "<u8")])
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)


def encode_checksums(items: NDArray[np.intp], sums: NDArray[np.uint64]) -> bytes:
    """Return the records of some items."""
    records = np.empty(len(items), _RECORD)
    records["item"], records["sum"] = items, sums
    records["check"] = _check(records)
    return records.tobytes()


def read_checksums(places: Iterable[Path], n_items: int) -> NDArray[np.uint64]:
    """Return the checksums of all items of a run, NOT_KNOWN where there is none.

    Parameters
    ----------
    places : iterable of Path
        The run folder, and those of writers that are not taken over yet.
    n_items : int
    """
    sums = np.full(n_items, NOT_KNOWN, np.uint64)
    for place in places:
        data = b""
        with contextlib.suppress(OSError), open_regular(place / FILE_NAME) as file:
            data = file.read()
        records = np.frombuffer(data, _RECORD, len(data) // _RECORD.itemsize)
        sound = records[(records["check"] == _check(records)) & (records["item"] < n_items)]
        sums[sound["item"].astype(np.intp)] = sound["sum"]
    return sums


def collect_checksums(folder: Path, places: Iterable[Path], writer: FileWriter) -> None:
    """Append what several writers have noted to the log of the run, which is on the disk then."""
    paths = [path for place in places if (path := place / FILE_NAME).exists()]
    for path in paths:
        with disk_errors(path):
            writer.append(folder / FILE_NAME, path.read_bytes())
    if paths:
        writer.sync()


def _check(records: NDArray[np.void]) -> NDArray[np.uint64]:
    first, second, third = _FACTORS
    return np.asarray(records["item"] * first + records["sum"] * second + third, np.uint64)
