"""Products of rounded vectors: how they are rounded, how far distances move, the same on CPU and stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.fake_cupy import FakeCupy
from tartan.apps.vectors import Vectors
from tartan.apps.vectors.app import round_rows, widen
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.errors import ConfigError

UNITS = {"tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
METRICS = ("cosine", "correlation", "euclidean", "sqeuclidean")


def nearest(value: float, bits: int) -> float:
    """Return the nearest number of so many significant bits, of two the one whose last bit is 0."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.rint(mantissa * 2.0**bits) / 2.0**bits, exponent))  # rint takes the even one


@pytest.mark.parametrize(("precision", "bits"), [("tf32", 11), ("float16", 11), ("bfloat16", 8)])
def test_numbers_are_rounded_to_the_nearest(precision: str, bits: int) -> None:
    rng = np.random.default_rng(1)
    between = [1 + 2.0**-bits, 1 + 3 * 2.0**-bits, -1 - 2.0**-bits, 2 - 2.0**-bits / 2]  # as near to one as to another
    values = np.concatenate([rng.normal(size=500), 0.1 + 100 * rng.random(500), between, [0.0, -0.0]])
    values = values[(np.abs(values) > 1e-4) | (values == 0)].astype(np.float32)
    found = widen(round_rows(values, precision, np), precision)
    assert found.dtype == np.float32
    assert found.tolist() == [nearest(float(value), bits) for value in values]
    assert np.isnan(widen(round_rows(np.array([np.nan, -np.nan], np.float32), precision, np), precision)).all()
    assert widen(round_rows(np.array([np.inf], np.float32), precision, np), precision)[0] == np.inf


def reference(metric: str, rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.float64)
    if metric in ("euclidean", "sqeuclidean"):
        squares = np.square(wide[:, None] - wide[None]).sum(axis=2)
        return np.sqrt(squares) if metric == "euclidean" else squares
    if metric == "correlation":
        wide = wide - wide.mean(axis=1, keepdims=True)
    wide = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return 1 - wide @ wide.T


def bound(metric: str, precision: str, rows: np.ndarray, exact: np.ndarray) -> Any:
    """Return the stated error, that of float32 included."""
    unit, d = UNITS[precision], rows.shape[1]
    tiny = np.sqrt(d) * 2.0**-24 if precision == "float16" else 0.0
    if metric in ("cosine", "correlation"):
        return 2.01 * unit + tiny + (d + 8) * 2.0**-24
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    moved = unit * (norms[:, None] + norms) + tiny
    plain = 36 * (d + 4) * 2.0**-24
    if metric == "euclidean":
        return moved + plain * (exact + moved)
    return moved * (2 * exact**0.5 + moved) + plain * (np.sqrt(exact) + moved) ** 2


@pytest.mark.parametrize("precision", UNITS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [3, 20, 300])
def test_distances_move_no_more_than_stated(metric: str, precision: str, d: int) -> None:
    rng = np.random.default_rng(d)
    rows = (rng.normal(size=(40, d)) * rng.choice([0.01, 1.0, 30.0], (40, 1)) + rng.normal(size=(40, 1))).astype(
        np.float32
    )
    rows[20:] = rows[:20] * (1 + 1e-3 * rng.normal(size=(20, d)))
    app = Vectors(metric=metric, precision=precision)
    block = app.preprocess_block(rows, np)
    exact = reference(metric, rows)
    error = np.abs(app.compare(block, block, np) - exact)
    assert (error <= bound(metric, precision, rows, exact)).all()
    plain = Vectors(metric=metric)
    prepared = plain.preprocess_block(rows, np)
    assert error.max() > 3 * np.abs(plain.compare(prepared, prepared, np) - exact).max()  # it was rounded


@pytest.mark.parametrize("precision", UNITS)
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_equal_vectors_are_at_distance_0_and_the_rest_as_of_rounded_ones(metric: str, precision: str) -> None:
    rows = np.random.default_rng(2).normal(size=(9, 64)).astype(np.float32)
    app, plain = Vectors(metric=metric, precision=precision), Vectors(metric=metric)
    block = app.preprocess_block(rows, np)
    found = app.compare(block, block, np)
    assert (np.diag(found) == 0).all()
    twin = plain.preprocess_block(widen(round_rows(rows, precision, np), precision), np)
    assert np.array_equal(found, plain.compare(twin, twin, np))


