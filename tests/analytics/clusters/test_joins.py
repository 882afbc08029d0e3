"""Groups joined by what their means have in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tartan
from tartan.analytics import Monitor, as_dissimilarities, cluster
from tartan.analytics.clusters.joins import join_alike, sum_groups
from tartan.errors import ConfigError, ItemError

SIDE = 1 << 14
RULE = tartan.GroupEvidence(correlation="scores", deviation=SIDE**-0.5)
QUIET = Monitor(0)


def take_photos(seed: int, strengths: list[list[float]], common: float = 0.0) -> np.ndarray:
    """Return patterns (n, SIDE) of unit norm: of each camera some, that have its pattern at these strengths."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(SIDE)
    rows = []
    for of_camera in strengths:
        camera = rng.standard_normal(SIDE)
        rows += [rng.standard_normal(SIDE) + a * camera + common * shared for a in of_camera]
    photos = np.array(rows)
    return photos / np.linalg.norm(photos, axis=1, keepdims=True)


def join(photos: np.ndarray, labels: list[int], rule: tartan.GroupEvidence = RULE):
    scores = as_dissimilarities(photos @ photos.T)
    given = np.array(labels)
    return join_alike(sum_groups(scores, scores, given, rule, QUIET), given, rule)


def test_sums_give_the_correlation_of_the_means() -> None:
    photos, labels = take_photos(1, [[0.3] * 5, [0.2] * 4]), np.array([0, 1, 0, 0, 2, 1, 1, 2, 2])
    scores = as_dissimilarities(photos @ photos.T)
    sums = sum_groups(scores, scores, labels, RULE, QUIET)
    sums.join(0, 2)
    means = [photos[labels != 1].sum(axis=0), photos[labels == 1].sum(axis=0)]
    expected = np.corrcoef(*means)[0, 1] * np.sqrt(SIDE)
    found = sums.deviations[0, 1] / np.sqrt(sums.within[0] * sums.within[1])
    assert found == pytest.approx(expected, rel=0.02)  # their own means are not quite 0
    assert found == pytest.approx(means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1]) * 128)
    assert not sums.deviations[2].any()
    assert not sums.deviations[:, 2].any()


