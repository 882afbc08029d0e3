"""Arrays that describe an item, as PNG."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tartan.errors import ConfigError
from tartan.view.live import draw_array


def drawn(array: Any) -> Image.Image:
    return Image.open(io.BytesIO(draw_array(np.asarray(array))))


def test_a_line_follows_its_values() -> None:
    picture = np.asarray(drawn(np.concatenate([np.zeros(3000), np.ones(3000)])))
    assert picture.shape == (240, 640, 4)
    inked = (picture[..., 3] > 200) & (picture[..., 1] > picture[..., 0] + 40)
    heights = [np.flatnonzero(inked[:, column]).mean() for column in (100, 500)]
    assert heights[0] > 220
    assert heights[1] < 20


@pytest.mark.parametrize("values", [[3.0], [np.nan, np.nan], [np.nan, 1.0, np.inf], [0, 0], [1 + 1j, 2]])
def test_any_line_can_be_drawn(values: list[float]) -> None:
    assert drawn(values).size == (640, 240)


def test_pictures_are_shrunk() -> None:
    grey = np.asarray(drawn(np.arange(3000 * 1500, dtype=np.float32).reshape(3000, 1500)).convert("L"))
    assert max(grey.shape) <= 640
    assert grey[0, 0] < grey[-1, -1]
    colour = drawn(np.full((900, 700, 3), (10, 200, 30), np.uint8))
    assert max(colour.size) == 640
    assert colour.getpixel((5, 5)) == (10, 200, 30)


@pytest.mark.parametrize(
    "array", [np.zeros(0), np.array(["text"]), np.zeros((2, 2, 2, 2)), np.zeros((4, 4, 3)), np.array([b"private"])]
)
def test_what_cannot_be_drawn_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="cannot be drawn"):
        draw_array(array)
