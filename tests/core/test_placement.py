"""Where stages run: words, names, and a choice that is never much slower than the best, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tartan.core.ranks.placement import (
    FILES,
    PARSED,
    READY,
    Means,
    PlacementCosts,
    StageNames,
    choose_depth,
    parse_stages,
)
from tartan.errors import ConfigError


class Pool:
    """Workers of one kind in virtual time; each takes what was given first."""

    def __init__(self, n_workers: int) -> None:
        self._free = [0.0] * n_workers

    def work(self, at: float, seconds: float) -> float:
        """Return when work ends that could begin at some time."""
        end = max(at, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        return end


def run_seconds(costs: PlacementCosts, depths: Sequence[int]) -> float:
    """Return how long a run takes whose items have these depths, item by item through workers, link and workers."""
    beside, link, there = Pool(costs.n_beside), Pool(1), Pool(costs.n_there)
    ends = []
    for depth in depths:
        at = beside.work(0.0, sum(costs.beside_seconds[:depth]))
        at = link.work(at, costs.sent_bytes[depth] / costs.link_bytes_per_second)
        ends.append(there.work(at, sum(costs.there_seconds[depth:]) + costs.compare_seconds))
    return max(ends)


def some_costs(seed: int) -> PlacementCosts:
    """Return the costs of a workload: files that grow or shrink, quick and slow stages, few or many workers."""
    rng = random.Random(seed)
    file_bytes = 10 ** rng.uniform(5, 8)
    sizes = [file_bytes, file_bytes * 10 ** rng.uniform(-2, 1), 0.0]
    sizes[2] = sizes[1] * 10 ** rng.uniform(-2, 1)
    stages = [10 ** rng.uniform(-4, 0) for _ in range(2)]
    return PlacementCosts(
        sizes,
        [seconds * rng.uniform(0.8, 2) for seconds in stages],
        stages,
        n_beside=rng.choice([1, 2, 4, 16]),
        n_there=rng.choice([1, 2, 8, 64]),
        compare_seconds=10 ** rng.uniform(-4, 0),
        link_bytes_per_second=10 ** rng.uniform(7, 9.5),
        n_items=1000,
    )


@pytest.mark.parametrize("seed", range(300))
def test_the_choice_costs_at_most_a_twentieth_of_the_best_placement(seed: int) -> None:
    costs = some_costs(seed)
    seconds = [run_seconds(costs, [depth] * costs.n_items) for depth in (FILES, PARSED, READY)]
    assert seconds[choose_depth(costs, (FILES, PARSED, READY))] <= 1.05 * min(seconds)


def test_a_choice_that_learns_the_link_late_loses_only_what_was_sent_before() -> None:
    """A link is taken for a slow one until it has shown its speed: files then go over it, where parse is dear."""
    unknown = PlacementCosts([1e6, 2e5, 2e5], [0.005, 0.0], [0.005, 0.0], n_beside=1, n_there=16, n_items=1000)
    known = replace(unknown, link_bytes_per_second=1e9)
    first = choose_depth(unknown, (FILES, READY))
    depths = [first] * 4 + [choose_depth(known, (FILES, READY))] * 996
    assert (depths[0], depths[-1]) == (READY, FILES)
    best = min(run_seconds(known, [depth] * 1000) for depth in (FILES, READY))
    assert run_seconds(known, depths) <= 1.05 * best


def test_of_equal_times_the_fewest_bytes_travel() -> None:
    costs = PlacementCosts([1e6, 9e5, 1e4], [0.0, 0.0], [0.0, 0.0], compare_seconds=10.0, link_bytes_per_second=1e9)
    assert choose_depth(costs, (FILES, PARSED, READY)) == READY
    assert choose_depth(costs, (FILES, PARSED)) == PARSED


def test_where_the_link_is_unknown_bytes_decide_unless_seconds_are_lost() -> None:
    quick = PlacementCosts([1e4, 1e3, 1e3], [1e-4, 0.0], [1e-4, 0.0], n_items=100)
    assert choose_depth(quick, (FILES, READY)) == READY
    slow = PlacementCosts([1e4, 1e3, 1e3], [1.0, 0.0], [1.0, 0.0], n_there=64, n_items=100)
    assert choose_depth(slow, (FILES, READY)) == FILES


def test_devices_hide_what_workers_do_meanwhile() -> None:
    """A GPU that takes longer than either placement makes them equal: the fewest bytes travel."""
    busy = PlacementCosts([1e6, 1e5, 1e5], [0.2, 0], [0.1, 0], device_seconds=1.0, n_items=100)
    busy = replace(busy, link_bytes_per_second=1e8)
    idle = replace(busy, device_seconds=0.0)
    assert (choose_depth(busy, (FILES, PARSED)), choose_depth(idle, (FILES, PARSED))) == (PARSED, FILES)


def test_words_say_which_stages_run_beside_the_data() -> None:
    assert parse_stages("auto") is None
    assert parse_stages("compute") == ()
    assert parse_stages("storage: preprocess, parse") == ("parse", "preprocess")


@pytest.mark.parametrize("text", ["", "storage", "storage:", "parse", "compute:parse", "storage:parse,,preprocess"])
def test_other_words_are_refused_with_those_that_work(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--stages .*(choose auto, compute|what can is parse, group, preprocess)"):
        parse_stages(text)


def test_names_become_a_depth() -> None:
    both = StageNames("Photos", ("parse", "preprocess"))
    assert [both.depth_of(names) for names in ((), ("parse",), ("parse", "preprocess"))] == [FILES, PARSED, READY]
    assert StageNames("Rows", ("parse",)).depth_of(("parse",)) == READY, "nothing is left to do"
    assert StageNames("Means", ("parse", "group", "preprocess")).depth_of(("group", "preprocess")) == READY
    with pytest.raises(ConfigError, match="needs what parse makes"):
        both.depth_of(("preprocess",))
    with pytest.raises(ConfigError, match="it has none; leave --stages out"):
        StageNames("Plain", ()).depth_of(("parse",))
    with pytest.raises(ConfigError, match="--stages compute, or --device cpu"):
        StageNames("Rows", ("preprocess",), on_device=True).depth_of(("preprocess",))


@pytest.mark.slow
def test_means_leave_out_what_may_have_loaded_modules() -> None:
    means = Means()
    assert means.of("parse", 0.5) == 0.5
    means.note("parse", 9.0, 1, warms_up=True)
    assert means.of("parse", 0.5) == 0.5
    means.note("parse", 1.0, 4, warms_up=True)
    means.note("files", 300.0, 3)
    assert (means.of("parse"), means.of("files")) == (0.25, 100.0)
