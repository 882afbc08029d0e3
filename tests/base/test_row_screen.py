"""Axes whose coordinates decide most pairs: chosen where they pay, given up where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from tartan import _native
from tartan.base.row_screen import RowScreen, choose_axes

N, D = 1600, 128


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def gaussian(n: int = N, seed: int = 1) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((n, D)))


def of_falling_spectrum(n: int = N, seed: int = 1, turned: int = 3) -> np.ndarray:
    """Return rows most of whose length lies on a few of some hidden axes."""
    axes = np.linalg.qr(np.random.default_rng(turned).standard_normal((D, D)))[0]
    return unit(np.random.default_rng(seed).standard_normal((n, D)) * 0.9 ** np.arange(D) @ axes)


def test_axes_are_few_where_the_spectrum_falls() -> None:
    axes = choose_axes(of_falling_spectrum(), "cosine", 0.1, largest=False)
    assert axes is not None
    assert len(axes) in (32, 64)
    np.testing.assert_allclose(axes @ axes.T, np.eye(len(axes)), atol=1e-12)
    assert np.square(of_falling_spectrum(seed=2) @ axes.T).sum(axis=1).mean() > 0.9


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "inner"])
def test_axes_are_found_for_each_metric(metric: str) -> None:
    limit = {"euclidean": 0.2**0.5, "sqeuclidean": 0.2, "inner": 0.9}[metric]
    same = choose_axes(of_falling_spectrum(), "cosine", 0.1, largest=False)
    found = choose_axes(of_falling_spectrum(), metric, limit, largest=metric == "inner")
    np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize(
    ("rows", "metric", "limit", "largest"),
    [
        (gaussian(), "cosine", 0.9, False),
        (of_falling_spectrum(), "cosine", 1.5, False),  # most pairs are kept
        (of_falling_spectrum(), "cosine", 0.1, True),
        (of_falling_spectrum(), "inner", 0.1, False),
        (np.where(np.arange(D) == 7, np.nan, of_falling_spectrum()), "cosine", 0.1, False),
        (of_falling_spectrum().astype(np.float64) * 1e154, "inner", 0.9, True),
    ],
    ids=["gaussian", "a wide limit", "far pairs", "small products", "NaN", "huge rows"],
)
def test_there_are_no_axes_where_they_do_not_pay(rows: np.ndarray, metric: str, limit: float, largest: bool) -> None:
    assert choose_axes(rows, metric, limit, largest=largest) is None


def below(screen: RowScreen, rows: np.ndarray, start: int, limit: float) -> list[tuple[int, int]]:
    """Return the pairs of one tile of rows and themselves that are kept."""
    corner = start, start
    use = screen.of_tile(corner, rows, rows, "cosine")
    found = _native.rows_beyond(rows, rows, None, corner, False, limit, metric="cosine", screen=use)
    assert found is not None
    return sorted(zip(*(places.tolist() for places in found[0]), strict=True))


@pytest.mark.skipif(not _native.HAS_PRODUCTS, reason="this processor has no AVX2, or is not an x86")
def test_rows_unlike_the_sample_are_copied_whole_from_then_on() -> None:
    screen, tiles = RowScreen(128 * D, 1 << 30, limit=0.1), range(0, 11 * 1024, 1024)
    same = [of_falling_spectrum(1024, start + 1) for start in tiles[:4]]
    other = [of_falling_spectrum(1024, start + 1, turned=4) for start in tiles[4:]]
    for start, rows in zip(tiles, [*same, *other], strict=True):
        expected = _native.rows_beyond(rows, rows, None, (start, start), False, 0.1, metric="cosine")
        assert expected is not None
        assert below(screen, rows, start, 0.1) == sorted(zip(*map(np.ndarray.tolist, expected[0]), strict=True))
    said = screen.decided()
    assert said["by_coordinates"] > 1024 * 1023 // 2
    assert said["unscreened"] > 0
    after = [screen.of_tile((0, 0), other[0], other[0], "cosine").n_axes for _ in range(2)]
    assert after == [0, 0]
    assert said["by_coordinates"] + said["by_bound"] + said["exactly"] + said["unscreened"] >= 11 * 1024 * 1023 // 2


def test_few_rows_and_the_best_have_no_axes() -> None:
    for screen in (RowScreen(N, 1 << 30, limit=0.1), RowScreen(1 << 20, 1 << 30)):
        rows = of_falling_spectrum()
        for start in range(0, 8 * N, N):
            assert screen.of_tile((start, start), rows, rows, "cosine").n_axes == 0
    assert RowScreen(N, 1 << 30).decided() == {}


def test_axes_that_are_wrong_are_refused() -> None:
    for axes in (np.eye(64), np.ones((2, 64)), np.zeros((0, 64)), np.full((2, 64), np.nan)):
        with pytest.raises(ValueError, match="orthonormal"):
            _native.Screen(100, 64, 1 << 20, axes=axes)
