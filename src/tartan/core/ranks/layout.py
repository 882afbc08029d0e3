"""How a run on several ranks is cut, and how each rank divides its host slots: band, stream, and kept for others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, sqrt
from typing import Any

from tartan.core.pairs.cache import Room
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.sizing import Layout, choose_grid, choose_shared_chunk
from tartan.core.pairs.workload import Workload

#: Chunk lines of the band of a rank, where the items fit all ranks together, and where they do not. The finer a band,
#: the better it fills its slots, and the closer together ranks stream.
#: Replays of bench cluster_loads: BAND_LINES 6 as 12, 24 loads more (S = 0.3 n: R/R_min 1.13 for 1.00, F/F_min
#: 1.58 for 1.36). STREAMED_BAND_LINES (S = 0.1 n, 10 % unlike): 4 gives R/R_min 1.98, 8 gives 1.68, 16 gives 1.61 with
#: four times the chunks.
BAND_LINES = 12
STREAMED_BAND_LINES = 8
#: Chunks for each rank of a run whose items do not fit one, at least: its share is cut into bands of about their root.
#: Replays of bench cluster_loads, S = 0.3 n: 250 give R/R_min 1.14, 500 give 1.00; 1,000 fill 5 % fewer slots
#: (F/F_min 1.29 for 1.36) with twice the files.
CHUNKS_A_BANDED_RANK = 500
#: Items of a chunk line, at least, in both cases: a chunk of fewer pairs is committed in no less time.
#: Replays of bench cluster_loads: 4 changes nothing there, 16 gives R/R_min 1.61 for 1.68 (S = 0.1 n, 10 % unlike)
#: and F/F_min 1.50 for 1.47 (equal speeds). `tartan bench commit` measures a commit.
LEAST_SIDE = 8
#: Chunk lines of a run, at most.
#: By judgement: 31,375 files at most. Replays of bench cluster_loads: 125 is as LEAST_SIDE 16, 500 changes
#: nothing.
MOST_LINES = 250
#: How many heights of a chunk are tried, until whole ones fill a band but for a small part.
#: TRIES by judgement: replays of bench cluster_loads come out alike with 4 and 16. UNFILLED_SHARE by the same
#: (S = 0.1 n, 10 % unlike): 0.08 gives R/R_min 1.92 for 1.68, 0.02 changes nothing.
TRIES = 8
UNFILLED_SHARE = 0.04
#: The slots of a rank over the height of its strips: two of them stream. In few slots strips are higher, up to a few
#: items: a tile of fewer pairs takes as long.
#: Replays of bench cluster_loads, S = 0.1 n: half of it gives R/R_min 1.54 and F/F_min 1.62, 25 gives 1.44 and
#: 1.47, twice gives 1.35 and 1.44, but F/F_min 1.67 for 1.36 at S = 0.3 n.
STRIPS_A_ROOM = 25
# FEWEST_STRIPS_A_ROOM and LEAST_STRIP, by judgement for ranks of some dozen slots: two strips stream, ten stay. Replays
# with room for 200 items come out alike at half and at twice.
FEWEST_STRIPS_A_ROOM = 12
LEAST_STRIP = 3
#: The share of its slots that a rank keeps for others where the items do not fit all ranks together: all stream about
#: the same items then, and each is kept while the ranks differ. Elsewhere items stay with some rank, and few slots do.
#: Replays of bench cluster_loads, S = 0.1 n, 10 % unlike: 0.1 gives R/R_min 2.96, 0.2 gives 1.68, 0.4 gives 1.81
#: and F/F_min 1.99 for 1.60.
KEPT_SHARE = 0.2


def choose_cluster_grid(workload: Workload, slots: int, n_ranks: int, *, streams: bool = True, **facts: Any) -> Grid:
    """Cut the pairs of a new run on several ranks: as for one, with more chunks and with strips that can stream.

    Parameters
    ----------
    workload : Workload
    slots : int
        Room of the smallest host level, in items.
    n_ranks : int
    streams : bool
        Whether strips may stream: whether items have the same size.
    **facts
        Further arguments of ``choose_grid``.
    """
    alone = partial(choose_grid, workload, slots, **facts)
    n, chunk = workload.n_items, choose_shared_chunk(workload.n_items, n_ranks)
    first = alone(chunk=chunk)
    if not streams or slots >= n:
        return first
    rows = divide_slots(_lower_strips(first, workload, slots), slots, slots * n_ranks).band_items
    chunks = _chunks_of_bands(n, rows, n_ranks, streamed=slots * n_ranks < n)
    grids = [_lower_strips(alone(chunk=min(chunk, side)), workload, slots) for side in chunks]
    return min(grids, key=lambda grid: max(UNFILLED_SHARE, _compute_unfilled_share(grid, slots, n_ranks)))


def _chunks_of_bands(n: int, rows: int, n_ranks: int, *, streamed: bool) -> list[int]:
    """Return heights of chunks of which a few lines make a band, the highest first.

    Two bands opposite each other on the circle share the pairs between them: an even number of lines halves them.
    """
    lines = STREAMED_BAND_LINES if streamed else BAND_LINES
    least = max(ceil(n / MOST_LINES), LEAST_SIDE)
    most = max(least, ceil(n / sqrt(2 * CHUNKS_A_BANDED_RANK * n_ranks)))
    fewer = [side for count in range(2, lines, 2) if (side := ceil(rows / count)) >= least]
    finer = [max(least, min(most, rows // (lines + k))) for k in range(0, 2 * TRIES, 2)]
    return sorted(set(fewer if rows // lines < least and fewer else finer), reverse=True)


def _compute_unfilled_share(grid: Grid, slots: int, n_ranks: int) -> float:
    """Return which part of what can stay is lost because bands are whole chunks high."""
    rows = divide_slots(grid, slots, slots * n_ranks).band_items
    return rows % grid.chunk / max(1, rows)


def _lower_strips(alone: Grid, workload: Workload, slots: int) -> Grid:
    """Lower the strips of a grid for one rank so far that they can stream."""
    least = min(LEAST_STRIP, slots // FEWEST_STRIPS_A_ROOM)
    strip = max(1, min(max(alone.span, min(alone.strip, max(least, slots // STRIPS_A_ROOM))), alone.chunk))
    return Grid(
        workload.n_items,
        alone.chunk,
        0,
        strip,
        strip,  # as wide as high: what streams is sometimes rows, and as many slots are set aside for columns
        workload.borders,
        workload.has_diagonal,
    )


@dataclass(frozen=True)
class RankSlots:
    """The host slots of one rank of several.

    Attributes
    ----------
    layout : Layout or None
        Of what its tiles use; None where there is too little room for a tile: the rank is home only.
    n_kept : int
        Spans that it keeps for others, in slots behind all others: number k begins ``k * longest_span`` further on.
    strips_stream : bool
        See ``order.region_order``.
    """

    layout: Layout | None
    n_kept: int
    strips_stream: bool

    @property
    def band_items(self) -> int:
        """Items that can stay beside those that stream; 0 where the rank is home only."""
        return self.layout.panel_items if self.layout is not None else 0


def divide_slots(grid: Grid, slots: int, all_slots: int) -> RankSlots:
    """Divide the addressed host slots of a rank.

    Parameters
    ----------
    grid : Grid
    slots : int
        Of the rank, in items.
    all_slots : int
        Of all ranks together.
    """
    span, n = grid.longest_span, grid.n_items
    if slots >= n:
        return RankSlots(Layout(Room(n, 0), n, None, _open_chunks(grid, n)), 0, True)
    strips_stream = grid.longest_strip * FEWEST_STRIPS_A_ROOM <= slots
    frame = max(span, grid.longest_strip) if strips_stream else span
    streaming = 2 * frame if slots >= 3 * frame + grid.longest_strip else frame
    n_kept = 0 if all_slots <= slots else max(1, int(slots * KEPT_SHARE) // span if all_slots < n else 2)
    n_kept = min(n_kept, max(0, slots - streaming - grid.longest_strip) // span)
    few_lines = slots - streaming - n_kept * span < STREAMED_BAND_LINES * grid.chunk
    if n_kept > 1 and all_slots < n and few_lines:  # one fewer where the band is nearer to whole chunks then
        n_kept = min((n_kept, n_kept - 1), key=lambda kept: (slots - streaming - kept * span) % grid.chunk)
    rows = slots - streaming - n_kept * span
    if rows < grid.longest_strip:
        return RankSlots(None, slots // span, False)
    room = Room(rows, streaming, column_frame=frame)
    return RankSlots(Layout(room, rows, None, _open_chunks(grid, rows)), n_kept, strips_stream)


def spans_kept_of_unequal_items(grid: Grid, slots: int, all_slots: int) -> int:
    """Return how many spans of items of unequal size a rank keeps for others, of whose room only the sum counts.

    Parameters
    ----------
    grid : Grid
    slots : int
        Of the rank, in items of mean size.
    all_slots : int
        Of all ranks together.
    """
    if slots >= grid.n_items or all_slots <= slots:
        return 0
    span = grid.longest_span
    n_kept = max(1, int(slots * KEPT_SHARE) // span) if all_slots < grid.n_items else 2
    return min(n_kept, max(0, slots - 2 * (grid.longest_strip + span)) // span)


def _open_chunks(grid: Grid, rows: int) -> int:
    """Return how many chunks are open when one line of them ends while the next begins."""
    return 2 * (ceil(rows / grid.chunk) + 1)
