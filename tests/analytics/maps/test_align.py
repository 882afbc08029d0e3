"""One map on another: the closed form is the least squares, with and without mirror and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from tartan.analytics import align
from tartan.errors import ConfigError

Floats = NDArray[np.float64]


def maps(dimension: int, noise: float, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng(seed)
    source = random.normal(size=(30, dimension))
    turn = np.linalg.qr(random.normal(size=(dimension, dimension)))[0]
    target = 1.7 * source @ turn.T + random.normal(size=dimension) + noise * random.normal(size=source.shape)
    return source, target, random.uniform(0.1, 2.0, 30)


def turned(angles: Floats, dimension: int) -> Floats:
    if dimension == 2:
        (a,) = angles
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    matrix: Floats = Rotation.from_euler("xyz", angles).as_matrix()
    return matrix


def by_levenberg_marquardt(source: Floats, target: Floats, w: Floats, mirror: bool, fixed_scale: bool) -> float:
    """Return the least weighted sum of squares over scale, angles and translation, from several starts."""
    dimension = source.shape[1]
    n_angles = dimension * (dimension - 1) // 2
    mirrored = source * ([1.0, -1.0] if dimension == 2 else [-1.0, -1.0, -1.0]) if mirror else source

    def residuals(p: Floats) -> Floats:
        scale = 1.0 if fixed_scale else p[0]
        moved = scale * mirrored @ turned(p[1 : 1 + n_angles], dimension).T + p[1 + n_angles :]
        rest: Floats = np.sqrt(w)[:, None] * (moved - target)
        return rest.ravel()

    random = np.random.default_rng(1)
    starts = [np.zeros(n_angles), *(random.uniform(-3, 3, n_angles) for _ in range(4))]
    found = [least_squares(residuals, np.concatenate([[1.0], s, np.zeros(dimension)]), method="lm") for s in starts]
    return float(min(2 * f.cost for f in found if fixed_scale or f.x[0] > 0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("reflection", [True, False])
def test_the_closed_form_is_the_least_squares(dimension: int, scale: bool, reflection: bool, seed: int) -> None:
    source, target, w = maps(dimension, 0.3, seed)
    found = align(source, target, w, scale=scale, reflection=reflection)
    mirrors = [False, True] if reflection else [False]
    least = min(by_levenberg_marquardt(source, target, w, mirror, not scale) for mirror in mirrors)
    assert found.error**2 * w.sum() == pytest.approx(least, rel=1e-6)
    assert w @ ((found.apply(source) - target) ** 2).sum(1) == pytest.approx(least, rel=1e-6)
    assert reflection or not found.reflected
    assert scale or found.scale == 1.0
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(dimension), atol=1e-12)
    assert np.linalg.det(found.rotation) == pytest.approx(-1.0 if found.reflected else 1.0)


@pytest.mark.parametrize("dimension", [1, 2, 3, 6])
def test_what_was_moved_is_moved_back(dimension: int) -> None:
    source, target, _ = maps(dimension, 0.0)
    found = align(source, target)
    np.testing.assert_allclose(found.apply(source), target, atol=1e-12)
    assert found.scale == pytest.approx(1.7)
    assert found.error == pytest.approx(0.0, abs=1e-12)


def test_points_that_one_map_does_not_have_are_left_out() -> None:
    source, target, _ = maps(3, 0.2)
    source[4], target[9] = np.nan, np.nan
    known = ~np.isin(np.arange(30), [4, 9])
    found, expected = align(source, target), align(source[known], target[known])
    np.testing.assert_array_equal(found.rotation, expected.rotation)
    assert found.n_points == 28
    assert np.isnan(found.apply(source)[4]).all()


def test_points_in_one_place_have_an_alignment() -> None:
    found = align(np.ones((3, 2)), np.full((3, 2), 4.0))
    np.testing.assert_allclose(found.apply([[1.0, 1.0]]), [[4.0, 4.0]])


@pytest.mark.parametrize(
    ("source", "target", "weights", "message"),
    [
        (np.zeros((3, 2)), np.zeros((3, 3)), None, "cannot be laid"),
        (np.zeros(3), np.zeros(3), None, "cannot be laid"),
        (np.eye(2), np.eye(2), [1, 1, 1], "weights have shape"),
        (np.eye(2), np.eye(2), [1, -1], "point 1"),
        (np.eye(2), np.eye(2), [1, 0], "1 points"),
        (np.full((2, 2), np.inf), np.eye(2), None, "point 0 of the source"),
    ],
)
def test_bad_maps_are_refused(source: Any, target: Any, weights: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        align(source, target, weights)


def test_an_alignment_refuses_points_of_another_dimension() -> None:
    with pytest.raises(ConfigError, match="2 dimensions"):
        align(np.eye(2), np.eye(2)).apply(np.eye(3))


def test_a_line_that_must_not_be_mirrored_is_not() -> None:
    x = np.array([[0.0], [1.0], [5.0]])
    assert align(x, -2 * x).scale == pytest.approx(2)
    found = align(x, -2 * x, reflection=False)
    assert (found.scale, found.reflected) == (0.0, False)
    assert found.error == pytest.approx(np.std(-2 * x))


def test_masked_points_are_left_out() -> None:
    source, target, _ = maps(3, 0.0)
    given = np.ma.array(source)
    given[4] = np.ma.masked
    given.data[4] = 1e3
    found = align(given, target)
    assert found.n_points == 29
    assert found.error < 1e-12
