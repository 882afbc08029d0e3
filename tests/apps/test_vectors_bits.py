"""Jaccard and Hamming distances of packed bits: those that SciPy has of booleans, and questions where bits may be values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

import tartan
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError

WIDTHS = (1, 8, 60, 64, 166, 2048)


def booleans(n: int, d: int, density: float = 0.2, seed: int = 1) -> np.ndarray:
    """Return rows of bits, of which two are empty."""
    rows = np.random.default_rng(seed).random((n, d)) < density
    rows[[0, n // 2]] = False
    return rows


def pack(rows: np.ndarray, dtype: str = "u1", order: Any = "big") -> np.ndarray:
    """Return packed rows, zeros behind the end."""
    packed = np.packbits(rows, axis=1, bitorder=order)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % np.dtype(dtype).itemsize))).view(dtype)


def matrix(metric: str, rows: np.ndarray, **parameters: Any) -> np.ndarray:
    scores: np.ndarray = tartan.allpairs(Vectors(metric=metric, **parameters), rows, workers=1, quiet=True).matrix()
    return scores


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("d", WIDTHS)
def test_packed_bits_have_the_distances_of_booleans(d: int, dtype: str) -> None:
    rows = booleans(20, d)
    packed = pack(rows, dtype)
    n_bits = packed.shape[1] * packed.itemsize * 8
    np.testing.assert_allclose(
        matrix("jaccard", packed, bits="packed"), squareform(pdist(rows, "jaccard")), atol=1e-7
    )
    hamming = squareform(pdist(rows, "hamming")) * d / n_bits
    np.testing.assert_allclose(matrix("hamming", packed, bits="packed"), hamming, atol=1e-7)


def test_the_order_of_bits_does_not_matter() -> None:
    rows = booleans(20, 100)
    np.testing.assert_array_equal(
        matrix("jaccard", pack(rows), bits="packed"), matrix("jaccard", pack(rows, order="little"), bits="packed")
    )


def test_bytes_that_may_be_bits_are_asked_about() -> None:
    packed = pack(booleans(20, 100))
    with pytest.raises(ConfigError, match=r"holds \d+, which may be .* --set bits=packed .* --set bits=values"):
        matrix("jaccard", packed)
    np.testing.assert_array_equal(matrix("jaccard", packed, bits="values"), matrix("jaccard", packed != 0))


@pytest.mark.parametrize("dtype", ["u1", "i1", "i8", "f4", "?"])
def test_nothing_is_asked_where_no_byte_can_be_bits(dtype: str) -> None:
    rows = booleans(20, 100)
    expected = squareform(pdist(rows, "jaccard"))
    np.testing.assert_allclose(matrix("jaccard", rows.astype(dtype)), expected, atol=1e-7)


def test_booleans_are_bits_in_any_case() -> None:
    rows = booleans(20, 100)
    for metric in ("jaccard", "hamming"):
        np.testing.assert_array_equal(matrix(metric, rows, bits="packed"), matrix(metric, rows))


@pytest.mark.parametrize("dtype", ["i1", "i8", "f4"])
def test_what_is_not_packed_is_refused(dtype: str) -> None:
    with pytest.raises(ConfigError, match=r"bits=packed is for rows of uint8 .* these are .*; leave bits out"):
        matrix("jaccard", booleans(20, 100).astype(dtype), bits="packed")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "cosine", "bits": "packed"}, "bits=packed is for jaccard and hamming, not cosine"),
        ({"metric": "jaccard", "bits": "raw"}, "bits: 'raw' is unknown; choose from packed, values"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Vectors(**parameters)
