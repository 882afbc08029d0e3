"""The search for better groups: where it begins."""

from __future__ import annotations

import numpy as np

from tartan.analytics import Monitor
from tartan.analytics.clusters.search import Measured, fill_empty


def test_missing_clusters_are_cut_from_the_costliest() -> None:
    """Three groups, two of them in one cluster and a fourth cluster that is empty."""
    at = np.repeat([0.0, 10.0, 30.0], 6) + np.tile(np.arange(6) * 0.1, 3)
    D = Measured(np.abs(at[:, None] - at))
    labels = fill_empty(D, np.repeat([0, 0, 2], 6), 3, Monitor(0))
    assert {tuple(np.unique(labels[start : start + 6])) for start in (0, 6, 12)} == {(0,), (1,), (2,)}
    assert set(fill_empty(D, labels, 5, Monitor(0))) == set(range(5))
    assert fill_empty(D, np.full(18, 7), 1, Monitor(0)).tolist() == [0] * 18
