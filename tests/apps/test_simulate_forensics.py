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
from tartan.apps.forensics.sensors import demosaic
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
        assert photo.std() > (2 if name in known["flat"] else 4)
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


def test_small_photos_separate_where_patterns_are_strong(tmp_path: Path) -> None:
    found, expected = grouped(tmp_path, simulate(tmp_path, 8, 5, cameras=2, size=192, flats=1, prnu=0.04))
    assert found == expected


@pytest.mark.slow
def test_flat_photos_of_real_strength_separate(tmp_path: Path) -> None:
    found, expected = grouped(tmp_path, simulate(tmp_path, 16, 6, flats=1))
    assert found == expected
    assert max(expected) == 3


def test_without_sensor_noise_nothing_is_found(tmp_path: Path) -> None:
    found, _ = grouped(tmp_path, simulate(tmp_path, 8, 5, cameras=2, size=192, prnu=0))
    assert found == list(range(8))


@pytest.mark.exhaustive
def test_patterns_are_as_strong_as_real_ones(tmp_path: Path) -> None:
    """NCC of 24 photos within bounds of real ones of 6 megapixels (docs/forensics-photos.md); chance adds 0.0014."""
    known = json.loads(simulate(tmp_path, 24, 7, cameras=4, size="1000x1504", flats=0.5).read_text())
    app = Forensics(score="pce")
    names = sorted(known["cameras"])
    tile = np.stack([app.preprocess(app.parse(k, (tmp_path / k).read_bytes()), np) for k in names])
    ncc = app.compare(tile, tile, np)["ncc"]
    owners, flat = np.array([known["cameras"][k] for k in names]), np.isin(names, known["flat"])
    assert Counter(owners[flat].tolist()) == dict.fromkeys(sorted(set(owners)), 3)
    same = (owners[:, None] == owners) & ~np.eye(24, dtype=bool)
    flats = flat[:, None] & flat
    assert 0.009 < ncc[same & flats].min() < ncc[same & flats].max() < 0.045
    assert 0.012 < np.median(ncc[same & flats]) < 0.036
    mixed = flat[:, None] & ~flat
    assert -0.002 < ncc[same & mixed].min() < ncc[same & mixed].max() < 0.024
    assert 0.003 < np.median(ncc[same & mixed]) < 0.010
    assert 0.0005 < np.mean(ncc[same & ~flat[:, None] & ~flat]) < 0.006
    other = ncc[owners[:, None] != owners]
    assert np.abs(other).max() < 0.0075
    assert 0.0009 < other.std() < 0.0018
    assert 0.0002 < ncc[(owners[:, None] != owners) & flats].mean() < 0.0015  # of six pairs of drawn cameras


def test_the_first_photos_of_each_camera_are_flat_and_models_have_sizes(tmp_path: Path) -> None:
    known = json.loads(simulate(tmp_path, 12, 2, cameras=3, flats=0.5, size="32x48,40x64").read_text())
    assert known["size"] == [[32, 48], [40, 64]]
    assert known["models"] == 2
    for camera in ("camera-1", "camera-2", "camera-3"):
        names = [name for name in sorted(known["cameras"]) if known["cameras"][name] == camera]
        assert [name in known["flat"] for name in names] == [True, True, False, False]
        wanted = (40, 64, 3) if camera == "camera-2" else (32, 48, 3)
        assert {simplejpeg.decode_jpeg((tmp_path / name).read_bytes()).shape for name in names} == {wanted}


@pytest.mark.slow
def test_cameras_of_a_model_share_a_faint_pattern(tmp_path: Path) -> None:
    """Of sister cameras the mean NCC of flat photos is above chance, of cameras of two models it is not."""
    known = json.loads(simulate(tmp_path, 32, 3, cameras=4, models=2, flats=1, prnu=0.06, size=512).read_text())
    app = Forensics()
    names = sorted(known["cameras"])
    tile = np.stack([app.preprocess(app.parse(k, (tmp_path / k).read_bytes()), np) for k in names])
    ncc = app.compare(tile, tile, np)
    owners = np.array([int(known["cameras"][name][-1]) for name in names])
    sisters = (owners[:, None] % 2 == owners % 2) & (owners[:, None] != owners)
    strangers = owners[:, None] % 2 != owners % 2
    assert ncc[sisters].mean() > 4 * abs(ncc[strangers].mean())


def test_colours_are_those_of_the_nearest_pixels() -> None:
    """Against a loop over pixels that knows nothing of slices; sides are mirrored about their last pixels."""
    mosaic = np.random.default_rng(1).integers(0, 4096, (7, 10)).astype(np.uint16)
    found = demosaic(mosaic)
    colour_of = {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 2}
    for y in range(7):
        for x in range(10):
            for colour in range(3):
                around = [(y + a, x + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
                if colour_of[y % 2, x % 2] == colour:
                    wanted = int(mosaic[y, x])
                else:
                    near = [(r if 0 <= r < 7 else 2 * y - r, c if 0 <= c < 10 else 2 * x - c) for r, c in around]
                    have = [int(mosaic[r, c]) for r, c in near if colour_of[r % 2, c % 2] == colour]
                    wanted = sum(have) // len(have)
                assert found[y, x, colour] == wanted


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {}, "n: 0"),
        (2, {"cameras": 0}, "cameras: 0"),
        (2, {"quality": 101}, "quality: 101"),
        (2, {"prnu": -0.1}, "prnu: -0.1"),
        (2, {"prnu": "much"}, "prnu: 'much'"),
        (2, {"size": "small"}, "size: 'small'"),
        (2, {"size": "64,small"}, "size: 'small'"),
        (2, {"flats": 1.5}, "flats: 1.5"),
        (2, {"flats": float("nan")}, "flats: nan"),
        (2, {"models": 0}, "models: 0"),
        (2, {"models": "two"}, "models: 'two'"),
        (9, {"hard": True, "size": "64,32"}, "size: '64,32' are several"),
        (2, {"size": 8}, "size: 8"),
    ],
)
def test_options_out_of_range(tmp_path: Path, n: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(tmp_path / "photos", n, 1, **options)
    assert not (tmp_path / "photos").exists()
