"""Parts of tiles: what one compare call compares, and where its scores go.

A tile is a product of groups of items, two of a run of pairs and three of a run of triples. A part is the whole tile
unless something failed as a whole; then it is halved until the guilty *cell*, a pair or triple, is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tartan.core.pairs.grid import Tile
from tartan.core.pairs.ledger import DONE, FAILED_ITEM
from tartan.runtime.host import Place
from tartan.workers.arena import Arena

CHUNK_ARENA = "chunks"
# By contract: a weight among parts of tiles, whole tiles first.
WHOLE_TILE = 2


@dataclass(frozen=True)
class TileMask:
    """Which cells of a tile count.

    Attributes
    ----------
    wanted : ndarray of bool or None
        None: all.
    failed : tuple of tuples of int
        Positions of failed items, group by group; empty where none has failed.
    """

    wanted: np.ndarray | None = None
    failed: tuple[tuple[int, ...], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether all cells count and no item has failed."""
        return self.wanted is None and not any(self.failed)

    def codes(self, shape: tuple[int, ...]) -> np.ndarray | int:
        """Return the codes of the ledger if every comparison succeeds (0 where nothing is wanted)."""
        if self.plain:
            return DONE
        codes = np.full(shape, DONE, np.uint8)
        for axis, positions in enumerate(self.failed):
            np.moveaxis(codes, axis, 0)[list(positions)] = FAILED_ITEM
        if self.wanted is not None:
            codes *= self.wanted
        return codes

    def part(self, cut: tuple[slice, ...]) -> TileMask:
        """Return the mask of a part of the tile."""
        wanted = None if self.wanted is None else self.wanted[cut]
        failed = (
            tuple(at - inside.start for at in positions if inside.start <= at < inside.stop)
            for positions, inside in zip(self.failed, cut, strict=False)
        )
        return TileMask(wanted, tuple(failed))


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
    places : sequences of Place
        Host places of the tile's items, group by group.
    shape : tuple of int
        Items of each group that belong to the part.
    at : tuple of int
        Position of the part in the tile.
    corner : tuple of int
        Items of the first cell.
    origin : tuple of int
        Position of the part in the chunk.
    mask : TileMask
        Of the part.
    chunk : OpenChunk or None
        Where scores and codes go; None where they leave a call only as what is kept of them.
    bars : tuple of arrays, or None
        Of the items of the part: which scores are good enough to be kept, where that was known when it was handed out.
    depth : int
        How often the tile was halved to get it.
    scout : bool
        Whether it is a cell that is tried beside the others, and leaves no score.
    again : bool
        Whether it has ended a worker before, or was late; it is tried after all others, for the last time.
    """

    tile: Tile
    places: tuple[Sequence[Place], ...]
    shape: tuple[int, ...]
    at: tuple[int, ...]
    corner: tuple[int, ...]
    origin: tuple[int, ...]
    mask: TileMask
    chunk: OpenChunk | None
    bars: tuple[np.ndarray, ...] | None = None
    depth: int = 0
    scout: bool = False
    again: bool = False

    @property
    def alone(self) -> bool:
        """Whether it is a single cell."""
        return max(self.shape) == 1

    @property
    def cuts(self) -> tuple[slice, ...]:
        """What of each group of the tile belongs to it."""
        return _slices(self.at, self.shape)

    @property
    def offset(self) -> int | None:
        """Row minus column of the first pair where (i, j) and (j, i) count as two, else None."""
        return self.corner[0] - self.corner[1] if self.chunk is not None and self.chunk.counted_twice else None

    @property
    def window(self) -> tuple[slice, ...]:
        """Where its cells lie in the buffers of its chunk."""
        return _slices(self.origin, self.shape)

    @property
    def counts_any(self) -> bool:
        """Whether it holds a cell that is wanted and whose items are good."""
        codes = self.mask.codes(self.shape)
        return bool(np.any(codes == DONE))

    @property
    def priority(self) -> int:
        """Lower goes first: parts of halved tiles before whole ones."""
        return 0 if self.depth and not self.again else WHOLE_TILE


def _slices(starts: Sequence[int], lengths: Sequence[int]) -> tuple[slice, ...]:
    return tuple([slice(start, start + length) for start, length in zip(starts, lengths, strict=True)])


def halves(part: Part) -> list[Part]:
    """Cut a part in two across its longest side."""
    axis = part.shape.index(max(part.shape))
    length = part.shape[axis]
    whole = [slice(0, side) for side in part.shape]
    cuts = (slice(0, length // 2), slice(length // 2, length))
    return [_cut(part, (*whole[:axis], cut, *whole[axis + 1 :])) for cut in cuts]


def scouts(part: Part, most: int) -> list[Part]:
    """Return single cells of a part that count, of different items, to learn whether any can be compared."""
    codes = np.broadcast_to(np.uint8(part.mask.codes(part.shape)), part.shape)
    chosen: list[Part] = []
    taken: set[int] = set()
    # From the end: the last rows of a tile have other items than the pairs that ended a worker before, if any did.
    for row in np.unique(np.linspace(0, len(codes) - 1, 2 * most).astype(int)).tolist()[::-1]:
        counting = np.argwhere(codes[row] == DONE).tolist()
        cells = [cell for cell in counting if cell[-1] not in taken]
        if len(chosen) < most:
            cells = cells or counting[:1]
            for cell in cells[len(chosen) * len(cells) // most :][:1]:
                taken.add(cell[-1])
                single = _cut(part, tuple(slice(at, at + 1) for at in (row, *cell)))
                chosen.append(replace(single, scout=True))
    return chosen


def _cut(part: Part, cut: tuple[slice, ...]) -> Part:
    starts = [inside.start for inside in cut]

    def moved(ends: Sequence[int]) -> tuple[int, ...]:
        return tuple(end + start for end, start in zip(ends, starts, strict=True))

    return replace(
        part,
        shape=tuple(inside.stop - inside.start for inside in cut),
        at=moved(part.at),
        corner=moved(part.corner),
        origin=moved(part.origin),
        mask=part.mask.part(cut),
        bars=None if part.bars is None else tuple(bar[inside] for bar, inside in zip(part.bars, cut, strict=True)),
        depth=part.depth + 1,
    )


class HalvedTiles:
    """Parts of halved tiles that wait: the latest goes first, and few are under way at once.

    So the way to a guilty cell is a path and not the whole tree, however late the ends of parts become known.

    Parameters
    ----------
    most : int
        How many parts are under way at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way = 0
        self._waiting: list[Part] = []

    def add(self, parts: Sequence[Part]) -> None:
        """Let parts wait; the first of them goes first."""
        self._waiting += reversed(parts)

    def add_last(self, part: Part) -> None:
        """Let a part wait until no other does."""
        self._waiting.insert(0, part)

    def on_ended(self, part: Part) -> None:
        """Note the end of any part; whole tiles do not count."""
        self._under_way -= part.depth > 0

    def next(self) -> Iterator[Part]:
        """Take the parts that may start now."""
        while self._waiting and self._under_way < self._most:
            self._under_way += 1
            yield self._waiting.pop()
