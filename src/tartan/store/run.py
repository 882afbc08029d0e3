"""A run as its user sees it, finished or not: the matrix, its pairs, its neighbours, its numbers.

Nothing here writes to the run folder. Whatever is returned whole is as large as it says; everything else streams.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.core.ledger import DONE, FAILED_ITEM, FAILED_PAIR, Failure
from tartan.errors import ConfigError
from tartan.store.folder import RunFolder
from tartan.store.grid_io import fill_value
from tartan.store.manifest import Manifest
from tartan.store.reduced import Parts
from tartan.store.topk import TopK
from tartan.store.view import Block, ResultView, output_name, require_real

if TYPE_CHECKING:
    import pyarrow as pa
    import zarr

__all__ = ["Run"]


class Run:
    """The result of an all-pairs run.

    Parameters
    ----------
    folder : RunFolder or path

    Raises
    ------
    RunNotFoundError
        If there is no run at the path.

    Examples
    --------
    >>> run = tartan.open("spectra.tartan")                                   # doctest: +SKIP
    >>> matrix = run.matrix()                                                 # doctest: +SKIP
    """

    def __init__(self, folder: RunFolder | str | Path) -> None:
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def manifest(self) -> Manifest:
        """Description of the run."""
        return self.folder.manifest

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; the first is the default everywhere."""
        return tuple(self.manifest.outputs)

    @property
    def keys(self) -> Sequence[str]:
        """Stable keys of all items; for A x B those of A come first."""
        return self.folder.keys

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.manifest.n_items

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix: (n, n), or (n_left, n_right) for A x B."""
        return ResultView(self.folder).shape

    @property
    def n_pairs(self) -> int:
        """Number of scores of a finished run."""
        return self.folder.pairs.n_pairs

    @property
    def n_pairs_done(self) -> int:
        """Number of scores that are there. Read anew each time: the run may be going on."""
        return int(self.folder.counts()[DONE])

    @property
    def n_pairs_failed(self) -> int:
        """Number of scores that cannot be had, because a pair or one of its items failed."""
        return int(self.folder.counts()[[FAILED_ITEM, FAILED_PAIR]].sum())

    @property
    def failures(self) -> list[Failure]:
        """Failed items and pairs with their reasons, items first."""
        return self.folder.failures()

    @property
    def stats(self) -> dict[str, Any]:
        """Loads, times and bytes of the run; empty before they are written."""
        return self.folder.stats

    @cached_property
    def scores(self) -> zarr.Array[Any]:
        """The first output as a Zarr array (n, n), as stored: upper triangle only."""
        return self.array()

    @cached_property
    def status(self) -> zarr.Array[Any]:
        """The ledger as a Zarr array (n, n) of uint8: codes of ``tartan.core.ledger``."""
        return _open_zarr(self.folder, "status")

    def array(self, output: str | None = None) -> zarr.Array[Any]:
        """Return an output as a Zarr array (n, n), as stored."""
        self._require_dense()
        return _open_zarr(self.folder, output_name(self.folder, output))

    def matrix(self, output: str | None = None, fill: float = np.nan, *, diagonal: float | None = None) -> np.ndarray:
        """Return the whole matrix in memory.

        Parameters
        ----------
        output : str, optional
            Default: the first.
        fill : number
            What stands for scores that are missing or failed. Integer outputs become floats where it is NaN.
        diagonal : number, optional
            What stands on the diagonal where the run did not compute it. Default: 0 where the application says
            that its scores are distances (``similarity = False``), else ``fill``.

        Returns
        -------
        array (n, n), symmetric where the run is; (n_left, n_right) for A x B
        """
        view = self.view(output, fill)
        matrix = np.full(view.shape, view.fill)
        for block in view.blocks():
            _place(matrix, block)
            if self.manifest.symmetric:
                _place(matrix.T, block)
        diagonal = self.self_score if diagonal is None else diagonal
        if diagonal is not None:
            view.fill_diagonal(matrix, 0, diagonal)
        return matrix

    def condensed(self, output: str | None = None, fill: float = np.nan) -> np.ndarray:
        """Return the pairs i < j row by row, (n(n-1)/2,), as ``scipy.spatial.distance.squareform`` does.

        Raises
        ------
        ConfigError
            If the run is not symmetric.
        """
        if not self.manifest.symmetric:
            raise ConfigError(f"{self.path} is not symmetric and has no condensed form; use matrix()")
        view, n = self.view(output, fill), self.n_items
        condensed = np.full(n * (n - 1) // 2, view.fill)
        for block in view.blocks():
            _place_condensed(condensed, block, n)
        return condensed

    def pairs(self, output: str | None = None) -> pa.RecordBatchReader:
        """Stream the pairs: i, j, key_i, key_j, score, in the order of the chunks.

        Failed pairs are there with a null score. With several outputs there is a column for each, unless one is
        named. Runs that keep less than the matrix stream what they keep; in a top-k run the pair (i, j) means
        that j is among the best of i, and i < j need not hold.
        """
        import pyarrow as pa

        from tartan.store.tables import pair_batches, pair_schema

        outputs = list(self.outputs) if output is None else [output_name(self.folder, output)]
        schema = pair_schema(self.folder, outputs)
        return pa.RecordBatchReader.from_batches(schema, pair_batches(self.folder, outputs))

    def neighbors(
        self, k: int, largest: bool | None = None, output: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest items of each item, nearest first, in O(n k) memory.

        Parameters
        ----------
        k : int
        largest : bool, optional
            Whether large scores are near. Default: what the application says (``similarity``), else False.

        Returns
        -------
        indices : int64 array (n, k)
            -1 where fewer are known. For A x B: (n_left, k), counted within B.
        scores : array (n, k)
            The fill value (NaN for floats) where fewer are known. Equal scores are in the order of the indices.
        """
        if k < 1:
            raise ConfigError(f"k is {k}; ask for at least one neighbour")
        largest = self.larger_is_nearer if largest is None else largest
        if isinstance(self.folder.results, Parts):
            return self._kept_neighbors(self.folder.results, k, largest, output)
        view = self.view(output)
        stored = self.manifest.outputs[view.name]
        require_real(view.name, stored, "neighbours need")
        best = TopK(view.shape[0], k, stored, fill_value(stored), largest=largest)
        for block in view.blocks():
            valid = _without_self(block) if view.square else block.done
            best.update(block.row, block.column, block.scores, valid)
            if self.manifest.symmetric:
                best.update(block.column, block.row, block.scores.T, valid.T)
        return best.indices, best.scores

    def export(self, path: str | Path, format: str | None = None, **options: Any) -> Path:  # noqa: A002
        """Write the result to a file; see ``tartan.store.export.export``."""
        from tartan.store.export import export

        return export(self, path, format, **options)

    def view(self, output: str | None = None, fill: float = np.nan) -> ResultView:
        """Return one output for reading by blocks or bands."""
        self._require_dense()
        return ResultView(self.folder, output, fill)

    @property
    def larger_is_nearer(self) -> bool:
        """Whether the application says that its scores are similarities."""
        return bool(self.manifest.application.get("similarity", False))

    @property
    def self_score(self) -> float | None:
        """Score of an item with itself where that is known without computing it: 0 for declared distances."""
        return 0.0 if self.manifest.application.get("similarity") is False else None

    def _kept_neighbors(self, parts: Parts, k: int, largest: bool, output: str | None) -> tuple[np.ndarray, np.ndarray]:
        rule = self.manifest.reduce or {}
        name = output_name(self.folder, output)
        same = rule.get("kind") == "top-k" and bool(rule.get("largest")) == largest and name == parts.output
        if not same or k > int(rule["k"]):
            which = f"{k} {'largest' if largest else 'smallest'} scores"
            raise ConfigError(
                f"{self.path} keeps {self.folder.kept}; it cannot tell the {which} of each item: run again without "
                "that reduction, or with another one"
            )
        rows_of = self.shape[0]
        indices = np.full((rows_of, k), -1, np.int64)
        dtype = self.manifest.outputs[name]
        scores = np.full((rows_of, k), fill_value(dtype), dtype)
        skip = self.n_items - self.shape[1]
        for rows in parts.bands(self.folder.committed()):
            starts = np.flatnonzero(np.diff(rows["i"], prepend=-1))
            rank = np.arange(len(rows["i"])) - np.repeat(starts, np.diff(starts, append=len(rows["i"])))
            near = rank < k
            at = rows["i"][near], rank[near]
            indices[at], scores[at] = rows["j"][near] - skip, rows[name][near]
        return indices, scores

    def _require_dense(self) -> None:
        if isinstance(self.folder.results, Parts):
            raise ConfigError(
                f"{self.path} keeps {self.folder.kept}, no matrix: pairs() and `tartan export RUN pairs.parquet` have "
                "what it keeps; run again without that reduction for more"
            )

    def _facts(self) -> dict[str, str]:
        done, total = self.n_pairs_done, self.n_pairs
        share = f" ({100 * done / total:.1f} %)" if total and done < total else ""
        facts = {
            "application": str(self.manifest.application.get("name")),
            "items": f"{self.n_items:,}",
            "pairs": f"{done:,} of {total:,}{share}",
            "outputs": ", ".join(f"{name} {dtype}" for name, dtype in self.manifest.outputs.items()),
        }
        if self.manifest.reduce is not None:
            facts["keeps"] = self.folder.kept
        return facts

    def __repr__(self) -> str:
        facts = self._facts()
        return f"<Run {self.path.name}: {facts['application']}, {facts['items']} items, {facts['pairs']} pairs>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._facts().items()
        )
        return f"<table><caption>{html.escape(self.path.name)}</caption>{rows}</table>"


