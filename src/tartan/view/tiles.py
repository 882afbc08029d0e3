"""Cut the matrix of a run into tiles of a pyramid: a cell of level L is the mean of 2^L by 2^L scores.

Nothing is computed before it is asked for. A large matrix is read chunk by chunk; of each chunk the sums of one level
are kept, from which all coarser levels follow exactly. A tile that would take longer than its share of time comes with
what is known by then, and asking again continues. A chunk that is committed anew is read anew.
"""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tartan.base.palette import DIAGONAL, Scale
from tartan.store.downsample import is_square, leaf_tree, without_self

TILE: Final = 256
WHOLE_SIDE: Final = 2000
_KEPT_CELLS: Final = 64  # of a chunk, a side
_CACHE_BYTES: Final = 192 << 20
_TILE_SECONDS: Final = 1.5
_SAMPLED_CHUNKS: Final = 12

Floats = NDArray[np.float64]


class Cells(NamedTuple):
    """Sums of scores by cell, and how many there are; the first cell is (row, column) of its level."""

    row: int
    column: int
    sums: Floats
    counts: Floats


class Pyramid(Protocol):
    """The scores of a run at any level.

    Attributes
    ----------
    shape : (int, int)
        Of the matrix as it is drawn.
    order : ndarray of int, shape (n,), or None
        Row and column p show item ``order[p]``.
    joined : ndarray of float64, shape (n - 1, 4), or None
        The tree by which the items are ordered; see ``tartan.store.downsample.leaf_tree``.
    lasting : bool
        Whether it follows a run in progress by itself; others are made anew.
    square : bool
        Whether rows and columns are the same items: each meets itself on the diagonal, which has a colour of its own.
    """

    shape: tuple[int, int]
    order: NDArray[np.intp] | None
    joined: Floats | None
    lasting: bool
    square: bool

    def cells(self, level: int, row: int, column: int) -> tuple[Floats, bool]:
        """Return the means of one tile, (<= 256, <= 256), NaN where nothing is known, and whether it is complete."""

    def scale(self, level: int) -> Scale:
        """Return the colours of the scores: means of many vary less than single scores."""


def pyramid_of(run: Any) -> Pyramid:
    """Return the pyramid that fits a run: of a small matrix in memory, of chunks, or of the pairs that it keeps."""
    if run.manifest.reduce is not None:
        return KeptPyramid(run)
    return WholePyramid(run) if max(run.shape) <= WHOLE_SIDE else ChunkPyramid(run)


def scale_of(run: Any, values: Floats) -> Scale:
    """Return the colours that fit scores of a run."""
    name = run.manifest.name_score(run.manifest.analysed_by(None))
    return Scale.of(values, larger_is_nearer=run.larger_is_nearer, name=name)


def n_levels(shape: tuple[int, int]) -> int:
    """Return the number of levels, the last of which is one tile."""
    return max(0, (max(shape) - 1).bit_length() - TILE.bit_length() + 1) + 1


class TilePicture(NamedTuple):
    """A tile as PNG, whether all that is known is in it, and its colours."""

    png: bytes
    complete: bool
    scale: Scale


def draw_tile(pyramid: Pyramid, level: int, row: int, column: int) -> TilePicture:
    """Draw a tile; it is transparent where no score is known."""
    from PIL import Image

    means, complete = pyramid.cells(level, row, column)
    scale = pyramid.scale(level)
    pixels = np.zeros((*means.shape, 4), np.uint8)
    pixels[..., :3] = scale.paint(means)
    pixels[..., 3] = np.where(np.isfinite(means), 255, 0)
    if pyramid.square and row == column:
        same = np.flatnonzero(~np.isfinite(means.diagonal()))
        pixels[same, same] = (*DIAGONAL, 255)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=1)
    return TilePicture(buffer.getvalue(), complete, scale)


class WholePyramid:
    """The pyramid of a matrix in memory; a finished square one is ordered so that alike items stand together."""

    lasting = False

    def __init__(self, run: Any) -> None:
        output = run.manifest.analysed
        matrix = np.array(run.matrix(output), dtype=np.float64)
        self.shape: tuple[int, int] = matrix.shape[0], matrix.shape[1]
        self.square = is_square(run)
        if self.square:
            np.fill_diagonal(matrix, np.nan)
        self.order: NDArray[np.intp] | None = None
        self.joined: Floats | None = None
        self._scale = scale_of(run, matrix)
        if run.manifest.symmetric_in(output) and run.n_pairs_left == 0:
            self.order, self.joined = leaf_tree(matrix, similarity=run.larger_is_nearer)
            matrix = matrix[np.ix_(self.order, self.order)]
        known = np.isfinite(matrix)
        self._whole = Cells(0, 0, np.where(known, matrix, 0.0), known.astype(np.float64))

    def cells(self, level: int, row: int, column: int) -> tuple[Floats, bool]:
        """Return the means of one tile; always complete."""
        into = _TileSums(self.shape, level, row, column)
        rows, columns = into.items
        cut = self._whole.sums[rows, columns], self._whole.counts[rows, columns]
        into.add(_coarser(Cells(rows.start, columns.start, *cut), level))
        return into.means(), True

    def scale(self, level: int) -> Scale:
        """Return the colours of the scores, at all levels the same."""
        return self._scale


