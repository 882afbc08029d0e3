"""The nearest items of each item, from a matrix or from what a top-k run keeps, in O(n k) memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tartan.errors import ConfigError
from tartan.store.folder import RunFolder
from tartan.store.grid_io import fill_value
from tartan.store.keeper import Rows
from tartan.store.reduced import Parts
from tartan.store.tables import read_merged
from tartan.store.topk import TopK
from tartan.store.view import ScoreBlock, output_name, require_real


def neighbors(
    folder: RunFolder, k: int, largest: bool | None = None, output: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and scores of the k nearest items of each item; see ``tartan.Run.neighbors``.

    Raises
    ------
    ConfigError
        If k is below 1, or the run keeps too little.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; ask for at least one neighbour")
    largest = folder.manifest.larger_is_nearer if largest is None else largest
    output = folder.manifest.analysed_by(output)
    if isinstance(folder.results, Parts):
        return _read_kept(folder, folder.results, k, largest, output)
    view = folder.view(output)
    stored = folder.manifest.outputs[view.name]
    require_real(view.name, stored, "neighbours need")
    best = TopK(view.shape[0], k, stored, fill_value(stored), largest=largest)
    for block in view.blocks():
        valid = _without_self(block) if view.square else block.done
        best.update(block.row, block.column, block.scores, valid)
        if folder.manifest.symmetric:
            best.update(block.column, block.row, block.scores.T, valid.T)
    return best.indices, best.scores


def _read_kept(
    folder: RunFolder, parts: Parts, k: int, largest: bool, output: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Read the neighbours that a top-k run keeps."""
    manifest = folder.manifest
    rule = manifest.reduce or {}
    name = output_name(folder, output)
    same = rule.get("kind") == "top-k" and bool(rule.get("largest")) == largest and name == parts.keeper.output
    if not same or k > int(rule["k"]):
        which = f"{k} {'largest' if largest else 'smallest'} scores"
        raise ConfigError(
            f"{folder.path} keeps {folder.kept}; it cannot tell the {which} of each item: run again without "
            "that reduction, or with another one"
        )
    n_rows, n_columns = manifest.shape
    indices = np.full((n_rows, k), -1, np.int64)
    dtype = manifest.outputs[name]
    scores = np.full((n_rows, k), fill_value(dtype), dtype)
    for rows in _read_kept_rows(folder, parts, name):
        if _is_even(rows["i"], n_rows, int(rule["k"])):
            near = rows["j"].reshape(n_rows, -1)[:, :k] - (manifest.n_items - n_columns)
            return near, rows[name].reshape(n_rows, -1)[:, :k].copy()
        starts = np.flatnonzero(np.diff(rows["i"], prepend=-1))
        rank = np.arange(len(rows["i"])) - np.repeat(starts, np.diff(starts, append=len(rows["i"])))
        near = rank < k
        at = rows["i"][near], rank[near]
        indices[at], scores[at] = rows["j"][near] - (manifest.n_items - n_columns), rows[name][near]
    return indices, scores


def _is_even(items: np.ndarray, n_items: int, k: int) -> bool:
    """Whether items, in ascending order, are all items k times each."""
    if len(items) != n_items * k or not n_items:
        return False
    ends = items.reshape(n_items, k)[:, [0, -1]]
    return bool((ends == np.arange(n_items)[:, None]).all())


def _read_kept_rows(folder: RunFolder, parts: Parts, output: str) -> Iterator[Rows]:
    """Yield what a top-k run keeps, items in ascending order: from the merged result if the run is finished."""
    of_newest = folder.version is None or folder.version.newest
    merged = read_merged(folder, output) if of_newest and folder.finished else None
    return parts.bands(folder.committed()) if merged is None else iter([merged])


def _without_self(block: ScoreBlock) -> np.ndarray:
    """Return which scores of a block count for neighbours: no item is its own."""
    if block.row != block.column:
        return block.done
    valid = block.done.copy()
    np.fill_diagonal(valid, False)
    return valid
