"""Vector-sponge clustering: oracle numbers, invariants, ranks, checkpoints, bad input."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from tartan.analytics import DAVS, Monitor
from tartan.analytics.clusters.davs.anneal import SpongeAnnealing, SpongeState, close_pairs, find_splits
from tartan.analytics.clusters.davs.davs import check_settings
from tartan.analytics.clusters.davs.field import Field
from tartan.analytics.clusters.davs.model import SpongeSettings
from tartan.comm.communicator import Communicator
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, RunCancelledError

LCMS: dict[str, Any] = {
    "sigma": (5.98e-6, 2.35), "scaling": "annealed", "initial_sigma": 5.98e-4, "final_sigma_temperature": 12,
    "sponge": "late", "sponge_factor": 3, "sponge_factor_start": 12, "sponge_temperatures": (9, 3),
    "sponge_width": 10, "centers_per_point": (2, 17),
}  # fmt: skip


def faster(times: int) -> dict[str, Any]:
    """Cool so many times faster than by default."""
    return {
        "cooling": (0.9875**times, 0.9975**times),
        "cooling_below": (0.99375**times, 0.999375**times),
    }


def peptides() -> tuple[np.ndarray, np.ndarray]:
    """Return 60 clusters and 150 points of noise at six and five decimals, and the cluster of each point."""
    rng = np.random.default_rng(11)
    mz, rt = rng.uniform(400, 1200, 60), rng.uniform(10, 110, 60)
    rows = []
    for k in range(60):
        n = rng.integers(8, 60)
        rows += [(mz[k] * (1 + rng.normal(0, 5.98e-6)), rt[k] + rng.normal(0, 2.35), k) for _ in range(n)]
    rows += [(rng.uniform(400, 1200), rng.uniform(10, 110), -1) for _ in range(150)]
    table = np.array(rows)[rng.permutation(len(rows))]
    return np.column_stack([np.round(table[:, 0], 6), np.round(table[:, 1], 5)]), table[:, 2].astype(int)


def expect_peptides(found: DAVS, truth: np.ndarray) -> None:
    assert found.start_temperature_ == pytest.approx(428928.7947, abs=1e-4)
    real = truth >= 0
    assert abs(found.n_clusters_ - 62) <= 1
    assert (found.cluster_sizes_ >= 5).sum() == 60
    assert adjusted_rand_score(truth[real], found.labels_[real]) >= 0.981
    assert (found.labels_[~real] == -1).all()
    # exp(-9 / 2) of them, 22.7, are expected beyond three standard deviations.
    assert 18 <= (found.labels_[real] == -1).sum() <= 28


@pytest.mark.slow
def test_finds_the_peptides() -> None:
    points, truth = peptides()
    expect_peptides(DAVS(**LCMS, min_temperature=2, **faster(8)).fit(points), truth)


@pytest.mark.exhaustive
def test_finds_the_peptides_with_the_original_cooling() -> None:
    points, truth = peptides()
    found = DAVS(**LCMS, min_temperature=2, max_clusters=400).fit(points)
    assert found.n_clusters_ == 62
    expect_peptides(found, truth)


@pytest.mark.exhaustive
def test_splits_too_far_below_the_natural_temperature() -> None:
    points, truth = peptides()
    real = truth >= 0
    found = DAVS(**LCMS, min_temperature=0.1, max_clusters=400).fit(points)
    assert abs(found.n_clusters_ - 155) <= 10
    assert adjusted_rand_score(truth[real], found.labels_[real]) == pytest.approx(0.59, abs=0.03)
    careful = DAVS(**LCMS, min_temperature=0.1, max_clusters=400, min_split_width=4).fit(points)
    assert careful.n_clusters_ <= 107
    assert adjusted_rand_score(truth[real], careful.labels_[real]) >= 0.85


@pytest.mark.slow
def test_masses_keep_the_outskirts_of_clusters() -> None:
    points, truth = peptides()
    found = DAVS(**LCMS, min_temperature=2, assignment="mass", **faster(16)).fit(points)
    real = truth >= 0
    assert adjusted_rand_score(truth[real], found.labels_[real]) > 0.99
    assert (found.labels_[real] == -1).sum() <= 2
    assert (found.labels_[~real] == -1).sum() >= 147


def blobs(seed: int = 0, dim: int = 2, n: int = 60) -> np.ndarray:
    """Return three clusters of standard deviation 1, 20 apart."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(centre, 1, (n, dim)) for centre in (5, 25, 45)])


