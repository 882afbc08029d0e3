"""Things into groups at the least sum of costs, with bounds on the number in each group.

The start is greedy by regret: things that lose most in their second best group choose first. Then things change groups
along cycles that lower the sum, until there is none: a minimum-cost flow. With more than ``EXACT_GROUPS`` groups, or
after a number of cycles, what is there then is returned: a good division, not the best.
"""

from __future__ import annotations

import numpy as np

# By judgement: the cheapest cycles among g groups take g**3 steps, 262,144 here, for each improvement; more ranks get
# the greedy start. No benchmark.
EXACT_GROUPS = 64
#: Entries of the table of costs that all cycles together may look at.
#: By judgement: a fraction of a second of NumPy; a task that needs more keeps a division that is good, not the best. No
#: benchmark.
MOST_WORK = 20_000_000


def transport(costs: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Divide things among groups.

    Parameters
    ----------
    costs : ndarray of float64, shape (n_things, n_groups)
        Finite.
    low, high : ndarray of int, shape (n_groups,)
        Least and largest number of things in each group; the sums enclose ``n_things``.

    Returns
    -------
    ndarray of int64, shape (n_things,)
        The group of each thing; a function of the arguments alone.
    """
    groups = by_regret(costs, low, high)
    if costs.shape[1] <= EXACT_GROUPS and costs.shape[1] > 1 and len(costs):
        _improve(costs, low, high, groups)
    return groups


def by_regret(costs: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Divide things greedily; arguments and result as those of ``transport``."""
    groups = np.full(len(costs), -1, dtype=np.int64)
    for free in (low, high - low):
        _fill(costs, groups, np.array(free, dtype=np.int64))
    return groups


def _fill(costs: np.ndarray, groups: np.ndarray, free: np.ndarray) -> None:
    """Put things that have no group yet into what is free, until there is no thing or nothing free."""
    left = np.flatnonzero(groups < 0)
    while len(left) and free.any():
        open_groups = np.flatnonzero(free)
        here = costs[np.ix_(left, open_groups)]
        best = here.argmin(axis=1)
        least = here[np.arange(len(left)), best]
        if len(open_groups) > 1:
            here[np.arange(len(left)), best] = np.inf
            regret = here.min(axis=1) - least
        else:
            regret = -least
        order = np.lexsort((-regret, best))
        counts = np.bincount(best, minlength=len(open_groups))
        turns = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        taken = order[turns < free[open_groups][best[order]]]
        groups[left[taken]] = open_groups[best[taken]]
        free[open_groups] -= np.bincount(best[taken], minlength=len(open_groups))
        left = np.delete(left, taken)


def _improve(costs: np.ndarray, low: np.ndarray, high: np.ndarray, groups: np.ndarray) -> None:
    """Send things around cycles of groups, as long as that lowers the sum of costs."""
    n_groups = costs.shape[1]
    counts = np.bincount(groups, minlength=n_groups)
    floor = -1e-9 * max(1e-300, float(np.abs(costs).max()))
    for _ in range(max(1, MOST_WORK // costs.size)):
        steps, movers = cheapest_moves(costs - costs[np.arange(len(costs)), groups][:, None], groups, counts)
        cycle = negative_cycle(with_slack(steps, counts > low, counts < high), floor)
        if not cycle:
            return
        moves = [(movers[a, b], b) for a, b in zip(cycle, [*cycle[1:], cycle[0]]) if n_groups not in (a, b)]
        for thing, group in moves:
            counts[groups[thing]] -= 1
            counts[group] += 1
            groups[thing] = group


def cheapest_moves(change: np.ndarray, groups: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find for every two groups the thing that goes from one to the other at the least cost.

    Parameters
    ----------
    change : ndarray of float64, shape (n_things, n_groups)
        What it would cost to put a thing into a group.
    groups : ndarray of int, shape (n_things,)
    counts : ndarray of int, shape (n_groups,)

    Returns
    -------
    steps : ndarray of float64, shape (n_groups, n_groups)
        The cost; infinite from an empty group, and to the same group.
    movers : ndarray of int, shape (n_groups, n_groups)
        The thing.
    """
    n_groups = len(counts)
    steps = np.full((n_groups, n_groups), np.inf)
    movers = np.zeros((n_groups, n_groups), dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(counts)
    for group in np.flatnonzero(counts):
        mine = order[ends[group] - counts[group] : ends[group]]
        at = change[mine].argmin(axis=0)
        movers[group] = mine[at]
        steps[group] = change[movers[group], np.arange(n_groups)]
    np.fill_diagonal(steps, np.inf)
    return steps, movers


def with_slack(steps: np.ndarray, may_lose: np.ndarray, may_gain: np.ndarray) -> np.ndarray:
    """Add a group through which a cycle may end one group larger and another one smaller.

    Returns
    -------
    ndarray of float64, shape (n_groups + 1, n_groups + 1)
    """
    n_groups = len(steps)
    found = np.full((n_groups + 1, n_groups + 1), np.inf)
    found[:-1, :-1] = steps
    found[-1, :-1][may_lose] = 0.0
    found[:-1, -1][may_gain] = 0.0
    return found


def negative_cycle(steps: np.ndarray, floor: float) -> list[int]:
    """Return nodes around a cycle whose steps sum to less than ``floor``; none if there is no such cycle."""
    n = len(steps)
    distance, before = np.zeros(n), np.full(n, -1)
    for _ in range(n + 1):
        through = distance[:, None] + steps
        first = through.argmin(axis=0)
        nearer = through[first, np.arange(n)]
        # A cycle has at most n steps, so one of it falls by its share of the floor; what falls by less is rounding.
        changed = nearer < distance + floor / n
        if not changed.any():
            return []
        before[changed], distance = first[changed], np.where(changed, nearer, distance)
        # A cycle may close among the predecessors before n rounds are over.
        cycle = _cycle_in(before)
        if cycle:
            return cycle
    return []


def _cycle_in(before: np.ndarray) -> list[int]:
    """Return a cycle of the graph in which every node points to the one before it, or none."""
    seen = np.zeros(len(before), dtype=np.int64)
    for start in range(len(before)):
        node, path = start, []
        while node >= 0 and not seen[node]:
            seen[node] = start + 1
            path.append(node)
            node = int(before[node])
        if node >= 0 and seen[node] == start + 1 and node in path:
            return path[path.index(node) :][::-1]
    return []
