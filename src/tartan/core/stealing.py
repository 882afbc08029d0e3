"""Which of the regions that a rank has not begun go to another one."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

import numpy as np

from tartan.core.affinity import chosen, marginal
from tartan.core.region import Region

Affinity = Literal["marginal", "none"]


def split_off(
    regions: Sequence[Region],
    amount: float,
    pairs: np.ndarray,
    *,
    thief: Set[int] = frozenset(),
    victim: Set[int] = frozenset(),
    affinity: Affinity = "marginal",
) -> tuple[list[Region], list[Region]]:
    """Divide the regions of a victim in two.

    Parameters
    ----------
    regions : sequence of Region
        In the order in which the victim will come to them.
    amount : float
        Pairs that should go; never more do.
    pairs : ndarray of int64, shape (n_chunks, n_chunks)
        Pairs to be computed in each chunk.
    thief, victim : set of int
        Chunk lines whose items each holds.
    affinity : {"marginal", "none"}
        Whether those go first that cost the thief least and save the victim most, or simply the last.

    Returns
    -------
    kept, taken : list of Region
        In their order. Whole regions are taken, and the end of the last one that stays.
    """

    def cost(region: Region) -> float:
        return marginal(dict.fromkeys(region.needs(), 1.0), thief, victim) if affinity == "marginal" else 0.0

    def size(region: Region) -> float:
        return float(pairs[region.area].sum())

    taken = chosen(regions, amount, size, cost)
    kept = [region for region in regions if region not in taken]
    amount -= sum(map(size, taken))
    if kept:
        rest, tail = _cut_tail(kept[-1], amount, pairs)
        kept[-1:] = rest
        taken += tail
    return kept, taken


def _cut_tail(region: Region, amount: float, pairs: np.ndarray) -> tuple[list[Region], list[Region]]:
    """Cut off the last lines of a stream; where one line is too much, a part of it."""
    first, last = region, region
    lines = _fitting(pairs[region.area].sum(axis=0 if region.stays == "rows" else 1), amount, not region.backwards)
    if lines:
        first, tail = region.cut_stream(len(region.stream) - lines)
        return [first], [tail]
    rest: list[Region] = []
    if len(region.stream) > 1:
        first, last = region.cut_stream(len(region.stream) - 1)
        rest = [first]
    lines = _fitting(pairs[last.area].sum(axis=1 if region.stays == "rows" else 0), amount, True)
    if not lines:
        return [region], []
    staying, tail = last.cut_band(len(last.band) - lines)
    return [*rest, staying], [tail]


def _fitting(weights: np.ndarray, amount: float, from_end: bool) -> int:
    """Return how many lines from one end fit into an amount; one always stays."""
    sums = np.cumsum(weights[::-1] if from_end else weights)
    return min(int(np.searchsorted(sums, amount, side="right")), len(weights) - 1)
