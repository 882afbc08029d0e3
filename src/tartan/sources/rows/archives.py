"""Arrays in archives of NumPy (``.npz``), in HDF5, and in raw memory without a header."""

from __future__ import annotations

import contextlib
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tartan.base.files import open_regular
from tartan.base.format import name_some, show_value
from tartan.base.npy_input import read_npy_header
from tartan.errors import ConfigError
from tartan.sources.rows.unpacked import PackedRows, map_file, require_names

# By judgement: 4 MB, in the third cache and far above what a call costs.
_BLOCK_BYTES = 1 << 22
# By format of zip: the local header before a file, and where the lengths of its name and its extra field are.
_LOCAL_HEADER, _LOCAL_LENGTHS = 30, 26
# By judgement: names of arrays that are looked at; archives of single-cell data hold thousands.
_MOST_LISTED = 10_000
_RAW = re.compile(r"([<>=|]?\w+?)x(\d+)")

ArrayForm = tuple[tuple[int, ...], np.dtype[Any], bool, int]
"""Shape, dtype, whether columns come first, and the length of the header of an array."""
BFLOAT16 = "bfloat16"
"""A type that NumPy lacks: float32 without the last 16 bits."""


def widen_bfloat16(rows: np.ndarray) -> np.ndarray:
    """Return the bits of bfloat16, uint16, as the float32 that they are exactly."""
    found: np.ndarray = (rows.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found


def read_dtype(text: str, path: str) -> np.dtype[Any]:
    """Return the dtype in which values lie in a file; of bfloat16 that of its bits.

    Raises
    ------
    ConfigError
        If there is none of this name, or it is none of numbers.
    """
    try:
        found = np.dtype(np.uint16 if text == BFLOAT16 else text)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "biuf" or found.itemsize > 8:
        raise ConfigError(
            f"{path}: {text!r} is not a dtype of vectors; choose float16, bfloat16, float32, float64, int8, uint8 or "
            "another integer",
            context={"input": path, "option": "--dtype"},
        )
    return found


class RawRows(PackedRows):
    """Rows that lie in a file as they do in memory, one after the other; nothing says how many values each has.

    Parameters
    ----------
    path : str
    part : str
        dtype and width, such as ``float32x768``.

    Raises
    ------
    ConfigError
        If the dtype is none, or the file holds no whole number of rows.
    """

    def __init__(self, path: str, part: str) -> None:
        self.path = path
        self.part: str | None = part
        match = _RAW.fullmatch(part)
        assert match is not None
        self._said, width = match.group(1), int(match.group(2))
        self.stored = read_dtype(self._said, path)
        self.dtype = np.dtype(np.float32) if self._said == BFLOAT16 else self.stored
        if width == 0:
            raise ConfigError(f"{path}: --dim is 0; give 1 or more", context={"input": path, "option": "--dim"})
        row_bytes = self.stored.itemsize * width
        try:
            with open_regular(path) as file:
                size = file.seek(0, 2)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}", context={"input": path}) from error
        if size == 0 or size % row_bytes:
            raise ConfigError(
                f"{path}: it has {size:,} bytes, no whole number of rows of {width} {self._said}, {row_bytes:,} bytes "
                "each; give the right --dtype and --dim",
                context={"input": path, "option": "--dim"},
            )
        self.shape = (size // row_bytes, width)

    def describe(self) -> str:
        """Say what the rows are."""
        return self._said

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map the file."""
        return map_file(self.path, self.stored.itemsize * self.shape[0] * self.shape[1])

    def convert(self, rows: np.ndarray) -> np.ndarray:
        """Return bfloat16 as float32."""
        return widen_bfloat16(rows)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield nothing: the file is mapped."""
        yield from ()

    def read_keys(self, column: str) -> list[str]:
        """Return nothing: there are no names."""
        raise ConfigError(f"{self.path} has no names {column!r}", context={"option": "--keys"})


def is_raw(part: str) -> bool:
    """Whether a text is a dtype and a width."""
    return _RAW.fullmatch(part) is not None


class Bfloat16Rows(PackedRows):
    """Rows of bfloat16 in a ``.npy`` file, whose header calls them values of two bytes; or rows that are called so.

    Parameters
    ----------
    path : str
    array : np.memmap
        Shape (n, d).
    """

    def __init__(self, path: str, array: np.ndarray) -> None:
        self.path = path
        self.part: str | None = BFLOAT16
        if array.dtype.itemsize != 2 or array.ndim != 2:
            raise ConfigError(
                f"{path}: its values are {array.dtype} of shape {array.shape}, no rows of bfloat16, which have 2 bytes",
                context={"input": path, "option": "--dtype"},
            )
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.stored, self.dtype = np.dtype(np.uint16), np.dtype(np.float32)
        self.columns_first = not array.flags.c_contiguous
        self._first = int(getattr(array, "offset", 0))

    def describe(self) -> str:
        """Say what the rows are."""
        return BFLOAT16

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map the file."""
        return map_file(self.path, 2 * self.shape[0] * self.shape[1], self._first)

    def convert(self, rows: np.ndarray) -> np.ndarray:
        """Return bfloat16 as float32."""
        return widen_bfloat16(np.ascontiguousarray(rows))

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield nothing: the file is mapped."""
        yield from ()

    def read_keys(self, column: str) -> list[str]:
        """Return nothing: there are no names."""
        raise ConfigError(f"{self.path} has no names {column!r}", context={"option": "--keys"})


class ArchiveRows(PackedRows):
    """An array in a ``.npz`` file; what is not compressed is mapped.

    Parameters
    ----------
    path : str
    part : str, optional
        Name of the array; default: the only one of two dimensions.

    Raises
    ------
    ConfigError
        If it is no archive of arrays, or which array is meant cannot be told.
    """

    def __init__(self, path: str, part: str | None = None) -> None:
        self.path, self.part = path, part
        with open_archive(self.path) as archive:
            forms = {name: form for name in members(archive) if (form := array_form(archive, name)) is not None}
            name = _choose(path, part, {name: form[:2] for name, form in forms.items()})
            (n_rows, width), self.stored, self.columns_first, self._skip = forms[name]
        self.shape, self.dtype, self._name = (n_rows, width), self.stored, name
        self.columns = [other for other, form in forms.items() if form[0] == (n_rows,) and form[1].kind in "USiu"]

    @classmethod
    def flat(cls, path: str, name: str, form: ArrayForm | None) -> ArchiveRows:
        """Return an array of one dimension as rows of one value each."""
        assert form is not None
        found = cls.__new__(cls)
        found.path, found.part, found._name = path, name, name
        found.shape, found.stored, found.columns_first, found._skip = (form[0][0], 1), form[1], False, form[3]
        found.dtype = found.stored
        return found

    def describe(self) -> str:
        """Say what the rows are."""
        return f"array {self._name!r}, {self.dtype}"

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map the file where the array is not compressed."""
        with open_archive(self.path) as archive:
            about = archive.getinfo(f"{self._name}.npy")
            if about.compress_type != zipfile.ZIP_STORED or about.flag_bits & 1:
                return None
        with open_regular(self.path) as file:
            file.seek(about.header_offset)
            lengths = struct.unpack_from("<HH", file.read(_LOCAL_HEADER).ljust(_LOCAL_HEADER, b"\0"), _LOCAL_LENGTHS)
        first = about.header_offset + _LOCAL_HEADER + sum(lengths) + self._skip
        return map_file(self.path, self.stored.itemsize * self.shape[0] * self.shape[1], first)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in blocks."""
        step = max(1, _BLOCK_BYTES // self.stored.itemsize) * self.stored.itemsize
        left = self.stored.itemsize * self.shape[0] * self.shape[1]
        with open_archive(self.path) as archive, archive.open(f"{self._name}.npy") as file:
            file.read(self._skip)
            while left and (data := file.read(min(step, left))):
                left -= len(data)
                yield np.frombuffer(data, np.uint8).view(self.stored if not len(data) % self.stored.itemsize else "u1")

    def read_keys(self, column: str) -> list[str]:
        """Return the names of all rows."""
        with open_archive(self.path) as archive, archive.open(f"{column}.npy") as file:
            names = np.lib.format.read_array(file, allow_pickle=False)
        return require_names(self.path, column, as_texts(names), "row {}".format)


@contextlib.contextmanager
def open_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive of NumPy.

    Raises
    ------
    ConfigError
        If it is none, or what is read in it is damaged.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{path}: this is not an archive of NumPy, or it is damaged ({error}); write it again by numpy.savez",
            context={"input": path},
        ) from error


def members(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays."""
    return [name.removesuffix(".npy") for name in archive.namelist()[:_MOST_LISTED] if name.endswith(".npy")]


def array_form(archive: zipfile.ZipFile, name: str) -> ArrayForm | None:
    """Return shape, dtype, order and length of the header of an array; None of what is none."""
    with archive.open(f"{name}.npy") as file:
        try:
            shape, order, dtype = read_npy_header(file)  # type: ignore[arg-type]
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError):
            raise
        except Exception:  # NumPy parses the header as Python text: damage shows as errors of many kinds
            return None
        return shape, dtype, order, file.tell()


def _choose(path: str, part: str | None, forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> str:
    """Return the array that is meant."""
    fit = [name for name, (shape, dtype) in forms.items() if _are_rows(shape, dtype)]
    if part is not None and part in fit:
        return part
    there = name_some([f"{name} {shape} {dtype}" for name, (shape, dtype) in forms.items()]) if forms else "nothing"
    context = {"input": path}
    if part is not None:
        raise ConfigError(f"{path} has no array {part!r} of rows of numbers; it has {there}", context=context)
    if not fit:
        raise ConfigError(
            f"{path} has no array (n, d) of numbers; it has {there}: write rows of at least one value by "
            "numpy.savez(FILE, rows=ROWS)",
            context=context,
        )
    if len(fit) > 1:
        names = name_some([show_value(name) for name in fit])
        raise ConfigError(f"{path} has {len(fit)} arrays of rows, {names}; name one: {path}:{fit[0]}", context=context)
    return fit[0]


def _are_rows(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    return len(shape) == 2 and min(shape) > 0 and dtype.kind in "biuf" and dtype.itemsize <= 8


def as_texts(names: np.ndarray) -> list[str]:
    """Return an array of texts, bytes or numbers as texts."""
    if names.dtype.kind == "S" or names.dtype == object:
        return [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names.tolist()]
    return [str(name) for name in names.tolist()]


class Hdf5Rows(PackedRows):
    """A dataset in an HDF5 file; one that is neither chunked nor compressed is mapped.

    Parameters
    ----------
    path : str
    part : str, optional
        Name of the dataset, such as ``group/vectors``; default: the only one of two dimensions.

    Raises
    ------
    ConfigError
        If h5py is missing, it is no HDF5 file, or which dataset is meant cannot be told.
    """

    def __init__(self, path: str, part: str | None = None) -> None:
        self.path, self.part = path, part
        with self._open() as file:
            found = dict(_datasets(file, path))
            name = _choose(path, part if part is None else part.strip("/"), found)
            dataset = file[name]
            self.shape, self.dtype = (int(dataset.shape[0]), int(dataset.shape[1])), dataset.dtype
            self._first = _contiguous_at(dataset)
            chunk = dataset.chunks[0] if dataset.chunks else 1
        self.stored, self._name = self.dtype, name
        beside = name.rpartition("/")[0]
        self.columns = [
            other.rpartition("/")[2]
            for other, (shape, dtype) in found.items()
            if shape == self.shape[:1] and dtype.kind in "OSUiu" and other.rpartition("/")[0] == beside
        ]
        row_bytes = self.stored.itemsize * self.shape[1]
        self._step = max(1, _BLOCK_BYTES // row_bytes // chunk) * chunk

    def describe(self) -> str:
        """Say what the rows are."""
        return f"dataset {self._name!r}, {self.dtype}"

    def map(self) -> tuple[mmap.mmap, int] | None:
        """Map the file where the dataset lies in it as it is."""
        if self._first is None:
            return None
        return map_file(self.path, self.stored.itemsize * self.shape[0] * self.shape[1], self._first)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in blocks of whole chunks."""
        with self._open() as file:
            dataset = file[self._name]
            for start in range(0, self.shape[0], self._step):
                yield dataset[start : start + self._step]

    def read_keys(self, column: str) -> list[str]:
        """Return the names of all rows."""
        folder = self._name.rpartition("/")[0]
        with self._open() as file:
            names = as_texts(np.asarray(file[f"{folder}/{column}" if folder else column][()]))
        return require_names(self.path, column, names, "row {}".format)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            import h5py
        except ImportError:
            raise ConfigError(
                f"{self.path}: HDF5 needs more than the plain install: pip install 'tartan-allpairs[hdf5]'",
                code="missing-extra",
                context={"input": self.path},
            ) from None
        try:
            with open_regular(self.path) as plain, h5py.File(plain, "r") as file:
                yield file
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"{self.path}: this is not an HDF5 file, or it is damaged ({error})", context={"input": self.path}
            ) from error


def _datasets(file: Any, path: str) -> Iterator[tuple[str, tuple[tuple[int, ...], np.dtype[Any]]]]:
    """Yield name, shape and dtype of datasets that lie in the file itself: links to other files are not followed."""
    import h5py

    found: list[tuple[str, tuple[tuple[int, ...], np.dtype[Any]]]] = []

    def visit(name: str, node: Any) -> bool | None:
        if isinstance(node, h5py.Dataset) and node.shape is not None and not node.is_virtual and not node.external:
            with contextlib.suppress(TypeError):  # a type that NumPy lacks
                found.append((name, (tuple(map(int, node.shape)), node.dtype)))
        return True if len(found) >= _MOST_LISTED else None

    file.visititems(visit)
    return iter(found)


def _contiguous_at(dataset: Any) -> int | None:
    """Return where in the file a dataset begins that is one piece; None of others."""
    offset = dataset.id.get_offset()
    return None if offset is None or dataset.chunks is not None or dataset.dtype.hasobject else int(offset)
