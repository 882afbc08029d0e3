"""DAPWC on a device against the processor: on NumPy in the place of CuPy, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pwc_data import blobs, with_holes

import tartan.devices
from support.fake_cupy import FakeCupy
from support.gpu import require_gpu
from tartan.analytics import DAPWC, Alone, Monitor, as_dissimilarities
from tartan.analytics.clusters.dapwc.dapwc import DeviceProduct
from tartan.analytics.clusters.dapwc.product import HostProduct
from tartan.devices import Device, open_device
from tartan.devices.cuda import CudaDevice

N = 120
RESIDENT_BYTES, STREAMING_BYTES = 1 << 26, 60_000

#: Everything that a matrix may be stored as, with missing pairs where that type has them.
STORED: dict[str, Callable[[], Any]] = {
    "int16": lambda: blobs(N, 3)[0].astype(np.int16),
    "int16 of the other order": lambda: blobs(N, 3)[0],
    "int16 with missing pairs": lambda: with_holes(blobs(N, 3)[0], 0.2),
    "float32": lambda: (blobs(N, 3)[0] / 32767).astype(np.float32),
    "float64": lambda: blobs(N, 3)[0] / 32767,
}


def check_products(device: Device, stored: str, resident: bool) -> None:
    """Compare the products of a device, which it closes, with those of the processor."""
    D = as_dissimilarities(STORED[stored]())
    product = DeviceProduct(D, device, Alone(), Monitor(), tile_bytes=7000)
    assert product.resident == resident
    columns = np.random.default_rng(0).random((N, 4))
    expected, masses = HostProduct(D, Alone(), Monitor())(columns)
    found, known = product(columns)
    tolerance = 1e-12 if stored == "float64" else 1e-5
    assert found == pytest.approx(expected, rel=tolerance)
    assert (known is None) == (masses is None)
    if known is not None:
        assert known == pytest.approx(masses, rel=tolerance)
    product.close()


def check_fit(stored: str, device: str) -> None:
    """Compare a whole fit on a device with one on the processor."""
    D = STORED[stored]()
    here, there = (DAPWC(3, random_state=0, device=name).fit(D) for name in ("cpu", device))
    assert (there.labels_ == here.labels_).all()
    assert there.hamiltonian_ == pytest.approx(here.hamiltonian_, rel=1e-4)
    assert there.critical_temperature_ == pytest.approx(here.critical_temperature_, rel=1e-4)
    assert there.splits_["temperature"] == pytest.approx(here.splits_["temperature"])


class TestStandIn:
    @pytest.mark.parametrize("memory_bytes", [RESIDENT_BYTES, STREAMING_BYTES])
    @pytest.mark.parametrize("stored", STORED)
    def test_products(self, stored: str, memory_bytes: int) -> None:
        cupy = FakeCupy(memory_bytes=memory_bytes)
        check_products(CudaDevice(cupy=cupy), stored, memory_bytes == RESIDENT_BYTES)
        assert not cupy.misuse

    @pytest.mark.parametrize("stored", ["int16 with missing pairs", "float32"])
    def test_a_whole_fit(self, stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
        cupy = FakeCupy()
        monkeypatch.setattr(tartan.devices, "open_device", lambda _: CudaDevice(cupy=cupy))
        check_fit(stored, "cuda")
        assert not cupy.misuse


def test_a_whole_fit_on_the_simulated_device() -> None:
    check_fit("int16", "sim")


@pytest.mark.gpu
class TestGpu:
    @pytest.fixture(autouse=True)
    def gpu(self) -> None:
        require_gpu()

    @pytest.mark.parametrize("memory_bytes", [RESIDENT_BYTES, STREAMING_BYTES])
    @pytest.mark.parametrize("stored", STORED)
    def test_products(self, stored: str, memory_bytes: int) -> None:
        check_products(open_device("cuda", memory_limit_bytes=memory_bytes), stored, memory_bytes == RESIDENT_BYTES)

    @pytest.mark.parametrize("stored", STORED)
    def test_a_whole_fit(self, stored: str) -> None:
        check_fit(stored, "cuda")
