"""What failed in a run, and when that is too much."""

from __future__ import annotations

from collections.abc import Sequence

from tartan.core.ledger import DONE, Failure
from tartan.errors import RunFailedError
from tartan.runtime.compare import PairFailure
from tartan.runtime.items import ItemFailure
from tartan.sources.items import Source
from tartan.store.folder import RunFolder

__all__ = ["FailureBook"]

HOPELESS_PAIRS = 100
MOST_LISTED = 10_000
"""Failed pairs of one execution whose reasons are all kept; the ledger has every one."""


class FailureBook:
    """Counts and records failures.

    Parameters
    ----------
    folder : RunFolder
        Gets the failed items; failed pairs go with their chunk.
    source : Source
        For keys.
    on_error : {"skip", "raise"}
    max_failures : int or None
        More failed items and pairs than this stop the run.
    """

    def __init__(self, folder: RunFolder, source: Source, on_error: str, max_failures: int | None) -> None:
        counts = folder.counts()
        self.n_pairs_before = int(counts[DONE:].sum())
        self._folder = folder
        self._source = source
        self._on_error = on_error
        self._max_failures = max_failures
        self._known_items = {f.i for f in folder.failures() if f.j is None}
        self._new_items: set[int] = set()
        self._n_pairs = 0
        self._n_listed = 0
        self._n_good = int(counts[DONE])
        self._n_ended = self.n_pairs_before
        self._hopeless = min(HOPELESS_PAIRS, folder.pairs.n_pairs)
        self._first: tuple[str, str] | None = None

    @property
    def n_failed(self) -> int:
        """Failed items and pairs."""
        return len(self._known_items) + self._n_pairs

    def name_pair(self, i: int, j: int, reason: str) -> str:
        """Put the keys of a pair before a reason."""
        return f"{self._source.keys[i]}, {self._source.keys[j]}: {reason}"

    def item_failed(self, index: int, failure: ItemFailure) -> None:
        self._remember(failure.reason, failure.traceback)
        self._new_items.add(index)
        if index not in self._known_items:
            self._known_items.add(index)
            self._folder.add_failures([Failure(index, None, failure.stage, failure.reason, failure.traceback)])

    def listed(self, failures: Sequence[PairFailure]) -> Sequence[PairFailure]:
        """Return the failed pairs of a tile whose reasons are kept: all at first, later one a tile."""
        kept = failures if self._n_listed < MOST_LISTED else failures[:1]
        self._n_listed += len(kept)
        return kept

    def pairs_ended(self, n_good: int, n_without_item: int, n_failed: int, failures: Sequence[Failure]) -> None:
        """Count ended pairs: good ones, those that lack an item, those that failed (of many, some with reasons)."""
        self._n_good += n_good
        self._n_ended += n_good + n_without_item + n_failed
        self._n_pairs += n_failed
        for failure in failures[:1]:
            self._remember(failure.reason, failure.traceback)

    def verdict(self) -> RunFailedError | None:
        """Return why the run must stop, or None."""
        if self._on_error == "raise" and self._first is not None:
            return self.stopped("something failed, and --on-error is raise")
        n_new = len(self._new_items) + self._n_pairs
        if self._max_failures is not None and n_new > self._max_failures:
            return self.stopped(f"{n_new} items and pairs failed, more than --max-failures {self._max_failures}")
        if self._n_ended >= self._hopeless and not self._n_good:
            return self.stopped(f"the first {self._n_ended} pairs all failed")
        return None

    def stopped(self, why: str, traceback: str = "") -> RunFailedError:
        reason, first_traceback = self._first or ("", "")
        message = f"{why}; first: {reason}" if reason else why
        return RunFailedError(
            f"{message}. What is done is kept; run it again to resume",
            context={"traceback": traceback or first_traceback, "reason": reason},
        )

    def _remember(self, reason: str, traceback: str) -> None:
        if self._first is None:
            self._first = (reason, traceback)