def annealing(points: np.ndarray, centres: np.ndarray, temperature: float, **options: Any) -> SpongeAnnealing:
    settings = check_settings(DAVS(**options).get_params(), points)
    start = settings.scales.first_temperature(points)
    state = SpongeState.of(np.array(centres, dtype=float), len(points), temperature, start)
    return SpongeAnnealing(Field(points), settings, state, Monitor())


@pytest.mark.parametrize("scaling", ["absolute", "relative", "annealed"])
def test_one_cluster_lies_at_the_mean(scaling: str) -> None:
    points = blobs(dim=3)
    one = annealing(points, points[:1], 5.0, scaling=scaling)
    one.converge(1e-12, 3, centres=True)
    np.testing.assert_allclose(one.state.positions[0], points.mean(axis=0), rtol=1e-13)
    assert one.state.counts[0] == len(points)


def scaled_eigenvalue(points: np.ndarray, sigma: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(np.cov((points / sigma).T, bias=True))[-1])


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["absolute", "relative"])
def test_the_first_split_is_at_the_largest_eigenvalue(scaling: str) -> None:
    points = blobs()
    found = DAVS((0.3, 2.0), scaling=scaling, min_temperature=40).fit(points)
    T, K = found.history_["temperature"], found.history_["n_clusters"]
    sigma = np.array([0.3 if scaling == "absolute" else 0.3 * points[:, 0].mean(), 2.0])
    critical = scaled_eigenvalue(points, sigma)
    first = T[K > 1][0]
    # Looked at after every cooling, by 1.25 %.
    assert critical * 0.9875 <= first * (1 + 1e-12) <= critical * (1 + 1e-12)
    assert (K[critical <= T] == 1).all()


@pytest.mark.slow
def test_the_first_split_with_annealed_scales() -> None:
    points, _ = peptides()
    found = DAVS(**LCMS, min_temperature=2e5).fit(points)
    T, K = found.history_["temperature"], found.history_["n_clusters"]
    first = int(np.argmax(K > 1))
    before, at = T[first - 1], T[first]

    def excess(temperature: float) -> float:
        share = np.log(temperature / 12) / np.log(found.start_temperature_ / 12)
        sigma = np.array([5.98e-6 * 100**share * points[:, 0].mean(), 2.35])
        return scaled_eigenvalue(points, sigma) - temperature

    assert excess(found.start_temperature_) < 0
    assert excess(at) > 0
    assert excess(before / 0.9875) < 0 < first


def settings(**options: Any) -> SpongeSettings:
    return check_settings(DAVS(**options).get_params(), blobs())


def test_the_sponge_comes_nearer_as_the_temperature_falls() -> None:
    told = settings(sponge="late", sponge_factor=3, sponge_factor_start=12, sponge_temperatures=(9, 3)).masses
    assert [told.factor(T) for T in (20.0, 9.0, 6.0, 3.0, 1.0)] == [12, 12, 7.5, 3, 3]
    assert [told.wants_sponge(T, mean_width=1.0) for T in (9.0, 8.99)] == [False, True]
    by_width = settings(sponge="late", sponge_width=10.0).masses
    assert [by_width.wants_sponge(100.0, mean_width=w) for w in (10.1, 10.0)] == [False, True]
    assert by_width.factor(1e9) == 3


