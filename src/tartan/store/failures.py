"""Record failed items and pairs with their reasons: in a log during a run, in ``failures.parquet`` after it.

A line is appended to ``failures.jsonl`` before the status of the chunk it belongs to, so that a kill never
leaves a failed pair without its reason. ``merge`` moves the log into the Parquet file; killed in between, the
same failure is in both, and reading counts it once. A failed item is one row, however many pairs fail with it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import FileWriter, open_regular
from tartan.base.json_input import parse_json
from tartan.core.pairs.ledger import FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import CorruptResultError
from tartan.store import parquet

FILE_NAME = "failures.parquet"
LOG_NAME = "failures.jsonl"
# _MOST_TEXT by judgement: beginning and end of a traceback in 32 KiB each; recursion makes megabytes. No benchmark.
_MOST_TEXT = 1 << 16
# By arithmetic: 2 x 12 x 65,536 bytes, and room for names.
MOST_LINE_BYTES = 1 << 21  # each of two such texts takes at most 12 bytes a character


class FailureLog:
    """Write failures; methods may be called from several threads.

    Parameters
    ----------
    folder : Path
        The run folder.
    writer : FileWriter
    place : Path, optional
        Where the log lies: the folder of one of several writers. Default: the run folder.
    """

    def __init__(self, folder: Path, writer: FileWriter, place: Path | None = None) -> None:
        self._folder = folder
        self._log = (place or folder) / LOG_NAME
        self._writer = writer
        self._known_items: set[int] = set()
        self._lock = threading.Lock()

    def add(self, failures: Sequence[Failure]) -> None:
        """Append failures; an item that is already recorded is not recorded again."""
        with self._lock:
            new = [f for f in failures if f.j is not None or f.i not in self._known_items]
        if not new:
            return
        # the newline in front ends a line that a kill tore; without it the next one would be lost too
        lines = "\n" + "".join(json.dumps(_entries(f)) + "\n" for f in new)
        self._writer.append(self._log, lines.encode())
        with self._lock:
            self._known_items |= {f.i for f in new if f.j is None}

    def merge(self) -> None:
        """Move the log into ``failures.parquet``; must not run at the same time as ``add``."""
        if self._log.exists():
            self._replace(read_failures(self._folder))

    def replace(self, failures: Sequence[Failure]) -> None:
        """Forget all failures but these; must not run at the same time as ``add``."""
        self._known_items = {f.i for f in failures if f.j is None}
        self._replace(failures)

    def _replace(self, failures: Sequence[Failure]) -> None:
        import pyarrow as pa

        table = pa.Table.from_pylist([_entries(f) for f in failures], _schema(pa, failures))
        parquet.write_table(self._folder / FILE_NAME, table, self._writer)
        self._writer.sync()  # remove the log only when its contents are safe
        self._writer.remove(self._log)


def read_failures(folder: Path, more: Iterable[Failure] = ()) -> list[Failure]:
    """Return all failures of a run folder, items first, in order of indices.

    Parameters
    ----------
    folder : Path
    more : iterable of Failure, optional
        What is in no file of the run yet; what the files say of the same items and pairs goes before it.

    Raises
    ------
    CorruptResultError
        If ``failures.parquet`` is damaged.
    """
    found = {(f.i, f.j, f.k): f for f in (*more, *_read_table(folder / FILE_NAME), *read_log(folder / LOG_NAME))}
    return sorted(found.values(), key=lambda f: (f.j is not None, f.i, -1 if f.j is None else f.j, f.k or -1))


class RecordedCodes:
    """Says of pairs that are to be compared again whether they have failed since, by what is recorded of failures.

    Parameters
    ----------
    folder : Path
        The run folder; what is recorded in it is read anew when its files have changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamps: list[tuple[int, ...]] | None = None
        self._items: NDArray[np.int64] = np.zeros(0, np.int64)
        self._pairs: NDArray[np.int64] = np.zeros((0, 2), np.int64)

    def codes_of(
        self, rect: tuple[int, int, int, int], shape: tuple[int, ...], read: Callable[[], Sequence[Failure]]
    ) -> NDArray[np.uint8]:
        """Return the codes of the pairs of a chunk.

        Parameters
        ----------
        rect : tuple
            First item and end of its rows and of its columns.
        shape : tuple
            Of the chunk.
        read : callable
            Returns the failures of the run, by the numbers of its items.
        """
        stamps = self._stamp()
        if stamps != self._stamps:
            found = read()
            self._items = np.array([one.i for one in found if one.j is None], np.int64)
            pairs = [sorted((one.i, one.j)) for one in found if one.j is not None]
            self._pairs, self._stamps = np.array(pairs, np.int64).reshape(-1, 2), stamps
        codes, (r0, r1, c0, c1) = np.zeros(shape, np.uint8), rect
        i, j = self._pairs.T
        here = (i >= r0) & (i < r1) & (j >= c0) & (j < c1)
        codes[i[here] - r0, j[here] - c0] = FAILED_PAIR
        if r0 == c0:  # both ways lie in one chunk there
            codes = np.maximum(codes, codes.T)
        codes[np.isin(np.arange(r0, r1), self._items)] = FAILED_ITEM
        codes[:, np.isin(np.arange(c0, c1), self._items)] = FAILED_ITEM
        return codes

    def _stamp(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for path in (self._folder / FILE_NAME, self._folder / LOG_NAME, *self._folder.glob(f"writers*/*/{LOG_NAME}")):
            with contextlib.suppress(OSError):
                state = path.stat()
                found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return found


def _entries(failure: Failure) -> dict[str, Any]:
    """Return what is written of a failure; of one that is not a triple no third item."""
    entries = asdict(failure)
    for name in ("reason", "traceback"):
        entries[name] = _clip(entries[name])
    if failure.k is None:
        del entries["k"]
    return entries


def _clip(text: str) -> str:
    """Return a text that fits into a line of the log: one that is too long loses its middle."""
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} ... {text[-half:]}"


