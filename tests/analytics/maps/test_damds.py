"""What must hold for every map: symmetries, equivalent inputs, monotone stress, ranks, stops and wrong input."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import mds_problems as problems
import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.base import clone
from sklearn.utils import get_tags

from tartan.analytics import DAMDS, Communicator, Monitor, as_dissimilarities, read_matrix
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, RunCancelledError

N = 60


def distances(n: int = N, dim: int = 5, seed: int = 1) -> problems.Floats:
    """Return distances that no three dimensions can hold."""
    return problems.points_and_distances(n, dim, seed)[1]


def weights(seed: int = 2, n: int = N) -> problems.Floats:
    upper = np.triu(np.random.default_rng(seed).uniform(0.1, 2.0, (n, n)), 1)
    return (upper + upper.T).astype(np.float32).astype(float)


def plain(D: Any, X: Any, steps: int = 12, **parameters: Any) -> DAMDS:
    """Make some plain steps from a start."""
    return DAMDS(**{"annealing": False, "tol": 0, "max_iter": steps, **parameters}).fit(D, init=X)


def start(n: int = N, seed: int = 3) -> problems.Floats:
    return np.random.default_rng(seed).normal(size=(n, 3))


def reference_step(D: problems.Floats, X: problems.Floats, W: problems.Floats) -> problems.Floats:
    """Return the Guttman transform, by matrices."""
    W = W * (1 - np.eye(len(D)))
    V = np.diag(W.sum(axis=1)) - W
    d = squareform(pdist(X)) + np.eye(len(D))
    B = -W * D / d
    np.fill_diagonal(B, 0.0)
    np.fill_diagonal(B, -B.sum(axis=1))
    found: problems.Floats = np.linalg.pinv(V) @ B @ X
    return found


@pytest.mark.slow
def test_plain_steps_are_guttman_transforms_and_exactly_so_many() -> None:
    D, X = distances(), start()
    mds = plain(D, X, 7)
    expected = X
    for _ in range(7):
        expected = reference_step(D, expected, np.ones_like(D))
    assert (mds.n_iter_, mds.n_passes_, len(mds.history_)) == (7, 8, 8)
    assert np.allclose(mds.embedding_, expected - expected.mean(axis=0), rtol=0, atol=1e-12)
    error = ((D - squareform(pdist(mds.embedding_))) ** 2).sum() / (D**2).sum()
    assert mds.stress_ == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_any_dimension(dim: int) -> None:
    D, X = distances(), np.random.default_rng(0).normal(size=(N, dim))
    mds = plain(D, X, 1, n_components=dim)
    expected = reference_step(D, X, np.ones_like(D))
    assert np.allclose(mds.embedding_, expected - expected.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["matrix", "points"])
def test_weighted_steps_are_guttman_transforms(kind: str) -> None:
    D, X = distances(), start()
    each = np.random.default_rng(5).uniform(0.2, 3.0, N)
    W, given = (np.outer(each, each), each) if kind == "points" else (weights(), weights())
    mds = plain(D, X, 1, weights=given, cg_tol=1e-26)
    expected = reference_step(D, X, W)
    assert np.allclose(mds.embedding_, expected - expected.mean(axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("accelerate", ["none", "lbfgs"])
@pytest.mark.parametrize("how", ["unit", "weights", "missing", "sammon", "fixed"])
def test_stress_never_rises_at_a_temperature(how: str, accelerate: str) -> None:
    D = distances()
    parameters: dict[str, Any] = {"weights": weights()} if how == "weights" else {}
    if how == "sammon":
        parameters["sammon"] = True
    if how == "fixed":
        parameters["fixed"] = [3, 9, 20]
    if how == "missing":
        D[2, 5:30] = D[5:30, 2] = np.nan
    mds = DAMDS(accelerate=accelerate, **parameters).fit(as_dissimilarities(D, missing="nan"), init=start())
    begins = np.cumsum([0, *(mds.temperatures_[:-1, 1].astype(int) + 1)])
    if accelerate == "none":
        assert len(mds.history_) == mds.n_iter_ + len(mds.temperatures_)
        loops = np.split(mds.history_, begins[1:])
        assert all((np.diff(loop) <= 1e-14).all() for loop in loops)
    assert mds.temperatures_[-1, 0] == 0
    assert mds.stress_ < 0.1


def test_constant_weights_change_nothing_but_the_stress() -> None:
    D, X = distances(), start()
    one = plain(D, X)
    three = plain(D, X, weights=np.full((N, N), 3.0), cg_tol=1e-28)
    assert np.allclose(one.embedding_, three.embedding_, rtol=0, atol=1e-11)
    assert three.stress_ == pytest.approx(3 * one.stress_, rel=1e-11)


def test_weight_zero_means_missing() -> None:
    D, X = distances(), start()
    W = np.ones((N, N))
    W[4, 10:40] = W[10:40, 4] = 0
    missing = np.where(W == 0, np.nan, D)
    a = plain(D, X, weights=W, cg_tol=1e-28)
    b = plain(as_dissimilarities(missing, missing="nan"), X, cg_tol=1e-28)
    assert np.allclose(a.embedding_, b.embedding_, rtol=0, atol=1e-10)
    assert a.stress_ == pytest.approx(b.stress_, rel=1e-10)


@pytest.mark.parametrize("kind", ["float32", "int16"])
def test_masked_weights_mean_missing(kind: str) -> None:
    given = (weights() * 9000).astype(kind)
    masked = np.ma.masked_greater(given, 12_000)
    zeros = np.where(given > 12_000, 0, given).astype(kind)
    assert masked.mask.any()
    found = [plain(distances(), start(), weights=w).embedding_ for w in (masked, zeros)]
    np.testing.assert_array_equal(*found)


def test_permuted_points_give_a_permuted_map() -> None:
    D, X = distances(), start()
    order = np.random.default_rng(9).permutation(N)
    a, b = plain(D, X), plain(D[np.ix_(order, order)], X[order])
    assert np.allclose(a.embedding_[order], b.embedding_, rtol=0, atol=1e-11)


@pytest.mark.parametrize("factor", [8.0, 1e-20, 1e20])
def test_scaled_dissimilarities_give_a_scaled_map(factor: float) -> None:
    D, X = distances(), start()
    a, b = plain(D, X), plain(D * factor, X * factor)
    assert np.allclose(a.embedding_ * factor, b.embedding_, rtol=0, atol=1e-12 * factor)
    assert a.stress_ == pytest.approx(b.stress_, rel=1e-12)


def test_annealing_does_not_know_units() -> None:
    D = distances()
    a, b = DAMDS(random_state=0).fit(D), DAMDS(random_state=0).fit(D * 1024)
    assert np.array_equal(a.embedding_ * 1024, b.embedding_)


def test_extreme_float32_values_are_computed_in_double_precision() -> None:
    D = distances().astype(np.float32)
    usual = DAMDS(random_state=0).fit(D).stress_
    assert DAMDS(random_state=0).fit(D * np.float32(1e25)).stress_ == pytest.approx(usual, rel=1e-3)


def test_exact_distances_are_found_again() -> None:
    points, D = problems.points_and_distances(N)
    near = points + np.random.default_rng(4).normal(scale=0.1, size=points.shape)
    mds = DAMDS(annealing=False, tol=1e-14).fit(D, init=near)
    assert mds.stress_ < 1e-10
    assert problems.same_shape(mds.embedding_, points, 1e-3)


def test_temperatures_fall_by_alpha_to_zero() -> None:
    D = distances()
    found = DAMDS(alpha=0.9, random_state=0).fit(D).temperatures_[:, 0]
    highest = D.max() / np.sqrt(6)
    assert np.allclose(found[:-1], highest * 0.9 ** np.arange(1, len(found)))
    assert found[-1] == 0
    lowest = 0.5 * pdist_min(D) / np.sqrt(6)
    assert found[-2] >= lowest > found[-2] * 0.9
    assert len(DAMDS(max_temperatures=4, random_state=0).fit(D).temperatures_) == 4


def pdist_min(D: problems.Floats) -> float:
    return float(D[D > 0].min())


def test_the_inner_loop_is_capped() -> None:
    found = DAMDS(max_iter=2, tol=1e-12, random_state=0).fit(distances()).temperatures_[:, 1]
    assert (found <= 2).all()


def test_byte_orders_and_maps_of_files_give_equal_results(tmp_path: Path) -> None:
    D = problems.as_int16(distances() / distances().max(), "<")
    D.astype(">i2").tofile(tmp_path / "big.bin")
    np.save(tmp_path / "little.npy", D)
    X = start()
    maps = [
        plain(given, X).embedding_
        for given in (D, D.astype(">i2"), tmp_path / "little.npy", np.load(tmp_path / "little.npy", mmap_mode="r"))
    ]
    assert all(np.array_equal(maps[0], other) for other in maps[1:])
    raw = plain(read_matrix(tmp_path / "big.bin", "int16", byteorder="big"), X)
    assert np.array_equal(maps[0], raw.embedding_)


def test_precisions_agree() -> None:
    D, X = distances().astype(np.float32), start()
    a, b = plain(D, X), plain(D, X, precision="float64")
    assert np.allclose(a.embedding_, b.embedding_, rtol=0, atol=2e-5)
    assert a.stress_ == pytest.approx(b.stress_, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unit", "weights", "missing", "fixed"])
def test_any_number_of_ranks_gives_the_same_bits(how: str) -> None:
    D, X = distances(50, seed=6).astype(np.float32), start(50)
    parameters: dict[str, Any] = {}
    if how == "weights":
        parameters["weights"] = weights(n=50)
    if how == "missing":
        D[1, 20:] = D[20:, 1] = np.nan
    if how == "fixed":
        parameters["fixed"] = [0, 11]

    def fit(communicator: Communicator | None) -> DAMDS:
        given = as_dissimilarities(D, missing="nan")
        return DAMDS(alpha=0.8, **parameters).fit(given, init=X, communicator=communicator)

    found = {size: run_ranks(size, fit) for size in (1, 2, 3, 7)}
    first = found[1][0]
    for ranks in found.values():
        assert all(np.array_equal(first.embedding_, mds.embedding_) for mds in ranks)
        assert all(mds.stress_ == first.stress_ for mds in ranks)
    assert fit(None).stress_ == pytest.approx(first.stress_, rel=1e-3)


def test_one_process_and_ranks_agree_in_double_precision() -> None:
    D, X = distances(), start()
    alone = plain(D, X)
    ranks = run_ranks(3, lambda ours: clone(alone).fit(D, init=X, communicator=ours).embedding_)
    assert np.allclose(alone.embedding_, ranks[0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_fixed_points_stay_and_the_others_settle_around_them() -> None:
    points, D = problems.points_and_distances(N)
    fixed = np.arange(10)
    init = np.where(np.arange(N)[:, None] < 10, points, np.nan)
    mds = DAMDS(fixed=fixed, random_state=0, tol=1e-12).fit(D, init=init)
    assert np.array_equal(mds.embedding_[:10], points[:10])
    assert np.allclose(mds.embedding_, points, rtol=0, atol=1e-2)
    mask = np.zeros(N, bool)
    mask[:10] = True
    again = DAMDS(fixed=mask, random_state=0, tol=1e-12).fit(D, init=init)
    assert np.array_equal(again.embedding_, mds.embedding_)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[1.0], [1.0, 2.0]], "their rows have different lengths"),
        (np.full(9, "heavy"), "weights must be numbers; these have the type <U5"),
        (np.ones(8), r"weights of shape \(8,\) for 9 points; give \(9,\) or \(9, 9\)"),
    ],
    ids=["ragged", "text", "too few"],
)
def test_weights_that_are_none_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DAMDS(2, weights=given).fit(distances(9))


def test_weights_of_a_file_are_those_of_an_array(tmp_path: Path) -> None:
    D, W, X = distances(), weights(), start()
    np.save(tmp_path / "w.npy", W)
    there = plain(D, X, weights=tmp_path / "w.npy").embedding_
    np.testing.assert_array_equal(there, plain(D, X, weights=W).embedding_)


def test_weighted_fixed_points_agree_with_unit_weights() -> None:
    D, X = distances(), start()
    a = plain(D, X, fixed=[1, 5])
    b = plain(D, X, fixed=[1, 5], weights=np.ones((N, N)), cg_tol=1e-28)
    assert np.allclose(a.embedding_, b.embedding_, rtol=0, atol=1e-10)


def test_one_free_point_is_interpolation() -> None:
    D = distances()
    old = DAMDS(random_state=0).fit(D[:-1, :-1])
    placed = old.transform(D[-1:, :-1])[0]
    near = np.vstack([old.embedding_, placed + 0.01])
    free = DAMDS(annealing=False, tol=1e-14, accelerate="none", fixed=range(N - 1)).fit(D, init=near)
    assert np.allclose(free.embedding_[-1], placed, rtol=0, atol=1e-3)
    mean, X = old.embedding_.mean(axis=0), old.embedding_
    d = np.linalg.norm(placed - X, axis=1)
    step = mean + (D[-1, :-1] / d) @ (placed - X) / (N - 1)
    assert np.allclose(step, placed, rtol=0, atol=1e-4)


def test_new_points_are_placed_where_they_belong() -> None:
    points, D = problems.points_and_distances(N)
    mds = DAMDS(annealing=False, tol=1e-15).fit(D, init=points)
    new = np.random.default_rng(8).normal(size=(40, 3))
    placed = mds.transform(cdist(new, points))
    expected = cdist(new, points)
    assert np.abs(cdist(placed, mds.embedding_) - expected).max() < 2e-2
    some = expected.copy()
    some[:, ::3] = np.nan
    mds.set_params(n_neighbors=12)
    assert np.median(np.abs(cdist(mds.transform(some), mds.embedding_) - expected)) < 2e-2


def test_new_points_as_int16() -> None:
    D = distances() / distances().max()
    mds = DAMDS(random_state=0).fit(problems.as_int16(D))
    stored = problems.as_int16(D[:5])
    again = mds.transform(stored)
    assert np.allclose(mds.transform(stored / 32767.0), again, rtol=0, atol=1e-9)
    assert np.linalg.norm(again - mds.embedding_[:5], axis=1).max() < 0.3


def test_new_points_have_the_units_of_the_fit_and_may_be_masked() -> None:
    points = np.random.default_rng(0).normal(size=(30, 2))
    D = squareform(pdist(points))
    stored = np.rint(D * (32767 / D.max())).astype(">i2")
    mds = DAMDS(2, annealing=False, init="classical").fit(as_dissimilarities(stored, maximum=D.max()))
    np.testing.assert_allclose(mds.transform(stored[:4]), mds.embedding_[:4], atol=1e-3)
    for rows, hidden in ((stored[:4], 7), (D[:4], 77.0)):
        masked = np.ma.array(rows)
        masked[:, 9:12] = np.ma.masked
        masked.data[:, 9:12] = hidden
        np.testing.assert_allclose(mds.transform(masked), mds.embedding_[:4], atol=1e-3)


@pytest.mark.parametrize("init", ["classical", "landmark"])
def test_classical_starts_solve_exact_problems_at_once(init: str) -> None:
    points, D = problems.points_and_distances(N)
    mds = DAMDS(annealing=False, init=init, random_state=0).fit(D)
    assert mds.history_[0] < 1e-10
    assert problems.same_shape(mds.embedding_, points, 1e-4)
    D[0, 1] = D[1, 0] = np.nan
    assert DAMDS(annealing=False, init=init, random_state=0).fit(as_dissimilarities(D, missing="nan")).stress_ < 1e-4


def test_acceleration_needs_a_third_and_a_fifth_of_the_passes() -> None:
    D, X = problems.as_int16(problems.clusters(500)), problems.start(500)
    for tol, factor in ((1e-6, 3), (1e-9, 5)):
        a = DAMDS(annealing=False, tol=tol, accelerate="none").fit(D, init=X)
        b = DAMDS(annealing=False, tol=tol / 100).fit(D, init=X)
        n_passes = 1 + np.flatnonzero(b.history_ <= a.stress_ + tol)[0] + (b.n_passes_ - len(b.history_))
        assert factor * n_passes <= a.n_passes_
        assert (np.diff(b.history_) <= 0).all()


class _Stopping(Monitor):
    """Stops at the report with this number."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(checkpoint=path)
        self.left = at

    def report(self, phase: str, **numbers: Any) -> None:
        self.left -= phase in ("anneal", "settle")
        if self.left == 0:
            self.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, {"sammon": True}, {"accelerate": "none"}], ids=str)
