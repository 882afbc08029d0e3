"""Run calls in threads that do not keep the program from exiting; bound the bytes that wait for them.

A read from a dead mount may never return. The threads of ``concurrent.futures`` are joined when the interpreter
ends, so Ctrl-C would hang there; these threads are daemons.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

# By judgement: a read that hangs in a file system never ends, and the end does not wait for it. No benchmark.
GRACE_SECONDS = 0.5


class DaemonPool:
    """Call functions in a few threads, in the order in which they were submitted.

    Parameters
    ----------
    n_threads : int
    name : str
        Of the threads.

    Notes
    -----
    The queue is not bounded here; the caller limits how much it submits, with a ``ByteBudget`` where bytes count.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}_{number}", daemon=True) for number in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], Any]) -> None:
        """Queue a call whose result is dropped; after ``close``, do nothing."""
        if not self._closed:
            self._calls.put(call)

    def close(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Drop the calls that have not begun, and wait briefly for those that have."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        self.finish(grace_seconds)

    def finish(self, deadline_seconds: float) -> None:
        """Make the queued calls, then end."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        deadline = time.monotonic() + deadline_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class ByteBudget:
    """A limit on bytes that several threads take and give back; one request always passes.

    Parameters
    ----------
    limit_bytes : int
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, n_bytes: int, *, wait: bool = True) -> None:
        """Take bytes, after waiting until they fit, unless the budget is closed."""
        with self._changed:
            while wait and not self._closed and not self._fits(n_bytes):
                self._changed.wait()
            self._used += n_bytes

    def offer(self, n_bytes: int) -> bool:
        """Take bytes if they fit at once; return whether they did."""
        with self._changed:
            fits = self._fits(n_bytes)
            self._used += n_bytes if fits else 0
            return fits

    def give(self, n_bytes: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._used -= n_bytes
            self._changed.notify_all()

    def close(self) -> None:
        """Let nothing wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, n_bytes: int) -> bool:
        return not self._used or self._used + n_bytes <= self._limit


# Values that are made while the ones before them are used.

S = TypeVar("S")
T = TypeVar("T")


def ahead(values: Iterator[T]) -> Generator[T, None, None]:
    """Yield values; while one is used, a thread makes the next. What it raises is raised in its place."""
    end = object()
    with ThreadPoolExecutor(1, "tartan-ahead") as thread:
        coming = thread.submit(next, values, end)
        while (value := coming.result()) is not end:
            coming = thread.submit(next, values, end)
            yield value  # type: ignore[misc]  # not the end


def map_ahead(work: Callable[[S], T], values: Iterable[S], n_threads: int) -> Generator[T, None, None]:
    """Yield what is made of values, in their order; while one is used, threads make the next ones.

    As many as there are threads are made ahead. What is raised, by the work or by the values, is raised in its place:
    behind all that comes before it.

    Parameters
    ----------
    work : callable
        Called from several threads at a time.
    values : iterable
        Taken in the thread of the caller.
    n_threads : int
    """
    coming: deque[Future[T]] = deque()
    with ThreadPoolExecutor(n_threads, "tartan-map") as threads:
        try:
            wanted = iter(values)
            failure: Exception | None = None
            while True:
                try:
                    value = next(wanted)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                    break
                coming.append(threads.submit(work, value))
                if len(coming) > n_threads:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
            if failure is not None:
                raise failure
        finally:
            for future in coming:
                future.cancel()
