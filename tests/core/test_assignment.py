"""Assignment: which rank computes which piece of a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tartan.core.affinity import TaskNeeds, count_moved_bytes
from tartan.core.blocks.assignment import AFFINITIES, Assignment, assign
from tartan.core.blocks.shares_of_grid import PieceGrid, ProductForm

PAPER = ("local", "transfers", "remote")


def product_task(side: int, n_ranks: int, place: str, seed: int = 0) -> Assignment:
    """Return the product of two matrices of side x side blocks of one byte, whose blocks lie somewhere."""
    pieces = [(i, j) for i in range(side) for j in range(side)]

    def needs(piece: tuple[int, int]) -> dict[object, float]:
        i, j = piece
        return dict.fromkeys([*(("A", i, k) for k in range(side)), *(("B", k, j) for k in range(side))], 1.0)

    demand, units = TaskNeeds.of(pieces, needs)
    rows, columns = (np.array([unit[k] for unit in units]) for k in (1, 2))  # type: ignore[index]
    rng = np.random.default_rng(seed)
    where = {
        "random": rng.integers(0, n_ranks, len(units)),
        "row cyclic": rows % n_ranks,
        "column cyclic": columns % n_ranks,
        "centralized": 0 * rows,
    }[place]
    held = (where == np.arange(n_ranks)[:, None]).astype(float)
    return Assignment(demand, held, np.ones(n_ranks), np.array(pieces), seed=seed)


def pairs_task(n_blocks: int, n_ranks: int) -> Assignment:
    """Return all pairs of blocks, which lie on the ranks in turn."""
    pieces = [(i, j) for i in range(n_blocks) for j in range(i, n_blocks)]
    demand, units = TaskNeeds.of(pieces, lambda piece: dict.fromkeys(piece, 1.0))
    held = np.array(units) % n_ranks == np.arange(n_ranks)[:, None]
    return Assignment(demand, held.astype(float), np.ones(n_ranks), np.array(pieces))


def random_task(seed: int) -> Assignment:
    """Return a task of any kind: a product, a stencil, an update in place or pieces that need units at random."""
    rng = np.random.default_rng(seed)
    n_ranks, shape = int(rng.integers(2, 11)), rng.integers(2, 9, 2)
    index = np.array(list(np.ndindex(*shape)))
    kind = rng.integers(0, 4)

    def needs(piece: int) -> dict[object, float]:
        i, j = index[piece].tolist()
        if kind == 0:
            return {("row", i): 3.0, ("column", j): 2.0}
        if kind == 1:
            around = [(i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
            return {(place, k): 9.0 if k == 4 else 0.5 for k, place in enumerate(around)}
        if kind == 2:
            return {("row", i): 1.0, ("column", j): 1.0, ("own", i, j): 1.0}
        wanted = np.random.default_rng([seed, piece]).integers(0, 20, 4)
        return {int(unit): 1.0 + unit % 3 for unit in wanted}

    demand, _ = TaskNeeds.of(range(len(index)), needs)
    where = rng.integers(0, n_ranks, demand.n_units) * int(rng.integers(0, 2))
    held = (where == np.arange(n_ranks)[:, None]) * demand.sizes
    return Assignment(demand, held, np.ones(n_ranks), index, seed=seed)


def moved(task: Assignment, owners: np.ndarray) -> float:
    return float(count_moved_bytes(task.demand, task.held, owners).sum())


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_every_rank_gets_its_share(affinity: str) -> None:
    task = pairs_task(16, 4)
    owners = assign(task, affinity)  # type: ignore[arg-type]
    assert np.bincount(owners).tolist() == [34, 34, 34, 34]
    np.testing.assert_array_equal(owners, assign(task, affinity))  # type: ignore[arg-type]
    uneven = assign(replace(task, speeds=np.array([1.0, 2.0, 4.0, 0.0])), affinity)  # type: ignore[arg-type]
    counts = np.bincount(uneven, minlength=4)
    assert np.abs(counts - 136 * np.array([1, 2, 4, 0]) / 7).max() < 1


def test_halves_are_rounded_so_that_whole_shares_stay() -> None:
    task = pairs_task(4, 4)
    uneven = replace(task, speeds=np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0]), held=np.zeros((6, task.demand.n_units)))
    for affinity in AFFINITIES:
        assert uneven.within_bounds(assign(uneven, affinity)), affinity
    assert np.bincount(assign(uneven, "none")).tolist() == [1, 1, 2, 2, 2, 2]
    halves = replace(uneven, speeds=np.array([0.5, 1.0, 1.0, 1.0, 1.0, 5.5]))
    assert np.bincount(assign(halves, "local")).tolist()[1:5] == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_unlike_ranks_get_their_shares(first: int) -> None:
    for seed in range(first, first + 50):
        task = random_task(seed)
        speeds = np.random.default_rng(seed).choice([0.0, 1.0, 2.0, 5.0], task.n_ranks)
        task = replace(task, speeds=speeds + (np.arange(task.n_ranks) == 0))
        owners = assign(task)
        assert task.within_bounds(owners), seed
        assert moved(task, owners) <= moved(task, assign(task, "none")), seed


def test_what_a_rank_is_bound_to_fetch_counts() -> None:
    """With the blocks of all pairs in turn on the ranks, looking at what lies there does not help."""
    task = pairs_task(32, 8)
    found = {score: moved(task, assign(task, score)) for score in ("marginal", "local", "remote")}
    assert found["marginal"] < 0.7 * min(found["local"], found["remote"])


#: The two-dimensional bound of docs/benchmarks.md for 16 x 16 blocks on 8 ranks, and how near "auto" comes.
@pytest.mark.parametrize(
    ("place", "bound", "ratio"),
    [("random", 1220, 1.1), ("row cyclic", 1152, 1.0), ("column cyclic", 1152, 1.0), ("centralized", 1344, 1.0)],
)
@pytest.mark.slow
def test_products_come_near_their_bound(place: str, bound: float, ratio: float) -> None:
    task = product_task(16, 8, place)
    assert moved(task, assign(task)) <= ratio * bound


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (50, 100, 150))])
def test_auto_moves_little_in_any_task(first: int) -> None:
    for seed in range(first, first + 50):
        task = random_task(seed)
        owners = assign(task)
        assert np.abs(np.bincount(owners, minlength=task.n_ranks) - task.shares).max() < 1, seed
        assert moved(task, owners) <= moved(task, assign(task, "none")), seed
        assert moved(task, owners) <= 1.02 * min(moved(task, assign(task, score)) for score in PAPER), seed


@pytest.mark.slow
@pytest.mark.parametrize("place", ["random", "row cyclic", "column cyclic", "centralized"])
@pytest.mark.parametrize("n_ranks", [2, 7, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (3, 5, 10))])
def test_auto_moves_little_in_products(place: str, n_ranks: int) -> None:
    task = product_task(12, n_ranks, place, seed=n_ranks)
    owners = assign(task)
    assert task.within_bounds(owners)
    assert moved(task, owners) <= min(moved(task, assign(task, score)) for score in ("none", "marginal", *PAPER))


def test_a_part_of_the_pieces_may_be_looked_at() -> None:
    task = product_task(8, 4, "row cyclic")
    found = {share: moved(task, assign(task, "local", evaluate=share)) for share in (0.0, 0.5, 1.0)}
    assert found[1.0] < found[0.5] < found[0.0]
    half = assign(task, evaluate=0.5)
    assert moved(task, assign(task)) < moved(task, half) < moved(task, assign(task, "none"))
    assert np.abs(np.bincount(half) - 16).max() <= 1


def test_what_comes_back_counts() -> None:
    """Pieces go to the ranks that are said to need their results, where that costs little now."""
    task = product_task(6, 3, "random")
    wanted = np.arange(36) % 3
    extra = 100.0 * (wanted[:, None] != np.arange(3))
    np.testing.assert_array_equal(assign(replace(task, extra=extra)), wanted)
    np.testing.assert_array_equal(assign(replace(task, extra=extra), "marginal"), wanted)


def test_many_pieces_are_divided_by_whole_lines() -> None:
    """Shares of a large product are near-square whichever order its pieces come in."""
    side, n_ranks = 100, 16
    index = np.random.default_rng(0).permutation(np.array(list(np.ndindex(side, side))))
    units = np.stack([index[:, 0], side + index[:, 1]], axis=1).ravel()
    demand = TaskNeeds(np.arange(side**2 + 1) * 2, units, np.ones(2 * side))
    task = Assignment(demand, np.zeros((n_ranks, 2 * side)), np.ones(n_ranks), index)
    owners = assign(task)
    assert np.bincount(owners).tolist() == [625] * n_ranks
    assert moved(task, owners) == n_ranks * (25 + 25)


def test_products_are_recognised() -> None:
    task = product_task(3, 2, "random").merge()
    assert task.index is not None
    grid = PieceGrid.of(task.index)
    assert grid is not None
    assert grid.shape == (3, 3)
    assert ProductForm.of(task.demand, grid) is not None
    assert PieceGrid.of(task.index[:-1]) is None
    assert PieceGrid.of(np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])) is None
    line = PieceGrid.of(np.array([[4, 7], [6, 7]]))
    assert line is not None
    assert line.shape == (2, 1)
    chain, _ = TaskNeeds.of(range(9), lambda piece: {piece: 1.0, piece + 1: 1.0})
    assert ProductForm.of(chain, grid) is None
