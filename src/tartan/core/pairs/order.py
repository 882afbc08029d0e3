"""In which order the tiles are visited.

An order is a sequence of *segments*; a segment is a list of tiles with what planned eviction must know: which spans
stay (its rows) and when each column comes. ``panel_order`` makes a segment of every panel: its diagonal first, so that
each arriving row is used at once, then the other columns stream past, forwards and backwards in turn, so that the
columns at a turn are still there. ``visit_quadrants`` is the order of the Rocket paper: depth first in quadrants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.region import Region, Side
from tartan.core.pairs.workload import Workload

Needed = Callable[[Tile], bool]

#: Tiles of a segment of the quadrant order.
#: By judgement: a segment is granted and looked over as a whole: its tiles take some 100 KB, and those that look ahead
#: see far enough. No benchmark.
QUADRANT_TILES = 1024


@dataclass
class Segment:
    """Consecutive tiles of an order.

    Attributes
    ----------
    index : int
        Number of the segment.
    tiles : list of Tile
    rows : range
        Spans that stay until the segment ends; empty when there are none. They are the columns of its tiles where a
        region says so.
    columns : dict of int to int
        For each span that comes and goes: the last position in ``tiles`` that needs it.
    """

    index: int
    tiles: list[Tile] = field(default_factory=list)
    rows: range = range(0)
    columns: dict[int, int] = field(default_factory=dict)

    def append(self, tile: Tile) -> None:
        self.columns[tile.span] = len(self.tiles)
        self.tiles.append(tile)

    def next_use(self, span: int, position: int) -> int | None:
        """Return the position, at or after the given one, that planned eviction takes for the next use of a span."""
        if span in self.rows:
            return position
        last = self.columns.get(span, -1)
        return last if last >= position else None


def panels(grid: Grid, rows: range, panel_items: int, *, in_chunks: bool = False) -> list[range]:
    """Group consecutive strips into panels of at most ``panel_items`` items (at least one strip each).

    Parameters
    ----------
    grid : Grid
    rows : range
        Items that are rows.
    panel_items : int
    in_chunks : bool
        End panels where chunks end.

    Returns
    -------
    list of range
        Strip indices of each panel.
    """
    lines = grid.strip_lines
    strip = int(np.searchsorted(lines, rows.start, side="right")) - 1
    last = int(np.searchsorted(lines, rows.stop, side="left"))
    groups = []
    while strip < last:
        end = int(np.searchsorted(lines, lines[strip] + panel_items, side="right")) - 1
        if in_chunks:
            border = (int(lines[strip]) // grid.chunk + 1) * grid.chunk
            end = min(end, int(np.searchsorted(lines, border)))
        elif grid.panel and end < last:
            end = _plan_border(grid, strip, end)
        end = min(max(end, strip + 1), last)
        groups.append(range(strip, end))
        strip = end
    return groups


def _plan_border(grid: Grid, strip: int, end: int) -> int:
    """End a panel where the run was planned to end one, if that costs little height."""
    border = int(grid.strip_lines[end]) // grid.panel * grid.panel
    at = int(np.searchsorted(grid.strip_lines, border))
    short = grid.strip_lines[end] - border
    return at if at > strip and short * 16 <= grid.strip_lines[end] - grid.strip_lines[strip] else end


def panel_order(
    grid: Grid, workload: Workload, panel_items: int, needed: Needed, column_window: int | None = None
) -> Iterator[Segment]:
    """Visit the tiles panel by panel.

    Parameters
    ----------
    grid : Grid
    workload : Workload
    panel_items : int
        Largest height of a panel, in items.
    needed : callable
        Whether a tile is still to be computed.
    column_window : int, optional
        Finish all panels of a chunk row within this many columns before going on: bounds the number of open chunks
        when a panel is lower than a chunk, for some more loads.
    """
    index = 0
    groups = panels(grid, workload.rows(), panel_items, in_chunks=column_window is not None)
    for group in _bands(grid, groups, column_window):
        for window in _windows(grid, workload.columns(), group[0], column_window):
            for strips in group:
                segment = _panel(grid, index, strips, window, needed)
                if segment.tiles:
                    index += 1
                    yield segment


def _bands(grid: Grid, groups: list[range], column_window: int | None) -> list[list[range]]:
    """Put the panels of one chunk row together, when columns are visited in windows."""
    if column_window is None:
        return [[group] for group in groups]
    bands: dict[int, list[range]] = {}
    for group in groups:
        bands.setdefault(int(grid.strip_lines[group.start]) // grid.chunk, []).append(group)
    return list(bands.values())


def _windows(grid: Grid, columns: range, first: range, column_window: int | None) -> list[range]:
    """Return the spans to stream, cut into windows of columns."""
    start = max(columns.start, int(grid.strip_lines[first.start]))
    if column_window is None:
        return [_spans(grid, start, columns.stop)]
    lines = [
        start,
        *range((start // column_window + 1) * column_window, columns.stop, column_window),
        columns.stop,
    ]
    return [_spans(grid, a, b) for a, b in pairwise(lines) if a < b]


def _spans(grid: Grid, start: int, stop: int) -> range:
    first = int(np.searchsorted(grid.span_lines, start, side="right")) - 1
    return range(first, int(np.searchsorted(grid.span_lines, stop, side="left")))


def _panel(grid: Grid, index: int, strips: range, spans: range, needed: Needed) -> Segment:
    rows = range(int(grid.strip_spans[strips.start]), int(grid.strip_spans[strips.stop]))
    segment = Segment(index, rows=rows)
    inside = range(max(spans.start, rows.start), min(spans.stop, rows.stop))
    beyond = list(range(max(spans.start, rows.stop), spans.stop))
    if index % 2:
        beyond.reverse()
    steps = [*inside, *beyond]
    first_spans = grid.strip_spans.tolist()
    for number, span in enumerate(steps):
        # The last step goes downwards: the top of the panel is free first, and the next panel begins there.
        upwards = (len(steps) - 1 - number) % 2
        for strip in reversed(strips) if upwards else strips:
            if span >= first_spans[strip]:
                tile = Tile(strip, span)
                if needed(tile):
                    segment.append(tile)
    return segment


def region_order(
    grid: Grid, region: Region, panel_items: int, needed: Needed, *, strips_stream: bool = True
) -> Iterator[Segment]:
    """Visit the tiles of a region: one segment for each chunk of the side that streams, so that chunks end early.

    Parameters
    ----------
    grid : Grid
    region : Region
    panel_items : int
        Most items that stay at a time; a band that is higher is cut.
    needed : callable
        Whether a tile is still to be computed.
    strips_stream : bool
        Whether strips can stream past columns; otherwise rows always stay.
    """
    if not strips_stream:
        region = replace(region, stays="rows")
    high = max(1, panel_items // grid.chunk)
    index, backwards = 0, region.backwards
    for start in range(region.band.start, region.band.stop, high):
        band = range(start, min(start + high, region.band.stop))
        groups = [_strip_spans(grid, strips) for strips in panels(grid, _chunk_items(grid, band), panel_items)]
        for line in reversed(region.stream) if backwards else region.stream:
            for staying in groups:
                segment = _past(grid, Segment(index, rows=staying), region.stays, line, backwards)
                segment.tiles = [tile for tile in segment.tiles if needed(tile)]
                if segment.tiles:
                    segment.columns = _last_uses(grid, segment)
                    index += 1
                    yield segment
        backwards = not backwards


def _chunk_items(grid: Grid, chunks: range) -> range:
    return range(chunks.start * grid.chunk, min(chunks.stop * grid.chunk, grid.n_items))


def _strip_spans(grid: Grid, strips: range) -> range:
    return range(int(grid.strip_spans[strips.start]), int(grid.strip_spans[strips.stop]))


def _past(grid: Grid, segment: Segment, stays: Side, line: int, backwards: bool) -> Segment:
    """Let one chunk of the stream pass what stays: what streams comes once, what stays is visited to and fro."""
    items, staying = _chunk_items(grid, range(line, line + 1)), segment.rows
    spans = _spans(grid, items.start, items.stop)
    strips = range(grid.strip_of(staying.start), grid.strip_of(staying.stop - 1) + 1)
    stream: Sequence[int] = spans
    if stays == "columns":
        stream, strips = range(grid.strip_of(spans.start), grid.strip_of(spans.stop - 1) + 1), staying
    for number, streaming in enumerate(reversed(stream) if backwards else stream):
        for still in reversed(strips) if number % 2 else strips:
            strip, span = (still, streaming) if stays == "rows" else (streaming, still)
            if span >= grid.spans_of(strip).start:
                segment.tiles.append(Tile(strip, span))
    return segment


def _last_uses(grid: Grid, segment: Segment) -> dict[int, int]:
    """Return for each span that streams the last tile that needs it."""
    uses: dict[int, int] = {}
    for position, tile in enumerate(segment.tiles):
        for span in (tile.span,) if tile.span not in segment.rows else grid.spans_of(tile.strip):
            uses[span] = position
    return uses


def visit_quadrants(grid: Grid, workload: Workload, needed: Needed) -> Iterator[Segment]:
    """Visit the tiles depth first in quadrants, as the Rocket paper does (its section 4.2)."""
    segment = Segment(0)
    for tile in _quadrants(grid, 0, grid.n_strips, 0, grid.n_strips):
        if needed(tile):
            segment.append(tile)
            if len(segment.tiles) == QUADRANT_TILES:
                yield segment
                segment = Segment(segment.index + 1)
    if segment.tiles:
        yield segment


def _quadrants(grid: Grid, r0: int, r1: int, c0: int, c1: int) -> Iterator[Tile]:
    if r0 >= r1 or c0 >= c1 or r0 >= c1:
        return
    if r1 - r0 == 1 and c1 - c0 == 1:
        for span in range(int(grid.strip_spans[c0]), int(grid.strip_spans[c0 + 1])):
            yield Tile(r0, span)
        return
    r, c = (r0 + r1 + 1) // 2, (c0 + c1 + 1) // 2
    yield from _quadrants(grid, r0, r, c0, c)
    yield from _quadrants(grid, r0, r, c, c1)
    yield from _quadrants(grid, r, r1, c0, c)
    yield from _quadrants(grid, r, r1, c, c1)