def _read_table(path: Path) -> Iterable[Failure]:
    if not path.exists():
        return []
    try:
        table = parquet.read_table(path)
        rows = table.select([one.name for one in fields(Failure) if one.name in table.column_names]).to_pylist()
        return [Failure(**row) for row in rows]  # columns of a newer version are passed over
    except (OSError, ValueError, TypeError) as error:
        raise CorruptResultError(f"{path} cannot be read: {error}", context={"path": str(path)}) from error


def read_log(path: Path) -> Iterable[Failure]:
    """Read whole lines; skip one that a kill or a power cut tore, as its chunk is computed again."""
    import msgspec

    found = []
    for line in _lines(path):
        with contextlib.suppress(ValueError):  # of msgspec too
            found.append(msgspec.convert(parse_json(line), Failure))
    return of_items(found, 1 << 63)  # what the table holds


def of_items(failures: Iterable[Failure], n_items: int) -> list[Failure]:
    """Leave out what a damaged or a forged record says of items that a run does not have."""
    return [f for f in failures if all(0 <= end < n_items for end in (f.i, f.j, f.k) if end is not None)]


def of_live(failures: Sequence[Failure], live: NDArray[np.bool_] | None) -> Sequence[Failure]:
    """Return the failures of which all ends are live, bool (n,); all where ``live`` is None."""
    if live is None or not failures:
        return failures
    return [one for one in failures if all(live[end] for end in (one.i, one.j, one.k) if end is not None)]


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log but for those that are longer than any that ``add`` writes, which are not held."""
    try:
        with open_regular(path) as file:
            whole = True
            while line := file.readline(MOST_LINE_BYTES):
                ends = line.endswith(b"\n")
                if whole and (ends or len(line) < MOST_LINE_BYTES):
                    yield line
                whole = ends
    except FileNotFoundError:
        return
    except OSError as error:
        raise CorruptResultError(
            f"{path} cannot be read: {error.strerror}; remove it, and `tartan resume` records no reasons but new ones",
            context={"path": str(path)},
        ) from error


def _schema(pa: Any, failures: Sequence[Failure]) -> Any:
    text, index = pa.string(), pa.int64()
    third = [("k", index)] if any(failure.k is not None for failure in failures) else []
    return pa.schema(
        [("i", index), ("j", index), ("stage", text), ("reason", text), ("traceback", text), *third],
    )
