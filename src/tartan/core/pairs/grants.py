"""The part of the order that a rank may compute: segments that were granted to it, one after the other.

A rank asks for segments ahead of need, and what grants them is outside: the order itself where there is one rank. So a
rank may have nothing to do without being finished, and segments that it has not begun can be taken back.

Invariant: a segment is begun only when the one after it is known, or when it is known that there is none at present.
Planned eviction looks that far ahead, so it does not depend on how soon segments are granted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.order import Segment

#: Segments held at a time: the one that is under way, the next one, and one that arrives meanwhile.
#: By construction: with two, the invariant above makes a rank wait for each grant; a fourth could not be taken back in
#: time by others. bench cluster_speed holds what it costs.
HELD = 3
# By judgement: planned eviction looks at whole segments; this is for orders without resident rows only, where farther
# uses no longer change which item goes. No benchmark.
LOOK_AHEAD_TILES = 64


class Grants:
    """Segments of one rank, and how far it is in the first of them.

    Parameters
    ----------
    grid : Grid

    Attributes
    ----------
    position : int
        Tiles of the first segment that were admitted.
    asked : bool
        Whether segments were asked for and not granted yet.
    """

    def __init__(self, grid: Grid) -> None:
        self.position = 0
        self._grid = grid
        self._segments: deque[Segment] = deque()
        self.asked = False
        self._none_now = False
        self._no_more = False

    @property
    def exhausted(self) -> bool:
        """Whether all was computed and nothing more will be granted."""
        return self._no_more and self.current is None

    @property
    def current(self) -> Segment | None:
        """The segment under way, or that may be begun."""
        while self._segments and self.position >= len(self._segments[0].tiles):
            self._segments.popleft()
            self.position = 0
        known = self.position or len(self._segments) > 1 or self._no_more or self._none_now
        return self._segments[0] if self._segments and known else None

    def on_granted(self, segments: Sequence[Segment], last: bool) -> None:
        """Add segments; none is an answer too: there are none at present, or, with ``last``, none to come."""
        self._segments.extend(segments)
        self.asked = False
        self._none_now = not segments
        self._no_more |= last

    @property
    def lacking(self) -> int:
        """How many segments to ask for now: none while an answer is awaited, or where there are none."""
        if self.asked or self._none_now or self._no_more:
            return 0
        return max(0, HELD - len(self._segments))

    def revoke(self, most: int, open_chunks: Collection[tuple[int, int]]) -> list[Segment]:
        """Take back up to ``most`` segments, the last ones first to go; return them in their order.

        A segment stays when it is begun, or when a chunk of it is open or shared with a segment that stays: a chunk is
        computed by one rank.
        """
        revoked: list[Segment] = []
        while len(revoked) < most and len(self._segments) > (1 if self.position else 0):
            *staying, last = self._segments
            held = {*open_chunks, *(chunk for segment in staying for chunk in self._chunks(segment))}
            if held & self._chunks(last):
                break
            revoked.append(self._segments.pop())
        self._none_now |= bool(revoked)
        return revoked[::-1]

    def next_use(self, span: int) -> tuple[int, int] | None:
        """Return when a span is needed again, in the segment under way or the next; None where it is not."""
        starts = (self.position, 0)
        for number, (segment, start) in enumerate(zip(self._segments, starts, strict=False)):
            use = segment.next_use(span, start)
            if use is not None:
                return number, use
        return None

    def _chunks(self, segment: Segment) -> set[tuple[int, int]]:
        return {self._grid.chunk_of(tile) for tile in segment.tiles}


class Upcoming:
    """When each span is next used on a device, looking a few columns ahead; worked out when first asked."""

    def __init__(self, segment: Segment | None, position: tuple[int, int], grid: Grid) -> None:
        self._segment = segment if segment is not None and segment.index == position[0] else None
        self._position = position
        self._grid = grid
        self._strips: dict[int, int] | None = None
        self._columns: dict[int, int] = {}

    def __call__(self, span: int) -> tuple[int, int] | None:
        if self._strips is None:
            ahead = self._ahead()
            offsets = range(len(ahead) - 1, -1, -1)
            self._strips = dict(zip([tile.strip for tile in reversed(ahead)], offsets, strict=True))
            self._columns = dict(zip([tile.span for tile in reversed(ahead)], offsets, strict=True))
        by_row = self._strips.get(self._grid.strip_of(span))
        by_column = self._columns.get(span)
        uses = [use for use in (by_row, by_column) if use is not None]
        return (self._position[0], min(uses)) if uses else None

    def _ahead(self) -> list[Tile]:
        start = self._position[1]
        return self._segment.tiles[start : start + LOOK_AHEAD_TILES] if self._segment else []
