"""Applications that fail on command, each in one way, and are right everywhere else.

Every item is one number: a Python or NumPy number, or bytes that hold its decimal text. The score of two items is
``|a - b|`` (float64 arithmetic, exact for small whole numbers; stored as float32). Faults are tied to item keys:

- stage "parse" and "preprocess": the item of each key in ``keys`` is at fault;
- stage "compare": a *pair* is at fault when both of its items are in ``keys``, so that two keys make one guilty
  pair, which a runtime can find by halving tiles. With a single key every pair of that item is at fault, without
  keys every pair.

The stored form of an item is a float64 array of shape (2,): the number, and 1.0 when its key is in ``keys``.
All of them are symmetric, picklable, and written against ``xp``, and run on every device.
``once=PATH`` in those that have it makes the fault happen a single time in all processes: the first to create the
file PATH fails, later calls succeed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tartan.application import Application
from tartan.errors import DeviceMemoryError

__all__ = [
    "Distances",
    "HangsOn",
    "InjectedError",
    "NaNOn",
    "OomOn",
    "RaisesOn",
    "SegfaultOn",
    "TypoCompare",
    "WrongShape",
]

_STAGES = ("parse", "preprocess", "compare")


class InjectedError(RuntimeError):
    """The error that RaisesOn raises."""


class Distances(Application):
    """The healthy one: ``|a - b|``, no fault.

    Parameters
    ----------
    keys : iterable of str, or comma-separated text
        Keys of the items at fault; see the module.
    """

    name = None

    def __init__(self, keys: Iterable[str] | str = ()) -> None:
        self.keys = tuple(filter(None, keys.split(","))) if isinstance(keys, str) else tuple(map(str, keys))

    def parse(self, key: str, data: Any) -> np.ndarray:
        """Return (number, at fault) as float64 of shape (2,)."""
        return np.array([float(data), key in self.keys], np.float64)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return the (m, k) distances of (m, 2) and (k, 2) items."""
        return xp.abs(left[:, None, 0] - right[None, :, 0])

    def guilty(self, left: Any, right: Any) -> Any:
        """Return which pairs of a tile are at fault: bool of shape (m, k)."""
        flags = left[:, None, 1] + right[None, :, 1]
        return flags >= min(len(self.keys), 2)


class _StageFault(Distances):
    """A fault that happens in one stage, when an item or pair at fault comes by."""

    def __init__(self, keys: Iterable[str] | str, *, stage: str = "compare", once: str | None = None) -> None:
        super().__init__(keys)
        if stage not in _STAGES:
            raise ValueError(f"stage {stage!r} is not one of {', '.join(_STAGES)}")
        self.stage = stage
        self.once = once

    def parse(self, key: str, data: Any) -> np.ndarray:
        if self.stage == "parse" and key in self.keys:
            self._strike(key)
        return super().parse(key, data)

    def preprocess(self, item: Any, xp: Any) -> Any:
        if self.stage == "preprocess" and bool(item[1] > 0):
            self._strike(str(float(item[0])))
        return item

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        if self.stage == "compare" and bool(xp.any(self.guilty(left, right))):
            self._strike(" and ".join(self.keys))
        return super().compare(left, right, xp)

    def _strike(self, what: str) -> None:
        if self.once is not None and not _first(self.once):
            return
        self.fail(what)

    def fail(self, what: str) -> None:
        """Do what this fault is."""
        raise NotImplementedError


def _first(path: str) -> bool:
    """Create a file; False when somebody already has."""
    try:
        with Path(path).open("x"):
            return True
    except FileExistsError:
        return False


class RaisesOn(_StageFault):
    """Raises InjectedError for the items or pairs at fault.

    Examples
    --------
    >>> app = RaisesOn("3", stage="parse")
    >>> app.parse("2", 5.0)
    array([5., 0.])
    """

    def fail(self, what: str) -> NoReturn:
        raise InjectedError(f"injected failure in {self.stage} of {what}")


class SegfaultOn(_StageFault):
    """Kills its process by SIGSEGV, as a defect in native code would. Never use it in the process of a test."""

    def fail(self, what: str) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)
        threading.Event().wait()  # the signal may arrive in another thread


class HangsOn(_StageFault):
    """Does not return, without using the processor, with the interpreter lock released.

    Parameters
    ----------
    seconds : float
        It gives up after that, so that a broken test ends.
    """

    def __init__(
        self,
        keys: Iterable[str] | str,
        *,
        stage: str = "compare",
        once: str | None = None,
        seconds: float = 600.0,
    ) -> None:
        super().__init__(keys, stage=stage, once=once)
        self.seconds = seconds

    def fail(self, what: str) -> None:
        self.wait(self.seconds)

    def wait(self, seconds: float) -> None:
        """Do nothing for a time."""
        threading.Event().wait(seconds)


class NaNOn(Distances):
    """Returns NaN for the pairs at fault."""

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        scores = super().compare(left, right, xp)
        return xp.where(self.guilty(left, right), xp.full_like(scores, xp.nan), scores)


class WrongShape(Distances):
    """Returns one column too many for tiles with a pair at fault."""

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        scores = super().compare(left, right, xp)
        if bool(xp.any(self.guilty(left, right))):
            return xp.concat([scores, scores[:, :1]], axis=1)
        return scores


class TypoCompare(Distances):
    """Has a misspelt name in compare: every call raises NameError."""

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(lefft[:, None, 0] - right[None, :, 0])  # type: ignore[name-defined]  # noqa: F821


class OomOn(Distances):
    """Runs out of device memory for tiles of more than ``max_pairs`` pairs.

    Parameters
    ----------
    max_pairs : int
        The largest tile that works; 0 fails always.
    """

    def __init__(self, max_pairs: int) -> None:
        super().__init__()
        self.max_pairs = max_pairs

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        n_pairs = len(left) * len(right)
        if n_pairs > self.max_pairs:
            raise DeviceMemoryError(f"injected: {n_pairs} pairs, {self.max_pairs} fit", retryable=True)
        return super().compare(left, right, xp)
