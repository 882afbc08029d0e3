"""Products by slices on the stand-in for CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.fake_cupy import FakeCupy
from tartan.base.products import multiply_slices
from tartan.devices.cuda import CudaDevice


def loaded(device: CudaDevice, host: np.ndarray) -> Any:
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("m", "k", "d", "n_slices"), [(1, 1, 1, 1), (3, 2, 100, 4), (2, 5, 64, 8), (4, 3, 70, 1)])
def test_slices_add_up_to_the_product(dtype: str, m: int, k: int, d: int, n_slices: int) -> None:
    cupy = FakeCupy()
    device, rng = CudaDevice(cupy=cupy), np.random.default_rng(d)
    a, b = rng.normal(size=(m, d)).astype(dtype), rng.normal(size=(k, d)).astype(dtype)
    left, right = loaded(device, a), loaded(device, b)
    found = device.compute("compare", 1, lambda: multiply_slices(left, right, device.xp, n_slices=n_slices))
    host = np.empty(found.shape, found.dtype)
    device.download(found, host)
    length = min(d, -(-d // (8 * n_slices)) * 8)
    assert host.shape == (-(-d // length), m, k)
    for at, part in enumerate(host):
        columns = slice(at * length, (at + 1) * length)
        exact = a[:, columns].astype(np.float64) @ b[:, columns].astype(np.float64).T
        np.testing.assert_allclose(part, exact, atol=1e-5)
    assert cupy.misuse == []


def test_rows_with_gaps_and_unlike_types_are_refused() -> None:
    device = CudaDevice(cupy=FakeCupy())
    wide = loaded(device, np.ones((3, 10), np.float32))
    half = loaded(device, np.ones((3, 10), np.float16))
    for left, right in ((wide[:, :5], wide[:, :5]), (wide, half)):
        with pytest.raises(ValueError, match="products need rows"):
            device.compute("compare", 1, lambda left=left, right=right: multiply_slices(left, right, device.xp))