def test_annealed_scales_fall_geometrically_in_the_logarithm_of_the_temperature() -> None:
    told = settings(sigma=0.01, scaling="annealed", initial_sigma=1.0, final_sigma_temperature=10.0).scales
    found = [told.first_sigma(T, start=1e5) for T in (1e6, 1e5, 1e3, 10.0, 1.0)]
    np.testing.assert_allclose(found, [1, 1, 0.1, 0.01, 0.01], rtol=1e-12)
    scales = told.at(np.array([[7.0, 1.0]]), temperature=1e3, start=1e5)
    np.testing.assert_allclose(scales, [[0.7**2, 0.01**2]], rtol=1e-12)


def test_cooling_is_fine_between_the_first_split_and_the_last() -> None:
    told = settings().cooling
    factors = [told.next(T, fine) / T for T in (12.0, 11.0) for fine in (False, True)]
    np.testing.assert_allclose(factors, [0.9875, 0.9975, 0.99375, 0.999375], rtol=1e-12)


def test_priors_of_the_sponge() -> None:
    for prior, own in ((0.1, 0.1 / 3), (None, 0.2)):
        steps = annealing(blobs(), blobs()[:3], 5.0, sponge="always", sponge_prior=prior)
        steps.state.counts, steps.state.sponge_count = np.array([18.0, 36.0, 90.0]), 36.0
        steps.update_priors()
        clusters = np.array([0.125, 0.25, 0.625]) * (1 - own)
        np.testing.assert_allclose(np.exp(steps.state.log_priors), clusters, rtol=1e-12)
        assert np.exp(steps.state.sponge_log_prior) == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_children_lie_along_the_widest_direction(dim: int) -> None:
    rng = np.random.default_rng(dim)
    points = rng.normal(0, 1, (500, dim)) * np.arange(dim, 0, -1) + 50
    sigma = np.linspace(0.5, 2, dim)
    steps = annealing(points, points.mean(axis=0)[None], 1.0, sigma=sigma)
    steps.improve()
    step = steps.step()
    z = (points - step.positions[0]) / sigma
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    state = steps.state
    # One member of a pair of coincident halves has the mass 1 / 2 of each point: the slope of its mass is 0 in sum,
    # and the step is the longest allowed one.
    for temperature, n in ((values[-1] * 1.001, 0), (values[-1] * 0.999, 1)):
        found = find_splits(
            steps.points.moments(step), state.counts, state.widths, 1 / step.weights, np.array([True]), temperature
        )
        assert len(found.clusters) == n
    assert abs(found.displacements[0] / sigma @ vectors[:, -1]) == pytest.approx(0.2 * np.sqrt(state.widths[0]))


def test_close_pairs_are_those_of_a_look_at_all() -> None:
    rng = np.random.default_rng(4)
    positions = rng.uniform(1, 9, (80, 2))
    scales = np.column_stack([np.square(0.1 * positions[:, 0]), np.full(80, 0.5)])
    wanted = set()
    for i in range(80):
        for j in range(i):
            smaller = np.minimum(scales[i], scales[j])
            if (np.square(positions[i] - positions[j]) / smaller).sum() < 0.8:
                wanted.add((j, i))
    assert len(wanted) > 20
    assert {(min(pair), max(pair)) for pair in close_pairs(positions, scales, 0.8).tolist()} == wanted


def test_masses_sum_to_the_number_of_points() -> None:
    for sponge in ("never", "always"):
        found = DAVS(min_temperature=2, sponge=sponge, **faster(32)).fit(blobs())
        assert found.cluster_masses_.sum() + found.sponge_mass_ == pytest.approx(180, rel=1e-12)
        assert found.cluster_sizes_.sum() + found.sponge_size_ == 180


def test_the_free_energy_never_rises_at_one_temperature() -> None:
    points = blobs(3)
    steps = annealing(points, points[::30], 3.0)
    energies = []
    for _ in range(30):
        steps.improve()
        energies.append(steps.state.energy)
    assert (np.diff(energies) <= 1e-9 * abs(energies[0])).all()
    assert energies[-1] < energies[0] - 1


