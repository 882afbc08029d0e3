"""A formula of similarities that keeps maps from being flat."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.analytics import as_dissimilarities


def scores(strengths: list[float], size: int = 6) -> np.ndarray:
    """Groups of unlike strength above noise around 0."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(len(strengths)), size)
    S = np.where(group[:, None] == group, np.array(strengths)[group][:, None], 0.0) + rng.normal(
        0, 0.001, (len(group),) * 2
    )
    return (S + S.T) / 2


def ratio(S: np.ndarray, formula: str) -> float:
    """Distance of an item of the first, weak group to its nearest one over that to a typical other item."""
    D = as_dissimilarities(S, distance=formula).values(slice(0, 1), slice(0, len(S)))[0]
    return float(np.sort(D)[1] / np.median(D[6:]))


def test_far_scores_of_unlike_groups_are_spread() -> None:
    S = scores([0.01, 0.02, 0.02, 0.09])
    assert ratio(S, "1-s") > 0.98
    assert ratio(S, "spread") < 0.35
    D = as_dissimilarities(S, distance="spread")
    assert D.conversion is not None
    assert D.conversion.startswith("0.005")
    again = as_dissimilarities(S, distance=D.conversion)
    np.testing.assert_array_equal(D.block(0, 24), again.block(0, 24))


@pytest.mark.parametrize("S", [scores([0.09, 0.09, 0.09]), np.eye(4), np.full((3, 3), 0.5), np.ones((1, 1))])
def test_what_spreads_already_or_cannot_stays(S: np.ndarray) -> None:
    assert as_dissimilarities(S, distance="spread").conversion == "max-s"
