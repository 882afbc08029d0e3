"""DAPWC: the numbers of the published program on its example, and what must hold for any input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pwc_data import blobs, points_and_squares
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from tartan.analytics import DAPWC
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError


@pytest.fixture(scope="module")
def thousand():
    return DAPWC(5, level=0, random_state=0).fit(blobs(1000)[0])


@pytest.mark.slow
class TestOracle:
    """N = 1000, 5 clusters: critical temperature, splits, sizes, widths and H of the original and of its equations."""

    def test_critical_temperature(self, thousand):
        assert thousand.critical_temperature_ == pytest.approx(0.139767, abs=5e-7)

    def test_splits(self, thousand):
        splits = thousand.splits_
        assert splits["temperature"] == pytest.approx([0.127324, 0.115150, 0.104140, 0.094182], abs=1e-6)
        assert splits["smallest"][0] == pytest.approx(-0.04886, abs=5e-6)
        assert splits["largest"][0] == pytest.approx(0.5, abs=1e-9)

    def test_eigenvalues_of_one_cluster_follow_the_temperature(self, thousand):
        spread = thousand.splits_["largest"][0] - thousand.splits_["smallest"][0]
        assert spread == pytest.approx(thousand.critical_temperature_ / (2 * 0.127324), abs=1e-5)
        assert thousand.critical_temperature_ / (2 * thousand.temperatures_[3]) == pytest.approx(0.091517, abs=3e-5)
        assert thousand.temperatures_[3] == pytest.approx(0.76346, abs=1e-5)

    def test_end(self, thousand):
        assert thousand.temperatures_[-1] == pytest.approx(0.0387, abs=5e-5)
        order = np.argsort([178, 199, 202, 203, 218])[np.argsort(np.argsort(thousand.sizes_))]
        assert np.round(thousand.sizes_) == pytest.approx(np.array([178, 199, 202, 203, 218])[order])
        widths = np.array([0.17748, 0.17613, 0.17702, 0.17938, 0.17440])[order]
        assert thousand.widths_ == pytest.approx(widths, abs=6e-6)
        assert thousand.hard_hamiltonian_ == pytest.approx(176.5218, abs=5e-5)
        assert adjusted_rand_score(blobs(1000)[1], thousand.labels_) == 1.0
        assert thousand.freezing_.max() <= 0.002


@pytest.mark.slow
def test_the_form_of_the_values_does_not_matter():
    D = blobs(300)[0]
    expected = DAPWC(5, level=0, random_state=0).fit(D)
    for other in (D.astype("<i2"), D / 32767, (D / 32767).astype("f4")):
        found = DAPWC(5, level=0, random_state=0).fit(other)
        assert (found.labels_ == expected.labels_).all()
        assert found.widths_ == pytest.approx(expected.widths_, rel=1e-5)
        assert found.splits_["smallest"] == pytest.approx(expected.splits_["smallest"], abs=2e-4)


def test_memberships_are_shares():
    found = DAPWC(3, random_state=0, freezing_limit=0.2).fit(points_and_squares(150)[1])
    assert found.membership_.sum(1) == pytest.approx(np.ones(150))
    assert found.sizes_.sum() == pytest.approx(150)
    assert found.sizes_ == pytest.approx(found.membership_.sum(0))
    assert found.hamiltonian_ == pytest.approx((found.sizes_ * found.widths_).sum())


def test_no_split_above_the_critical_temperature():
    points, D = points_and_squares(150)
    found = DAPWC(2, level=0, random_state=0).fit(D)
    largest = np.linalg.eigvalsh(np.cov(points.T, bias=True))[-1]
    assert found.critical_temperature_ == pytest.approx(2 * largest, rel=1e-6)
    assert found.splits_["temperature"][0] < found.critical_temperature_
    single = found.temperatures_[found.history_["n_clusters"] == 1]
    assert single[0] == pytest.approx(2 * D.sum() / (150 * 149))


def test_cold_fixed_points_of_squared_distances_are_those_of_k_means():
    points, D = points_and_squares(150)
    found = DAPWC(3, random_state=0, freezing_limit=1e-9).fit(D)
    centres = np.array([points[found.labels_ == k].mean(0) for k in range(3)])
    again = KMeans(3, init=centres, n_init=1).fit(points)
    assert (again.labels_ == found.labels_).all()
    assert found.hamiltonian_ / 2 == pytest.approx(again.inertia_, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_agree(ranks):
    D = blobs(120, 3)[0]
    alone = DAPWC(3, random_state=0).fit(D)
    for found in run_ranks(ranks, lambda ours: DAPWC(3, random_state=0).fit(D, communicator=ours)):
        assert (found.labels_ == alone.labels_).all()
        assert found.membership_ == pytest.approx(alone.membership_, abs=1e-12)
        assert found.widths_ == pytest.approx(alone.widths_, rel=1e-12)
        assert found.temperatures_ == pytest.approx(alone.temperatures_, rel=1e-12)


def test_scale_of_the_input_scales_temperatures():
    D = blobs(120, 3)[0] / 32767
    one, many = (DAPWC(3, random_state=0).fit(D * by) for by in (1.0, 1000.0))
    assert (one.labels_ == many.labels_).all()
    assert many.temperatures_ == pytest.approx(1000 * one.temperatures_)


def test_clone_and_pickle():
    model = DAPWC(3, cooling=0.97, random_state=1)
    assert clone(model).get_params() == model.get_params()
    model.fit(blobs(120, 3)[0])
    assert (pickle.loads(pickle.dumps(model)).labels_ == model.labels_).all()


def test_more_clusters_than_items():
    with pytest.raises(ConfigError, match="3 clusters of 2 items"):
        DAPWC(3).fit([[0.0, 1.0], [1.0, 0.0]])


def test_two_points():
    assert sorted(DAPWC(2, random_state=0).fit_predict([[0.0, 1.0], [1.0, 0.0]])) == [0, 1]


def test_one_point():
    found = DAPWC(1).fit([[0.0]])
    assert found.labels_.tolist() == [0]
    assert found.n_clusters_ == 1