def test_a_stopped_fit_goes_on_to_the_same_result(tmp_path: Path, parameters: dict[str, Any]) -> None:
    D = distances()
    whole = DAMDS(random_state=0, **parameters).fit(D)
    for at in (1, 7, whole.n_iter_ - 2):
        path = tmp_path / f"{at}.npz"
        with pytest.raises(RunCancelledError):
            DAMDS(random_state=0, **parameters).fit(D, monitor=_Stopping(path, at))
        rest = DAMDS(random_state=0, checkpoint=path, **parameters).fit(D)
        assert np.array_equal(rest.embedding_, whole.embedding_)
        assert (rest.n_iter_, rest.n_passes_, rest.stress_) == (whole.n_iter_, whole.n_passes_, whole.stress_)
        assert np.array_equal(rest.history_, whole.history_)
        assert not path.exists()


def test_a_checkpoint_of_another_call_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    with pytest.raises(RunCancelledError):
        DAMDS(random_state=0).fit(distances(), monitor=_Stopping(path, 3))
    with pytest.raises(ConfigError, match="alpha"):
        DAMDS(random_state=0, alpha=0.9, checkpoint=path).fit(distances())


def test_it_is_an_estimator() -> None:
    D = distances()
    mds = DAMDS(n_components=2, random_state=4, alpha=0.8)
    assert get_tags(mds).input_tags.pairwise
    assert clone(mds).get_params() == mds.get_params()
    fitted = clone(mds).fit(D)
    assert np.array_equal(mds.fit_transform(D), fitted.embedding_)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.transform(D[:3]), fitted.transform(D[:3]))
    assert fitted.embedding_.shape == (N, 2)


