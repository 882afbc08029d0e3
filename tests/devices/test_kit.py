"""The device kit over the devices that need no hardware."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fake_cupy import FakeCupy
from tartan.devices.cpu import CpuDevice
from tartan.devices.cuda import CudaDevice
from tartan.devices.protocol import Device
from tartan.devices.sim import SimDevice, SimOptions
from tartan.testing.device_kit import DeviceKit


class TestCpu(DeviceKit):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        device = CpuDevice()
        yield device
        device.close()


class TestSim(DeviceKit):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        device = SimDevice(SimOptions(memory_bytes=2**26))
        yield device
        device.close()


class TestCudaOverFakeCupy(DeviceKit):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        cupy = FakeCupy()
        device = CudaDevice(0, cupy=cupy)
        yield device
        device.close()
        assert cupy.misuse == []


class TestCudaWithMemoryLimit(DeviceKit):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        cupy = FakeCupy(n_devices=2)
        device = CudaDevice(1, cupy=cupy, memory_limit_bytes=2**22)
        yield device
        device.close()
        assert cupy.misuse == []
