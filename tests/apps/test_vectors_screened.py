"""Runs of vectors that a bound screens: equal, bit for bit, to those that compute every pair, and to float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan import _native
from tartan.apps.vectors import Vectors
from tartan.base import row_screen
from tartan.store import keeper
from tartan.store.keeper import Keeper

pytestmark = pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this processor has no AVX2, or is not an x86")

N, D = 300, 72
METRICS = ("cosine", "correlation", "euclidean", "sqeuclidean")
RULES: dict[str, dict[str, Any]] = {
    "best": {"kind": "top-k", "k": 3},
    "worst": {"kind": "top-k", "k": 3, "largest": True},
    "more than there are": {"kind": "top-k", "k": 2 * N},
}


def gaussian(n: int = N, d: int = D, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def clustered(n: int = N, d: int = D, seed: int = 1) -> np.ndarray:
    """Return rows in clusters of some ten, next to which all others are far away."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n // 10, d), dtype=np.float32)
    return centres[rng.integers(len(centres), size=n)] + 0.3 * gaussian(n, d, seed + 1)


def rows_of(kind: str) -> np.ndarray:
    """Return rows that are hard to bound or to compute."""
    rows = gaussian()
    if kind == "clusters":
        return clustered()
    if kind == "one huge coordinate":
        rows[:, 5] = 1e4
    elif kind == "all rows equal":
        rows[:] = rows[0]
    elif kind == "rank 1":
        rows = rows[:, :1] * rows[:1]
    elif kind == "8 dimensions":
        rows = np.ascontiguousarray(rows[:, :8])
    elif kind == "norms that differ by 1e30":
        rows *= (10.0 ** np.linspace(-15, 15, N)).astype(np.float32)[:, None]
    elif kind == "denormal":
        rows[:, ::2] *= np.float32(1e-40)
    elif kind == "zero rows":
        rows[::3] = 0
    elif kind == "far from the origin":
        rows += 1000
    elif kind == "NaN and infinity":
        rows[[3, N - 1], [1, 2]] = [np.nan, np.inf]
    elif kind == "float64":
        return rows.astype(np.float64)
    elif kind == "int8":
        return (rows * 20).astype(np.int8)
    return rows


KINDS = (
    "gaussian", "clusters", "one huge coordinate", "all rows equal", "rank 1", "8 dimensions",
    "norms that differ by 1e30", "denormal", "zero rows", "far from the origin", "NaN and infinity", "float64", "int8",
)  # fmt: skip


def unscreened(monkeypatch: pytest.MonkeyPatch, *args: Any, **options: Any) -> Any:
    """Return a run that computes every pair."""
    with monkeypatch.context() as patch:
        whole = Keeper.__init__
        patch.setattr(Keeper, "__init__", lambda *given, **named: whole(*given, **named, trust=None))
        run = tartan.allpairs(*args, **options)
    assert "screened" not in run.stats
    return run


def kept(run: Any) -> list[np.ndarray]:
    table = run.pairs().read_all()
    order = np.lexsort((table["j"].to_numpy(), table["i"].to_numpy()))
    return [table[name].to_numpy()[order] for name in ("i", "j", "score")]


def check_same(found: Any, expected: Any) -> None:
    for one, other in zip(kept(found), kept(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [failure.reason for failure in found.failures] == [failure.reason for failure in expected.failures]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("kind", KINDS)
def test_screened_runs_keep_what_others_keep(
    monkeypatch: pytest.MonkeyPatch, kind: str, metric: str, rule: str
) -> None:
    rows, app = rows_of(kind), Vectors(metric=metric)
    options = {"reduce": RULES[rule], "workers": 2, "tile": 96, "quiet": True}
    check_same(tartan.allpairs(app, rows, **options), unscreened(monkeypatch, app, rows, **options))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("metric", ["correlation", "sqeuclidean"])
@pytest.mark.parametrize("kind", KINDS)
def test_screened_runs_below_a_threshold_keep_what_others_keep(
    monkeypatch: pytest.MonkeyPatch, kind: str, metric: str
) -> None:
    rows, app = rows_of(kind), Vectors(metric=metric)
    scores = tartan.allpairs(app, rows, quiet=True).matrix()[np.triu_indices(N, 1)]
    for limit in np.nanquantile(scores, [0.0, 0.01]):
        options = {"reduce": {"kind": "threshold", "threshold": float(limit)}, "tile": 96, "quiet": True}
        check_same(tartan.allpairs(app, rows, **options), unscreened(monkeypatch, app, rows, **options))


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "limit"), [("cosine", 0.1), ("euclidean", 4.0), ("correlation", 0.1)])
def test_pairs_that_coordinates_on_a_few_axes_rule_out_are_none_of_those_kept(
    monkeypatch: pytest.MonkeyPatch, metric: str, limit: float
) -> None:
    """Near duplicates of rows whose spectrum falls, as that of embeddings does."""
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((4200, 128)) * 20 * 0.93 ** np.arange(128)).astype(np.float32)
    rows[rng.permutation(4200)[:400]] = rows[rng.permutation(4200)[:400]] + gaussian(400, 128) / 4
    app, options = Vectors(metric=metric), {"reduce": {"kind": "threshold", "threshold": limit}, "quiet": True}
    monkeypatch.setattr(row_screen, "ROWS_PER_POSITION", 32)
    found = tartan.allpairs(app, rows, tile=1024, **options)
    check_same(found, unscreened(monkeypatch, app, rows, **options))
    assert len(kept(found)[0]) > 100
    assert found.stats["screened"]["by_coordinates"] > 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_are_those_of_float64(metric: str) -> None:
    rows = gaussian(600)
    run = tartan.allpairs(Vectors(metric=metric), rows, reduce={"kind": "top-k", "k": 5}, tile=96, quiet=True)
    wide = rows.astype(np.float64)
    if metric == "correlation":
        wide -= wide.mean(axis=1, keepdims=True)
    if metric in ("cosine", "correlation"):
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    squares = np.maximum(((wide[:, None, :] - wide[None, :, :]) ** 2).sum(axis=2), 0)
    exact = {"euclidean": np.sqrt(squares), "sqeuclidean": squares}.get(metric, squares / 2)
    np.fill_diagonal(exact, np.inf)
    ids, scores = run.neighbors(5)
    np.testing.assert_allclose(scores, np.sort(exact, axis=1)[:, :5], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(exact, ids, axis=1), scores, rtol=1e-4)


