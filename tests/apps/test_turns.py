"""Two photos on each other: all turns, all shifts."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

import tartan
from tartan.apps.forensics.app import Forensics
from tartan.apps.forensics.turns import TURNS, find_best_turn, turn_photo

SENSOR = 1 + 0.03 * np.random.default_rng(0).standard_normal((150, 200))


def take(seed: int, sensor: np.ndarray = SENSOR) -> np.ndarray:
    rng = np.random.default_rng(seed)
    light = 120 + 60 * np.sin(np.linspace(0, rng.uniform(2, 9), sensor.shape[1]))[None, :]
    return ((light * sensor + rng.standard_normal(sensor.shape)) * 257).astype(np.uint16)


@pytest.mark.parametrize("turn", TURNS)
def test_every_turn_is_undone(turn: str) -> None:
    first, second = take(1), take(2)
    back = {"turned left": "turned right", "turned right": "turned left"}.get(turn, turn)
    found = find_best_turn(first, turn_photo(second, turn))
    assert (found.turn, found.row, found.column) == (back, 0, 0)
    assert found.chance < 1e-20
    np.testing.assert_array_equal(turn_photo(turn_photo(second, turn), back), second)


def test_crops_of_other_sizes_are_found_where_they_lay() -> None:
    found = find_best_turn(take(1), turn_photo(take(2)[30:120, 17:161], "turned left"))
    assert (found.turn, found.row, found.column) == ("turned right", 30, 17)
    assert found.pce > 500


def test_other_cameras_lie_on_each_other_nowhere() -> None:
    other = 1 + 0.03 * np.random.default_rng(9).standard_normal((150, 200))
    assert find_best_turn(take(1), take(2, other)).chance > 1e-3


def test_show_says_the_turn(tmp_path, capsys) -> None:
    from tartan.cli.main import main

    rng = np.random.default_rng(5)
    photos = [np.clip(take(seed) / 257 + rng.random(SENSOR.shape) - 0.5, 0, 255).astype(np.uint8) for seed in (1, 2)]
    for name, photo in (("a", photos[0]), ("b", turn_photo(photos[1], "turned by half a circle"))):
        Image.fromarray(photo).save(tmp_path / f"{name}.png")
    files = [str(tmp_path / f"{name}.png") for name in "ab"]
    tartan.allpairs(Forensics(score="pce"), files, tmp_path / "run", quiet=True)
    assert main(["show", str(tmp_path / "run"), "a.png", "b.png"]) == 0
    assert "best turn and shift: turned by half a circle, 0 down, 0 right: PCE" in capsys.readouterr().out


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_exif_is_said_as_it_is_shown(orientation: int) -> None:
    photo = np.arange(16 * 20, dtype=np.uint8).reshape(16, 20)
    exif = Image.Exif()
    exif[274] = orientation
    stream = io.BytesIO()
    Image.fromarray(photo).save(stream, "PNG", exif=exif)
    about = Forensics().describe_item("a.png", stream.getvalue())
    shown = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(stream.getvalue()))))
    named = [name for name in TURNS if np.array_equal(turn_photo(photo, name), shown)]
    assert about.get("shown", "as it is, says its EXIF; compared as it lies") == (
        f"{named[0]}, says its EXIF; compared as it lies"
    )
    assert about["photo"].shape[:2] == (16, 20)
