"""What a rank was granted and has not begun: regions in, segments of the order out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

import numpy as np

from tartan.core.pairs.grid import Grid
from tartan.core.pairs.order import Needed, Segment, region_order
from tartan.core.pairs.region import Chunk, Region
from tartan.core.ranks.messages import GivenUp, Shed
from tartan.core.ranks.stealing import split_off


class Allotment:
    """The regions of one rank, and how far they became segments.

    Parameters
    ----------
    grid : Grid
    pairs : ndarray of int64, shape (n_chunks, n_chunks)
        Wanted pairs of every chunk (``division.chunk_pairs``).
    panel_items : int
        Most items that stay at a time.
    needed : callable
        Whether a tile is still to be computed.
    strips_stream : bool
        See ``order.region_order``.

    Attributes
    ----------
    left_pairs : int
        Pairs of granted chunks that are not committed.
    """

    def __init__(
        self, grid: Grid, pairs: np.ndarray, panel_items: int, needed: Needed, *, strips_stream: bool = True
    ) -> None:
        self._grid = grid
        self._pairs = pairs
        self._panel_items = panel_items
        self._needed = needed
        self._strips_stream = strips_stream
        self._regions: deque[Region] = deque()
        self._passed: deque[Region] = deque()
        self._segments: Iterator[Segment] = iter(())
        self._band: frozenset[int] = frozenset()
        self._uncommitted: set[Chunk] = set()
        self._n_segments = 0
        self._empty: list[Chunk] = []
        self.left_pairs = 0

    @property
    def low(self) -> bool:
        """Whether all regions have been begun, so that it is time to ask for more."""
        return not (self._regions or self._passed)

    @property
    def uncommitted(self) -> Set[Chunk]:
        """Granted chunks that are not committed; not to be changed."""
        return self._uncommitted

    def on_granted(self, regions: Sequence[Region], *, passed_on: bool = False) -> None:
        """Add regions, after those granted before.

        Parameters
        ----------
        regions : sequence of Region
        passed_on : bool
            Whether another rank has passed them on: they come first, and are not given up for a thief, who would not
            know that it has the last try.
        """
        for region in regions:
            (self._passed if passed_on else self._regions).extend(self._cut_to_fit(region))
            self._uncommitted.update(region.chunks())
            self.left_pairs += int(self._pairs[region.area].sum())

    def segments(self, most: int) -> list[Segment]:
        """Return the next segments, at most this number; none when all regions have been begun."""
        found: list[Segment] = []
        while len(found) < most:
            segment = next(self._segments, None)
            if segment is not None:
                found.append(segment)
            elif regions := self._passed or self._regions:
                first, rest = regions.popleft().cut_stream(1)
                if rest.stream:
                    regions.appendleft(rest)
                self._begin(first)
            else:
                break
        return found

    def without_work(self) -> list[Chunk]:
        """Return the chunks begun since the last call that need nothing: report them as done."""
        found, self._empty = self._empty, []
        return found

    def on_committed(self, chunk: Chunk) -> None:
        """A chunk is in the ledger, or passed on."""
        if chunk in self._uncommitted:
            self._uncommitted.remove(chunk)
            self.left_pairs -= int(self._pairs[chunk])

    def give_back(self, asked: Shed) -> GivenUp:
        """Give up regions that are not begun, for another rank."""
        kept, given = split_off(
            self._regions, asked.pairs, self._pairs, thief=frozenset(asked.lines), victim=self._band
        )
        self._regions = deque(kept)
        for region in given:
            self._uncommitted.difference_update(region.chunks())
            self.left_pairs -= int(self._pairs[region.area].sum())
        return GivenUp(asked.thief, tuple(given))

    def _cut_to_fit(self, region: Region) -> Iterator[Region]:
        """Cut a region whose band is higher than what can stay; they pass to and fro."""
        region = region if self._strips_stream else replace(region, stays="rows")
        high = max(1, self._panel_items // self._grid.chunk)
        while len(region.band) > high:
            first, region = region.cut_band(high)
            yield first
            region = replace(region, backwards=not region.backwards)
        yield region

    def _begin(self, region: Region) -> None:
        self._band = frozenset(region.band)
        self._empty += [chunk for chunk in region.chunks() if not any(map(self._needed, self._grid.chunk_tiles(chunk)))]
        order = region_order(self._grid, region, self._panel_items, self._needed, strips_stream=self._strips_stream)
        self._segments = self._number_segments(order)

    def _number_segments(self, segments: Iterator[Segment]) -> Iterator[Segment]:
        """Number segments through, from one region to the next."""
        for segment in segments:
            segment.index = self._n_segments
            self._n_segments += 1
            yield segment
