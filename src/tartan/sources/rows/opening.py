"""Names of files of rows, opened: one file, or shards that are one after the other."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from tartan.base.format import name_some
from tartan.base.notices import RunNotice
from tartan.base.npy_input import open_npy
from tartan.base.urls import is_url
from tartan.errors import ConfigError
from tartan.sources.arrays import ArraySource, open_stored_array
from tartan.sources.paths import has_magic, list_matching
from tartan.sources.rows.archives import BFLOAT16, ArchiveRows, Bfloat16Rows, Hdf5Rows, RawRows, is_raw
from tartan.sources.rows.arrow_files import ArrowTable, ParquetTable, SeparatedTable
from tartan.sources.rows.shards import ShardSource
from tartan.sources.rows.sparse import CsrRows, CsrSource, is_sparse
from tartan.sources.rows.tables import NameColumns, TableRows
from tartan.sources.rows.unpacked import RowFile, StoredRows

# ruff: noqa: PTH110, PTH112, PTH113, PTH118
# Paths are texts here, with what is meant of the file behind them.

_TABLES: dict[str, Any] = {
    ".parquet": ParquetTable, ".pq": ParquetTable,
    ".arrow": ArrowTable, ".arrows": ArrowTable, ".feather": ArrowTable, ".ipc": ArrowTable,
}  # fmt: skip
_ARCHIVES: dict[str, Callable[[str, str | None], RowFile]] = {
    ".npz": ArchiveRows, ".h5": Hdf5Rows, ".hdf5": Hdf5Rows,
}  # fmt: skip
_TEXTS: dict[str, Any] = {".csv": SeparatedTable, ".tsv": SeparatedTable}
_NPY = ".npy"
_WITH_PARTS = {*_TABLES, *_ARCHIVES, *_TEXTS}
ROW_SUFFIXES = (_NPY, *_TABLES, *_ARCHIVES)
"""Endings of files of rows, in lower case."""
# By judgement: numbers of years or days have gaps that mean nothing; shards lack few.
_MOST_MISSING = 0.5


def split_part(name: str) -> tuple[str, str | None]:
    """Return a path, and what of the file is meant.

    Examples
    --------
    >>> split_part("rows.parquet:embedding"), split_part("rows.bin:float32x768"), split_part("rows.npy")
    (('rows.parquet', 'embedding'), ('rows.bin', 'float32x768'), ('rows.npy', None))
    """
    head, colon, part = name.rpartition(":")
    if not colon or not part or not head or is_url(name) or os.path.lexists(name):
        return name, None
    suffix = PurePath(head).suffix.lower()
    if suffix in _WITH_PARTS or (suffix == _NPY and part == BFLOAT16) or is_raw(part):
        return head, part
    return name, None


def name_part(name: str, dtype: str | None, width: int | None) -> str:
    """Return the name of rows in raw memory, or of bfloat16 that a header does not call so; other names as they are.

    Raises
    ------
    ConfigError
        If one of the two is missing.
    """
    if (dtype is None and width is None) or split_part(name)[1] is not None or is_url(name):
        return name
    suffix = PurePath(name).suffix.lower()
    if suffix == _NPY and dtype == BFLOAT16 and width is None:
        return f"{name}:{dtype}"
    if suffix in ROW_SUFFIXES:
        return name
    if dtype is None or width is None:
        raise ConfigError("rows in raw memory need both --dtype and --dim, such as --dtype float32 --dim 768")
    return f"{name}:{dtype}x{width}"


def open_rows(names: Sequence[str]) -> ArraySource | None:
    """Open files of rows, one after the other; None where the names are of something else.

    Parameters
    ----------
    names : sequence of str
        Paths, globs and folders, each with a colon and the column, array, or dtype and width that is meant behind it,
        where that is not clear. What a glob or a folder stands for is in the order of the numbers in the names.

    Raises
    ------
    ConfigError
        If a file is damaged, what is meant in it cannot be told, one of a sequence of shards is missing, or some files
        are of rows and others are not.
    """
    found = list(_expand(names))
    if not any(_is_of_rows(*one) for one in found) or not all(os.path.exists(path) for path, _ in found):
        return None
    plain = all(PurePath(path).suffix.lower() == _NPY and part is None for path, part in found)
    if plain and len(found) > 1 and _are_vectors(found):
        return None
    rest = next((path for path, part in found if not _is_of_rows(path, part)), None)
    if rest is not None:
        raise ConfigError(
            f"{rest} is not a file of rows, and others that are given with it are; rows are read from "
            f"{', '.join(ROW_SUFFIXES)}, or from raw memory with --dtype and --dim: convert it once by "
            "numpy.save('rows.npy', ROWS), or leave it out",
            context={"input": rest},
        )
    if len(found) == 1:
        return _open(*found[0])
    _look_for_gaps(names, [path for path, _ in found])
    return ShardSource([_open_shard(path, part) for path, part in found], reopen_rows)


def _are_vectors(found: Sequence[tuple[str, str | None]]) -> bool:
    """Whether files are of one vector each, as the first of them that is whole says."""
    for path, part in found:
        with contextlib.suppress(ConfigError):
            return _open(path, part) is None
    return True


def _open_shard(path: str, part: str | None) -> ArraySource:
    source = _open(path, part)
    if source is None:
        raise ConfigError(f"{path} is one vector, and others that are given with it are rows", context={"input": path})
    return source


def _expand(names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield path and part of each file that is named."""
    for name in names:
        path, part = split_part(name)
        if is_url(path):
            yield path, part
        elif has_magic(path):
            yield from ((one, part) for one in sorted(list_matching(path), key=_by_numbers) if not os.path.isdir(one))
        elif os.path.isdir(path) and part is None:
            listed = sorted((one.name for one in os.scandir(path) if one.is_file()), key=_by_numbers)
            fit = [one for one in listed if one.lower().endswith(ROW_SUFFIXES) and not one.startswith(".")]
            yield from ((os.path.join(path, one), None) for one in fit)
        else:
            yield path, part


