"""The CUDA kernels of composition vectors on the emulator, against their twin on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from support.compiler import require_compiler
from support.fake_cupy import FakeCupy
from tartan.apps.phylogeny import app as cuda
from tartan.apps.phylogeny.app import KERNELS, Phylogeny, Vector, distance_tile, least_dense, slices_at_once
from tartan.base.products import multiply_slices
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.testing.emulator import find_races

pytestmark = pytest.mark.slow
require_compiler()

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")
MERGE, MULTIPLY = np.inf, 0  # from how many strings on vectors are multiplied: none, all
MULTIPLYING = ["composition_scales", "composition_rows", "composition_add", "composition_distances"]


@pytest.fixture(scope="module")
def seed() -> int:
    """Fresh in each run of the tests; shown when one fails."""
    found = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {found}")
    return found


def proteomes(n: int, seed: int, length: int) -> list[bytes]:
    """Return proteomes of relatives: members of a few families of proteins, with changes here and there."""
    rng = np.random.default_rng(seed)
    families = rng.choice(LETTERS, (4, 60), p=rng.dirichlet(np.ones(20)))
    texts = []
    for n_proteins in rng.integers(length // 240, length // 60, n):
        letters = families[rng.integers(0, 4, n_proteins)]
        letters = np.where(rng.random(letters.shape) < 0.1, rng.choice(LETTERS, letters.shape), letters)
        texts.append("".join(f">p\n{''.join(protein)}\n" for protein in letters).encode())
    return texts


def on_device(
    app: Phylogeny,
    left: Sequence[Vector],
    right: Sequence[Vector],
    cupy: FakeCupy,
    n_dense: float | None = None,
) -> np.ndarray:
    """Score a tile through the device; vectors that both sides have are uploaded once."""
    device = CudaDevice(cupy=cupy)
    uploaded: dict[int, tuple[Any, ...]] = {}
    for vector in (*left, *right):
        if id(vector) in uploaded:
            continue
        arrays = [device.allocate(host.shape, host.dtype) for host in vector]
        for host, array in zip(vector, arrays):
            device.upload(host, array)
        uploaded[id(vector)] = tuple(arrays)
    lefts, rights = [uploaded[id(one)] for one in left], [uploaded[id(one)] for one in right]
    found = device.compute("compare", 1, lambda: distance_tile(lefts, rights, app.k, device.xp, n_dense))
    scores = np.empty(found.shape, found.dtype)
    device.download(found, scores)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    return scores


@pytest.mark.parametrize("k", [3, 5, 6, 7, 8, 14])
def test_merged_distances_agree_with_the_cpu(k: int, seed: int) -> None:
    app, cupy = Phylogeny(k=k), FakeCupy()
    vectors = [app.parse(f"p{at}", text) for at, text in enumerate(proteomes(4, seed + k, 3000))]
    for left, right in ((vectors, vectors), (vectors[:2], vectors[2:]), (vectors[3:], vectors[:1])):
        found = on_device(app, left, right, cupy, MERGE)
        np.testing.assert_allclose(found, app.compare(left, right, np), rtol=0, atol=1e-9)
    assert set(cupy.launched) == {f"composition_u{4 if k <= 7 else 8}", "composition_distances"}


@pytest.mark.parametrize("k", [3, 4])
def test_multiplied_distances_agree_with_the_cpu(k: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app, cupy = Phylogeny(k=k), FakeCupy()
    monkeypatch.setattr(cuda, "slices_at_once", lambda m, n: 3)  # the last of several ranges is shorter
    vectors = [app.parse(f"p{at}", text) for at, text in enumerate(proteomes(4, seed + k, 3000))]
    for left, right in ((vectors, vectors), (vectors[:2], vectors[2:]), (vectors[3:], vectors[:1])):
        found = on_device(app, left, right, cupy, MULTIPLY)
        np.testing.assert_allclose(found, app.compare(left, right, np), rtol=0, atol=5e-7)
    assert set(cupy.launched) == set(MULTIPLYING)


def test_how_a_pair_is_compared_depends_on_its_vectors_alone(seed: int) -> None:
    """Of four vectors two are large enough to be multiplied; pairs with another are merged as in any tile."""
    app, cupy = Phylogeny(k=4), FakeCupy()
    vectors = [app.parse("p", text) for length in (600, 6000) for text in proteomes(2, seed, length)]
    vectors = [vectors[at] for at in (2, 0, 3, 1)]
    least = max(len(vectors[1][2]), len(vectors[3][2])) + 1
    whole, merged = (on_device(app, vectors, vectors, cupy, n_dense) for n_dense in (least, MERGE))
    differs = np.zeros((4, 4), bool)
    differs[np.ix_([0, 2], [0, 2])] = True
    assert np.array_equal(whole[~differs], merged[~differs])
    assert (whole != merged)[[0, 2], [2, 0]].all()  # distances to themselves may be cut off at 0 in both
    np.testing.assert_allclose(whole, merged, rtol=0, atol=1e-7)


def test_merged_distances_depend_on_the_two_vectors_alone(seed: int) -> None:
    app, cupy = Phylogeny(k=4), FakeCupy()
    vectors = [app.parse(f"p{at}", text) for at, text in enumerate(proteomes(4, seed, 3000))]
    whole = on_device(app, vectors, vectors, cupy, MERGE)
    assert np.array_equal(whole, whole.T)
    for i, j in ((0, 0), (1, 3), (3, 1), (2, 0)):
        assert on_device(app, [vectors[i]], [vectors[j]], cupy, MERGE)[0, 0] == whole[i, j]


def test_values_that_float16_cannot_hold(seed: int) -> None:
    """Rows are scaled by powers of two, each vector by its own."""
    app, cupy = Phylogeny(k=3), FakeCupy()
    vectors = [app.parse("p", text) for text in proteomes(3, seed, 3000)]
    large = []
    for scale, (middles, masks, codes, values, numbers) in zip((1, 1e4, 1e7), vectors):
        values = np.where(values > np.median(values), values * np.float32(scale), values)
        n_absent = numbers[1] - len(values)
        norm = np.sqrt(np.square(values, dtype=np.float64).sum() + n_absent)
        large.append((middles, masks, codes, values, np.array([norm, *numbers[1:]])))
    assert large[2][3].max() > 65504
    found = on_device(app, large, large, cupy, MULTIPLY)
    np.testing.assert_allclose(found, app.compare(large, large, np), rtol=0, atol=1e-6)
    assert "composition_scales" in cupy.launched


def test_products_need_no_rounding_to_the_nearest(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores cut sums of float32 off instead of rounding them: plain float16 rows would be wrong by 1e-5."""
    file = min((shared_data / "proteomes").glob("*.faa.gz"), key=lambda path: path.stat().st_size)
    app, device = Phylogeny(k=4), CudaDevice(cupy=FakeCupy())
    vector = app.parse(file.name, file.read_bytes())
    arrays = [device.allocate(host.shape, host.dtype) for host in vector]
    for host, array in zip(vector, arrays):
        device.upload(host, array)
    multiplied: list[Any] = []

    def recorded(left: Any, right: Any, xp: Any, *, n_slices: int) -> Any:
        multiplied.extend((left, right))
        return multiply_slices(left, right, xp, n_slices=n_slices)

    monkeypatch.setattr(cuda, "multiply_slices", recorded)
    found, distance = (
        device.compute("compare", 1, lambda: distance_tile([arrays], [arrays], 4, device.xp)),
        np.empty((1, 1)),
    )
    device.download(found, distance)
    left, right = (np.empty(rows.shape, rows.dtype) for rows in multiplied)
    device.download(multiplied[0], left)
    device.download(multiplied[1], right)
    steps = np.multiply(left, right, dtype=np.float64).reshape(3 * 40, -1, 16).sum(axis=2).T
    cosine = cut_off_sums(steps).sum() / vector[4][0] ** 2
    assert abs(distance[0, 0]) < 2e-8
    assert abs(1 - cosine) < 4e-8
    plain = right[0, -160_000:].astype(np.float64)
    assert abs(1 - cut_off_sums((plain * plain).reshape(40, -1, 16).sum(axis=2).T).sum() / vector[4][0] ** 2) > 1e-6