def test_two_points_and_one() -> None:
    two = DAMDS(random_state=0).fit([[0.0, 2.0], [2.0, 0.0]])
    assert pdist(two.embedding_)[0] == pytest.approx(2.0, abs=1e-2)
    one = DAMDS().fit([[0.0]])
    assert (one.embedding_.tolist(), one.stress_) == ([[0.0, 0.0, 0.0]], 0.0)


def test_equal_dissimilarities_and_more_dimensions_than_points() -> None:
    D = 1.0 - np.eye(4)
    mds = DAMDS(n_components=5, random_state=0, tol=1e-14).fit(D)
    assert np.allclose(pdist(mds.embedding_), 1.0, atol=1e-4)


def test_items_at_distance_zero_stay_so_or_count_as_the_smallest() -> None:
    D, X = distances(), start()
    D[0], D[:, 0] = D[1], D[:, 1]
    D[0, 0] = D[0, 1] = D[1, 0] = 0.0
    lifted = np.where((D == 0) & ~np.eye(N, dtype=bool), pdist_min(D), D)
    for zeros, meant in (("keep", D), ("smallest", lifted), (None, D)):
        expected = reference_step(meant, X, np.ones_like(D))
        found = plain(D, X, 1, zeros=zeros)
        assert np.allclose(found.embedding_, expected - expected.mean(axis=0), rtol=0, atol=1e-12)
    together = DAMDS(random_state=0).fit(D)
    assert squareform(pdist(together.embedding_))[0, 1] < 0.1 * pdist_min(D)