@pytest.mark.slow
def test_the_sponge_takes_what_lies_beyond_its_factor() -> None:
    points = np.random.default_rng(1).normal(50, 1, (40_000, 2))
    for factor in (2.0, 3.0):
        found = DAVS(min_temperature=2, sponge="always", sponge_factor=factor, **faster(32)).fit(points)
        assert found.n_clusters_ == 1
        expected = 40_000 * np.exp(-(factor**2) / 2)
        assert abs(found.sponge_size_ - expected) < 4 * np.sqrt(expected)


def test_a_far_sponge_is_no_sponge() -> None:
    points = blobs(1)
    far = DAVS(min_temperature=2, sponge="always", sponge_factor=1e6, sponge_prior=1e-7, **faster(32)).fit(points)
    none = DAVS(min_temperature=2, **faster(32)).fit(points)
    np.testing.assert_array_equal(far.labels_, none.labels_)
    np.testing.assert_allclose(far.cluster_centers_, none.cluster_centers_, rtol=1e-9)
    assert far.sponge_mass_ < 1e-290


def test_one_step_is_what_plain_numpy_computes() -> None:
    points = blobs(2, dim=3)
    steps = annealing(points, points[::25], 7.0, sponge="always", sponge_factor=4.0, centers_per_point=(8, 8))
    y, log_priors = steps.state.positions, steps.state.log_priors
    energies = np.square(points[:, None] - y).sum(axis=2)
    steps.state.sponge_log_prior = -2.0
    steps.state.has_sponge = True
    steps.improve()
    weights = np.exp(log_priors - energies / 14)
    masses = weights / (weights.sum(axis=1) + np.exp(-2 - 16 / 14))[:, None]
    np.testing.assert_allclose(steps.state.counts, masses.sum(axis=0), rtol=1e-7)
    np.testing.assert_allclose(steps.state.positions, masses.T @ points / masses.sum(axis=0)[:, None], rtol=1e-7)
    np.testing.assert_allclose(steps.state.widths, (masses * energies).sum(axis=0) / masses.sum(axis=0), rtol=1e-6)


def test_order_and_place_of_points_do_not_matter() -> None:
    points = blobs(4)
    shuffled = np.random.default_rng(0).permutation(len(points))
    moved = points[shuffled] + np.array([7.0, -3.0])
    one, other = (DAVS(min_temperature=2, **faster(32)).fit(some) for some in (points, moved))
    np.testing.assert_array_equal(one.labels_[shuffled], other.labels_)
    np.testing.assert_allclose(one.cluster_centers_ + np.array([7.0, -3.0]), other.cluster_centers_, rtol=1e-9)


@pytest.mark.slow
def test_short_lists_find_what_long_ones_find() -> None:
    points = np.random.default_rng(5).uniform(0, 60, (40, 2)).repeat(12, axis=0)
    points += np.random.default_rng(6).normal(0, 0.3, points.shape)
    short, long = (
        DAVS(0.3, min_temperature=2, centers_per_point=c, **faster(32)).fit(points) for c in ((2, 6), (40, 60))
    )
    assert adjusted_rand_score(short.labels_, long.labels_) > 0.99


@pytest.mark.slow
def test_ranks_give_the_same_bits() -> None:
    points = np.concatenate([blobs(seed, n=230) for seed in range(3)])

    def fit(communicator: Communicator | None) -> DAVS:
        found = DAVS(min_temperature=2, sponge="late", sponge_width=10, min_points=2, **faster(32))
        return found.fit(points, communicator=communicator)

    alone = fit(None)
    assert alone.n_clusters_ == 3
    for size in (1, 3, 7):
        for found in run_ranks(size, fit):
            np.testing.assert_array_equal(found.labels_, alone.labels_)
            np.testing.assert_array_equal(found.cluster_centers_, alone.cluster_centers_)
            np.testing.assert_array_equal(found.history_["energy"], alone.history_["energy"])


class Stopping(Monitor):
    """Somebody asks it to stop at the n-th report."""

    def __init__(self, n: int, checkpoint: Path) -> None:
        super().__init__(checkpoint=checkpoint)
        self.left = n

    def report(self, phase: str, **numbers: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 40, 120, 166])