def cut_off_sums(steps: np.ndarray) -> np.ndarray:
    """Add rows in float32, of which what does not fit is cut off."""
    sums = np.zeros(steps.shape[1])
    for step in steps:
        short = (sums + step).astype(np.float32)
        above = np.abs(short) > np.abs(sums + step)
        short[above] = np.nextafter(short[above], np.float32(0))
        sums = short.astype(np.float64)
    return sums


def test_vectors_of_many_strings_are_multiplied() -> None:
    assert least_dense(3) == least_dense(8) == np.inf
    assert least_dense(6) == 250_000


def test_ranges_take_bounded_memory() -> None:
    assert slices_at_once(1, 1) == 2**28 // 24_000
    for m, n in ((512, 512), (1024, 64), (1, 4096)):
        count = slices_at_once(m, n)
        assert count * 24_000 * max(m, n) <= 2**28
        assert count * 3 * 4 * m * n <= 2**28
    assert slices_at_once(10**5, 10**5) == 1


def test_vectors_that_share_little_or_have_no_norm() -> None:
    app, cupy = Phylogeny(k=3), FakeCupy()
    vectors = [app.parse("p", f">p\n{text}".encode()) for text in ("ACDEACDFAC", "WYWWYYWVWY", "ACDFACDF")]
    nothing = (*(part[:0] for part in vectors[0][:4]), np.zeros(3))
    wanted = app.compare(vectors, vectors, np)
    for n_dense, error in ((MERGE, 1e-12), (MULTIPLY, 1e-3)):
        found = on_device(app, [*vectors, nothing], vectors, cupy, n_dense)
        np.testing.assert_allclose(found[:3], wanted, rtol=0, atol=error)
        assert found[0, 1] == 0.5
        assert np.isnan(found[3]).all()


