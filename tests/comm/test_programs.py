"""The programs of ``examples/comm`` compute on ranks what NumPy computes without them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.compiler import require_compiler
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


def result_with_slots(
    name: str, cpus: int, slots: int, folder: Path, monkeypatch: pytest.MonkeyPatch, **numbers: int
) -> np.ndarray:
    """Return what an example has saved that ran on CPU ranks and slots on threads of the CPU."""
    require_compiler()
    monkeypatch.syspath_prepend(str(EXAMPLES))
    saved = folder / "result.npy"
    numbers |= {"cpus": cpus, "slots": slots, "threads": 2}
    words = [text for option, number in numbers.items() for text in (f"--{option}", str(number))]
    monkeypatch.setattr("sys.argv", ["slots.py", name, *words, "--emulated", "--save", str(saved)])
    runpy.run_path(str(EXAMPLES / "slots.py"), run_name="__main__")
    result: np.ndarray = np.load(saved)
    return result


def names_of(name: str) -> dict[str, Any]:
    """Return the functions of an example."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_a_message_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    echo = result_of("pingpong", 3, tmp_path, "--times", 2, "--bytes", 0, 70_000)
    np.testing.assert_array_equal(echo, np.arange(70_000).astype(np.uint8))


def test_a_slot_sends_a_message_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = result_with_slots("pingpong", 1, 2, tmp_path, monkeypatch, size=700, steps=2)
    np.testing.assert_array_equal(echo, np.arange(700).astype(np.uint8))


def escape_steps(height: int, width: int, limit: int) -> np.ndarray:
    """Return the picture of the Mandelbrot set."""
    y, x = np.mgrid[:height, :width]
    c = -2.2 + 3.0 * x / (width - 1) + 1j * (2.4 * y / height - 1.2)
    z, steps = np.zeros_like(c), np.full(c.shape, limit)
    for step in range(limit):
        z = np.where(np.abs(z) <= 2, z * z + c, z)
        steps[(np.abs(z) > 2) & (steps == limit)] = step
    return steps


def require_picture(found: np.ndarray, limit: int) -> None:
    assert (found == escape_steps(*found.shape, limit)).mean() > 0.99  # points on the border may fall to either side
    assert 0 < (found == limit).sum() < found.size


def test_the_picture_is_that_of_one_process(tmp_path: Path) -> None:
    require_picture(result_of("mandelbrot", 3, tmp_path, "--width", 40, "--height", 27, "--limit", 30), 30)


@pytest.mark.parametrize(("cpus", "slots"), [(1, 3), (2, 1)])
def test_slots_compute_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, slots: int) -> None:
    require_picture(result_with_slots("mandelbrot", cpus, slots, tmp_path, monkeypatch, size=37, steps=30), 30)


def test_the_product_is_that_of_numpy(tmp_path: Path) -> None:
    a, b = names_of("cannon")["matrices"](60)
    np.testing.assert_allclose(result_of("cannon", 4, tmp_path, "--n", 60), a @ b, atol=1e-11)


@pytest.mark.parametrize(("cpus", "slots"), [(1, 4), (3, 2)])
def test_slots_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, slots: int) -> None:
    a, b = names_of("cannon")["matrices"](60)
    found = result_with_slots("cannon", cpus, slots, tmp_path, monkeypatch, size=60)
    np.testing.assert_allclose(found, a @ b, atol=1e-11)


def moved(places: np.ndarray, steps: int) -> np.ndarray:
    """Return where bodies are after some steps."""
    speeds = np.zeros_like(places)
    for _ in range(steps):
        apart = places[None] - places[:, None]
        squares = (apart**2).sum(axis=2) + 0.01
        speeds += 0.001 * (apart / squares[..., None] ** 1.5).mean(axis=1)
        places = places + 0.001 * speeds
    return places


def test_bodies_move_as_under_newton(tmp_path: Path) -> None:
    found = result_of("nbody", 3, tmp_path, "--bodies", 50, "--steps", 3)
    np.testing.assert_allclose(found, moved(names_of("nbody")["bodies"](50), 3), atol=1e-13)


@pytest.mark.parametrize(("cpus", "slots"), [(1, 3), (2, 2)])
def test_slots_move_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, slots: int) -> None:
    found = result_with_slots("nbody", cpus, slots, tmp_path, monkeypatch, size=50, steps=3)
    np.testing.assert_allclose(found, moved(names_of("nbody")["bodies"](50), 3), atol=1e-13)
