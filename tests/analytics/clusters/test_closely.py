"""Items that are alone, placed in large groups by a closer look than that of the matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtri

from tartan.analytics import Monitor, as_dissimilarities
from tartan.analytics.clusters.closely import place_closely
from tartan.analytics.clusters.placing import Placed
from tartan.base.group_evidence import GroupEvidence

SIDE = 1 << 14
QUIET = Monitor(0)
RULE = GroupEvidence(correlation="scores", deviation=SIDE**-0.5)
LABELS = [0] * 10 + [1] * 10 + [2] * 10
Patterns = tuple[np.ndarray, np.ndarray]


def take_photos(seed: int, weak: list[tuple[int, float]], common: float = 0.05) -> np.ndarray:
    """Return patterns of unit norm: ten strong photos of each of three cameras, then ones of (camera, strength)."""
    rng = np.random.default_rng(seed)
    shared, patterns = rng.standard_normal(SIDE), rng.standard_normal((5, SIDE))
    taken = [(camera, 0.3) for camera in range(3) for _ in range(10)] + weak
    rows = [rng.standard_normal(SIDE) + a * (patterns[camera] + common / 0.3 * shared) for camera, a in taken]
    photos = np.array(rows)
    photos /= np.linalg.norm(photos, axis=1, keepdims=True)
    return photos


def place(
    photos: np.ndarray,
    labels: list[int],
    look: Callable[[int], Patterns | None] | None = None,
    rule: GroupEvidence = RULE,
    hints: np.ndarray | None = None,
) -> Placed:
    scores = as_dissimilarities(photos @ photos.T if hints is None else hints)
    return place_closely(scores, scores, np.array(labels), look or (lambda at: (photos[at], photos[at])), rule, QUIET)


@pytest.mark.slow
def test_limits_are_those_of_items_that_belong_elsewhere() -> None:
    """T, slopes and spread against a loop over items and groups; the weakest photo is half as clear."""
    photos = take_photos(1, [(0, 0.15), (4, 0.15)])
    clarity = np.array([2.0, 3.0] * 15 + [1.0, 1.0])
    found = place(photos, [*LABELS, 3, 4], lambda at: (photos[at] * clarity[at], photos[at]))
    assert found.labels.tolist() == [*LABELS, 0, 3]
    assert (found.n_placed, found.n_tests) == (1, 3 * 2 * 3 // 2)
    slopes, rests = [], []
    for of in range(3):
        for other in {0, 1, 2} - {of}:
            mean = photos[:30][np.equal(LABELS, other)].sum(axis=0)
            members = np.flatnonzero(np.equal(LABELS, of))
            t = np.array([photos[at] @ mean / np.linalg.norm(mean) * SIDE**0.5 for at in members])
            slopes.append(t.sum() / clarity[members].sum())
            rests += (t - slopes[-1] * clarity[members]).tolist()
    spread = max(1.0, np.sqrt(np.square(rests).sum() / 54) * (1 + 1.645 / np.sqrt(120)))
    assert found.level == pytest.approx(max(slopes) * 2.5 - ndtri(RULE.false_alarm / 9) * spread, rel=1e-3)


@pytest.mark.slow
def test_a_look_shows_what_the_matrix_does_not() -> None:
    weak = [(0, 0.15), (1, 0.15), (3, 0.3)]
    photos = take_photos(2, weak)
    dull = photos @ photos.T
    dull[30:] *= 0.5
    dull[:, 30:] *= 0.5
    labels = [*LABELS, 3, 4, 5]
    assert place(photos, labels, hints=dull).labels.tolist() == [*LABELS, 0, 1, 3]
    looked = []

    def look(at: int) -> Patterns:
        looked.append(at)
        return photos[at], photos[at]

    dull[31] = dull[:, 31] = 0  # not worth a look
    assert place(photos, labels, look, hints=dull).labels.tolist() == [*LABELS, 0, 3, 4]
    assert 31 not in looked


@pytest.mark.slow
def test_the_stated_rate_holds() -> None:
    """Photos of a fourth camera are placed no more often than stated."""
    rule = GroupEvidence(correlation="scores", deviation=SIDE**-0.5, false_alarm=0.1)
    photos = (take_photos(seed, [(3, 0.3)], common=0.2) for seed in range(12))
    assert sum(place(some, [*LABELS, 3], rule=rule).n_placed for some in photos) <= 4  # of 12 at 0.1: 99.6 %


@pytest.mark.slow
def test_items_without_patterns_stay() -> None:
    photos = take_photos(3, [(0, 0.3), (1, 0.3)])
    labels = [*LABELS, 3, 4]
    partly = place(photos, labels, lambda at: None if at in (0, 30) else (photos[at], photos[at]))
    assert partly.labels.tolist() == [*LABELS, 3, 1]
    for look in (lambda at: None, lambda at: None if at < 10 else (photos[at], photos[at])):
        assert place(photos, labels, look).labels.tolist() == labels


@pytest.mark.slow
def test_too_little_places_nothing() -> None:
    photos = take_photos(5, [(0, 0.3)])
    for labels in ([0] * 30 + [1], [at // 4 for at in range(30)] + [8], [-1] * 31, [-1] * 30 + [0]):
        found = place(photos, labels)
        assert (found.labels.tolist(), found.n_placed) == (labels, 0)
    few = [0] * 5 + [-1] * 5 + [1] * 5 + [-1] * 15 + [2]  # ten comparisons say no spread
    assert place(photos, few).labels.tolist() == few
