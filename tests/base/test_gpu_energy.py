"""Joules of GPUs from a stand-in for NVML, on machines that we invent."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tartan.base.gpu_energy import LIBRARY, GpuEnergyMeter


def put(target: Any, kind: Any, value: int) -> None:
    """Write through a reference, as the library does."""
    ctypes.cast(target, ctypes.POINTER(kind))[0] = value


class StandInNvml:
    """GPUs whose counters, in millijoules, a test moves on; ``codes`` are what calls return."""

    def __init__(self, *millijoules: int, **codes: int) -> None:
        self.counters, self.codes = list(millijoules), codes
        self.calls: list[str] = []

    def _answer(self, name: str) -> int:
        self.calls.append(name)
        return self.codes.get(name, 0)

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return self._answer("init")

    def nvmlShutdown(self) -> int:  # noqa: N802
        return self._answer("shutdown")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        put(count, ctypes.c_uint, len(self.counters))
        return self._answer("count")

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:  # noqa: N802
        put(handle, ctypes.c_size_t, index.value + 1)  # opaque: never null
        return self._answer("handle")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: ctypes.c_void_p, counter: Any) -> int:  # noqa: N802
        assert handle.value is not None
        put(counter, ctypes.c_ulonglong, self.counters[handle.value - 1])
        return self._answer("energy")


def test_joules_are_those_of_all_gpus_since_the_meter_was_made() -> None:
    nvml = StandInNvml(5_000_000, 2**40)
    meter = GpuEnergyMeter(lambda: nvml)
    assert (meter.n_gpus, meter.joules(), meter.problem) == (2, 0.0, "")
    nvml.counters[0] += 1_500
    nvml.counters[1] += 250
    assert meter.joules() == pytest.approx(1.75)
    nvml.counters[1] += 250
    assert meter.joules() == pytest.approx(2.0)
    meter.close()
    assert nvml.calls[-1] == "shutdown"
    assert meter.joules() is None


def test_a_machine_without_the_library_says_so() -> None:
    def load() -> Any:
        raise OSError(f"{LIBRARY}: cannot open shared object file")

    meter = GpuEnergyMeter(load)
    assert meter.joules() is None
    assert f"not known: {LIBRARY}: cannot open" in meter.problem
    meter.close()


@pytest.mark.parametrize(
    ("nvml", "problem"),
    [
        (StandInNvml(), "NVML sees no GPU"),
        (StandInNvml(1, init=9), "nvmlInit_v2 returned 9"),
        (StandInNvml(1, energy=3), "those before Volta do not"),
        (StandInNvml(1, energy=4), "may not read it; ask who runs the machine"),
        (object(), f"{LIBRARY} is too old"),
    ],
)
def test_what_cannot_be_read_has_a_reason(nvml: Any, problem: str) -> None:
    meter = GpuEnergyMeter(lambda: nvml)
    assert meter.joules() is None
    assert problem in meter.problem


def test_a_gpu_that_is_lost_leaves_nothing_half_counted() -> None:
    nvml = StandInNvml(1_000, 1_000)
    meter = GpuEnergyMeter(lambda: nvml)
    nvml.codes["energy"] = 15
    assert meter.joules() is None
    assert "nvmlDeviceGetTotalEnergyConsumption returned 15" in meter.problem
    nvml.codes.clear()
    assert meter.joules() is None, "what it took meanwhile is lost"


def test_a_counter_that_begins_again_is_not_taken_for_less_than_nothing() -> None:
    nvml = StandInNvml(1_000)
    meter = GpuEnergyMeter(lambda: nvml)
    nvml.counters[0] = 10
    assert meter.joules() is None
    assert "began again" in meter.problem