def test_a_stopped_fit_goes_on_to_the_same_result(n: int, tmp_path: Path) -> None:
    points, options = blobs(7), {"min_temperature": 2.0, "sponge": "late", "sponge_width": 10.0}
    whole = DAVS(**options, **faster(8)).fit(points)
    assert len(whole.history_["energy"]) > 166
    file = tmp_path / "davs.npz"
    with pytest.raises(RunCancelledError, match="resumes from"):
        DAVS(**options, **faster(8)).fit(points, monitor=Stopping(n, file))
    resumed = DAVS(**options, **faster(8), checkpoint=file).fit(points)
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    np.testing.assert_array_equal(resumed.history_["energy"], whole.history_["energy"])
    assert resumed.n_iter_ == whole.n_iter_
    assert not file.exists()


def test_a_checkpoint_of_another_call_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "davs.npz"
    with pytest.raises(RunCancelledError):
        DAVS(min_temperature=2).fit(blobs(), monitor=Stopping(9, file))
    with pytest.raises(ConfigError, match="sigma"):
        DAVS(2.0, min_temperature=2, checkpoint=file).fit(blobs())
    with pytest.raises(ConfigError, match="input"):
        DAVS(min_temperature=2, checkpoint=file).fit(blobs(1))


@pytest.mark.slow
def test_a_sample_begins_what_all_points_end(tmp_path: Path) -> None:
    points = np.concatenate([blobs(seed, n=100) for seed in range(4)])
    options: dict[str, Any] = {"min_temperature": 2.0, "temperature_ratio": 10.0} | faster(8)
    whole = DAVS(**options, sample=None).fit(points)
    begun = DAVS(**options, sample=300).fit(points)
    np.testing.assert_array_equal(begun.labels_, whole.labels_)
    np.testing.assert_allclose(begun.cluster_centers_, whole.cluster_centers_, atol=0.02)
    assert begun.start_temperature_ == whole.start_temperature_
    assert begun.cluster_masses_.sum() == pytest.approx(1200, rel=1e-12)
    # The sample cools down to 50 times the lowest temperature: stop before and after.
    assert begun.history_["temperature"][40] > 100
    for n in (40, len(begun.history_["energy"]) - 2):
        file = tmp_path / f"davs{n}.npz"
        with pytest.raises(RunCancelledError):
            DAVS(**options, sample=300).fit(points, monitor=Stopping(n, file))
        resumed = DAVS(**options, sample=300, checkpoint=file).fit(points)
        np.testing.assert_array_equal(resumed.cluster_centers_, begun.cluster_centers_)


def test_small_neighbours_do_not_go_together() -> None:
    points = np.array([[10.0, 10.0], [10.5, 10.0], [40.0, 10.0], [70.0, 70.0]]).repeat([1, 1, 1, 30], axis=0)
    centres = points[[0, 1, 2, 3]]
    found = DAVS(min_temperature=2, sponge="always").fit(points, init=centres)
    assert found.labels_[:3].tolist() == [0, 0, -1]


def test_the_sponge_is_there_from_a_restart() -> None:
    points = np.concatenate([blobs(8), [[15.0, 5.0]]])
    for sponge in ({"sponge": "always"}, {"sponge": "late", "sponge_temperatures": (9, 3)}):
        found = DAVS(min_temperature=2, max_clusters=3, **sponge).fit(points, init=[[5, 5], [25, 25], [45, 45]])
        assert found.sponge_mass_ > 0.5
        assert found.labels_[-1] == -1


@pytest.mark.slow
def test_goes_on_from_centres() -> None:
    points = blobs(8)
    first = DAVS(min_temperature=2, **faster(8)).fit(points)
    again = DAVS(min_temperature=2, max_clusters=3, **faster(8)).fit(points, init=first.cluster_centers_)
    np.testing.assert_allclose(again.cluster_centers_, first.cluster_centers_, atol=1e-3)
    assert again.n_iter_ < 0.2 * first.n_iter_
    for wrong, message in ((points[:, :1], "shape"), ([[np.nan, 1.0]], "finite")):
        with pytest.raises(ConfigError, match=message):
            DAVS(min_temperature=2).fit(points, init=wrong)


