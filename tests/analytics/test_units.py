"""No answer depends on the unit of the dissimilarities: metres, nanometres or light years, squared or not.

Units are powers of two, so that a right implementation gives the same answer to the last bits; maps and trees come back
in the unit of their input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from tartan.analytics import (
    DAMDS,
    DAPWC,
    LMMDS,
    cluster,
    linkage,
    minimum_spanning_tree,
    neighbor_joining,
    neighbors,
    outliers,
    upgma,
)

UNITS = [2.0**power for power in (-249, -100, -60, -30, 30, 66, 100, 245)]  # the largest of them is near 1e75


def blobs() -> np.ndarray:
    """Return distances of three groups of twelve points and one far point."""
    rng = np.random.default_rng(7)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    points = np.vstack([*(centre + rng.normal(scale=0.4, size=(12, 2)) for centre in centres), [[9.0, 9.0]]])
    return cdist(points, points)


D = blobs()


def _labels(labels: Any) -> np.ndarray:
    return np.asarray(labels)


PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cluster": lambda d: _labels(cluster(d).labels),
    **{
        f"cluster {method} 3": lambda d, method=method: _labels(cluster(d, 3, method=method).labels)
        for method in ("pwc", "average", "complete", "single", "weighted")
    },
    "hdbscan": lambda d: _labels(cluster(d, method="hdbscan").labels),
    "DAPWC": lambda d: DAPWC(3, random_state=0).fit(d).labels_,
    "outliers": lambda d: np.asarray(outliers(d).indices),
    "neighbors": lambda d: np.asarray(neighbors(d, k=3)[0]),
}
IN_UNITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{
        f"linkage {method}": lambda d, method=method: linkage(d, method)[:, 2]
        for method in ("average", "complete", "single")
    },
    "DAMDS": lambda d: cdist(*[DAMDS(2, random_state=0).fit(d).embedding_] * 2),
    "DAMDS float32": lambda d: cdist(*[DAMDS(2, random_state=0, precision="float32").fit(d).embedding_] * 2),
    "LMMDS": lambda d: cdist(*[LMMDS(2, random_state=0).fit(d).embedding_] * 2),
    **{build.__name__: lambda d, build=build: np.asarray(build(d).lengths)[:-1] for build in (neighbor_joining, upgma)},
    "spanning tree": lambda d: np.asarray(minimum_spanning_tree(d).scores, float),
}
STRESS: dict[str, Callable[[np.ndarray], float]] = {
    "DAMDS": lambda d: DAMDS(2, random_state=0).fit(d).stress_,
    "DAMDS float32": lambda d: DAMDS(2, random_state=0, precision="float32").fit(d).stress_,
}


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("what", PLAIN)
def test_labels_do_not_depend_on_the_unit(what: str, unit: float) -> None:
    np.testing.assert_array_equal(PLAIN[what](D * unit), PLAIN[what](D))


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("what", IN_UNITS)
def test_lengths_are_in_the_unit(what: str, unit: float) -> None:
    found, expected = IN_UNITS[what](D * unit) / unit, IN_UNITS[what](D)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("what", STRESS)
def test_stress_has_no_unit(what: str, unit: float) -> None:
    assert STRESS[what](D * unit) == pytest.approx(STRESS[what](D), rel=1e-4)
