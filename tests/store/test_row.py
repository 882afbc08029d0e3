"""The scores of one item, and of one pair, as every kind of run has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.store.row import item_row, pair_scores

ITEMS = np.random.default_rng(3).permutation(40).astype(float) * 1.5
N = len(ITEMS)


def apart(a: float, b: float) -> float:
    return abs(float(a) - float(b))


class OneWay(tartan.Application):
    """Not symmetric: how far the first item is above the second one, and the other way round in another output."""

    releases_gil = True
    symmetric = False
    outputs = {"above": np.float64, "sum": np.float64}  # noqa: RUF012

    def compare_pair(self, a: Any, b: Any) -> dict[str, float]:
        return {"above": 2.0 * float(a) - float(b), "sum": float(a) + float(b)}


def run_of(tmp_path: Path, **options: Any) -> Any:
    app = options.pop("app", apart)
    return tartan.allpairs(app, list(ITEMS), out=tmp_path / "r", tile=7, workers=1, **options)


@pytest.mark.slow
def test_a_row_of_a_matrix_is_sorted_and_complete(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    matrix = run.matrix()
    for item in (0, 6, 7, 39):
        row = item_row(run.folder, item)
        others = np.delete(np.arange(N), item)
        order = others[np.lexsort((others, matrix[item, others]))]
        assert row.others.tolist() == order.tolist()
        assert row.scores.tolist() == matrix[item, order].tolist()
        assert row.score_with(int(order[4])) == matrix[item, order[4]]
        assert row.score_with(item) is None
        first = int(np.flatnonzero(row.scores == row.scores[4])[0])
        assert row.rank_of(int(order[4])) == first + 1  # equal scores share a rank
    assert item_row(run.folder, 3, largest=True).scores.tolist() == sorted(np.delete(matrix[3], 3).tolist())[::-1]


@pytest.mark.slow
def test_a_row_of_kept_pairs(tmp_path: Path) -> None:
    whole = np.abs(ITEMS[:, None] - ITEMS)
    top = run_of(tmp_path / "top", reduce={"kind": "top-k", "k": 5, "largest": False})
    near, scores = top.neighbors(5)
    for item in (0, 13, 39):
        row = item_row(top.folder, item)
        assert row.others.tolist() == near[item].tolist()
        assert row.scores.tolist() == scores[item].tolist()
    limit = run_of(tmp_path / "limit", reduce={"kind": "threshold", "threshold": 4.5, "largest": False})
    for item in (0, 13, 39):
        kept = set(np.flatnonzero((whole[item] <= 4.5) & (np.arange(N) != item)).tolist())
        assert set(item_row(limit.folder, item).others.tolist()) == kept


@pytest.mark.slow
def test_rows_of_two_sets_and_of_runs_that_are_not_symmetric(tmp_path: Path) -> None:
    sides = tartan.allpairs(apart, list(ITEMS[:25]), out=tmp_path / "ab", against=list(ITEMS[25:]), tile=7, workers=1)
    for item in (0, 24, 25, 39):
        row = item_row(sides.folder, item)
        assert set(row.others.tolist()) == set(range(25, N) if item < 25 else range(25))
        assert row.scores.tolist() == np.sort(np.abs(ITEMS[row.others] - ITEMS[item])).tolist()
    one_way = run_of(tmp_path, app=OneWay)
    row = item_row(one_way.folder, 9)
    assert row.scores.tolist() == sorted(2 * ITEMS[9] - np.delete(ITEMS, 9))
    for i, j in ((3, 30), (30, 3), (8, 9), (9, 8)):
        code, scores = pair_scores(one_way.folder, i, j)
        assert code == DONE
        assert scores == {"above": 2 * ITEMS[i] - ITEMS[j], "sum": ITEMS[i] + ITEMS[j]}


@pytest.mark.slow
def test_a_pair_of_every_kind(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert pair_scores(run.folder, 30, 3) == (DONE, {"scores": np.float32(apart(ITEMS[3], ITEMS[30]))})
    top = run_of(tmp_path / "top", reduce={"kind": "top-k", "k": 5, "largest": False})
    near = int(top.neighbors(1)[0][11, 0])
    assert pair_scores(top.folder, 11, near)[1] == pair_scores(top.folder, near, 11)[1] == {"scores": np.float32(1.5)}
    far = int(np.abs(ITEMS - ITEMS[11]).argmax())
    assert pair_scores(top.folder, 11, far) == (DONE, {})


@pytest.mark.slow
def test_a_pair_that_is_not_there(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.folder.results.arrays["scores"].chunk_path(0, 4).unlink()
    (tmp_path / "r" / "status.zarr" / "c" / "0" / "4").unlink()
    assert pair_scores(tartan.open(tmp_path / "r").folder, 1, 30) == (NOT_COMPUTED, {})
    assert 30 not in item_row(tartan.open(tmp_path / "r").folder, 1).others
