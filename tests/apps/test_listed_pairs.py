"""Pairs of a list are scored one by one where a tile holds few of them: the bits are those of the whole tile."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tartan
from tartan.apps.vectors.app import Vectors

WIDTHS = (1, 31, 33, 200)
LISTED = ("cosine", "correlation", "euclidean", "sqeuclidean", "manhattan", "hamming", "jaccard")


def make_rows(dtype: str, width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        rows = rng.random((90, width)) < 0.4
    elif dtype.startswith("int"):
        rows = rng.integers(1, 9, (90, width)).astype(dtype)
    else:
        rows = (rng.standard_normal((90, width)) + 2).astype(dtype)
    rows[7] = rows[3]  # equal rows are at distance 0
    return rows


@pytest.mark.parametrize("metric", LISTED)
@pytest.mark.parametrize("scores", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "bool"])
def test_listed_scores_have_the_bits_of_the_tile(metric: str, scores: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for width in WIDTHS:
        if width == 1 and metric in ("cosine", "correlation"):
            continue
        app = Vectors(metric=metric, dtype=scores)
        block = app.preprocess_block(make_rows(dtype, width, 2), np)
        rows, columns = rng.integers(0, len(block), (2, 61))
        rows[0], columns[0], rows[1], columns[1] = 3, 7, 5, 5
        found = app.compare_listed(block, block, rows, columns)
        if found is None:
            pytest.skip("this machine multiplies with NumPy, whose products have no single pairs")
        expected = app.compare(block, block, np)[rows, columns]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, f"width {width}")


def test_a_run_of_listed_pairs_has_the_scores_of_the_whole_run(tmp_path: Path) -> None:
    items = np.random.default_rng(0).standard_normal((700, 48)).astype(np.float32)
    items[11] = np.nan  # no vector
    pairs = np.random.default_rng(1).integers(0, 700, (900, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    whole = tartan.allpairs(Vectors(), items, out=tmp_path / "whole").matrix()
    run = tartan.allpairs(Vectors(), items, pairs=pairs, out=tmp_path / "some")
    found = run.matrix(diagonal=np.nan)
    wanted = np.zeros((700, 700), bool)
    wanted[pairs[:, 0], pairs[:, 1]] = wanted[pairs[:, 1], pairs[:, 0]] = True
    wanted[11] = wanted[:, 11] = False
    np.testing.assert_array_equal(np.isfinite(found), wanted)
    np.testing.assert_array_equal(found[wanted], whole[wanted])


def test_an_application_scores_listed_pairs_of_its_own(tmp_path: Path) -> None:
    calls = []

    class Sums(tartan.Application):
        releases_gil = True
        similarity = True
        outputs: ClassVar = {"scores": np.float64, "larger": np.int32}

        def compare(self, left, right, xp):  # type: ignore[no-untyped-def]
            return {"scores": left[:, None] + right, "larger": xp.maximum(left[:, None], right).astype(np.int32)}

        def compare_listed(self, left, right, rows, columns):  # type: ignore[no-untyped-def]
            calls.append(len(rows))
            a, b = left[rows], right[columns]
            return {"scores": a + b, "larger": np.maximum(a, b)}

    pairs = np.array([[0, 250], [3, 40], [299, 7]])
    run = tartan.allpairs(Sums(), np.arange(300.0), pairs=pairs, out=tmp_path / "sums")
    table = {
        (i, j): s
        for batch in run.pairs()
        for i, j, s in zip(*(batch.column(c).to_pylist() for c in ("i", "j", "scores")))
    }
    assert table == {(0, 250): 250.0, (3, 40): 43.0, (7, 299): 306.0}
    assert sum(calls) == 3


def test_pairs_that_do_not_fit_the_rows_are_refused() -> None:
    from tartan import _native

    rows = np.ones((4, 3), np.float32)
    out = np.zeros(2, np.float32)
    for places in ([0, 4], [-1, 0]):
        with pytest.raises(ValueError, match="do not fit together"):
            _native.score_listed("manhattan", rows, rows, (np.array(places), np.array([0, 1])), out)
    with pytest.raises(ValueError, match="no kernel"):
        _native.score_listed("chebyshov", rows, rows, (np.array([0, 1]), np.array([0, 1])), out)
