"""The bound on loads: with room for S items, one load enables at most S - 1 new pairs."""

from __future__ import annotations

from tartan.core.workload import Workload
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


def load_factor_bound(n_items: int, n_pairs: int, slots: float) -> float:
    """Return R_min, the bound on loads per item."""
    return loads_bound(n_items, n_pairs, slots) / n_items if n_items else 0.0


def workload_bound(workload: Workload, slots: float) -> float:
    """Return R_min of a workload, in loads per item of the run.

    Items that occur in no wanted pair need no load, and pairs of an item with itself no second one.
    """
    n = workload.n_occurring
    if n < 2:
        return n / workload.n_items
    return loads_bound(n, workload.n_mixed_pairs, max(2, min(slots, n))) / workload.n_items
