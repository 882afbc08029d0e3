"""Choose what a run keeps by bars: what is among the k best of one of its items, or beyond a threshold.

Runs of triples do. A tile is chosen from on the worker that compared it, by the *bars* of its items: the score that
another triple must reach to be among the k best so far. ``BarKeeper`` collects what was chosen, raises the bars, and
gives a chunk what is still among the best when it is committed. A triple that was dropped was worse than k others of
each of its items, which are kept, or will be computed again; so the merged result never lacks one. Of equal scores the
triple that comes first in the order of (i, j, k) is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.base.bounds import round_bound
from tartan.core.pairs.ledger import DONE
from tartan.store.keeper import Rows, comparable_dtype, concatenate
from tartan.store.manifest import Manifest

ENDS = ("i", "j", "k")
# By judgement: raising bars sorts what is held, so it waits until at least as much came as a sort costs to begin. No
# benchmark.
LEAST_PENDING = 4096
"""Chosen triples after which the bars are raised, or as many as are held."""

Bars = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class BarRule:
    """What is kept; a ``Chooser`` that travels to workers.

    Attributes
    ----------
    output : str
        The output that decides.
    outputs : mapping of str to dtype
    k : int or None
        Best triples of each item; None where a threshold decides.
    threshold : float
    largest : bool
        Whether large scores are the best.
    """

    output: str
    outputs: Mapping[str, np.dtype[Any]]
    k: int | None
    threshold: float
    largest: bool

    @classmethod
    def of(cls, manifest: Manifest) -> BarRule:
        """Return the rule of a run."""
        rule: Mapping[str, Any] = manifest.reduce or {}
        output = str(rule.get("output") or next(iter(manifest.outputs)))
        k = int(rule["k"]) if rule["kind"] == "top-k" else None
        threshold = 0.0 if k is not None else round_bound(rule["threshold"], manifest.outputs[output])
        return cls(output, manifest.outputs, k, threshold, bool(rule.get("largest", False)))

    def empty(self) -> Rows:
        """Return no rows."""
        columns = {**dict.fromkeys(ENDS, np.dtype(np.int64)), **self.outputs}
        return {name: np.empty(0, dtype) for name, dtype in columns.items()}

    def keys(self, scores: np.ndarray) -> np.ndarray:
        """Return scores as they are compared: the smaller the better."""
        keys: np.ndarray = scores.astype(comparable_dtype(scores.dtype), copy=False)
        return np.asarray(-keys) if self.largest else keys

    def choose(
        self,
        corner: tuple[int, ...],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None = None,
        bars: Bars | None = None,
    ) -> Rows:
        """Return what may be kept of a tile, in the order of (i, j, k); see ``Chooser``."""
        keys, good = self.keys(outputs[self.output]), None if codes is None else codes == DONE
        if self.k is None or bars is None:
            dtype = self.outputs[self.output]
            chosen = keys <= self.keys(np.asarray(self.threshold, dtype if dtype.kind == "f" else np.float64))
        else:
            keys = keys if good is None else np.where(good, keys, np.inf)
            if keys.min() > max(float(bar.max()) for bar in bars):
                return self.empty()
            chosen = keys <= _limits(keys, bars, self.k)
        if good is not None:
            chosen &= good
        return self._rows(corner, outputs, chosen)

    def _rows(self, corner: tuple[int, ...], scores: Mapping[str, np.ndarray], chosen: np.ndarray) -> Rows:
        places = np.nonzero(chosen)
        ends = {name: place + start for name, place, start in zip(ENDS, places, corner, strict=True)}
        return {**ends, **{name: scores[name][places].astype(dtype) for name, dtype in self.outputs.items()}}

    def best(self, rows: Rows) -> Rows:
        """Return the rows that are among the k best of one of their items, in the order of (i, j, k), each once."""
        order = np.lexsort((rows["k"], rows["j"], rows["i"]))
        rows = {name: values[order] for name, values in rows.items()}
        if self.k is None or not len(order):
            return rows
        stays = np.zeros(len(order), bool)
        stays[self._rank(rows)[0]] = True
        return {name: values[stays] for name, values in rows.items()}

    def bars(self, rows: Rows, n_items: int) -> np.ndarray:
        """Return the bar of each item, as a key: infinity where it has fewer than k triples in the rows."""
        bars = np.full(n_items, np.inf)
        if self.k is not None and len(rows["i"]):
            places, items, ranks = self._rank(rows)
            last = ranks == self.k - 1
            bars[items[last]] = self.keys(rows[self.output])[places[last]]
        return bars

    def _rank(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, items and ranks of the k best of each item; the rows come in the order of (i, j, k)."""
        n = len(rows["i"])
        items = np.concatenate([rows[end] for end in ENDS])
        places = np.tile(np.arange(n), len(ENDS))
        order = np.lexsort((places, self.keys(rows[self.output])[places], items))
        items, places = items[order], places[order]
        starts = np.searchsorted(items, items)  # the first entry of the same item
        ranks = np.arange(len(items)) - starts
        best = ranks < (self.k or 0)
        return places[best], items[best], ranks[best]