def _place(matrix: np.ndarray, block: Block) -> None:
    """Copy the done scores of a block to their place in a matrix or its transposed view."""
    rows, columns = block.scores.shape
    target = matrix[block.row : block.row + rows, block.column : block.column + columns]
    np.copyto(target, block.scores, where=True if block.done.all() else block.done)


def _place_condensed(condensed: np.ndarray, block: Block, n: int) -> None:
    for local, (scores, done) in enumerate(zip(block.scores, block.done, strict=True)):
        i = block.row + local
        skip = max(0, i + 1 - block.column)  # columns at or below the diagonal
        start = i * n - i * (i + 1) // 2 + block.column + skip - i - 1
        target = condensed[start : start + len(scores) - skip]
        np.copyto(target, scores[skip:], where=done[skip:])


def _without_self(block: Block) -> np.ndarray:
    """Return which scores of a block count for neighbours: no item is its own."""
    if block.row != block.column:
        return block.done
    valid = block.done.copy()
    np.fill_diagonal(valid, False)
    return valid


def _open_zarr(folder: RunFolder, name: str) -> zarr.Array[Any]:
    import zarr
    from zarr.storage import LocalStore

    class Store(LocalStore):
        """Keeps the folder: a temporary one lasts as long as what reads it."""

        owner = folder

    return zarr.open_array(Store(folder.path / f"{name}.zarr", read_only=True), mode="r")