def _wrong() -> dict[str, tuple[Any, dict[str, Any], str]]:
    D = distances(6)
    asymmetric, holes = D.copy(), D.copy()
    asymmetric[1, 2] += 0.5
    holes[0, 1:] = holes[1:, 0] = np.nan
    skew = np.ones((6, 6))
    skew[2, 3] = 0.5
    X = start(6)
    return {
        "all zero": (np.zeros((3, 3)), {}, "every dissimilarity is 0"),
        "not square": (D[:3], {}, "shape"),
        "asymmetric": (asymmetric, {}, r"1\D+2"),
        "nan": (holes, {}, "(?i)nan"),
        "disconnected": (as_dissimilarities(holes, missing="nan"), {}, "2 groups"),
        "negative": (-D, {}, "negative|-"),
        "skew weights": (D, {"weights": skew}, r"\(2, 3\)"),
        "zero weights": (D, {"weights": np.zeros((6, 6))}, "all weights are 0"),
        "zero point weights": (D, {"weights": np.zeros(6)}, "all weights are 0"),
        "negative weights": (D, {"weights": -np.ones((6, 6))}, "not negative"),
        "negative point weight": (D, {"weights": -np.ones(6)}, "point 0"),
        "other weights": (D, {"weights": np.ones(5)}, "6 points"),
        "one weighty point": (D, {"weights": np.eye(6)[0]}, "no pair"),
        "fixed without coordinates": (D, {"fixed": [1]}, "coordinates"),
        "fixed twice": (D, {"fixed": [1, 1], "init": X}, "point 1 is fixed twice"),
        "fixed elsewhere": (D, {"fixed": [6], "init": X}, "fixed point 6"),
        "all fixed": (D, {"fixed": range(6), "init": X}, "all 6 points"),
        "fixed nowhere": (D, {"fixed": [2], "init": X * np.nan}, "point 2 are not finite"),
        "fixed words": (D, {"fixed": [0.5], "init": X}, "list of points"),
        "start of another size": (D, {"init": X[:5]}, "init has shape"),
        "start not finite": (D, {"init": X * np.inf}, "not finite"),
        "unknown start": (D, {"init": "best"}, "'best'"),
        "no dimension": (D, {"n_components": 0}, "n_components"),
        "no step": (D, {"max_iter": 0}, "max_iter"),
        "negative tolerance": (D, {"tol": -1.0}, "tol"),
        "alpha": (D, {"alpha": 1.0}, "alpha"),
        "cg_tol": (D, {"cg_tol": 0.0}, "cg_tol"),
        "zeros": (D, {"zeros": "drop"}, "zeros"),
        "accelerate": (D, {"accelerate": "warp"}, "warp"),
        "temperatures": (D, {"max_temperatures": 0}, "max_temperatures"),
        "half a temperature": (D, {"max_temperatures": 1.5}, "max_temperatures is 1.5; it must be a whole number"),
        "no number": (D, {"alpha": None}, "alpha is None; it must be a number above 0 and below 1"),
        "words": (D, {"cg_tol": "x"}, "cg_tol is 'x'"),
        "no truth": (D, {"annealing": "x"}, "annealing is 'x'; it must be True or False"),
        "seed": (D, {"random_state": -1}, "random_state is -1; it must be None, a whole number"),
        "ragged": ([[0.0, 1.0], [1.0]], {}, "D is not a matrix: its rows have different lengths"),
        "ragged start": (D, {"init": [[0, 1], [2]]}, "init is not an array of numbers"),
        "complex start": (D, {"init": X + 0j}, "type is complex128"),
        "start far away": (D, {"init": X * 1e200}, "units of the dissimilarities"),
        "start at one place": (D, {"init": X * 0}, "all points in one place"),
        "huge weights": (D, {"weights": 1e300 * np.ones((6, 6))}, "weight inf of the pair"),
        "large weights": (D, {"weights": 1e20 * np.ones((6, 6))}, "divide all of them by the largest"),
        "large point weights": (D, {"weights": 1e200 * np.ones(6)}, "divide all of them by the largest"),
        "ragged weights": (D, {"weights": [[1, 2], [3]]}, "different lengths"),
        "weights that cut": (D, {"weights": np.kron(np.eye(2), np.ones((3, 3)))}, "2 groups .*: 0, 1, 2; 3, 4, 5"),
        "a point without weight": (D, {"weights": np.array([1, 0, 1, 1, 1, 1.0])}, "weights of 0.* 2 groups .*; 1"),
        "monitor": (D, {"verbose": "x"}, "verbose is 'x'"),
        "checkpoint": (D, {"checkpoint": 3}, "checkpoint is 3; it must be a path"),
        "made words": (D, {"distance_transform": lambda d: "x"}, "made <U1 of numbers"),
    }


