"""Clusters of items that are all about equally far apart, with copies and outliers among them: the groups are found."""

from __future__ import annotations

import numpy as np
import pytest
from low_contrast import ODDITIES, groups, noisy
from sklearn.metrics import adjusted_rand_score

from tartan.analytics import DAPWC, Monitor, as_dissimilarities, linkage
from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.dapwc.anneal import PairwiseAnnealing
from tartan.analytics.clusters.dapwc.level import LeveledProduct, find_level, make_level
from tartan.analytics.clusters.dapwc.product import HostProduct
from tartan.analytics.clusters.dapwc.state import PairwiseSettings
from tartan.analytics.clusters.search import Grouping, Measured, cost_of, improve
from tartan.comm.communicator import Alone
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError

QUIET = Monitor()


def annealed(D: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Return the labels that annealing finds alone, without linkages and the search."""
    values = checked(D)
    level = find_level(values, QUIET)
    product = LeveledProduct(HostProduct(values, Alone(), QUIET), level)
    start = np.random.RandomState(seed).standard_normal(len(D))
    labels: np.ndarray = PairwiseAnnealing(product, PairwiseSettings(k), level, start, QUIET).run().costs.argmin(1)
    return labels


def measured(D: np.ndarray, level: float) -> np.ndarray:
    values = np.maximum(D - level, 0.0)
    np.fill_diagonal(values, 0.0)
    return values


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("oddity", ODDITIES)
@pytest.mark.parametrize("gap", [0.005, 0.02, 0.1, 0.8])
def test_groups_are_found(gap: float, oddity: str) -> None:
    for seed in range(3):
        D, truth = groups(gap, [6] * 4, seed, oddity)
        found = DAPWC(len(set(truth)), random_state=seed).fit(D)
        assert adjusted_rand_score(truth, found.labels_) == 1.0
        values = Measured(measured(D, found.level_))
        assert cost_of(values, found.labels_) <= cost_of(values, truth) * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, pytest.param(1e-3, marks=pytest.mark.exhaustive)])
def test_annealing_alone_lets_an_item_that_is_far_from_all_stand_alone(unit: float) -> None:
    for seed in range(5):
        D, truth = groups(0.1, [40] * 8, seed, "single")
        assert adjusted_rand_score(truth, annealed(unit * D, 9, seed)) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[6] * 4, pytest.param([40] * 8, marks=pytest.mark.exhaustive)])
def test_annealing_alone_costs_no_more_than_the_best_linkage(sizes: list[int]) -> None:
    k, better = len(sizes), 0
    for seed in range(20):
        D, truth = noisy(0.1, sizes, seed)
        values = Measured(D, level=find_level(checked(D), QUIET).value)
        linked = [cut(linkage(D, method), len(D), k) for method in ("average", "complete", "weighted", "single")]
        least = min(cost_of(values, labels) for labels in (*linked, truth))
        better += cost_of(values, annealed(D, k, seed)) <= least * (1 + 1e-9)
    assert better >= 18


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_every_form_of_the_values_gives_the_groups(dtype: str) -> None:
    D, truth = groups(0.1, [5, 10, 20], 0)
    stored = np.rint(D * 20_000).astype("i2") if dtype == "i2" else D.astype(dtype)
    found = DAPWC(3, random_state=0).fit(stored)
    assert adjusted_rand_score(truth, found.labels_) == 1.0
    assert found.membership_.argmax(1).tolist() == found.labels_.tolist()


def test_one_pair_does_not_move_the_level() -> None:
    D, _ = groups(0.05, [6] * 4, 1)
    level = find_level(checked(D), QUIET).value
    nearest = np.sort(measured(D, 0.0) + 9 * np.eye(24), 1)[:, 0]
    assert nearest.min() < level <= np.median(nearest)
    for far in (0.0, 1000.0):
        changed = D.copy()
        changed[3, 4] = changed[4, 3] = far
        assert find_level(checked(changed), QUIET).value == pytest.approx(level, rel=2e-3)


def test_a_gross_outlier_changes_no_cluster() -> None:
    D, truth = groups(0.05, [6] * 4, 1)
    D[3, 20] = D[20, 3] = 1000.0
    assert adjusted_rand_score(truth, DAPWC(4, random_state=0).fit_predict(D)) == 1.0


def test_what_lies_below_the_level_counts_as_nothing() -> None:
    D, _ = groups(0.3, [4, 4], 0)
    level = make_level(checked(D), 0.75, QUIET)
    below = (D < 0.75) & ~np.eye(8, dtype=bool)
    assert level.n_clipped == below.sum() // 2
    np.testing.assert_allclose(level.below.toarray(), np.where(below, 0.75 - D, 0.0))
    values = measured(D, 0.75)
    assert level.mean == pytest.approx(values[~np.eye(8, dtype=bool)].mean())


def test_a_level_that_would_clip_most_pairs_is_not_taken() -> None:
    D = np.full((60, 60), 1.0)
    D[:40, :40] = 0.1  # exactly, so that no pair of them lies below the median of the nearest
    D[0, :40] = D[:40, 0] = 0.09
    np.fill_diagonal(D, 0.0)
    assert find_level(checked(D), QUIET).below.nnz <= 8 * 60


def test_missing_pairs_are_measured_from_the_level_too() -> None:
    D, truth = groups(0.05, [8] * 3, 2)
    gone = np.triu(np.random.default_rng(0).random(D.shape) < 0.1, 1)
    D[gone | gone.T] = np.nan
    found = DAPWC(3, random_state=0).fit(as_dissimilarities(D, missing="nan"))
    assert adjusted_rand_score(truth, found.labels_) == 1.0
    assert found.method_ == "annealing"  # the search needs every pair


def test_any_number_of_ranks_finds_the_same() -> None:
    D, truth = groups(0.02, [6] * 4, 3, "copies")
    alone = DAPWC(4, random_state=0).fit(D)
    for found in run_ranks(3, lambda ranks: DAPWC(4, random_state=0).fit(D, communicator=ranks)):
        np.testing.assert_array_equal(found.labels_, alone.labels_)
        np.testing.assert_array_equal(found.membership_, alone.membership_)
    assert adjusted_rand_score(truth, alone.labels_) == 1.0


@pytest.mark.parametrize("level", [-1.0, "low", float("nan")])
def test_a_level_is_a_dissimilarity(level: object) -> None:
    with pytest.raises(ConfigError, match="level"):
        DAPWC(2, level=level).fit(groups(0.5, [3, 3], 0)[0])


class TestSearch:
    @pytest.mark.parametrize("seed", range(4))
    def test_no_single_move_lowers_the_cost_afterwards(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        D = generator.random((20, 20))
        D = np.triu(D, 1) + np.triu(D, 1).T
        labels = Grouping(Measured(D), np.arange(20) % 4, 4).settle(QUIET).labels
        least = cost_of(Measured(D), labels)
        for item in range(20):
            for other in range(4):
                changed = labels.copy()
                changed[item] = other
                if len(set(changed)) == 4:
                    assert cost_of(Measured(D), changed) >= least - 1e-9

    def test_groups_that_were_joined_and_split_are_mended(self) -> None:
        D, truth = groups(0.3, [6] * 4, 0)
        wrong = np.where(truth == 1, 0, truth)
        wrong[21:] = 1  # half of the last group
        assert (Grouping(Measured(D), wrong, 4).settle(QUIET).labels != truth).any()
        assert adjusted_rand_score(truth, improve(Grouping(Measured(D), wrong, 4), QUIET).labels) == 1.0

    @pytest.mark.parametrize("dtype", ["f4", "f8", "<i2", ">i2"])
    def test_every_form_of_the_values_is_searched_alike(self, dtype: str) -> None:
        values = np.rint(groups(0.3, [9, 12, 15], 1)[0] * 1000)
        D = Measured(*stored(values, dtype), scale=0.001, level=0.6)
        plain = Measured(measured(values * 0.001, 0.6))
        wrong = np.random.default_rng(2).integers(0, 3, 36)
        assert cost_of(D, wrong) == pytest.approx(cost_of(plain, wrong))
        items = np.arange(1, 36, 3)
        np.testing.assert_allclose(D.among(items).stored, plain.stored[np.ix_(items, items)], atol=1e-12)
        found = improve(Grouping(D, wrong, 3), QUIET)
        assert found.labels.tolist() == improve(Grouping(plain, wrong, 3), QUIET).labels.tolist()
        assert found.cost == pytest.approx(cost_of(plain, found.labels))

    def test_the_cost_is_that_of_its_definition(self) -> None:
        D, truth = groups(0.3, [2, 3], 0)
        expected = D[:2, :2].sum() / 2 + D[2:, 2:].sum() / 3
        assert cost_of(Measured(D), truth) == pytest.approx(expected)


def stored(values: np.ndarray, dtype: str) -> tuple[np.ndarray, bool]:
    """Return values of a type, as native integers where their bytes are swapped, and whether they are."""
    array = values.astype(dtype)
    swapped = not array.dtype.isnative
    return (array.view(array.dtype.newbyteorder("=")) if swapped else array), swapped


def checked(D: np.ndarray):
    matrix = as_dissimilarities(D)
    matrix.check()
    return matrix
