"""What ranks do is what the replay of the same tasks says: the bytes that they move, who computes what, and thefts."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import test_ranks
from test_ranks import session

from tartan import blocks
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import eliminate
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.cluster_crew import ClusterCrew
from tartan.blocks.work import Command, CrewEvent, OrderDone, WorkOrder
from tartan.core.blocks.workloads import BlockWorkload, lu_of_blocks, product_of_blocks, stencil_of_blocks
from tartan.core.replay.blocks import BlockNetwork, BlockOptions, BlockRank, BlockReplay
from tartan.errors import ConfigError

SIDE = 8
N_BLOCKS = 6
MATRIX = np.random.default_rng(0).standard_normal((SIDE * N_BLOCKS, SIDE * N_BLOCKS), dtype="f4")
KERNELS = [np.ones((5, 5), "f4")] * 3


def multiplied(found: blocks.Session, place: Any) -> None:
    matmul(found, MATRIX, MATRIX, block=SIDE, place=place)


def eliminated(found: blocks.Session, place: Any) -> None:
    a = found.space(MATRIX + 100 * np.eye(len(MATRIX), dtype="f4"), block=SIDE, place=place)
    for k in a.grid_rows:
        eliminate(found, a, k, np.inf)


def filtered(found: blocks.Session, place: Any) -> None:
    convolve(found, MATRIX, KERNELS, block=SIDE, place=place)


WAYS: dict[str, tuple[Callable[[blocks.Session, Any], None], BlockWorkload]] = {
    "product": (multiplied, product_of_blocks(N_BLOCKS, SIDE)),
    "LU": (eliminated, lu_of_blocks(N_BLOCKS, SIDE, ahead=True)),
    "convolution": (filtered, stencil_of_blocks((N_BLOCKS, N_BLOCKS), SIDE, 2, 3, 4.0, 1.0)),
}


def replayed(workload: BlockWorkload, place: Any, affinity: Any) -> int:
    """Return the bytes that four ranks move in virtual time."""
    options = BlockOptions(affinity=affinity, steal=None, placement=place)
    return round(BlockReplay(workload, [BlockRank(1e9)] * 4, options=options).run().bytes_moved)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "place", "affinity"),
    [
        ("product", "random", "auto"),
        ("product", "row cyclic", "local"),
        ("LU", "random", "auto"),
        ("LU", "centralized", "none"),
        ("convolution", "random", "auto"),
        ("convolution", "grid", "remote"),
    ],
)
def test_ranks_move_what_the_replay_moves(way: str, place: str, affinity: str) -> None:
    run, workload = WAYS[way]
    with session(4, steal=False, affinity=affinity) as found:  # type: ignore[arg-type]
        run(found, place)
        assert found.total.bytes_moved == replayed(workload, place, affinity) > 0


class PacedCrew(ClusterCrew):
    """Ranks that compute in fact, and end their subtasks in an order and at times that follow from given speeds.

    An answer is held back until it is its turn in virtual time. What the session decides by who has ended what, and
    when, is the same in every run then; what ranks move is what they count.
    """

    def __init__(self, *args: Any, work: Sequence[np.ndarray], speeds: Sequence[float], **options: Any) -> None:
        self._work, self._speeds = work, speeds
        self._now = 0.0
        self._turns: list[tuple[float, int, int, tuple[int, int]]] = []
        self._orders: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._busy: set[int] = set()
        self._held: dict[tuple[int, tuple[int, int]], OrderDone] = {}
        self._n_begun = 0
        self.ended: list[tuple[int, int, int]] = []
        super().__init__(*args, **options)

    def now(self) -> float:
        return self._now

    def send(self, rank: int, command: Command) -> None:
        super().send(rank, command)
        if isinstance(command, WorkOrder):
            self._orders[rank].append(command.key)
            self._begin(rank)

    def _begin(self, rank: int) -> None:
        if rank not in self._busy and self._orders[rank]:
            self._busy.add(rank)
            self._n_begun += 1
            task, subtask = key = self._orders[rank].popleft()
            end = self._now + self._work[task - 1][subtask] / self._speeds[rank]
            heapq.heappush(self._turns, (end, self._n_begun, rank, key))

    def next_event(self, timeout_seconds: float | None) -> CrewEvent | None:
        if not self._turns:
            return super().next_event(timeout_seconds)
        self._now, _, rank, key = heapq.heappop(self._turns)
        while (rank, key) not in self._held:
            event = super().next_event(timeout_seconds)
            if isinstance(event, OrderDone):
                self._held[event.rank, event.key] = event
        self._busy.remove(rank)
        self._begin(rank)
        self.ended.append((key[0], rank, key[1]))
        return self._held.pop((rank, key))


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("steal", ["difference", "plain"])
@pytest.mark.parametrize("speeds", [(1.0, 1.0, 0.25, 1.0), (0.7, 1.9, 1.0, 0.13)])
@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_steal_do_what_the_replay_does(way: str, speeds: tuple[float, ...], steal: Any) -> None:
    run, workload = WAYS[way]
    ended: list[tuple[int, int, int]] = []
    ranks = [BlockRank(speed, guess=1.0) for speed in speeds]
    about = BlockOptions(steal=steal, placement="random")
    said = BlockReplay(workload, ranks, BlockNetwork(latency_seconds=0.0), about).run(lambda *one: ended.append(one))
    opened = partial(PacedCrew, work=[task.work for task in workload.tasks()], speeds=speeds)
    with session(4, open_crew=opened, steal=steal) as found:
        run(found, "random")
        assert test_ranks.RANKS.crew.ended == ended  # type: ignore[union-attr]
        assert found.total.steals == said.steals > 0
        assert found.total.bytes_moved == said.bytes_moved > 0


@pytest.mark.slow
@pytest.mark.parametrize("steal", ["difference", "plain"])
def test_ranks_that_steal_end_everything(steal: str) -> None:
    with session(2, steal=steal, evaluate=0.5) as found:
        result, report, _ = matmul(found, MATRIX, MATRIX, block=SIDE, place="random")
        assert report.subtasks == sum((report.per_rank or {}).values()) == N_BLOCKS**2
        np.testing.assert_allclose(result.array(), MATRIX @ MATRIX, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_reports_have_the_bound_where_one_is_known() -> None:
    with session(4, steal=False) as found:
        _, report, bound = matmul(found, MATRIX, MATRIX, block=SIDE, place="random")
        assert report.bytes_bound == bound
        assert bound is not None
        assert 0 < bound <= report.bytes_moved <= 1.2 * bound
        assert matmul(found, MATRIX, MATRIX, block=SIDE)[2] == 0
        row = matmul(found, MATRIX[:SIDE], MATRIX, block=SIDE, place="row cyclic")[1]
        assert row.bytes_bound is not None
        assert 0 < row.bytes_bound <= row.bytes_moved
        eliminated(found, "random")
        assert found.total.bytes_bound is None
        # Four shares of 24 x 24: two rows and two columns of each at two sides, and four elements at the corner.
        assert convolve(found, MATRIX, KERNELS, block=SIDE, place="random")[1].bytes_bound == 2 * 4 * 4 * 100
    with blocks.Session(workers=1) as found:
        eliminated(found, "random")
        assert found.total.bytes_bound == 0


@pytest.mark.parametrize(
    ("option", "message"), [({"steal": "most"}, "steal"), ({"evaluate": 1.5}, r"evaluate is 1\.5; it must be a share")]
)
def test_unknown_ways_to_give_subtasks_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        blocks.Session(**option)