def test_groups_that_each_have_a_fixed_point_hang_together() -> None:
    D, X = distances(6), start(6)
    weights = np.kron(np.eye(2), np.ones((3, 3)))
    found = DAMDS(weights=weights, fixed=[0, 5], init=X, annealing=False).fit(D)
    assert np.allclose(found.embedding_[[0, 5]], X[[0, 5]])
    holes = np.where(weights > 0, D, np.nan)
    missing = as_dissimilarities(holes, missing="nan")
    assert np.allclose(
        DAMDS(fixed=[0, 5], init=X, annealing=False).fit(missing).embedding_, found.embedding_, atol=1e-3
    )
    with pytest.raises(ConfigError, match="2 groups"):
        DAMDS(fixed=[0, 1], init=X, annealing=False).fit(missing)


@pytest.mark.parametrize("name", _wrong())
def test_wrong_input_is_refused(name: str) -> None:
    D, parameters, message = _wrong()[name]
    with pytest.raises(ConfigError, match=message):
        DAMDS(**{"random_state": 0, **parameters}).fit(D)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones((2, 5)), "shape"),
        (-np.ones((2, N)), "0 or more"),
        (np.full((2, N), np.nan), "no dissimilarity"),
        (np.full((2, N), np.inf), "dissimilarity inf of new point 0"),
        (np.full((2, N), 1e300), "its square finite"),
        ([[1, 2], [3]], "different lengths"),
        ("x", "shape"),
    ],
)
def test_wrong_new_points_are_refused(rows: Any, message: str) -> None:
    mds = DAMDS(max_temperatures=1, random_state=0).fit(distances())
    with pytest.raises(ConfigError, match=message):
        mds.transform(rows)


