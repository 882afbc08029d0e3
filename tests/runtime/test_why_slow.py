"""Why a run was slow: nodes and clusters in virtual time of which one thing is slow, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from node_world import ROW, Everything, world

import tartan
from tartan.base.trace import Tracer
from tartan.core.pairs.device_time import COMPARE, RANKS, STORAGE, TAIL
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.sizing import choose_layout, device_room
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.division import chunk_pairs
from tartan.core.replay.cluster import ClusterReplay
from tartan.core.replay.described import ClusterNetwork, ClusterOptions, ReplayedRank
from tartan.devices.sim import SimDevice, SimOptions, VirtualClock
from tartan.errors import ConfigError
from tartan.result.why_slow import SLOW_CAUSES, WhySlow, explain_slowness
from tartan.runtime.host import UniformItems
from tartan.runtime.node import Node
from tartan.runtime.tasks import ItemPlan
from tartan.sources.items import open_source

N = 12
N_PAIRS = N * (N - 1) // 2


class Gaps(tartan.Application):
    """Differences of first numbers; ``preprocess`` does nothing, which takes as long as the device says."""

    releases_gil = True
    outputs: ClassVar[dict[str, Any]] = {"scores": np.float64}

    def preprocess(self, item: Any, xp: Any) -> Any:
        return item

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(left[:, 0][:, None] - right[:, 0][None, :])


class SlowRows(Sequence[np.ndarray]):
    """Rows each of which takes some seconds to read."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: Any) -> Any:
        self._clock.advance(self._seconds)
        return np.full(3, index, np.float32)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(N))


def explain(*, read: float = 0.0, **device: float) -> WhySlow:
    """Compare one tile on a simulated device, in virtual time; return why that was slow.

    One tile, since threads of the node run beside each other: a clock that jumps would jump for what is not slow too.
    """
    clock = VirtualClock()
    made = world(Gaps(), [np.zeros(3, np.float32)] * N, slots=N)
    grid, everything = Grid(N, N, 0, N, N), AllPairs(N)
    good = np.zeros(3, np.float32)
    inputs = replace(
        made.inputs,
        source=open_source(SlowRows(clock, read)),
        devices=[SimDevice(SimOptions(**device), clock=clock)],  # type: ignore[arg-type]
        tracer=Tracer(limit=0, clock=lambda: round(clock.now() * 1e9)),
        plan=replace(
            made.inputs.plan,
            grid=grid,
            layout=choose_layout(grid, everything, N),
            prepare_on_device=True,
            device_rooms=(device_room(grid, N),),
        ),
        items=ItemPlan(UniformItems(ROW), ROW, ROW, good, ready_substitute=good),
        remaining=Everything(grid, everything),
    )
    begun = clock.now()
    stats = Node(inputs, clock=clock.now).run()
    assert stats.pairs_computed == N_PAIRS
    found = explain_slowness(vars(stats), N_PAIRS)
    assert found.device_seconds == pytest.approx(clock.now() - begun)
    assert sum(found.seconds.values()) == pytest.approx(found.device_seconds)
    return found


@pytest.mark.parametrize(
    ("cause", "slow", "least"),
    [
        ("storage", {"read": 60.0}, N * 50.0),
        ("preprocess", {"preprocess_seconds": 60.0}, N * 50.0),
        ("compare", {"compare_seconds": 60.0}, N_PAIRS * 50.0),
        ("link", {"upload_bytes_per_second": 0.2}, N * 50.0),
    ],
)
def test_the_first_line_names_what_is_slow(cause: str, slow: dict[str, float], least: float) -> None:
    usual = {"read": 1.0, "preprocess_seconds": 1.0, "compare_seconds": 0.1}
    found = explain(**usual | slow)
    assert found.cause == cause
    assert found.seconds[cause] >= least, "what was added is what is found"
    lines = found.lines()
    assert len(lines) == 10
    assert lines[0][1].startswith(f"{cause}, ")
    assert [name for name, _ in lines[1:]] == list(SLOW_CAUSES)


def replayed(speeds: Sequence[float]) -> dict[str, Any]:
    """Replay a run on ranks of some speeds in virtual time; return what they would write."""
    n, chunk = 240, 2
    pairs = chunk_pairs(Grid(n, chunk, 0, 1, 1), AllPairs(n))
    ranks = [ReplayedRank(80, speed, load_seconds=1e-3) for speed in speeds]
    options = ClusterOptions(ahead_seconds=0.5)
    found = ClusterReplay(pairs, chunk, n, ranks, ClusterNetwork(1.0, 1.0), options).run()
    each = {
        f"rank-{number}": {"pairs": count, COMPARE: busy, TAIL: found.seconds - end, RANKS: end - busy}
        for number, (count, busy, end) in enumerate(zip(found.pairs, found.busy_seconds, found.ends, strict=True))
    }
    whole = {cause: sum(one[cause] for one in each.values()) for cause in (COMPARE, TAIL, RANKS)}
    return {"device_seconds": whole, "rank_times": each, "pairs_computed": sum(found.pairs)}


@pytest.mark.slow
def test_a_rank_that_straggles_is_named_and_one_that_does_not_is_not() -> None:
    slow = explain_slowness(replayed([100.0, 100.0, 2.0, 100.0]), None)
    assert slow.cause == TAIL
    assert slow.slow_rank is not None
    assert slow.slow_rank.name == "rank-2"
    assert slow.slow_rank.times == pytest.approx(50)
    assert "rank rank-2 took 50.0 times" in slow.lines()[0][1]
    even = explain_slowness(replayed([100.0] * 4), None)
    assert (even.cause, even.slow_rank) == (COMPARE, None)
    assert even.device_seconds < slow.device_seconds


def test_pairs_that_were_computed_again_are_lost() -> None:
    stats = {"device_seconds": {COMPARE: 100.0, STORAGE: 10.0}, "pairs_computed": 400, "ranks_lost": 2}
    found = explain_slowness(stats, 100)
    assert (found.cause, found.seconds["losses"], found.seconds["compare"]) == ("losses", 75, 25)
    assert "2 ranks lost" in found.lines()[-1][1]
    assert "300 computed again" in found.lines()[-1][1]
    assert explain_slowness(stats, None).cause == "compare"  # pairs were left out meanwhile: nobody knows


def test_damaged_figures_beside_the_times_are_left_out() -> None:
    odd: list[Any] = [3, "x", None, [1], {"a": {"compare": -1, "pairs": "2"}, "b": 7}]
    for value in odd:
        names = ("bytes_per_level", "seconds_per_stage", "rank_times", "pairs_computed", "load_factor", "ranks_lost")
        found = explain_slowness({"device_seconds": {COMPARE: 2.0}, **dict.fromkeys(names, value)}, 3)
        assert (found.cause, found.slow_rank, len(found.lines())) == (COMPARE, None, 10)


@pytest.mark.parametrize(
    "stats", [{}, {"device_seconds": 3}, {"device_seconds": {COMPARE: "x", TAIL: -1}}, {"device_seconds": {"new": 5.0}}]
)
def test_a_run_without_times_says_so(stats: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="keeps no times by cause"):
        explain_slowness(stats, 1)
