"""Bytes that may be in memory between two stages."""

from __future__ import annotations

import threading

__all__ = ["ByteBudget"]


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
        """Take bytes, after waiting until there is room for them, unless the budget is closed."""
        with self._changed:
            while wait and not self._closed and not self._has_room(n_bytes):
                self._changed.wait()
            self._used += n_bytes

    def offer(self, n_bytes: int) -> bool:
        """Take bytes if there is room at once; return whether there was."""
        with self._changed:
            room = self._has_room(n_bytes)
            self._used += n_bytes if room else 0
            return room

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

    def _has_room(self, n_bytes: int) -> bool:
        return not self._used or self._used + n_bytes <= self._limit
