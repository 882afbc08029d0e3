"""Chebyshev, Bray-Curtis, Canberra, Jensen-Shannon, Minkowski and Euclidean distances with missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import nan_euclidean_distances

import tartan
from tartan.apps.vectors import Vectors
from tartan.apps.vectors import terms as terms_module
from tartan.errors import ConfigError

METRICS: list[dict[str, Any]] = [
    {"metric": "chebyshev"},
    {"metric": "braycurtis"},
    {"metric": "canberra"},
    {"metric": "jensenshannon"},
    {"metric": "nan_euclidean"},
    *({"metric": "minkowski", "p": p} for p in (1, 1.5, 2, 3, 4, 5, 6, 7, 2.25, float("inf"))),
]
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def rows(dtype: str, m: int, d: int, seed: int) -> np.ndarray:
    """Return rows without a sign, with ties and zeros."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        values = rng.random((m, d)) * (rng.random((m, d)) < 0.8)
        values[:, 0] += 0.1
        return values.astype(dtype)
    return np.asarray(rng.integers(0, 100, (m, d)) + (np.arange(d) == 0)).astype(dtype)


def expected(metric: str, left: np.ndarray, right: np.ndarray, p: float = 2) -> np.ndarray:
    """Return what SciPy or scikit-learn say, in float64."""
    a, b = left.astype("f8"), right.astype("f8")
    if metric == "nan_euclidean":
        return np.asarray(nan_euclidean_distances(a, b))
    if metric == "minkowski" and p == np.inf:
        return np.asarray(cdist(a, b, "chebyshev"))
    return np.asarray(cdist(a, b, metric, **({"p": p} if metric == "minkowski" else {})))