class KeptPyramid:
    """The pyramid of the pairs that a top-k or threshold run keeps."""

    lasting = False

    def __init__(self, run: Any) -> None:
        self.shape: tuple[int, int] = run.shape
        self.square = is_square(run)
        self.order: NDArray[np.intp] | None = None
        self.joined: Floats | None = None
        found: list[list[NDArray[Any]]] = [[np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]]
        for batch in run.pairs(run.manifest.analysed_by(None)):
            for parts, name in zip(found, ("i", "j", "score")):
                parts.append(batch.column(name).to_numpy(zero_copy_only=False))
        i, j, scores = (np.concatenate(parts) for parts in found)
        if run.manifest.symmetric:
            i, j, scores = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([scores, scores])
        order = np.argsort(i, kind="stable")
        self._i, self._j, self._scores = i[order], j[order], scores[order].astype(np.float64)
        self._scale = scale_of(run, self._scores)

    def cells(self, level: int, row: int, column: int) -> tuple[Floats, bool]:
        """Return the means of one tile; always complete."""
        into = _TileSums(self.shape, level, row, column)
        rows, columns = into.items
        part = slice(*np.searchsorted(self._i, [rows.start, rows.stop]))
        i, j, scores = self._i[part], self._j[part], self._scores[part]
        inside = (j >= columns.start) & (j < columns.stop) & np.isfinite(scores)
        at = (i[inside] >> level) - into.row, (j[inside] >> level) - into.column
        np.add.at(into.sums, at, scores[inside])
        np.add.at(into.counts, at, 1)
        return into.means(), True

    def scale(self, level: int) -> Scale:
        """Return the colours of the scores, at all levels the same."""
        return self._scale


