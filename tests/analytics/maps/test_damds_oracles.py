"""Numbers of other programs on the same data from the same start.

The annealed stresses come from a reference that counts the diagonal and solves with the exact matrix of weights; plain
SMACOF from scikit-learn, which does neither.
"""

from __future__ import annotations

from typing import Any

import mds_problems as problems
import numpy as np
import pytest

from tartan.analytics import DAMDS


def fitted(n: int, D: Any = None, **parameters: Any) -> DAMDS:
    D = problems.as_int16(problems.clusters(n)) if D is None else D
    return DAMDS(**{"accelerate": "none", **parameters}).fit(D, init=problems.start(n))


def counted(mds: DAMDS, D: Any, missing: Any = False) -> float:
    return problems.with_diagonal(mds.stress_, D, missing)


def test_annealed_unit_weights() -> None:
    mds = fitted(500)
    assert (len(mds.temperatures_) - 1, mds.n_iter_) == (73, 352)
    assert counted(mds, problems.as_int16(problems.clusters(500))) == pytest.approx(0.0077521, abs=3e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "loops", "steps", "stress"), [(1000, 74, 330, 0.0075015), (2000, 76, 334, 0.0077244)])
def test_annealed_larger(n: int, loops: int, steps: int, stress: float) -> None:
    mds = fitted(n)
    assert (len(mds.temperatures_) - 1, mds.n_iter_) == (loops, steps)
    assert counted(mds, problems.as_int16(problems.clusters(n))) == pytest.approx(stress, rel=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "steps", "stress"), [(1000, 198, 0.0075256), (2000, 154, 0.0077507)])
def test_plain_smacof_is_that_of_scikit_learn(n: int, steps: int, stress: float) -> None:
    mds = fitted(n, annealing=False)
    assert mds.n_iter_ == steps
    assert mds.stress_ == pytest.approx(stress, abs=6e-8)


@pytest.mark.slow
def test_weights() -> None:
    weights, _ = problems.weights_and_missing()
    mds = fitted(500, weights=weights)
    assert len(mds.temperatures_) - 1 == 73
    assert mds.n_iter_ == pytest.approx(309, abs=6)
    assert counted(mds, problems.as_int16(problems.clusters(500))) == pytest.approx(0.0038472, abs=5e-7)


@pytest.mark.slow
def test_missing_pairs() -> None:
    _, missing = problems.weights_and_missing()
    assert missing.sum() == 24852
    D = problems.as_int16(problems.clusters(500))
    D[missing] = -1
    mds = fitted(500, D)
    assert mds.n_iter_ == pytest.approx(357, abs=8)
    assert counted(mds, D, missing) == pytest.approx(0.0077384, abs=5e-7)


@pytest.mark.slow
def test_a_power_of_the_dissimilarities() -> None:
    D = problems.as_int16(problems.clusters(500))
    mds = fitted(500, D, distance_transform=0.5)
    assert (len(mds.temperatures_) - 1, mds.n_iter_) == (43, 282)
    assert counted(mds, np.sqrt(D.astype(float))) == pytest.approx(0.0342263, rel=1e-3)


@pytest.mark.slow
def test_sammon() -> None:
    D = problems.as_int16(problems.clusters(500))
    mds = fitted(500, D, sammon=True)
    values = D / 32767
    squares, smallest = (values**2).sum(), values[values > 0].min()
    counted_too = (mds.stress_ * squares + 500 * smallest) / (squares + 500 * smallest**2)
    assert len(mds.temperatures_) - 1 == 73
    # 0.0218954 with AVX-512, 0.0219157 with AVX2, whose sums are rounded elsewhere: two minima that are as good.
    assert counted_too == pytest.approx(0.0218954, abs=3e-5)
