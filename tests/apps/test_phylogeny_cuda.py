"""The CUDA kernels of composition vectors on the emulator, against their twin on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.phylogeny.app import Phylogeny, Vector
from tartan.apps.phylogeny.cuda import KERNELS
from tartan.cli.main import main
from tartan.devices.cuda import CudaDevice
from tartan.testing.compiler import require_compiler
from tartan.testing.emulator import find_races
from tartan.testing.fake_cupy import FakeCupy

pytestmark = pytest.mark.slow
require_compiler()

LETTERS = list("ACDEFGHIKLMNPQRSTVWY")


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


def on_device(app: Phylogeny, left: Sequence[Vector], right: Sequence[Vector], cupy: FakeCupy) -> np.ndarray:
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
    found = device.compute("compare", 1, lambda: app.compare(lefts, rights, device.xp))
    scores = np.empty(found.shape, found.dtype)
    device.download(found, scores)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    return scores


@pytest.mark.parametrize("k", [3, 5, 6, 7, 8, 14])
def test_distances_agree_with_the_cpu(k: int, seed: int) -> None:
    app, cupy = Phylogeny(k=k), FakeCupy()
    vectors = [app.parse(f"p{at}", text) for at, text in enumerate(proteomes(4, seed + k, 3000))]
    for left, right in ((vectors, vectors), (vectors[:2], vectors[2:]), (vectors[3:], vectors[:1])):
        found = on_device(app, left, right, cupy)
        np.testing.assert_allclose(found, app.compare(left, right, np), rtol=0, atol=1e-9)
    assert set(cupy.launched) == {f"composition_u{4 if k <= 7 else 8}", "composition_distances"}


def test_distances_depend_on_the_two_vectors_alone(seed: int) -> None:
    app, cupy = Phylogeny(k=4), FakeCupy()
    vectors = [app.parse(f"p{at}", text) for at, text in enumerate(proteomes(4, seed, 3000))]
    whole = on_device(app, vectors, vectors, cupy)
    assert np.array_equal(whole, whole.T)
    for i, j in ((0, 0), (1, 3), (3, 1), (2, 0)):
        assert on_device(app, [vectors[i]], [vectors[j]], cupy)[0, 0] == whole[i, j]


def test_vectors_that_share_little_or_have_no_norm() -> None:
    app, cupy = Phylogeny(k=3), FakeCupy()
    vectors = [app.parse("p", f">p\n{text}".encode()) for text in ("ACDEACDFAC", "WYWWYYWVWY", "ACDFACDF")]
    nothing = (*(part[:0] for part in vectors[0][:4]), np.zeros(3))
    found = on_device(app, [*vectors, nothing], vectors, cupy)
    np.testing.assert_allclose(found[:3], app.compare(vectors, vectors, np), rtol=0, atol=1e-12)
    assert found[0, 1] == 0.5
    assert np.isnan(found[3]).all()


def test_real_proteomes(shared_data: Path) -> None:
    folder = shared_data / "proteomes"
    files = sorted(folder.glob("*.faa.gz"))
    lines = (folder / "cv_bact8_k5.tsv").read_text().splitlines()
    wanted = np.array([line.split("\t")[2:] for line in lines if not line.startswith("#")], float)
    app, some = Phylogeny(k=5), (0, 5, 6, 7)
    vectors = [app.parse(files[at].name, files[at].read_bytes()) for at in some]
    found = on_device(app, vectors[:2], vectors[2:], FakeCupy())
    np.testing.assert_allclose(found, app.compare(vectors[:2], vectors[2:], np), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found, wanted[np.ix_(some[:2], some[2:])], rtol=0, atol=1e-6)


@pytest.mark.exhaustive
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


def test_a_run_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    cupy = FakeCupy(memory_bytes=2**28)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    files = []
    for at, text in enumerate(proteomes(5, seed, 3000)):
        files.append(tmp_path / f"{at}.faa")
        files[-1].write_bytes(text)
    for device in ("cpu", "cuda"):
        command = ["run", "phylogeny", *map(str, files), "-o", str(tmp_path / device), "--device", device]
        assert main([*command, "--set", "k=4", "--tile", "3", "--quiet"]) == 0
    on_cpu, on_gpu = (tartan.open(tmp_path / device).matrix() for device in ("cpu", "cuda"))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-9)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    assert set(cupy.launched) == {"composition_u4", "composition_distances"}


def test_a_tile_that_does_not_fit_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy(memory_bytes=3 * 2**20)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    app, texts = Phylogeny(k=4), proteomes(8, 1, 8000)
    items = {f"p{at}": text for at, text in enumerate(texts)}
    vectors = [app.parse("p", text) for text in texts]
    found = tartan.allpairs(app, list(items.values()), out=tmp_path / "run", device="cuda", tile=8).matrix()
    np.testing.assert_allclose(found, app.compare(vectors, vectors, np) * (1 - np.eye(8)), rtol=0, atol=1e-9)
    assert (cupy.n_waits, cupy.misuse) == (0, [])
    assert cupy.launched.count("composition_u4") > 1
