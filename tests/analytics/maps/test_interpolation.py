"""New points among fixed ones: leaps end where plain steps of majorisation end, in fewer passes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from tartan.analytics import Monitor, embed
from tartan.analytics.maps.interpolation import Interpolation, nearest, row_stress
from tartan.analytics.maps.smacof import Floats, Rule

RNG = np.random.default_rng(4)
OLD = RNG.normal(size=(80, 3))
# Distances of ten dimensions: no place in three fits them.
DELTA = cdist(RNG.normal(size=(25, 10)), np.column_stack([OLD, RNG.normal(size=(80, 7))]))


def plain(delta: Floats, x: Floats, n_steps: int) -> Floats:
    """Return where steps of majorisation lead: the mean over old points of the place that each would have it at."""
    for _ in range(n_steps):
        ahead = x[:, None] - OLD
        x = (OLD + (delta / np.linalg.norm(ahead, axis=2))[:, :, None] * ahead).mean(axis=1)
    return x


def error(delta: Floats, x: Floats) -> Floats:
    return np.square(delta - cdist(x, OLD)).sum(axis=1) / np.square(delta).sum(axis=1)


class Counting(Monitor):
    """Counts the iterations, each of which makes two steps and a leap."""

    n_checks = 0

    def check(self) -> None:
        self.n_checks += 1


@pytest.mark.slow
def test_the_end_is_that_of_plain_steps() -> None:
    begun = Interpolation(OLD, Rule(), max_iter=0).place(DELTA, Monitor())
    monitor = Counting()
    found = Interpolation(OLD, Rule()).place(DELTA, monitor)
    expected = plain(DELTA, begun, 3000)
    assert (error(DELTA, found) <= error(DELTA, expected) + 1e-9).all()
    np.testing.assert_allclose(row_stress(OLD, found, DELTA, 0.0), error(DELTA, found), rtol=1e-9)
    # As many plain steps do not get there.
    as_many = plain(DELTA, begun, 2 * monitor.n_checks + 1)
    assert (error(DELTA, as_many) > error(DELTA, found) + 1e-9).any()


def test_calls_of_few_pairs_give_the_same() -> None:
    found = Interpolation(OLD, Rule(), pairs_per_call=1).place(DELTA, Monitor())
    np.testing.assert_array_equal(found, Interpolation(OLD, Rule()).place(DELTA, Monitor()))


def test_the_nearest_are_the_first_of_equal_ones() -> None:
    values = RNG.integers(0, 4, size=(200, 17)).astype(float)
    values[RNG.random(values.shape) < 0.5] = np.inf
    for k in (1, 4, 16, 17):
        expected = np.argsort(values, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(nearest(values, k), expected)


def test_rows_in_any_order_of_memory_are_the_same() -> None:
    at = OLD[:25] + 0.1
    np.testing.assert_array_equal(row_stress(OLD, at, np.asfortranarray(DELTA), 0.0), row_stress(OLD, at, DELTA, 0.0))
    place = Interpolation(OLD, Rule()).place
    np.testing.assert_array_equal(place(np.asfortranarray(DELTA), Monitor()), place(DELTA, Monitor()))


def test_stress_of_rows_without_anything() -> None:
    delta, at = DELTA[:3].copy(), OLD[:3].copy()
    delta[0] = np.nan
    at[1] = np.nan
    found = row_stress(OLD, at, delta, 0.0)
    assert np.isnan(found).tolist() == [True, True, False]
    assert row_stress(OLD[:1], OLD[:1], np.zeros((1, 1)), 0.0).tolist() == [0.0]


def test_new_points_leave_a_flat_map() -> None:
    flat = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    found = Interpolation(flat, Rule()).place(np.array([[4.0, 5.0], [2.0, 1.0]]), Monitor())
    np.testing.assert_allclose(cdist(found, flat), [[4, 5], [2, 1]], atol=1e-3)


def test_new_points_on_a_line_get_past_old_ones() -> None:
    line = np.array([[0.0], [3.0], [7.0]])
    found = Interpolation(line, Rule()).place(np.abs(np.array([[-50.0], [1.0], [4.0], [90.0]]) - line.T), Monitor())
    np.testing.assert_allclose(found.ravel(), [-50.0, 1.0, 4.0, 90.0], atol=1e-3)


@pytest.mark.parametrize("kind", ["float64", "float32", "int16", "missing", "int16 missing"])
def test_how_badly_each_item_of_a_map_fits(kind: str) -> None:
    D = cdist(OLD[:30], OLD[:30])
    if "missing" in kind:
        D[3, 7] = D[7, 3] = D[4, 1] = D[1, 4] = np.nan
    given = (
        D if kind == "missing" else D.astype(kind) if "int16" not in kind else np.rint(np.nan_to_num(D, nan=-1) * 3e3)
    )
    if "int16" in kind:
        given = np.where(np.isnan(D), -1, given).astype(np.int16)
        D = np.where(given < 0, np.nan, given / 32767)
    found = embed(given, "smacof", 2, missing="nan" if kind == "missing" else None, random_state=0)
    apart = cdist(found.points, found.points)
    np.fill_diagonal(D, np.nan)
    expected = np.nansum(np.square(D - apart), axis=1) / np.nansum(np.square(D), axis=1)
    np.testing.assert_allclose(found.item_stress, expected, rtol=1e-5)
