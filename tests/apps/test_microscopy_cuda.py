"""The CUDA kernel of registration on the emulator, against its twin on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.compiler import require_compiler
from support.fake_cupy import FakeCupy
from tartan import _native
from tartan.apps.microscopy import Microscopy
from tartan.apps.microscopy.app import KERNELS, inverse, lay_out, mirrors
from tartan.apps.microscopy.simulate import simulate
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.testing.emulator import Emulator, find_races

pytestmark = pytest.mark.slow
require_compiler()

SUMS = r"""
template <bool SCORE> __device__ void write_sums(const Objective& o, const double* motion, double* out) {
    const Sums s = sums_at<SCORE>(o, Motion{motion[0], motion[1], motion[2]});
    if (threadIdx.x) return;
    const double all[10] = {s.value, s.gx, s.gy, s.gt, s.xx, s.xy, s.yy, s.xt, s.yt, s.tt};
    for (int at = 0; at < 10; at++) out[at] = all[at];
}
extern "C" __global__ void
write_both(const double* a, const double* b, const double* motion, double scale, double* out) {
    const Pair pair = {a, b, false, scale, 1, 1};
    write_sums<false>(gauss(pair, scale), motion, out);
    write_sums<true>(overlap(pair), motion, out + 10);
}
"""


@pytest.fixture(scope="module")
def seed() -> int:
    """Fresh in each run of the tests; shown when one fails."""
    found = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {found}")
    return found


def particles(folder: Path, n: int, seed: int, localisations: int = 2) -> tuple[Path, list[Any]]:
    """Return a file of particles and its items, parsed."""
    path = simulate(folder, n, seed % 10**6, localisations=localisations, stray=3).with_name("particles.json")
    app = Microscopy()
    parts = app.split("p", path.read_bytes()) or []
    return path, [app.parse(f"p#{at}", part) for at, part in enumerate(parts)]


def on_device(app: Microscopy, left: list[Any], right: list[Any], cupy: FakeCupy) -> dict[str, np.ndarray]:
    """Register a tile through the device."""
    device = CudaDevice(cupy=cupy)

    def uploaded(item: Any) -> Any:
        host, facts = app.device_form(item, device.xp)
        array = device.allocate(host.shape, host.dtype)
        device.upload(host, array)
        return array, facts

    lefts, rights = [uploaded(item) for item in left], [uploaded(item) for item in right]
    found = device.compute("compare", 1, lambda: app.compare(lefts, rights, device.xp))
    scores = {}
    for name, array in found.items():
        scores[name] = np.empty(array.shape, array.dtype)
        device.download(array, scores[name])
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    return scores


@pytest.mark.parametrize("localisations", [2, 25])
def test_sums_agree_with_the_cpu(tmp_path: Path, seed: int, localisations: int) -> None:
    """Also where a sample of the points stands for all in the Gauss transform."""
    _, items = particles(tmp_path, 2, seed, localisations)
    (a, _), (b, _) = items
    first, second = (lay_out(points, b"")[0] for points in (a, b))
    emulator = Emulator(KERNELS.path.read_text() + SUMS)
    samples = [_native.microscopy_prepare(points)[3] for points in (a, b)]
    rng = np.random.default_rng(seed)
    for scale in (0.01, 0.04):
        about = [*rng.uniform(-0.02, 0.02, 2).tolist(), rng.uniform(-np.pi, np.pi)]
        out = np.empty(20)
        emulator.launch("write_both", 1, 64, (first, second, np.array(about), np.float64(scale), out), seed=seed)
        turned = np.array([[np.cos(about[2]), -np.sin(about[2])], [np.sin(about[2]), np.cos(about[2])]])
        shift = np.array(about[:2]) + b[:, :2].mean(axis=0) - turned @ a[:, :2].mean(axis=0)
        motion = np.array([[*shift, about[2]]])
        for at, given in ((0, scale), (10, None)):
            twin = _native.microscopy_evaluate(a, b, motion, scale=given)[0]
            parts = (slice(0, 1), slice(1, 4), slice(4, 10))
            if given is not None and localisations > 2:
                # The twin takes all points: it gets the samples, whose centroids are others than those of the turn.
                sampled = [np.sqrt(sample * [0, 0, 1]) + sample * [1, 1, 0] for sample in samples]
                twin = _native.microscopy_evaluate(*sampled, np.array([about]), scale=given)[0]
                parts = (slice(0, 1), slice(1, 3), slice(4, 7))
            for part in parts:
                error = np.abs(out[at:][part] - twin[part]).max() / np.abs(twin[part]).max()
                assert error < 1e-5


def assert_like(found: dict[str, np.ndarray], twin: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(found["scores"], twin["scores"], rtol=1e-4)
    for name in ("tx", "ty"):
        np.testing.assert_allclose(found[name], twin[name], atol=1e-3)
    turn = np.angle(np.exp(1j * (found["theta"] - twin["theta"])))
    assert np.abs(turn).max() < 5e-3


def test_registrations_agree_with_the_cpu(tmp_path: Path) -> None:
    _, items = particles(tmp_path, 4, 5)
    app, cupy = Microscopy(), FakeCupy()
    left, right = items[:3], items[1:]
    found = on_device(app, left, right, cupy)
    assert_like(found, app.compare(left, right, np))
    assert cupy.launched == ["draw_pictures", "find_peaks", "choose_starts", "register_stage"]
    x, y, theta = inverse(found["tx"][1, 1], found["ty"][1, 1], found["theta"][1, 1])  # of items 1 and 2
    assert [found[name][2, 0] for name in ("scores", "tx", "ty", "theta")] == [found["scores"][1, 1], x, y, theta]


@pytest.mark.parametrize(("sigma", "n_stages"), [(0.02, 1), (0.0005, 4)])
def test_squares_of_every_kind_agree_with_the_cpu(tmp_path: Path, sigma: float, n_stages: int) -> None:
    """Few pixels; many, finer than which the uncertainties are, so that peaks climb on Gauss transforms first."""
    simulate(tmp_path, 3, 6, localisations=2, stray=3, sigma=sigma)
    app, cupy = Microscopy(symmetry=1 if sigma > 0.01 else 3), FakeCupy()
    parts = app.split("p", (tmp_path / "particles.json").read_bytes()) or []
    items = [app.parse(f"p#{at}", part) for at, part in enumerate(parts)]
    assert_like(on_device(app, items[:1], items[1:], cupy), app.compare(items[:1], items[1:], np))
    assert cupy.launched.count("register_stage") == n_stages


@pytest.mark.exhaustive
def test_what_does_not_fit_into_memory_at_once_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, items = particles(tmp_path, 3, 8)
    app = Microscopy()
    whole = on_device(app, items, items, FakeCupy())
    monkeypatch.setattr("tartan.apps.microscopy.app.PAIRS_AT_ONCE", 1)
    cupy = FakeCupy()
    parts = on_device(app, items, items, cupy)
    assert cupy.launched.count("find_peaks") > 1
    for name, values in whole.items():
        np.testing.assert_array_equal(parts[name], values)


@pytest.mark.exhaustive
def test_kernels_have_no_races(tmp_path: Path) -> None:
    _, items = particles(tmp_path, 2, 1)
    laid = [lay_out(points[:20], b"")[0] for points, _ in items]
    source = KERNELS.path.read_text()
    tile = np.concatenate(laid), np.array([0, len(laid[0])], np.int64)
    side, most, n = 32, 2, np.int32(1)
    re, im = (np.zeros((3, side, side), np.float32) for _ in range(2))
    angles, pixels = np.array([0.3, 1.1, 0.0]), np.full(3, 0.03)
    pictures = (np.array([0, 0, 1], np.int32), pixels, angles, np.int32(3), np.int32(side), re, im)
    assert find_races(source, "draw_pictures", 2, 64, (*tile, *pictures)) is None
    scratch, peaks = np.zeros((2, 2, side, side), np.float32), np.zeros((1, most, 8, 4))
    pairs = (np.zeros(1, np.int32), np.array([2], np.int32), np.array([most], np.int32), n)
    args = (re, im, angles, pixels, *pairs, np.int32(most), np.int32(side), scratch, peaks)
    assert find_races(source, "find_peaks", 2, 64, args) is None
    assert (peaks[0, :, 0, 3] > 0).all()
    starts, n_starts, evaluations = np.zeros((1, 8, 4)), np.zeros(1, np.int32), np.zeros(1, np.int32)
    sides, sizes = (np.int32(1), np.int32(1)), (n, np.int32(most), np.int32(side))
    args = (*tile, *sides, np.zeros(1, np.int32), pixels[:1], *sizes, peaks, starts, n_starts, evaluations, np.int32(1))
    assert find_races(source, "choose_starts", 1, 64, args) is None
    assert n_starts[0] >= 1
    ends, chosen, out = np.zeros((1, 8, 4)), np.zeros((1, 8, 4)), np.full((1, 5), np.nan)
    queue, done, n_chosen = np.zeros(1, np.uint32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    before = (*tile, *sides, np.full(1, -1, np.int32), pixels[:1], np.int32(-1), starts, n_starts)
    args = (*before, ends, queue, done, chosen, n_chosen, evaluations, out, np.int32(1))
    assert find_races(source, "register_stage", 2, 64, args) is None
    assert done[0] == n_starts[0]
    assert out[0, 0] == ends[0, : n_starts[0], 3].max() or (ends[0, :, 3] == -2).any()


@pytest.mark.parametrize("localisations", [2, 25])
def test_what_the_host_prepares(tmp_path: Path, localisations: int) -> None:
    _, [(points, _), _] = particles(tmp_path, 2, 3, localisations)
    facts, fingerprint, rows, sample = _native.microscopy_prepare(points)
    around = points[:, :2] - points[:, :2].mean(axis=0)
    squares = np.square(around).sum(axis=1)
    found = [*points[:, :2].mean(axis=0), np.sqrt(squares.mean()), np.sqrt(squares.max()), np.median(points[:, 2] ** 2)]
    np.testing.assert_allclose(facts, found, rtol=1e-9)
    wanted = np.column_stack([around, points[:, 2] ** 2])
    np.testing.assert_allclose(rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)], rtol=1e-6, atol=1e-12)
    assert len(sample) == (0 if len(points) <= 400 else 400)
    assert {row.tobytes() for row in sample} <= {row.tobytes() for row in rows}
    assert 0 <= fingerprint < 2**64
    with pytest.raises(ValueError, match="above zero"):
        _native.microscopy_prepare(np.zeros((3, 3)))


def test_which_pairs_mirror_others() -> None:
    twice = np.array([[False, False], [True, False]])
    found = mirrors((2, 2), twice, (np.array([0]), np.array([1])))
    assert found.tolist() == [[-1, 2], [-2, -1]]


def test_a_run_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    path, _ = particles(tmp_path, 3, 2)
    for device in ("cpu", "cuda"):
        command = ["run", "microscopy", str(path), "-o", str(tmp_path / device), "--device", device, "--quiet"]
        assert main([*command, "--set", "symmetry=2"]) == 0
    on_cpu, on_gpu = (tartan.open(tmp_path / device) for device in ("cpu", "cuda"))
    above = np.triu_indices(3, 1)
    np.testing.assert_allclose(on_gpu.matrix("scores")[above], on_cpu.matrix("scores")[above], rtol=1e-3)
    theta, twin = (run.matrix("theta") for run in (on_gpu, on_cpu))
    assert np.abs(np.angle(np.exp(1j * (theta - twin)))[above]).max() < 0.02
    np.testing.assert_allclose(theta[above], -theta.T[above])
    assert set(cupy.launched) == {"draw_pictures", "find_peaks", "choose_starts", "register_stage"}
    assert (cupy.n_waits, cupy.misuse) == (0, [])


def test_given_motions_are_scored_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    path, _ = particles(tmp_path, 2, 2)
    motions = tmp_path / "motions.csv"
    motions.write_text("i,j,tx,ty,theta\nparticles.json#0,particles.json#1,0,0,0.5\n")
    command = ["run", "microscopy", str(path), "-o", str(tmp_path / "run"), "--device", "cuda", "--quiet"]
    assert main([*command, "--set", f"score_only={motions}"]) == 0
    run = tartan.open(tmp_path / "run")
    assert run.matrix("theta")[0, 1] == 0.5
    assert run.matrix("scores")[0, 1] > 0
    assert cupy.launched == []
