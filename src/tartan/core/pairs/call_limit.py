"""How long a call of a worker may take before the worker counts as stopped, or its function as endless."""

from __future__ import annotations

# By judgement: models of gigabytes from a cold disk and compilation of kernels take minutes; a quarter of an hour is
# far above that, and little beside the runs that a hang would hold up. No benchmark.
LEAST_SECONDS = 900.0
"""No call is late before, unless the user says so: the first one loads models and compiles kernels."""

# By judgement: a dozen halves of a minute each end within the LEAST_SECONDS that the whole was given. No benchmark.
LEAST_HALF_SECONDS = 60.0
"""Nor is a half of a tile that was late: the way to a guilty pair has a dozen of them."""

# By judgement: pairs of particles took from 2.5 to 15 s in plain SciPy, a factor of six; ten leaves room above that,
# and more would let a hang last. No benchmark.
TIMES_LONGEST = 10.0
"""A call may take so many times as long as the longest one that ended."""


class CallLimit:
    """The longest time that a call may take: what the user says, else it grows with the calls that end.

    A pair that was late alone is tried once more, on another worker, before it fails. That try is the long one: parts
    may be judged quickly on the way to it, and where no call has ended yet, slow pairs show there that they end.

    Parameters
    ----------
    given : float, optional
        Seconds that every call may take, as the user says.
    """

    def __init__(self, given: float | None = None) -> None:
        self.given = given
        self._longest: float | None = None

    @classmethod
    def of(cls, seconds: float | None, *, grows: bool) -> CallLimit | None:
        """Return the limit that an option sets; None: any time.

        Parameters
        ----------
        seconds : float or None
            As the user says; 0: any time; None: the user says nothing.
        grows : bool
            Whether one that grows takes the place of none. Not where calls cannot be stopped: what is late there ends
            the run, and may be slow and right.
        """
        if seconds is None:
            return cls() if grows else None
        return cls(seconds) if seconds else None

    def on_ended(self, seconds: float, n_items: int = 1) -> None:
        """Note that a call ended; of one of several items, what one of them took counts."""
        self._longest = max(self._longest or 0.0, seconds / n_items)

    def seconds(self, n_items: int = 1) -> float:
        """Return how long a call may take: for a tile, or to load some items."""
        if self.given is not None:
            return self.given * n_items
        return max(LEAST_SECONDS, TIMES_LONGEST * (self._longest or 0.0) * n_items)

    @property
    def of_half(self) -> float:
        """How long a part of a tile may take that failed as a whole."""
        if self.given is not None or self._longest is None:
            return self.seconds()
        return max(LEAST_HALF_SECONDS, TIMES_LONGEST * self._longest)

    @property
    def of_last_try(self) -> float:
        """How long a single pair, or item, may take when it is tried for the last time."""
        if self.given is not None:
            return self.given
        return max(self.seconds(), TIMES_LONGEST * self.of_half)