@pytest.mark.slow
def test_the_result_says_what_decided_its_pairs(tmp_path: Path) -> None:
    rows = gaussian(1500, 128)
    run = tartan.allpairs(Vectors(), rows, tmp_path / "run", reduce={"kind": "top-k", "k": 1}, tile=100, quiet=True)
    said = run.stats["screened"]
    assert said["by_bound"] > 0
    assert said["exactly"] > 0
    assert said["by_bound"] + said["exactly"] + said["unscreened"] >= 1500 * 1499 // 2
    assert 0.01 < said["largest_bound"] < 0.1
    more = gaussian(100, 128, 2)
    grown = tartan.add(tmp_path / "run", more, app=Vectors(), previous=rows).stats["screened"]
    assert grown["by_bound"] >= said["by_bound"]
    assert grown["largest_bound"] >= said["largest_bound"]


@pytest.mark.slow
def test_growing_keeps_what_starting_with_all_keeps(tmp_path: Path) -> None:
    rows, rule = clustered(500), {"kind": "top-k", "k": 2}
    options = {"reduce": rule, "tile": 96, "quiet": True}
    tartan.allpairs(Vectors(), rows[:403], tmp_path / "run", **options)
    grown = tartan.add(tmp_path / "run", rows[403:], app=Vectors(), previous=rows[:403])
    check_same(grown, tartan.allpairs(Vectors(), rows, **options))


@pytest.mark.parametrize("metric", METRICS)
def test_one_set_against_another(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    """Of each side items are counted from 0, and their copies must not be mixed up."""
    app, options = Vectors(metric=metric), {"reduce": {"kind": "top-k", "k": 2}, "tile": 96, "quiet": True}
    left, right = clustered(783)[:333], clustered(783)[333:]
    found = tartan.allpairs(app, left, against=right, **options)
    check_same(found, unscreened(monkeypatch, app, left, against=right, **options))
    assert found.stats["screened"]["by_bound"] > 0


def test_copies_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"reduce": {"kind": "top-k", "k": 2}, "tile": 96, "quiet": True}
    expected = tartan.allpairs(Vectors(), clustered(500), **options)
    monkeypatch.setattr(keeper, "COPY_BYTES", 0)
    check_same(tartan.allpairs(Vectors(), clustered(500), **options), expected)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_wrong_bound_loses_pairs(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    """What the tests above would say of a bound that is wrong."""
    app, rows = Vectors(metric=metric), gaussian(400)
    scores = tartan.allpairs(app, rows, quiet=True).matrix()[np.triu_indices(400, 1)]
    rule = {"kind": "threshold", "threshold": float(np.quantile(scores, 0.002))}
    options = {"reduce": rule, "tile": 96, "quiet": True}
    expected = kept(tartan.allpairs(app, rows, **options))[0]
    whole = Keeper.__init__
    monkeypatch.setattr(Keeper, "__init__", lambda *args, **named: whole(*args, **named, trust=-1.0))
    assert len(kept(tartan.allpairs(app, rows, **options))[0]) < len(expected)


@pytest.mark.parametrize("level", _native.Screen.levels())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_kernels_choose_alike(level: str, dtype: str) -> None:
    rows = Vectors(dtype=dtype).preprocess_block(clustered(700), np)
    found = []
    for screen in (_native.Screen(700, D, 1 << 20, level=level), None):
        best = _native.RunningBest(0, 700, 2, dtype == "float32")
        for top in range(0, 700, 175):
            for left in range(0, 700, 70):  # the first tile of a row sets its bar
                sides = rows[top : top + 175], rows[left : left + 70]
                assert best.choose_rows(*sides, None, (top, left), False, screen=screen)
        (items, ids), scores = best.pairs((0, 700), (0, 700), False)
        found.append((items, ids, scores))
        assert screen is None or screen.decided()[0] > 0
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="level: not on this machine"):
        _native.Screen(10, 64, 0, level="avx1024")
