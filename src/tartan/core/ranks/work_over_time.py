"""How much each rank of a run did in equal parts of the time, in memory that does not grow with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# FIRST_SECONDS and MOST_PARTS, by judgement: reports of ranks come every half second, and a chart is not wider than 128
# columns. No benchmark.
FIRST_SECONDS = 0.5
MOST_PARTS = 128


class RankWork:
    """Adds up pairs by rank and part of the time; parts become longer when there are too many.

    Attributes
    ----------
    seconds : float
        Length of a part.

    Examples
    --------
    >>> work = RankWork()
    >>> work.add("rank-0", 0.2, 10)
    >>> work.add("rank-0", 0.7, 5)
    >>> work.as_dict()
    {'seconds': 0.5, 'pairs': {'rank-0': [10, 5]}}
    """

    def __init__(self) -> None:
        self.seconds = FIRST_SECONDS
        self._pairs: dict[str, list[int]] = {}

    def add(self, rank: str, at_seconds: float, n_pairs: int) -> None:
        """Count pairs of a rank at a time since the begin of the run, which is not negative."""
        while at_seconds >= self.seconds * MOST_PARTS:
            self.seconds *= 2
            self._pairs = {name: _halve(parts) for name, parts in self._pairs.items()}
        parts, part = self._pairs.setdefault(rank, []), int(at_seconds / self.seconds)
        parts.extend([0] * (part + 1 - len(parts)))
        parts[part] += n_pairs

    def as_dict(self) -> Mapping[str, Any]:
        """Return the length of a part and the pairs of every rank in each, as plain values."""
        return {"seconds": self.seconds, "pairs": {name: list(parts) for name, parts in self._pairs.items()}}


def _halve(parts: list[int]) -> list[int]:
    return [sum(parts[k : k + 2]) for k in range(0, len(parts), 2)]
