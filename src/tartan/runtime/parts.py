"""Parts of tiles: what one compare call does, and what came of it.

A part is the whole tile unless something failed as a whole; then it is halved until the guilty pair is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tartan.runtime.chunks import OpenChunk
from tartan.runtime.compare import PairFailure, TileMask
from tartan.runtime.host import Place

__all__ = ["HalvedTiles", "Part", "PartDone", "halves"]

WHOLE_TILE = 2


@dataclass(frozen=True)
class Part:
    """A part of a tile that is compared by one call; the whole tile unless something failed.

    Attributes
    ----------
    key : object
        Identifies the tile to whoever asked.
    rows, columns : sequences of Place
        Host places of the tile's items.
    row_part, column_part : slice
    chunk : OpenChunk
    origin : (int, int)
        Position of the part in the chunk.
    mask : TileMask
        Of the part.
    depth : int
        How often the tile was halved to get it.
    """

    key: Any
    rows: Sequence[Place]
    columns: Sequence[Place]
    row_part: slice
    column_part: slice
    chunk: OpenChunk
    origin: tuple[int, int]
    mask: TileMask
    depth: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_part.stop - self.row_part.start, self.column_part.stop - self.column_part.start

    @property
    def priority(self) -> int:
        """Lower goes first: parts of halved tiles before whole ones."""
        return 0 if self.depth else WHOLE_TILE


@dataclass(frozen=True)
class PartDone:
    """The end of a part.

    Attributes
    ----------
    failures : list of PairFailure
        Pairs that failed alone, by position in the part.
    error : PairFailure or None
        The call failed as a whole.
    fatal : Exception or None
        The run cannot go on.
    kind : {"", "raised", "died", "late", "memory", "cancelled"}
    """

    part: Part
    device: int
    failures: list[PairFailure]
    seconds: float = 0.0
    error: PairFailure | None = None
    fatal: BaseException | None = None
    kind: str = ""


def halves(part: Part) -> list[Part]:
    """Cut a part in two across its longer side."""
    m, k = part.shape
    found = []
    for first in (True, False):
        if m >= k:
            cut = m // 2
            rows, columns = (slice(0, cut) if first else slice(cut, m)), slice(0, k)
        else:
            cut = k // 2
            rows, columns = slice(0, m), (slice(0, cut) if first else slice(cut, k))
        top, left = part.row_part.start, part.column_part.start
        found.append(
            Part(
                part.key,
                part.rows,
                part.columns,
                slice(top + rows.start, top + rows.stop),
                slice(left + columns.start, left + columns.stop),
                part.chunk,
                (part.origin[0] + rows.start, part.origin[1] + columns.start),
                part.mask.part(rows, columns),
                part.depth + 1,
            )
        )
    return found


class HalvedTiles:
    """Parts of halved tiles that wait: the latest goes first, and few are under way at once.

    So the way to a guilty pair is a path and not the whole tree, however late the ends of parts are heard of.

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

    def ended(self, part: Part) -> None:
        """Note the end of any part; whole tiles do not count."""
        self._under_way -= part.depth > 0

    def next(self) -> Iterator[Part]:
        """Take the parts that may start now."""
        while self._waiting and self._under_way < self._most:
            self._under_way += 1
            yield self._waiting.pop()
