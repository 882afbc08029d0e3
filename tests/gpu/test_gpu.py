"""On a machine with a GPU: the device kit, and one small run of every application against the CPU.

``TARTAN_REQUIRE_GPU=1`` turns the skips into failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.gpu import require_gpu
from tartan.devices import Device, find_gpus, open_device
from tartan.testing import faults
from tartan.testing.device_kit import DeviceKit

pytestmark = pytest.mark.gpu
require_gpu()


class TestCudaKit(DeviceKit):
    @pytest.fixture
    def device(self) -> Iterator[Device]:
        device = open_device("cuda", memory_limit_bytes=2**28)
        yield device
        device.close()


def test_doctor_sees_the_gpu() -> None:
    usable = [gpu for gpu in find_gpus() if gpu["usable"]]
    assert usable
    assert usable[0]["memory_bytes"] > 2**30


def test_a_crash_in_a_call_leaves_the_memory_readable() -> None:
    device = open_device("cuda")
    host = np.arange(1000, dtype=np.float32)
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    with pytest.raises(ValueError):
        device.compute("compare", 1, lambda: device.xp.reshape(array, (7, 7)))
    back = device.staging(host.shape, host.dtype)
    device.download(array, back)
    np.testing.assert_array_equal(back, host)
    device.close()


def both(app: Any, items: Any, folder: Path, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrices of the same run on the CPU and on the GPU."""
    cpu, cuda = (
        tartan.allpairs(app, items, out=folder / f"{device}.tartan", device=device, **options).matrix()
        for device in ("cpu", "cuda")
    )
    return cpu, cuda


def test_plain_application(tmp_path: Path) -> None:
    values = [float(k * k % 97) for k in range(60)]
    cpu, cuda = both(faults.Distances(), values, tmp_path, tile=16)
    np.testing.assert_array_equal(cuda, cpu)


def test_streaming_through_a_small_device_cache(tmp_path: Path) -> None:
    values = [float(k * k % 97) for k in range(60)]
    cpu, cuda = both(faults.Distances(), values, tmp_path, tile=8, device_cache="20items")
    np.testing.assert_array_equal(cuda, cpu)


def test_vectors(tmp_path: Path) -> None:
    from tartan.apps import builtin

    vectors = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
    cpu, cuda = both(builtin("vectors")(), vectors, tmp_path)
    np.testing.assert_allclose(cuda, cpu, atol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_vectors_of_fewer_bits(tmp_path: Path, metric: str, precision: str) -> None:
    from tartan.apps import builtin

    vectors = np.random.default_rng(0).normal(size=(200, 70)).astype(np.float32)
    cpu, cuda = both(builtin("vectors")(metric=metric, precision=precision), vectors, tmp_path)
    np.testing.assert_allclose(cuda, cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["manhattan", "hamming", "jaccard"])
def test_kernels_of_vectors(tmp_path: Path, metric: str) -> None:
    from tartan.apps import builtin

    vectors = np.random.default_rng(0).integers(0, 3, size=(200, 70)).astype(np.float32)
    cpu, cuda = both(builtin("vectors")(metric=metric), vectors, tmp_path)
    np.testing.assert_allclose(cuda, cpu, rtol=1e-5)


@pytest.mark.parametrize(("name", "n"), [("forensics", 6), ("phylogeny", 6)])
def test_scientific_applications(tmp_path: Path, name: str, n: int) -> None:
    import importlib

    from tartan.apps import builtin

    importlib.import_module(f"tartan.apps.{name}.simulate").simulate(tmp_path / "data", n, 1)
    app = builtin(name)()
    items = sorted(str(p) for p in (tmp_path / "data").rglob("*") if p.name.lower().endswith(app.item_suffixes))
    assert len(items) == n
    cpu, cuda = both(app, items, tmp_path)
    np.testing.assert_allclose(cuda, cpu, atol=0.01 / 512 if name == "forensics" else 1e-9)  # photos of 512 x 512


def test_microscopy(tmp_path: Path) -> None:
    from tartan.apps import builtin
    from tartan.apps.microscopy.simulate import simulate

    particles = simulate(tmp_path / "data", 8, 1).with_name("particles.json")
    cpu, cuda = both(builtin("microscopy")(), [str(particles)], tmp_path)
    ratio = (cuda / cpu)[np.triu_indices(8, 1)]
    assert (ratio > 0.9).all()
    assert (np.abs(ratio - 1) < 1e-4).mean() >= 0.9  # two nearly equal maxima may change places