def test_neighbors_and_transforms_of_new_points_are_checked() -> None:
    D = distances()
    for wrong in (0, "x", 1.5):
        mds = DAMDS(max_temperatures=1, random_state=0, n_neighbors=wrong).fit(D)
        with pytest.raises(ConfigError, match="n_neighbors is"):
            mds.transform(D[:2])
    mds = DAMDS(max_temperatures=1, random_state=0, distance_transform=lambda d: 1 / (1 + d)).fit(D)
    assert np.isfinite(mds.transform(D[:2] + 1)).all()
    mds.distance_transform = lambda d: 1 / d
    with pytest.raises(ConfigError, match="dissimilarity inf of new point 0 to point 0"):
        mds.transform(D[:2])
    mds.distance_transform = lambda d: d[:1]
    with pytest.raises(ConfigError, match="it keeps the shape"):
        mds.transform(D[:2])


def test_new_points_of_a_map_that_has_none_or_an_unknown_transform() -> None:
    with pytest.raises(ConfigError, match="one point"):
        DAMDS().fit([[0.0]]).transform([[1.0]])
    mds = DAMDS(max_temperatures=1, random_state=0, distance_transform="sqrt(d)").fit(distances())
    with pytest.raises(ConfigError, match="sqrt"):
        mds.transform(np.ones((1, N)))


@pytest.mark.slow
def test_the_real_matrix(shared_data: Path) -> None:
    path = shared_data / "matrices" / "spidal-damds-example-1000x1000-int16-be.bin"
    D = read_matrix(path, "int16", byteorder="big")
    mds = DAMDS(random_state=0, alpha=0.8).fit(D)
    again = DAMDS(random_state=1, alpha=0.8).fit(D)
    assert mds.embedding_.shape == (1000, 3)
    assert mds.stress_ < 0.1
    assert again.stress_ == pytest.approx(mds.stress_, rel=0.05)
