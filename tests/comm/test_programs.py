"""The programs of ``examples/comm`` compute on ranks what NumPy computes without them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.cli.main import main

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples" / "comm"


def result_of(name: str, n_ranks: int, folder: Path, *words: object) -> np.ndarray:
    """Return what an example has saved, after ``tartan ranks``."""
    saved = folder / "result.npy"
    script = [str(EXAMPLES / f"{name}.py"), *map(str, words), "--save", str(saved)]
    assert main(["ranks", "--cpus", str(n_ranks), *script]) == 0
    result: np.ndarray = np.load(saved)
    return result


def names_of(name: str) -> dict[str, Any]:
    """Return the functions of an example."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_a_message_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    echo = result_of("pingpong", 3, tmp_path, "--times", 2, "--bytes", 0, 70_000)
    np.testing.assert_array_equal(echo, np.arange(70_000).astype(np.uint8))


def test_the_picture_is_that_of_one_process(tmp_path: Path) -> None:
    found = result_of("mandelbrot", 3, tmp_path, "--width", 40, "--height", 27, "--limit", 30)
    y, x = np.mgrid[:27, :40]
    c = -2.2 + 3.0 * x / 39 + 1j * (2.4 * y / 27 - 1.2)
    z, expected = np.zeros_like(c), np.full(c.shape, 30)
    for step in range(30):
        z = np.where(np.abs(z) <= 2, z * z + c, z)
        expected[(np.abs(z) > 2) & (expected == 30)] = step
    assert (found == expected).mean() > 0.99  # points on the border may fall to either side
    assert 0 < (found == 30).sum() < found.size


def test_the_product_is_that_of_numpy(tmp_path: Path) -> None:
    a, b = names_of("cannon")["matrices"](60)
    np.testing.assert_allclose(result_of("cannon", 4, tmp_path, "--n", 60), a @ b, atol=1e-11)


def test_bodies_move_as_under_newton(tmp_path: Path) -> None:
    found = result_of("nbody", 3, tmp_path, "--bodies", 50, "--steps", 3)
    places = names_of("nbody")["bodies"](50)
    speeds = np.zeros_like(places)
    for _ in range(3):
        apart = places[None] - places[:, None]
        squares = (apart**2).sum(axis=2) + 0.01
        speeds += 0.001 * (apart / squares[..., None] ** 1.5).mean(axis=1)
        places = places + 0.001 * speeds
    np.testing.assert_allclose(found, places, atol=1e-13)
