"""Write the export formats. Each writer takes bands of rows and a binary stream, and holds one band.

export.py handles files, names and overwriting.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from tartan.base.cells import cell_of
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder
from tartan.store.view import BAND_BYTES, ResultView

INT16_ONE = 32767
INT16_MISSING = -1
_TEXT_VALUES = 1 << 20  # numbers turned into text at a time
_HALF_STEP = 0.5 / INT16_ONE
STRICT_WIDTH = 10
_UNREADABLE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ExportRequest:
    """Parameters of an export.

    Attributes
    ----------
    folder : RunFolder
    view : ResultView
        The output, with NaN where a score is missing.
    diagonal : float or None
        Value of a diagonal that was not computed; None: missing.
    missing : float or None
        Value of missing scores; None: as the format has it, if it does.
    clip : bool
        int16: values outside 0..1 become 0 or 1 instead of an error.
    names : sequence of str
        What the items are called.
    distances : callable, optional
        Turns scores into distances, block by block; an item is then at distance 0 from itself.
    """

    folder: RunFolder
    view: ResultView
    diagonal: float | None
    missing: float | None
    clip: bool
    names: Sequence[str]
    distances: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values: that of the scores, float32 at least where they become distances."""
        stored = self.view.dtype
        return stored if self.distances is None else np.promote_types(stored, np.float32)

    def bands(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the matrix in bands of rows, with ``missing`` in place where it is given."""
        for start, band in self._bands():
            if self.missing is not None and band.dtype.kind in "fc":
                band[np.isnan(band)] = self.missing
            yield start, band

    def _bands(self) -> Iterator[tuple[int, np.ndarray]]:
        if self.distances is None:
            yield from self.view.bands(self.diagonal)
            return
        budget = BAND_BYTES // 4  # a band and what is made of it, in float64
        for start, band in self.view.bands(budget_bytes=budget):
            if self.view.square:
                at = np.arange(start, start + len(band))
                band[at - start, at] = np.nan
            made = self.distances(band.astype(np.float64)).astype(self.dtype, copy=False)
            if self.view.square:
                made[at - start, at] = 0.0 if self.diagonal is None else self.diagonal
            yield start, made

    def require(self, *, symmetric: bool, what: str) -> None:
        """Refuse matrices that a format cannot hold."""
        if symmetric and not self.folder.manifest.symmetric_in(self.view.name):
            raise ConfigError(f"{what} holds symmetric matrices only; this run is not symmetric")


def write_npy(request: ExportRequest, stream: BinaryIO) -> None:
    """NumPy's own format, the whole matrix, in the dtype of the output."""
    _npy_header(stream, request.view.shape, request.dtype)
    for _, band in request.bands():
        stream.write(_little(band).data)


def write_condensed(request: ExportRequest, stream: BinaryIO) -> None:
    """NumPy's own format, the pairs i < j row by row, as scipy's squareform reads them."""
    request.require(symmetric=True, what="the condensed form")
    n = request.view.shape[0]
    _npy_header(stream, (n * (n - 1) // 2,), request.dtype)
    for start, band in request.bands():
        for i, row in enumerate(_little(band), start):
            stream.write(row[i + 1 :].data)


def write_float32(request: ExportRequest, stream: BinaryIO) -> None:
    """Little-endian float32, row by row, nothing else; missing scores are NaN."""
    for _, band in request.bands():
        stream.write(np.ascontiguousarray(band, np.dtype("<f4")).data)


def write_int16(request: ExportRequest, stream: BinaryIO, order: str) -> None:
    """16-bit integers, row by row, nothing else: 0..32767 for 0..1, -1 for missing scores.

    Raises
    ------
    ConfigError
        If a score lies outside 0..1 by more than half a step, unless ``clip``.
    """
    for start, band in request.bands():
        with np.errstate(invalid="ignore"):
            outside = (band < -_HALF_STEP) | (band > 1 + _HALF_STEP)
            if not request.clip and outside.any():
                i, j = np.argwhere(outside)[0]
                raise ConfigError(
                    f"score ({start + i}, {j}) is {band[i, j]}; int16 holds 0 to 1 only: export with `clip=True`, "
                    "or as float32"
                )
            scaled = np.rint(np.clip(band, 0, 1) * INT16_ONE)
        scaled[np.isnan(scaled)] = INT16_MISSING
        stream.write(np.ascontiguousarray(scaled, np.dtype(f"{order}i2")).data)


def write_phylip(request: ExportRequest, stream: BinaryIO, *, strict: bool = False) -> None:
    """PHYLIP distances, square, two blanks before the numbers.

    Names have any length and no blanks; strict ones have exactly ten columns, as PHYLIP's own programs read them.

    Raises
    ------
    ConfigError
        If a score is missing, which the format cannot express; give a number, such as ``missing=1.0``.
    """
    request.require(symmetric=True, what="PHYLIP")
    if request.diagonal is None:
        request = replace(request, diagonal=0.0)
    names = phylip_names(request.names)
    starts = [f"{name:{STRICT_WIDTH}}" for name in strict_names(request.names)] if strict else names
    stream.write(f"{len(names)}\n".encode())
    for start, band in request.bands():
        if np.isnan(band).any():
            i, j = np.argwhere(np.isnan(band))[0]
            raise ConfigError(
                f"the score of {names[start + i]} and {names[j]} is missing, and PHYLIP cannot say so; "
                "give a number for missing scores (`missing=1.0`), or mend what failed "
                "(`tartan resume RUN --retry-failed`)"
            )
        for row, text in enumerate(_lines(band, "  "), start):
            stream.write(f"{starts[row]}  {text}\n".encode())


def write_table(request: ExportRequest, stream: BinaryIO, separator: str) -> None:
    """CSV or TSV: keys in the first row and column, shortest digits that read back exactly, nan if missing."""
    keys, left = request.names, request.view.shape[0]
    columns = keys if request.view.square else keys[left:]
    stream.write((separator.join(["", *(_quoted(key, separator) for key in columns)]) + "\n").encode())
    for start, band in request.bands():
        for row, text in enumerate(_lines(band, separator), start):
            stream.write(f"{_quoted(keys[row], separator)}{separator}{text}\n".encode())


def phylip_names(keys: Sequence[str]) -> list[str]:
    """Return names that PHYLIP programs read: blanks become underscores, no name is empty or repeated."""
    names = [re.sub(r"\s", "_", key) or f"item_{index}" for index, key in enumerate(keys)]
    taken = set(keys)
    for index, (key, name) in enumerate(zip(keys, names, strict=True)):
        if name != key:
            while name in taken:
                name += f"_{index}"
            names[index] = name
            taken.add(name)
    return names


def strict_names(keys: Sequence[str]) -> list[str]:
    """Return names of at most ten characters that PHYLIP's own programs read, and tell apart.

    What follows the last slash counts; characters other than letters, digits, dot, hyphen and underscore become
    underscores. Names that would be equal end in the number of their item, counted from 1.
    """
    cut = [_UNREADABLE.sub("_", key.rpartition("/")[2])[:STRICT_WIDTH] for key in keys]
    counts = Counter(cut)
    taken = {name for name in cut if counts[name] == 1 and name}
    names = []
    for number, name in enumerate(cut, 1):
        if name not in taken:
            free = (f"{name[: STRICT_WIDTH - len(str(k))]}{k}" for k in itertools.count(number, len(keys)))
            name = next(candidate for candidate in free if candidate not in taken)
            taken.add(name)
        names.append(name)
    return names


def write_names(request: ExportRequest, stream: BinaryIO) -> None:
    """Write the table that says which item a strict name stands for: name and key, separated by a tab."""
    stream.write(b"name\tkey\n")
    for name, key in zip(strict_names(request.names), request.folder.keys, strict=True):
        stream.write(f"{name}\t{_quoted(key, chr(9))}\n".encode())


def _quoted(key: str, separator: str) -> str:
    cell = cell_of(key)
    return '"' + cell.replace('"', '""') + '"' if separator in cell or '"' in cell else cell


def _lines(band: np.ndarray, separator: str) -> Iterator[str]:
    """Turn rows of numbers into text, about a million numbers at a time (Arrow writes the shortest digits)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    height = max(1, _TEXT_VALUES // max(1, band.shape[1]))
    for start in range(0, len(band), height):
        part = np.ascontiguousarray(band[start : start + height])
        if part.dtype == np.float16:
            part = part.astype(np.float32)
        texts = pa.array(part.reshape(-1)).cast(pa.string())
        offsets = pa.array(np.arange(len(part) + 1) * part.shape[1], pa.int32())
        rows = pa.ListArray.from_arrays(offsets, texts)
        yield from pc.binary_join(rows, separator).to_pylist()


def _npy_header(stream: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype.newbyteorder("<")), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def _little(band: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(band, band.dtype.newbyteorder("<"))
