"""A closer look at photos: what it returns, of which photos, and in which runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tartan
from tartan.apps.forensics.app import Forensics
from tartan.apps.forensics.closely import look_closely
from tartan.apps.forensics.prnu import spectrum_shape
from tartan.errors import ConfigError


def draw_grey(seed: int, height: int = 64, width: int = 80) -> np.ndarray:
    """Return grey noise in units of 1/257, of which a quarter is white."""
    grey = np.random.default_rng(seed).integers(60, 180, (height, width)).astype(np.uint16) * 257
    grey[: height // 2, : width // 2] = 255 * 257
    return grey


@pytest.mark.parametrize("width", [80, 81])
def test_the_tested_pattern_is_flat_and_the_added_one_of_length_1(width: int) -> None:
    tested, added = look_closely(draw_grey(1, width=width))
    assert tested.shape == added.shape == spectrum_shape(64, width)
    assert np.linalg.norm(added) == pytest.approx(1, abs=1e-5)
    power = (tested.reshape(2, 64, -1).astype(np.float64) ** 2).sum(axis=0)[2:7, 3:8]  # between what repeats in blocks
    whole = (tested.astype(np.float64) ** 2).sum()
    assert power.mean() == pytest.approx(whole / (64 * (width // 2 + 1)), rel=1.0)


def test_dark_photos_are_less_clear() -> None:
    grey = draw_grey(2)[32:]
    clear, dark = (float(np.linalg.norm(look_closely(one)[0])) for one in (grey, grey - np.uint16(50 * 257)))
    assert dark == pytest.approx(clear * 70 / 120, rel=0.1)  # as the light is


def test_photos_whose_half_turn_is_not_known_have_none() -> None:
    app = Forensics()
    assert app.look_closely(draw_grey(3)[None]) is None
    assert app.look_closely(draw_grey(3)) is not None


@pytest.mark.slow
def test_runs_open_their_photos(tmp_path: Path) -> None:
    for at in range(3):
        Image.fromarray((draw_grey(at) // 257).astype(np.uint8)).save(tmp_path / f"{at}.png")
    app = Forensics()
    run = tartan.allpairs(app, str(tmp_path / "*.png"), tmp_path / "run", workers=1, quiet=True)
    for opened in (run, tartan.open(tmp_path / "run")):
        found = opened.look_closely(1)
        expected = app.look_closely(app.parse("1.png", (tmp_path / "1.png").read_bytes()))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    (tmp_path / "run" / "seal.json").unlink()
    with pytest.raises(ConfigError, match=r"was not made by this user on this machine; .* --trust` opens its items"):
        tartan.open(tmp_path / "run").look_closely(1)
    turns = tartan.allpairs(Forensics(turns="all"), str(tmp_path / "*.png"), tmp_path / "all", workers=1, quiet=True)
    assert turns.look_closely is None
