"""Sparse rows that are given out and compared as entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tartan
from tartan.apps.vectors import Vectors
from tartan.base.entries import BEHIND, ENTRY
from tartan.errors import ConfigError
from tartan.run.inputs import open_items
from tartan.sources.rows.entries import EntryRows

WIDTH = 600


def make_rows(n: int, seed: int, most: int = 24, dtype: str = "float32") -> Any:
    """Return rows of a few words each, of which some are in many rows; every ninth is the one four before it."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, WIDTH + 1)
    rows = np.zeros((n, WIDTH))
    for row in rows:
        row[rng.choice(WIDTH, rng.integers(1, most + 1), replace=False, p=chance / chance.sum())] = 1
    rows *= rng.integers(1, 9, rows.shape)
    rows[8::9] = rows[4 : len(rows) - 4 : 9][: len(rows[8::9])]
    return sp.csr_array(rows.astype(dtype))


ROWS = make_rows(130, 1)


def entries_of(items: Any, **parameters: Any) -> EntryRows:
    source = open_items(Vectors(**parameters), items)
    assert isinstance(source, EntryRows)
    return source


def test_a_file_in_memory_and_shards_give_the_same_entries(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "all.npz", ROWS)
    for part in range(2):
        sp.save_npz(tmp_path / f"part-{part}.npz", ROWS[part * 65 : part * 65 + 65])
    found = [
        entries_of(items).read_block(3, 120)
        for items in (ROWS, str(tmp_path / "all.npz"), str(tmp_path / "part-*.npz"))
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    dense = np.zeros((117, WIDTH))
    row, place = np.nonzero(found[0]["position"] != BEHIND)
    dense[row, found[0]["position"][row, place]] = found[0]["value"][row, place]
    np.testing.assert_array_equal(dense, ROWS[3:120].toarray())
    assert found[0].dtype == ENTRY


def test_what_is_not_in_order_twice_or_zero_is_brought_into_order() -> None:
    data, indices = np.array([2.0, 1, 0, 4, 3, 5], "f4"), np.array([70, 9, 3, 9, 8, 8])
    given = sp.csr_array((data, indices, [0, 2, 2, 6]), shape=(3, WIDTH))
    found = entries_of(given).read_block(0, 3)
    assert found[0][:3].tolist() == [(9, 1), (70, 2), (BEHIND, 0)]
    assert found[1][0].tolist() == (BEHIND, 0)
    assert found[2][:3].tolist() == [(8, 8), (9, 4), (BEHIND, 0)]


@pytest.mark.parametrize(
    "parameters", [{"metric": "euclidean"}, {"precision": "tf32"}, {"metric": "jaccard", "bits": "packed"}]
)
def test_other_metrics_get_dense_rows(parameters: Any) -> None:
    assert not isinstance(open_items(Vectors(**parameters), ROWS), EntryRows)


def test_rows_that_are_hardly_sparse_are_dense() -> None:
    assert not isinstance(open_items(Vectors(), sp.csr_array(np.eye(9) + 1)), EntryRows)
    one_is_long = sp.vstack([ROWS, np.ones((1, WIDTH))]).tocsr()
    assert not isinstance(open_items(Vectors(), one_is_long), EntryRows)


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduce", [None, tartan.top(5), {"kind": "threshold", "threshold": 0.7}])
def test_scores_are_those_of_dense_rows(metric: str, dtype: str, reduce: Any) -> None:
    app = Vectors(metric=metric, dtype=dtype)
    found = tartan.allpairs(app, ROWS, reduce=reduce, workers=2, quiet=True)
    dense = tartan.allpairs(app, ROWS.toarray(), reduce=reduce, workers=2, quiet=True)
    scores, expected = (run.matrix() if reduce is None else run.to_sparse().toarray() for run in (found, dense))
    if metric == "jaccard" or dtype == "float32":
        np.testing.assert_array_equal(scores, expected)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_listed_pairs_have_the_scores_of_the_matrix(metric: str) -> None:
    app = Vectors(metric=metric)
    matrix = tartan.allpairs(app, ROWS, workers=1, quiet=True).matrix()
    pairs = np.array([(i, j) for i in range(0, 130, 7) for j in range(i + 1, 130, 11)])
    run = tartan.allpairs(app, ROWS, pairs=pairs, workers=1, quiet=True)
    np.testing.assert_array_equal(run.matrix()[pairs[:, 0], pairs[:, 1]], matrix[pairs[:, 0], pairs[:, 1]])


def test_scores_do_not_depend_on_the_cutting() -> None:
    whole = tartan.allpairs(Vectors(dtype="float64"), ROWS, workers=1, quiet=True).matrix()
    small = tartan.allpairs(Vectors(dtype="float64"), ROWS, tile=16, workers=2, quiet=True).matrix()
    np.testing.assert_array_equal(whole, small)


@pytest.mark.parametrize(
    ("row", "said"),
    [({}, "all values are 0: a zero vector has no direction"), ({7: np.nan}, "value nan at position 7")],
)
def test_a_row_that_cannot_be_compared_fails_by_name(row: dict[int, float], said: str) -> None:
    bad = np.zeros((1, WIDTH), "f4")
    for position, value in row.items():
        bad[0, position] = value
    items = sp.vstack([ROWS[:5], sp.csr_array(bad), ROWS[5:20]]).tocsr()
    run = tartan.allpairs(Vectors(), items, workers=1, quiet=True)
    assert [(failure.i, said in failure.reason) for failure in run.failures] == [(5, True)]


def test_empty_sets_are_equal() -> None:
    items = sp.vstack([ROWS[:5], sp.csr_array((2, WIDTH), dtype="f4")]).tocsr()
    matrix = tartan.allpairs(Vectors(metric="jaccard"), items, workers=1, quiet=True).matrix()
    assert matrix[5, 6] == 0
    assert set(matrix[5, :5].tolist()) == {1.0}


def test_rows_are_added_whatever_form_they_have(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", ROWS[:60])
    for name, rows in (("b", ROWS[60:100]), ("c", make_rows(9, 5, most=12))):
        sp.save_npz(tmp_path / f"{name}.npz", rows)
    np.save(tmp_path / "d.npy", ROWS[100:].toarray())
    out = tmp_path / "run"
    tartan.allpairs(Vectors(), str(tmp_path / "a.npz"), out=out, workers=1, quiet=True)
    for name in ("b.npz", "c.npz", "d.npy"):
        run = tartan.add(out, str(tmp_path / name), workers=1, quiet=True)
    together = sp.vstack([ROWS[:100], make_rows(9, 5, most=12), ROWS[100:]]).tocsr()
    np.testing.assert_array_equal(run.matrix(), tartan.allpairs(Vectors(), together, workers=1, quiet=True).matrix())
    assert tartan.resume(out, quiet=True).n_items == 139


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_longer_rows_are_added(tmp_path: Path, metric: str) -> None:
    sp.save_npz(tmp_path / "a.npz", ROWS)
    long = sp.vstack([ROWS[:2], np.ones((1, WIDTH), "f4")]).tocsr()
    sp.save_npz(tmp_path / "b.npz", long)
    np.save(tmp_path / "c.npy", np.ones((1, WIDTH), "f4"))
    app, out = Vectors(metric=metric), tmp_path / "run"
    tartan.allpairs(app, str(tmp_path / "a.npz"), out=out, workers=1, quiet=True)
    for name in ("b.npz", "c.npy"):
        run = tartan.add(out, str(tmp_path / name), workers=1, quiet=True)
    together = sp.vstack([ROWS, long, np.ones((1, WIDTH), "f4")]).tocsr()
    assert not run.failures
    np.testing.assert_array_equal(run.matrix(), tartan.allpairs(app, together, workers=1, quiet=True).matrix())


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_runs_of_before_there_were_entries_go_on(tmp_path: Path, metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sp.save_npz(tmp_path / "a.npz", ROWS[:60])
    sp.save_npz(tmp_path / "b.npz", ROWS[60:])
    app, out = Vectors(metric=metric), tmp_path / "run"
    with monkeypatch.context() as before:
        before.setattr("tartan.run.inputs.as_entries", lambda source: source)
        old = tartan.allpairs(app, str(tmp_path / "a.npz"), out=out, workers=1, quiet=True)
    assert old.folder.manifest.application["item"]["shape"] == ([WIDTH] if metric == "cosine" else [WIDTH // 64 + 2])
    run = tartan.add(out, str(tmp_path / "b.npz"), workers=1, quiet=True)
    np.testing.assert_array_equal(run.matrix(), tartan.allpairs(app, ROWS, workers=1, quiet=True).matrix())
    assert tartan.resume(out, quiet=True).n_items == ROWS.shape[0]


def test_two_sides_have_room_for_the_longer_rows() -> None:
    short, long = make_rows(20, 3, most=4), make_rows(30, 4, most=24)
    run = tartan.allpairs(Vectors(), short, against=long, workers=1, quiet=True)
    dense = tartan.allpairs(Vectors(), short.toarray(), against=long.toarray(), workers=1, quiet=True)
    np.testing.assert_array_equal(run.matrix(), dense.matrix())


def test_rows_of_other_width_are_refused(tmp_path: Path) -> None:
    narrow = sp.csr_array(ROWS[:, :500])
    with pytest.raises(ConfigError, match=r"cannot be joined: of 500 and 600 values"):
        tartan.allpairs(Vectors(), ROWS, against=narrow, workers=1, quiet=True)


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
def test_rows_too_wide_for_entries_are_refused_with_a_way_out(metric: str) -> None:
    rows = sp.csr_array(ROWS[:9])
    spread = rows.indices.astype(np.int64) * 2**23
    wide = sp.csr_array((rows.data, spread, rows.indptr.astype(np.int64)), shape=(9, WIDTH * 2**23))
    with pytest.raises(ConfigError, match=r"rows of 5,033,164,800 values, and sparse rows have at most 16,777,216"):
        tartan.allpairs(Vectors(metric=metric), wide, workers=1, quiet=True)
    used, at = np.unique(wide.indices, return_inverse=True)
    narrow = sp.csr_array((wide.data, at, wide.indptr), shape=(9, len(used)))
    found = tartan.allpairs(Vectors(metric=metric), narrow, workers=1, quiet=True).matrix()
    np.testing.assert_array_equal(found, tartan.allpairs(Vectors(metric=metric), rows, workers=1, quiet=True).matrix())
