"""Which of the regions that a rank has not begun go to another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Literal

import numpy as np

from tartan.core.affinity import choose_pieces, marginal
from tartan.core.pairs.region import Region

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
        return marginal(region.needs(), thief, victim) if affinity == "marginal" else 0.0

    def size(region: Region) -> float:
        return float(pairs[region.area].sum())

    taken = choose_pieces(regions, amount, size, cost)
    kept = [region for region in regions if region not in taken]
    amount -= sum(map(size, taken))
    if kept:
        found = [cut for cut in _cuts(kept[-1], amount, pairs) if size(cut[1])]
        if found:
            # The first one where all cost the same.
            rest, tail = min(found, key=lambda cut: cost(cut[1]) / size(cut[1]))
            kept[-1:] = rest
            taken.append(tail)
    return kept, taken


def _cuts(region: Region, amount: float, pairs: np.ndarray) -> Iterator[tuple[list[Region], Region]]:
    """Yield the ways to cut off an end of a region: what stays, and the end.

    The last lines of the stream, with the whole band; the end of the band, with the whole stream; or, where both are
    too much, a part of the last line.
    """
    counts = pairs[region.area] if region.stays == "rows" else pairs[region.area].T
    lines = _count_fitting(counts.sum(axis=0), amount, not region.backwards)
    if lines:
        first, tail = region.cut_stream(len(region.stream) - lines)
        yield [first], tail
    lines = _count_fitting(counts.sum(axis=1), amount, True)
    if lines:
        first, tail = region.cut_band(len(region.band) - lines)
        yield [first], tail
    elif len(region.stream) > 1:
        first, last = region.cut_stream(len(region.stream) - 1)
        lines = _count_fitting(counts[:, 0 if region.backwards else -1], amount, True)
        if lines:
            staying, tail = last.cut_band(len(last.band) - lines)
            yield [first, staying], tail


def _count_fitting(weights: np.ndarray, amount: float, from_end: bool) -> int:
    """Return how many lines from one end fit into an amount; one always stays."""
    sums = np.cumsum(weights[::-1] if from_end else weights)
    return min(int(np.searchsorted(sums, amount, side="right")), len(weights) - 1)
