"""Simulated photos: real JPEGs, known truth, found again by the application."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from tartan.apps.forensics.app import Forensics, cameras
from tartan.apps.forensics.simulate import simulate
from tartan.errors import ConfigError


def contents(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in sorted(folder.iterdir())}


def grouped(folder: Path, truth: Path) -> tuple[list[int], list[int]]:
    """Cameras that the application finds, and the true ones, both numbered by appearance."""
    owners = json.loads(truth.read_text())["cameras"]
    app = Forensics()
    tile = np.stack([app.preprocess(app.parse(k, (folder / k).read_bytes()), np) for k in sorted(owners)])
    order: dict[str, int] = {}
    expected = [order.setdefault(owners[k], len(order)) for k in sorted(owners)]
    return cameras(app.compare(tile, tile, np), n_pixels=tile[0].size).tolist(), expected


def test_photos_are_jpegs_of_the_size_asked_for(tmp_path: Path) -> None:
    truth = simulate(tmp_path / "new" / "photos", 6, 1, cameras=2, size="48x64")
    assert truth == tmp_path / "new" / "photos" / "truth.json"
    known = json.loads(truth.read_text())
    assert Counter(known["cameras"].values()) == {"camera-1": 3, "camera-2": 3}
    assert sorted(known["cameras"]) == sorted(f.name for f in truth.parent.glob("*.jpg"))
    for name in known["cameras"]:
        photo = simplejpeg.decode_jpeg((truth.parent / name).read_bytes())
        assert photo.shape == (48, 64, 3)
        assert 30 < photo.mean() < 230
        assert photo.std() > 5
        assert np.mean((photo == 0) | (photo == 255)) < 0.2


def test_the_seed_decides(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        simulate(tmp_path / folder, 5, seed, cameras=2, size=32)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


def test_no_scene_occurs_twice(tmp_path: Path) -> None:
    simulate(tmp_path, 8, 3, cameras=1, size=32, prnu=0)
    assert len(set(contents(tmp_path).values())) == 9


@pytest.mark.parametrize("size", [16, (16, 40), "300x20", [33, 17]])
def test_every_scene_fits_every_size(tmp_path: Path, size: Any) -> None:
    simulate(tmp_path, 12, 4, size=size)
    assert len(list(tmp_path.glob("*.jpg"))) == 12


def test_small_photos_separate(tmp_path: Path) -> None:
    found, expected = grouped(tmp_path, simulate(tmp_path, 8, 5, cameras=2, size=192))
    assert found == expected


@pytest.mark.slow
def test_default_photos_separate(tmp_path: Path) -> None:
    found, expected = grouped(tmp_path, simulate(tmp_path, 24, 6))
    assert found == expected
    assert max(expected) == 3


def test_without_sensor_noise_nothing_is_found(tmp_path: Path) -> None:
    found, _ = grouped(tmp_path, simulate(tmp_path, 8, 5, cameras=2, size=192, prnu=0))
    assert found == list(range(8))


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {}, "n: 0"),
        (2, {"cameras": 0}, "cameras: 0"),
        (2, {"quality": 101}, "quality: 101"),
        (2, {"prnu": -0.1}, "prnu: -0.1"),
        (2, {"prnu": "much"}, "prnu: 'much'"),
        (2, {"size": "small"}, "size: 'small'"),
        (2, {"size": 8}, "size: 8"),
    ],
)
def test_options_out_of_range(tmp_path: Path, n: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(tmp_path / "photos", n, 1, **options)
    assert not (tmp_path / "photos").exists()
