"""How the chunks of a run are shared out among ranks, so that few items are filled into host slots.

Chunk rows are cut into *bands*. A rank keeps a band resident and streams the other side past it. Where the bands of
all ranks together hold all rows, there is one *panel*: the chunks of one band after those of the other are laid end to
end and cut into shares in proportion to speed. The height of the bands is the one that costs the fewest fills: a share
of a cells costs least as a square of side sqrt(a). Where they do not, there are several panels, each with one band a
rank, of heights in proportion to speed, and all ranks of a panel stream the same columns in the same order, forwards
and backwards in turn.

Of all pairs of one set, a band takes its own triangle and half of the other bands of its panel, those that follow it
on a circle: then all bands of a panel have the same work, and each item stays somewhere while it streams elsewhere. A
chunk of a later band against an earlier one lies transposed in the upper triangle, so there the columns stay and the
rows stream. Where rows cannot stream, because strips are too tall, a band takes all that lies to its right.

Every chunk with something to compute is in exactly one region. What was done before is left out, and chunks without
wanted pairs too, so candidate lists, new items against old ones and the rest of a run divide likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, sqrt

import numpy as np

from tartan.core.pairs.grid import Grid
from tartan.core.pairs.region import Region, cover
from tartan.core.pairs.workload import AllPairs, Workload

#: Heights of bands that are tried, as shares of the square root of a rank's cells.
#: By judgement: fills of a share are flat about the square, sqrt(2) to both sides and twice are enough; each is laid
#: out once a panel. No benchmark.
HEIGHTS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0)


@dataclass(frozen=True)
class Sharer:
    """A rank as the division sees it.

    Attributes
    ----------
    rank : int
    speed : float
        Relative; more than 0.
    band_items : int
        Items that it can keep beside those that stream.
    """

    rank: int
    speed: float
    band_items: int


Shares = dict[int, list[Region]]


def chunk_pairs(grid: Grid, workload: Workload) -> np.ndarray:
    """Count the wanted pairs of every chunk.

    Returns
    -------
    ndarray of int64, shape (n_chunks, n_chunks)
        0 below the diagonal.
    """
    m = grid.n_chunks
    if type(workload) is AllPairs:
        lengths = np.minimum((np.arange(m) + 1) * grid.chunk, grid.n_items) - np.arange(m) * grid.chunk
        counts = np.triu(np.outer(lengths, lengths), 1)
        counts[np.diag_indices(m)] = lengths * (lengths + (1 if workload.diagonal else -1)) // 2
        return counts.astype(np.int64)
    counts = np.zeros((m, m), dtype=np.int64)
    for i, j in grid.chunks():
        counts[i, j] = workload.count(grid.chunk_rect((i, j)))
    return counts


class Divider:
    """Divides the chunks of an execution, panel by panel.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n_chunks, n_chunks)
        Pairs to compute in each chunk; 0 below the diagonal and where nothing is missing.
    chunk : int
        Side of a chunk, in items.
    circle : bool
        Whether bands take the half circle that follows them; otherwise all that lies to their right.

    Attributes
    ----------
    beyond : range
        The columns that all ranks of the last panel stream past their bands, at about the same time; none where that
        panel was the last.
    """

    def __init__(self, pairs: np.ndarray, chunk: int, *, circle: bool) -> None:
        self._pairs = pairs
        self._chunk = chunk
        self._circle = circle
        rows = np.flatnonzero(pairs.any(axis=1))
        self._rows = range(int(rows[0]), int(rows[-1]) + 1) if len(rows) else range(0)
        self._next = self._rows.start
        self._n_panels = 0
        self._credit: dict[int, float] = {}
        self.beyond = range(0)

    @property
    def finished(self) -> bool:
        """Whether all was divided."""
        return self._next >= self._rows.stop

    def next_panel(self, ranks: Sequence[Sharer]) -> Shares:
        """Share out what comes next, among these ranks; nothing when all was divided.

        Every rank needs room for a chunk row or takes it in pieces. The outcome depends on the arguments of this
        object and of all calls alone.
        """
        left = range(self._next, self._rows.stop)
        if not left or not ranks:
            return {}
        heights = [max(1, sharer.band_items // self._chunk) for sharer in ranks]
        if sum(heights) >= len(left):
            self._next, self.beyond = self._rows.stop, range(0)
            shares = self._divide_one_panel(left, ranks, heights)
        else:
            shares = self._divide_into_bands(left, ranks, heights)
        return {rank: [part for region in mine for part in self._find_wanted(region)] for rank, mine in shares.items()}

    def _find_wanted(self, region: Region) -> list[Region]:
        """Leave out what is done and what is not wanted."""
        return cover(self._pairs > 0, region)

    # -- several panels --------------------------------------------------------------------------------------

    def _divide_into_bands(self, left: range, ranks: Sequence[Sharer], rooms: list[int]) -> Shares:
        """Give every rank one band, as high as its speed asks and its room allows."""
        lines = [left.start, *(left.start + np.cumsum(self._heights(ranks, rooms))).tolist()]
        bands = [range(a, b) for a, b in pairwise(lines)]
        self._next, self.beyond = lines[-1], range(lines[-1], self._pairs.shape[1])
        shares: Shares = {}
        for number, (band, sharer) in enumerate(zip(bands, ranks, strict=True)):
            if band:
                stream = Region(
                    band.start, band.stop, lines[-1], self._pairs.shape[1], backwards=self._n_panels % 2 == 1
                )
                shares[sharer.rank] = [*_merge(self._pieces(bands, number)), stream]
        self._n_panels += 1
        return shares

    def _heights(self, ranks: Sequence[Sharer], rooms: list[int]) -> list[int]:
        """Choose whole heights in proportion to speed; what a rank gets too little now, it gets in a later panel."""
        scale = min(room / sharer.speed for room, sharer in zip(rooms, ranks, strict=True))
        asked = [sharer.speed * scale + self._credit.get(sharer.rank, 0.0) for sharer in ranks]
        heights = [max(0, min(room, round(height))) for room, height in zip(rooms, asked, strict=True)]
        if not any(heights):
            heights[asked.index(max(asked))] = 1
        self._credit = {s.rank: want - got for s, want, got in zip(ranks, asked, heights, strict=True)}
        return heights

    # -- one panel -------------------------------------------------------------------------------------------

    def _divide_one_panel(self, rows: range, ranks: Sequence[Sharer], heights: list[int]) -> Shares:
        """Try bands of several heights; keep the division that fills the fewest slots."""
        cells = np.count_nonzero(self._pairs[rows.start : rows.stop])
        side = sqrt(cells / len(ranks))
        tallest = min(heights)
        numbers = {ceil(len(rows) / max(1, min(tallest, round(side * part)))) for part in HEIGHTS}
        numbers |= {number for number in (len(ranks),) if ceil(len(rows) / number) <= tallest and number <= len(rows)}
        tried = [self._lay_out(rows, ranks, number) for number in sorted(numbers)]
        return min(tried, key=lambda shares: sum(map(fills, shares.values())))

    def _lay_out(self, rows: range, ranks: Sequence[Sharer], n_bands: int) -> Shares:
        """Lay the pieces of all bands end to end and cut the line in proportion to speed."""
        lines = [rows.start + round(len(rows) * k / n_bands) for k in range(n_bands + 1)]
        bands = [range(a, b) for a, b in pairwise(lines)]
        pieces = [piece for number in range(n_bands) for piece in self._row_of_pieces(bands, number)]
        pieces = [piece for piece in pieces if self._pairs[piece.area].any()]
        weights = np.array([self._pairs[piece.area].sum() for piece in pieces], dtype=float)
        middles = np.cumsum(weights) - weights / 2
        limits = np.cumsum([sharer.speed for sharer in ranks])
        owners = np.searchsorted(limits / limits[-1] * weights.sum(), middles)
        shares: Shares = {}
        for owner, sharer in enumerate(ranks):
            mine = list(_merge(pieces[k] for k in np.flatnonzero(owners == owner)))
            if mine:
                shares[sharer.rank] = mine
        return shares

    def _row_of_pieces(self, bands: Sequence[range], number: int) -> Iterator[Region]:
        """Yield what a band takes where its panel is the last: its pieces, and the columns that are not rows.

        Every second band takes those backwards, so that a share which ends one band and begins the next has the same
        columns there.
        """
        band, beyond = bands[number], range(bands[-1].stop, self._pairs.shape[1])
        inside, outside = self._pieces(bands, number), _against(band, beyond, beyond)
        yield from [*inside, *outside] if number % 2 == 0 else [*reversed([*outside]), *inside]

    def _pieces(self, bands: Sequence[range], number: int) -> Iterator[Region]:
        """Yield what a band takes of its panel, in thin pieces: one line of the stream each."""
        band, n = bands[number], len(bands)
        for column in band:
            yield Region(band.start, band.stop, column, column + 1)
        if not self._circle:
            right = range(band.stop, bands[-1].stop)
            yield from _against(band, right, right)
            return
        for step in range(1, n // 2 + 1):
            other = bands[(number + step) % n]
            if 2 * step < n:
                yield from _against(band, other, other)
            elif number < n // 2:
                yield from _against(band, other, _halves(other)[0])
            else:
                yield from _against(_halves(band)[1], other, other)


def _halves(band: range) -> tuple[range, range]:
    middle = (band.start + band.stop) // 2
    return range(band.start, middle), range(middle, band.stop)


def _against(band: range, other: range, part: range) -> Iterator[Region]:
    """Yield the pieces of a band against a part of another one, which may lie before it."""
    for line in part if band else ():
        if other.start >= band.stop:
            yield Region(band.start, band.stop, line, line + 1)
        else:
            yield Region(line, line + 1, band.start, band.stop, stays="columns")


def _merge(pieces: Iterator[Region] | list[Region]) -> Iterator[Region]:
    """Put pieces that follow each other in one stream together."""
    current: Region | None = None
    for piece in pieces:
        joined = None if current is None else _join(current, piece)
        if current is not None and joined is None:
            yield current
        current = joined or piece
    if current is not None:
        yield current


def _join(one: Region, other: Region) -> Region | None:
    if (one.stays, one.band) != (other.stays, other.band):
        return None
    a, b = one.stream, other.stream
    if a.stop == b.start and not one.backwards:
        return one.streams(a.start, b.stop)
    if b.stop == a.start and (one.backwards or len(a) == 1):
        return replace(one.streams(b.start, a.stop), backwards=True)
    return None


def fills(regions: Sequence[Region]) -> int:
    """Count the chunk lines that a rank brings into its slots for regions one after the other.

    A band is brought in when it differs from the one before; of what streams, only lines of the band are there.
    """
    total, band = 0, range(0)
    for region in regions:
        if region.band != band:
            total += len({*region.band} - {*band})
            band = region.band
        total += len({*region.stream} - {*band})
    return total
