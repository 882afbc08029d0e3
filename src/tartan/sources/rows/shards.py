"""Files of rows that are one array: shards, one after the other."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tartan.base.format import show_value
from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError
from tartan.sources.arrays import ArraySource
from tartan.sources.paths import absolute
from tartan.sources.rows.unpacked import NUMBERS, OTHER_KEYS, NotThereYet, Reopen


class ShardSource(ArraySource):
    """Shards as one array of rows.

    Parameters
    ----------
    shards : sequence of ArraySource
        Two or more, of files.
    reopen : callable
        As of ``StoredRows``.

    Attributes
    ----------
    shards : list of ArraySource
    paths : list of str
        The files.

    Raises
    ------
    ConfigError
        If rows of two shards differ in width, or their types have none in common.
    """

    def __init__(self, shards: Sequence[ArraySource], reopen: Reopen) -> None:
        self._reopen = reopen
        self._names: Sequence[str] | None = None
        self.shards = list(shards)
        _require_alike(self.shards)
        dtype = np.result_type(*(shard.dtype for shard in self.shards))
        self._starts = [0, *itertools.accumulate(shard.n_items for shard in self.shards)]
        super().__init__(NotThereYet((self._starts[-1], *self.shards[0].shape[1:]), dtype), self.shards[0].path)
        self._names = None
        self.paths = [str(shard.path) for shard in self.shards]

    @property
    def keys(self) -> Sequence[str]:
        """Names of the rows: those of all shards where each has some, else numbers."""
        if self._names is None:
            named = [getattr(shard, "named_by", _none)() for shard in self.shards]
            self._names = self._join_names() if all(one is not None for one in named) else IndexKeys(self.n_items)
        return self._names

    @keys.setter
    def keys(self, names: Sequence[str]) -> None:
        self._names = names

    def say(self) -> str:
        """Say what is read, for people."""
        first = getattr(self.shards[0], "say", None)
        told = f", the first {first()}" if first is not None else f", of {self.dtype}"
        return f"{self.n_items:,} rows in {len(self.shards)} shards{told}"

    def names_rows(self, column: str) -> bool:
        """Whether each shard has a column of this name that can name rows."""
        return all(getattr(shard, "names_rows", _no)(column) for shard in self.shards)

    def name_rows(self, column: str) -> None:
        """Take the names of the rows from another column.

        Raises
        ------
        ConfigError
            If a shard has no such column.
        """
        for shard, path in zip(self.shards, self.paths, strict=True):
            name_rows = getattr(shard, "name_rows", None)
            if name_rows is not None:
                name_rows(column)
            elif column != NUMBERS:
                raise ConfigError(f"{path} has no column {column!r}; {OTHER_KEYS}", context={"option": "--keys"})
        self._names = None

    def _join_names(self) -> list[str]:
        names = list(itertools.chain.from_iterable(shard.keys for shard in self.shards))
        if len(set(names)) < len(names):
            seen: dict[str, int] = {}
            row = next(row for row, name in enumerate(names) if seen.setdefault(name, row) != row)
            raise ConfigError(
                f"{self._place(seen[names[row]])} and {self._place(row)} have the same name, {show_value(names[row])}; "
                f"names of rows are all different; {OTHER_KEYS}",
                context={"option": "--keys"},
            )
        return names

    def _place(self, row: int) -> str:
        shard = bisect.bisect_right(self._starts, row) - 1
        return f"row {row - self._starts[shard]} of {self.paths[shard]}"

    def read_block(self, start: int, stop: int) -> np.ndarray:
        """Return rows, of one shard as a view where that is possible."""
        blocks = []
        for shard, first in zip(self.shards, self._starts, strict=False):
            low, high = max(start - first, 0), min(stop - first, shard.n_items)
            if low < high:
                blocks.append(shard.read_block(low, high).astype(self.dtype, copy=False))
        if not blocks:
            return self.shards[0].read_block(0, 0).astype(self.dtype, copy=False)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def prepare(self) -> None:
        """Unpack what is to be unpacked.

        Raises
        ------
        ConfigError
            If a row is none, or the disk has no room.
        """
        for shard in self.shards:
            getattr(shard, "prepare", _none)()

    def describe(self) -> dict[str, Any]:
        """Return what the manifest records: one array, and the names of all shards."""
        names = [getattr(shard, "name", None) or absolute(path) for shard, path in zip(self.shards, self.paths)]
        return super().describe() | {"patterns": names}

    def stamp(self) -> dict[str, Any]:
        """Return a digest of the stamps of all shards."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self.shards:
            digest.update(repr(sorted(shard.stamp().items())).encode())
        return {"files": digest.hexdigest()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process by the paths and the names, not by the rows."""
        return self._reopen, (self.describe()["patterns"], self.keys, None)


def _require_alike(shards: Sequence[ArraySource]) -> None:
    first = shards[0]
    for shard in shards[1:]:
        if shard.shape[1:] != first.shape[1:]:
            widths = [one.shape[1] if len(one.shape) == 2 else one.shape[1:] for one in (shard, first)]
            raise ConfigError(
                f"{shard.path} has rows of {widths[0]} values, and {first.path} of {widths[1]}; shards have rows of "
                "one width: leave it out, or compare it in a run of its own",
                context={"input": shard.path},
            )


def _none() -> None:
    return None


def _no(column: str) -> bool:
    return False
