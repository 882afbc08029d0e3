"""Clusters without a number: the criterion, HDBSCAN, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from low_contrast import groups
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from tartan.analytics import DAPWC, as_dissimilarities, cluster, linkage
from tartan.analytics.clusters import density, find, pairwise
from tartan.analytics.clusters.apart import find_numbers_apart, label_apart
from tartan.analytics.clusters.cut import cut
from tartan.analytics.clusters.dapwc import contest
from tartan.analytics.clusters.dapwc.prepared import Prepared
from tartan.analytics.clusters.hierarchies import Hierarchies
from tartan.analytics.clusters.number import link_distances, mean_silhouettes, number_of_clusters
from tartan.analytics.clusters.outcome import NumberCurve
from tartan.analytics.clusters.pairwise import extend_labels, pairwise_clusters
from tartan.analytics.clusters.search import Measured, cost_of
from tartan.analytics.monitor import Monitor
from tartan.errors import ConfigError, ResourceError

Matrix = NDArray[np.float64]


def distances(points: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.square(points[:, None] - points[None]).sum(-1)))


def blobs(n_groups: int, each: int, apart: float = 20.0, seed: int = 0) -> tuple[Matrix, NDArray[np.int64]]:
    """Groups of points in the plane around the corners of a grid."""
    truth = np.repeat(np.arange(n_groups), each)
    centres = apart * np.stack(np.divmod(np.arange(n_groups), 5), axis=1)
    return distances(centres[truth] + np.random.default_rng(seed).standard_normal((len(truth), 2))), truth


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [1, 2, 3, 5, 8, 13, 20])
@pytest.mark.parametrize("gap", [0.005, 0.1, 0.8])
def test_the_number_of_groups_of_any_contrast_is_found(n_groups: int, gap: float) -> None:
    D, _ = groups(gap, [6] * n_groups, n_groups)
    curve = number_of_clusters(as_dissimilarities(D))
    assert curve.chosen == n_groups
    above = (curve.silhouettes - curve.by_chance).max()
    assert (above > curve.margin) == (n_groups > 1)
    assert curve.silhouettes.max() <= curve.highest or n_groups > 1


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("oddity", ["", "copies", "single"])
@pytest.mark.parametrize("gap", [0.02, 0.8])
def test_a_small_group_beside_large_ones_counts(gap: float, oddity: str) -> None:
    D, truth = groups(gap, np.linspace(5, 200, 10).astype(int).tolist(), 0, oddity)
    assert number_of_clusters(as_dissimilarities(D)).chosen == len(np.unique(truth))


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [1, 2, 5, 20])
def test_the_number_of_groups_of_points_is_found(n_groups: int) -> None:
    D, truth = blobs(n_groups, 15 if n_groups > 1 else 40)
    found = cluster(D)
    assert (found.n_clusters, found.method) == (n_groups, "pwc")
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.reason.startswith("of the numbers 2 to" if n_groups > 1 else "no number from 2 to")


def families(sizes: list[int], seed: int) -> tuple[Matrix, NDArray[np.int64]]:
    """Trees within families, up to 0.4 high, and nearly 0.5 between all of these, as far proteomes are apart."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    D = 0.5 - 0.012 * random.random((len(truth), len(truth)))
    for family, size in enumerate(sizes):
        parts, height = [[item] for item in np.flatnonzero(truth == family).tolist()], 0.08
        while len(parts) > 1:
            height += 0.32 / size * random.uniform(0.5, 1.1)
            a, b = random.choice(len(parts), 2, replace=False).tolist()
            D[np.ix_(parts[a], parts[b])] = D[np.ix_(parts[b], parts[a])] = height
            parts[a] += parts[b]
            del parts[b]
    D = np.triu(D, 1)
    return D + D.T, truth


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[8, 8, 8, 8, 9], [12, 6, 5, 4, 4, 3, 3, 2, 2], [3] * 5, [20, 10, 6, 5]])
def test_families_are_found_and_not_their_branches(sizes: list[int]) -> None:
    D, truth = families(sizes, 0)
    found = cluster(D)
    assert abs(found.n_clusters - len(sizes)) <= 1
    assert adjusted_rand_score(truth, found.labels) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["line", "ring", "grid"])
