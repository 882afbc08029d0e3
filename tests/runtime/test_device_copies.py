"""Copies of a run on a device: two in flight each way, with the bits of one at a time."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.fake_cupy import FakeCudaRuntimeError, FakeCupy
from tartan.devices.cpu import CpuDevice
from tartan.errors import DeviceError
from tartan.runtime.device_lane import Staging

PATIENCE_SECONDS = 20.0


class Products(tartan.Application):
    releases_gil = True
    tile_side = 4

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return left @ right.T


class Meeting:
    """Lets the first copy each way wait until a second one is in flight."""

    def __init__(self) -> None:
        self.n = Counter[str]()
        self._second = {"upload": threading.Event(), "download": threading.Event()}
        self._lock = threading.Lock()

    def wait(self, way: str) -> int:
        """Return the number of the copy, from 1."""
        with self._lock:
            self.n[way] += 1
            number = self.n[way]
        if number == 1:
            assert self._second[way].wait(PATIENCE_SECONDS)
        else:
            self._second[way].set()
        return number


@pytest.mark.slow
def test_a_run_has_two_copies_in_flight_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()
    cupy = FakeCupy(while_copying=meeting.wait)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    items = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    run = tartan.allpairs(Products(), items, device="cuda", workers=1)
    np.testing.assert_array_equal(run.matrix(), tartan.allpairs(Products(), items, device="sim", workers=1).matrix())
    assert cupy.most_copying == {"upload": 2, "download": 2}
    assert cupy.n_copying == {"upload": 0, "download": 0}
    assert min(meeting.n.values()) > 2
    assert cupy.misuse == []
    assert cupy.registered == {}


@pytest.mark.parametrize("way", ["upload", "download"])
def test_a_run_ends_when_the_second_copy_fails(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, before = Meeting(), set(threading.enumerate())

    def fail_second(of: str) -> None:
        if of == way and meeting.wait(of) == 2:
            raise FakeCudaRuntimeError(719, "cudaErrorLaunchFailure")

    cupy = FakeCupy(while_copying=fail_second)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    items = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    with pytest.raises(DeviceError, match=f"{way} failed: cudaErrorLaunchFailure"):
        tartan.allpairs(Products(), items, tmp_path / "run", device="cuda", workers=1)
    assert tartan.open(tmp_path / "run").failures == []
    assert cupy.n_copying == {"upload": 0, "download": 0}
    assert cupy.registered == {}
    assert cupy.misuse == []
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_SECONDS)
    assert set(threading.enumerate()) <= before


def test_staging_memory_of_a_thread_is_used_again_and_grows() -> None:
    staging = Staging(CpuDevice())
    first = staging.arrays([np.zeros((3, 4)), np.zeros(5, np.int8), np.zeros((0, 2))])
    assert [(one.shape, one.dtype.name) for one in first] == [((3, 4), "float64"), ((5,), "int8"), ((0, 2), "float64")]
    for value, one in enumerate(first):
        one.fill(value)
    assert first[0].max() == 0
    again = staging.arrays([np.zeros(2)])[0]
    assert np.shares_memory(again, first[0])
    larger = staging.arrays([np.zeros(500)])[0]
    assert not np.shares_memory(larger, first[0])
    other: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: other.extend(staging.arrays([np.zeros(2)])))
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not np.shares_memory(other[0], larger)
