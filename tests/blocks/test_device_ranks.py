"""Several ranks with devices; they are threads of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tartan import blocks
from tartan.blocks.applications.lu import lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.cluster_crew import ClusterCrew, RankOptions, main
from tartan.blocks.rank_devices import DeviceOptions
from tartan.cluster.thread_engine import ThreadHub
from tartan.errors import ConfigError, ResourceError

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def crew(n_ranks: int, devices: DeviceOptions) -> Iterator[ClusterCrew]:
    hub = ThreadHub()
    engine = hub.engine("driver")

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        starter.start()
        try:
            yield engine
        finally:
            engine.leave()

    def start_when_joined() -> None:
        while not engine.view().epoch:
            joined.wait(0.01)
        for number in range(n_ranks):
            name = f"rank-{number}"
            threading.Thread(target=main, args=(hub.engine(name),), name=name, daemon=True).start()

    joined = threading.Event()
    starter = threading.Thread(target=start_when_joined, daemon=True)
    options = RankOptions(1 << 22, 1, "", n_ranks, devices)
    found = ClusterCrew(opened(), n_ranks, options, rank_timeout_seconds=60.0)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("names", [("sim",), ("sim", "cpu")])
def test_ranks_with_devices_compute_the_same_bits(names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((60, 50)), rng.standard_normal((50, 70))
    with blocks.Session(workers=1, host_cache=1 << 22) as s:
        expected = matmul(s, a, b, block=16)[0].array()
    with crew(2, DeviceOptions(names)) as ranks, blocks.Session(ranks, steal=False) as s:
        product, report, _ = matmul(s, a, b, block=16)
        np.testing.assert_array_equal(product.array(), expected)
        per_rank = report.per_rank
        assert per_rank is not None
        assert report.device_subtasks == (20 if names == ("sim",) else per_rank[0])
        with pytest.raises(ConfigError, match="opened their devices already"):
            blocks.Session(ranks, device="sim")


def test_lu_on_ranks_with_devices_has_the_bits_of_one() -> None:
    a = np.random.default_rng(0).uniform(-1, 1, (50, 50)) + 50 * np.eye(50)
    with blocks.Session(workers=1, host_cache=1 << 22, device="sim") as s:
        expected = lu(s, a, block=16)[0].array()
    with crew(2, DeviceOptions(("sim",))) as ranks, blocks.Session(ranks) as s:
        factors, report = lu(s, a, block=16, place="grid")
        np.testing.assert_array_equal(factors.array(), expected)
        assert report.device_subtasks >= report.subtasks


def test_a_rank_without_its_device_ends_the_session_and_says_why() -> None:
    with (
        pytest.raises(ConfigError, match="sim has no option 'colour'"),
        crew(1, DeviceOptions(("sim:colour=1",))),
    ):
        pass


def test_functions_for_devices_alone_are_refused_where_a_rank_has_none() -> None:
    with crew(2, DeviceOptions(("sim", "cpu"), cache=100)) as ranks, blocks.Session(ranks, steal=False) as s:
        A = s.space(shape=64, block=32)
        task = blocks.Task(gpu=lambda a: None, grid=A.grid, subscribe=lambda i: A.update[A.block(i)])
        with pytest.raises(ConfigError, match="runs on devices only"):
            s.run(task)
        both = blocks.Task(lambda a, xp: None, A.grid, lambda i: A.update[A.block(i)], releases_gil=True)
        with pytest.raises(ResourceError, match="--device-cache of at least 512 B"):
            s.run(both)
