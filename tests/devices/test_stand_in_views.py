"""What counts as written on the stand-in for CuPy, while another thread copies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from support.fake_cupy import FakeCupy, MisuseError
from tartan.devices.cuda import CudaDevice


def downloaded_beside(device: CudaDevice, items: Any, work: Any) -> list[float]:
    """Download items from another thread, after work on them was issued and before it was waited for."""
    host = np.empty(items.shape, items.dtype)
    with ThreadPoolExecutor(1) as copier:
        device.compute("compare", 1, lambda: (work(items), copier.submit(device.download, items, host).result()))
    return host.tolist()


def test_views_are_read_and_results_given_as_out_are_written() -> None:
    cupy = FakeCupy()
    device = CudaDevice(cupy=cupy)
    items = device.allocate((3,), "float32")
    device.upload(np.array([1, 2, 3], np.float32), items)
    for view in (lambda x: device.xp.reshape(x, (3, 1)), device.xp.ascontiguousarray):
        assert downloaded_beside(device, items, view) == [1, 2, 3]
    assert cupy.misuse == []
    with pytest.raises(MisuseError, match="waited for"):
        downloaded_beside(device, items, lambda x: np.add(x, x, out=x))
