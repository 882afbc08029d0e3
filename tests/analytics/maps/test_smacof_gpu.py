"""The passes of a GPU against those of the processor, on a stand-in for CuPy."""

from __future__ import annotations

import sys

import mds_problems as problems
import numpy as np
import pytest

from support.fake_cupy import FakeCupy
from support.gpu import require_gpu
from tartan.analytics import DAMDS, Monitor, as_dissimilarities
from tartan.analytics.maps.preparation import GpuPasses
from tartan.analytics.maps.smacof import CpuPasses, Problem, Rule, Weights
from tartan.devices.cuda import CudaDevice
from tartan.errors import ConfigError, DeviceError

N = 37


def problem(how: str) -> Problem:
    D = problems.points_and_distances(N, 5)[1]
    weights, rule = Weights(), Rule(tiny=1e-30)
    if how == "missing int16 with Sammon":
        D = problems.as_int16(D / D.max())
        D[3, 8:20] = D[8:20, 3] = -1
        rule = Rule(tiny=1e-12, missing=True, sammon=40.0, floor=900.0)
    if how == "weights":
        W = np.random.default_rng(0).integers(1, 1000, (N, N))
        weights = Weights(matrix=(W + W.T).astype(">i2"), scale=1 / 32767)
    if how == "point weights":
        weights = Weights(points=np.random.default_rng(0).uniform(0, 2, N))
    return Problem(D, 3, weights, rule, 1.0, True)


@pytest.mark.parametrize("share", [0.6, 0.0])
@pytest.mark.parametrize("how", ["unit", "missing int16 with Sammon", "weights", "point weights"])
def test_a_gpu_answers_as_the_processor(how: str, share: float) -> None:
    what, cupy = problem(how), FakeCupy()
    device = CudaDevice(cupy=cupy)
    ours = GpuPasses(what, device, Monitor(), block_pairs=5 * N, resident_share=share)
    assert ours.resident == bool(share)
    theirs = CpuPasses(what, None, Monitor())
    x = np.random.default_rng(1).normal(size=(N, 3)) * np.max(np.asarray(what.delta, float))
    a, b = np.empty_like(x), np.empty_like(x)
    diff = 0.1 * float(what.delta.max())
    assert ours.residual(x, diff, a) == pytest.approx(theirs.residual(x, diff, b), rel=1e-12)
    assert np.allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())
    assert np.allclose(ours.product(x, a), theirs.product(x, b), rtol=1e-12, atol=0)
    assert np.allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())
    assert cupy.misuse == []
    del ours
    with pytest.raises(DeviceError, match="closed"):
        device.free_bytes()


@pytest.mark.slow
def test_a_map_on_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    D, X = problems.points_and_distances(N, 5)[1], problems.start(N)
    here = DAMDS(accelerate="none").fit(D, init=X)
    there = DAMDS(accelerate="none", device="cuda").fit(D, init=X)
    assert there.stress_ == pytest.approx(here.stress_, rel=1e-5)
    assert cupy.misuse == []


def test_devices_are_named_right() -> None:
    with pytest.raises(ConfigError, match="tpu"):
        DAMDS(device="tpu").fit(np.ones((3, 3)) - np.eye(3))


@pytest.mark.gpu
def test_a_map_on_a_gpu() -> None:
    require_gpu()
    D = as_dissimilarities(problems.as_int16(problems.clusters(500)))
    X = problems.start(500)
    here = DAMDS(accelerate="none").fit(D, init=X)
    there = DAMDS(accelerate="none", device="cuda").fit(D, init=X)
    assert there.stress_ == pytest.approx(here.stress_, rel=1e-4)
