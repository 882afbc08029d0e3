"""The bound and the equations of the Rocket paper, against numbers worked out by hand."""

from __future__ import annotations

from itertools import combinations

import pytest

from tartan.core.pairs.bound import loads_bound
from tartan.core.replay.model import (
    StageTimes,
    compute_model_seconds,
    device_seconds,
    host_seconds,
    storage_seconds,
    system_efficiency,
)
from tartan.errors import ConfigError

FORENSICS = StageTimes(parse=0.1308, preprocess=0.0205, compare=0.0011)
N, PAIRS = 4980, 12_397_710


def test_the_equations_for_forensics() -> None:
    # 4980 x 20.5 ms = 102.09 s; 12,397,710 x 1.1 ms = 13,637.481 s; 4980 x 130.8 ms = 651.384 s.
    assert device_seconds(N, PAIRS, 1.0, FORENSICS) == pytest.approx(13_739.571)
    assert device_seconds(N, PAIRS, 6.7, FORENSICS) == pytest.approx(684.003 + 13_637.481)
    assert host_seconds(N, PAIRS, 6.7, FORENSICS) == pytest.approx(4_364.2728)
    assert storage_seconds(N, 6.7, 19.4e9 / N, 1e9) == pytest.approx(129.98)
    assert system_efficiency(N, PAIRS, FORENSICS, 14_523.86) == pytest.approx(0.946, abs=1e-4)


def test_the_equations_for_the_other_workloads() -> None:
    bioinformatics = StageTimes(parse=0.0369, preprocess=0.0270, compare=0.0021)
    assert device_seconds(2500, 3_123_750, 1.0, bioinformatics) == pytest.approx(67.5 + 6_559.875)
    assert device_seconds(256, 32_640, 1.0, StageTimes(compare=0.5643)) == pytest.approx(18_418.752)


def test_the_slowest_resource_decides() -> None:
    times = StageTimes(parse=8.0, preprocess=1.0, compare=0.5, postprocess=0.25)
    # 10 items, 45 pairs, R = 2: device 20 + 22.5, host 160 + 11.25, storage 20 x 3 / 2.
    assert compute_model_seconds(10, 45, 2.0, times) == pytest.approx(171.25)
    assert compute_model_seconds(10, 45, 2.0, times, workers=5) == pytest.approx(42.5)
    assert compute_model_seconds(10, 45, 2.0, times, workers=5, speed=2) == pytest.approx(34.25)
    slow_storage = {"file_bytes": 3.0, "storage_bytes_per_second": 1.0}
    assert compute_model_seconds(10, 45, 2.0, times, workers=5, **slow_storage) == pytest.approx(60.0)


def test_efficiency_of_no_time_is_zero() -> None:
    assert system_efficiency(10, 45, FORENSICS, 0.0) == 0.0


def test_the_bound_for_forensics() -> None:
    # S/2 + pairs / (S - 1) = 525 + 12,397,710 / 1049 = 12,343.6 loads.
    assert loads_bound(N, PAIRS, 1050) == pytest.approx(12_343.6, abs=0.05)
    assert loads_bound(N, PAIRS, 1050) / N == pytest.approx(2.4786, abs=1e-4)


def test_every_item_is_loaded_once_at_least() -> None:
    assert loads_bound(100, 10, 50) == 100


def test_a_cache_of_one_item_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hold a pair"):
        loads_bound(10, 45, 1)


@pytest.mark.parametrize(("n", "slots"), [(3, 2), (4, 2), (4, 3), (5, 3), (5, 4), (5, 5)])
def test_no_order_beats_the_bound(n: int, slots: int) -> None:
    """Search all orders: a state is what is resident and which pairs are done; every step loads one item."""
    all_pairs = frozenset(combinations(range(n), 2))
    states = {(frozenset[int](), frozenset[tuple[int, int]]())}
    loads = 0
    while not any(done == all_pairs for _, done in states):
        states = {after for state in states for after in _loaded(*state, n, slots)}
        loads += 1
    assert loads >= loads_bound(n, len(all_pairs), slots)


Pairs = frozenset[tuple[int, int]]


def _loaded(resident: frozenset[int], done: Pairs, n: int, slots: int) -> list[tuple[frozenset[int], Pairs]]:
    after = []
    for item in set(range(n)) - resident:
        for kept in [resident] if len(resident) < slots else [resident - {gone} for gone in resident]:
            now = kept | {item}
            after.append((now, done | frozenset(combinations(sorted(now), 2))))
    return after