def test_what_has_no_groups_is_one_cluster(shape: str) -> None:
    turns = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    points = {
        "line": np.arange(40.0)[:, None],
        "ring": np.stack([np.cos(turns), np.sin(turns)], axis=1),
        "grid": np.argwhere(np.ones((6, 6))).astype(float),
    }[shape]
    found = cluster(distances(points))
    assert set(found.labels.tolist()) == {0}
    assert found.curve is not None
    assert found.curve.chosen == 1


@pytest.mark.parametrize("dimensions", [2, 3])
def test_points_on_a_ring_or_a_sphere_are_one_cluster(dimensions: int) -> None:
    points = np.random.default_rng(0).standard_normal((300, dimensions))
    points /= np.linalg.norm(points, axis=1)[:, None]
    assert number_of_clusters(as_dissimilarities(distances(points))).chosen == 1


@pytest.mark.slow
@pytest.mark.parametrize("oddity", ["duplicate", "copies", "single"])
def test_copies_and_an_outlier_leave_the_groups(oddity: str) -> None:
    D, truth = groups(0.1, [6, 6, 6, 6], 1, oddity)
    found = cluster(D)
    assert found.n_clusters == len(set(truth.tolist()))
    assert adjusted_rand_score(truth, found.labels) == 1.0


def test_two_groups_of_three() -> None:
    x = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    assert cluster(np.abs(x[:, None] - x)).labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


@pytest.mark.parametrize(("n", "chosen"), [(1, 1), (2, 1), (3, 1)])
def test_few_items_are_one_cluster(n: int, chosen: int) -> None:
    found = cluster(np.ones((n, n)) - np.eye(n))
    assert found.n_clusters == chosen
    assert found.labels.tolist() == [0] * n


def test_equal_items_are_one_cluster() -> None:
    assert cluster(np.zeros((5, 5))).labels.tolist() == [0] * 5


@pytest.mark.slow
def test_a_sample_of_many_items_decides() -> None:
    D, _ = blobs(3, 40)
    curve = number_of_clusters(as_dissimilarities(D), seed=3, most_items=50)
    assert (curve.n_items, curve.chosen) == (50, 3)


@pytest.mark.slow
def test_a_linkage_without_a_number_is_cut_where_the_criterion_says() -> None:
    D, truth = blobs(3, 6)
    for method in ("single", "complete", "average", "weighted"):
        found = cluster(D, method=method)
        assert (found.method, found.found_by) == (method, method)
        assert adjusted_rand_score(truth, found.labels) == 1.0


def test_hdbscan_finds_groups_and_noise() -> None:
    D, truth = blobs(3, 12)
    far = np.full((37, 37), 500.0)
    far[:36, :36], far[36, 36] = D, 0.0
    found = cluster(far, method="hdbscan", min_size=4)
    assert found.n_clusters == 3
    assert found.labels[36] == -1
    assert adjusted_rand_score(truth, found.labels[:36]) == 1.0
    assert "1 item in no cluster, as noise" in found.notes


def test_hdbscan_takes_each_component_alone() -> None:
    D, truth = blobs(2, 8)
    D[truth[:, None] != truth] = np.nan
    found = cluster(D, method="hdbscan", missing="nan")
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.n_clusters == 2


