"""Maps as nonlinear least squares: the derivatives, the iteration, and what belongs to both."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from tartan.analytics import LMMDS, Alone, Monitor, as_dissimilarities
from tartan.analytics.maps.lmmds.damped import MOST_REJECTED, Minimum, minimise
from tartan.analytics.maps.lmmds.options import LmmdsOptions
from tartan.analytics.maps.lmmds.setup import Placement, opened, prepare_setting
from tartan.base.signatures import group_options
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, RunCancelledError

Floats = NDArray[np.float64]


def clustered(n: int) -> tuple[Floats, Floats]:
    """Return distances of Gaussian clusters in ten dimensions, the largest 1, and a random start in three."""
    random = np.random.default_rng(12345)
    centres = random.normal(0, 3.0, size=(5, 10))
    labels = random.integers(0, 5, size=n)
    points = centres[labels] + random.normal(0, 1.0, size=(n, 10))
    D = squareform(pdist(points))
    return D / D.max(), np.random.default_rng(7).uniform(-1, 1, size=(n, 3))


def flat(n: int = 40, dimension: int = 2, seed: int = 0) -> tuple[Floats, Floats]:
    """Return points and their distances."""
    points = np.random.default_rng(seed).normal(size=(n, dimension))
    return points, squareform(pdist(points))


def placement(D: Floats, x: Floats, **options: Any) -> Placement:
    estimator = LMMDS(x.shape[1], **options)
    matrix = opened(as_dissimilarities(D, missing="nan"), None, estimator.distance_transform)
    return Placement(
        prepare_setting(group_options(LmmdsOptions, estimator.get_params()), matrix, Alone(), Monitor(), None, None), x
    )


OBJECTIVES: dict[str, dict[str, Any]] = {
    "relative": {"weighting": "relative"},
    "relative34, minimum": {"weighting": "relative34", "minimum_distance": -0.1},
    "sammon": {"weighting": "sammon"},
    "even": {"weighting": "even", "minimum_distance": 0.05},
    "large": {"weighting": "large"},
    "squares": {"weighting": "even", "formula": "squared"},
    "squares, sammon": {"weighting": "sammon", "formula": "squared"},
    "missing": {"weighting": "sammon"},
    "missing, given a value": {"weighting": "even", "missing_value": 0.7},
    "cut": {"weighting": "even", "distance_cut": 0.7, "max_left_out": 1.0},
    "bins": {"weighting": "sammon", "bins": (0.2, 0.5)},
    "fixed": {"weighting": "sammon", "fixed": [0, 3, 4, 20], "varied": "rest"},
    "pinned": {"weighting": "sammon", "gauge": "pinned"},
    "transform": {"weighting": "even", "distance_transform": "min(1,d)^0.5"},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_derivatives_agree_with_differences(name: str) -> None:
    D, x = clustered(30)
    if "missing" in name:
        D[2, 5] = D[5, 2] = np.nan
    problem = placement(D, x * 0.4, **OBJECTIVES[name])
    at = problem.start()
    random = np.random.default_rng(5)
    _, gradient, _ = problem.evaluate(at)
    for _ in range(3):
        v = random.normal(size=len(at))
        v /= np.linalg.norm(v)
        step = 1e-5
        chisq = [problem.evaluate(at + s * step * v)[0] for s in (1, -1)]
        assert (chisq[0] - chisq[1]) / (4 * step) == pytest.approx(
            gradient @ v, rel=1e-6, abs=1e-6 * np.abs(gradient).max()
        )
        gradients = [problem.evaluate(at + s * step * v)[1] for s in (1, -1)]
        found = problem.product(at, v, exact=True)
        expected = (gradients[0] - gradients[1]) / (2 * step)
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("exact", [False, True])
def test_diagonal_blocks_are_those_of_the_products(exact: bool) -> None:
    D, x = clustered(20)
    problem = placement(D, x, weighting="sammon")
    found = problem.setting.evaluate(x, exact=exact)
    units = np.eye(60)
    hessian = np.array([problem.product(problem.start(), unit, exact=exact) for unit in units])
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-9)
    for i in range(20):
        np.testing.assert_allclose(hessian[3 * i : 3 * i + 3, 3 * i : 3 * i + 3], found.blocks[i], rtol=1e-9, atol=1e-9)
    if not exact:
        assert np.linalg.eigvalsh(hessian).min() > -1e-8


def test_chisq_is_the_stress_of_the_other_methods() -> None:
    D, x = clustered(50)
    chisq = LMMDS(3, weighting="even", multiplier=1.0, max_iter=0).fit(D, init=x).chisq_
    off = ~np.eye(50, dtype=bool)
    stress = ((D - squareform(pdist(x)))[off] ** 2).sum() / (D[off] ** 2).sum()
    assert chisq * D[off].mean() ** 2 / (D[off] ** 2).sum() == pytest.approx(stress, rel=1e-12)


def test_moving_the_map_leaves_chisq() -> None:
    D, x = clustered(40)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    plain, moved = (LMMDS(3, max_iter=0).fit(D, init=start).chisq_ for start in (x, x @ turn + 5.0))
    assert moved == pytest.approx(plain, rel=1e-12)
    pinned = LMMDS(3, max_iter=0, gauge="pinned").fit(D, init=x)
    assert pinned.chisq_ == pytest.approx(plain, rel=1e-12)
    centre, far, third = pinned.anchors_
    held = np.concatenate([pinned.embedding_[centre], pinned.embedding_[far, 1:], pinned.embedding_[third, 2:]])
    assert not held.any()
    assert D[centre].sum() == pytest.approx(D.sum(0).min(), rel=1e-12)
    assert D[centre, far] == D[centre].max()
    assert D[centre, third] * D[far, third] == (D[centre] * D[far]).max()


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("gauge", ["free", "pinned"])
def test_no_step_raises_chisq(second: bool, gauge: str) -> None:
    D, x = clustered(60)
    found = LMMDS(3, second_derivatives=second, gauge=gauge, max_iter=60).fit(D, init=x)
    values = [entry["chisq"] for entry in found.history_]
    assert values == sorted(values, reverse=True)
    rises = [
        entry
        for before, entry in zip(found.history_, found.history_[1:])
        if entry["accepted"] != (entry["chisq"] < before["chisq"])
    ]
    assert rises == []
    assert found.chisq_ == values[-1]
    assert found.n_iter_ == len(values)


@pytest.mark.parametrize("formula", ["distance", "squared"])
@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_exact_distances_are_found_again(dimension: int, formula: str) -> None:
    points, D = flat(30, dimension)
    # In one dimension points cannot pass each other: their order is given.
    start = 1.2 * points + 0.1 * np.random.default_rng(3).normal(size=points.shape) * (dimension > 1)
    given = D**2 if formula == "squared" else D
    found = LMMDS(dimension, formula=formula, tol=1e-12, max_iter=300).fit(given, init=start)
    np.testing.assert_allclose(squareform(pdist(found.embedding_)), D, atol=1e-5)
    assert found.stop_reason_ == "small_gain"


@pytest.mark.exhaustive
def test_the_oracle_of_a_thousand_points() -> None:
    D, x = clustered(1000)
    off = D[np.triu_indices(1000, 1)]
    found = LMMDS(3, weighting="even").fit(as_dissimilarities(np.rint(D * 32767).astype(">i2")), init=x)
    stress = found.chisq_ / 100 * off.mean() ** 2 / (2 * (off**2).sum())
    assert stress < 0.00755
    assert found.stop_reason_ == "small_gain"


def test_stored_forms_give_one_answer() -> None:
    D, x = clustered(40)
    q = np.rint(D * 32767)
    options: dict[str, Any] = {"n_components": 3, "max_iter": 10}
    plain = LMMDS(**options).fit(q / 32767, init=x)
    for stored in (q.astype("<i2"), q.astype(">i2"), squareform(q / 32767)):
        found = LMMDS(**options).fit(stored, init=x)
        np.testing.assert_allclose(found.embedding_, plain.embedding_, rtol=1e-9, atol=1e-9)
    near = LMMDS(**options).fit((q / 32767).astype(np.float32), init=x)
    assert near.chisq_ == pytest.approx(plain.chisq_, rel=1e-3)


def test_ranks_give_one_answer() -> None:
    D, x = clustered(50)

    def fit(ranks: Any) -> LMMDS:
        return LMMDS(3, max_iter=15, fixed=[1, 2], bins=[0.5]).fit(D, init=x, communicator=ranks)

    alone = fit(None)
    for size in (1, 2, 3, 7):
        for found in run_ranks(size, fit):
            np.testing.assert_allclose(found.embedding_, alone.embedding_, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.errors_, alone.errors_, rtol=1e-12)
            assert found.chisq_ == pytest.approx(alone.chisq_, rel=1e-12)


def test_fixed_points_stay_and_their_pairs_are_told_apart() -> None:
    D, x = clustered(30)
    found = LMMDS(3, fixed=np.arange(30) < 12, varied="rest", calculate_fixed=True, weighting="even").fit(D, init=x)
    np.testing.assert_array_equal(found.embedding_[:12], x[:12])
    assert (found.embedding_[12:] != x[12:]).all()
    d = squareform(pdist(found.embedding_))
    terms = 100 * (D - d) ** 2 / D[~np.eye(30, dtype=bool)].mean() ** 2
    np.fill_diagonal(terms, 0.0)
    parts = {"varied": terms[12:, 12:].sum(), "cross": 2 * terms[:12, 12:].sum(), "fixed": terms[:12, :12].sum()}
    assert found.chisq_parts_ == pytest.approx(parts, rel=1e-9)
    assert found.chisq_ == pytest.approx(parts["varied"] + parts["cross"], rel=1e-9)
    assert not found.errors_[:12].any()
    assert (found.errors_[12:] > 0).all()


def test_points_are_chosen_by_name_and_may_be_left_out() -> None:
    D, x = clustered(10)
    names = list("abcdefghij")
    found = LMMDS(3, varied=["a", "b", "c", "d", "e"], fixed=["f", "g"]).fit(D, init=x, labels=names)
    assert np.isnan(found.embedding_[7:]).all()
    assert np.isfinite(found.embedding_[:7]).all()
    np.testing.assert_array_equal(found.embedding_[5:7], x[5:7])
    alone = LMMDS(3).fit(D[:5, :5], init=x[:5])
    assert alone.chisq_ != found.chisq_


def test_a_point_without_weight_does_not_count() -> None:
    D, x = clustered(20)
    weights = np.ones(20)
    weights[4] = 0.0
    D[4], D[:, 4] = 50.0, 50.0
    D[4, 4] = 0.0
    kept = np.arange(20) != 4
    found = LMMDS(3, max_iter=10).fit(D, init=x, sample_weight=weights)
    alone = LMMDS(3, max_iter=10).fit(D[np.ix_(kept, kept)], init=x[kept])
    np.testing.assert_allclose(found.embedding_[kept], alone.embedding_, rtol=1e-6, atol=1e-8)
    assert found.chisq_ == pytest.approx(alone.chisq_ * (20 / 19) ** 2, rel=1e-9)
    assert list(found.left_out_) == [4]


def test_missing_pairs_are_pairs_without_weight() -> None:
    D, x = clustered(20)
    D[3, 7] = D[7, 3] = np.nan
    holes = as_dissimilarities(D, missing="nan")
    found = LMMDS(3, weighting="even", max_iter=0).fit(holes, init=x)
    d, valid = squareform(pdist(x)), ~np.isnan(D) & ~np.eye(20, dtype=bool)
    assert found.chisq_ == pytest.approx(100 * ((D - d)[valid] ** 2).sum() / D[valid].mean() ** 2, rel=1e-9)
    given = np.where(np.isnan(D), 0.25, D)
    with_value = LMMDS(3, weighting="even", missing_value=0.25, max_iter=0).fit(holes, init=x)
    assert with_value.chisq_ == pytest.approx(LMMDS(3, weighting="even", max_iter=0).fit(given, init=x).chisq_)


def test_loose_points_are_left_out_again_and_again() -> None:
    D, _ = clustered(20)
    D = 0.2 + 0.1 * D
    np.fill_diagonal(D, 0.0)
    D[0, 1:] = D[1:, 0] = D[1, 2:] = D[2:, 1] = 0.9  # 0 hangs on nothing, 1 on nobody but 0
    D[0, 1] = D[1, 0] = 0.3
    found = LMMDS(2, distance_cut=0.5, link_cut=1, random_state=0).fit(D)
    assert list(found.left_out_) == [0, 1]
    assert np.isnan(found.embedding_[:2]).all()
    with pytest.raises(ConfigError, match="2 of 20 points"):
        LMMDS(2, distance_cut=0.5, link_cut=1, max_left_out=0.05, random_state=0).fit(D)


def test_bins_have_equal_weight() -> None:
    D, x = clustered(25)
    found = placement(D, x, bins=(0.3, 0.6), weighting="even").setting
    weights = found.objective.bin_weights
    off = D[~np.eye(25, dtype=bool)]
    counts = np.histogram(off, [0.0, 0.3, 0.6, 2.0])[0]
    np.testing.assert_allclose(np.multiply(weights, counts), len(off) / 3)


def test_errors_follow_the_residuals() -> None:
    points, D = flat(25)
    noise = np.random.default_rng(2).normal(size=D.shape) * 0.01
    noisy = np.abs(D + noise + noise.T)
    np.fill_diagonal(noisy, 0.0)
    found = LMMDS(2, weighting="even", tol=1e-9, second_derivatives=False).fit(noisy, init=points)
    # Each distance has the error 0.0141; a coordinate is held by 24 of them, about half of each.
    assert found.errors_.mean() == pytest.approx(0.0141 / np.sqrt(12), rel=0.3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_iter": 3}, "max_iter"),
        ({"max_seconds": 0.0}, "time"),
        ({"callback": lambda entry: entry["iteration"] == 2}, "user"),
        ({"tol": 1e9}, "small_gain"),
    ],
)
def test_why_it_stopped_is_told(options: dict[str, Any], reason: str) -> None:
    D, x = clustered(30)
    assert LMMDS(3, **options).fit(D, init=x).stop_reason_ == reason


class Endless:
    """A problem that never gets better, however it looks."""

    def __init__(self, chisq: float) -> None:
        self.chisq = chisq

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return self.chisq, x, np.ones(3)

    def product(self, x: np.ndarray, vector: np.ndarray, exact: bool) -> np.ndarray:
        return vector


@pytest.mark.parametrize(("chisq", "reason"), [(np.inf, "boundary"), (1.0, "no_progress")])
def test_a_map_that_never_gets_better_is_told(chisq: float, reason: str) -> None:
    limits = group_options(LmmdsOptions, LMMDS(3, tol=0.0).get_params()).limits
    found = minimise(Endless(chisq), Minimum(np.ones(3), np.inf), limits, lambda now, step: False)
    assert (found.stop_reason, found.rejected) == (reason, MOST_REJECTED if reason == "no_progress" else 0)


@pytest.mark.slow
def test_the_classical_start_is_no_worse_than_the_usual_random_one() -> None:
    D, _ = clustered(60)
    given, shaken = ([LMMDS(3, init=init, random_state=s).fit(D) for s in range(6)] for init in ("random", "classical"))
    assert max(found.chisq_ for found in shaken) < np.median([found.chisq_ for found in given])
    assert max(found.n_iter_ for found in shaken) < min(found.n_iter_ for found in given)


@pytest.mark.parametrize("init", ["classical", "landmark", "random"])
@pytest.mark.parametrize("formula", ["distance", "squared"])
def test_every_start_leads_to_exact_points(init: str, formula: str) -> None:
    _, D = flat(30)
    D = D**2 if formula == "squared" else D
    found = LMMDS(2, init=init, formula=formula, n_init=3, weighting="even", tol=1e-12, random_state=0).fit(D)
    assert found.chisq_ < 1e-6


@pytest.mark.parametrize("formula", ["distance", "squared"])
@pytest.mark.parametrize("gauge", ["free", "pinned"])
@pytest.mark.parametrize("kind", ["float64", "int16"])
def test_the_value_of_missing_pairs_counts_from_the_start(formula: str, gauge: str, kind: str) -> None:
    whole = np.rint(flat(20)[1] * 4000)
    whole[:8, 8:] = whole[8:, :8] = 24_000
    holed = np.where(whole == 24_000, -1, whole)
    given = [as_dissimilarities(D.astype(kind), missing="negative", maximum=32767.0) for D in (holed, whole)]
    options: dict[str, Any] = {"formula": formula, "gauge": gauge, "max_iter": 0, "random_state": 0}
    found = [LMMDS(2, missing_value=24_000, **options).fit(D) for D in given]
    np.testing.assert_allclose(found[0].embedding_, found[1].embedding_, rtol=1e-5, atol=1e-2)
    assert found[0].anchors_ == found[1].anchors_


def test_restarts_keep_the_best() -> None:
    _, D = flat(15)
    many = LMMDS(2, n_init=4, random_state=1).fit(D)
    one = LMMDS(2, random_state=1).fit(D)
    assert many.chisq_ <= one.chisq_
    again = LMMDS(2, n_init=4, random_state=1).fit(D)
    np.testing.assert_array_equal(again.embedding_, many.embedding_)


class _StopAfter(Monitor):
    """Asks for a stop at the nth report of a step."""

    def __init__(self, n: int, checkpoint: Path) -> None:
        super().__init__(0, checkpoint)
        self.left = n

    def report(self, phase: str, **numbers: Any) -> None:
        self.left -= phase not in ("check", "checksum", "classical start")
        if not self.left:
            self.cancel()


@pytest.mark.parametrize("n", [2, 5, 17])
def test_a_stopped_fit_goes_on_where_it_was(tmp_path: Path, n: int) -> None:
    _, D = flat(20, 3)
    options: dict[str, Any] = {"n_components": 2, "n_init": 3, "max_iter": 8, "random_state": 3}
    whole = LMMDS(**options).fit(D)
    file = tmp_path / "state.npz"
    with pytest.raises(RunCancelledError, match="resumes from"):
        LMMDS(**options).fit(D, monitor=_StopAfter(n, file))
    resumed = LMMDS(**options, checkpoint=file).fit(D)
    np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)
    assert resumed.history_ == whole.history_
    assert not file.exists()


def test_a_checkpoint_of_other_input_is_refused(tmp_path: Path) -> None:
    _, D = flat(20, 3)
    file = tmp_path / "state.npz"
    with pytest.raises(RunCancelledError):
        LMMDS(2, random_state=0).fit(D, monitor=_StopAfter(2, file))
    with pytest.raises(ConfigError, match="weighting"):
        LMMDS(2, random_state=0, weighting="even", checkpoint=file).fit(D)


def test_two_points_and_equal_ones_have_a_map() -> None:
    D = np.array([[0.0, 2.0], [2.0, 0.0]])
    found = LMMDS(1, random_state=0, tol=1e-12).fit(D)
    assert abs(found.embedding_[0, 0] - found.embedding_[1, 0]) == pytest.approx(2.0, rel=1e-5)
    equal = 1.0 - np.eye(4)
    found = LMMDS(3, random_state=0, tol=1e-12).fit(equal)
    np.testing.assert_allclose(pdist(found.embedding_), 1.0, atol=1e-4)


def two_pairs(near: float = 1.0) -> np.ndarray:
    """Return four points, of which the first two and the last two are near each other."""
    return np.where(np.kron(np.eye(2), np.ones((2, 2))), near, 5.0) * (1 - np.eye(4))


def lone_point() -> np.ndarray:
    """Return int16 in which every pair of item 0 is missing."""
    D = (1000 * (1 - np.eye(4))).astype(np.int16)
    D[0, 1:] = D[1:, 0] = -1
    return D


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one point": (np.zeros((1, 1)), {}, "1 item"),
    "not square": (np.zeros((3, 4)), {}, "shape"),
    "too many dimensions": (1 - np.eye(3), {"n_components": 3}, "at most 2 dimensions"),
    "half a dimension": (1 - np.eye(4), {"n_components": 2.5}, "n_components is 2.5; it must be a whole number"),
    "no limit": (1 - np.eye(4), {"n_components": 2, "max_iter": None}, "max_iter is None; it must be a whole number"),
    "no tolerance": (1 - np.eye(4), {"n_components": 2, "tol": np.nan}, "tol is nan; it must be a finite number"),
    "no dimension": (1 - np.eye(3), {"n_components": 0}, "n_components is 0"),
    "all zero": (np.zeros((4, 4)), {"n_components": 2}, "0"),
    "not finite": (np.where(np.eye(4), 0, np.inf), {"n_components": 2}, "infinite"),
    "negative": (np.eye(4) - 1, {"n_components": 2}, "negative"),
    "asymmetric": (np.triu(np.ones((4, 4)), 1), {"n_components": 2}, "symmetric"),
    "weighting": (1 - np.eye(4), {"n_components": 2, "weighting": "none"}, "weighting: 'none' is unknown"),
    "formula": (1 - np.eye(4), {"n_components": 2, "formula": "cubed"}, "formula: 'cubed' is unknown"),
    "start": (1 - np.eye(4), {"n_components": 2, "init": "spectral"}, "init: 'spectral' is unknown"),
    "start of points": (1 - np.eye(4), {"n_components": 2, "init": np.zeros((4, 2))}, "init: an array of shape"),
    "gauge": (1 - np.eye(4), {"n_components": 2, "gauge": "loose"}, "gauge: 'loose' is unknown"),
    "bins": (1 - np.eye(4), {"n_components": 2, "bins": [0.5, 0.2]}, "ascend"),
    "multiplier": (1 - np.eye(4), {"n_components": 2, "multiplier": 0}, "multiplier"),
    "both kinds": (1 - np.eye(4), {"n_components": 2, "varied": [0, 1], "fixed": [1]}, "both varied and fixed"),
    "neither kind": (1 - np.eye(4), {"n_components": 2, "varied": "none", "fixed": "none"}, "no point is varied"),
    "two rests": (1 - np.eye(4), {"n_components": 2, "varied": "rest", "fixed": "rest"}, "both 'rest'"),
    "index": (1 - np.eye(4), {"n_components": 2, "varied": [7]}, "index 7"),
    "name": (1 - np.eye(4), {"n_components": 2, "varied": ["x"]}, "labels"),
    "word": (1 - np.eye(4), {"n_components": 2, "varied": "some"}, "'some'"),
    "fixed without places": (1 - np.eye(4), {"n_components": 2, "fixed": [0]}, "give init"),
    "cut below all": (1 - np.eye(4), {"n_components": 2, "distance_cut": 0.1}, "no pair"),
    "cut apart": (two_pairs(), {"n_components": 1, "distance_cut": 1.5}, r"2 groups .*: 0, 1; 2, 3\. .*link_cut=0"),
    "a point without pairs": (lone_point(), {"n_components": 2}, "2 groups without a pair between them: 0; 1, 2, 3"),
    "huge": (1e300 * (1 - np.eye(4)), {"n_components": 2}, "beyond float64"),
    "tiny": (1e-300 * (1 - np.eye(4)), {"n_components": 2, "weighting": "even"}, "beyond float64"),
    "far apart": (two_pairs(1e-200), {"n_components": 2}, "smallest dissimilarity above 0 is 1e-200"),
    "names": (1 - np.eye(4), {"n_components": 2, "varied": None}, "varied is None"),
    "negative cut": (1 - np.eye(4), {"n_components": 2, "link_cut": -1}, "link_cut is -1; it must be a whole number"),
    "minimum": (1 - np.eye(4), {"n_components": 2, "minimum_distance": 1e300}, "minimum_distance is 1e[+]300"),
    "no minimum": (1 - np.eye(4), {"n_components": 2, "minimum_distance": np.nan}, "minimum_distance is nan"),
    "words": (1 - np.eye(4), {"n_components": 2, "tol": "x"}, "tol is 'x'; it must be a finite number, 0 or more"),
    "past": (1 - np.eye(4), {"n_components": 2, "max_seconds": -1}, "max_seconds is -1"),
    "seed": (1 - np.eye(4), {"n_components": 2, "random_state": "x"}, "random_state is 'x'"),
    "callback": (1 - np.eye(4), {"n_components": 2, "callback": 3}, "callback is 3"),
    "bins of words": (1 - np.eye(4), {"n_components": 2, "bins": "x"}, "bins is not an array of numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case: str) -> None:
    D, options, message = BAD[case]
    with pytest.raises(ConfigError, match=message):
        LMMDS(**options).fit(D)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"init": np.zeros((4, 2))}, "all points in one place"),
        ({"init": np.full((4, 2), 1e200)}, "init reaches 1e[+]200, and the largest dissimilarity is 1"),
        ({"init": [[0, 1], [2]]}, "init is not an array of numbers"),
        ({"init": np.zeros((4, 2), complex)}, "type is complex128"),
        ({"sample_weight": "x"}, "sample_weight is not an array of numbers"),
        ({"labels": ["a"]}, "a name for each of 4 points"),
        ({"labels": 3}, "labels is 3"),
    ],
)
def test_what_comes_with_the_matrix_is_checked(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LMMDS(2, random_state=0).fit(1.0 - np.eye(4), **given)


def test_a_point_without_pairs_is_left_out_on_request() -> None:
    found = LMMDS(2, link_cut=0, random_state=0).fit(lone_point())
    assert found.left_out_.tolist() == [0]
    assert np.isnan(found.embedding_).any(axis=1).tolist() == [True, False, False, False]


def test_weights_of_any_size_count_alike() -> None:
    _, D = flat(8)
    maps = [LMMDS(2, random_state=0).fit(D, sample_weight=np.full(8, size)).embedding_ for size in (1.0, 1e300, 1e-300)]
    np.testing.assert_array_equal(maps[0], maps[1])
    np.testing.assert_array_equal(maps[0], maps[2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"init": np.zeros((3, 2))}, "init has shape"),
        ({"init": np.full((4, 2), np.nan)}, "not finite"),
        ({"sample_weight": [1, 1]}, "sample_weight has shape"),
        ({"sample_weight": [1, 1, -1, 1]}, "point 2"),
        ({"sample_weight": [0, 0, 0, 0]}, "every sample_weight is zero"),
    ],
)
def test_bad_data_of_a_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LMMDS(2).fit(1 - np.eye(4), **given)


def test_groups_without_a_pair_between_them_are_named() -> None:
    D = np.full((6, 6), np.nan)
    D[:3, :3] = D[3:, 3:] = 1.0
    np.fill_diagonal(D, 0.0)
    holes = as_dissimilarities(D, missing="nan")
    with pytest.raises(ConfigError, match=r"2 groups.*0, 1, 2; 3, 4, 5"):
        LMMDS(2).fit(holes)
    whole = np.where(np.isnan(D), 5.0, D)
    with pytest.raises(ConfigError, match=r"2 groups"):
        LMMDS(2, distance_cut=2.0).fit(whole)
    start = np.random.default_rng(0).normal(size=(6, 2))
    held = LMMDS(2, fixed=[0, 3]).fit(holes, init=start)  # fixed points hold both groups
    assert np.isfinite(held.embedding_).all()
    assert np.isfinite(LMMDS(2, missing_value=5.0, random_state=0).fit(holes).embedding_).all()


def test_it_is_an_estimator() -> None:
    from sklearn.base import clone

    _, D = flat(12)
    fitted = LMMDS(2, weighting="even", random_state=0, varied=[0, 1, 2, 3, 4]).fit(D)
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "embedding_")
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.embedding_, fitted.embedding_)
    assert fitted.__sklearn_tags__().input_tags.pairwise
    np.testing.assert_array_equal(LMMDS(2, random_state=0).fit_transform(D), LMMDS(2, random_state=0).fit(D).embedding_)
