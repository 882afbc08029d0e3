"""Pictures of fused particles: y downwards, a scale bar that is as long as it says, axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tartan.apps.microscopy.points import describe_particle
from tartan.view.particle_image import draw_density, frame_of, round_length, save_particle_image


def test_y_points_downwards_and_x_to_the_right() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])  # none at the largest x and y
    bright = draw_density(points, np.array([-5.0, -5.0]), 20.0, 40).sum(axis=2, dtype=np.int64)
    assert bright[10, 10] > bright[30, 30]
    assert bright[10, 30] > bright[30, 30]
    assert bright[30, 10] > bright[30, 30]
    cloud = np.column_stack([points, np.full(3, 0.1)])
    density = describe_particle(cloud, 100)["density"]
    assert density[0, 0] == density[0, -1] == density[-1, 0] == 1
    assert density[-1, -1] == 0


@pytest.mark.parametrize(
    ("most", "length"), [(0.13, 0.1), (0.2, 0.2), (0.49, 0.2), (5.0, 5.0), (99.0, 50.0), (1e-9, 1e-9)]
)
def test_lengths_are_round(most: float, length: float) -> None:
    assert round_length(most) == pytest.approx(length)


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.5, 130.0, 4e4])
def test_the_bar_is_as_long_as_it_says(width: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    points = rng.uniform(0, 0.2, (500, 2)) * width
    points = np.concatenate([points, points + 0.8 * width * np.array([1, 0])])  # dark where the bar is
    save_particle_image(tmp_path / "a.png", points, [points[:100]])
    picture = np.asarray(Image.open(tmp_path / "a.png"))[:, :, :3].astype(int)
    drawn = frame_of(points)[1]
    large = picture[:480, 52:532]
    row = np.flatnonzero((large[466] == 255).all(axis=1))
    assert np.ptp(row) + 1 == len(row)
    assert len(row) == pytest.approx(round_length(0.2 * drawn) / drawn * 480, abs=1)
    assert (picture[485:500, 52:532].sum(axis=2) < 400).any()  # numbers below
    assert (picture[:480, :46].sum(axis=2) < 400).any()  # and at the left