def test_real_proteomes(shared_data: Path) -> None:
    folder = shared_data / "proteomes"
    files = sorted(folder.glob("*.faa.gz"))
    lines = (folder / "cv_bact8_k5.tsv").read_text().splitlines()
    wanted = np.array([line.split("\t")[2:] for line in lines if not line.startswith("#")], float)
    app, some = Phylogeny(k=5), (0, 5, 6, 7)
    vectors = [app.parse(files[at].name, files[at].read_bytes()) for at in some]
    found = on_device(app, vectors[:2], vectors[2:], FakeCupy(), MERGE)
    np.testing.assert_allclose(found, app.compare(vectors[:2], vectors[2:], np), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found, wanted[np.ix_(some[:2], some[2:])], rtol=0, atol=1e-6)
    cupy = FakeCupy(memory_bytes=2**30)
    found = on_device(app, vectors[:1], vectors[2:3], cupy)  # a bacterium has 13 to 19 % of the strings
    np.testing.assert_allclose(found, app.compare(vectors[:1], vectors[2:3], np), rtol=0, atol=1e-8)
    assert set(cupy.launched) == set(MULTIPLYING)


def test_a_tile_has_no_races(seed: int) -> None:
    app = Phylogeny(k=3)
    vectors = [app.parse("p", text) for text in proteomes(2, seed, 600)]
    middles, masks, codes, values, numbers = (np.concatenate(parts) for parts in zip(*vectors))
    starts = np.cumsum([0, *(len(vector[0]) for vector in vectors)])
    rows, columns, parts = np.zeros(1, np.int32), np.array([0, 1], np.int32), np.zeros((64, 2))
    ends = np.cumsum(masks[:, 0] >> 20, dtype=np.int64)
    sizes = (np.int32(1), np.int32(2), np.uint64(10))  # two shards of ten middles
    merged = (middles, masks, ends, codes, values, starts, rows, columns, parts, *sizes)
    assert find_races(KERNELS.path.read_text(), "composition_u4", (1, 2), 128, merged) is None
    found = (1 - parts.sum(axis=0) / numbers[0] / numbers[[0, 3]]) / 2
    np.testing.assert_allclose(found[None], app.compare(vectors[:1], vectors, np), rtol=0, atol=1e-12)


def test_scales_have_no_races(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1, 9e4, 500).astype(np.float32)
    ends, starts, scales = np.array([200, 500]), np.array([0, 2]), np.zeros(1, np.float32)
    assert find_races(KERNELS.path.read_text(), "composition_scales", (1,), 128, (ends, values, starts, scales)) is None
    assert 16384 < scales[0] * values.max() <= 32768


def test_dense_rows_have_no_races(seed: int) -> None:
    middles, masks, codes, values, _ = Phylogeny(k=3).parse("p", proteomes(1, seed, 600)[0])
    ends, starts, scales = np.cumsum(masks[:, 0] >> 20, dtype=np.int64), np.array([0, len(middles)]), np.ones(1, "f4")
    source, strings = KERNELS.path.read_text(), (middles, masks, ends, codes, values, starts)
    rows, out = np.zeros(1, np.int32), np.zeros(3 * 2 * 2000, np.uint32)
    given = (*strings, rows, scales, out, np.uint64(0), np.int32(2), np.int32(0))
    assert find_races(source, "composition_rows", (2, 1), 128, given) is None
    high, again, low = out.view(np.float16).astype(np.float32).reshape(3, 20, 400)
    assert np.array_equal(high, again)
    present = (np.repeat(middles, masks[:, 0] >> 20), (codes >> 5) * 20 + (codes & 31))
    np.testing.assert_allclose((high + low)[present], values, rtol=2**-20, atol=2**-17)


def test_a_run_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    files = []
    for at, text in enumerate(proteomes(5, seed, 30_000)):
        files.append(tmp_path / f"{at}.faa")
        files[-1].write_bytes(text)
    for device in ("cpu", "cuda"):
        command = ["run", "phylogeny", *map(str, files), "-o", str(tmp_path / device), "--device", device]
        assert main([*command, "--set", "k=4", "--tile", "3", "--quiet"]) == 0
    on_cpu, on_gpu = (tartan.open(tmp_path / device).matrix() for device in ("cpu", "cuda"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-7)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    assert set(cupy.launched) >= set(MULTIPLYING)


def test_a_tile_that_does_not_fit_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=3 * 2**20)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    app, texts = Phylogeny(k=7), proteomes(8, 1, 8000)
    items = {f"p{at}": text for at, text in enumerate(texts)}
    vectors = [app.parse("p", text) for text in texts]
    found = tartan.allpairs(app, list(items.values()), out=tmp_path / "run", device="cuda", tile=8).matrix()
    np.testing.assert_allclose(found, app.compare(vectors, vectors, np) * (1 - np.eye(8)), rtol=0, atol=1e-9)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    assert cupy.launched.count("composition_u4") > 1
