"""Regions: rectangles of whole chunks, the work that ranks are granted.

A region lies in the upper triangle or reaches below it; of what it covers, only chunks (i, j) with i <= j are meant. It
says which of its sides stays in the host slots of a rank while the other streams past, and in which direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Chunk = tuple[int, int]
Side = Literal["rows", "columns"]


@dataclass(frozen=True)
class Region:
    """Chunks that one rank is granted together; all fields but the last two are chunk indices, half-open.

    Attributes
    ----------
    r0, r1, c0, c1 : int
    stays : {"rows", "columns"}
        The side that stays; the other one streams past it.
    backwards : bool
        Whether it streams from its last chunk to its first.
    """

    r0: int
    r1: int
    c0: int
    c1: int
    stays: Side = "rows"
    backwards: bool = False

    @property
    def band(self) -> range:
        """The chunk rows, or columns, that stay."""
        return range(self.r0, self.r1) if self.stays == "rows" else range(self.c0, self.c1)

    @property
    def stream(self) -> range:
        """The chunk columns, or rows, that stream, in ascending order."""
        return range(self.c0, self.c1) if self.stays == "rows" else range(self.r0, self.r1)

    @property
    def area(self) -> tuple[slice, slice]:
        """The region as an index into a matrix of chunks."""
        return slice(self.r0, self.r1), slice(self.c0, self.c1)

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over the chunks, those below the diagonal left out."""
        return ((i, j) for i in range(self.r0, self.r1) for j in range(max(i, self.c0), self.c1))

    def needs(self) -> dict[int, float]:
        """Return the chunk lines whose items are needed, as rows or as columns, each of weight 1."""
        return dict.fromkeys((*range(self.r0, self.r1), *range(self.c0, self.c1)), 1.0)

    def streams(self, start: int, stop: int) -> Region:
        """Return the part whose stream is ``range(start, stop)``."""
        return replace(self, c0=start, c1=stop) if self.stays == "rows" else replace(self, r0=start, r1=stop)

    def keeps(self, start: int, stop: int) -> Region:
        """Return the part whose band is ``range(start, stop)``."""
        return replace(self, r0=start, r1=stop) if self.stays == "rows" else replace(self, c0=start, c1=stop)

    def cut_stream(self, count: int) -> tuple[Region, Region]:
        """Cut off what comes first: the part with the first ``count`` chunks of the stream, and the rest."""
        if self.backwards:
            at = self.stream.stop - count
            return self.streams(at, self.stream.stop), self.streams(self.stream.start, at)
        at = self.stream.start + count
        return self.streams(self.stream.start, at), self.streams(at, self.stream.stop)

    def cut_band(self, count: int) -> tuple[Region, Region]:
        """Cut the band: the part with its first ``count`` chunks, and the rest."""
        at = self.band.start + count
        return self.keeps(self.band.start, at), self.keeps(at, self.band.stop)


def region_of(chunk: Chunk) -> Region:
    """Return the region of one chunk."""
    row, column = chunk
    return Region(row, row + 1, column, column + 1)


def cover(wanted: np.ndarray, like: Region | None = None) -> list[Region]:
    """Cover the true entries of a matrix of chunks by rectangles, each entry once and no other in the upper triangle.

    Parameters
    ----------
    wanted : ndarray of bool, shape (n_chunks, n_chunks)
        False below the diagonal.
    like : Region, optional
        Look only inside of it; the rectangles stay and stream as it does, and come in the order of its stream.
    """
    like = like or Region(0, wanted.shape[0], 0, wanted.shape[1])
    rows, columns = np.ogrid[like.area]
    view = wanted[like.area] | (rows > columns)
    view = view if like.stays == "rows" else view.T
    # Lines of the stream whose bands have the same runs lie in the same rectangles.
    found: list[Region] = []
    growing: dict[tuple[int, int], int] = {}
    for line in range(view.shape[1] + 1):
        runs = _runs(view[:, line]) if line < view.shape[1] else []
        for run in [run for run in growing if run not in runs]:
            part = like.keeps(like.band.start + run[0], like.band.start + run[1])
            found.append(part.streams(like.stream.start + growing.pop(run), like.stream.start + line))
        for run in runs:
            growing.setdefault(run, line)
    found = [region for region in found if wanted[region.area].any()]
    return sorted(found, key=lambda region: -region.stream.stop if like.backwards else region.stream.start)


def _runs(line: np.ndarray) -> list[tuple[int, int]]:
    """Return where the runs of true entries of a line begin and end."""
    edges = np.flatnonzero(np.diff(line.astype(np.int8), prepend=0, append=0))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
