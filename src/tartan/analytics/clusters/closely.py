"""Items left alone, placed in large groups by a closer look at them than pairs were compared by.

The application has a slower and clearer pattern of an item than the one that all pairs are compared by. Of a large
group G the patterns of its members are added up to F, and T = correlation of an item with F times the root of its size.
T of items of one group with another one is normal around a mean, which grows with how clearly an item can show it (the
length of what is tested). The largest such mean, and the spread around them, as upper 95 % limits, say how far an
item that belongs to none gets; one that gets farther is of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.joins import Floats
from tartan.analytics.clusters.placing import ENOUGH, MANY_PAIRS, SIGMAS, Placed, find_candidates, find_common
from tartan.analytics.labels import number_labels
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.base import machine
from tartan.base.group_evidence import GroupEvidence

Pattern = NDArray[np.float32]
#: Returns the patterns of an item, tested and added, or None: it has none (``Application.look_closely``).
Look = Callable[[int], tuple[Pattern, Pattern] | None]

# By judgement: a sum of so many is hardly clearer with more, and each is read twice.
_MOST_MEMBERS = 32
# By judgement: what T of the matrix has less of than this is not worth reading; a closer look adds half at most.
_WORTH_A_LOOK = 3.0
# By judgement: photos show less of what cameras share than their clarity says; no more than this is trusted.
_LEAST_CLARITY = 0.5
# By judgement: a look takes some sixty bytes a pixel, and decoders share what memory there is.
_MOST_THREADS = 4
# By judgement: of what is free; sums stay, looks come and go.
_SHARE_OF_MEMORY = 0.25
# By arithmetic: keeps 0 / 0 of an item without a pattern at 0.
_TINY = 1e-30


class _Tested(NamedTuple):
    """Items (n,), T of each with each of m sums, (n, m), NaN of other sizes, and how clear each is, (n,)."""

    items: NDArray[np.int64]
    found: NDArray[np.float64]
    clarity: NDArray[np.float64]


class _ForeignReach(NamedTuple):
    """How far T of an item of clarity c that belongs to none gets: slope c + z spread."""

    slope: float
    spread: float
    usual: float  # clarity

    def level(self, clarity: Floats, z: float) -> Floats:
        return self.slope * np.maximum(clarity, _LEAST_CLARITY * self.usual) + z * self.spread


def place_closely(
    scores: Dissimilarities,
    correlations: Dissimilarities,
    labels: NDArray[np.int64],
    look: Look,
    rule: GroupEvidence,
    monitor: Monitor,
) -> Placed:
    """Put items that are alone into groups of at least five, until none fits.

    Parameters
    ----------
    scores, correlations : Dissimilarities
        As for ``sum_groups``. Items of which they show less than T = 3 with all large groups are not looked at; they
        count as tested.
    labels : int array (n,)
        Group of each item; -1 for an item in none.
    look : callable
        By the place of an item in the matrix.
    rule : GroupEvidence
        Its ``common``, ``scatter`` and ``spread`` are not used.
    monitor : Monitor

    Notes
    -----
    Nothing is placed where the items themselves cannot say how far unlike ones get (one large group, fewer than 20
    comparisons), where they have no such patterns, and where the sums take too much memory.

    Of a items that are alone and m large groups, at most m a (a + 1) / 2 tests are made, which share the chance of a
    false alarm. At most 32 members of each group are looked at, and each item twice or once in a round. Memory: one
    pattern for each group, and a quarter of what is free at most.
    """
    from scipy.special import ndtri

    large, alone = find_candidates(labels)
    none = Placed(labels, 0, 0, float("inf"))
    n_tests = len(large) * len(alone) * (len(alone) + 1) // 2
    if len(large) < 2 or not n_tests:
        return none
    z = float(-ndtri(rule.false_alarm / n_tests))
    hints = find_common(scores, correlations, labels, large, rule, monitor)[alone]
    alone = alone[hints.max(axis=1) >= _WORTH_A_LOOK]
    members = [np.flatnonzero(labels == group)[:_MOST_MEMBERS] for group in large]
    sums = _add_up(members, look, monitor) if alone.size else None
    limits = None if sums is None else _learn_limits(members, sums, look, monitor)
    if sums is None or limits is None:
        return none
    labels, n_placed = labels.copy(), 0
    while alone.size:
        alone, found, clarity = _test(alone, sums, look, monitor)
        if not alone.size:
            break
        found = np.nan_to_num(found, nan=-np.inf)
        best = found.argmax(axis=1)
        fits = found[np.arange(len(alone)), best] >= limits.level(clarity, z)
        if not fits.any():
            break
        labels[alone[fits]] = large[best[fits]]
        group_of = dict(zip(alone[fits].tolist(), best[fits].tolist()))
        for item, _, added in _look_at(alone[fits], look, monitor):
            sums[group_of[item]] += added
        n_placed += int(fits.sum())
        alone = alone[~fits]
    grouped = labels >= 0
    labels[grouped] = number_labels(labels[grouped])
    return Placed(labels, n_placed, n_tests, limits.level(np.array([limits.usual]), z).item())


def _look_at(items: NDArray[np.int64], look: Look, monitor: Monitor) -> Iterator[tuple[int, Pattern, Pattern]]:
    """Yield items and their patterns, in order, without those that have none; a few are looked at ahead."""
    n_threads = min(machine.usable_cores(), _MOST_THREADS)
    with ThreadPoolExecutor(n_threads) as pool:
        left = iter(items.tolist())
        waiting = [(item, pool.submit(look, item)) for item in islice(left, n_threads)]
        while waiting:
            monitor.check()
            item, found = waiting.pop(0)
            patterns = found.result()
            waiting += [(item, pool.submit(look, item)) for item in islice(left, 1)]
            if patterns is not None:
                yield item, *patterns


def _add_up(members: list[NDArray[np.int64]], look: Look, monitor: Monitor) -> list[Pattern] | None:
    """Return the sum of the patterns of each group; None where there are none, or they would take too much memory."""
    sums: list[Pattern] = []
    for some in members:
        total = None
        for _, _, added in _look_at(some, look, monitor):
            if not sums and added.nbytes * len(members) > machine.memory().available_bytes * _SHARE_OF_MEMORY:
                return None
            if total is None:
                total = np.array(added)
            elif total.shape == added.shape:
                total += added
        if total is None:
            return None
        sums.append(total)
    return sums


def _test(items: NDArray[np.int64], sums: list[Pattern], look: Look, monitor: Monitor) -> _Tested:
    """Return n items that have patterns, T of each with each of m sums, and how clear each is."""
    lengths = np.array([np.linalg.norm(one) for one in sums])
    there, found, clarity = [], [], []
    for item, tested, _ in _look_at(items, look, monitor):
        there.append(item)
        clarity.append(float(np.linalg.norm(tested)))
        products = np.array([float(np.vdot(tested, one)) if one.shape == tested.shape else np.nan for one in sums])
        found.append(products / np.maximum(lengths * clarity[-1], _TINY) * np.sqrt(tested.size))
    return _Tested(np.array(there, np.int64), np.array(found).reshape(-1, len(sums)), np.array(clarity))


def _learn_limits(
    members: list[NDArray[np.int64]], sums: list[Pattern], look: Look, monitor: Monitor
) -> _ForeignReach | None:
    """Learn how far T of items of one group with another one gets, by clarity; None where too little is known."""
    parts: list[tuple[Floats, Floats]] = []
    for of, some in enumerate(members):
        _, found, clarity = _test(some, sums, look, monitor)
        parts += [(found[:, at], clarity) for at in range(len(sums)) if at != of and not np.isnan(found[:, at]).any()]
    parts = [part for part in parts if part[1].sum() > 0]
    counts = np.array([len(found) for found, _ in parts])
    n = int(counts.sum())
    if n < ENOUGH:
        return None
    slopes = np.array([found.sum() / clarity.sum() for found, clarity in parts])
    rests = [found - slope * clarity for slope, (found, clarity) in zip(slopes, parts)]
    spread = np.sqrt(sum(float((rest**2).sum()) for rest in rests) / (n - len(parts)))
    if len(parts) < MANY_PAIRS:
        slopes += SIGMAS * spread * np.sqrt(counts) / [clarity.sum() for _, clarity in parts]
    usual = float(np.median(np.concatenate([clarity for _, clarity in parts])))
    return _ForeignReach(max(0.0, float(slopes.max())), max(1.0, float(spread) * (1 + SIGMAS / np.sqrt(2 * n))), usual)
