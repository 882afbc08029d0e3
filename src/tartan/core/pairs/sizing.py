"""How a run is cut and how its cache is divided: the decisions that turn room and costs into a grid and a layout.

The grid is fixed in the manifest (it fixes the shapes of compare calls); the layout may change from one execution to
the next. With b streaming slots of S, loads grow as n^2 / (2 (S - b)), and a compare call gets cheaper a pair as b
grows: the span's width is chosen by cost, and two spans take a twenty-fifth of S at most, an eighteenth where calls
cost by items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid, Tile
from tartan.core.pairs.order import Needed, Segment, panel_order, visit_quadrants
from tartan.core.pairs.shares import ShareOf
from tartan.core.pairs.workload import NewAgainstOld, Rectangle, Workload
from tartan.errors import ConfigError

# With as many chunks for each rank, the last one idles for a few percent of the time at most.
# Simulated with shares that are 20 % wrong, 20 seeds: 4 ranks end 4.3, 1.1 and 0.5 % after the first with 64, 256 and
# 512 chunks in all, 48 ranks 9.7, 5.0 and 1.3 % with 512, 1,024 and 4,096 (bench cluster_uneven holds it).
SHARED_CHUNKS_A_RANK = 64
# Simulated with the same: 512 are for speeds as 1:2:4:8, which end within 1.3 %. Half would idle 2.7 %; `tartan bench
# cluster_uneven` holds it.
LEAST_SHARED_CHUNKS = 512
# By judgement: a chunk of 4 x 4 pairs is a file of its own; finer ones are all overhead (`tartan bench commit`).
LEAST_SHARED_SIDE = 4
# By judgement: 2,048 x 2,048 scores and codes are 20 MB, which a commit writes at the speed of the disk (`tartan bench
# commit`: 1.24 times a bare write at 4 MiB); twice the side is four times the memory of an open chunk.
LARGEST_CHUNK = 2048
# Of a reduced run, whose chunks take a byte a pair and are committed for the same price at any size.
# By judgement: the same memory as a chunk of LARGEST_CHUNK has, a quarter of the commits. `tartan bench vectors
# parts=top` measures such runs.
LARGEST_REDUCED_CHUNK = 4096
# Measured: tiles of 2,048 columns were 20 % faster for products than those of 512 (docs/benchmarks.md, vectors), which
# applications ask for; 1,024 serves those that do not, at 4 MB a tile of float32.
LARGEST_TILE = 1024
# Measured with 1,000 sets of 10**6 hashes and 250 slots (docs/benchmarks.md, sets): an application that asks for tiles
# wider than LARGEST_TILE pays for the items of a call, not for its pairs. With spans of a fiftieth of the room calls
# take 1.4 times as long, with a twentieth 0.72 times, but loads grow by 3 %, beyond 1.25 times the bound.
WIDE_SPANS = 36
# By judgement: 20,000 files of a run; file systems and listings take ten times that in stride, people do not. No
# benchmark.
MOST_CHUNKS_A_SIDE = 200
# By judgement: what a triangle of tiles computes in vain below the diagonal is one part of so many, under 1 %. No
# benchmark.
SPANS_A_SIDE = 128
# By judgement: what a run may take beside its caches without being asked; as BATCH and BAND sizes elsewhere.
# `result_buffer_bytes` of `tartan info` tells it. No benchmark.
OPEN_CHUNK_BYTES = 256 * 2**20
# By arithmetic: a page of memory, the least that a buffer takes.
SMALLEST_BUFFER_BYTES = 4096
# A score of four bytes and its status.
# By format.
PAIR_BYTES = 5
# By judgement: launching a process or a model for each call costs as much; below, narrow tiles save more below the
# diagonal than wide ones save calls. No benchmark.
COSTLY_CALL_SECONDS = 0.05
"""A call that costs as much beside its pairs shall have many: tiles are as wide as they are high."""
# By judgement: at five a sixth would be lost to calls, at twenty a stop waits twice as long for the call that runs. No
# benchmark.
CALL_SHARE = 10.0
"""Pairs of a call may take so many times what it costs beside them: a tenth is lost, a third where both are rounded."""


@dataclass(frozen=True)
class Costs:
    """What one item and one pair cost, in seconds on the resource that does it.

    Attributes
    ----------
    load_seconds : float
        Read and parse of one item, divided by what runs at once.
    preprocess_seconds : float
        Of one item, on the device.
    compare_seconds : float
        Of one pair, on the device.
    upload_seconds : float
        Of one item to the device; 0 when it shares host memory.
    tile_seconds : float
        Fixed cost of one compare call.
    touch_seconds : float
        Reading one item once from the memory of the device.
    """

    load_seconds: float = 0.0
    preprocess_seconds: float = 0.0
    compare_seconds: float = 0.0
    upload_seconds: float = 0.0
    tile_seconds: float = 1e-4
    touch_seconds: float = 0.0


@dataclass(frozen=True)
class Layout:
    """How the slots of a level are divided for one execution.

    Attributes
    ----------
    room : Room
    panel_items : int
        Height of a panel.
    column_window : int or None
        See ``panel_order``.
    open_chunks : int
        Most chunks that are open at a time in this order.
    """

    room: Room
    panel_items: int
    column_window: int | None
    open_chunks: int


def choose_grid(
    workload: Workload,
    slots: int,
    *,
    device_slots: int | None = None,
    chunk: int | None = None,
    order: str = "panel",
    costs: Costs | None = None,
    longest_tile_seconds: float = 1.0,
    tile_side: int = 1,
    reduced: bool = False,
) -> Grid:
    """Cut the pairs of a new run; its arguments are more than eight because each is one fact of the run.

    Parameters
    ----------
    workload : Workload
    slots : int
        Room of the host level, in items; at least 2.
    device_slots : int or None
        Room of the smallest device with memory of its own.
    chunk : int or None
        Side of a chunk; None chooses.
    order : {"panel", "quadrant"}
    costs : Costs, optional
    longest_tile_seconds : float
        Aim for compare calls no longer than this.
    tile_side : int
        Narrower tiles are slow for this application; kept where everything fits in memory. Above LARGEST_TILE: calls
        cost by items, and spans are wide.
    reduced : bool
        Whether the run keeps less than the matrix.

    Raises
    ------
    ConfigError
        If a cache holds fewer than two items.
    """
    costs = costs or Costs()
    longest_tile_seconds = max(longest_tile_seconds, CALL_SHARE * costs.tile_seconds)
    for option, room in (("--host-cache", slots), ("--device-cache", device_slots)):
        if room is not None and room < 2:
            raise ConfigError(
                f"{option} has room for {room} item; comparing needs at least 2: give {option} 2items or more",
                context={"option": option},
            )
    n = workload.n_items
    smallest = min(slots, device_slots or slots)
    if order == "quadrant":
        side = _choose_quadrant_side(slots, device_slots, costs, longest_tile_seconds)
        return Grid(n, chunk or _default_chunk(n), 0, side, side, workload.borders, workload.has_diagonal)
    if smallest >= n:
        largest = LARGEST_REDUCED_CHUNK if reduced else LARGEST_CHUNK
        chunk = chunk or max(_default_chunk(n, largest), min(tile_side, n))
        return _make_resident_grid(workload, chunk, costs, longest_tile_seconds, tile_side)
    wide = tile_side > LARGEST_TILE
    return _make_streaming_grid(workload, slots, device_slots, chunk, costs, longest_tile_seconds, wide=wide)


def _default_chunk(n: int, largest: int = LARGEST_CHUNK) -> int:
    return max(min(largest, ceil(n / 8)), min(n, 32), ceil(n / 4096))


def choose_shared_chunk(n: int, n_ranks: int) -> int:
    """Return the side of a chunk where several ranks share a run: a chunk is the least that one of them is granted."""
    n_lines = ceil(sqrt(2 * max(LEAST_SHARED_CHUNKS, SHARED_CHUNKS_A_RANK * n_ranks)))
    return max(ceil(n / n_lines), min(n, LEAST_SHARED_SIDE))


def _choose_quadrant_side(slots: int, device_slots: int | None, costs: Costs, longest: float) -> int:
    """Cut tiles so small that the least recently used one of 50 goes, and that a device holds those of four tiles."""
    side = slots // 50 if device_slots is None else min(slots // 50, device_slots // 8)
    return _tile_side(costs, longest, max(1, min(side, LARGEST_TILE)))


def _make_resident_grid(workload: Workload, chunk: int, costs: Costs, longest: float, tile_side: int) -> Grid:
    """Cut tall tiles, as narrow as the application likes: what they compute below the diagonal grows with the width."""
    n = workload.n_items
    side = _tile_side(costs, longest, min(chunk, max(LARGEST_TILE, tile_side)))
    wanted = side if costs.tile_seconds >= COSTLY_CALL_SECONDS else tile_side
    span = max(1, min(side, max(ceil(n / SPANS_A_SIDE), min(wanted, ceil(n / 4)))))
    return Grid(n, chunk, 0, side, span, workload.borders, workload.has_diagonal)


def _tile_side(costs: Costs, longest: float, largest: int) -> int:
    """Return the side of a square tile, a power of two below ``largest`` when pairs are slow."""
    if costs.compare_seconds * largest**2 <= longest:
        return largest
    side = 1
    while (2 * side) ** 2 * costs.compare_seconds <= longest and 2 * side < largest:
        side *= 2
    return side


def _make_streaming_grid(
    workload: Workload,
    slots: int,
    device_slots: int | None,
    chunk: int | None,
    costs: Costs,
    longest: float,
    *,
    wide: bool,
) -> Grid:
    n = workload.n_items
    span = _choose_span(n, workload.n_pairs, slots, device_slots, costs)
    if wide and device_slots is None:
        span = max(span, min(slots // WIDE_SPANS, LARGEST_CHUNK))
    panel = _panel_height(slots, span)
    strip = _strip_height(panel, span, device_slots)
    if chunk is None:
        chunk = _choose_streaming_chunk(n, panel)
    if chunk <= panel and (aligned := panel // chunk * chunk) * 100 >= panel * 99:
        panel = aligned
        strip = min(strip, panel)
    while strip > 1 and strip * span * costs.compare_seconds > longest:
        strip = ceil(strip / 2)
    return Grid(n, chunk, panel, strip, span, workload.borders, workload.has_diagonal)


def _panel_height(slots: int, span: int) -> int:
    return max(1, slots - _streams(slots, span) * span)


def _streams(slots: int, span: int) -> int:
    """Return how many spans stream at a time: one is compared while the next is loaded."""
    return 2 if slots >= 3 * span + 1 else 1


def _strip_height(panel: int, span: int, device_slots: int | None) -> int:
    """Cut a panel into at least four strips, such that six and two spans fit the device."""
    parts = max(4 if panel >= 16 else 1, ceil(panel / LARGEST_TILE))
    strip = ceil(panel / parts)
    if device_slots is not None:
        strip = min(strip, max(1, (device_slots - 2 * span) // 6))
    return ceil(panel / ceil(panel / strip))


def _choose_streaming_chunk(n: int, panel: int) -> int:
    if panel > LARGEST_CHUNK:
        return panel // ceil(panel / LARGEST_CHUNK)
    least = max(min(n, 64), ceil(n / MOST_CHUNKS_A_SIDE))
    return panel * ceil(least / panel)


def _choose_span(n: int, n_pairs: int, slots: int, device_slots: int | None, costs: Costs) -> int:
    """Choose the width of a span by cost: two of them take at most a twenty-fifth of the room."""
    best, least = 1, float("inf")
    for divisor in (100, 50):
        span = max(1, min(slots // divisor, LARGEST_CHUNK))
        if device_slots is not None:
            span = max(1, min(span, device_slots // 4))
        seconds = _seconds(n, n_pairs, slots, device_slots, span, costs)
        if seconds <= least:
            best, least = span, seconds
    return best


def _seconds(n: int, n_pairs: int, slots: int, device_slots: int | None, span: int, costs: Costs) -> float:
    """Estimate the time of a run: the slowest of device, host and copies, and some of the others' time.

    Overlap is never perfect, so a resource that is busy almost as long as the slowest costs too.
    """
    panel = _panel_height(slots, span)
    strip = _strip_height(panel, span, device_slots)
    loads = n * (n / panel + 1) / 2
    tiles = n_pairs / (strip * span)
    device = loads * costs.preprocess_seconds + n_pairs * costs.compare_seconds
    device += tiles * (costs.tile_seconds + (strip + span) * costs.touch_seconds)
    uploads = 0.0
    if device_slots is not None:
        kept = max(0, device_slots - 2 * span - strip)
        uploads = n_pairs / (panel * span) * (max(0, panel - kept) + span)
    resources = (device, loads * costs.load_seconds, uploads * costs.upload_seconds)
    return max(resources) + 0.1 * sum(resources)


def choose_layout(
    grid: Grid, workload: Workload, slots: int, order: str = "panel", pair_bytes: int = PAIR_BYTES
) -> Layout:
    """Divide the host slots of one execution.

    Parameters
    ----------
    slots : int
        Room in items.
    pair_bytes : int
        Bytes that one pair takes in an open chunk, over all outputs.
    """
    n = grid.n_items
    side_bytes = grid.chunk * pair_bytes
    if order == "quadrant":
        room = Room(n, 0) if slots >= n else Room(0, slots, column_frame=min(grid.span, slots))
        return Layout(room, slots, None, _most_open(grid, side_bytes * grid.chunk))
    if slots >= n:
        return Layout(Room(n, 0), grid.chunk, None, 4)
    columns = _stream_slots(grid, workload, slots)
    panel = slots - columns
    aligned = panel % grid.chunk == 0 or (panel == grid.panel and grid.panel % grid.chunk == 0)
    window = None
    if not aligned and n * side_bytes > OPEN_CHUNK_BYTES:
        if panel >= grid.chunk:
            panel, aligned = panel // grid.chunk * grid.chunk, True
        else:
            window = grid.chunk
    rows = ceil(panel / grid.chunk) + 1
    open_chunks = rows * 2 if aligned or window else ceil(n / grid.chunk) + rows * 2
    room = Room(slots - columns, columns, column_frame=min(grid.span, columns))
    return Layout(room, panel, window, open_chunks)


def _most_open(grid: Grid, chunk_bytes: int) -> int:
    """Return how many chunks may be open in quadrant order.

    Quadrants that end inside chunks leave a row of chunks open; beyond that, memory decides (a buffer takes a page).
    """
    n_chunks = grid.n_chunks * (grid.n_chunks + 1) // 2
    affordable = OPEN_CHUNK_BYTES // max(SMALLEST_BUFFER_BYTES, chunk_bytes)
    return min(n_chunks, max(2 * grid.n_chunks + 8, affordable))


def _stream_slots(grid: Grid, workload: Workload, slots: int) -> int:
    """Return the column slots: two spans, or all columns when these are few (A x B, new against old, a share)."""
    streams = _compute_streaming_room(grid, slots)
    if isinstance(workload, NewAgainstOld | Rectangle | ShareOf):
        columns = workload.columns()
        first, last = np.searchsorted(grid.span_lines, [columns.start, columns.stop])
        few = int(last - first) * grid.span
        if few <= min(slots // 2, slots - grid.longest_strip):
            return max(streams, few)
    return streams


def device_room(grid: Grid, slots: int) -> Room:
    """Divide the slots of a device: two spans stream, the rest holds strips; nothing streams where all items fit."""
    if slots >= grid.n_items:
        return Room(grid.n_items, 0)
    columns = _compute_streaming_room(grid, slots)
    rows = slots - columns
    return Room(rows, columns, row_frame=min(grid.longest_strip, rows), column_frame=min(grid.span, columns))


def _compute_streaming_room(grid: Grid, slots: int) -> int:
    """Return the slots of the spans that stream: two of them, or less where the rest would not hold a strip."""
    wanted = _streams(slots, grid.span) * grid.span
    return min(wanted, max(grid.longest_span, slots - grid.longest_strip), slots - 1)


def make_order(
    grid: Grid, workload: Workload, layout: Layout, needed: Needed, order: str = "panel"
) -> Iterator[Segment]:
    """Return the order of an execution."""
    if order == "quadrant":
        return visit_quadrants(grid, workload, needed)
    if order != "panel":
        raise ConfigError(f"order: {order!r} is unknown; choose panel or quadrant", context={"option": "--order"})
    return panel_order(grid, workload, layout.panel_items, needed, layout.column_window)


def tile_filter(grid: Grid, workload: Workload) -> Needed:
    """Return a function that says whether a tile holds a wanted pair."""

    def needed(tile: Tile) -> bool:
        return workload.count(grid.rect(tile)) > 0

    return needed