@pytest.mark.slow
def test_predict_agrees_with_labels_and_finds_noise() -> None:
    points = blobs(9)
    for assignment in ("distance", "mass"):
        found = DAVS(min_temperature=2, sponge="always", assignment=assignment, **faster(16)).fit(points)
        np.testing.assert_array_equal(found.predict(points), found.labels_)
        assert found.predict([[5, 5], [45, 45], [15, 15]]).tolist() == [0, 2, -1]
        kept = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(kept.predict(points), found.labels_)
    assert clone(found).get_params() == found.get_params()


def test_too_close_and_too_small_clusters_go() -> None:
    points = blobs(10)
    centres = np.array([[5.0, 5], [5.1, 5], [25, 25], [25, 25.1], [45, 45], [900, 900]])
    found = DAVS(min_temperature=2, max_clusters=6, **faster(32)).fit(points, init=centres)
    assert found.n_clusters_ == 3
    few = DAVS(min_temperature=2, min_points=61, **faster(32)).fit(points)
    assert few.n_clusters_ == 1


def test_one_point_and_equal_points_are_one_cluster() -> None:
    for points in (np.ones((1, 2)), np.ones((9, 2)), np.ones((4, 1))):
        found = DAVS().fit(points)
        assert found.n_clusters_ == 1
        assert found.labels_.tolist() == [0] * len(points)
        np.testing.assert_array_equal(found.cluster_centers_, points[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": -1.0}, "sigma is -1.0"),
        ({"sigma": (1.0, 0.0)}, "sigma is 0.0"),
        ({"sigma": (1.0, 2.0, 3.0)}, "one for each of 2"),
        ({"sigma": "wide"}, "sigma is 'wide'"),
        ({"scaling": "log"}, "scaling: 'log'"),
        ({"max_clusters": 181}, "max_clusters is 181"),
        ({"max_clusters": 0}, "max_clusters is 0"),
        ({"min_temperature": 0.0}, "min_temperature is 0.0"),
        ({"cooling": (0.9, 1.0)}, "cooling"),
        ({"cooling": 0.9}, "cooling is 0.9"),
        ({"sponge": "late"}, "sponge_temperatures or sponge_width"),
        ({"sponge_temperatures": (3, 9)}, "sponge_temperatures"),
        ({"sponge_prior": 1.0}, "sponge_prior"),
        ({"assignment": "chance"}, "assignment: 'chance'"),
        ({"centers_per_point": (9, 3)}, "centers_per_point"),
        ({"priors": "no"}, "priors is 'no'"),
        ({"max_iter": 2.5}, "max_iter is 2.5"),
        ({"min_temperature": 3.0, "restart_temperature": 2.0}, "restart_temperature"),
    ],
)
def test_wrong_parameters_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        DAVS(**options).fit(blobs())


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_points_that_are_not_numbers_are_named(value: float, what: str) -> None:
    points = blobs()
    points[17, 1] = value
    with pytest.raises(ConfigError, match=f"{what} in row 17, column 1"):
        DAVS().fit(points)


@pytest.mark.parametrize(("points", "sigma"), [([[1e200], [-1e200]], 1.0), ([[1.0], [2.0]], 1e-200)])
def test_distances_beyond_all_numbers_are_refused(points: list[list[float]], sigma: float) -> None:
    with pytest.raises(ConfigError, match="beyond float64"):
        DAVS(sigma).fit(points)


def test_relative_scales_need_positive_coordinates() -> None:
    points = blobs()
    points[3, 0] = -2.0
    with pytest.raises(ConfigError, match=r"-2.0 in row 3.*positive"):
        DAVS(0.1, scaling="relative").fit(points)


def test_masked_points_are_refused() -> None:
    masked = np.ma.array(np.random.default_rng(0).normal(size=(30, 2)))
    masked[17, 1] = np.ma.masked
    with pytest.raises(ConfigError, match="NaN in row 17, column 1"):
        DAVS(sigma=1.0).fit(masked)
