"""Several ranks in the threads of one process: the communicator that tests the distributed form of an algorithm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tartan.comm.communicator import (
    Communicator,
    Operation,
    fold_by,
    join_operation,
    name_operation,
    require_operation,
    require_root,
)
from tartan.errors import InternalError, RankLostError

__all__ = ["Loopback", "run_ranks"]

T = TypeVar("T")
# By judgement: a function of a test or an example that waits longer hangs. No benchmark.
_PATIENCE_SECONDS = 60.0


class _Meeting:
    """State that the ranks share: a place for the array of each, and a barrier that breaks when one fails."""

    def __init__(self, size: int, patience_seconds: float) -> None:
        self.places: list[tuple[str, NDArray[Any]] | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=patience_seconds)


class Loopback:
    """One rank of ``run_ranks``."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting

    def all_gather(self, rows: NDArray[Any], *, shared: bool = False) -> NDArray[Any]:
        """Return the rows of all ranks, one below the other."""
        return self._exchange("all_gather", rows, np.concatenate)

    def all_reduce(self, array: NDArray[Any], op: Operation = "sum") -> NDArray[Any]:
        """Return what the arrays of the ranks make, taken in their order."""
        require_operation(op, np.asarray(array).dtype)
        call = f"all_reduce {name_operation(op)}"
        if callable(op):
            return self._exchange(call, array, lambda arrays: fold_by(op, arrays))
        join = join_operation(op)
        return self._exchange(call, array, lambda arrays: _fold(join, arrays))

    def broadcast(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return the array of one rank."""
        require_root(root, self.size)
        return self._exchange(f"broadcast {root}", array, lambda arrays: arrays[root].copy())

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._exchange("barrier", np.empty(0), lambda arrays: arrays[0])

    def _exchange(
        self, call: str, array: NDArray[Any], join: Callable[[list[NDArray[Any]]], NDArray[Any]]
    ) -> NDArray[Any]:
        meeting = self._meeting
        meeting.places[self.rank] = (call, np.array(array))
        self._wait()
        given = [place for place in meeting.places if place is not None]
        calls = [name for name, _ in given]
        if len(set(calls)) > 1:
            raise InternalError(f"the ranks call different functions: {', '.join(calls)}")
        result = join([values for _, values in given])
        self._wait()  # no rank writes its place again before all have read
        return result

    def _wait(self) -> None:
        try:
            self._meeting.barrier.wait()
        except threading.BrokenBarrierError:
            raise RankLostError(f"rank {self.rank} waits for a rank that has failed or has ended") from None


def run_ranks(
    size: int, function: Callable[[Communicator], T], *, patience_seconds: float = _PATIENCE_SECONDS
) -> list[T]:
    """Run a function once for each rank, at the same time, and return what they returned.

    Parameters
    ----------
    size : int
        Number of ranks.
    function : callable
        Takes the communicator of its rank.
    patience_seconds : float
        How long a rank waits for the others before all of them give up.

    Raises
    ------
    Exception
        What the first failed rank (by number) has raised; ranks that only waited for it do not count.

    Examples
    --------
    >>> run_ranks(3, lambda ranks: int(ranks.all_reduce(np.array([ranks.rank]))[0]))
    [3, 3, 3]
    """
    meeting = _Meeting(size, patience_seconds)

    def ranked(rank: int) -> T:
        try:
            ranks = Loopback(rank, size, meeting)
            result = function(ranks)
            ranks._exchange("the end", np.empty(0), lambda arrays: arrays[0])  # a rank that still calls fails
        except BaseException:
            meeting.barrier.abort()
            raise
        return result

    with ThreadPoolExecutor(size, thread_name_prefix="rank") as pool:
        calls = [pool.submit(ranked, rank) for rank in range(size)]
        errors = [call.exception() for call in calls]
    causes = [error for error in errors if error is not None]
    for error in sorted(causes, key=lambda error: isinstance(error, RankLostError)):
        raise error
    return [call.result() for call in calls]


def _fold(join: Callable[..., NDArray[Any]], arrays: list[NDArray[Any]]) -> NDArray[Any]:
    result = arrays[0].copy()
    for array in arrays[1:]:
        result = join(result, array)
    return result
