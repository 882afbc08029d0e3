"""Sparse rows (CSR), in memory or as SciPy saves them: a block of rows is made dense when it is asked for.

``scipy.sparse.save_npz`` writes an archive of ``indices``, ``indptr``, ``data``, ``shape`` and ``format``, compressed
unless told otherwise (looked up in its source).
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from tartan.errors import ConfigError
from tartan.sources.arrays import ArraySource
from tartan.sources.rows.archives import ArchiveRows, array_form, members, open_archive
from tartan.sources.rows.unpacked import PackedRows, Reopen, StoredRows, write_unnamed

_ARRAYS = ("indptr", "indices", "data")
_COORDINATES = {"coords", "data", "shape", "fill_value"}  # as sparse.save_npz of PyData names them
# By judgement: as a block of a dense archive.
_STEP = 1 << 20


class CsrArray:
    """Sparse rows that are dense where they are sliced.

    Parameters
    ----------
    indptr, indices, data : array
        As of ``scipy.sparse.csr_array``.
    shape : tuple of int

    Raises
    ------
    ValueError
        If they do not fit together.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int]) -> None:
        self._parts = (indptr, indices, data)
        self.shape, self.dtype = shape, data.dtype
        _require_whole(indptr, indices, data, shape)

    @property
    def n_values(self) -> int:
        """Values that are stored."""
        return len(self._parts[2])

    @property
    def longest(self) -> int:
        """Most values that are stored of a row."""
        ends = self._parts[0].astype(np.int64)
        return int(np.diff(ends).max(initial=0))

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        found: np.ndarray = self._as_scipy(*self._some(start, stop)).toarray()
        return found

    def entries(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ends, positions and values of rows: positions ascend, what is stored twice is added, no value is 0."""
        ends, positions, values = self._some(start, stop)
        behind = np.ones(max(len(positions) - 1, 0), bool)
        inner = ends[1:-1]
        behind[inner[(inner > 0) & (inner < len(positions))] - 1] = False
        if not values.all() or (np.diff(positions) <= 0)[behind].any():
            some = self._as_scipy(ends, positions.copy(), values.copy())
            some.sum_duplicates()
            some.eliminate_zeros()
            ends, positions, values = some.indptr, some.indices, some.data
        return ends, positions, values

    def _some(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ends, positions and values of some rows in native order: SciPy wants the first two of one type."""
        indptr, indices, data = self._parts
        ends = indptr[start : stop + 1].astype(np.int64)
        inside = slice(int(ends[0]), int(ends[-1]))
        native = data[inside].astype(self.dtype.newbyteorder("="), copy=False)
        return ends - ends[0], indices[inside].astype(np.int64), native

    def _as_scipy(self, ends: np.ndarray, positions: np.ndarray, values: np.ndarray) -> Any:
        from scipy.sparse import csr_array

        return csr_array((values, positions, ends), shape=(len(ends) - 1, self.shape[1]))


def _require_whole(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: tuple[int, int]) -> None:
    """Refuse what is not a matrix; SciPy would write outside of an array."""
    if len(indptr) != shape[0] + 1 or len(indices) != len(data):
        raise ValueError(f"{len(indptr)} ends of rows, {len(indices)} positions and {len(data)} values are not {shape}")
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        row = int(np.flatnonzero(indptr[1:] < indptr[:-1])[0]) if (indptr[1:] < indptr[:-1]).any() else shape[0] - 1
        raise ValueError(f"row {row} ends at {int(indptr[row + 1])}, with {len(data)} values in all")
    for start in range(0, len(indices), _STEP):
        part = indices[start : start + _STEP]
        wrong = np.flatnonzero((part < 0) | (part >= shape[1]))
        if len(wrong):
            at = start + int(wrong[0])
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            raise ValueError(f"row {row} has position {int(indices[at])} of {shape[1]}")


class CsrInMemory(ArraySource):
    """Sparse rows in memory.

    Attributes
    ----------
    csr : CsrArray
    """

    def __init__(self, csr: CsrArray) -> None:
        super().__init__(csr)
        self.csr = csr


def csr_of(matrix: Any) -> CsrInMemory:
    """Return a sparse matrix of SciPy in memory as rows.

    Raises
    ------
    ConfigError
        If it has no rows of numbers.
    """
    rows = matrix.tocsr()
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise ConfigError(f"items are a sparse matrix of {rows.dtype} and {rows.ndim} dimensions; give rows of numbers")
    shape = int(rows.shape[0]), int(rows.shape[1])
    return CsrInMemory(CsrArray(rows.indptr, rows.indices, rows.data, shape))


class CsrRows(PackedRows):
    """A matrix that ``scipy.sparse.save_npz`` has written.

    Parameters
    ----------
    path : str

    Raises
    ------
    ConfigError
        If it is none in the form CSR.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.part: str | None = None
        with open_archive(path) as archive:
            form = "coords" if set(members(archive)) >= _COORDINATES else _read(archive, "format").item()
            form = form.decode(errors="replace") if isinstance(form, bytes) else str(form)
            shape = _read(archive, "shape").tolist()
            if form != "csr" or len(shape) != 2:
                raise ConfigError(
                    f"{path}: it is a sparse matrix in the form {form!r}; rows are read from 'csr': "
                    "scipy.sparse.save_npz(FILE, X.tocsr())",
                    context={"input": path},
                )
            self.forms = {name: array_form(archive, name) for name in _ARRAYS}
        if not all(form is not None and len(form[0]) == 1 and form[1].kind in "biuf" for form in self.forms.values()):
            raise ConfigError(f"{path}: indices, indptr and data are not arrays of numbers", context={"input": path})
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = self.stored = self.forms["data"][1].newbyteorder("=")  # type: ignore[index]

    def describe(self) -> str:
        """Say what the rows are."""
        return f"CSR, {self.dtype}"

    def arrays(self) -> tuple[CsrArray, list[mmap.mmap]]:
        """Return the rows, and what is mapped for them."""
        found: list[np.ndarray] = []
        mappings: list[mmap.mmap] = []
        for name in _ARRAYS:
            member = ArchiveRows.flat(self.path, name, self.forms[name])
            n_bytes = member.stored.itemsize * member.shape[0]
            if n_bytes == 0:
                found.append(np.empty(0, member.stored))
                continue
            mapping, first = member.map() or (write_unnamed(self.path, member.blocks(), member.stored, n_bytes), 0)
            mappings.append(mapping)
            found.append(np.frombuffer(mapping, member.stored, member.shape[0], first))
        try:
            indptr, indices, data = found
            return CsrArray(indptr, indices, data, self.shape), mappings
        except ValueError as error:
            raise ConfigError(f"{self.path}: it is damaged: {error}", context={"input": self.path}) from error

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield nothing: the three arrays are mapped."""
        yield from ()

    def read_keys(self, column: str) -> list[str]:
        """Return nothing: there are no names."""
        raise ConfigError(f"{self.path} has no names {column!r}", context={"option": "--keys"})


class CsrSource(StoredRows):
    """Sparse rows in a file.

    Parameters
    ----------
    file : CsrRows
    reopen : callable
        As of ``StoredRows``.
    """

    def __init__(self, file: CsrRows, reopen: Reopen) -> None:
        super().__init__(file, reopen)
        self._csr = file

    @property
    def csr(self) -> CsrArray:
        """The rows, unpacked."""
        self.prepare()
        found: CsrArray = self._array
        return found

    def _unpack(self) -> None:
        self._array, self._mappings = self._csr.arrays()
        self._mapping = self._mappings[0]


def is_sparse(path: str) -> bool:
    """Whether an archive holds a sparse matrix of SciPy, in any of its forms, or of PyData's sparse."""
    with open_archive(path) as archive:
        if set(members(archive)) >= _COORDINATES:
            return True
        if not {"format", "shape", "data"} <= set(members(archive)):
            return False
        form = array_form(archive, "format")
        return form is not None and form[0] == () and form[1].kind in "SU"


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return found
