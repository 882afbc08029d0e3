"""The items of a run: keys and fingerprints, in ``items.parquet``. Array items have none: their keys are indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.files import FileWriter
from tartan.base.keys import row_keys
from tartan.errors import CorruptResultError, StoreError
from tartan.store import parquet
from tartan.store.columns import texts_to_arrow, to_arrow, to_numpy

FILE_NAME = "items.parquet"
_STAMPS = ("size", "mtime", "ctime", "identity")


@dataclass(frozen=True)
class ItemTable:
    """Keys and fingerprints of n items.

    Attributes
    ----------
    keys : list of str
    sizes : int64 array (n,) or None
        Bytes.
    mtimes : int64 array (n,) or None
        Time of the last change, nanoseconds since 1970.
    contents : list of str or None
        SHA-256 of each item's bytes; only earlier versions of Tartan wrote it.
    ctimes, identities : int64 array (n,) or None
        Time of the last change of anything about the file, and its inode or a number made from its ETag; -1 where it is
        not known.
    notes : list of (str or None), or None
        What scores of each item depend on besides its bytes (``Application.recall_item``).
    """

    keys: list[str]
    sizes: np.ndarray | None = None
    mtimes: np.ndarray | None = None
    contents: list[str] | None = None
    ctimes: np.ndarray | None = None
    identities: np.ndarray | None = None
    notes: list[str | None] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def write(self, folder: Path, writer: FileWriter) -> None:
        """Write ``items.parquet``."""
        import pyarrow as pa

        columns: dict[str, Any] = {"key": texts_to_arrow(self.keys)}
        for name, values in zip(_STAMPS, (self.sizes, self.mtimes, self.ctimes, self.identities), strict=True):
            if values is not None:
                columns[name] = to_arrow(np.asarray(values, np.int64))
        if self.contents is not None:
            columns["content"] = texts_to_arrow(self.contents)
        if self.notes is not None:
            columns["note"] = texts_to_arrow(self.notes)
        parquet.write_table(folder / FILE_NAME, pa.table(columns), writer)


class StoredItems:
    """The table in a run folder, read when first used and cut to the run's number of items."""

    def __init__(self, folder: Path, n_items: int, *, n_left: int | None = None, required: bool = False) -> None:
        self._path = folder / FILE_NAME
        self._n_items = n_items
        self._n_left = n_left
        self._required = required

    @cached_property
    def table(self) -> ItemTable | None:
        """The items, or None where they are rows without names.

        Raises
        ------
        CorruptResultError
            If the file is damaged, or gone although the items have names.
        StoreError
            If it holds fewer items than the run.
        """
        if not self._path.exists():
            if self._required:
                raise _corrupt(self._path, "is gone")
            return None
        columns = _read(self._path)
        if "key" not in columns:
            raise _corrupt(self._path, "has no column 'key'")
        if len(columns["key"]) < self._n_items:
            raise StoreError(f"{self._path} has {len(columns['key'])} items, the run {self._n_items}")
        cut = {name: column.slice(0, self._n_items) for name, column in columns.items()}
        sizes, mtimes, ctimes, identities = (to_numpy(cut[n]) if n in cut else None for n in _STAMPS)
        contents = cut["content"].to_pylist() if "content" in cut else None
        notes = cut["note"].to_pylist() if "note" in cut else None
        return ItemTable(cut["key"].to_pylist(), sizes, mtimes, contents, ctimes, identities, notes)

    @property
    def keys(self) -> Sequence[str]:
        """Stable keys of all items; each side of A x B has its own."""
        if self.table is not None:
            return self.table.keys
        return row_keys(self._n_items, self._n_left)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise _corrupt(path, f"cannot be read ({error})") from error
    return {name: table[name] for name in table.column_names}


def _corrupt(path: Path, what: str) -> CorruptResultError:
    return CorruptResultError(
        f"{path}, the names of the items, {what}; restore it from a copy, or start a new run in another folder",
        context={"path": str(path)},
    )
