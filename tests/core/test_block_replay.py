"""Replays of block tasks: what is moved, how long it takes, and what the loss of ranks costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tartan.core.affinity import TaskNeeds, count_moved_bytes
from tartan.core.blocks.assignment import Assignment, assign
from tartan.core.blocks.bounds import bound_moved_bytes, halo_bound, product_bound
from tartan.core.blocks.dispatcher import StealChance
from tartan.core.blocks.shares_of_grid import layouts, whole_shares
from tartan.core.blocks.workloads import BlockWorkload, lu_of_blocks, product_of_blocks, stencil_of_blocks
from tartan.core.replay.blocks import BlockNetwork, BlockOptions, BlockPrediction, BlockRank, BlockReplay
from tartan.errors import ConfigError, InternalError

SIDE = 64
SIZE = SIDE * SIDE * 4.0
PAPER = ("local", "transfers", "remote")
#: One block of a product of eight by eight blocks takes a second on one lane.
SECOND = 2.0 * SIDE**3 * 8


def replayed(
    workload: BlockWorkload,
    n_ranks: int = 4,
    network: BlockNetwork | None = None,
    speed: float = SECOND,
    **options: object,
) -> BlockPrediction:
    """Replay a workload on equal ranks."""
    network = network or BlockNetwork()
    return BlockReplay(workload, [BlockRank(speed)] * n_ranks, network, BlockOptions(**options)).run()  # type: ignore[arg-type]


def blocks(found: BlockPrediction, size: float = SIZE) -> float:
    return found.bytes_moved / size


@pytest.mark.parametrize("affinity", ["none", "local", "auto"])
def test_what_is_moved_is_what_the_division_needs(affinity: str) -> None:
    workload = product_of_blocks(6, SIDE)
    found = replayed(workload, affinity=affinity, steal=None, seed=3)
    task = next(workload.tasks())
    held = workload.count_held("random", 4, 3)
    divided = Assignment(task.demand, held, np.ones(4), task.index, seed=3 * 10_007 + 1)
    owners = assign(divided, affinity)  # type: ignore[arg-type]
    assert found.bytes_moved == pytest.approx(count_moved_bytes(task.demand, held, owners).sum())
    assert found.pieces == tuple(np.bincount(owners))
    assert found == replayed(workload, affinity=affinity, steal=None, seed=3)


def test_a_product_takes_as_long_as_its_work_where_links_are_fast() -> None:
    found = replayed(product_of_blocks(8, SIDE), network=BlockNetwork(latency_seconds=0.0))
    assert found.seconds == pytest.approx(16)
    assert found.waited_seconds == 0
    lanes = BlockReplay(product_of_blocks(8, SIDE), [BlockRank(SECOND, lanes=4)] * 4).run()
    assert lanes.seconds == pytest.approx(16, rel=1e-3)


def stretched(placement: str, share: float, **options: object) -> float:
    """Return the time of a product, over that of its work, where a rank receives for a share of that time."""
    workload = product_of_blocks(32, SIDE, lines=True)
    speed = 2.0 * SIDE**3 * 32
    one = replayed(workload, speed=speed, placement=placement, steal=None)
    network = BlockNetwork(one.bytes_moved / 4 / (256 * share), latency_seconds=0.0)
    return replayed(workload, speed=speed, network=network, placement=placement, **options).seconds / 256


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["random", "row cyclic", "column cyclic", "grid"])
def test_transfers_hide_behind_work(placement: str) -> None:
    assert stretched(placement, 0.5) <= 1.1


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["random", "row cyclic", "column cyclic", "grid"])
def test_long_transfers_hide_as_far_as_any_order_lets_them(placement: str) -> None:
    """With u of 32 equal lines there, no more than (u / 2)^2 of 256 pieces can be computed."""
    lines = np.arange(2, 33)
    computable = (lines - 1) // 2 * (lines // 2)
    bound = (0.9 * lines / 32 + 1 - computable / 256).max()
    assert stretched(placement, 0.9) <= 1.05 * bound


@pytest.mark.parametrize("placement", ["source", "centralized", "row cyclic", "column cyclic", "random", "grid"])
def test_every_placement_holds_the_input_once(placement: str) -> None:
    for workload in (product_of_blocks(4, SIDE), lu_of_blocks(4, SIDE), stencil_of_blocks((4, 5), SIDE, 3, 2, 4.0, 1)):
        held = workload.count_held(placement, 4)  # type: ignore[arg-type]
        n_input = 0 if placement == "source" else workload.part_bytes.sum()
        assert held.sum() == n_input
        assert (held.sum(axis=0) <= workload.sizes).all()
        assert (np.count_nonzero(held, axis=0) <= 1).all()
        found = replayed(workload, placement=placement)
        read = workload.part_bytes.sum()
        assert found.bytes_from_storage >= (read if placement == "source" else 0)
        assert (found.bytes_from_storage > 0) == (placement == "source")


def test_an_unknown_placement_and_too_many_copies_are_refused() -> None:
    with pytest.raises(ConfigError, match="'anywhere' is not a placement"):
        replayed(lu_of_blocks(3, SIDE), placement="anywhere")
    with pytest.raises(ConfigError, match="2 copies of blocks on 1 ranks"):
        replayed(lu_of_blocks(3, SIDE), n_ranks=1, copies=2)


def test_tasks_of_lu_are_those_of_the_paper() -> None:
    tasks = [*lu_of_blocks(5, SIDE).tasks()]
    assert len(tasks) == 3 * 5 - 2
    assert sum(task.work.sum() for task in tasks) == pytest.approx(SIDE**3 * 2 / 3 * 5**3)
    assert [task.demand.n_pieces for task in tasks[:5]] == [1, 8, 16, 1, 6]


def test_a_stencil_needs_its_halo() -> None:
    workload = stencil_of_blocks((3, 3), SIDE, 5, 1, 1.0, 1.0)
    needed = next(workload.tasks()).demand.sums(workload.sizes).reshape(3, 3)
    assert needed[1, 1] == (SIDE + 10) ** 2
    assert needed[0, 1] == (SIDE + 5) * (SIDE + 10)
    assert needed[2, 2] == (SIDE + 5) ** 2


def test_units_of_whole_lines_move_the_same() -> None:
    found = [replayed(product_of_blocks(8, SIDE, lines=lines), steal=None) for lines in (False, True)]
    assert found[0].bytes_moved == pytest.approx(found[1].bytes_moved)


@pytest.mark.parametrize("steal", ["difference", "plain"])
def test_unlike_ranks_steal_and_end_nearly_together(steal: str) -> None:
    """A rank keeps what it was told to compute: of few pieces that is a good part."""
    workload, network = product_of_blocks(16, SIDE), BlockNetwork(latency_seconds=0.0)
    unlike = [BlockRank(SECOND * speed, guess=1.0) for speed in (1, 1, 1, 0.25)]
    alone = BlockReplay(workload, unlike, network, BlockOptions(steal=None)).run()
    assert alone.seconds == 512
    found = BlockReplay(workload, unlike, network, BlockOptions(steal=steal)).run()  # type: ignore[arg-type]
    assert found.steals > 0
    assert found.seconds <= 1.35 * 512 / 3.25
    assert found.bytes_moved > alone.bytes_moved
    known = [replace(rank, guess=None) for rank in unlike]
    assert BlockReplay(workload, known, network, BlockOptions(steal=None)).run().seconds <= 1.1 * 512 / 3.25


@pytest.mark.slow
def test_shares_stay_where_ranks_are_nearly_equal() -> None:
    """What a task could gain is chance, and blocks are larger than halos; a rank that is half as fast is relieved."""
    workload = stencil_of_blocks((8, 8), 100, 5, 4, 4.0, 1.0)
    found = {}
    for name, speeds in {"equal": (1.0, 1.05, 0.93, 1.1), "unlike": (1.0, 1.0, 0.5, 1.0)}.items():
        ranks = [BlockRank(1e4 * speed, guess=1.0) for speed in speeds]
        for steal in (None, "difference"):
            found[name, steal] = BlockReplay(workload, ranks, BlockNetwork(1e9), BlockOptions(steal=steal)).run()  # type: ignore[arg-type]
    assert found["equal", "difference"] == found["equal", None]
    assert found["unlike", "difference"].steals > 0
    assert found["unlike", "difference"].seconds < 0.75 * found["unlike", None].seconds


def test_ranks_steal_only_what_an_idle_core_can_compute() -> None:
    chance = StealChance(8, 1.0, 1.0, 16.0, n_busy=2)
    assert [replace(chance, n_cores=cores).pays(4, 0.0) for cores in (1, 2, 3, float("inf"))] == [
        False,
        False,
        True,
        True,
    ]


def test_what_is_stolen_is_worth_its_way() -> None:
    """Over a link on which a block takes as long as its work, nothing is stolen."""
    workload = stencil_of_blocks((8, 8), 100, 5, 2, 4.0, 1.0)
    ranks = [BlockRank(1e4 * speed, guess=1.0) for speed in (1.0, 1.0, 0.6, 1.0)]
    found = {rate: BlockReplay(workload, ranks, BlockNetwork(rate)).run().steals for rate in (4e3, 1e9)}
    assert found[4e3] == 0 < found[1e9]


@pytest.mark.slow
def test_steals_cost_less_than_they_gain() -> None:
    """Ranks that are equal have little to steal, task after task, on links that matter."""
    workload, network = lu_of_blocks(8, SIDE), BlockNetwork(3e6)
    found = {steal: replayed(workload, network=network, speed=1e9, steal=steal) for steal in (None, "difference")}
    assert found["difference"].bytes_moved <= 1.1 * found[None].bytes_moved
    assert found["difference"].seconds <= 1.03 * found[None].seconds


def test_the_others_compute_what_lost_ranks_had() -> None:
    found = replayed(product_of_blocks(8, SIDE), losses=((3.5, 1), (5.5, 2)))
    assert found.lost == 2
    assert found.bytes_from_storage > 0
    assert found.recomputed == 0
    assert sum(found.pieces) == 64 + 3 + 5
    assert found.seconds <= (64 + 3 + 5) / 2 * 1.1


@pytest.mark.slow
def test_what_a_lost_rank_held_is_read_or_computed_again() -> None:
    workload = lu_of_blocks(6, SIDE)
    calm = replayed(workload)
    loss = ((calm.seconds / 2, 1),)
    found = replayed(workload, losses=loss)
    assert found.lost == 1
    assert found.recomputed > 0
    assert found.seconds > calm.seconds
    twice = replayed(workload, losses=loss, copies=2)
    assert twice.recomputed == 0
    assert twice.bytes_copied == calm.bytes_copied + sum(t.writes.sums(workload.sizes).sum() for t in workload.tasks())
    with pytest.raises(InternalError, match="all ranks"):
        replayed(workload, losses=tuple((0.01, k) for k in range(4)))


# -- the published system, at the size of the paper --------------------------------------------------------------

SIDE_THERE = 2048
BLOCK_THERE = SIDE_THERE**2 * 4.0


def mean_moved(workload: BlockWorkload, n_ranks: int = 8, seeds: int = 2, **options: object) -> float:
    found = [replayed(workload, n_ranks, steal=None, seed=seed, **options) for seed in range(seeds)]
    return float(np.mean([one.bytes_moved for one in found]))


@pytest.mark.exhaustive
def test_the_traffic_of_the_paper_follows_from_its_policies() -> None:
    product, lu = product_of_blocks(16, SIDE_THERE), lu_of_blocks(16, SIDE_THERE)
    image = stencil_of_blocks((21, 16), SIDE_THERE, 15, 10, 3.0, 1.0)
    oblivious = mean_moved(image, seeds=1, affinity="none")
    assert oblivious / 2**30 == pytest.approx(36.2, rel=0.05)
    assert mean_moved(image, seeds=1, affinity="remote") / oblivious == pytest.approx(1.18 / 36.2, abs=0.05)
    for workload, affinity, share in ((product, "transfers", 0.71), (lu, "local", 0.62)):
        ratio = mean_moved(workload, affinity=affinity) / mean_moved(workload, affinity="none")
        assert ratio == pytest.approx(share, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["random", "row cyclic", "column cyclic", "centralized"])
def test_auto_moves_a_product_near_its_bound(placement: str) -> None:
    workload = product_of_blocks(16, SIDE_THERE, lines=True)
    held = workload.count_held(placement, 8, 0)  # type: ignore[arg-type]
    bound = product_bound(held[:, :16], held[:, 16:], 16 * BLOCK_THERE, np.full(8, 32))
    assert mean_moved(workload, seeds=1, placement=placement) <= (1.1 if placement == "random" else 1.2) * bound


def test_the_bound_of_a_product_is_known_where_nothing_is_held() -> None:
    nothing = np.zeros((8, 16))
    assert product_bound(nothing, nothing, 16.0, np.full(8, 32)) == 8 * 16 * 12
    there = np.full((1, 16), 16.0)
    assert product_bound(there, there, 16.0, np.array([256])) == 0


@pytest.mark.parametrize("seed", range(6))
def test_no_division_into_equal_shares_moves_less_than_the_bound(seed: int) -> None:
    """Small enough that all divisions can be tried."""
    rng = np.random.default_rng(seed)
    n_rows, n_columns = ((2, 4), (4, 2), (1, 6), (3, 2))[seed % 4]
    sizes = rng.integers(1, 9, n_rows + n_columns).astype(float)
    held = np.zeros((2, len(sizes)))
    held[rng.integers(0, 2, len(sizes)), np.arange(len(sizes))] = sizes * (rng.random(len(sizes)) < 0.7)
    rows, columns = (part.ravel() for part in np.indices((n_rows, n_columns)))
    n = n_rows * n_columns
    demand = TaskNeeds(np.arange(n + 1) * 2, np.stack([rows, n_rows + columns], axis=1).ravel(), sizes)
    task = Assignment(demand, held, np.ones(2), np.stack([rows, columns], axis=1))
    moved = [
        float(
            count_moved_bytes(demand, held + (sizes - held.sum(axis=0)), np.isin(np.arange(n), mine).astype(int)).sum()
        )
        for mine in combinations(range(n), n // 2)
    ]
    bound = bound_moved_bytes(task)
    assert bound is not None
    assert min(moved) >= bound
    assert bound > 0


def test_bounds_are_not_made_up() -> None:
    task = next(lu_of_blocks(4, SIDE).tasks())
    assert bound_moved_bytes(Assignment(task.demand, lu_of_blocks(4, SIDE).count_held("random", 2), np.ones(2))) is None
    assert bound_moved_bytes(Assignment(task.demand, lu_of_blocks(4, SIDE).count_held("source", 2), np.ones(2))) == 0
    assert bound_moved_bytes(Assignment(task.demand, lu_of_blocks(4, SIDE).count_held("random", 1), np.ones(1))) == 0


@pytest.mark.parametrize(("edges", "widths"), [([(4, 4, 1), (5, 5)], (2, 1)), ([(3, 3), (2, 2, 2)], (4, 0))])
def test_the_bound_of_a_stencil_is_its_halos(edges: list[tuple[int, ...]], widths: tuple[int, int]) -> None:
    shape = len(edges[0]), len(edges[1])
    owners = next(layouts(shape, whole_shares(np.full(3, shape[0] * shape[1] / 3))))
    cells = np.repeat(np.repeat(owners, edges[0], axis=0), edges[1], axis=1)
    expected = 0
    for rank in range(3):
        near = np.zeros(cells.shape, dtype=bool)
        for i, j in np.argwhere(cells == rank).tolist():
            near[max(0, i - widths[0]) : i + widths[0] + 1, max(0, j - widths[1]) : j + widths[1] + 1] = True
        expected += int((near & (cells != rank)).sum())
    assert halo_bound(edges, widths, 3) == expected > 0


@pytest.mark.exhaustive
def test_auto_moves_lu_and_images_less_than_the_paper() -> None:
    lu, image = lu_of_blocks(16, SIDE_THERE), stencil_of_blocks((21, 16), SIDE_THERE, 15, 3, 3.0, 1.0)
    assert mean_moved(lu, seeds=1) <= 0.48 * mean_moved(lu, seeds=1, affinity="none")
    best = min(mean_moved(image, seeds=1, affinity=affinity) for affinity in PAPER)
    assert mean_moved(image, seeds=1) <= 1.02 * best


def test_tasks_are_lists_of_pieces_with_what_they_write() -> None:
    task = next(product_of_blocks(3, SIDE).tasks())
    assert task.writes.n_pieces == task.demand.n_pieces == 9
    assert replace(task, index=None).index is None


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [3, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (2, 7, 10))])
def test_auto_moves_no_more_than_others_over_sequences(n_ranks: int) -> None:
    for workload in (lu_of_blocks(6, SIDE), product_of_blocks(6, SIDE)):
        for placement in ("random", "row cyclic", "centralized"):
            found = {
                affinity: replayed(workload, n_ranks, affinity=affinity, placement=placement, steal=None).bytes_moved
                for affinity in ("auto", "none", *PAPER)
            }
            assert found["auto"] <= found["none"], placement
            assert found["auto"] <= 1.02 * min(found[affinity] for affinity in PAPER), placement