def test_signed_squares_and_a_second_output_are_the_same() -> None:
    photos, labels = take_photos(2, [[0.3] * 4, [0.2] * 4]), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    ncc = photos @ photos.T
    squares = as_dissimilarities(np.sign(ncc) * ncc**2 * SIDE)
    rule = replace(RULE, squared=True, deviation=1.0)
    one = sum_groups(as_dissimilarities(ncc), as_dissimilarities(ncc), labels, RULE, QUIET)
    other = sum_groups(squares, as_dissimilarities(ncc), labels, rule, QUIET)
    for name in ("deviations", "correlations", "within", "sizes"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_weak_photos_join_the_group_of_their_camera(seed: int) -> None:
    # Single scores of a weak photo with a strong one are at 0.3 * 0.08 * 128 = 3 standard deviations.
    photos = take_photos(seed, [[0.3] * 10 + [0.1] * 3, [0.3] * 10 + [0.1] * 3])
    labels = [0] * 10 + [1, 2, 3] + [4] * 10 + [5, 6, 7]
    found = join(photos, labels)
    assert found.labels.tolist() == [0] * 13 + [1] * 13
    assert found.n_joins == 6
    assert found.n_tests == 56


def test_groups_of_one_camera_are_joined_and_others_left() -> None:
    photos = take_photos(3, [[0.2] * 12, [0.2] * 12])
    found = join(photos, [0] * 4 + [1] * 4 + [2] * 4 + [3] * 6 + [4] * 6)
    assert found.labels.tolist() == [0] * 12 + [1] * 12


@pytest.mark.slow
def test_the_stated_rate_of_false_joins_holds() -> None:
    rule = replace(RULE, false_alarm=0.1)
    labels = [0] * 3 + [1] * 3 + [2, 3, 4, 5]
    cases = (take_photos(seed, [[0.3] * 3, [0.3] * 3, *[[0.3]] * 4]) for seed in range(100))
    n_wrong = sum(join(photos, labels, rule).n_joins > 0 for photos in cases)
    assert n_wrong <= 17  # of 100 at a chance of 0.1: 99 %
    assert join(take_photos(0, [[0.3] * 3, [0.3] * 3]), [0] * 3 + [1] * 3, replace(rule, false_alarm=0.49)).level < 1


@pytest.mark.slow
def test_what_all_have_in_common_joins_nothing_where_it_is_declared() -> None:
    photos = take_photos(5, [[0.3] * 10, [0.3] * 10, [0.3]], common=0.16)  # a correlation of 0.025
    labels = [0] * 10 + [1] * 10 + [2]
    careless = join(photos, labels)
    assert careless.n_joins == 2
    assert join(photos, labels, replace(RULE, common=0.03, scatter=0.002)).n_joins == 0


def test_groups_have_a_share_of_what_is_within_them() -> None:
    photos = take_photos(6, [[0.4] * 10, [0.4] * 10], common=0.16)
    labels = [0] * 10 + [1] * 10
    assert join(photos, labels).n_joins == 1
    assert join(photos, labels, replace(RULE, share=0.4)).n_joins == 0
    assert join(photos, [0] * 5 + [1] * 5 + [2] * 10, replace(RULE, share=0.4)).n_joins == 1


def test_one_group_and_none_stay_as_they_are() -> None:
    photos = take_photos(7, [[0.3] * 3])
    assert join(photos, [0, 0, 0]) == (pytest.approx([0, 0, 0]), 0, 1, pytest.approx(4.753, abs=1e-3))


class Likenesses(tartan.Application):
    """Correlations of patterns, with a cut that only strong ones reach."""

    releases_gil = True
    similarity = True
    groups: object = RULE

    def compare(self, left, right, xp):
        return left @ right.T

    def meaning(self, output, shape):
        return tartan.Meaning(distance="1-s", cut=0.06, cut_why="so it is", groups=self.groups)


def test_clusters_of_a_run_are_joined_unless_a_method_or_a_cut_is_given(tmp_path) -> None:
    photos = take_photos(8, [[0.3] * 6 + [0.1] * 2, [0.3] * 6 + [0.1] * 2]).astype(np.float32)
    run = tartan.allpairs(Likenesses(), photos, tmp_path / "run", quiet=True)
    truth = [0] * 8 + [1] * 8
    found = cluster(run)
    assert found.labels.tolist() == truth
    assert "; these 6 clusters became 2, since the means of some correlate (the chance" in found.reason
    assert "the chance that any two different ones are joined is 1e-06 over 30 tests at most" in found.reason
    assert run.cluster().tolist() == truth
    assert cluster(run, method="average").n_clusters == cluster(run, cut=0.06).n_clusters == 6


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"correlation": "scores"}, "groups is"),
        (replace(RULE, correlation="ncc"), "groups.correlation is 'ncc'; the outputs are scores"),
        (replace(RULE, deviation=0.0), "groups.deviation"),
        (replace(RULE, common=-1.0), "groups.common"),
        (replace(RULE, false_alarm=0.7), "groups.false_alarm is 0.7"),
    ],
)
def test_declarations_are_checked(groups, message, tmp_path) -> None:
    app = Likenesses()
    app.groups = groups
    with pytest.raises(ConfigError, match=message):
        tartan.allpairs(app, take_photos(9, [[0.3] * 3]).astype(np.float32), tmp_path / "run", quiet=True)


def test_a_closer_look_is_taken_where_it_is_declared(tmp_path) -> None:
    photos = take_photos(9, [[0.3] * 10 + [0.2], [0.3] * 11]).astype(np.float32)
    dull = photos.copy()
    dull[10] = take_photos(10, [[0.0]])[0] + 0.3 * photos[10]  # T of the matrix is about 4
    dull[10] /= np.linalg.norm(dull[10])
    app = Likenesses()
    app.groups = replace(RULE, closely=True)
    run = tartan.allpairs(app, dull, tmp_path / "run", quiet=True)
    run.look_closely = None
    assert cluster(run).n_clusters == 3
    run.look_closely = lambda at: (photos[at], photos[at])
    found = cluster(run)
    assert found.labels.tolist() == [0] * 11 + [1] * 11
    assert found.reason.endswith("; 1 item of them that was alone by a closer look at them and at large groups")

    def refuse(at: int) -> None:
        raise ConfigError("it is not trusted")

    run.look_closely = refuse
    found = cluster(run)
    assert (found.n_clusters, found.notes) == (
        3,
        ("the closer look at items that are alone was left out: it is not trusted",),
    )

    for error, said in (ItemError("the file is gone"), "the file is gone"), (ValueError("odd"), "ValueError: odd"):

        def miss_one(at: int, error: Exception = error) -> tuple[np.ndarray, np.ndarray]:
            if at == 2:
                raise error
            return photos[at], photos[at]

        run.look_closely = miss_one
        found = cluster(run)
        assert found.labels.tolist() == [0] * 11 + [1] * 11
        assert found.notes == (f"1 item was not looked at once more: {run.keys[2]}: {said}",)
    plain = tartan.allpairs(Likenesses(), dull, tmp_path / "plain", quiet=True)
    assert plain.look_closely is None