def on_device(device: CudaDevice, app: Vectors, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return prepared rows and scores of the stand-in."""
    raw = device.allocate(rows.shape, rows.dtype)
    device.upload(rows, raw)
    block = device.compute("preprocess", len(rows), lambda: app.preprocess_block(raw, device.xp))
    scores = device.compute("compare", 1, lambda: app.compare(block, block, device.xp))
    found = []
    for array in (block, scores):
        found.append(np.empty(array.shape, array.dtype))
        device.download(array, found[-1])
    return found[0], found[1]


@pytest.mark.parametrize("precision", ["float32", *UNITS])
@pytest.mark.parametrize("metric", METRICS)
def test_the_stand_in_agrees_with_the_cpu(metric: str, precision: str) -> None:
    cupy, rng = FakeCupy(), np.random.default_rng(4)
    rows = rng.normal(size=(30, 77)).astype(np.float32)
    rows[20:] = rows[:10] + 1e-3 * rng.normal(size=(10, 77)).astype(np.float32)
    app = Vectors(metric=metric, precision=precision)
    prepared, found = on_device(CudaDevice(cupy=cupy), app, rows)
    twin = app.preprocess_block(rows, np)
    assert prepared.dtype == twin.dtype
    assert prepared.shape == twin.shape
    if precision != "float32":
        assert np.array_equal(prepared, twin)
    np.testing.assert_allclose(found, app.compare(twin, twin, np), rtol=3e-5, atol=2e-6)
    assert (cupy.n_waits, cupy.misuse) == (0, [])


def test_float64_products_are_not_copied() -> None:
    cupy, rows = FakeCupy(), np.random.default_rng(4).normal(size=(30, 77))
    app = Vectors(metric="euclidean", dtype="float64")
    _, found = on_device(CudaDevice(cupy=cupy), app, rows)
    np.testing.assert_allclose(found, reference("euclidean", rows), rtol=1e-12, atol=1e-12)
    assert (cupy.n_waits, cupy.misuse) == (0, [])


@pytest.mark.parametrize("precision", ["float32", *UNITS])
def test_arrays_with_gaps_are_compared_as_well(precision: str) -> None:
    cupy, rows = FakeCupy(), np.random.default_rng(4).normal(size=(12, 77)).astype(np.float32)
    device, app = CudaDevice(cupy=cupy), Vectors(metric="euclidean", precision=precision)
    raw = device.allocate(rows.shape, rows.dtype)
    device.upload(rows, raw)
    block = device.compute("preprocess", 12, lambda: app.preprocess_block(raw, device.xp))
    scores = device.compute("compare", 1, lambda: app.compare(block[::2], block[:5], device.xp))
    found = np.empty(scores.shape, scores.dtype)
    device.download(scores, found)
    twin = app.preprocess_block(rows, np)
    np.testing.assert_allclose(found, app.compare(twin[::2].copy(), twin[:5], np), rtol=3e-5, atol=2e-6)
    assert (cupy.n_waits, cupy.misuse) == (0, [])


@pytest.mark.parametrize("precision", UNITS)
def test_rows_that_cannot_be_compared_are_named(precision: str) -> None:
    rows = np.ones((3, 40), np.float32)
    rows[0, 1], rows[1], rows[2] = np.nan, 1e5, 3e37
    app = Vectors(metric="euclidean", precision=precision)
    reasons = app.check_block(rows) or [None] * 3
    assert "nan" in str(reasons[0])
    assert ("precision=float32" in str(reasons[1])) == (precision == "float16")
    assert "too large" in str(reasons[2])
    with np.errstate(over="ignore"):
        block = app.preprocess_block(rows, np)
    named = [app.describe_failure(row) is not None for row in block]
    assert named == [True, precision == "float16", True]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": "fp8"}, "choose from float32, tf32, float16, bfloat16"),
        ({"precision": "tf32", "metric": "hamming"}, "hamming has none"),
        ({"precision": "float16", "dtype": "float64"}, "leave one of the two out"),
    ],
)
def test_precisions_that_mean_nothing_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Vectors(**options)  # type: ignore[arg-type]


def test_the_manifest_names_what_rounds() -> None:
    assert Vectors(precision="tf32").parameters() == {"metric": "cosine", "dtype": "float32", "precision": "tf32"}
    assert Vectors().parameters() == {"metric": "cosine", "dtype": "float32"}


@pytest.mark.slow
@pytest.mark.parametrize("precision", UNITS)
def test_runs_on_both(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    items = tmp_path / "items.npy"
    rows = np.random.default_rng(3).normal(size=(60, 40)).astype(np.float32)
    np.save(items, rows)
    for device in ("cpu", "cuda"):
        command = ["run", "vectors", str(items), "-o", str(tmp_path / device), "--device", device, "--quiet"]
        assert main([*command, "--set", "metric=euclidean", "--set", f"precision={precision}"]) == 0
    on_cpu, on_gpu = (tartan.open(tmp_path / device).matrix() for device in ("cpu", "cuda"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=2e-5, atol=1e-6)
    exact = reference("euclidean", rows)
    assert (np.abs(on_cpu - exact) <= bound("euclidean", precision, rows, exact)).all()
    assert (cupy.n_waits, cupy.misuse) == (0, [])
