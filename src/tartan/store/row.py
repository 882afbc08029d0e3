"""Read what a run knows of one item: its scores with all others, from the matrix or from what a reduced run keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.store.folder import RunFolder
from tartan.store.reduced import Parts
from tartan.store.topk import sort_keys
from tartan.store.view import output_name, require_real


class ItemRow(NamedTuple):
    """The known scores of one item, nearest first; equal scores are in the order of the items.

    Attributes
    ----------
    others : ndarray of int64, shape (m,)
        The other items, counted over all items of the run, also where it compares two sets.
    scores : ndarray, shape (m,)
    """

    others: NDArray[np.int64]
    scores: NDArray[Any]

    def score_with(self, other: int) -> Any:
        """Return the score with another item; None where it is not known."""
        at = np.flatnonzero(self.others == other)
        return self.scores[at[0]] if len(at) else None

    def rank_of(self, other: int) -> int | None:
        """Return how many items are nearer than another one, plus one; None where its score is not known."""
        at = np.flatnonzero(self.others == other)
        if not len(at):
            return None
        return 1 + int(np.flatnonzero(self.scores == self.scores[at[0]])[0])


def item_row(folder: RunFolder, item: int, output: str | None = None, *, largest: bool | None = None) -> ItemRow:
    """Read the scores of one item with all others; a run in progress gives those that are there.

    Parameters
    ----------
    folder : RunFolder
    item : int
        Counted over all items of the run.
    output : str, optional
        Default: the one that analyses take; of a top-k run, the one that decides.
    largest : bool, optional
        Whether large scores are near. Default: what a top-k run was told, else what the application says.

    Raises
    ------
    ConfigError
        If there is no such output, or it is complex.
    CorruptResultError
        If a chunk of the result is damaged.
    """
    rule = folder.manifest.reduce or {}
    name = output_name(folder, folder.manifest.analysed_by(output))
    require_real(name, folder.manifest.outputs[name], "neighbours need")
    if isinstance(folder.results, Parts):
        others, scores = _read_kept(folder, folder.results, item, name)
    else:
        others, scores = _dense(folder, item, name)
    largest = bool(rule.get("largest", folder.manifest.larger_is_nearer)) if largest is None else largest
    known = (others != item) & ~np.isnan(scores)
    others, scores = others[known], scores[known]
    order = np.lexsort((others, sort_keys(scores, np.ones(len(scores), bool), largest)))
    return ItemRow(others[order], scores[order])


def pair_scores(folder: RunFolder, i: int, j: int) -> tuple[int, dict[str, Any]]:
    """Return what is known of one pair: its code in the ledger (core/pairs/ledger.py), and its scores by output.

    Scores are there if the pair is done and the run keeps it. In a run that is not symmetric they are those of (i, j).
    """
    side = folder.manifest.chunk
    row, column = i // side, j // side
    if not folder.pairs.both_ways and (row > column or (row == column and i > j)):
        i, j, row, column = j, i, column, row
    status = folder.score_status(row, column)
    code = NOT_COMPUTED if status is None else int(status[i - row * side, j - column * side])
    if isinstance(folder.results, Parts):
        return code, _read_kept_scores(folder, folder.results, i, j) if code == DONE else {}
    at = i - row * side, j - column * side
    names = folder.manifest.outputs if code == DONE else ()
    blocks = {name: folder.read_chunk(name, row, column) for name in names}
    return code, {name: block[at] for name, block in blocks.items() if block is not None}


def _dense(folder: RunFolder, item: int, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    view = folder.view(name)
    rows, columns = view.shape
    if view.square:
        return np.arange(columns, dtype=np.int64), view.window(slice(item, item + 1), slice(0, columns))[0]
    if item < rows:
        scores = view.window(slice(item, item + 1), slice(0, columns))[0]
        return np.arange(rows, rows + columns, dtype=np.int64), scores
    return np.arange(rows, dtype=np.int64), view.window(slice(0, rows), slice(item - rows, item - rows + 1))[:, 0]


def _read_kept(folder: RunFolder, parts: Parts, item: int, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Read what a reduced run keeps of an item: its best, or all its pairs beyond the threshold."""
    one_way = folder.pairs.both_ways or (
        (folder.manifest.reduce or {}).get("kind") == "top-k" and folder.manifest.workload["kind"] != "rectangle"
    )
    others, scores = [np.zeros(0, np.int64)], [np.zeros(0, folder.manifest.outputs[name])]
    for rows in parts.bands(_find_touching(folder, item)):
        for mine, other in (("i", "j"),) if one_way else (("i", "j"), ("j", "i")):
            chosen = rows[mine] == item
            others.append(rows[other][chosen])
            scores.append(rows[name][chosen])
    return np.concatenate(others), np.concatenate(scores)


def _read_kept_scores(folder: RunFolder, parts: Parts, i: int, j: int) -> dict[str, Any]:
    """Read a pair from the part of its chunk; in a symmetric run either order will do."""
    side = folder.manifest.chunk
    chunk = min(i, j) // side, max(i, j) // side
    for rows in parts.bands(iter([chunk])):
        at = (rows["i"] == i) & (rows["j"] == j)
        if not folder.pairs.both_ways:
            at |= (rows["i"] == j) & (rows["j"] == i)
        if at.any():
            return {name: rows[name][at][0] for name in folder.manifest.outputs}
    return {}


def _find_touching(folder: RunFolder, item: int) -> Any:
    """Yield the committed chunks in whose rows or columns an item stands."""
    band = item // folder.manifest.chunk
    return (chunk for chunk in folder.committed() if band in chunk)
