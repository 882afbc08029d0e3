"""open_device and the CPU device's own matters."""

from __future__ import annotations

import doctest
import importlib

import pytest

from support.fake_cupy import FakeCupy
from tartan.devices import find_gpus, open_device
from tartan.devices.cpu import CpuDevice
from tartan.devices.sim import SimDevice, SimOptions
from tartan.errors import ConfigError, DeviceError, DeviceMemoryError


def test_names() -> None:
    assert open_device("cpu").name == "cpu"
    assert open_device("cuda", cupy=FakeCupy()).name == "cuda:0"
    assert open_device("cuda:1", cupy=FakeCupy(n_devices=2)).name == "cuda:1"
    assert open_device("sim").name == "sim"
    assert open_device("sim", name="sim:1").name == "sim:1"


def test_options_of_the_simulator_in_the_name_or_as_argument() -> None:
    named = open_device("sim:compare=1ms,memory=5MB")
    given = open_device("sim", options=SimOptions(memory_bytes=5 * 10**6, compare_seconds=1e-3))
    assert isinstance(named, SimDevice)
    assert isinstance(given, SimDevice)
    assert named.options == given.options
    with pytest.raises(ConfigError, match="twice"):
        open_device("sim:speed=2", options=SimOptions())


@pytest.mark.parametrize("name", ["", "gpu", "cpu:1", "cuda:x", "cuda:-1", "CUDA"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="use cpu, cuda"):
        open_device(name)


def test_a_missing_gpu_says_the_way_out() -> None:
    with pytest.raises(DeviceError, match="--device cpu"):
        open_device("cuda", cupy=FakeCupy(n_devices=0))


def test_found_gpus_never_raises() -> None:
    assert all({"name", "index", "memory_bytes", "usable", "reason"} <= set(gpu) for gpu in find_gpus())


def test_the_cpu_can_pretend_to_be_small() -> None:
    device = CpuDevice(memory_bytes=1000)
    assert device.free_bytes() == 1000
    with pytest.raises(DeviceMemoryError) as caught:
        device.allocate((1001,), "uint8")
    assert caught.value.context == {"wanted_bytes": 1001, "free_bytes": 1000}


@pytest.mark.parametrize(
    "module", ["tartan.devices", "tartan.devices.sim", "tartan.testing.faults", "support.fake_cupy"]
)
def test_examples_in_the_documentation(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0
    assert outcome.failed == 0
