"""Parts of tiles: what one compare call does, and what came of it.

A part is the whole tile unless something failed as a whole; then it is halved until the guilty pair is alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tartan.runtime.chunks import OpenChunk
from tartan.runtime.compare import PairFailure, TileMask
from tartan.runtime.host import Place

__all__ = ["Part", "PartDone", "halves"]

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
        """Lower goes first: the deeper, the sooner, so that the way to a guilty pair is a path, not the whole tree."""
        return 1 - self.depth if self.depth else WHOLE_TILE


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
