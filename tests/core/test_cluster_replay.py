"""Replays of several ranks in virtual time: loads and fills against their bounds, losses, uneven speeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tartan.core.pairs.grid import Grid
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.division import chunk_pairs
from tartan.core.ranks.layout import choose_cluster_grid
from tartan.core.replay.cluster import ClusterReplay
from tartan.core.replay.described import ClusterNetwork, ClusterOptions, ClusterPrediction, ReplayedRank, lines_of_run
from tartan.errors import ConfigError

CHUNK = 2
SHORT = ClusterOptions(ahead_seconds=0.5)


def replayed(n_lines: int, room: float, speeds: Sequence[float], options: ClusterOptions = SHORT) -> ClusterPrediction:
    """Replay all pairs on ranks with room for a part of the items each."""
    n = n_lines * CHUNK
    pairs = chunk_pairs(Grid(n, CHUNK, 0, 1, 1), AllPairs(n))
    ranks = [ReplayedRank(round(room * n), speed, load_seconds=1e-3) for speed in speeds]
    prediction = ClusterReplay(pairs, CHUNK, n, ranks, ClusterNetwork(1.0, 1.0), options).run()
    computed = np.bincount(
        [step[0] for step in prediction.steps], [step[3] for step in prediction.steps], minlength=len(speeds)
    )
    assert computed.sum() == pairs.sum() or prediction.lost
    assert tuple(computed) == prediction.pairs
    return prediction


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_ranks", "room", "most_loads", "most_fills"),
    [(4, 0.1, 1.5, 1.5), (4, 0.2, 1.3, 1.6), (4, 0.25, 1.3, 1.7), (4, 0.3, 1.05, 1.5), (16, 0.21, 1.1, 1.7)],
)
def test_equal_ranks_come_near_both_bounds(n_ranks: int, room: float, most_loads: float, most_fills: float) -> None:
    found = replayed(240, room, [100.0] * n_ranks)
    assert 1 <= found.storage_load_factor / found.storage_load_factor_bound <= most_loads
    assert 1 <= found.load_factor / found.load_factor_bound <= most_fills


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "room", "unlike", "most_loads", "most_fills"),
    [
        (500, 0.1, 0, 1.6, 1.7),
        (500, 0.2, 0, 1.6, 2.2),
        (500, 0.3, 0, 1.1, 1.7),
        (500, 0.5, 0, 1.1, 1.7),
        (2000, 0.1, 0.1, 1.8, 1.7),
        (2000, 0.25, 0.1, 1.8, 2.2),
    ],
)
def test_ranks_with_the_grid_of_a_real_run_come_near_both_bounds(
    n: int, room: float, unlike: float, most_loads: float, most_fills: float
) -> None:
    slots = round(room * n)
    grid = choose_cluster_grid(AllPairs(n), slots, 4)
    lines, pieces = lines_of_run(grid, slots, 4 * slots)
    speeds = n * n / 80 * (1 + unlike * np.random.default_rng(0).uniform(-1, 1, 4))
    ranks = [ReplayedRank(slots, speed, load_seconds=5e-4, division=lines) for speed in speeds]
    pairs = chunk_pairs(grid, AllPairs(n))
    options = ClusterOptions(ahead_seconds=0.5, pieces=pieces)
    found = ClusterReplay(pairs, grid.chunk, n, ranks, ClusterNetwork(latency_seconds=3e-3), options).run()
    assert sum(found.pairs) == n * (n - 1) // 2
    assert found.storage_load_factor / found.storage_load_factor_bound <= most_loads
    assert found.load_factor / found.load_factor_bound <= most_fills


def test_a_few_ranks_load_hardly_any_item_twice() -> None:
    found = replayed(80, 0.35, [100.0] * 4)
    assert 1 <= found.storage_load_factor <= 1.1
    assert found.load_factor <= 3.3
    assert found.bytes_from_storage == pytest.approx(found.storage_load_factor * 160)


def test_without_homes_each_rank_loads_what_it_needs() -> None:
    alone = replayed(80, 0.35, [100.0] * 4, ClusterOptions(homes=False, ahead_seconds=0.5))
    assert alone.storage_load_factor == alone.load_factor > 2
    assert alone.bytes_between_ranks == 0


def test_uneven_ranks_end_together() -> None:
    found = replayed(90, 0.5, [100.0, 200.0, 400.0, 800.0])
    ideal = sum(found.pairs) / 1500
    assert found.seconds <= ideal * 1.05
    assert min(found.ends) >= found.seconds * 0.95
    assert found.steals > 0


def test_losses_cost_what_was_not_committed() -> None:
    losses = ((5.0, 1), (9.0, 2))
    found = replayed(60, 0.5, [100.0] * 4, ClusterOptions(losses=losses, ahead_seconds=0.5))
    assert found.lost == 2
    assert sum(found.pairs) >= 120 * 119 // 2


def test_a_replay_is_a_function_of_its_arguments() -> None:
    speeds = [90.0, 100.0, 110.0]
    assert replayed(50, 0.3, speeds) == replayed(50, 0.3, speeds)


def test_slots_for_less_than_two_lines_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few for two lines"):
        replayed(50, 0.01, [1.0])
