"""The CUDA kernels of forensics on the emulator, against their twins on the CPU."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import tartan
from support.compiler import require_compiler
from support.fake_cupy import FakeCupy
from tartan.apps.forensics import Forensics, cameras, cuda, prnu
from tartan.apps.forensics.simulate import simulate
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.testing.emulator import Emulator, find_races

pytestmark = pytest.mark.slow
require_compiler()

SHAPES = [(16, 16), (17, 19), (41, 64), (33, 81), (70, 50)]
HALVES = r"""
extern "C" __global__ void to_halves(const float* from, unsigned short* to, int n) {
    for (int at = threadIdx.x; at < n; at += blockDim.x) to[at] = to_half(from[at]);
}
extern "C" __global__ void from_halves(const unsigned short* from, float* to, int n) {
    for (int at = threadIdx.x; at < n; at += blockDim.x) to[at] = from_half(from[at]);
}
"""
# The same while subnormal float32 numbers count as zero: CuPy compiles with -ftz=true. For processors of Intel and AMD.
FLUSHED = r"""
extern "C" __global__ void from_halves_flushed(const unsigned short* from, float* to, int n) {
    const unsigned before = __builtin_ia32_stmxcsr();
    for (int at = threadIdx.x; at < n; at += blockDim.x) {
        unsigned bits = from[at];
        __builtin_ia32_ldmxcsr(before | 0x8040);
        asm volatile("" : "+r"(bits));
        float value = from_half((unsigned short)bits);
        asm volatile("" : "+x"(value));
        __builtin_ia32_ldmxcsr(before);
        to[at] = value;
    }
}
"""


@pytest.fixture(scope="module")
def seed() -> int:
    """Fresh in each run of the tests; shown when one fails."""
    found = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {found}")
    return found


def photo(shape: tuple[int, int], *seed: int) -> np.ndarray:
    """A smooth scene with noise, grey in units of 1/257."""
    rng = np.random.default_rng((*seed, *shape))
    scene = np.cumsum(np.cumsum(rng.normal(size=shape), axis=0), axis=1)
    grey = 240 * (scene - scene.min()) / np.ptp(scene) + rng.normal(scale=3, size=shape)
    return np.rint(np.clip(grey, 0, 255) * prnu.GREY_SCALE).astype(np.uint16)


class Gpu:
    """A stand-in for a GPU, with what tests do on it."""

    def __init__(self) -> None:
        self.cupy = FakeCupy(memory_bytes=2**28)
        self.device = CudaDevice(cupy=self.cupy)

    def load(self, host: np.ndarray) -> Any:
        array = self.device.allocate(host.shape, host.dtype)
        self.device.upload(host, array)
        return array

    def fetch(self, array: Any) -> np.ndarray:
        host = np.empty(array.shape, array.dtype)
        self.device.download(array, host)
        return host

    def items(self, photos: list[np.ndarray], score: str, dtype: str) -> Any:
        """Return the items of photos as an application prepares them, compact where they are float16."""
        app, xp = Forensics(score=score), self.device.xp
        height, width = photos[0].shape
        shape = prnu.spectrum_shape(height, width) if score == "pce" else (height, width)
        items = self.device.allocate((len(photos), *shape), dtype)
        for at, grey in enumerate(photos):
            raw = self.load(grey)

            def prepare(at: int = at, raw: Any = raw) -> None:
                if dtype == "float16":
                    app.compact(raw, items[at], xp)
                else:
                    items[at] = app.preprocess(raw, xp)

            self.device.compute("preprocess", 1, prepare)
        return items

    def compare(self, score: str, left: Any, right: Any) -> Any:
        app = Forensics(score=score)
        found = self.device.compute("compare", 1, lambda: app.compare(left, right, self.device.xp))
        return {name: self.fetch(array) for name, array in found.items()} if score == "pce" else self.fetch(found)


@pytest.fixture
def gpu() -> Any:
    """Yield a stand-in for a GPU, and look afterwards whether it was used as one can be."""
    gpu = Gpu()
    yield gpu
    assert gpu.cupy.misuse == []
    assert gpu.cupy.n_waits == 0


def test_float16_numbers_are_rounded_to_the_nearest(seed: int) -> None:
    conversions, _, _ = cuda.KERNELS.path.read_text().partition("// ---- Sums of a block")
    emulator = Emulator(conversions + HALVES)
    bits = np.arange(2**16, dtype=np.uint16)
    finite = bits[np.isfinite(bits.view(np.float16))]
    found = np.empty(finite.size, np.float32)
    emulator.launch("from_halves", 1, 64, (finite, found, np.int32(finite.size)))
    values = finite.view(np.float16).astype(np.float32)
    assert np.array_equal(found.view(np.uint32), values.view(np.uint32))
    middles = (np.sort(values)[1:] + np.sort(values)[:-1]) / 2
    near = np.concatenate([np.nextafter(middles, s * np.float32(np.inf)) for s in (-1, 1)])
    rng = np.random.default_rng(seed)
    others = (rng.normal(size=5000) * 10.0 ** rng.integers(-12, 8, 5000)).astype(np.float32)
    ends = np.array([65519.99, 65520, 65536, 1e30, np.inf, -np.inf, -65520, 1e-40, 0, -0.0], np.float32)
    given = np.concatenate([values, middles, near, others, ends])
    halves = np.empty(given.size, np.uint16)
    emulator.launch("to_halves", 1, 64, (given, halves, np.int32(given.size)))
    with np.errstate(over="ignore"):
        assert np.array_equal(halves, given.astype(np.float16).view(np.uint16))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets a register of x86")
def test_float16_numbers_are_read_without_subnormal_float32_ones() -> None:
    conversions, _, _ = cuda.KERNELS.path.read_text().partition("// ---- Sums of a block")
    bits = np.arange(2**16, dtype=np.uint16)
    finite = bits[np.isfinite(bits.view(np.float16))]
    found = np.empty(finite.size, np.float32)
    Emulator(conversions + FLUSHED).launch("from_halves_flushed", 1, 64, (finite, found, np.int32(finite.size)))
    assert np.array_equal(found.view(np.uint32), finite.view(np.float16).astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_patterns_and_spectra_agree_with_the_cpu(shape: tuple[int, int], dtype: str, seed: int, gpu: Gpu) -> None:
    """Within 1e-6 of the largest number, and half a unit of float16."""
    grey = photo(shape, seed)
    for score, twin in (("ncc", prnu.noise_pattern), ("pce", prnu.spectrum)):
        found, wanted = gpu.fetch(gpu.items([grey], score, dtype))[0], twin(grey, np)
        assert found.dtype == dtype
        scale = np.sqrt(grey.size) if dtype == "float16" else 1
        room = 1e-6 * np.abs(wanted).max() + (2**-11 * np.abs(wanted) if dtype == "float16" else 0)
        assert (np.abs(found / scale - wanted) <= room).all()


def test_ncc_of_photos_agrees_with_the_cpu(seed: int, gpu: Gpu) -> None:
    """From pixels to scores, within 1 % of what unlike patterns reach by chance."""
    shape = (60, 90)
    photos = [photo(shape, seed, at) for at in range(5)]
    photos[4] = photos[0]
    patterns = np.stack([prnu.noise_pattern(grey, np).ravel() for grey in photos]).astype(np.float64)
    for dtype, room in (("float16", 0.01), ("float32", 2e-4)):
        items = gpu.items(photos, "ncc", dtype)
        found = gpu.compare("ncc", items[:2], items)
        assert found.dtype == np.float32
        assert np.abs(found - patterns[:2] @ patterns.T).max() < room / np.sqrt(60 * 90)
        assert found[0, 4] > 0.999


def family(shape: tuple[int, int], shares: list[float], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Patterns that hold ``shares`` of one common pattern, and their planes of spectrum."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=shape)
    patterns = np.stack([share * common + rng.normal(size=shape) for share in shares])
    patterns /= np.linalg.norm(patterns, axis=(1, 2), keepdims=True)
    half = np.fft.rfft2(patterns)
    half *= np.sqrt(prnu.column_weights(shape[1]) / patterns[0].size)
    planes = np.stack([half.real, half.imag], axis=1).astype(np.float32)
    return patterns, planes.reshape(len(planes), *prnu.spectrum_shape(*shape))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(97, 80), (80, 97), (97, 97)])
def test_pce_agrees_with_the_cpu(shape: tuple[int, int], dtype: str, seed: int, gpu: Gpu) -> None:
    """Strong and weak pairs in one tile; 1e-4 and 0.1 % of a strong PCE, and the same near zero."""
    _, spectra = family(shape, [1, 0.5, -0.7, 0, 0, 0.1], seed)
    pce0, ncc = prnu.pce_tile(spectra[:2], spectra, np)
    scale = np.sqrt(shape[0] * shape[1]) if dtype == "float16" else 1
    given = (spectra * scale).astype(dtype)
    found = gpu.compare("pce", gpu.load(given[:2].copy()), gpu.load(given))
    relative, near = (1e-3, 0.03) if dtype == "float16" else (1e-4, 1e-3)
    np.testing.assert_allclose(found["scores"], pce0, rtol=relative, atol=near)
    np.testing.assert_allclose(found["ncc"], ncc, atol=0.01 / np.sqrt(shape[0] * shape[1]))
    assert found["scores"][0, 2] < -100 < 100 < found["scores"][0, 1]


@pytest.mark.parametrize("shape", [(48, 64), (48, 65), (47, 63)])
def test_pce_of_photos_agrees_with_the_cpu(shape: tuple[int, int], seed: int, gpu: Gpu) -> None:
    photos = [photo(shape, seed, at) for at in range(3)]
    spectra = np.stack([prnu.spectrum(grey, np) for grey in photos])
    items = gpu.items(photos, "pce", "float16")
    found = gpu.compare("pce", items, items)
    np.testing.assert_allclose(found["scores"], prnu.pce_tile(spectra, spectra, np)[0], rtol=2e-3, atol=0.05)


@pytest.mark.parametrize("score", ["ncc", "pce"])
def test_a_flat_photo_has_no_energy(score: str, gpu: Gpu) -> None:
    raw = gpu.load(np.full((32, 40), 9000, np.uint16))
    out = gpu.load(np.ones((2, 32, 21) if score == "pce" else (32, 40), np.float16))
    app = Forensics(score=score)
    energy = gpu.device.compute("preprocess", 1, lambda: app.compact(raw, out, gpu.device.xp))
    assert gpu.fetch(energy).tolist() == [0]
    assert not gpu.fetch(out).any()


def test_plans_are_made_once_and_freed_with_the_device() -> None:
    gpu = Gpu()
    whole = gpu.device.free_bytes()
    raw, out = gpu.load(photo((32, 40))), gpu.device.allocate((32, 40), "float16")
    before = gpu.device.free_bytes()
    left = []
    for _ in range(2):
        gpu.device.compute("preprocess", 1, lambda: cuda.write_item(raw, out, gpu.device.xp))
        left.append(gpu.device.free_bytes())
    assert left == [before - 2 * 8 * 32 * 21] * 2
    gpu.device.close()
    assert whole - (gpu.cupy.cuda.runtime.memGetInfo()[0]) == raw.nbytes + out.nbytes


def small(source: str) -> str:
    """Return the kernels for blocks of 64 threads."""
    return source.replace("SIDE = 32", "SIDE = 8").replace("REACH = 5", "REACH = 3")


@pytest.mark.exhaustive
def test_the_filter_has_no_races() -> None:
    """On a small shape."""
    filters, _, _ = small(cuda.KERNELS.path.read_text()).partition("// ---- Wiener filter")
    grey, size = photo((20, 19)), (np.int32(20), np.int32(19))
    residual, sums = np.zeros((20, 19), np.float32), np.zeros((3, 2, 19), np.float32)
    assert find_races(filters, "filter_photo", (3, 3), (8, 8), (grey, residual, sums, *size)) is None


@pytest.mark.exhaustive
def test_kernels_have_no_races() -> None:
    """On small shapes; without one of its barriers the filter has one."""
    source = small(cuda.KERNELS.path.read_text())
    grey, size = photo((20, 19)), (np.int32(20), np.int32(19))
    residual, sums = np.zeros((20, 19), np.float32), np.zeros((3, 2, 19), np.float32)
    filtering = ((3, 3), (8, 8), (grey, residual, sums, *size))
    filters, _, _ = source.partition("// ---- Wiener filter")
    assert find_races(filters, "filter_photo", *filtering) is None
    down, across = np.gradient(grey / prnu.GREY_SCALE)
    weight = 1 + np.hypot(down, across)
    twin = np.gradient(down / weight, axis=0) + np.gradient(across / weight, axis=1)
    np.testing.assert_allclose(residual, 2 * twin, atol=1e-4)
    broken = filters.replace(
        "    __syncthreads();\n    const int x = left + tx;\n    float sum = 0;",
        "    const int x = left + tx;\n    float sum = 0;",
    )
    assert broken != filters
    assert "data race" in str(find_races(broken, "filter_photo", *filtering))
    half = np.fft.rfft2(residual).astype(np.complex64)
    wiener = (half.view(np.float32), np.ones(1), np.zeros((20, 20), np.float32), np.float64(1), *size)
    assert find_races(source, "wiener", (2, 3), (8, 8), wiener) is None
    planes = np.random.default_rng(1).normal(size=(2, 2, 16, 9)).astype(np.float32)
    pce, ncc = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
    scores = (np.full((2, 2), 1.0), np.full((2, 2), 2.0), pce, ncc, np.zeros(1, np.uint32), np.float64(1))
    numbers = [np.int32(number) for number in (2, 2, 16, 16)]
    assert find_races(source, "peaks_f4", 2, (8, 8), (planes, planes, *scores, *numbers)) is None


def both(photos: Path, folder: Path, cupy: FakeCupy, *options: str) -> tuple[tartan.Run, tartan.Run]:
    """Run the command on the CPU and on the stand-in."""
    for device in ("cpu", "cuda"):
        command = ["run", "forensics", str(photos), "-o", str(folder / device), "--device", device, "--quiet"]
        assert main([*command, *options]) in (0, 3)
    assert cupy.misuse == []
    assert cupy.n_waits == 0
    return tartan.open(folder / "cpu"), tartan.open(folder / "cuda")


@pytest.mark.parametrize("score", ["ncc", "pce"])
def test_a_run_on_the_stand_in(score: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**26)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    photos = tmp_path / "photos"
    simulate(photos, 5, 2, cameras=2, size=(48, 64))
    (photos / "flat.jpg").write_bytes(simplejpeg.encode_jpeg(np.full((48, 64, 3), 77, np.uint8)))
    on_cpu, on_gpu = both(photos, tmp_path, cupy, "--set", f"score={score}")
    assert [failure.reason for failure in on_gpu.failures] == [failure.reason for failure in on_cpu.failures]
    assert [failure.i for failure in on_gpu.failures] == [0]
    ncc = "ncc" if score == "pce" else "scores"
    assert np.nanmax(np.abs(on_gpu.matrix(ncc) - on_cpu.matrix(ncc))) < 0.01 / np.sqrt(48 * 64)
    np.testing.assert_allclose(on_gpu.matrix("scores"), on_cpu.matrix("scores"), rtol=1e-2, atol=0.05)
    written = "write_planes_f2" if score == "pce" else "write_pattern_f2"
    assert {"filter_photo", "wiener", written, "add_slices"} < set(cupy.launched)


def test_beside_a_cpu_patterns_are_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=2**26)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    simulate(tmp_path / "photos", 4, 2, cameras=2, size=(32, 32))
    flat = np.full((32, 32, 3), 77, np.uint8)
    (tmp_path / "photos" / "a-flat.jpg").write_bytes(simplejpeg.encode_jpeg(flat))
    items = sorted(map(str, (tmp_path / "photos").glob("*.jpg")))
    runs = [
        tartan.allpairs(Forensics(), items, device=device, out=tmp_path / device[-1], on_error="skip")
        for device in (["cpu"], ["cpu", "cuda"])
    ]
    np.testing.assert_allclose(runs[1].matrix(), runs[0].matrix(), atol=1e-5)
    assert [failure.reason for failure in runs[1].failures] == [failure.reason for failure in runs[0].failures]
    assert [failure.i for failure in runs[1].failures] == [0]
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    assert not {name for name in cupy.launched if name.endswith("f2")}


@pytest.mark.exhaustive
@pytest.mark.parametrize("score", ["ncc", "pce"])
def test_groups_of_real_photos(score: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three photos of one camera have groups at this size, those of another are too faint; the CPU says the same."""
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    photos = tmp_path / "photos"
    photos.mkdir()
    names = ("1_21015", "1_21017", "1_21019", "0_19929", "0_19931")
    for name in names:
        (photos / f"{name}.jpg").symlink_to(shared_data / "photos" / "nikon" / f"Nikon_D70_{name}.JPG")
    on_cpu, on_gpu = both(photos, tmp_path, cupy, "--set", f"score={score}", "--set", "crop=192")
    cut = {"threshold": 60.0} if score == "pce" else {"n_pixels": 192 * 192}
    groups = [cameras(run.matrix("scores"), **cut).tolist() for run in (on_cpu, on_gpu)]
    assert groups[0] == groups[1] == [0, 1, 2, 2, 2]
    ncc = "ncc" if score == "pce" else "scores"
    assert np.nanmax(np.abs(on_gpu.matrix(ncc) - on_cpu.matrix(ncc))) < 0.01 / 192
