"""Choose what a reduced run keeps, tile by tile while scores are in the cache, and collect it until the commit.

Top-k runs hold the running k best of every item. A score that is not among them is dropped at once: the better pairs
are kept, or will be computed again, so the merged result never lacks one. A chunk is committed with what is held then
of its pairs. Where more is kept of a pair than the score that decides, or that score in a type of its own, pairs are
listed as they are chosen, and those that have been beaten since are dropped at the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tartan import _native
from tartan.base.bounds import round_bound
from tartan.base.row_screen import RowScreen
from tartan.core.pairs.ledger import DONE
from tartan.store.manifest import Manifest
from tartan.store.topk import select

# By judgement: 10 best of 2 million items in memory; beyond, chunks are merged one by one. As BAND_BYTES. `tartan bench
# vectors parts=memory` holds 300 MB beside the input.
BEST_BYTES = 256 * 2**20
# By format: an index of 8 bytes and a score of 4.
ENTRY_BYTES = 12
# By judgement: 8-bit copies of 650,000 items of 384 values; of more, each tile makes its own. As BEST_BYTES. `tartan
# bench vectors parts=memory` holds 300 MB beside the input.
COPY_BYTES = 256 * 2**20
Rows = dict[str, np.ndarray]  # columns i, j, of triples k (int64), and one for each output, all (m,)


class Chooser(Protocol):
    """Chooses from a tile right after it was compared, so that its scores reach no chunk.

    Attributes
    ----------
    outputs : mapping of str to dtype
    """

    @property
    def outputs(self) -> Mapping[str, np.dtype[Any]]: ...

    def choose(
        self,
        corner: tuple[int, ...],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
        bars: tuple[np.ndarray, ...] | None,
    ) -> Rows | None:
        """Choose from a tile, which lies in one chunk.

        Parameters
        ----------
        corner : tuple of int
            Items of its first cell.
        outputs : mapping of str to array (m, k, ...)
            Finished, in the dtypes of the outputs.
        codes : uint8 array (m, k, ...) or None
            Codes of the ledger: only what is done counts. None: all is.
        mirrored : mapping of str to array (k, m) or None
            Scores of (j, i), in runs that are not symmetric.
        bars : tuple of arrays, or None
            Of the items of the tile, as keys, where the chooser has some.

        Returns
        -------
        dict of arrays or None
            What may be kept; None where the chooser itself remembers it.
        """


class Keeper:
    """Chooses from tiles for one execution, on any number of threads.

    Parameters
    ----------
    manifest : Manifest
        One whose ``reduce`` is not None.
    best_bytes : int
        Most memory for the running best of all items; where it would take more, each chunk has its own.
    trust : float or None
        None: no pair is ruled out by a bound. 1: rows are screened. Less multiplies the bound, which is wrong then, for
        tests of what finds that.
    ranks : int64 array (n,), optional
        Where items stand among all, by which equal scores are ordered; default: in their order. Others are looked at
        without the running best, which has that order.

    Attributes
    ----------
    output : str
        The output that decides.
    outputs : dict of str to dtype
    """

    def __init__(
        self,
        manifest: Manifest,
        best_bytes: int = BEST_BYTES,
        *,
        trust: float | None = 1.0,
        ranks: np.ndarray | None = None,
    ) -> None:
        assert manifest.reduce is not None
        rule: Mapping[str, Any] = manifest.reduce
        self.outputs = manifest.outputs
        self.output = str(rule.get("output") or next(iter(manifest.outputs)))
        self._manifest = manifest
        self._largest = bool(rule.get("largest", False))
        self._k = int(rule["k"]) if rule["kind"] == "top-k" else None
        self._limit = 0.0 if self._k is not None else round_bound(rule["threshold"], self.outputs[self.output])
        self._single = comparable_dtype(self.outputs[self.output]) == np.float32
        # Whether the score that decides is all that is kept of a pair, as it is compared.
        self._alone = list(self.outputs.values()) == [comparable_dtype(self.outputs[self.output])]
        self._everywhere = manifest.n_items * (self._k or 0) * ENTRY_BYTES <= best_bytes
        self._trust = trust
        self._ranks = ranks if self._k is not None else None
        self._screen = RowScreen(
            manifest.n_items,
            COPY_BYTES,
            trust=1.0 if trust is None else trust,
            limit=None if self._k is not None else self._limit,
            largest=self._largest,
        )
        self._bit_screen: _native.BitScreen | None = None
        self._lock = threading.Lock()
        self._best: dict[tuple[int, int] | None, tuple[_native.RunningBest, _native.RunningBest]] = {}
        self._chosen: dict[tuple[int, int], list[tuple[Rows, Rows]]] = {}

    def chooser(self, *, shared: bool) -> Keeper | None:
        """Return what compare calls choose by; None where they do not share memory: then chunks are chosen from."""
        return self if shared else None

    def choose(
        self,
        corner: tuple[int, ...],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
        bars: tuple[np.ndarray, ...] | None = None,
    ) -> None:
        """Choose from a tile, on any thread; see ``Chooser``. There are no bars: it knows the best of all threads."""
        corner = corner[0], corner[1]
        chunk = self._chunk_of(corner)
        if self._k is None:
            self._list(chunk, self._beyond(corner, outputs, codes, mirrored))
            return
        if self._ranks is not None:
            self._list(chunk, self._best_by_rank(chunk, corner, outputs, codes, mirrored))
            return
        found = self._best_of(chunk, corner, outputs, codes, mirrored)
        self._list(chunk, *([] if self._alone else [found]))

    def choose_rows(
        self,
        corner: tuple[int, ...],
        left: np.ndarray,
        right: np.ndarray,
        codes: np.ndarray | None,
        metric: str = "cosine",
    ) -> bool:
        """Choose from a tile by the distances of rows, without writing a score that is not kept.

        Products of 8-bit copies of the rows rule out most pairs by a bound that is proven; the others are computed as
        ``choose`` gets them, bit for bit.

        Parameters
        ----------
        corner, codes
            As for ``choose``.
        left, right : arrays (rows, d), (columns, d)
        metric : str
            "cosine" of unit rows; "inner"; "euclidean" or "sqeuclidean" of rows that end in their squared norms.

        Returns
        -------
        bool
            False if that cannot be done: here, with these outputs, or because a score is NaN. ``choose`` can.
        """
        if self._ranks is not None:
            return False
        if not (_native.HAS_PRODUCTS and self._alone and left.dtype == right.dtype == self.outputs[self.output]):
            return False
        if metric not in ("cosine", "inner") and (left.dtype != np.float32 or left.shape[1] <= _native.LEAST_SCREENED):
            return False
        corner = corner[0], corner[1]
        screen = self._screen_of(corner, left, right, metric)
        chunk = self._chunk_of(corner)
        if self._k is not None:
            own, other = self._start_running(chunk)
            self._list(chunk)
            both = other if self._counts_for_columns else None
            return own.choose_rows(left, right, codes, corner, self._largest, both, metric=metric, screen=screen)
        found = _native.rows_beyond(
            left, right, codes, corner, self._largest, self._limit, metric=metric, screen=screen
        )
        if found is None:
            return False
        (rows, columns), scores = found
        self._list(chunk, ({"i": rows + corner[0], "j": columns + corner[1], self.output: scores}, self.empty()))
        return True

    def choose_bits(
        self,
        corner: tuple[int, ...],
        left: np.ndarray,
        right: np.ndarray,
        codes: np.ndarray | None,
        metric: str,
    ) -> bool:
        """Choose from a tile by the distances of rows of bits, without a look at pairs that numbers of bits rule out.

        Parameters
        ----------
        corner, codes
            As for ``choose``.
        left, right : uint64 arrays (rows, words + 1), (columns, words + 1)
            As prepared for "jaccard" and "hamming".
        metric : str

        Returns
        -------
        bool
            False if that cannot be done, as of ``choose_rows``.
        """
        dtype = self.outputs[self.output]
        if self._ranks is not None or self._trust is None or self._largest:
            return False
        if not (self._alone and left.dtype == right.dtype == np.uint64):
            return False
        corner, screen = (corner[0], corner[1]), self._start_bit_screen(self._trust)
        chunk = self._chunk_of(corner)
        if self._k is not None:
            own, other = self._start_running(chunk)
            self._list(chunk)
            both = other if self._counts_for_columns else None
            return own.choose_bits(left, right, codes, corner, both, metric=metric, screen=screen)
        found = _native.bits_beyond(
            left, right, codes, corner, self._limit, metric=metric, single=dtype == np.float32, screen=screen
        )
        if found is None:
            return False
        (rows, columns), scores = found
        self._list(chunk, ({"i": rows + corner[0], "j": columns + corner[1], self.output: scores}, self.empty()))
        return True

    def decided(self) -> dict[str, Any]:
        """Return how many pairs each stage decided in this execution; empty where no rows were screened.

        Returns
        -------
        dict
            As of ``RowScreen``; of bits ``by_bound`` and ``exactly``, and 0 for the others: their bound has no error.
        """
        if self._bit_screen is not None:
            ruled_out, counted = self._bit_screen.decided()
            return {"by_bound": ruled_out, "exactly": counted, "unscreened": 0, "largest_bound": 0.0}
        return self._screen.decided()

    def _screen_of(
        self, corner: tuple[int, int], left: np.ndarray, right: np.ndarray, metric: str
    ) -> _native.Screen | None:
        if self._trust is None or left.shape[1] < _native.LEAST_SCREENED:
            return None
        return self._screen.of_tile(corner, left, right, metric)

    def _start_bit_screen(self, trust: float) -> _native.BitScreen:
        with self._lock:
            if self._bit_screen is None:
                self._bit_screen = _native.BitScreen(self._manifest.n_items, COPY_BYTES, trust=trust)
            return self._bit_screen

    def _chunk_of(self, corner: tuple[int, int]) -> tuple[int, int]:
        side = self._manifest.chunk
        return corner[0] // side, corner[1] // side

    def _list(self, chunk: tuple[int, int], *found: tuple[Rows, Rows]) -> None:
        """Remember that tiles of a chunk were looked at, and the pairs that nothing else holds."""
        with self._lock:
            self._chosen.setdefault(chunk, []).extend(found)

    def chosen(self, chunk: tuple[int, int]) -> tuple[Rows, Rows]:
        """Return what is kept of a chunk until now: rows for its row of chunks, and rows for its column."""
        with self._lock:
            pieces = list(self._chosen.get(chunk, ()))
            looked_at = chunk in self._chosen
            best = self._best.get(chunk) or self._best.get(None)
        if not looked_at:
            return self.empty(), self.empty()
        if self._alone and best is not None:
            return self._hold_best_of(chunk, *best)
        both = (*zip(*pieces, strict=True),) or ((), ())
        first, second = (concatenate([self.empty(), *groups]) for groups in both)
        if best is not None:
            first, second = (_held(rows, own) for rows, own in zip((first, second), best, strict=True))
        return self.cut(first), self.cut(second)

    def add(self, chunk: tuple[int, int], rows: tuple[Rows, Rows]) -> None:
        """Add what another keeper has chosen from a chunk."""
        self._list(chunk, rows)

    def forget(self, chunk: tuple[int, int]) -> None:
        """Forget what was chosen from the tiles of a chunk, which needs it no more."""
        with self._lock:
            self._chosen.pop(chunk, None)
            self._best.pop(chunk, None)

    def bands(self) -> Iterator[Rows] | None:
        """Return the best of all pairs that were chosen from, in pieces of a chunk row's items, sorted as by ``cut``.

        None where they are not held in one place.
        """
        best = self._best.get(None)
        if best is None or not self._alone:
            return None
        n, side = self._manifest.n_items, self._manifest.chunk
        starts = range(0, n, side)
        return (self._pairs(best[0], (start, min(n, start + side)), (0, n)) for start in starts)

    def cut(self, rows: Rows) -> Rows:
        """Sort rows by item, and inside an item by rank or by the other item; keep the k best of each item."""
        if self._k is None:
            order = np.lexsort((rows["j"], rows["i"]))
        else:
            ids = rows["j"] if self._ranks is None else np.ascontiguousarray(self._ranks[rows["j"]])
            order = _native.first_of_groups(rows["i"], ids, _comparable(rows[self.output]), self._k, self._largest)
        return {name: values[order] for name, values in rows.items()}

    def keeps(self, scores: np.ndarray) -> np.ndarray:
        """Return which scores of the output that decides are beyond the threshold of a threshold run, bool."""
        values = _comparable(scores)
        found: np.ndarray = values >= self._limit if self._largest else values <= self._limit
        return found

    def empty(self) -> Rows:
        """Return no rows."""
        columns = {"i": np.dtype(np.int64), "j": np.dtype(np.int64), **self.outputs}
        return {name: np.empty(0, dtype) for name, dtype in columns.items()}

    def _hold_best_of(
        self, chunk: tuple[int, int], own: _native.RunningBest, other: _native.RunningBest
    ) -> tuple[Rows, Rows]:
        """Return the pairs of a chunk that are among the best of their rows, and of their columns."""
        n, side = self._manifest.n_items, self._manifest.chunk
        rows, columns = ((at * side, min(n, (at + 1) * side)) for at in chunk)
        first = self._pairs(own, rows, columns)
        return first, self.empty() if chunk[0] == chunk[1] else self._pairs(other, columns, rows)

    def _pairs(self, best: _native.RunningBest, items: tuple[int, int], ids: tuple[int, int]) -> Rows:
        (i, j), scores = best.pairs(items, ids, self._largest)
        return {"i": i, "j": j, self.output: scores}

    def _beyond(
        self,
        corner: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> tuple[Rows, Rows]:
        found = _native.scores_beyond(_comparable(outputs[self.output]), codes, corner, self._largest, self._limit)
        rows = self._rows(corner, found, outputs)
        if mirrored is not None:
            scores, turned = _comparable(mirrored[self.output]), _turn(codes)
            found = _native.scores_beyond(scores, turned, corner[::-1], self._largest, self._limit, skip_self=True)
            rows = concatenate([rows, self._rows(corner[::-1], found, mirrored)])
        return rows, self.empty()

    def _best_of(
        self,
        chunk: tuple[int, int],
        corner: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> tuple[Rows, Rows]:
        own, other = self._start_running(chunk)
        one_way = mirrored is not None or not self._counts_for_columns
        scores = _comparable(outputs[self.output])
        found, turned = own.choose(scores, codes, corner, self._largest, None if one_way else other)
        first = self._rows(corner, found, outputs)
        if mirrored is None:
            second = self._rows(corner[::-1], turned[::-1], {name: block.T for name, block in outputs.items()})
        else:
            scores = _comparable(mirrored[self.output])
            found, _ = other.choose(scores, _turn(codes), corner[::-1], self._largest)
            second = self._rows(corner[::-1], found, mirrored)
        if chunk[0] == chunk[1]:
            return concatenate([first, second]), self.empty()
        return first, second

    def _best_by_rank(
        self,
        chunk: tuple[int, int],
        corner: tuple[int, int],
        outputs: Mapping[str, np.ndarray],
        codes: np.ndarray | None,
        mirrored: Mapping[str, np.ndarray] | None,
    ) -> tuple[Rows, Rows]:
        """Return the best of a tile by itself, of equal scores those that stand first."""
        first, second = self._first_by_rank(corner, outputs, codes), self.empty()
        if mirrored is not None or self._counts_for_columns:
            turned = mirrored or {name: block.T for name, block in outputs.items()}
            second = self._first_by_rank(corner[::-1], turned, _turn(codes))
        if chunk[0] == chunk[1]:
            return concatenate([first, second]), self.empty()
        return first, second

    def _first_by_rank(
        self, corner: tuple[int, int], outputs: Mapping[str, np.ndarray], codes: np.ndarray | None
    ) -> Rows:
        assert self._k is not None
        assert self._ranks is not None
        scores = _comparable(outputs[self.output])
        rows, columns = (np.arange(start, start + n) for start, n in zip(corner, scores.shape, strict=True))
        valid = rows[:, None] != columns[None, :]
        if codes is not None:
            valid &= codes == DONE
        order = np.argsort(self._ranks[columns], kind="stable")
        chosen = select(scores[:, order], valid[:, order], self._k, largest=self._largest)
        at, place = np.nonzero(chosen >= 0)
        return self._rows(corner, (at, order[chosen[at, place]]), outputs)

    @property
    def _counts_for_columns(self) -> bool:
        """Whether the score of (i, j) is also that of (j, i), and counts for item j."""
        return self._manifest.symmetric and self._manifest.workload["kind"] != "rectangle"

    def _start_running(self, chunk: tuple[int, int]) -> tuple[_native.RunningBest, _native.RunningBest]:
        """Return the running best of the rows and of the columns of a chunk."""
        assert self._k is not None
        n, side = self._manifest.n_items, self._manifest.chunk
        with self._lock:
            found = self._best.get(None if self._everywhere else chunk)
            if found is None and self._everywhere:
                whole = _native.RunningBest(0, n, self._k, self._single)
                found = self._best[None] = whole, whole
            elif found is None:
                rows, columns = (
                    _native.RunningBest(at * side, min(side, n - at * side), self._k, self._single) for at in chunk
                )
                found = self._best[chunk] = rows, rows if chunk[0] == chunk[1] else columns
            return found

    def _rows(
        self, corner: tuple[int, int], places: tuple[np.ndarray, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> Rows:
        """Return pairs by their places in a tile."""
        values = {name: outputs[name][places].astype(dtype, copy=False) for name, dtype in self.outputs.items()}
        return {"i": places[0] + corner[0], "j": places[1] + corner[1], **values}


class CommittedBest:
    """The k best scores of each item among the pairs that one of several writers has committed.

    What these displace is not kept. Pairs of chunks whose version does not count never enter, so that they displace
    nothing.

    Parameters
    ----------
    manifest : Manifest
        Of a top-k run.
    output : str
        The output that decides.
    """

    def __init__(self, manifest: Manifest, output: str) -> None:
        assert manifest.reduce is not None
        dtype = comparable_dtype(manifest.outputs[output])
        self._output = output
        self._sign = -1 if manifest.reduce.get("largest") else 1
        self._keys = np.full((manifest.n_items, int(manifest.reduce["k"])), np.inf, dtype)
        self._lock = threading.Lock()

    def not_displaced(self, rows: Rows) -> Rows:
        """Return the rows that may be among the k best of their items; equals of the last one may."""
        stays = self._of(rows) <= self._keys[rows["i"], -1]
        return rows if stays.all() else {name: values[stays] for name, values in rows.items()}

    def add(self, rows: Rows) -> None:
        """Enter committed rows: sorted by item, at most k of each."""
        items, starts, counts = np.unique(rows["i"], return_index=True, return_counts=True)
        new = np.full((len(items), self._keys.shape[1]), np.inf, self._keys.dtype)
        groups = np.repeat(np.arange(len(items)), counts)
        new[groups, np.arange(len(groups)) - starts[groups]] = self._of(rows)
        with self._lock:
            both = np.concatenate([self._keys[items], new], axis=1)
            self._keys[items] = np.sort(both, axis=1)[:, : new.shape[1]]

    def _of(self, rows: Rows) -> np.ndarray:
        keys: np.ndarray = self._sign * _comparable(rows[self._output])
        return np.where(np.isnan(keys), keys.dtype.type(np.inf), keys)


def concatenate(pieces: Sequence[Rows]) -> Rows:
    """Join rows of one set of columns."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def comparable_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision in which scores are compared: float32 where it holds every one of them, else float64."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def _comparable(scores: np.ndarray) -> np.ndarray:
    inner = scores.strides[-1] == scores.itemsize or not scores.size
    dtype = comparable_dtype(scores.dtype)
    return scores if inner and scores.dtype == dtype else np.ascontiguousarray(scores, dtype)


def _turn(codes: np.ndarray | None) -> np.ndarray | None:
    return None if codes is None else np.ascontiguousarray(codes.T)


def _held(rows: Rows, best: _native.RunningBest) -> Rows:
    """Keep the rows that are still among the best of their items."""
    held = best.holds(rows["i"], rows["j"])
    return rows if held.all() else {name: values[held] for name, values in rows.items()}
