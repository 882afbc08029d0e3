"""The best motion is found every time: against a search that looks everywhere, on particles hard to register."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.exhaustive_registration import KINDS, hard_particles, read_particles, score, search
from tartan import _native

SEED = 7


def ratios(
    particles: list[NDArray[np.float64]], pairs: list[tuple[int, int]], angle_step: float = 0.02
) -> NDArray[np.float64]:
    """Return B over the best B of pairs."""
    wanted = np.zeros((len(particles), len(particles)), bool)
    wanted[tuple(np.transpose(pairs))] = True
    found = _native.microscopy_register(particles, particles, wanted)
    return np.array([found[i, j, 0] / search(particles[i], particles[j], angle_step)[0] for i, j in pairs])


@pytest.mark.exhaustive
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "pairs"),
    [("half", [(2, 3), (4, 6)]), ("sparse", [(2, 3), (4, 9)]), ("clipped", [(3, 6), (3, 9)]), ("astray", [(1, 8)])],
)
def test_hard_pairs_are_registered_at_their_best(kind: str, pairs: list[tuple[int, int]], tmp_path: Path) -> None:
    """Of these pairs a search from many angles with both centroids on each other found 0.66 to 0.81 of the best B."""
    particles = hard_particles(kind, 10, SEED, tmp_path)
    assert (ratios(particles, pairs, 0.04) >= 0.999).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_all_pairs_of_a_kind_are_registered_at_their_best(kind: str, tmp_path: Path) -> None:
    particles = hard_particles(kind, 10, SEED, tmp_path)
    assert (ratios(particles, list(combinations(range(10), 2))) >= 0.999).mean() >= 0.99


@pytest.mark.exhaustive
def test_published_particles_are_registered_at_their_best(shared_data: Path) -> None:
    particles = read_particles(shared_data / "particles" / "tud_dol30.mat", 400)[::40]
    assert (ratios(particles, list(combinations(range(10), 2))) >= 0.999).mean() >= 0.99


def test_the_search_that_looks_everywhere_finds_a_known_motion() -> None:
    """A particle onto itself moved: B is that of a particle with itself, at the motion."""
    rng = np.random.default_rng(3)
    points = np.column_stack([rng.uniform(-1, 1, (12, 2)), np.full(12, 0.1)])
    cos, sin = np.cos(1.1), np.sin(1.1)
    moved = points.copy()
    moved[:, :2] = points[:, :2] @ np.array([[cos, sin], [-sin, cos]]) + [3, -2]
    best, motion = search(points, moved, angle_step=0.1)
    assert best == pytest.approx(score(np.zeros(3), points, points))
    np.testing.assert_allclose(motion, [3, -2, 1.1], atol=1e-4)
