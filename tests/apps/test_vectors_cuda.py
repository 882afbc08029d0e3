"""The CUDA kernels of vectors on the emulator, against their twins on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.compiler import require_compiler
from support.fake_cupy import FakeCupy
from tartan.apps.vectors import Vectors
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.testing.emulator import find_races

pytestmark = pytest.mark.slow
require_compiler()

CASES = [("manhattan", "float32"), ("manhattan", "float64"), ("hamming", "float32"), ("hamming", "int8")]
CASES += [
    ("hamming", "int16"),
    ("hamming", "float64"),
    ("hamming", "bool"),
    ("jaccard", "float32"),
    ("jaccard", "bool"),
]


@pytest.fixture(scope="module")
def seed() -> int:
    """Fresh in each run of the tests; shown when one fails."""
    found = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {found}")
    return found


def rows(rng: np.random.Generator, n: int, d: int, dtype: str) -> Any:
    values = rng.integers(-3, 3, (n, d)) if dtype != "bool" else rng.random((n, d)) < 0.3
    scales = rng.choice([0.1, 1.0, 1e3], (n, 1))
    return values.astype(dtype) if "float" not in dtype else (values * scales).astype(dtype)


def on_device(device: CudaDevice, app: Vectors, left: Any, right: Any) -> Any:
    """Score a tile through the device, from raw rows to scores on the host."""
    blocks = []
    for host in (left, right):
        raw = device.allocate(host.shape, host.dtype)
        device.upload(host, raw)
        blocks.append(device.compute("preprocess", len(host), lambda raw=raw: app.preprocess_block(raw, device.xp)))
    found = device.compute("compare", 1, lambda: app.compare(*blocks, device.xp))
    scores = np.empty(found.shape, found.dtype)
    device.download(found, scores)
    return scores


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scores", ["float32", "float64"])
@pytest.mark.parametrize(("metric", "items"), CASES)
def test_kernels_agree_with_the_cpu(metric: str, items: str, scores: str, seed: int) -> None:
    cupy = FakeCupy()
    device = CudaDevice(cupy=cupy)
    app = Vectors(metric=metric, dtype=scores)
    rng = np.random.default_rng(seed)
    for m, k, d in ((1, 1, 1), (65, 3, 17), (70, 130, 300)):
        left, right = rows(rng, m, d, items), rows(rng, k, d, items)
        found = on_device(device, app, left, right)
        twin = app.compare(app.preprocess_block(left, np), app.preprocess_block(right, np), np)
        if metric == "manhattan":
            np.testing.assert_allclose(found, twin, rtol=280 * np.finfo(scores).eps / 2, atol=0)
        else:
            assert np.array_equal(found, twin)
    assert cupy.misuse == []


def test_empty_sets_and_rows_without_scores() -> None:
    device = CudaDevice(cupy=FakeCupy())
    sets = np.zeros((3, 70), bool)
    sets[2, 69] = True
    found = on_device(device, Vectors(metric="jaccard"), sets, sets)
    assert found.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    bad = np.array([[1, 2], [np.nan, 0], [3, 5]], np.float32)
    found = on_device(device, Vectors(metric="manhattan"), bad, bad)
    assert np.array_equal(found, [[0, np.nan, 5], [np.nan] * 3, [5, np.nan, 0]], equal_nan=True)


@pytest.mark.parametrize(("items", "scores"), [("float32", "float32"), ("float64", "float64"), ("int32", "float32")])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_what_cancels_is_computed_again_without_the_host(metric: str, items: str, scores: str, seed: int) -> None:
    """Rows lie far from the origin and some close together; the oracle takes differences in float64."""
    rng = np.random.default_rng(seed)
    left = rng.integers(-40, 40, (37, 45)) + 4000 * rng.integers(0, 2, (37, 1))
    right = np.concatenate([left[5:9] + (rng.random((4, 45)) < 0.1), left[30:], rng.integers(-40, 40, (9, 45))])
    left, right = left.astype(items), right.astype(items)
    cupy = FakeCupy()
    found = on_device(CudaDevice(cupy=cupy), Vectors(metric=metric, dtype=scores), left, right)
    squares = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(axis=2)
    wanted = np.sqrt(squares) if metric == "euclidean" else squares
    np.testing.assert_allclose(found, wanted, rtol=36 * 49 * np.finfo(scores).eps / 2, atol=0)
    exact = squares < 100  # far below what cancels
    assert exact.sum() > 8
    np.testing.assert_allclose(found[exact], wanted[exact], rtol=2 * np.finfo(scores).eps, atol=0)
    assert (found[np.arange(30, 37), np.arange(4, 11)] == 0).all()
    assert set(cupy.launched) == {f"finish_euclidean_f{8 if items != 'float32' else 4}"}
    assert (cupy.n_waits, cupy.misuse) == (0, [])


@pytest.mark.exhaustive
def test_the_last_step_of_euclidean_has_no_races() -> None:
    source = (Path(sys.modules[Vectors.__module__].__file__ or "").with_name("vectors.cu")).read_text()
    rows = np.random.default_rng(1).random((9, 41), np.float32)
    rows[:, 40] = (rows[:, :40] ** 2).sum(axis=1)
    products = rows[:, :40] @ rows[:, :40].T
    sizes = [np.int32(number) for number in (9, 9, 40, 41, 40, 41, 1)]
    args = (rows, rows, rows, rows, products, np.float64(1 / 32), *sizes)
    assert find_races(source, "finish_euclidean_f4", 2, 32, args) is None
    differences = rows[:, None, :40].astype(np.float64) - rows[None, :, :40]
    np.testing.assert_allclose(products, np.sqrt((differences**2).sum(axis=2)), rtol=1e-4)


@pytest.mark.exhaustive
def test_a_tile_has_no_races() -> None:
    source = (Path(sys.modules[Vectors.__module__].__file__ or "").with_name("vectors.cu")).read_text()
    left, right = np.random.default_rng(1).random((2, 3, 20), np.float32)
    out = np.zeros((3, 3), np.float32)
    sizes = (np.int32(3), np.int32(3), np.int32(20), np.int32(20))
    text = source.replace("constexpr int THREADS = 16", "constexpr int THREADS = 4").replace("SIDE = 64", "SIDE = 16")
    text = "\n".join(line for line in text.splitlines() if "__global__" not in line or "manhattan_f4_f4" in line)
    assert find_races(text, "manhattan_f4_f4", (1, 1), (4, 4), (left, right, out, *sizes)) is None
    np.testing.assert_allclose(out, np.abs(left[:, None] - right[None]).sum(axis=2), rtol=1e-5)
    broken = text.replace("        __syncthreads();\n        if ((start", "        if ((start")
    assert broken != text
    assert "data race" in str(find_races(broken, "manhattan_f4_f4", (1, 1), (4, 4), (left, right, out, *sizes)))


@pytest.mark.parametrize("metric", ["manhattan", "hamming", "jaccard", "cosine", "correlation", "euclidean"])
def test_a_run_on_the_stand_in(metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    items = tmp_path / "items.npy"
    np.save(items, np.random.default_rng(3).integers(0, 3, (90, 40)).astype(np.float32) + 1)
    for device in ("cpu", "cuda"):
        command = ["run", "vectors", str(items), "-o", str(tmp_path / device), "--device", device]
        assert main([*command, "--set", f"metric={metric}", "--quiet"]) == 0
    on_cpu, on_gpu = (tartan.open(tmp_path / device).matrix() for device in ("cpu", "cuda"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=2e-5, atol=1e-6)
    assert cupy.misuse == []
    assert cupy.n_waits == 0
    kernels = {"manhattan": {"manhattan_f4_f4"}, "hamming": {"hamming_i4_f4"}, "jaccard": {"jaccard_bits_f4"}}
    kernels |= {"euclidean": {"finish_euclidean_f4"}}
    assert set(cupy.launched) == kernels.get(metric, {"finish_cosine_f4"})
    assert cupy.n_pinned_bytes > 0
    assert cupy.registered == {}


def test_kernels_that_cannot_be_compiled_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cupy = FakeCupy()

    def refuse(**_: Any) -> None:
        raise RuntimeError("libnvrtc.so.12 is not there")

    cupy.array_namespace.RawModule = refuse
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    items = tmp_path / "items.npy"
    np.save(items, np.ones((5, 4), np.float32))
    command = ["run", "vectors", str(items), "-o", str(tmp_path / "run"), "--device", "cuda", "--set", "metric=jaccard"]
    assert main(command) != 0
    said = capsys.readouterr().err
    assert "libnvrtc.so.12 is not there" in said
    assert "tartan doctor" in said


@pytest.mark.parametrize("precision", ["float32", "tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_equal_rows_are_at_zero_on_a_gpu(metric: str, precision: str) -> None:
    rows = np.random.default_rng(4).standard_normal((40, 100)).astype(np.float32)
    both = np.concatenate([rows, rows])
    cupy = FakeCupy()
    found = on_device(CudaDevice(cupy=cupy), Vectors(metric=metric, precision=precision), both, both)
    assert (np.argwhere(found == 0)[:, 0] % 40 == np.argwhere(found == 0)[:, 1] % 40).all()
    assert (found == 0).sum() == 160
    assert (cupy.n_waits, cupy.misuse) == (0, [])
