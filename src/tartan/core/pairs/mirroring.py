"""Whether scores of one way may stand for both: what finding out may cost, and which scores differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# By judgement: an asymmetric function shows at the first pair or two as a rule; sixteen find one that errs for a fifth
# of its pairs with 97 %. No benchmark.
MOST_MIRRORED = 16
"""Pairs that are compared both ways before a run."""

# By judgement: a hundredth of a run is below what its time varies by. No benchmark.
MIRRORED_SHARE = 0.01
"""Of the time that all pairs take, and of that in which all items are loaded."""

# FREE_COMPARE_SECONDS and FREE_LOAD_SECONDS, by judgement: less than a command takes to start (`tartan bench vectors`:
# 0.6 s). No benchmark.
FREE_COMPARE_SECONDS = 0.1
FREE_LOAD_SECONDS = 0.5
"""What is spent in any case: short runs are looked at, too."""

# By judgement: as long as a user waits before a line of progress should have come; as SAMPLE_SECONDS and LOOK_SECONDS
# of a run. No benchmark.
LONGEST_SECONDS = 20.0
"""After that no other pair is begun, however long the run: nothing else is done meanwhile."""

# TRUSTED_PAIRS and TRUSTED_SECONDS, by judgement: runs of 200 pairs measure several calls before; a model takes about a
# second to load. No benchmark.
TRUSTED_PAIRS = 200
TRUSTED_SECONDS = 1.0
"""In runs of fewer pairs one call was measured. Where it was shorter, it may be the first alone that takes as long."""

# RELATIVE by arithmetic: sums of thousands of float32 products in another order differ by some 1e-6; ten times that.
RELATIVE = 1e-5
# By arithmetic: 16 times the rounding of float32, 6e-8.
ROUNDING = 1e-6
"""Of the largest score: what rounding may leave of differences of large numbers."""


@dataclass(frozen=True)
class MirrorLimits:
    """Seconds that comparing some pairs both ways, and all else, such as loading items, may take; 0: none may be."""

    compare_seconds: float
    load_seconds: float


def allow_mirrored(
    n_pairs: int, pair_seconds: float, n_items: int, item_seconds: float, n_workers: int, *, elsewhere: bool = False
) -> MirrorLimits:
    """Say what comparing some pairs of a run both ways may cost.

    Parameters
    ----------
    n_pairs, pair_seconds
        Of the run, and what one takes on a worker, as far as is known.
    n_items, item_seconds
        The same of items.
    n_workers : int
        That share the work of the run, while one of them compares both ways.
    elsewhere : bool
        Whether pairs are compared on devices with memory of their own: what one takes there is not known.
    """
    if n_pairs < TRUSTED_PAIRS and pair_seconds <= TRUSTED_SECONDS:
        pair_seconds = 0.0
    most_pairs = 0 if elsewhere else n_pairs / n_workers
    return MirrorLimits(
        _compute_allowed(FREE_COMPARE_SECONDS, most_pairs, pair_seconds),
        _compute_allowed(FREE_LOAD_SECONDS, n_items / n_workers, item_seconds),
    )


def _compute_allowed(free: float, count: float, seconds: float) -> float:
    """Return a hundredth of what all take, at least what is free; 0 if two of them take longer."""
    share = min(MIRRORED_SHARE * count * seconds, max(LONGEST_SECONDS, 2 * seconds))
    allowed = max(free, share)
    return allowed if 2 * seconds <= allowed else 0.0


def first_difference(scores: Sequence[tuple[complex, complex]], epsilon: float) -> int | None:
    """Return which pair has two scores that differ by more than rounding, None if no pair has.

    Parameters
    ----------
    scores : sequence of (number, number)
        Of a pair one way and the other.
    epsilon : float
        Between 1 and the next number of their type.
    """
    largest = max((abs(one) for pair in scores for one in pair if np.isfinite(one)), default=0.0)
    relative = max(RELATIVE, 4 * epsilon)
    for number, (one, other) in enumerate(scores):
        if one == other:
            continue
        if not (np.isfinite(one) and np.isfinite(other)):
            return number
        if abs(one - other) > max(relative * max(abs(one), abs(other)), ROUNDING * largest):
            return number
    return None
