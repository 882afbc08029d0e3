"""Reading over a network: whatever is asked of a server has a deadline, and is asked again before it fails.

A call that does not return in time is abandoned with the daemon thread that waits for it: file systems of fsspec offer
no other way to leave it.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")
# By judgement: a request costs some ten milliseconds, as long as a megabyte of a fast link; fsspec's own default is
# 5 MiB. No benchmark.
_PIECE_BYTES = 4 << 20
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError, MemoryError)


@dataclass(frozen=True)
class Patience:
    """How long a server may take.

    Attributes
    ----------
    seconds : float
        For an answer of no length, each time it is asked for: a request that was lost is made again, and a server
        that says nothing at all is left after half a minute.
    bytes_per_second : float
        An answer of some length may take as much longer as it takes at this rate.
    tries : int
        How often a location is read before it fails.
    pause_seconds : float
        Between the first two tries; twice as long each time.
    """

    seconds: float = 10.0
    bytes_per_second: float = 100_000.0
    tries: int = 3
    pause_seconds: float = 1.0


def in_time(call: Callable[[], _T], seconds: float) -> _T:
    """Return what a call returns, or raise what it raises.

    Raises
    ------
    TimeoutError
        If it has not returned after so many seconds.
    """
    results: list[_T] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        ended.set()

    threading.Thread(target=run, name="tartan-remote", daemon=True).start()
    if not ended.wait(seconds):
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:.3g} seconds")
    if errors:
        raise errors[0]
    return results[0]


def read_remote(filesystem: Any, path: str, size_bytes: int, max_bytes: int, patience: Patience) -> bytes:
    """Return the content of a remote file; more than ``max_bytes`` only by one byte, where its size was not known.

    Parameters
    ----------
    size_bytes : int
        What the listing said; -1 where it is not known.

    Raises
    ------
    OSError
        If the last try fails: no answer in time, or a connection that was cut.
    Exception
        What the file system raises.
    """
    pause = patience.pause_seconds
    for remaining_tries in reversed(range(patience.tries)):
        try:
            return _read_once(filesystem, path, size_bytes, max_bytes, patience)
        except Exception as error:
            if isinstance(error, TimeoutError) and not remaining_tries and patience.tries > 1:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"{error.strerror or error}, asked {patience.tries} times"
                ) from error
            if not remaining_tries or _is_final(error):
                raise
        time.sleep(pause)
        pause *= 2
    raise OSError(0, "it was not tried")


def _is_final(error: Exception) -> bool:
    """Whether another try would end alike: the server has answered, and refused."""
    status = getattr(error, "status", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return refused or isinstance(error, _FINAL)


def _read_once(filesystem: Any, path: str, size_bytes: int, max_bytes: int, patience: Patience) -> bytes:
    def limit(n_bytes: int) -> float:
        return patience.seconds + n_bytes / patience.bytes_per_second

    if 0 <= size_bytes <= max_bytes:
        data = bytes(in_time(lambda: filesystem.cat_file(path), limit(size_bytes)))
    else:
        data = _read_on(filesystem, path, max_bytes + 1, limit)
    if len(data) < size_bytes:
        raise OSError(0, f"{len(data)} bytes came of {size_bytes}; the connection may have been cut")
    return data


def _read_on(filesystem: Any, path: str, n_bytes: int, limit: Callable[[int], float]) -> bytes:
    """Read to the end, or ``n_bytes``: what comes over a network may come in pieces of any length."""
    file = in_time(lambda: filesystem.open(path, "rb"), limit(0))
    pieces = []
    with file:
        while n_bytes > 0:
            wanted = min(n_bytes, _PIECE_BYTES)
            piece = in_time(lambda wanted=wanted: file.read(wanted), limit(wanted))  # type: ignore[misc]
            if not piece:
                break
            pieces.append(piece)
            n_bytes -= len(piece)
    return b"".join(pieces)
