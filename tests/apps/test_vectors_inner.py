"""Inner products against NumPy in float64: any size, the best and those beyond a bar, screened or not, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan import _native
from tartan.apps.vectors.app import Vectors

U = {"float32": 2.0**-24, "float64": 2.0**-53}


def make_rows(n: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-6, 6, (n, 1))
    rows[1], rows[2] = rows[0], 0  # equal rows, and a row of zeros
    return rows.astype(np.float32)


@pytest.mark.parametrize("scores", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 7, 64, 300])
def test_scores_are_those_of_numpy(scores: str, width: int) -> None:
    rows = make_rows(80, width)
    app = Vectors(metric="inner", dtype=scores)
    ready = app.preprocess_block(rows, np)
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    bound = (width + 2) * U[scores] * norms[:, None] * norms + width * float(np.finfo(scores).smallest_subnormal)
    assert (np.abs(app.compare(ready, ready, np) - wide @ wide.T) <= bound + 1e-15 * norms[:, None] * norms).all()


def test_the_portable_form_agrees() -> None:
    class Portable:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    rows = make_rows(40, 70)
    app = Vectors(metric="inner")
    ready = app.preprocess_block(rows, Portable())
    np.testing.assert_array_equal(ready, app.preprocess_block(rows, np))
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    off = np.abs(ready @ ready.T - app.compare(ready, ready, np))
    assert (off <= 150 * U["float32"] * norms[:, None] * norms).all()


def kept(rows: np.ndarray, rule: dict[str, Any], out: Path) -> dict[tuple[int, int], float]:
    run = tartan.allpairs(Vectors(metric="inner"), rows, reduce=rule, out=out)
    return {
        (i, j): score
        for batch in run.pairs()
        for i, j, score in zip(*(batch.column(name).to_pylist() for name in ("i", "j", "score")), strict=True)
    }


def test_the_best_are_the_largest(tmp_path: Path) -> None:
    rows = make_rows(400, 96)
    whole = tartan.allpairs(Vectors(metric="inner"), rows, out=tmp_path / "whole").matrix(diagonal=-np.inf)
    found = kept(rows, {"kind": "top-k", "k": 3}, tmp_path / "top")
    for item in range(400):
        mine = sorted((-score, j) for (i, j), score in found.items() if i == item)
        best = np.lexsort((np.arange(400), -whole[item]))[:3]
        assert mine == [(-whole[item, j], j) for j in best.tolist()]


def test_a_threshold_keeps_what_is_as_large(tmp_path: Path) -> None:
    rows = make_rows(300, 80)
    whole = tartan.allpairs(Vectors(metric="inner"), rows, out=tmp_path / "whole").matrix(diagonal=-np.inf)
    bar = float(np.sort(whole[np.triu_indices(300, 1)])[-500])
    found = kept(rows, {"kind": "threshold", "threshold": bar}, tmp_path / "some")
    expected = {(i, j): whole[i, j] for i, j in zip(*np.nonzero(whole >= bar), strict=True) if i < j}
    assert found == expected


@pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this machine has no kernel of products")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e17, 1e19])
def test_what_a_screen_leaves_has_the_same_bits(dtype: Any, largest: bool, scale: float) -> None:
    rows = (np.random.default_rng(3).standard_normal((700, 128)) * scale / 12).astype(dtype)
    exact = np.empty((700, 700), dtype)
    _native.inner_tile(rows, rows, exact)
    limit = float(np.sort(exact.ravel())[-3000 if largest else 3000])
    found = []
    for screen in (None, _native.Screen(700, 128, 1 << 24)):
        (i, j), scores = _native.rows_beyond(rows, rows, None, (0, 0), largest, limit, metric="inner", screen=screen)
        order = np.lexsort((j, i))
        found.append((i[order].tolist(), j[order].tolist(), scores[order].tobytes()))
    assert found[0] == found[1]
    assert len(found[0][0]) == np.count_nonzero(exact >= limit if largest else exact <= limit)


def test_rows_that_overflow_and_are_no_numbers_fail_by_name(tmp_path: Path) -> None:
    rows = make_rows(60, 70)
    rows[5], rows[6, 3], rows[7, 0] = 1e19, np.nan, np.inf
    run = tartan.allpairs(Vectors(metric="inner"), rows, out=tmp_path / "bad")
    reasons = {failure.i: failure.reason for failure in run.folder.failures()}
    assert sorted(reasons) == [5, 6, 7]
    assert "products overflow above 1.84e+19; scale the data or set dtype=float64" in reasons[5]
    assert np.isfinite(run.matrix(diagonal=0)[8:, 8:]).all()


def test_it_is_a_similarity_that_declares_no_distance(tmp_path: Path) -> None:
    run = tartan.allpairs(Vectors(metric="inner"), make_rows(60, 70), out=tmp_path / "run")
    assert run.larger_is_nearer
    assert run.manifest.meaning() == {}
    assert run.manifest.self_score is None


def test_listed_pairs_have_the_bits_of_the_tile() -> None:
    rows = make_rows(90, 65)
    app = Vectors(metric="inner")
    ready = app.preprocess_block(rows, np)
    i, j = np.random.default_rng(2).integers(0, 90, (2, 200))
    np.testing.assert_array_equal(app.compare_listed(ready, ready, i, j), app.compare(ready, ready, np)[i, j])
