"""The kernel that sorts numbers in memory, by every path, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tartan import _native

DTYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")


def _paths() -> list[str]:
    """Return the paths that this machine can take."""
    paths = []
    for path in ("auto", "avx512", "avx2", "radix"):
        try:
            _native.sort_keys(np.zeros(1, np.int64), path, 1)
        except ValueError:
            continue
        paths.append(path)
    return paths


def _numbers(dtype: str, n: int) -> NDArray[Any]:
    rng = np.random.default_rng(n)
    bits = rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8)
    numbers = bits.view(dtype)
    return numbers if numbers.dtype.kind != "f" else np.nan_to_num(numbers)


@pytest.mark.parametrize("path", _paths())
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_sort_like_numpy(dtype: str, path: str) -> None:
    for n, threads in ((0, 1), (1, 1), (1000, 1), (100_000, 2)):
        numbers = _numbers(dtype, n)
        expected = np.sort(numbers)
        _native.sort_keys(numbers, path, threads)
        np.testing.assert_array_equal(numbers, expected)


def test_nans_of_both_signs_come_last_and_keep_their_bits() -> None:
    numbers = np.array([0.0, np.nan, -0.0, -np.nan, np.inf, -np.inf])
    bits = sorted(numbers[np.isnan(numbers)].view(np.uint64).tolist())
    _native.sort_keys(numbers, "auto", 1)
    np.testing.assert_array_equal(numbers[:4], [-np.inf, -0.0, 0.0, np.inf])
    assert np.signbit(numbers[1])
    assert not np.signbit(numbers[2])
    assert sorted(numbers[4:].view(np.uint64).tolist()) == bits


def test_other_input_is_refused() -> None:
    with pytest.raises(TypeError, match="4 or 8 bytes"):
        _native.sort_keys(np.zeros(3, np.int16), "auto", 1)
    with pytest.raises(ValueError, match="'radix'"):
        _native.sort_keys(np.zeros(3), "quick", 1)