def _limits(keys: np.ndarray, bars: Bars, k: int) -> np.ndarray:
    """Return up to which key each triple of a tile may be kept: for the best of its items, in the tile and before."""
    limits = []
    for axis, bar in enumerate(bars):
        lines = np.moveaxis(keys, axis, 0).reshape(keys.shape[axis], -1)
        if lines.shape[1] > k:
            bar = np.minimum(bar, np.partition(lines, k - 1, axis=1)[:, k - 1])
        limits.append(np.expand_dims(bar, [other for other in range(3) if other != axis]))
    return np.asarray(np.maximum(np.maximum(limits[0], limits[1]), limits[2]))


class BarKeeper:
    """Collects what was chosen in one execution; used on one thread.

    Parameters
    ----------
    manifest : Manifest
        Of a run of triples.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.rule = BarRule.of(manifest)
        self._n_items = manifest.n_items
        self._held = self.rule.empty()
        self._pending: list[Rows] = []
        self._n_pending = 0
        self._bars = np.full(manifest.n_items, np.inf)
        self._chosen: dict[tuple[int, int], list[Rows]] = {}

    def chooser(self, *, shared: bool) -> BarRule:
        """Return what compare calls choose by, wherever they are made."""
        return self.rule

    def bars(self, groups: Sequence[range]) -> Bars | None:
        """Return the bars of groups of items; None where a threshold decides."""
        if self.rule.k is None:
            return None
        return tuple(self._bars[group.start : group.stop].copy() for group in groups)

    def add(self, chunk: tuple[int, int], rows: Rows) -> None:
        """Take what the rule chose from a tile of a chunk."""
        n_rows = len(rows["i"])
        if not n_rows:
            return
        self._chosen.setdefault(chunk, []).append(rows)
        if self.rule.k is None:
            return
        self._pending.append(rows)
        self._n_pending += n_rows
        if self._n_pending > max(LEAST_PENDING, len(self._held["i"])):
            self._raise_bars()

    def take(self, chunk: tuple[int, int]) -> Rows:
        """Return what is kept of a chunk, and forget it."""
        rows = concatenate([self.rule.empty(), *self._chosen.pop(chunk, [])])
        if self.rule.k is None:
            return self.rule.best(rows)
        self._raise_bars()
        bars = self._bars
        stays = self.rule.keys(rows[self.rule.output]) <= np.maximum(
            np.maximum(bars[rows["i"]], bars[rows["j"]]), bars[rows["k"]]
        )
        return self.rule.best({name: values[stays] for name, values in rows.items()})

    def _raise_bars(self) -> None:
        if self._pending:
            self._held = self.rule.best(concatenate([self._held, *self._pending]))
            self._bars = self.rule.bars(self._held, self._n_items)
            self._pending, self._n_pending = [], 0


def merge_rows(rule: BarRule, pieces: Sequence[Rows], more: Rows) -> list[Rows]:
    """Add rows to what is kept so far; cut it whenever it has doubled."""
    pieces = [*pieces, more]
    if rule.k is not None and sum(len(piece["i"]) for piece in pieces[1:]) > max(LEAST_PENDING, len(pieces[0]["i"])):
        return [rule.best(concatenate(pieces))]
    return pieces
