"""Threads that fill ranges: what several ranks hold of a range comes at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tartan.blocks.gathering import RangeGatherer
from tartan.blocks.node_events import GatheredRange
from tartan.blocks.work import PartOrigin

_N_THREADS = 4
"""That read what is on this rank; each other rank is asked by one, so that what is wanted first comes first."""


class RangeFiller:
    """Fills the arrays of ranges, in the order in which it is told of them.

    Each rank is asked by a thread of its own, so that one that answers slowly does not keep the others waiting.

    Parameters
    ----------
    gatherer : RangeGatherer
    filled : callable
        Receives the name of each range that is filled or could not be, and the first error; called in any thread.
    """

    def __init__(self, gatherer: RangeGatherer, filled: Callable[[GatheredRange, Exception | None], None]) -> None:
        self._gatherer, self._filled = gatherer, filled
        self._here = ThreadPoolExecutor(_N_THREADS, "tartan-gather")
        self._asking: dict[int, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self._n_left: dict[GatheredRange, int] = {}
        self._errors: dict[GatheredRange, Exception] = {}

    def fill(self, key: GatheredRange, origins: tuple[PartOrigin, ...]) -> None:
        """Begin to fill the array of a range, which has its place in the store."""
        shares = self._gatherer.shares(origins)
        with self._lock:
            self._n_left[key] = len(shares)
        for rank, share in shares.items():
            self._threads(rank).submit(self._fill_share, key, rank, share)

    def submit(self, call: Callable[[], None]) -> None:
        """Make a call in a thread."""
        self._here.submit(call)

    def close(self) -> None:
        """Wait for what is under way, and begin nothing more."""
        for threads in (self._here, *self._asking.values()):
            threads.shutdown(cancel_futures=True)

    def _threads(self, rank: int) -> ThreadPoolExecutor:
        if rank == self._gatherer.rank:
            return self._here
        if rank not in self._asking:
            self._asking[rank] = ThreadPoolExecutor(1, f"tartan-fetch-{rank}")
        return self._asking[rank]

    def _fill_share(self, key: GatheredRange, rank: int, share: list[PartOrigin]) -> None:
        try:
            self._gatherer.gather(key, rank, share)
        except Exception as error:
            with self._lock:
                self._errors.setdefault(key, error)
        with self._lock:
            self._n_left[key] -= 1
            if self._n_left[key]:
                return
            del self._n_left[key]
            first = self._errors.pop(key, None)
        self._filled(key, first or self._pad(key))

    def _pad(self, key: GatheredRange) -> Exception | None:
        """Complete a range all parts of which are there; return the error, if there is one."""
        try:
            self._gatherer.pad(key)
        except Exception as error:
            return error
        return None