def tiles(ways: dict[str, Any], left: np.ndarray, right: np.ndarray, scores: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the kernel, and of its twin in NumPy."""
    app = Vectors(dtype=scores, **ways)
    a, b = (app.preprocess_block(side, np) for side in (left, right))
    found = app.compare(a, b, np)
    plain = np.empty_like(found)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(terms_module, "on_host", lambda array: False)
        app.compare(a, b, np, out=plain)
    return found, plain


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scores", UNIT)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "float16"])
@pytest.mark.parametrize("ways", METRICS, ids=lambda ways: "-".join(map(str, ways.values())))
def test_kernels_and_twins_say_what_scipy_says(ways: dict[str, Any], dtype: str, scores: str) -> None:
    for m, k, d in ((1, 1, 1), (7, 17, 5), (50, 33, 33), (13, 65, 300)):
        left, right = rows(dtype, m, d, 1), rows(dtype, k, d, 2)
        right[0] = left[0]
        truth = expected(left=left, right=right, **ways)
        wide = scores == "float64" or dtype in ("float64", "int64")
        unit = max(UNIT["float64" if wide else "float32"], UNIT[scores])
        tolerance = 300 * unit * ways.get("p", 1) if np.isfinite(ways.get("p", 1)) else 300 * unit
        for found in tiles(ways, left, right, scores):
            # Near 0 scikit-learn's products and SciPy's logarithms cancel; ours do not.
            near = {"jensenshannon": 2e-8, "nan_euclidean": 1e-6}.get(ways["metric"], 0)
            np.testing.assert_allclose(found, truth, rtol=tolerance, atol=near)
            assert found[0, 0] == 0


def test_jensen_shannon_keeps_its_digits_near_0() -> None:
    base = np.full((1, 64), 1 / 64)
    near = base * (1 + 1e-9 * np.where(np.arange(64) % 2, 1, -1))
    found, plain = tiles({"metric": "jensenshannon"}, base, near, "float64")
    # To first order it is the root of a quarter of the mean of t², t = 1e-9 / 2, times 1 / 2 for each of the two sums.
    exact = np.sqrt(np.sum((base + near) / 4 * ((base - near) / (base + near)) ** 2))
    assert abs(found[0, 0] / exact - 1) < 1e-6
    assert abs(plain[0, 0] / exact - 1) < 1e-6


def test_jensen_shannon_of_what_shares_nothing_is_the_root_of_ln_2() -> None:
    found, plain = tiles({"metric": "jensenshannon"}, np.array([[1.0, 0, 0]]), np.array([[0, 2.0, 7.0]]), "float64")
    np.testing.assert_allclose([found[0, 0], plain[0, 0]], np.sqrt(np.log(2)), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_values_are_left_out_as_scikit_learn_does(dtype: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(80, 37)).astype(dtype)
    values[rng.random(values.shape) < 0.4] = np.nan
    values[:, 0] = 1
    truth = nan_euclidean_distances(values.astype("f8"), values.astype("f8"))
    for found in tiles({"metric": "nan_euclidean"}, values, values, dtype):
        np.testing.assert_allclose(found, truth, rtol=150 * UNIT[dtype], atol=1e-6)
    run = tartan.allpairs(Vectors(metric="nan_euclidean", dtype=dtype), values, workers=1, quiet=True)
    assert not run.failures
    np.testing.assert_allclose(run.matrix(diagonal=0), truth, rtol=150 * UNIT[dtype], atol=1e-6)


def test_pairs_of_which_a_metric_says_nothing_fail_by_name() -> None:
    values = np.array([[0.0, 0], [0, 0], [1, 2]])
    run = tartan.allpairs(Vectors(metric="braycurtis"), values, workers=1, quiet=True)
    assert [(failure.i, failure.j) for failure in run.failures] == [(0, 1)]
    assert run.matrix()[0, 2] == 1
    assert np.isnan(cdist(values, values, "braycurtis")[0, 1]), "as SciPy"
    parted = np.array([[1.0, np.nan], [np.nan, 2], [3, 4]])
    run = tartan.allpairs(Vectors(metric="nan_euclidean"), parted, workers=1, quiet=True)
    assert [(failure.i, failure.j) for failure in run.failures] == [(0, 1)]
    assert np.isnan(nan_euclidean_distances(parted)[0, 1]), "as scikit-learn"
    np.testing.assert_allclose(run.matrix()[0, 2], np.sqrt(8), rtol=1e-6)


@pytest.mark.parametrize(
    ("metric", "row", "said"),
    [
        ("jensenshannon", [1, -0.25, 3], r"value -0.25 at position 1: .* not negative"),
        ("jensenshannon", [0, 0, 0], r"all values are 0: a row of zeros is not a distribution"),
        ("jensenshannon", [1, np.nan, 0], r"value nan at position 1"),
        ("nan_euclidean", [np.nan, np.nan, np.nan], r"all values are NaN: there is nothing to compare"),
        ("nan_euclidean", [1, -np.inf, np.nan], r"value -inf at position 1"),
        ("canberra", [1, np.inf, 0], r"value inf at position 1"),
        ("chebyshev", [1, np.nan, 0], r"value nan at position 1"),
        ("braycurtis", [1, 2, np.nan], r"value nan at position 2"),
        ("chebyshev", [3e38, 0, 0], r"too large: its norm is 3e\+38"),
        ("canberra", [3e38, 0, 0], r"too large: its norm is 3e\+38"),
    ],
)
def test_rows_that_cannot_be_compared_are_named(metric: str, row: list[float], said: str) -> None:
    values = np.array([[1, 2, 3], row, [4, 5, 7]], np.float32)
    run = tartan.allpairs(Vectors(metric=metric), values, workers=1, quiet=True)
    (failure,) = run.failures
    assert (failure.i, failure.j) == (1, None)
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(failure.reason)
    found = Vectors(metric=metric).preprocess_block(values, np)
    assert np.isnan(found[1]).any() or "too large" in failure.reason
    assert not np.isnan(found[[0, 2]]).any()


def test_small_and_large_values_are_in_the_range() -> None:
    for metric in ("chebyshev", "canberra", "jensenshannon"):
        for scale in (1e-30, 1e30):
            values = (rows("float64", 20, 9, 3) * scale).astype("f4")
            found, _ = tiles({"metric": metric}, values, values, "float32")
            np.testing.assert_allclose(found, expected(metric, values, values), rtol=1e-5, atol=1e-35)


def test_the_power_is_a_parameter_of_minkowski_alone(tmp_path: Any) -> None:
    values = rows("float32", 20, 9, 3)
    run = tartan.allpairs(Vectors(metric="minkowski", p=3), values, tmp_path / "run", workers=1, quiet=True)
    assert run.manifest.application["parameters"]["p"] == 3
    assert "p" not in Vectors().parameters(), "runs of before have none"
    with pytest.raises(ConfigError, match=r"p=3 is the power of metric=minkowski, and metric is cosine; leave p out"):
        Vectors(p=3)
    for wrong in (0.5, 0, -1, float("nan"), "x"):
        with pytest.raises(ConfigError, match=r"is not a power of Minkowski distances; give 1 or more, or inf"):
            Vectors(metric="minkowski", p=wrong)  # type: ignore[arg-type]
