"""Parts of tiles: what one compare call compares, and where its scores go.

A part is the whole tile unless something failed as a whole; then it is halved until the guilty pair is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from tartan.core.grid import Tile
from tartan.core.ledger import DONE, FAILED_ITEM
from tartan.runtime.host import Place
from tartan.workers.arena import Arena

CHUNK_ARENA = "chunks"
WHOLE_TILE = 2


@dataclass(frozen=True)
class TileMask:
    """Which pairs of a tile count.

    Attributes
    ----------
    wanted : ndarray of bool or None
        None: all.
    failed_rows, failed_columns : tuple of int
        Positions of failed items.
    """

    wanted: np.ndarray | None = None
    failed_rows: tuple[int, ...] = ()
    failed_columns: tuple[int, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether all pairs count and no item has failed."""
        return self.wanted is None and not self.failed_rows and not self.failed_columns

    def codes(self, shape: tuple[int, int]) -> np.ndarray | int:
        """Return the codes of the ledger if every comparison succeeds (0 where nothing is wanted)."""
        if self.plain:
            return DONE
        codes = np.full(shape, DONE, np.uint8)
        codes[list(self.failed_rows), :] = FAILED_ITEM
        codes[:, list(self.failed_columns)] = FAILED_ITEM
        if self.wanted is not None:
            codes *= self.wanted
        return codes

    def part(self, rows: slice, columns: slice) -> TileMask:
        """Return the mask of a part of the tile."""

        def inside(positions: tuple[int, ...], part: slice) -> tuple[int, ...]:
            return tuple(p - part.start for p in positions if part.start <= p < part.stop)

        wanted = None if self.wanted is None else self.wanted[rows, columns]
        return TileMask(wanted, inside(self.failed_rows, rows), inside(self.failed_columns, columns))


class ChunkViews(NamedTuple):
    """The buffers of a chunk: scores and codes (side, side), and the scores of (j, i) where those are others."""

    scores: dict[str, np.ndarray]
    status: np.ndarray
    mirrored: dict[str, np.ndarray] | None


@dataclass(frozen=True)
class OpenChunk:
    """Where the buffers of an open chunk lie in the arena of chunks; side x side pairs each, whatever is used of them.

    Attributes
    ----------
    slot : int
    side : int
    outputs, mirrored : dict of str to (offset, dtype)
        Scores; ``mirrored`` is None where (j, i) has those of (i, j).
    status_offset : int
        Codes of the ledger.
    counted_twice : bool
        Whether (i, j) and (j, i) count as two pairs.
    """

    slot: int
    side: int
    outputs: dict[str, tuple[int, str]]
    mirrored: dict[str, tuple[int, str]] | None
    status_offset: int
    counted_twice: bool = False

    def views(self, arena: Arena) -> ChunkViews:
        """Return its buffers as arrays."""
        shape = (self.side, self.side)
        scores, mirrored = (
            None if places is None else {name: arena.view(at, shape, dtype) for name, (at, dtype) in places.items()}
            for places in (self.outputs, self.mirrored)
        )
        return ChunkViews(scores or {}, arena.view(self.status_offset, shape, np.uint8), mirrored)


@dataclass(frozen=True)
class Part:
    """A part of a tile that is compared by one call; the whole tile unless something failed.

    Attributes
    ----------
    tile : Tile
    rows, columns : sequences of Place
        Host places of the tile's items.
    row_part, column_part : slice
    chunk : OpenChunk
    corner : (int, int)
        Items of the first pair.
    origin : (int, int)
        Position of the part in the chunk.
    mask : TileMask
        Of the part.
    depth : int
        How often the tile was halved to get it.
    scout : bool
        Whether it is a pair that is tried beside the others, and writes no score.
    again : bool
        Whether it has ended a worker before; it is tried after all others.
    """

    tile: Tile
    rows: Sequence[Place]
    columns: Sequence[Place]
    row_part: slice
    column_part: slice
    chunk: OpenChunk
    corner: tuple[int, int]
    origin: tuple[int, int]
    mask: TileMask
    depth: int = 0
    scout: bool = False
    again: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_part.stop - self.row_part.start, self.column_part.stop - self.column_part.start

    @property
    def offset(self) -> int | None:
        """Row minus column of the first pair where (i, j) and (j, i) count as two, else None."""
        return self.corner[0] - self.corner[1] if self.chunk.counted_twice else None

    @property
    def window(self) -> tuple[slice, slice]:
        """Where its pairs lie in the buffers of its chunk."""
        (r, c), (m, k) = self.origin, self.shape
        return slice(r, r + m), slice(c, c + k)

    @property
    def priority(self) -> int:
        """Lower goes first: parts of halved tiles before whole ones."""
        return 0 if self.depth and not self.again else WHOLE_TILE


def halves(part: Part) -> list[Part]:
    """Cut a part in two across its longer side."""
    m, k = part.shape
    if m >= k:
        cuts = [(slice(0, m // 2), slice(0, k)), (slice(m // 2, m), slice(0, k))]
    else:
        cuts = [(slice(0, m), slice(0, k // 2)), (slice(0, m), slice(k // 2, k))]
    return [_cut(part, rows, columns) for rows, columns in cuts]


def scouts(part: Part, most: int) -> list[Part]:
    """Return single pairs of a part that count, of different items, to learn whether any can be compared."""
    codes = np.broadcast_to(np.uint8(part.mask.codes(part.shape)), part.shape)
    chosen: list[Part] = []
    taken: set[int] = set()
    # From the end: the last rows of a tile have other items than the pairs that ended a worker before, if any did.
    for row in np.unique(np.linspace(0, len(codes) - 1, 2 * most).astype(int)).tolist()[::-1]:
        columns = [column for column in np.flatnonzero(codes[row] == DONE).tolist() if column not in taken]
        if len(chosen) < most:
            columns = columns or np.flatnonzero(codes[row] == DONE).tolist()[:1]
            for column in columns[len(chosen) * len(columns) // most :][:1]:
                taken.add(column)
                pair = _cut(part, slice(row, row + 1), slice(column, column + 1))
                chosen.append(replace(pair, scout=True))
    return chosen


def _cut(part: Part, rows: slice, columns: slice) -> Part:
    top, left = part.row_part.start, part.column_part.start
    return replace(
        part,
        row_part=slice(top + rows.start, top + rows.stop),
        column_part=slice(left + columns.start, left + columns.stop),
        corner=(part.corner[0] + rows.start, part.corner[1] + columns.start),
        origin=(part.origin[0] + rows.start, part.origin[1] + columns.start),
        mask=part.mask.part(rows, columns),
        depth=part.depth + 1,
    )


class _Halved(Protocol):
    @property
    def depth(self) -> int: ...


P = TypeVar("P", bound=_Halved)


class HalvedTiles(Generic[P]):
    """Parts of halved tiles that wait: the latest goes first, and few are under way at once.

    So the way to a guilty pair is a path and not the whole tree, however late the ends of parts become known.

    Parameters
    ----------
    most : int
        How many parts are under way at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way = 0
        self._waiting: list[P] = []

    def add(self, parts: Sequence[P]) -> None:
        """Let parts wait; the first of them goes first."""
        self._waiting += reversed(parts)

    def add_last(self, part: P) -> None:
        """Let a part wait until no other does."""
        self._waiting.insert(0, part)

    def ended(self, part: P) -> None:
        """Note the end of any part; whole tiles do not count."""
        self._under_way -= part.depth > 0

    def next(self) -> Iterator[P]:
        """Take the parts that may start now."""
        while self._waiting and self._under_way < self._most:
            self._under_way += 1
            yield self._waiting.pop()