def _by_numbers(name: str) -> tuple[Any, ...]:
    """Order names by the numbers in them: part-2 is before part-10."""
    pieces = re.split(r"(\d+)", name)
    return tuple(int(piece) if at % 2 else piece for at, piece in enumerate(pieces)), name


def _is_of_rows(path: str, part: str | None) -> bool:
    """Whether a name is one of rows, as far as it tells."""
    return (part is not None or PurePath(path).suffix.lower() in ROW_SUFFIXES) and os.path.isfile(path)


def _open(path: str, part: str | None) -> ArraySource | None:
    """Open one file; None for a ``.npy`` file of one vector."""
    suffix = PurePath(path).suffix.lower()
    if suffix in _TABLES:
        return StoredRows(TableRows(_TABLES[suffix](path), part), reopen_rows)
    if suffix == ".npz" and part is None and is_sparse(path):
        return CsrSource(CsrRows(path), reopen_rows)
    if suffix in _ARCHIVES:
        return StoredRows(_ARCHIVES[suffix](path, part), reopen_rows)
    if suffix != _NPY:
        assert part is not None
        return StoredRows(RawRows(path, part), reopen_rows)
    bits = _open_bfloat16(path, part)
    return bits if bits is not None else open_stored_array(path)


def _open_bfloat16(path: str, part: str | None) -> StoredRows | None:
    """Open an array that is or is called bfloat16, which NumPy saves as values of two bytes without a meaning."""
    try:
        array = open_npy(path)
    except (OSError, ValueError):
        return None
    if part is None:
        if array.dtype == np.dtype("V2") and array.ndim == 2:
            raise ConfigError(
                f"{path}: its values have two bytes and no type, as bfloat16 is saved; say so by --dtype bfloat16",
                context={"input": path, "option": "--dtype"},
            )
        return None
    return StoredRows(Bfloat16Rows(path, array), reopen_rows)


def _look_for_gaps(names: Sequence[str], paths: Sequence[str]) -> None:
    """Name the shards that are missing in a sequence: an error of a glob or a folder, a notice of single names."""
    missing = missing_shards(paths)
    if not missing:
        return
    said = f"of the shards {os.path.basename(paths[0])} to {os.path.basename(paths[-1])}, {name_some(missing)} "  # noqa: PTH119
    said += "is missing" if len(missing) == 1 else "are missing"
    if len(names) < len(paths):
        raise ConfigError(
            f"{said}; bring what is missing, or name the files one by one to go on without",
            context={"missing": missing},
        )
    warnings.warn(said, RunNotice, stacklevel=2)


def missing_shards(paths: Sequence[str]) -> list[str]:
    """Return the names that a sequence of numbered files lacks; none where the numbers are not sequence.

    Examples
    --------
    >>> missing_shards(["part-1.npy", "part-2.npy", "part-4.npy"])
    ['part-3.npy']
    >>> missing_shards(["train-00001-of-00003.parquet", "train-00002-of-00003.parquet"])
    ['train-00000-of-00003.parquet']
    """
    cut = [re.split(r"(\d+)", PurePath(path).name) for path in paths]
    if len({len(pieces) for pieces in cut}) != 1:
        return []
    differing = [at for at, column in enumerate(zip(*cut, strict=True)) if len(set(column)) > 1]
    if len(differing) != 1 or differing[0] % 2 == 0:
        return []
    at, pieces = differing[0], cut[0]
    numbers = {int(one[at]) for one in cut}
    first, last = min(numbers), max(numbers)
    if pieces[at + 1] == "-of-" and at + 2 < len(pieces):
        first, last = 0, int(pieces[at + 2]) - 1
    lacking = sorted(set(range(first, last + 1)) - numbers) if last - first < 2 * len(numbers) / _MOST_MISSING else []
    if len(lacking) > _MOST_MISSING * len(numbers) and pieces[at + 1] != "-of-":
        return []
    width = len(pieces[at]) if any(one[at].startswith("0") and len(one[at]) > 1 for one in cut) else 0
    return ["".join([*pieces[:at], str(number).zfill(width), *pieces[at + 1 :]]) for number in lacking]


def open_names(path: str) -> NameColumns | None:
    """Open a table for the names in it; None where a file is none, by its name."""
    kind = _TABLES.get(PurePath(path).suffix.lower()) or _TEXTS.get(PurePath(path).suffix.lower())
    return None if kind is None else NameColumns(kind(path))


def reopen_rows(names: Sequence[str], keys: Sequence[str] | None, column: str | None) -> ArraySource:
    """Open rows again in another process."""
    source = open_rows(names)
    assert isinstance(source, StoredRows | ShardSource)
    if keys is not None:
        source.keys = keys
    elif column is not None:
        source.name_rows(column)
    return source
