"""Simulated particles: reproducible, and moved as the truth says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.apps.microscopy.simulate import simulate
from tartan.errors import ConfigError


def test_the_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        assert simulate(tmp_path / name, 3, seed) == tmp_path / name / "truth.json"
    contents = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in "abc"]
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["particles.json", "truth.json"]


@pytest.mark.parametrize("structure", ["lattice", "ring"])
def test_points_lie_at_the_sites_of_the_truth(structure: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"structure": structure, "density": 0.6, "localisations": 9, "sigma": 0.008, "stray": 4}
    truth = json.loads(simulate(tmp_path, 6, 1, **options).read_text())
    assert options.items() <= truth.items()
    sites = np.array(truth["sites"])
    particles = json.loads((tmp_path / "particles.json").read_text())["particles"]
    for particle, one in zip(particles, truth["particles"], strict=True):
        points, sigma = np.array(particle["points"]), np.array(particle["sigma"])
        assert sigma.min() > 0.005
        assert sigma.max() < 0.011
        cos, sin = np.cos(one["angle"]), np.sin(one["angle"])
        back = points @ np.array([[cos, sin], [-sin, cos]]) + one["translation"]
        distances = np.linalg.norm(back[:, None] - sites[None], axis=2).min(axis=1)
        assert distances[:-4].max() < 0.05
        assert np.sqrt(np.mean(distances[:-4] ** 2)) == pytest.approx(0.008 * np.sqrt(2), rel=0.25)
        assert 4 + 3 * 1 <= len(points) <= 4 + 30 * 30


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"density": 0}, "density: 0 must be above 0"),
        ({"density": 1.5}, "density: 1.5 must be above 0 and at most 1"),
        ({"sigma": -1}, "sigma: -1"),
        ({"localisations": 0}, "localisations: 0 must be 1 or more"),
        ({"stray": -1}, "stray: -1 must be 0 or more"),
        ({"structure": "cube"}, "structure: 'cube' is unknown; choose lattice or ring"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        simulate(tmp_path, 2, 1, **options)
