"""Triples of items i < j < k: how they are cut, in which order they are visited, how much must be loaded.

The items are cut as for pairs, into chunks, strips and spans. A tile has three groups of items: those of a first and of
a second strip, and those of a span, of which none lies before the other. To the scheduler it is a ``Tile`` whose
``strip`` numbers the pair of strips; a chunk is a cube, and its ``(row, column)`` are the number of the first two lines
of chunks, and the third line.

With two panels of g items resident, each further item that streams past them makes g^2 new triples. So the room S is
divided into two panels and one or two spans, and ``triple_order`` visits every pair of panels: about 2 n^3 / (3 S^2)
loads, where no order needs less than ``triples_bound``. Panels belong to one execution; the tiles, and so the shapes of
compare calls, are fixed by the grid alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, comb

import numpy as np

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid, Rect, Tile
from tartan.core.pairs.order import Needed, Segment, panels
from tartan.core.pairs.sizing import Layout
from tartan.errors import ConfigError, InternalError

# By definition of a triple: convention of the interface, not tuned.
LEAST_ITEMS = 3
# By judgement: comb(12, 3) = 220 chunks: a stop loses half a per cent, and files are few. No benchmark.
CHUNKS_A_SIDE = 10
# By judgement: 16**3 triples, so that a commit pays as of 64 x 64 pairs. No benchmark.
LEAST_CHUNK = 16
# By judgement: comb(102, 3) = 171,700 files; the error says so instead of a disk without inodes. No benchmark.
MOST_CHUNKS_A_SIDE = 100
#: Slots from which two spans stream, one of them loaded while the other is compared.
#: By judgement: two spans of one item in 64 slots take 3 % of the room; in fewer, the loads that the room saves are
#: more than the wait. No benchmark.
TWO_STREAMS = 64
# DEFAULT_SIDE and LARGEST_SIDE, by arithmetic: 16**3 float32 are 16 KB, in the first cache; 128**3 are 8 MB, in the
# last. No benchmark.
DEFAULT_SIDE = 16
LARGEST_SIDE = 128
#: Strips of a run at least: what tiles compute in vain, where two of their groups are one, shrinks with their number.
#: By arithmetic: with s strips about 3 / s of what tiles compute is in vain; at 8 a third, at 16 a fifth in four times
#: the tiles. No benchmark.
LEAST_STRIPS = 8
# By judgement: a stop waits for the tile that runs; half a second is not felt. No benchmark.
LONGEST_SECONDS = 0.5


class TripleGrid(Grid):
    """The cuts of a run of triples, with the lines of a ``Grid``."""

    @property
    def n_triples(self) -> int:
        return comb(self.n_items, 3)

    @property
    def most_spans(self) -> int:
        """Largest number of spans in the two strips of a tile."""
        return min(2 * int(np.diff(self.strip_spans).max()), self.n_spans - 1)

    @property
    def most_items(self) -> int:
        """Largest number of items that a tile needs."""
        return min(2 * self.longest_strip + self.longest_span, self.n_items)

    def tile(self, first: int, second: int, span: int) -> Tile:
        """Return the tile of two strips and a span."""
        return Tile(first * self.n_strips + second, span)

    def strips(self, tile: Tile) -> tuple[int, int]:
        """Return the two strips of a tile."""
        return divmod(tile.strip, self.n_strips)

    def groups(self, tile: Tile) -> tuple[range, ...]:
        """Return the items of each group of a tile: those of its strips end where its span ends."""
        third = self.span_items(tile.span)
        first, second = (self._until(strip, third.stop) for strip in self.strips(tile))
        return first, second, third

    def group_spans(self, tile: Tile) -> tuple[range, ...]:
        first, second = (self._spans_until(strip, tile.span) for strip in self.strips(tile))
        return first, second, range(tile.span, tile.span + 1)

    def mark_wanted(self, tile: Tile) -> np.ndarray | None:
        """Return which triples of a tile have i < j < k, as a boolean array of its shape; None for all."""
        first, second, third = self.groups(tile)
        if first.stop <= second.start and second.stop <= third.start:
            return None
        i, j, k = (np.arange(group.start, group.stop) for group in (first, second, third))
        return (i[:, None, None] < j[None, :, None]) & (j[None, :, None] < k[None, None, :])

    def _until(self, strip: int, stop: int) -> range:
        items = self.strip_items(strip)
        return range(items.start, min(items.stop, stop))

    def tile_spans(self, tile: Tile) -> tuple[int, ...]:
        """Return all spans that a tile needs, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.group_spans(tile))))

    def _spans_until(self, strip: int, last: int) -> range:
        spans = self.spans_of(strip)
        return range(spans.start, min(spans.stop, last + 1))

    def count(self, tile: Tile) -> int:
        """Return the number of triples i < j < k in a tile."""
        first, second = self.strips(tile)
        third, strip = self.span_items(tile.span), self.strip_items(second)
        height = len(self.strip_items(first))
        if second != self.strip_of(tile.span):
            return (comb(height, 2) if first == second else height * len(strip)) * len(third)
        begin, end = third.start - strip.start, third.stop - strip.start
        if first == second:
            return comb(end, 3) - comb(begin, 3)
        return height * (comb(end, 2) - comb(begin, 2))

    # -- chunks ----------------------------------------------------------------------------------------------

    def chunk_of(self, tile: Tile) -> tuple[int, int]:
        first, second = (self.strip_items(strip).start // self.chunk for strip in self.strips(tile))
        return self.chunk_at(first, second, self.span_items(tile.span).start // self.chunk)

    def chunk_at(self, first: int, second: int, third: int) -> tuple[int, int]:
        """Return the chunk of three lines of chunks."""
        return first * self.n_chunks + second, third

    def lines_of(self, chunk: tuple[int, int]) -> tuple[int, int, int]:
        """Return the three lines of chunks of a chunk."""
        return *divmod(chunk[0], self.n_chunks), chunk[1]

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Iterate over the chunks that hold triples."""
        n = self.n_chunks
        for first in range(n):
            for second in range(first, n):
                for third in range(second, n):
                    chunk = self.chunk_at(first, second, third)
                    if self.chunk_count(chunk):
                        yield chunk

    def has_lines(self, first: int, second: int, third: int) -> bool:
        """Whether three lines of chunks are those of a chunk that holds triples."""
        ordered = 0 <= first <= second <= third < self.n_chunks
        return ordered and self.chunk_count(self.chunk_at(first, second, third)) > 0

    def chunk_count(self, chunk: tuple[int, int]) -> int:
        """Return the number of triples i < j < k in a chunk."""
        first, second, third = self.lines_of(chunk)
        lengths = [min(self.chunk, self.n_items - line * self.chunk) for line in (first, second, third)]
        if first == second == third:
            return comb(lengths[0], 3)
        if first == second:
            return comb(lengths[0], 2) * lengths[2]
        return lengths[0] * comb(lengths[1], 2) if second == third else lengths[0] * lengths[1] * lengths[2]

    def chunk_tiles(self, chunk: tuple[int, int]) -> Iterator[Tile]:
        """Iterate over the tiles of a chunk."""
        first, second, third = self.lines_of(chunk)
        firsts, seconds = (self._strips_in(line) for line in (first, second))
        for span in self._spans_in(third):
            strip = self.strip_of(span)
            for b in range(seconds.start, min(seconds.stop, strip + 1)):
                for a in range(firsts.start, min(firsts.stop, b + 1)):
                    yield self.tile(a, b, span)

    def _strips_in(self, line: int) -> range:
        return range(*np.searchsorted(self.strip_lines, self._compute_extent(line)).tolist())

    def _spans_in(self, line: int) -> range:
        return range(*np.searchsorted(self.span_lines, self._compute_extent(line)).tolist())

    def _compute_extent(self, line: int) -> tuple[int, int]:
        return line * self.chunk, min((line + 1) * self.chunk, self.n_items)

    def rect(self, tile: Tile) -> Rect:
        raise InternalError("a tile of triples is not a rectangle of pairs")


# -- order -------------------------------------------------------------------------------------------------------


@dataclass
class TripleSegment(Segment):
    """The tiles of two panels.

    Attributes
    ----------
    resident : frozenset of int
        The spans of both panels: they stay until the segment ends.
    """

    resident: frozenset[int] = frozenset()

    def next_use(self, span: int, position: int) -> int | None:
        """Return the position, at or after the given one, that planned eviction takes for the next use of a span."""
        return position if span in self.resident else super().next_use(span, position)


def triple_order(grid: TripleGrid, panel_items: int, needed: Needed) -> Iterator[Segment]:
    """Visit all pairs of panels; from one to the next, one panel stays wherever that is possible.

    Parameters
    ----------
    grid : TripleGrid
    panel_items : int
        Most items of a panel (at least one strip each).
    needed : callable
        Whether a tile is still to be computed.
    """
    index = 0
    for first, second in _panel_pairs(grid, panels(grid, range(grid.n_items), panel_items)):
        segment = _make_segment(grid, index, first, second, needed)
        if segment.tiles:
            index += 1
            yield segment


def _panel_pairs(grid: TripleGrid, staying: Sequence[range]) -> Iterator[tuple[range, range]]:
    """Yield pairs of panels, to and fro, those of one pair of lines of chunks together, so that chunks end early."""
    bands: dict[int, list[int]] = {}
    for number, strips in enumerate(staying):
        bands.setdefault(int(grid.strip_lines[strips.start]) // grid.chunk, []).append(number)
    lines = list(bands.values())
    upwards = backwards = False
    for row, firsts in enumerate(lines):
        columns = range(row, len(lines))
        for column in reversed(columns) if row % 2 else columns:
            for first in reversed(firsts) if upwards else firsts:
                seconds = [second for second in lines[column] if second >= first]
                for second in reversed(seconds) if backwards else seconds:
                    yield staying[first], staying[second]
                backwards = not backwards
            upwards = not upwards


def _make_segment(grid: TripleGrid, index: int, first: range, second: range, needed: Needed) -> TripleSegment:
    """Return the tiles of two panels: those of triples within both, then those with a third item beyond them.

    Triples within one panel belong to the segment of the panel with itself.
    """
    mine, other = (_spans_of(grid, strips) for strips in (first, second))
    segment = TripleSegment(index, resident=frozenset((*mine, *other)))
    alone = first == second
    for span in other:
        strip = grid.strip_of(span)
        seconds = [*([] if alone else first), *range(second.start, strip + 1)]
        _append(segment, grid, first, seconds, span, needed)
    if not alone:
        beyond = range(other.stop, grid.n_spans)
        for span in reversed(beyond) if index % 2 else beyond:
            _append(segment, grid, first, second, span, needed)
    return segment


def _append(
    segment: Segment, grid: TripleGrid, firsts: Sequence[int], seconds: Sequence[int], span: int, needed: Needed
) -> None:
    for b in seconds:
        for a in firsts:
            if a <= b and needed(tile := grid.tile(a, b, span)):
                segment.append(tile)


def _spans_of(grid: TripleGrid, strips: range) -> range:
    return range(grid.spans_of(strips.start).start, grid.spans_of(strips.stop - 1).stop)


# -- sizes -------------------------------------------------------------------------------------------------------


def triples_bound(n_items: int, slots: float) -> float:
    """Return the least number of loads that any order of all triples needs: n^3 / (3 S^2), and n.

    Notes
    -----
    With room for S items, one load enables at most (S - 1)(S - 2) / 2 of the n(n - 1)(n - 2) / 6 triples.
    """
    return max(float(n_items), n_items**3 / (3 * slots**2))


def triple_side(n_items: int, tile_side: int, triple_seconds: float = 0.0) -> int:
    """Return the largest side of a tile.

    Parameters
    ----------
    n_items : int
    tile_side : int
        The width from which the application is efficient.
    triple_seconds : float
        What a triple costs; a tile should not take more than half a second.
    """
    side = min(max(DEFAULT_SIDE, tile_side), LARGEST_SIDE, ceil(n_items / LEAST_STRIPS))
    while side > 1 and side**3 * triple_seconds > LONGEST_SECONDS:
        side = ceil(side / 2)
    return side


def choose_triple_grid(n_items: int, slots: int, side: int, chunk: int | None = None) -> TripleGrid:
    """Cut the triples of a new run.

    Parameters
    ----------
    n_items : int
    slots : int
        Room of the host level, in items.
    side : int
        Largest side of a tile.
    chunk : int, optional
        Side of a chunk; default: a tenth of the items, so that panels hold whole chunks or the reverse.

    Raises
    ------
    ConfigError
        If there is no triple, or no room for one, or chunks are too small.
    """
    if n_items < LEAST_ITEMS:
        raise ConfigError(f"triples need at least 3 items, and there are {n_items}")
    check_slots(slots)
    if chunk is not None and chunk * MOST_CHUNKS_A_SIDE < n_items:
        n_chunks = comb(ceil(n_items / chunk) + 2, 3)
        raise ConfigError(
            f"--tile {chunk} would cut {n_items:,} items into {n_chunks:,} chunks of triples, a file each; "
            f"give --tile {ceil(n_items / MOST_CHUNKS_A_SIDE)} or more",
            context={"option": "--tile"},
        )
    if slots >= n_items:
        side = min(side, chunk or side)
        return TripleGrid(n_items, chunk or side * ceil(n_items / CHUNKS_A_SIDE / side), 0, side, side)
    span = max(1, min(side, slots // TWO_STREAMS))
    n_spans = _panel_spans(slots, span)  # of a panel
    if chunk is not None:
        strip = span * max(1, min(side // span, n_spans, chunk // span))
        return TripleGrid(n_items, chunk, 0, strip, span)
    per_panel = max(1, min(n_spans * span * CHUNKS_A_SIDE // n_items, n_spans * span // LEAST_CHUNK))  # chunks
    spans = n_spans // per_panel
    strips = ceil(spans / max(1, side // span))
    strip = spans // strips * span
    panel = strips * strip * per_panel
    least = max(n_items / CHUNKS_A_SIDE, min(n_items, LEAST_CHUNK))
    panels_a_chunk = ceil(least / panel) if per_panel == 1 else 1
    return TripleGrid(n_items, strips * strip * panels_a_chunk, 0, strip, span)


def check_slots(slots: int) -> None:
    """Refuse a host level that cannot hold three items.

    Raises
    ------
    ConfigError
    """
    if slots < LEAST_ITEMS:
        raise ConfigError(
            f"--host-cache has room for {slots} items; comparing triples needs at least 3: give --host-cache 3items "
            "or more",
            context={"option": "--host-cache"},
        )


def _panel_spans(slots: int, span: int) -> int:
    """Return how many spans a panel may have, beside another one and what streams."""
    return max(1, (slots // span - _n_streams(slots)) // 2)


def _n_streams(slots: int) -> int:
    """Return how many spans stream at a time."""
    return 2 if slots >= TWO_STREAMS else 1


def choose_triple_layout(grid: TripleGrid, slots: int) -> Layout:
    """Divide the host slots of one execution into two panels and what streams; nothing streams where all items fit."""
    check_slots(slots)
    n_chunks = grid.n_chunks**3 + 1
    if slots // grid.span >= grid.n_spans or slots >= grid.n_items:
        return Layout(Room(0, grid.n_spans * grid.span, column_frame=grid.span), grid.n_items, None, n_chunks)
    frames = slots // grid.span
    panel = _panel_spans(slots, grid.span) * grid.span
    room = Room(0, frames * grid.span, column_frame=grid.span, spares_latest=_n_streams(slots) > 1)
    return Layout(room, panel, None, n_chunks)
