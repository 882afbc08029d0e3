"""Names of files of rows, opened: one file, or shards that are one after the other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from tartan.sources.arrays import ArraySource
from tartan.sources.rows.arrow_files import ArrowTable, ParquetTable, TextTable
from tartan.sources.rows.tables import NameColumns, TableRows
from tartan.sources.rows.unpacked import RowFile, UnpackedSource

_TABLES: dict[str, Any] = {
    ".parquet": ParquetTable, ".pq": ParquetTable,
    ".arrow": ArrowTable, ".arrows": ArrowTable, ".feather": ArrowTable, ".ipc": ArrowTable,
}  # fmt: skip
_TEXTS: dict[str, Any] = {".csv": TextTable, ".tsv": TextTable}


def split_part(name: str) -> tuple[str, str | None]:
    """Return a path, and what of the file is meant: ``rows.parquet:embedding`` is the column ``embedding``."""
    head, colon, part = name.rpartition(":")
    if not colon or not part or os.path.lexists(name) or PurePath(head).suffix.lower() not in _TABLES | _TEXTS:
        return name, None
    return head, part


def open_rows(names: Sequence[str]) -> ArraySource | None:
    """Open files of rows, one after the other; None where the names are of something else.

    Parameters
    ----------
    names : sequence of str
        Paths, each with a colon and the column or array that is meant behind it, where that is not clear.

    Raises
    ------
    ConfigError
        If a file is damaged, or what is meant in it cannot be told.
    """
    if len(names) != 1:
        return None
    path, part = split_part(names[0])
    if PurePath(path).suffix.lower() not in _TABLES or not os.path.isfile(path):  # noqa: PTH113
        return None
    return UnpackedSource(_open(path, part))


def _open(path: str, part: str | None) -> RowFile:
    return TableRows(_TABLES[PurePath(path).suffix.lower()](path), part)


def open_names(path: str) -> NameColumns | None:
    """Open a table for the names in it; None where a file is none, by its name."""
    kind = _TABLES.get(PurePath(path).suffix.lower()) or _TEXTS.get(PurePath(path).suffix.lower())
    return None if kind is None else NameColumns(kind(path))


def reopen_rows(names: Sequence[str], keys: Sequence[str] | None, column: str | None) -> ArraySource:
    """Open rows again in another process."""
    source = open_rows(names)
    assert isinstance(source, UnpackedSource)
    if keys is not None:
        source.keys = keys
    elif column is not None:
        source.name_rows(column)
    return source