class ChunkPyramid:
    """The pyramid of a dense run of any size, from its chunks.

    Parameters
    ----------
    run : Run
    seconds : float
        After which a tile comes with what is known.
    clock : callable
        Seconds, never decreasing.
    """

    lasting = True

    def __init__(self, run: Any, seconds: float = _TILE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._folder, self._view = run, run.folder, run.view(run.manifest.analysed)
        self.square = is_square(run)
        self.shape: tuple[int, int] = self._view.shape
        self.order: NDArray[np.intp] | None = None
        self.joined: Floats | None = None
        self._side = run.manifest.chunk
        self._base = max(0, (self._side // _KEPT_CELLS).bit_length() - 1)
        self._seconds, self._clock = seconds, clock
        self._coarse = _Cache(_CACHE_BYTES)
        self._fine = _Cache(_CACHE_BYTES)
        self._scales: list[Scale] = []
        self._n_sampled = 0
        self._lock = threading.Lock()

    def cells(self, level: int, row: int, column: int) -> tuple[Floats, bool]:
        """Return the means of one tile, and whether all committed chunks are in it."""
        into = _TileSums(self.shape, level, row, column)
        rows, columns = into.items
        with self._lock:
            until = self._clock() + self._seconds
            for chunk_row in self._chunks(rows, 0):
                for chunk_column in self._chunks(columns, self._view.first_column):
                    if self._add(into, chunk_row, chunk_column) and self._clock() > until:
                        return into.means(), False
        return into.means(), True

    def scale(self, level: int) -> Scale:
        """Return the colours of the scores, by some chunks spread over the run."""
        with self._lock:
            listed = list(self._folder.committed())
            if not self._scales or len(listed) >= 2 * self._n_sampled:
                self._n_sampled = max(1, len(listed))
                self._scales = self._sample(listed[:: max(1, len(listed) // _SAMPLED_CHUNKS)][:_SAMPLED_CHUNKS])
            return self._scales[level]

    def _sample(self, chunks: list[tuple[int, int]]) -> list[Scale]:
        levels: list[list[Floats]] = [[np.zeros(0)] for _ in range(n_levels(self.shape))]
        for row, column in chunks:
            cells = self._sums(row, column, 0)
            for level, parts in enumerate(levels):
                cells = _coarser(cells, min(level, 1))
                known = np.flatnonzero(cells.counts)
                some = known[:: max(1, len(known) // 20_000)]
                parts.append(cells.sums.ravel()[some] / cells.counts.ravel()[some])
        return [scale_of(self._run, np.concatenate(parts)) for parts in levels]

    def _chunks(self, items: slice, first: int) -> range:
        return range((items.start + first) // self._side, -(-(items.stop + first) // self._side))

    def _add(self, into: _TileSums, row: int, column: int) -> bool:
        """Add a chunk to a tile; return whether it had to be read."""
        committed = self._folder.committed_ns(row, column)
        if committed is None:
            return False
        if into.level < self._base:
            return self._add_fine(into, row, column, committed)
        mirrored = self._folder.manifest.symmetric and row > column
        key = (column, row) if mirrored else (row, column)
        found, was_there = self._coarse.get((*key, committed)), True
        if found is None:
            found, was_there = self._sums(*key, self._base), False
            self._coarse.put((*key, committed), found, found.sums.nbytes * 2)
        cells = Cells(found.column, found.row, found.sums.T, found.counts.T) if mirrored else found
        into.add(_coarser(cells, into.level - self._base))
        return not was_there

    def _add_fine(self, into: _TileSums, row: int, column: int, committed: int) -> bool:
        values, was_there = self._fine.get((row, column, committed)), True
        if values is None:
            values, was_there = self._read(row, column), False
            self._fine.put((row, column, committed), values, values.nbytes)
        rows, columns = self._compute_extent(row, column)
        top, left = max(rows.start, into.items[0].start), max(columns.start, into.items[1].start)
        low, right = min(rows.stop, into.items[0].stop), min(columns.stop, into.items[1].stop)
        part = values[top - rows.start : low - rows.start, left - columns.start : right - columns.start]
        known = np.isfinite(part)
        cells = Cells(top, left, np.where(known, part, 0.0).astype(np.float64), known.astype(np.float64))
        into.add(_coarser(cells, into.level))
        return not was_there

    def _sums(self, row: int, column: int, level: int) -> Cells:
        values, (rows, columns) = self._read(row, column), self._compute_extent(row, column)
        known = np.isfinite(values)
        whole = Cells(rows.start, columns.start, np.where(known, values, 0.0), known.astype(np.float64))
        return _coarser(whole, level)

    def _compute_extent(self, row: int, column: int) -> tuple[slice, slice]:
        first = self._view.first_column
        return (
            slice(row * self._side, min(self.shape[0], (row + 1) * self._side)),
            slice(max(0, column * self._side - first), min(self.shape[1], (column + 1) * self._side - first)),
        )

    def _read(self, row: int, column: int) -> NDArray[Any]:
        rows, columns = self._compute_extent(row, column)
        values: NDArray[Any] = self._view.window(rows, columns)
        pairs = without_self(self._run, rows.start, columns.start, np.ones(values.shape, bool))
        return values if pairs.all() else np.where(pairs, values, np.nan)


class _TileSums:
    """One tile that is being added up."""

    def __init__(self, shape: tuple[int, int], level: int, row: int, column: int) -> None:
        self.level = level
        self.row, self.column = row * TILE, column * TILE
        rows, columns = (_span(n, level, first) for n, first in zip(shape, (self.row, self.column)))
        self.items = rows, columns
        ends = [-(-part.stop // (1 << level)) for part in (rows, columns)]
        self.sums = np.zeros((max(0, ends[0] - self.row), max(0, ends[1] - self.column)))
        self.counts = np.zeros_like(self.sums)

    def add(self, cells: Cells) -> None:
        """Add cells of this level; those outside the tile do not count."""
        top, left = max(self.row, cells.row), max(self.column, cells.column)
        low = min(self.row + len(self.sums), cells.row + len(cells.sums))
        right = min(self.column + self.sums.shape[1], cells.column + cells.sums.shape[1])
        if top >= low or left >= right:
            return
        mine = slice(top - self.row, low - self.row), slice(left - self.column, right - self.column)
        theirs = slice(top - cells.row, low - cells.row), slice(left - cells.column, right - cells.column)
        self.sums[mine] += cells.sums[theirs]
        self.counts[mine] += cells.counts[theirs]

    def means(self) -> Floats:
        """Return the mean of each cell, NaN where there is none."""
        means = np.full(self.sums.shape, np.nan)
        np.divide(self.sums, self.counts, out=means, where=self.counts > 0)
        return means


def _span(n: int, level: int, first: int) -> slice:
    """Return the items of a tile along one side, given its first cell."""
    return slice(min(n, first << level), min(n, (first + TILE) << level))


def _coarser(cells: Cells, levels: int) -> Cells:
    """Return cells some levels up."""
    if levels == 0:
        return cells
    sums, counts = cells.sums, cells.counts
    for axis, first in ((0, cells.row), (1, cells.column)):
        places = (first + np.arange(sums.shape[axis])) >> levels
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        if len(starts):
            sums, counts = (np.add.reduceat(part, starts, axis) for part in (sums, counts))
    return Cells(cells.row >> levels, cells.column >> levels, sums, counts)


class _Cache:
    """What was used last, up to a number of bytes."""

    def __init__(self, n_bytes: int) -> None:
        self._left = n_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: Hashable, value: Any, n_bytes: int) -> None:
        self._entries[key] = value, n_bytes
        self._left -= n_bytes
        while self._left < 0 and len(self._entries) > 1:
            self._left += self._entries.popitem(last=False)[1][1]
