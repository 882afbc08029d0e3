"""DAPWC: stops and checkpoints, missing pairs, options, wrong input, devices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pwc_data import blobs, points_and_squares, with_holes
from sklearn.metrics import adjusted_rand_score

from tartan.analytics import DAPWC, Alone, Monitor, as_dissimilarities
from tartan.analytics.clusters.dapwc.lanczos import extremes, focus_on
from tartan.analytics.clusters.dapwc.product import HostProduct
from tartan.analytics.clusters.dapwc.state import PairwiseSettings, assign, first_state, update_costs
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError, RunCancelledError


def host(D: object) -> HostProduct:
    return HostProduct(as_dissimilarities(D), Alone(), Monitor())


class Stopping(Monitor):
    """Is asked to stop after so many reports."""

    def __init__(self, path, after: int) -> None:
        super().__init__(checkpoint=path)
        self.left = after

    def report(self, phase: str, **numbers: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.cancel()


class TestStops:
    @pytest.mark.parametrize("after", [2, 8, 40, 75])
    def test_a_checkpoint_goes_on_to_the_same_result(self, tmp_path, after):
        D = blobs(120, 3)[0]
        whole = DAPWC(3, random_state=0, intermediate=True).fit(D)
        assert len(whole.history_) > 75
        path = tmp_path / "half.npz"
        with pytest.raises(RunCancelledError):
            DAPWC(3, random_state=0, intermediate=True).fit(D, monitor=Stopping(path, after))
        model = DAPWC(3, random_state=0, intermediate=True, checkpoint=path).fit(D)
        assert (model.membership_ == whole.membership_).all()
        assert (model.temperatures_ == whole.temperatures_).all()
        assert (model.splits_ == whole.splits_).all()
        assert all((model.clusterings_[k] == whole.clusterings_[k]).all() for k in (1, 2, 3))
        assert not path.exists()

    def test_a_checkpoint_of_other_parameters_is_refused(self, tmp_path):
        D = blobs(120, 3)[0]
        with pytest.raises(RunCancelledError):
            DAPWC(3, random_state=0).fit(D, monitor=Stopping(tmp_path / "c.npz", 20))
        with pytest.raises(ConfigError, match=r"cooling was 0\.99"):
            DAPWC(3, random_state=0, cooling=0.98, checkpoint=tmp_path / "c.npz").fit(D)

    def test_a_stop_is_heard_between_native_calls(self):
        monitor = Monitor()
        product = HostProduct(as_dissimilarities(blobs(120, 3)[0]), Alone(), monitor)
        monitor.cancel()
        with pytest.raises(RunCancelledError):
            product(np.ones((120, 1)))


class TestMissing:
    def test_costs_use_the_mass_of_known_pairs(self):
        D = with_holes(blobs(120, 3)[0], 0.2)
        values = np.where(D < 0, np.nan, D / 32767)
        members = np.random.default_rng(0).dirichlet(np.ones(3), 120)
        known = np.isfinite(values)
        B = np.nansum(values[:, :, None] * members, axis=1) / (known.astype(float) @ members)
        A = -0.5 * (B * members).sum(0) / members.sum(0)
        state = first_state(members.copy())
        update_costs(state, host(D))
        assert state.costs == pytest.approx(B + A, rel=1e-5)

    def test_clusters_are_found(self):
        D, labels = blobs(300, 3)
        whole, holes = (DAPWC(3, random_state=0).fit(given) for given in (D, with_holes(D, 0.3)))
        assert adjusted_rand_score(labels, holes.labels_) == 1.0
        assert holes.critical_temperature_ == pytest.approx(whole.critical_temperature_, rel=0.05)
        assert holes.widths_ == pytest.approx(whole.widths_, rel=0.05)

    def test_floats_and_int16_agree(self):
        D = with_holes(blobs(120, 3)[0], 0.2)
        values = np.where(D < 0, np.nan, D / 32767)
        short = DAPWC(3, random_state=0).fit(D)
        for dtype in (np.float32, np.float64):
            long = DAPWC(3, random_state=0).fit(as_dissimilarities(values.astype(dtype), missing="nan"))
            assert (long.labels_ == short.labels_).all()
            assert long.widths_ == pytest.approx(short.widths_, rel=1e-5)

    def test_groups_without_a_pair_between_them(self):
        D = np.full((4, 4), -1, np.int16)
        D[:2, :2] = D[2:, 2:] = [[0, 5], [5, 0]]
        with pytest.raises(ConfigError, match="2 groups"):
            DAPWC(2).fit(D)

    def test_ranks_agree(self):
        D = with_holes(blobs(60, 3)[0], 0.1)
        alone = DAPWC(3, random_state=0).fit(D)
        for found in run_ranks(3, lambda ours: DAPWC(3, random_state=0).fit(D, communicator=ours)):
            assert found.membership_ == pytest.approx(alone.membership_, abs=1e-12)


class TestLanczos:
    @pytest.mark.parametrize("share", [0.0, 0.2])
    def test_extremes_are_those_of_the_whole_matrix(self, share):
        D = with_holes(blobs(120, 3)[0], share)
        values = D / 32767
        members = np.random.default_rng(0).dirichlet(np.ones(2), 120)
        product = host(D)
        focus = focus_on(members, product, 1.0)
        found = extremes(focus, 0.1, product, np.random.default_rng(1).standard_normal(120), 1e-6)
        known = (D >= 0).astype(float)
        for k in (0, 1):
            m, B, A = members[:, k], focus.distances[:, k], focus.inner[k]
            mass = known @ m
            centred = known * (values - B[:, None] - B - 2 * A)
            S = np.diag(m) + m[:, None] * m * centred / (0.1 * np.sqrt(mass[:, None] * mass))
            eigenvalues, vectors = np.linalg.eigh((S + S.T) / 2)
            assert found.smallest[k] == pytest.approx(eigenvalues[0], abs=1e-5)
            assert found.largest[k] == pytest.approx(eigenvalues[-1], abs=0.03)  # a scale only
            assert abs(found.vectors[:, k] @ vectors[:, 0]) == pytest.approx(1, abs=1e-4)

    def test_fewer_products_than_power_iterations(self):
        product = host(blobs(120, 3)[0])
        focus = focus_on(np.ones((120, 1)), product, 0.5)
        assert extremes(focus, 0.1, product, np.random.default_rng(1).standard_normal(120)).n_products < 15

    @pytest.mark.parametrize("temperature", [0.02, 0.06, 0.2])
    def test_the_least_of_all_is_found_with_fewer_products(self, temperature):
        D, labels = blobs(200, 4)
        members = np.full((200, 3), 0.05)
        members[np.arange(200), np.minimum(labels, 2)] = 0.9  # the last two clusters in one
        product = host(D)
        start = np.random.default_rng(1).standard_normal(200)
        focus = focus_on(members, product, 1.0)
        every, least, ready = (
            extremes(focus, temperature, product, start, wanted=wanted) for wanted in (math.inf, -math.inf, -0.01)
        )
        best = int(np.argmin(every.smallest))
        assert np.argmin(least.smallest) == best
        assert least.smallest[best] == pytest.approx(every.smallest[best], abs=1e-4)
        assert abs(least.vectors[:, best] @ every.vectors[:, best]) == pytest.approx(1, abs=1e-4)
        assert least.n_products < every.n_products
        splits = every.smallest <= -0.01 * every.largest
        assert (ready.smallest <= -0.01 * ready.largest).tolist() == splits.tolist()
        assert ready.smallest[splits] == pytest.approx(every.smallest[splits], abs=1e-4)

    def test_clusters_leave_the_products_once_they_are_known(self):
        D, labels = blobs(200, 4)
        members = np.full((200, 3), 0.05)
        members[np.arange(200), np.minimum(labels, 2)] = 0.9
        product, widths = host(D), []

        def counted(columns):
            widths.append(columns.shape[1])
            return product(columns)

        counted.masses, counted.scale = product.masses, product.scale
        start = np.random.default_rng(1).standard_normal(200)
        extremes(focus_on(members, product, 1.0), 0.06, counted, start)
        assert (widths[0], widths[-1]) == (3, 1)
        assert widths == sorted(widths, reverse=True)


class TestFreeEnergy:
    def test_it_never_rises_for_squared_distances(self):
        points, D = points_and_squares(150)
        product, settings = host(D), PairwiseSettings(3)
        state = first_state(np.random.default_rng(0).dirichlet(np.ones(3), 150))
        last = np.inf
        for _ in range(40):
            update_costs(state, product)
            means = state.members.T @ points / state.members.sum(0)[:, None]
            squares = ((points[:, None] - means) ** 2).sum(2)
            assert state.costs == pytest.approx(squares, abs=1e-9)
            now = -3.0 * np.log(np.exp(-state.costs / 3.0).sum(1)).sum()
            assert now <= last + 1e-9
            last = now
            assign(state, 3.0, settings)


class TestOptions:
    def test_intermediate_clusterings(self):
        D, labels = blobs(120, 3)
        found = DAPWC(3, random_state=0, intermediate=True).fit(D).clusterings_
        assert [len(set(found[k].tolist())) for k in (1, 2, 3)] == [1, 2, 3]
        assert adjusted_rand_score(labels, found[3]) == 1.0

    def test_continuous_prior(self):
        D, labels = blobs(120, 3)
        found = DAPWC(3, random_state=0, continuous_prior=True).fit(D)
        assert adjusted_rand_score(labels, found.labels_) == 1.0
        assert found.membership_.sum(1) == pytest.approx(np.ones(120))

    def test_small_clusters_are_removed(self):
        points = np.concatenate([np.zeros(40), np.full(40, 10.0), np.full(3, 20.0)])
        points += np.random.default_rng(0).normal(0, 0.1, 83)
        D = np.abs(points[:, None] - points)
        assert sorted(np.round(DAPWC(3, random_state=0).fit(D).sizes_)) == [3, 40, 40]
        found = DAPWC(3, random_state=0, min_cluster_size=25).fit(D)
        assert sorted(np.bincount(found.labels_)) == [40, 43]

    def test_failed_splits_end_the_search(self):
        D = blobs(120, 3)[0]
        assert DAPWC(9, random_state=0, max_failed_splits=0, min_split_size=1000).fit(D).n_clusters_ == 2

    def test_correlation_is_one_within_on_average(self):
        found = DAPWC(3, random_state=0).fit(blobs(120, 3)[0])
        assert np.diag(found.correlation_).mean() == pytest.approx(1)
        assert found.correlation_[0, 1] > 1.5

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"n_clusters": 0}, "n_clusters is 0"),
            ({"n_clusters": 2.0}, "n_clusters is 2.0"),
            ({"cooling": 1.0}, "cooling is 1.0"),
            ({"tol": 0}, "tol is 0"),
            ({"split_threshold": 0.1}, "below 0"),
            ({"min_cluster_size": -1}, "min_cluster_size"),
            ({"device": "tpu"}, "tpu"),
            ({"max_failed_splits": -1}, "max_failed_splits"),
        ],
    )
    def test_wrong_options(self, options, says):
        with pytest.raises(ConfigError, match=says):
            DAPWC(**{"n_clusters": 2, **options}).fit([[0.0, 1.0], [1.0, 0.0]])


class TestInput:
    @pytest.mark.parametrize(
        ("D", "says"),
        [
            (np.zeros((3, 3)), "every dissimilarity is 0"),
            ([[0, np.nan], [np.nan, 0]], "NaN"),
            ([[0, np.inf], [np.inf, 0]], "inf"),
            ([[0.0, 1.0], [2.0, 0.0]], "symmetric|differ"),
            ([[0.0, -1.0], [-1.0, 0.0]], "negative"),
            (np.ones((2, 3)), "square"),
        ],
    )
    def test_wrong_matrices(self, D, says):
        with pytest.raises(ConfigError, match=says):
            DAPWC(2).fit(D)

    def test_all_equal(self):
        found = DAPWC(3, random_state=0).fit(1.0 - np.eye(8))
        assert found.n_clusters_ == 3
        assert np.bincount(found.labels_).sum() == 8

    def test_fewer_different_points_than_clusters(self):
        points = np.repeat([0.0, 1.0], 6)
        found = DAPWC(5, random_state=0).fit(np.abs(points[:, None] - points))
        assert found.n_clusters_ == 2

    def test_condensed_mapped_and_files(self, tmp_path):
        D = blobs(60, 3)[0].astype("f4") / 32767
        expected = DAPWC(3, random_state=0).fit(D)
        np.save(tmp_path / "d.npy", D)
        for given in (D[np.triu_indices(60, 1)], np.load(tmp_path / "d.npy", mmap_mode="r"), tmp_path / "d.npy"):
            assert (DAPWC(3, random_state=0).fit(given).membership_ == expected.membership_).all()
