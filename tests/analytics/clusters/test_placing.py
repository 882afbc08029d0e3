"""Items that are alone, placed in large groups by what items of other groups show."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from tartan.analytics import Monitor, as_dissimilarities
from tartan.analytics.clusters.joins import join_alike, sum_groups
from tartan.analytics.clusters.placing import Placed, place_alone
from tartan.base.group_evidence import GroupEvidence

SIDE = 1 << 14
QUIET = Monitor(0)
# Declared: what the most alike items that were ever measured share. The photos below share less.
RULE = GroupEvidence(correlation="scores", deviation=SIDE**-0.5, common=0.03, scatter=0.003)
LABELS = [0] * 10 + [1] * 10 + [2] * 10


def take_photos(seed: int, weak: list[tuple[int, float]], common: float = 0.05) -> np.ndarray:
    """Return patterns of unit norm: ten strong photos of each of three cameras, then ones of (camera, strength)."""
    rng = np.random.default_rng(seed)
    shared, patterns = rng.standard_normal(SIDE), rng.standard_normal((5, SIDE))
    taken = [(camera, 0.3) for camera in range(3) for _ in range(10)] + weak
    rows = [rng.standard_normal(SIDE) + a * (patterns[camera] + common / 0.3 * shared) for camera, a in taken]
    photos = np.array(rows)
    return photos / np.linalg.norm(photos, axis=1, keepdims=True)


def place(photos: np.ndarray, labels: list[int], rule: GroupEvidence = RULE) -> Placed:
    scores = as_dissimilarities(photos @ photos.T)
    return place_alone(scores, scores, np.array(labels), rule, QUIET)


@pytest.mark.slow
def test_limits_are_those_of_items_that_belong_elsewhere() -> None:
    """T, means and spread against a loop over items and groups that knows means, not sums."""
    photos = take_photos(1, [(0, 0.15), (4, 0.15)])
    found = place(photos, [*LABELS, 3, 4])
    assert found.labels.tolist() == [*LABELS, 0, 3]
    assert (found.n_placed, found.n_tests) == (1, 3 * 2 * 3 // 2)
    groups = {of: [at for at in range(30) if LABELS[at] == of] + ([30] if of == 0 else []) for of in range(3)}
    parts = []
    for of, members in groups.items():
        for other in groups.keys() - {of}:
            mean = photos[groups[other]].sum(axis=0)
            parts.append([photos[at] @ mean / np.linalg.norm(mean) * SIDE**0.5 for at in members])
    n = sum(map(len, parts))
    within = np.sqrt(sum(np.var(part) * len(part) for part in parts) / (n - 6))
    level = max(map(np.mean, parts)) - ndtri(RULE.false_alarm / 9) * max(1.0, within * (1 + 1.645 / np.sqrt(2 * n)))
    assert found.level == pytest.approx(level, rel=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_declared_rule_leaves_alone_finds_its_group(seed: int) -> None:
    weak = [(0, 0.11), (1, 0.11), (2, 0.11), (3, 0.3)]
    photos, labels = take_photos(seed, weak), np.array([*LABELS, 3, 4, 5, 6])
    scores = as_dissimilarities(photos @ photos.T)
    joined = join_alike(sum_groups(scores, scores, labels, RULE, QUIET), labels, RULE)
    assert joined.labels.tolist() == labels.tolist()  # as 0.03 in common would explain them
    found = place_alone(scores, scores, joined.labels, RULE, QUIET)
    assert found.labels.tolist() == [*LABELS, 0, 1, 2, 3]  # the strong photo of a fourth camera stays


@pytest.mark.slow
def test_the_stated_rate_holds() -> None:
    """Photos of a fourth camera are placed no more often than stated."""
    rule = GroupEvidence(correlation="scores", deviation=SIDE**-0.5, false_alarm=0.1)
    n_wrong = sum(place(take_photos(seed, [(3, 0.3)]), [*LABELS, 3], rule).n_placed for seed in range(12))
    assert n_wrong <= 4  # of 12 at a chance of 0.1: 99.6 %


def test_too_little_places_nothing() -> None:
    photos = take_photos(5, [(0, 0.3)])
    for labels in ([0] * 30 + [1], [at // 4 for at in range(30)] + [8], [-1] * 31, [-1] * 30 + [0]):
        found = place(photos, labels)
        assert (found.labels.tolist(), found.n_placed) == (labels, 0)
    few = [0] * 5 + [-1] * 5 + [1] * 5 + [-1] * 15 + [2]  # ten comparisons say no spread
    assert place(photos, few).labels.tolist() == few
    kept = [-1] + [0] * 9 + [1] * 10 + [2] * 10 + [3]
    assert place(photos, kept).labels.tolist() == [*kept[:-1], 0]
