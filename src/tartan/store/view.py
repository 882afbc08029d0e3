"""Read a run block by block: the only module that knows where a score lies and when it counts.

Blocks are cut from chunks; scores that are not committed or not DONE are the fill value. Everything that reads a whole
result (Run, the exports) uses the iterators here, which hold a chunk or a band at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tartan.core.pairs.ledger import DONE
from tartan.errors import ConfigError
from tartan.store.grid_io import fill_value
from tartan.store.ledger import Ledger

# By judgement: large enough that each chunk is read once or twice for a band, small beside the memory of any machine.
# No benchmark.
BAND_BYTES = 256 << 20


class ScoreBlock(NamedTuple):
    """Scores of one rectangle of the matrix: ``scores[a, b]`` belongs to (row + a, column + b)."""

    row: int
    column: int
    scores: np.ndarray
    done: np.ndarray


class ResultView:
    """One output of a dense run as a matrix of shape ``shape``.

    Parameters
    ----------
    folder : Ledger
    output : str or None
        None takes the first.
    fill : number
        Value of missing scores. Integer outputs become floats if it is NaN.

    Attributes
    ----------
    shape : (int, int)
        (n, n), or (n_left, n_right) for A x B; rows and columns then count within their side.
    """

    def __init__(self, folder: Ledger, output: str | None = None, fill: float = np.nan) -> None:
        self.folder = folder
        self.name = output_name(folder, output)
        stored = folder.manifest.outputs[self.name]
        self.dtype = stored if _holds(stored, fill) else np.promote_types(stored, np.float32)
        require_holds(self.dtype, fill, "the value of missing scores")
        self.fill = self.dtype.type(fill)
        self.shape = folder.manifest.shape
        self.first_column = folder.manifest.n_items - self.shape[1]

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same items."""
        return self.first_column == 0

    def matrix(self, diagonal: float | None = None) -> np.ndarray:
        """Return the whole matrix in memory.

        Parameters
        ----------
        diagonal : number, optional
            Value of the diagonal where the run did not compute it. Default: 0 for declared distances, else the
            fill value.
        """
        manifest = self.folder.manifest
        matrix = np.full(self.shape, self.fill)
        for block in self.blocks():
            _place_window(matrix, 0, 0, block)
            if manifest.symmetric:
                _place_window(matrix.T, 0, 0, block)
        diagonal = manifest.self_score if diagonal is None else diagonal
        if diagonal is not None:
            at = self._never_computed(0, len(matrix))
            matrix[at, at] = diagonal
        return matrix

    def condensed(self) -> np.ndarray:
        """Return the pairs i < j row by row, (n(n-1)/2,), as ``scipy.spatial.distance.squareform`` does.

        Raises
        ------
        ConfigError
            If the run is not symmetric.
        """
        if not self.folder.manifest.symmetric_in(self.name):
            raise ConfigError(f"{self.folder.path} is not symmetric and has no condensed form; use matrix()")
        n = self.shape[0]
        condensed = np.full(n * (n - 1) // 2, self.fill)
        for block in self.blocks():
            _place_condensed(condensed, block, n)
        return condensed

    def blocks(self) -> Iterator[ScoreBlock]:
        """Yield every committed chunk of the upper triangle once, clipped, in matrix coordinates.

        In symmetric runs the half below the diagonal is not done; in others the mirrored chunks come too.
        """
        for row, column in self.folder.committed():
            yield self._block(row, column)
            if self.folder.pairs.both_ways and row != column:
                yield self._block(column, row)

    def bands(self, diagonal: float | None = None, budget_bytes: int = BAND_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the whole matrix in bands of rows, top to bottom.

        Parameters
        ----------
        diagonal : number, optional
            What stands on the diagonal where the run did not compute it; default: the fill value.
        budget_bytes : int
            Largest band; wide matrices are read several times rather than held.

        Yields
        ------
        (first row, array (rows, columns))
        """
        height = max(1, budget_bytes // max(1, self.shape[1] * self.dtype.itemsize))
        side = self.folder.manifest.chunk
        for chunk_row in range(-(-self.shape[0] // side)):
            stop = min(self.shape[0], (chunk_row + 1) * side)
            for start in range(chunk_row * side, stop, height):
                rows = slice(start, min(stop, start + height))
                yield start, self.window(rows, slice(0, self.shape[1]), diagonal)

    def window(self, rows: slice, columns: slice, diagonal: float | None = None) -> np.ndarray:
        """Return one rectangle of the matrix; parameters as in ``bands``."""
        found = np.full((rows.stop - rows.start, columns.stop - columns.start), self.fill)
        side, first = self.folder.manifest.chunk, self.first_column
        for row in range(rows.start // side, -(-rows.stop // side)):
            for column in range((columns.start + first) // side, -(-(columns.stop + first) // side)):
                for block in self._blocks_of(row, column):
                    _place_window(found, rows.start, columns.start, block)
        if diagonal is not None:
            at = self._never_computed(max(rows.start, columns.start), min(rows.stop, columns.stop))
            found[at - rows.start, at - columns.start] = diagonal
        return found

    def _blocks_of(self, row: int, column: int) -> Iterator[ScoreBlock]:
        """Yield the stored blocks of one chunk of the whole matrix, mirrored where they are stored so."""
        mirror = self.folder.manifest.symmetric and column <= row
        if mirror:
            yield self._transpose(self._block(column, row))
        if not mirror or column == row:
            yield self._block(row, column)

    def _never_computed(self, start: int, stop: int) -> np.ndarray:
        """Return the items of a range that the run does not compare with themselves."""
        if not self.square or stop <= start:
            return np.zeros(0, np.int64)
        return start + np.flatnonzero(~self.folder.pairs.with_itself(start, stop))

    def _transpose(self, block: ScoreBlock) -> ScoreBlock:
        return ScoreBlock(block.column, block.row, block.scores.T, block.done.T)

    def _block(self, row: int, column: int) -> ScoreBlock:
        side = self.folder.manifest.chunk
        status = self.folder.score_status(row, column)
        scores = None if status is None else self.folder.read_chunk(self.name, row, column)
        if status is None or scores is None:
            shape = self.folder.chunk_shape(row, column)
            scores, done = np.full(shape, fill_value(self.folder.manifest.outputs[self.name])), np.zeros(shape, bool)
        else:
            done = status == DONE
        first = row * side, column * side
        rows = max(0, min(len(scores), self.shape[0] - first[0]))
        skip = max(0, self.first_column - first[1])
        return ScoreBlock(first[0], first[1] + skip - self.first_column, scores[:rows, skip:], done[:rows, skip:])


class KeptItems:
    """Some items of a view, as a matrix of their own, read by bands.

    Parameters
    ----------
    view : ResultView
    items : int64 array
        In ascending order; of A x B those of both sides.
    """

    def __init__(self, view: ResultView, items: np.ndarray) -> None:
        self._view = view
        self._rows = items[items < view.shape[0]]
        self._columns = items[items >= view.first_column] - view.first_column
        self.name, self.dtype, self.square = view.name, view.dtype, view.square
        self.shape = len(self._rows), len(self._columns)

    def bands(self, diagonal: float | None = None, budget_bytes: int = BAND_BYTES) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the rows of these items; parameters as in ``ResultView.bands``."""
        for start, band in self._view.bands(diagonal, budget_bytes // 2):
            low, high = np.searchsorted(self._rows, [start, start + len(band)]).tolist()
            if low < high:
                yield low, band[np.ix_(self._rows[low:high] - start, self._columns)]


def _place_condensed(condensed: np.ndarray, block: ScoreBlock, n: int) -> None:
    for local, (scores, done) in enumerate(zip(block.scores, block.done, strict=True)):
        i = block.row + local
        skip = max(0, i + 1 - block.column)  # columns at or below the diagonal
        start = i * n - i * (i + 1) // 2 + block.column + skip - i - 1
        target = condensed[start : start + len(scores) - skip]
        np.copyto(target, scores[skip:], where=done[skip:])


def _place_window(found: np.ndarray, row: int, column: int, block: ScoreBlock) -> None:
    """Copy the done scores of a block that fall into a rectangle which begins at (row, column)."""
    low, high = max(row, block.row), min(row + found.shape[0], block.row + block.scores.shape[0])
    left, right = max(column, block.column), min(column + found.shape[1], block.column + block.scores.shape[1])
    if low < high and left < right:
        inside = slice(low - block.row, high - block.row), slice(left - block.column, right - block.column)
        target = found[low - row : high - row, left - column : right - column]
        done = block.done[inside]
        np.copyto(target, block.scores[inside], where=True if done.all() else done)


def output_name(folder: Ledger, output: str | None) -> str:
    """Return the name of an output, the first where none is asked for.

    Raises
    ------
    ConfigError
        If the run has no such output.
    """
    names = list(folder.manifest.outputs)
    if output is None:
        return names[0]
    if output not in names:
        raise ConfigError(f"{folder.path} has no output {output!r}; it has {', '.join(names)}")
    return output


def require_real(name: str, dtype: np.dtype[Any], use: str) -> None:
    """Refuse complex scores where they cannot be used.

    Raises
    ------
    ConfigError
    """
    if dtype.kind == "c":
        real = part_type(dtype)
        raise ConfigError(
            f"output {name!r} is {dtype}; {use} real numbers: name an output that is real, or let the application "
            f"return one, such as the magnitude, outputs = {{'magnitude': '{real}'}}; exports as npy, csv, tsv and "
            "parquet keep complex numbers whole"
        )


def part_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real part of numbers: of complex64 float32."""
    return np.empty(0, dtype).real.dtype


def require_holds(dtype: np.dtype[Any], value: float | None, what: str) -> None:
    """Refuse a number that scores of a floating dtype cannot be.

    Raises
    ------
    ConfigError
    """
    if value is None or dtype.kind not in "fc" or not np.isfinite(value):
        return
    with np.errstate(over="ignore"):
        stored = np.asarray(value).astype(dtype)
    if not np.isfinite(stored):
        raise ConfigError(
            f"{what}, {value:g}, is beyond what {dtype} holds, the type of the scores; give a smaller one"
        )


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a dtype can represent the fill value."""
    return dtype.kind in "fc" or (not np.isnan(value) and dtype.type(value) == value)