def test_hdbscan_refuses_what_does_not_fit() -> None:
    D = as_dissimilarities(blobs(2, 8)[0])
    with pytest.raises(ResourceError, match=r"hdbscan takes 6\.14 kB for 16 items .* 1 kB are free"):
        density.of_matrix(D, 5, Monitor(0), lambda: 1000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_clusters": 2, "threshold": 1.0}, "give one of"),
        ({"n_clusters": 2, "method": "hdbscan"}, "by itself"),
        ({"threshold": 1.0, "method": "pwc"}, "pwc takes none"),
        ({"method": "median"}, "'median' is unknown; choose from pwc, single"),
        ({"method": "components"}, "is for runs that keep pairs"),
        ({"method": "hdbscan", "min_size": 1}, "min_size is 1; clusters of 6 items have 2 to 6"),
        ({"method": "average", "n_clusters": 2, "level": 0.0}, "average has no option level"),
    ],
)
def test_contradictions(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cluster(blobs(2, 3)[0], **options)  # type: ignore[arg-type]


def test_missing_pairs_leave_no_number() -> None:
    D, _ = blobs(2, 3)
    D[0, 1] = D[1, 0] = np.nan
    with pytest.raises(ConfigError, match=r"1 pair .*the number of clusters"):
        cluster(D, missing="nan")


def test_pairs_below_the_level_are_told() -> None:
    D, _ = groups(0.1, [6, 6], 0)
    model = DAPWC(2, random_state=0).fit(D)
    below = int((np.triu(model.level_ > D, 1)).sum())
    assert model.n_clipped_ == below > 0
    assert f"that is so of {below:,} pair" in model.note_
    assert cluster(D, 2).notes == (model.note_,)
    plain = DAPWC(2, random_state=0, level=0.0).fit(D)
    assert (plain.n_clipped_, plain.note_) == (0, "")


def test_fewer_clusters_than_were_asked_for_are_named() -> None:
    equal_pairs = distances(np.array([[0.0, 0.0], [0.0, 0.0], [9.0, 0.0], [9.0, 0.0]]))
    found = cluster(equal_pairs, 4)
    assert (found.n_clusters, found.labels[0], found.labels[2]) == (2, found.labels[1], found.labels[3])
    assert found.reason == "4 were asked for, but only 2 items differ from each other"
    assert cluster(equal_pairs, 2).reason == "the number was given"


@pytest.mark.slow
@pytest.mark.parametrize(("n_groups", "size"), [(20, 4), (100, 3), pytest.param(200, 10, marks=pytest.mark.exhaustive)])
def test_as_many_groups_as_are_asked_for(n_groups: int, size: int) -> None:
    truth = np.repeat(np.arange(n_groups), size)
    points = np.random.default_rng(1).random((n_groups, 30))[truth]
    D = distances(points + 0.01 * np.random.default_rng(2).standard_normal(points.shape))
    for matrix in (D, D * 1e-40, D * 1e40):
        found = cluster(matrix, n_groups)
        assert adjusted_rand_score(truth, found.labels) == 1.0
        assert found.found_by == "single linkage"


def test_annealing_reaches_as_many_clusters_as_are_asked_for() -> None:
    truth = np.repeat(np.arange(90), 2)
    points = np.random.default_rng(1).random((90, 30))[truth]
    D = distances(points + 0.01 * np.random.default_rng(2).standard_normal(points.shape))
    model = DAPWC(90, random_state=0).fit(D)
    assert model.n_clusters_ == len(set(model.labels_.tolist())) == 90
    assert model.history_["n_clusters"][-1] == 90
    assert model.costs_[model.method_.removeprefix("search from ")] >= 0


@pytest.mark.parametrize("unit", [1e-70, 1e-18, 1e70])
def test_the_unit_of_the_distances_does_not_matter(unit: float) -> None:
    D, _ = blobs(3, 12)
    one, other = (DAPWC(3, random_state=0).fit(matrix) for matrix in (D, D * unit))
    assert one.labels_.tolist() == other.labels_.tolist()
    assert other.critical_temperature_ == pytest.approx(one.critical_temperature_ * unit, rel=1e-6)
    assert other.hard_hamiltonian_ == pytest.approx(one.hard_hamiltonian_ * unit)
    assert other.level_ == pytest.approx(one.level_ * unit)


@pytest.mark.slow
def test_more_than_forty_groups_are_found_without_their_number() -> None:
    D, truth = groups(0.5, [6] * 100, 0)
    found = cluster(D)
    assert found.n_clusters == 100
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.reason.startswith("of the numbers 2 to 200, 100 fits best")


@pytest.mark.parametrize("seed", range(3))
def test_mean_silhouettes_are_those_of_scikit_learn(seed: int) -> None:
    points = np.random.default_rng(seed).standard_normal((60, 3))
    linked = link_distances(np.round(squareform(pdist(points)), 1), "average")  # rounded: ties, and items at one place
    found = mean_silhouettes(linked, 40)
    for k in range(2, 41):
        labels = cut(linked.steps, 60, k)
        each = silhouette_samples(linked.measured, labels, metric="precomputed")
        torn = (labels[linked.nearest[0]] != labels) | (labels[linked.nearest[1]] != labels)
        each = np.where(torn, np.minimum(each, 0), each)
        each[np.bincount(labels)[labels] == 1] = 0
        assert found[k - 2] == pytest.approx(each.mean(), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_groups", [20, 90, 300])
def test_clear_groups_are_counted_however_many_there_are(n_groups: int) -> None:
    sizes = np.random.default_rng(0).integers(3, 7, n_groups)
    labels = np.repeat(np.arange(n_groups), sizes)
    centres = 10 * np.random.default_rng(1).standard_normal((n_groups, 30))
    points = centres[labels] + 0.6 * np.random.default_rng(2).standard_normal((len(labels), 30))
    matrix = as_dissimilarities(squareform(pdist(points)))
    matrix.check()
    assert number_of_clusters(matrix).chosen == n_groups


def test_a_number_found_from_a_part_of_the_items_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "number_of_clusters", partial(number_of_clusters, most_items=20))
    points = np.repeat(np.eye(3), 10, axis=0) + 0.001 * np.arange(30)[:, None]
    points[0] = 9.0  # far from all others, so that these do not stand apart
    found = cluster(squareform(pdist(points)))
    assert any("from 20 of the 30 items" in note for note in found.notes)


def test_what_does_not_fit_into_memory_takes_no_part_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Prepared(as_dissimilarities(squareform(pdist(np.random.default_rng(0).random((30, 2))))), Monitor(0))
    case.hierarchies = Hierarchies(case.D, Monitor(0), memory_bytes=0)
    monkeypatch.setattr(contest, "MOST_SUMS", 1)
    notes = " ".join(pairwise_clusters(case, 3, 0, Monitor(0)).notes)
    assert "only single linkage took part" in notes
    assert "no search improved them" in notes


def test_what_takes_long_is_annealed_by_a_part_of_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    D = squareform(pdist(np.random.default_rng(0).standard_normal((320, 5))))  # no groups, so that linkages differ
    case = Prepared(as_dissimilarities(D), Monitor(0))
    values = Measured(D, level=case.level().value * case.unit)
    whole = cost_of(values, pairwise_clusters(case, 6, 0, Monitor(0)).labels)
    monkeypatch.setattr(pairwise, "ANNEALED_PRODUCT", 6 * 90**2)
    part = pairwise_clusters(case, 6, 0, Monitor(0))
    assert "annealing took part by 90 of the 320 items" in part.notes[-1]
    assert cost_of(values, part.labels) <= 1.02 * whole
    monkeypatch.setattr(pairwise, "ANNEALED_PRODUCT", 6 * 89**2)
    assert "annealing took no part" in pairwise_clusters(case, 6, 0, Monitor(0)).notes[-1]


def test_labels_of_some_items_are_those_of_the_items_near_them() -> None:
    D, truth = groups(0.1, [30, 50, 70], 1)
    items = np.arange(0, 150, 4)
    found = extend_labels(as_dissimilarities(D), 0.0, items, truth[items], Monitor(0))
    assert found.tolist() == truth.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("n_clusters", [3, None])
def test_a_small_group_that_stands_apart_is_not_lost(n_clusters: int | None) -> None:
    """H is lower where a large group is split and three items far from all others join it."""
    rng = np.random.default_rng(0)
    sizes = (900, 900, 3)
    points = np.concatenate([rng.normal(size=(n, 6)) + 22 * np.eye(6)[at] for at, n in enumerate(sizes)])
    found = cluster(squareform(pdist(points)), n_clusters)
    assert np.bincount(found.labels).tolist() == list(sizes)
    assert any("stand apart" in note for note in found.notes)


def test_groups_that_stand_apart_fix_the_number_where_silhouettes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silhouettes lose a group of 3 beside one of 2,000: here by values of their own, also of a part of the items."""
    chance, values = np.array([0.3, 0.3, 0.3]), np.array([0.5, 0.6, 0.9])
    curve = NumberCurve(np.arange(2, 5), values, chance, 0.1, 0.5, 0.0, n_items=10)
    monkeypatch.setattr(find, "number_of_clusters", lambda *_, **__: curve)
    sizes = (6, 6, 6, 3, 3)
    x = np.repeat([0.0, 12.0, 24.0, 36.0, 41.0], sizes) + np.concatenate([np.linspace(0, 1, n) for n in sizes])
    for method in (None, "average"):
        found = cluster(np.abs(x[:, None] - x), method=method)
        assert found.curve is not None
        assert (found.curve.by_silhouettes, found.curve.apart) == (4, (5,))
        assert np.bincount(found.labels).tolist() == list(sizes)
        assert found.reason.startswith("5 clusters stand apart")
        assert not any("of the 24 items" in note for note in found.notes)


@pytest.mark.filterwarnings("error")
def test_groups_of_equal_items_are_found_without_a_warning() -> None:
    x = np.repeat([0.0, 5.0, 9.0], 3)
    assert cluster(np.abs(x[:, None] - x)).n_clusters == 3


def test_groups_of_groups_are_named() -> None:
    x = np.add.outer(np.arange(3) * 1000.0, np.add.outer(np.arange(4) * 50.0, np.arange(4.0))).ravel()
    found = cluster(np.abs(x[:, None] - x))
    assert found.n_clusters in (3, 12)
    other = 15 - found.n_clusters
    assert any(note.startswith(f"groups of groups: {other} clusters") for note in found.notes)


def test_groups_with_an_outlier_or_a_chain_do_not_stand_apart() -> None:
    matrix = as_dissimilarities(distances(np.array([0, 1, 2, 100, 101, 102, 500.0])[:, None]))
    assert find_numbers_apart(matrix, linkage(matrix, "single"), Monitor(0)) == []
    chain = as_dissimilarities(distances(np.append(np.arange(9.0), np.arange(9.0) + 11)[:, None]))
    assert find_numbers_apart(chain, linkage(chain, "single"), Monitor(0)) == []


def test_equal_items_are_one_cluster_however_they_were_joined() -> None:
    equal = as_dissimilarities(np.zeros((6, 6)))
    assert cluster(equal).reason == "all items are equal: nothing tells clusters apart"
    halves = [(0, 1), (2, 6), (3, 4), (5, 8), (7, 9)]  # {0, 1, 2} and {3, 4, 5}, which are joined at 0
    steps = np.array([(*pair, 0.0, size) for pair, size in zip(halves, (2, 3, 2, 3, 6), strict=True)])
    assert find_numbers_apart(equal, steps, Monitor(0)) == []
    assert label_apart(equal, steps, 2, Monitor(0)) is None


def test_squares_stand_apart_as_their_distances_do() -> None:
    """Half of a square is 0.7 of the distance, which random points keep more often."""
    for gap, numbers in ((3.2, ()), (4.2, (2,))):
        x = np.concatenate([np.linspace(0, 2, 6), 2 + gap + np.linspace(0, 2, 6)])
        found = cluster(np.square(x[:, None] - x))
        assert found.curve is not None
        assert found.curve.are_squares
        assert found.curve.apart == numbers
    values = np.array([0.1, 0.6, 0.9])
    curve = NumberCurve(np.arange(2, 5), values, np.full(3, 0.3), 0.1, 0.5, 0.0, n_items=10, are_squares=True)
    assert "is certain: no distance within one is above a quarter" in replace(curve, apart=(2,)).reason()
    several = replace(curve, apart=(2, 3))
    assert several.chosen == 3
    assert several.reason().startswith("3 clusters stand apart: ")


@pytest.mark.parametrize("kind", ["cosine", "squares"])
def test_directions_and_squares_without_groups_are_one_cluster(kind: str) -> None:
    points = np.random.default_rng(3).standard_normal((80, 2))
    directions = points / np.linalg.norm(points, axis=1)[:, None]
    D = {
        "cosine": distances(directions) ** 2 / 2,
        "squares": distances(points[:, :1]) ** 2,
    }[kind]
    assert number_of_clusters(as_dissimilarities(D)).chosen == 1


def test_groups_of_directions_in_the_plane_are_found() -> None:
    turns = np.repeat(np.arange(5), 12) * 2 * np.pi / 5 + 0.1 * np.random.default_rng(0).standard_normal(60)
    D = 1 - np.cos(turns[:, None] - turns)
    matrix = as_dissimilarities(np.maximum(D, 0) * (1 - np.eye(60)))
    assert number_of_clusters(matrix).chosen == 5


def test_one_or_two_far_items_are_no_group_that_stands_apart() -> None:
    rng = np.random.default_rng(0)
    groups_of_200 = [rng.normal(size=(200, 6)) + 30 * np.eye(6)[at] for at in range(2)]
    points = np.concatenate([*groups_of_200, 90 * np.eye(6)[2:3]])
    assert not any("stand apart" in note for note in cluster(squareform(pdist(points)), 3).notes)
