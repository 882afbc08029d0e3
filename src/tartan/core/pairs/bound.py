"""The bounds on loads: with room for S items, one load enables at most S - 1 new pairs.

On several ranks there are two counts. R: items loaded from storage, anywhere, over the items of the run; its bound is
that of one rank with the room of all. F: host slots filled, from storage or from another rank, over the items; its
bound is a sum over the ranks, of what each computed. On one rank without a disk level R and F are the same, and so are
their bounds, where not everything fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tartan.core.pairs.workload import Workload
from tartan.errors import ConfigError


def loads_bound(n_items: int, n_pairs: int, slots: float) -> float:
    """Return the least number of loads that any order needs.

    Parameters
    ----------
    n_items : int
        Items that occur in a wanted pair; each is loaded at least once.
    n_pairs : int
        Wanted pairs, each unordered pair once.
    slots : float
        Room of the host level, in items (a mean where items differ in size).

    Notes
    -----
    The first S loads fill the cache and enable at most S(S - 1)/2 pairs; each further load at most S - 1. So
    ``L_min = max(n, S/2 + n_pairs / (S - 1))``.
    """
    if slots < 2:
        raise ConfigError(f"a cache of {slots:g} items cannot hold a pair; give room for at least 2")
    return max(float(n_items), slots / 2 + n_pairs / (slots - 1))


def workload_bound(workload: Workload, slots: float) -> float:
    """Return R_min of a workload, in loads per item of the run.

    Items that occur in no wanted pair need no load, and pairs of an item with itself no second one.
    """
    n = workload.n_occurring
    if n < 2:
        return n / workload.n_items
    return loads_bound(n, workload.n_mixed_pairs, max(2, min(slots, n))) / workload.n_items


def fills_bound(n_pairs: int, slots: float) -> float:
    """Return the least number of fills with which a rank of so many slots computes some pairs.

    Notes
    -----
    k items make at most k(k - 1)/2 pairs, so S slots filled once are enough for S(S - 1)/2 of them; each further pair
    costs as in ``loads_bound``.
    """
    if slots < 2:
        raise ConfigError(f"a cache of {slots:g} items cannot hold a pair; give room for at least 2")
    if n_pairs <= 0:
        return 0.0
    if n_pairs <= slots * (slots - 1) / 2:
        return (1 + sqrt(1 + 8 * n_pairs)) / 2
    return slots / 2 + n_pairs / (slots - 1)


def cluster_loads_bound(n_items: int, n_pairs: int, slots: Sequence[float]) -> float:
    """Return the least number of loads from storage on several ranks: that of one rank with the room of all.

    Parameters
    ----------
    n_items, n_pairs : int
        As in ``loads_bound``.
    slots : sequence of float
        Host slots of each rank.
    """
    return loads_bound(n_items, n_pairs, min(sum(slots), max(2, n_items)))


def cluster_fills_bound(n_items: int, ranks: Sequence[tuple[int, float]]) -> float:
    """Return the least number of fills, from storage or from another rank, on several ranks.

    Parameters
    ----------
    n_items : int
        Items that occur in a wanted pair.
    ranks : sequence of (int, float)
        Pairs that each rank computed, and its host slots. Work that was stolen counts where it was computed.
    """
    return max(float(n_items), sum(fills_bound(n_pairs, slots) for n_pairs, slots in ranks if n_pairs))
