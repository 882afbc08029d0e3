"""Difficult input of every simulator: the same for a seed, and what the truth says of it.

What the applications make of it is checked at random by ``python -m fuzz simulated``.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from tartan.analytics import read_newick
from tartan.apps.forensics.app import Forensics
from tartan.apps.lcms.files import read_peaks
from tartan.apps.microscopy.app import Microscopy
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.vectors.app import Vectors
from tartan.errors import ConfigError, ItemError

SMALL: dict[str, dict[str, Any]] = {
    "forensics": {"size": 48, "cameras": 2},
    "microscopy": {"localisations": 2},
    "phylogeny": {"n_proteins": 20},
    "vectors": {"d": 9},
    "lcms": {"others": 5},
}


def simulated(app: str, folder: Path, n: int = 13, seed: int = 1, **options: Any) -> dict[str, Any]:
    simulate = importlib.import_module(f"tartan.apps.{app}.simulate").simulate
    truth: dict[str, Any] = json.loads(simulate(folder, n, seed, hard=True, **SMALL[app] | options).read_text())
    assert truth["hard"] is True
    return truth


@pytest.mark.parametrize("app", SMALL)
def test_the_seed_decides(app: str, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        simulated(app, tmp_path / name, seed=seed)
    contents = [[(path.name, path.read_bytes()) for path in sorted((tmp_path / name).iterdir())] for name in "abc"]
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


@pytest.mark.parametrize("app", SMALL)
def test_fewer_than_eight_items_cannot_be_difficult(app: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="n: 7 must be 8 or more with hard=True"):
        simulated(app, tmp_path / "new", 7)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("metric", ["cosine", "correlation", "euclidean", "hamming", "jaccard"])
def test_vectors(metric: str, seed: int, tmp_path: Path) -> None:
    truth = simulated("vectors", tmp_path, 40, seed, metric=metric)
    rows, labels = np.load(tmp_path / "vectors.npy"), truth["labels"]
    reasons = Vectors(metric=metric).check_block(rows) or [None] * 40
    assert [str(row) for row, reason in enumerate(reasons) if reason] == list(truth["bad"])
    assert len(truth["bad"]) == (0 if metric in ("hamming", "jaccard") else 3)
    assert labels[:3] == [-1] * 3
    assert min(labels[3:]) >= 0
    assert len(truth["duplicates"]) >= 8
    for copy, original in truth["duplicates"].items():
        np.testing.assert_array_equal(rows[int(copy)], rows[original])
        assert labels[int(copy)] == labels[original]


@pytest.mark.slow
def test_vectors_in_blocks_are_difficult_too(tmp_path: Path) -> None:
    """Blocks are of 8 vectors: none is a copy of one of another block, and those in front alone are bad."""
    truth = simulated("vectors", tmp_path, 20, 3, d=1 << 19)
    rows = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    assert truth["duplicates"] == {"4": 3, "12": truth["duplicates"]["12"]}
    assert 8 <= truth["duplicates"]["12"] < 12
    np.testing.assert_array_equal(rows[12], rows[truth["duplicates"]["12"]])
    assert np.isfinite(rows[3:, -1]).all()


def test_proteomes(tmp_path: Path) -> None:
    truth = simulated("phylogeny", tmp_path, 23)
    names = sorted(path.name for path in tmp_path.glob("*.gz"))
    app, items = Phylogeny(k=3), {}
    for name in names:
        try:
            items[name] = app.parse(name, (tmp_path / name).read_bytes())
        except ItemError:
            assert name in truth["bad"]
    assert names[:3] == list(truth["bad"])
    tree = read_newick(truth["newick"])
    assert set(tree.leaf_names) == set(names[3:]) == set(items)
    for copy, original in truth["duplicates"].items():
        assert app.compare([items[copy]], [items[original]], np).tolist() == [[0.0]]
        node, other = (tree.names.index(name) for name in (copy, original))
        assert tree.parents[node] == tree.parents[other]
        assert tree.lengths[node] == tree.lengths[other] == 0
    changed = [set(truth[kind]) for kind in ("fragments", "contaminated", "incomplete")]
    assert all(changed)
    assert len(set.union(*changed)) == sum(map(len, changed))
    n_windows = {name: item[4][2] for name, item in items.items()}
    assert max(n_windows[name] for name in truth["incomplete"]) < min(n_windows[name] for name in truth["contaminated"])


@pytest.mark.parametrize("seed", range(5))
def test_particles(seed: int, tmp_path: Path) -> None:
    truth = simulated("microscopy", tmp_path, 13, seed)
    app, data = Microscopy(), (tmp_path / "particles.json").read_bytes()
    parts = app.split("particles.json", data)
    assert parts is not None
    for number, part in enumerate(parts):
        if str(number) in truth["bad"]:
            with pytest.raises(ItemError):
                app.parse(str(number), part)
        else:
            app.parse(str(number), part)
    assert list(truth["bad"]) == ["0", "1", "2"]
    particles = json.loads(data)["particles"]
    for copy, original in truth["duplicates"].items():
        assert particles[int(copy)] == particles[original]
        assert truth["particles"][int(copy)] == truth["particles"][original]
    assert list(truth["duplicates"]) == ["4", "9"]
    points, one, unit = np.array(particles[5]["points"]), truth["particles"][5], truth["unit"]
    cos, sin = np.cos(one["angle"]), np.sin(one["angle"])
    back = points @ np.array([[cos, sin], [-sin, cos]]) + one["translation"]
    near = np.linalg.norm(back[:, None] - np.array(truth["sites"])[None], axis=2).min(axis=1)
    assert np.median(near) < 0.02 * unit


def test_photos(tmp_path: Path) -> None:
    truth = simulated("forensics", tmp_path, 23)
    names = sorted(path.name for path in tmp_path.glob("*.jpg"))
    app = Forensics(crop=48)
    for name in truth["bad"]:
        with pytest.raises(ItemError):
            app.parse(name, (tmp_path / name).read_bytes())
    assert names[:3] == list(truth["bad"])
    assert list(truth["cameras"]) == names[3:]
    for name in names[3:]:
        photo = simplejpeg.decode_jpeg((tmp_path / name).read_bytes())
        assert photo.shape == ((80, 80, 3) if name in truth["larger"] else (48, 48, 3))
        assert app.parse(name, (tmp_path / name).read_bytes()).shape == (48, 48)
        assert name not in truth["recompressed"] or b"Exif" in (tmp_path / name).read_bytes()[:20]
    for copy, original in truth["duplicates"].items():
        assert (tmp_path / copy).read_bytes() == (tmp_path / original).read_bytes()
        assert truth["cameras"][copy] == truth["cameras"][original]
    assert all(truth[kind] for kind in ("clipped", "recompressed", "turned", "larger"))


def test_peaks(tmp_path: Path) -> None:
    truth = simulated("lcms", tmp_path, 200)
    found = read_peaks(tmp_path / "peaks.txt", 2)
    assert len(found.points) == len(truth["labels"]) == 200
    assert len(np.unique(found.points[:, 1])) < 190
    assert truth["sigma_rt"] == pytest.approx(2.35 * truth["unit"])
    assert len(truth["duplicates"]) == 40
    for copy, original in truth["duplicates"].items():
        np.testing.assert_array_equal(found.points[int(copy)], found.points[original])
        assert truth["labels"][int(copy)] == truth["labels"][original]
