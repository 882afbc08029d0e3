"""A list of pairs whose application scores single pairs: computed straight from rows, without tiles and chunks.

The pairs of a list are scattered over the whole matrix, so a tile of them has next to nothing to compute, and a chunk
next to nothing to store. Here rows are prepared in *groups* of as many as the memory for items holds two of, most often
all at once; the pairs of two groups are scored by ``compare_listed``, and what is finished of the list is committed in
its blocks (store/listed.py). What is computed, and how failures are judged, is that of every other run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tartan.application import Application, defines, directed_outputs, output_dtypes
from tartan.base.signals import cancel_on_signals
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, NOT_COMPUTED, Failure
from tartan.core.pairs.verdict import NodeReport, PairCounts
from tartan.errors import ConfigError, ItemError, RunCancelledError
from tartan.run.identity import Noted
from tartan.run.probing import ItemFacts
from tartan.run.request import Request
from tartan.runtime.compare import check_scores, no_scores, score_tile
from tartan.runtime.execution import NodeStats
from tartan.runtime.items import ItemFailure, check_rows, prepare_rows, takes_rows
from tartan.sources.checked import note_checksums
from tartan.sources.items import Source
from tartan.store.listed import ListedScores

if TYPE_CHECKING:
    from tartan.store.folder import RunFolder

# By judgement: rows of 384 float32 in the second cache, and long enough that a call is no cost.
READ_ROWS = 1024
"""Rows that are read and prepared at a time; of which none is needed they are passed over."""
# By judgement: as long as a fiftieth of a second a worker, so that a stop is answered and progress is seen.
CALL_PAIRS = 1 << 16
"""Pairs of a call of the application."""


def takes_list(asked: Request, facts: ItemFacts, *, alone: bool) -> bool:
    """Whether the scores of a request are computed and kept as a list.

    Parameters
    ----------
    asked : Request
    facts : ItemFacts
        Of its items.
    alone : bool
        Whether this process computes it alone, on CPUs.
    """
    app, options = asked.app, asked.options
    if asked.candidates is None or not alone or (asked.reduce or {}).get("kind") == "top-k":
        return False
    plain = type(app).postprocess is Application.postprocess and not directed_outputs(app)
    if not (plain and defines(app, "compare_listed") and app.symmetric and app.releases_gil and takes_rows(app)):
        return False
    if asked.source.kind != "array" or facts.form is None or options.trace or options.disk_cache or options.cache_at:
        return False
    none = np.zeros(0, np.int64)
    block = np.stack([facts.substitute])
    return app.compare_listed(block, block, none, none) is not None


@dataclass
class _ListCounts:
    """What was done, for the statistics."""

    stats: NodeStats = field(default_factory=NodeStats)
    seconds: dict[str, float] = field(default_factory=lambda: {"preprocess": 0.0, "compare": 0.0, "commit": 0.0})

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - begun


class ListRun:
    """Computes what a folder lacks of a list of pairs.

    Parameters
    ----------
    asked : Request
    folder : RunFolder
        Locked for writing.
    facts : ItemFacts
    slots : int
        Prepared rows that memory holds.
    n_workers : int
    report : callable
        Gets a NodeReport, and raises if the run must stop.
    """

    def __init__(
        self,
        asked: Request,
        folder: RunFolder,
        facts: ItemFacts,
        slots: int,
        n_workers: int,
        report: Callable[[NodeReport], None],
    ) -> None:
        listed = folder.pair_list
        assert listed is not None
        assert facts.form is not None
        self._asked, self._folder, self._listed, self._form, self._report = asked, folder, listed, facts.form, report
        self._app, self._substitute = asked.app, facts.substitute
        self._noted = Noted(folder, asked.source)
        self._source: Source = note_checksums(asked.source, self._noted)
        self._n = asked.source.n_items
        self._slots, self._n_workers = slots, n_workers
        self._counts = _ListCounts()
        self._begun = time.perf_counter()
        self._cancelled: RunCancelledError | None = None
        self._dtypes = output_dtypes(asked.app)
        self._live = np.ones(self._n, bool) if folder.live is None else folder.live
        self._lacking = listed.lacking()
        self._codes = listed.codes.copy()
        self._scores = {name: self._known(listed, name) for name in self._dtypes}
        self._ends = tuple(np.ascontiguousarray(ends) for ends in listed.pairs.T)
        self._is_bad = np.zeros(self._n, bool)
        self._to_do = np.zeros(len(listed.pairs), bool)
        for block in self._lacking:
            span = listed.span(block)
            self._to_do[span] = (self._codes[span] == NOT_COMPUTED) & self._live[listed.pairs[span]].all(axis=1)

    def _known(self, listed: ListedScores, name: str) -> np.ndarray:
        found = np.zeros(len(listed.pairs), self._dtypes[name])
        for block in range(listed.n_blocks):
            if block not in self._lacking or listed.verify(block):
                read = listed.read_block(block)
                if read is not None:
                    found[listed.span(block)] = read[0][name]
        return found

    def run(self) -> None:
        """Compute it.

        Raises
        ------
        RunCancelledError
            After a signal; the folder can be resumed.
        TartanError
            As ``report`` and the source.
        """
        with cancel_on_signals(self._cancel), ThreadPoolExecutor(self._n_workers, "tartan-worker") as pool:
            self._pool = pool
            try:
                for first, others in self._plan():
                    self._score_group(first, others)
                self._commit_finished(len(self._to_do))
            finally:
                with contextlib.suppress(Exception):
                    self._noted.write()

    def stats(self) -> NodeStats:
        """Return what was done so far."""
        stats = self._counts.stats
        stats.wall_seconds = time.perf_counter() - self._begun
        stats.seconds_per_stage = {"read": 0.0, "parse": 0.0, "upload": 0.0, "download": 0.0, **self._counts.seconds}
        return stats

    def _cancel(self, number: int) -> None:
        message = "the run was stopped before its end; run it again to resume"
        self._cancelled = RunCancelledError(message, context={"signal": number})

    def _stop_if_asked(self) -> None:
        if self._cancelled is not None:
            raise self._cancelled

    @property
    def _height(self) -> int:
        """Rows of a group."""
        return self._n if self._slots >= self._n else max(1, self._slots // 2)

    def _plan(self) -> Iterator[tuple[int, list[int]]]:
        """Yield groups of first items, each with the groups of the second items of its pairs."""
        height = self._height
        starts = np.searchsorted(self._ends[0], np.arange(0, self._n + height, height))
        for group, (a, b) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
            if not self._to_do[a:b].any():
                continue
            others = np.bincount(self._ends[1][a:b][self._to_do[a:b]] // height) if height < self._n else [1]
            yield group, np.flatnonzero(others).tolist()

    def _score_group(self, first: int, others: list[int]) -> None:
        """Score all pairs whose first item is in a group, and commit the blocks that are finished then."""
        height = self._height
        a, b = np.searchsorted(self._ends[0], [first * height, (first + 1) * height]).tolist()
        needed = np.zeros(self._n, bool)
        for ends in self._ends:
            needed[ends[a:b][self._to_do[a:b]]] = True
        left = self._load(first, needed)
        for other in others:
            right = left if other == first else self._load(other, needed)
            for start in range(a, b, self._n_workers * CALL_PAIRS * 4):
                self._stop_if_asked()
                stop = min(b, start + self._n_workers * CALL_PAIRS * 4)
                at = np.flatnonzero(self._to_do[start:stop]) + start
                if height < self._n:
                    at = at[self._ends[1][at] // height == other]
                if len(at):
                    self._score(at, left, right, (first * height, other * height))
                if other == others[-1]:
                    self._commit_finished(stop)
        self._commit_finished(b)

    def _load(self, group: int, needed: np.ndarray) -> np.ndarray:
        """Return the prepared rows of a group; those that no pair needs are zeros, bad ones a good one."""
        begin, end = group * self._height, min(self._n, (group + 1) * self._height)
        block = np.zeros((end - begin, *self._form.shape), self._form.dtype)
        failures: list[Failure] = []
        n_loaded = 0
        starts = [at for at in range(begin, end, READ_ROWS) if needed[at : min(end, at + READ_ROWS)].any()]
        with self._counts.timed("preprocess"):
            for start, (ready, bad) in self._prepare(starts, end):
                block[start - begin : start - begin + len(ready)] = ready
                n_loaded += len(ready)
                for row, failure in bad.items():
                    if needed[start + row] and self._live[start + row]:
                        block[start - begin + row] = self._substitute
                        self._is_bad[start + row] = True
                        failures.append(Failure(start + row, None, failure.stage, failure.reason, failure.traceback))
        self._counts.stats.loads += n_loaded
        self._counts.stats.parses += n_loaded
        self._report(NodeReport(n_loads=n_loaded, failures=failures))
        return block

    def _prepare(self, starts: list[int], end: int) -> Iterator[tuple[int, tuple[np.ndarray, dict[int, ItemFailure]]]]:
        """Read rows here, a few blocks at a time, and let all workers prepare them."""
        for at in range(0, len(starts), 2 * self._n_workers):
            self._stop_if_asked()
            some = starts[at : at + 2 * self._n_workers]
            blocks = [self._read(start, min(end, start + READ_ROWS)) for start in some]
            yield from zip(some, self._pool.map(self._ready, blocks), strict=True)

    def _read(self, start: int, stop: int) -> tuple[int, np.ndarray, dict[int, ItemFailure]]:
        """Return rows from ``start`` on; where one cannot be read the others are read one by one."""
        try:
            return start, np.asarray(self._source.read_block(start, stop)), {}
        except ItemError:
            pass
        rows: dict[int, np.ndarray] = {}
        bad: dict[int, ItemFailure] = {}
        for at in range(start, stop):
            try:
                rows[at - start] = np.array(self._source.read_block(at, at + 1)[0])
            except ItemError as error:
                bad[at - start] = ItemFailure("read", str(error))
        if not rows:
            return start, np.zeros((0, 0)), bad
        good = next(iter(rows.values()))
        return start, np.stack([rows.get(at, good) for at in range(stop - start)]), bad

    def _ready(self, read: tuple[int, np.ndarray, dict[int, ItemFailure]]) -> tuple[np.ndarray, dict[int, ItemFailure]]:
        start, rows, bad = read
        if not len(rows):
            return np.stack([self._substitute] * len(bad)), bad
        wrong = check_rows(self._app, rows, self._source.keys[start : start + len(rows)])
        return np.asarray(prepare_rows(self._app, rows, np)), wrong | bad

    def _score(self, at: np.ndarray, left: np.ndarray, right: np.ndarray, corner: tuple[int, int]) -> None:
        """Score some pairs of the list, and say how they ended."""
        good, n_lost = at, 0
        if self._is_bad.any():
            lost = self._is_bad[self._ends[0][at]] | self._is_bad[self._ends[1][at]]
            self._codes[at[lost]] = FAILED_ITEM
            good, n_lost = at[~lost], int(lost.sum())
        parts = [good[start : start + CALL_PAIRS] for start in range(0, len(good), CALL_PAIRS)]
        with self._counts.timed("compare"):
            failures = [
                one for found in self._pool.map(lambda p: self._call(p, left, right, corner), parts) for one in found
            ]
        self._to_do[at] = False
        self._counts.stats.pairs_computed += len(at)
        if failures:
            self._folder.add_failures(failures)
        n_failed = len(failures)
        counts = PairCounts(len(at) - n_lost - n_failed, n_lost, n_failed, len(at), n_lost)
        self._report(NodeReport(pairs=counts, failures=failures))

    def _call(self, at: np.ndarray, left: np.ndarray, right: np.ndarray, corner: tuple[int, int]) -> list[Failure]:
        # Of consecutive pairs, as most are, views are taken and not copies.
        together = at[-1] - at[0] + 1 == len(at)
        where: Any = slice(at[0], at[-1] + 1) if together else at
        first, last = (int(self._ends[0][end]) - corner[0] for end in (at[0], at[-1]))  # ascending: of a list by i
        left, rows = left[first : last + 1], self._ends[0][where] - (corner[0] + first)
        columns = self._ends[1][where] - corner[1] if corner[1] else self._ends[1][where]
        scored = self._app.compare_listed(left, right, rows, columns)
        found = check_scores(scored, (len(at),), self._dtypes, "compare_listed")
        wrong = np.zeros(0, np.intp)
        for name, values in found.items():
            self._scores[name][where] = values
            if (missing := no_scores(values)) is not None:
                wrong = np.union1d(wrong, np.flatnonzero(missing))
        self._codes[where] = DONE
        failures = []
        for one in wrong.tolist():
            pair = left[rows[one]][None], right[columns[one]][None]
            failure = self._alone(pair, int(at[one]))
            if failure is not None:
                self._codes[at[one]] = FAILED_PAIR
                failures.append(failure)
        return failures

    def _alone(self, pair: tuple[np.ndarray, np.ndarray], at: int) -> Failure | None:
        """Compare a pair whose score is not a number as a tile of its own, which says why."""
        out = {name: np.zeros((1, 1), dtype) for name, dtype in self._dtypes.items()}
        found = score_tile(self._app, pair, self._dtypes, DONE, out, np.zeros((1, 1), np.uint8))
        for name, block in out.items():
            self._scores[name][at] = block[0, 0]
        i, j = self._listed.pairs[at].tolist()
        return Failure(i, j, "compare", found[0].reason, found[0].traceback) if found else None

    def _commit_finished(self, stop: int) -> None:
        """Commit the blocks that end before a pair of the list, and have no pair left to compute."""
        while self._lacking:
            block, span = self._lacking[0], self._listed.span(self._lacking[0])
            if span.stop > stop or self._to_do[span].any():
                return
            with self._counts.timed("commit"):
                self._noted.write()
                scores = {name: values[span] for name, values in self._scores.items()}
                self._listed.write_block(self._folder.writer, block, scores, self._codes[span])
            self._lacking.pop(0)


def refuse_for_list(what: str, path: Any) -> None:
    """Refuse what a run whose scores lie in a list cannot do."""
    raise ConfigError(
        f"{path} keeps the scores of its pairs in a list, which one process computes: leave {what} out, or start a new "
        f"run with it in another folder"
    )
