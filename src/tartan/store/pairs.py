"""Which pairs a run is asked for, chunk by chunk: the workload of core, as a manifest describes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from tartan.base.files import open_regular
from tartan.core.pairs.grid import Rect
from tartan.core.pairs.shares import shares
from tartan.core.pairs.workload import AllPairs, Candidates, LivePairs, LiveRectangle, Rectangle, Workload
from tartan.errors import ConfigError, CorruptResultError
from tartan.store.manifest import Manifest

# By arithmetic at some 15 us a chunk.
_MOST_DIVIDED = 1 << 21  # about half a minute; chunks are listed for that


class WantedPairs:
    """The pairs of a run.

    A pair is one cell (i, j) of the upper triangle. In a run that is not symmetric it stands for two scores, (i, j)
    and (j, i), which are committed together. They count as two where both are compared, as one where outputs are
    directed and (j, i) is the inverse of (i, j).

    Parameters
    ----------
    manifest : Manifest
    folder : Path
        The run folder, where the list of candidates lies.
    live : bool array (n,), optional
        Which slots are items still (versions.py); pairs with others are not wanted. Default: all.
    """

    def __init__(self, manifest: Manifest, folder: Path, live: np.ndarray | None = None) -> None:
        self._manifest = manifest
        self.live = live
        self._folder = folder
        self._side = manifest.chunk

    @cached_property
    def workload(self) -> Workload:
        """The workload over all items of the run."""
        described, n = self._manifest.workload, self._manifest.n_items
        if described["kind"] == "rectangle":
            n_left = int(described["n_left"])
            return Rectangle(n_left, n) if self.live is None else LiveRectangle(n_left, n, self.live)
        if described["kind"] == "candidates":
            listed = _load_candidates(self._folder / str(described["file"]), n, described.get("digest"))
            return listed if self.live is None else Candidates(n, listed.pairs[self.live[listed.pairs].all(axis=1)])
        diagonal = bool(self._manifest.application.get("diagonal", False))
        return AllPairs(n, diagonal) if self.live is None else LivePairs(n, self.live, diagonal)

    @property
    def both_ways(self) -> bool:
        """Whether (i, j) and (j, i) are two scores."""
        return not self._manifest.symmetric and self._manifest.workload["kind"] != "rectangle"

    @property
    def counted_twice(self) -> bool:
        """Whether (i, j) and (j, i) count as two pairs: both are compared."""
        return self.both_ways and not self._manifest.application.get("directed")

    @cached_property
    def n_scores(self) -> int:
        """Number of pairs that a finished run has compared."""
        n_cells = self.workload.n_pairs
        return 2 * n_cells - self._n_diagonal() if self.counted_twice else n_cells

    def rect(self, row: int, column: int) -> Rect:
        """Return the extent of a chunk, clipped to the items."""
        n, side = self._manifest.n_items, self._side
        lines = [min(n, k * side) for k in (row, row + 1, column, column + 1)]
        return Rect(*lines)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield the chunks (I, J), I <= J, that hold wanted pairs, row by row."""
        if isinstance(self.workload, Candidates):
            yield from self._listed_chunks
            return
        rows, columns = (_cells(part, self._side) for part in (self.workload.rows(), self.workload.columns()))
        for row in rows:
            for column in range(max(row, columns.start), columns.stop):
                if row != column or self.workload.count(self.rect(row, column)):
                    yield row, column

    def has_chunk(self, row: int, column: int) -> bool:
        """Whether ``chunks`` yields a chunk."""
        if isinstance(self.workload, Candidates):
            return (row, column) in self._listed_chunks
        rows, columns = (_cells(part, self._side) for part in (self.workload.rows(), self.workload.columns()))
        inside = row in rows and column in columns and row <= column
        return inside and (row != column or bool(self.workload.count(self.rect(row, column))))

    @property
    def _most_chunks(self) -> int:
        """How many chunks there are at most."""
        if isinstance(self.workload, Candidates):
            return len(self._listed_chunks)
        rows, columns = (len(_cells(part, self._side)) for part in (self.workload.rows(), self.workload.columns()))
        return rows * columns if isinstance(self.workload, Rectangle) else rows * (columns + 1) // 2

    @cached_property
    def _listed_chunks(self) -> dict[tuple[int, int], None]:
        assert isinstance(self.workload, Candidates)
        across = -(-self.workload.n_items // self._side)
        rows, columns = (self.workload.pairs[:, end] // self._side for end in (0, 1))
        return dict.fromkeys(divmod(chunk, across) for chunk in np.unique(rows * across + columns).tolist())

    def n_in(self, row: int, column: int) -> int:
        """Return the number of pairs of a chunk, with those of its mirror image where they count too."""
        rect = self.rect(row, column)
        n_cells = self.workload.count(rect)
        if not self.counted_twice:
            return n_cells
        return 2 * n_cells - (int(self._live_with_itself(rect.r0, rect.r1).sum()) if row == column else 0)

    def shares(self, n_parts: int) -> list[list[tuple[int, int]]]:
        """Return for each of some parts the chunks that it computes; what is done does not matter.

        Raises
        ------
        ConfigError
            If the run has too many chunks to be divided.
        """
        n_chunks = self._most_chunks
        if n_chunks > _MOST_DIVIDED:
            raise ConfigError(
                f"{self._folder} has {n_chunks:,} chunks, and up to {_MOST_DIVIDED:,} can be divided into parts; "
                "start it with a larger --tile"
            )
        chunks = list(self.chunks())
        return shares(chunks, [self.workload.count(self.rect(*chunk)) for chunk in chunks], n_parts)

    def mask(self, row: int, column: int) -> np.ndarray:
        """Return which pairs of a chunk are wanted: bool (rows, columns), clipped to the items."""
        rect = self.rect(row, column)
        mask = self.workload.mask(rect)
        return np.ones(rect.shape, bool) if mask is None else mask

    def with_itself(self, start: int, stop: int) -> np.ndarray:
        """Return which items of a range are compared with themselves: bool (stop - start,)."""
        if not isinstance(self.workload, Candidates):
            return np.full(stop - start, self.workload.has_diagonal)
        listed = self._listed_with_itself
        found = np.zeros(stop - start, bool)
        found[listed[(listed >= start) & (listed < stop)] - start] = True
        return found

    def _live_with_itself(self, start: int, stop: int) -> np.ndarray:
        found = self.with_itself(start, stop)
        return found if self.live is None else found & self.live[start:stop]

    @cached_property
    def _listed_with_itself(self) -> np.ndarray:
        assert isinstance(self.workload, Candidates)
        pairs = self.workload.pairs
        alone: np.ndarray = pairs[pairs[:, 0] == pairs[:, 1], 0]
        return alone

    def _n_diagonal(self) -> int:
        if isinstance(self.workload, Candidates):
            return len(self._listed_with_itself)
        return int(self._live_with_itself(0, self.workload.n_items).sum())


def _cells(items: range, side: int) -> range:
    """Return the chunk rows or columns that a range of items touches."""
    return range(items.start // side, -(-items.stop // side))


def digest(wanted: Candidates) -> str:
    """Return a text that identifies a list of candidates, in whatever order it was given."""
    return hashlib.sha256(np.ascontiguousarray(wanted.pairs, "<i8").data).hexdigest()[:16]


def _load_candidates(path: Path, n_items: int, wanted: str | None) -> Candidates:
    try:
        with open_regular(path) as file:
            pairs = np.asarray(np.load(file, allow_pickle=False), np.int64).reshape(-1, 2)
    except (OSError, ValueError, EOFError) as error:
        raise _corrupt(path, f"cannot be read ({error})") from error
    try:
        found = Candidates(n_items, pairs)
    except ConfigError as error:
        raise _corrupt(path, f"does not fit the run ({error})") from error
    if wanted is not None and digest(found) != wanted:
        raise _corrupt(path, "does not match its checksum")
    return found


def _corrupt(path: Path, what: str) -> CorruptResultError:
    return CorruptResultError(
        f"{path}, the list of pairs of this run, {what}; restore it from a copy, or start a new run in another folder",
        context={"path": str(path)},
    )
