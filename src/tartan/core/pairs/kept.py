"""When a run that keeps what is beyond a threshold keeps too much: predicted while it computes, and judged.

What is kept of the first pairs says little of the others: near duplicates often lie together, and at the front. It only
gives reason for doubt. Pairs of items from all over the run then decide, unless what fits is so small a share that such
a sample cannot tell; what a tenth of the run has kept decides that.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.core.pairs.workload import Candidates, Rectangle, Workload

# SMALL_BYTES and SMALL_SHARE, by judgement: nobody is surprised by a gigabyte, or by a tenth of a nearly full disk. No
# benchmark.
SMALL_BYTES = 10**9
"""Results below are never refused where they take at most a tenth of the free disk."""
SMALL_SHARE = 0.1

# By judgement: between the two shares below, which are what files of runs add up to.
RESULT_OF_PARTS = 1.25
"""Bytes of the merged result for a byte of parts, which stay: 1.04 where all is kept, 1.4 where 1 % is."""

# By arithmetic: a count of ten has a standard error of a third (Poisson), enough to tell a run that fits from one that
# does not.
RESOLVED = 10
"""Pairs of a sample that must be beyond a threshold before their number says anything."""

# By judgement: chunks come in order, not at random, so a smaller part may be of one kind of items; a larger one comes
# too late to save the disk. No benchmark.
TRUSTED_SHARE = 0.1
"""Of the pairs of a run: what is kept of so many is taken for what is kept of all."""

Groups = list[tuple[int, ...]]


class KeptSoFar(NamedTuple):
    """What is kept of some pairs or triples.

    Attributes
    ----------
    n_pairs : int
        How many were compared.
    n_rows : int
        Kept scores.
    n_bytes : int
        Of their parts on disk.
    """

    n_pairs: int = 0
    n_rows: int = 0
    n_bytes: int = 0

    def __add__(self, other: Any) -> KeptSoFar:
        return KeptSoFar(*(mine + its for mine, its in zip(self, other, strict=True)))


class KeptForecast(NamedTuple):
    """What a run would keep.

    Attributes
    ----------
    share : float
        Of all scores.
    n_rows : int
        Kept scores.
    n_bytes : int
        Of parts and result of the finished run.
    bound, bound_share : float or None
        A threshold that keeps less, and the share that it keeps; None where none is known.
    """

    share: float
    n_rows: int
    n_bytes: int
    bound: float | None = None
    bound_share: float | None = None


@dataclass(frozen=True)
class KeptLimits:
    """What a run may keep.

    Attributes
    ----------
    n_pairs : int
        Pairs or triples of the run.
    bound : float
        The threshold, as scores have it.
    largest : bool
        Whether scores above it are kept.
    matrix_bytes : int or None
        Of the whole matrix; None where there could be none.
    scores_a_pair : int
        2 where (i, j) and (j, i) are two scores of one pair.
    """

    n_pairs: int
    bound: float
    largest: bool
    matrix_bytes: int | None = None
    scores_a_pair: int = 1

    @property
    def n_scores(self) -> int:
        """Scores of the whole run."""
        return self.n_pairs * self.scores_a_pair

    def always_fits(self, row_bytes: int, free_bytes: int) -> bool:
        """Whether the run is small even if it keeps everything, and nothing of its rows can be compressed."""
        return self.n_scores * row_bytes * (1 + RESULT_OF_PARTS) < self._small(free_bytes)

    def most_share(self, kept: KeptSoFar, free_bytes: int) -> float:
        """Return the share of the scores to come that may be kept; infinite while nothing is kept."""
        left = (self.n_pairs - kept.n_pairs) * self.scores_a_pair
        if not kept.n_rows or left <= 0:
            return math.inf
        limit = free_bytes if self.matrix_bytes is None else min(free_bytes, self.matrix_bytes)
        # What is small counts as a whole, with what is there already; all else by what is still to be written.
        more = max(limit, self._small(free_bytes) - kept.n_bytes) - RESULT_OF_PARTS * kept.n_bytes
        return max(0.0, more) / (kept.n_bytes / kept.n_rows * (1 + RESULT_OF_PARTS) * left)

    def is_doubtful(self, kept: KeptSoFar, free_bytes: int) -> bool:
        """Whether a run that goes on as it began keeps too much."""
        return self._rate(kept) > self.most_share(kept, free_bytes)

    def judge(self, kept: KeptSoFar, free_bytes: int, scores: NDArray[np.float64]) -> KeptForecast | None:
        """Judge a doubtful run.

        Parameters
        ----------
        kept : KeptSoFar
            So far.
        free_bytes : int
            On the disk.
        scores : float64 array
            Of pairs from all over the run; NaN where there is none.

        Returns
        -------
        KeptForecast or None
            None if the run may go on.
        """
        most = self.most_share(kept, free_bytes)
        beyond = int(np.count_nonzero(self._beyond(scores, self.bound)))
        if beyond >= RESOLVED and beyond > most * len(scores):
            return self._forecast(kept, beyond / len(scores), scores, most)
        if most * len(scores) >= RESOLVED or kept.n_pairs < TRUSTED_SHARE * self.n_pairs:
            return None
        return self._forecast(kept, self._rate(kept), scores, most) if self.is_doubtful(kept, free_bytes) else None

    def _small(self, free_bytes: int) -> float:
        return min(SMALL_BYTES, SMALL_SHARE * free_bytes)

    def _rate(self, kept: KeptSoFar) -> float:
        return kept.n_rows / max(1, kept.n_pairs * self.scores_a_pair)

    def _beyond(self, scores: NDArray[np.float64], bound: float) -> NDArray[np.bool_]:
        return scores >= bound if self.largest else scores <= bound

    def _forecast(self, kept: KeptSoFar, share: float, scores: NDArray[np.float64], most: float) -> KeptForecast:
        left = (self.n_pairs - kept.n_pairs) * self.scores_a_pair
        n_rows = kept.n_rows + round(share * left)
        n_bytes = round(kept.n_bytes / kept.n_rows * (1 + RESULT_OF_PARTS) * n_rows)
        return KeptForecast(n_rows / self.n_scores, n_rows, n_bytes, *self._stricter(scores, most))

    def _stricter(self, scores: NDArray[np.float64], most: float) -> tuple[float | None, float | None]:
        """Return a threshold of three digits that keeps at most half of what is allowed, and what it keeps."""
        good = np.sort(scores[np.isfinite(scores)])
        rank = int(min(most, 1.0) * len(scores) / 2)
        if rank < RESOLVED or rank > len(good):
            return None, None
        bound = _round(float(good[-rank] if self.largest else good[rank - 1]), up=self.largest)
        beyond = int(np.count_nonzero(self._beyond(scores, bound)))
        # Of scores that are all alike none may be left, or all.
        return (bound, beyond / len(scores)) if 0 < beyond <= most * len(scores) else (None, None)


def sample_groups(workload: Workload, most_items: int, arity: int = 2) -> Groups:
    """Choose pairs or triples from all over a run, without a pattern, in random order; the same ones every time.

    Evenly spaced items would not do: where every fourth is alike, all of them may be.
    """
    chance = np.random.default_rng(workload.n_items)
    if isinstance(workload, Candidates):
        listed = workload.pairs.reshape(-1, 2)
        chosen = chance.permutation(len(listed))[: max(1, most_items // 2)]
        return [(min(pair), max(pair)) for pair in listed[chosen].tolist()]
    if isinstance(workload, Rectangle):
        sides = (_some(chance, side, most_items // 2) for side in (workload.rows(), workload.columns()))
        groups: Groups = list(itertools.product(*sides))
    else:
        groups = list(itertools.combinations(_some(chance, range(workload.n_items), most_items), arity))
    return [groups[place] for place in chance.permutation(len(groups))]


def _some(chance: np.random.Generator, items: range, most: int) -> list[int]:
    chosen: list[int] = (items.start + chance.choice(len(items), min(most, len(items)), replace=False)).tolist()
    return sorted(chosen)


def _round(value: float, *, up: bool) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    steps = math.ceil(value / step) if up else math.floor(value / step)
    return float(f"{steps * step:.3g}")
