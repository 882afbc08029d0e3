"""Arrays at the edge of the native module: none is read in another order than its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan import _native


def columns_first(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.ones(shape, dtype, order="F")


def smacof_place() -> None:
    _native.SmacofPass(4, 2, True).place(columns_first(4, 2))


def smacof_finish() -> None:
    _native.SmacofPass(4, 2, True).finish(columns_first(4, 2))


def joining() -> None:
    _native.neighbor_joining(columns_first(4, 4))


def sum_of_chunks() -> None:
    _native.sponge_sum(np.zeros(3, np.uint32), columns_first(3, 2), 1)


def every_second() -> None:
    _native.SmacofPass(4, 2, True).place(np.ones((8, 2))[::2])


def not_aligned() -> None:
    _native.SmacofPass(4, 2, True).place(np.zeros(65, np.uint8)[1:].view(np.float64).reshape(4, 2))


@pytest.mark.parametrize(
    "call", [smacof_place, smacof_finish, joining, sum_of_chunks, every_second, not_aligned], ids=lambda f: f.__name__
)
def test_other_orders_are_refused(call: Callable[[], None]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"contiguous in the order of its rows|aligned"):
        call()
