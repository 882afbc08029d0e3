"""Products and solutions in place, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan.blocks.applications.lu import solve_unit_lower, solve_upper, subtract_product
from tartan.errors import InternalError

RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "f8") -> Any:
    return RNG.uniform(-1, 1, shape).astype(dtype)


def factors_of(n: int, dtype: str = "f8") -> Any:
    return numbers(n, n, dtype=dtype) + np.diag(np.full(n, n + 1, dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("m", "k", "n"), [(5, 3, 4), (1, 7, 2), (6, 1, 1), (3, 0, 2), (0, 2, 3), (64, 65, 63)])
def test_products_and_solutions_equal_those_of_numpy(dtype: str, m: int, k: int, n: int) -> None:
    within: Any = {"rtol": 0, "atol": 1e-4 if dtype == "f4" else 1e-12}
    left, right, own = (numbers(*shape, dtype=dtype) for shape in ((m, k), (k, n), (m, n)))
    expected = own - left @ right
    subtract_product(left, right, own)
    np.testing.assert_allclose(own, expected, **within)

    factors, own = factors_of(n, dtype), numbers(m, n, dtype=dtype)
    found = own.copy()
    solve_upper(factors, found)
    np.testing.assert_allclose(found @ np.triu(factors), own, **within)

    factors, own = factors_of(m, dtype) / (m + 1), numbers(m, n, dtype=dtype) / 2 ** min(m, 60)
    found = own.copy()
    solve_unit_lower(factors, found)
    np.testing.assert_allclose((np.tril(factors, -1) + np.eye(m, dtype=dtype)) @ found, own, **within)


def frozen() -> Any:
    found = numbers(3, 3)
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda: subtract_product(numbers(3, 2), numbers(3, 3), numbers(3, 3)),
        lambda: subtract_product(numbers(3, 3), numbers(3, 3, dtype="f4"), numbers(3, 3)),
        lambda: subtract_product(numbers(3, 3).T, numbers(3, 3), numbers(3, 3)),
        lambda: solve_upper(numbers(3, 3), frozen()),
        lambda: solve_upper(numbers(2, 2), numbers(2, 3)),
        lambda: solve_unit_lower(numbers(2, 2), numbers(3, 2)),
        lambda: solve_unit_lower(numbers(3, 3).astype(int), numbers(3, 2).astype(int)),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], None]) -> None:
    with pytest.raises(InternalError, match="a matrix"):
        call()
