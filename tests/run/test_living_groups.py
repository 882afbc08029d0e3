"""Runs whose items are groups of files: groups go, come and are replaced, their files too."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan

pytestmark = pytest.mark.slow
NAMES = [f"g{at:02}" for at in range(11)]


class Total(tartan.Application):
    """The product of sums of numbers."""

    releases_gil = True

    def parse(self, key: str, data: Any) -> Any:
        return np.array([float(data)])

    def group(self, key: str, files: Sequence[tuple[str, bytes]]) -> Any:
        return np.array([sum(float(data) for _, data in files)])

    def compare_pair(self, a: Any, b: Any) -> float:
        return float(a[0] * b[0])


WAYS: dict[str, Any] = {"app": Total(), "workers": 1, "quiet": True}


class World:
    """Folders of two files each, and what is to come out."""

    def __init__(self, place: Path, reduce: Any = None) -> None:
        self.place, self.chance, self.totals = place, np.random.default_rng(2), {}
        folders = [self.write(name) for name in NAMES]
        self.run = place / "run.tartan"
        ways = {"reduce": reduce, "tile": 4, "workers": 1, "quiet": True}
        tartan.allpairs(Total(), folders, group="folders", out=self.run, **ways)

    def write(self, name: str) -> str:
        folder = self.place / "in" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        values = self.chance.integers(1, 99, size=2).tolist()
        for at, value in enumerate(values):
            (folder / f"{name}-{at}.txt").write_text(str(value))
        self.totals[name] = float(sum(values))
        return str(folder)

    def check(self, run: Any, names: Sequence[str]) -> None:
        totals = np.array([self.totals[name] for name in names])
        expected = np.outer(totals, totals)
        np.fill_diagonal(expected, np.nan)
        found = np.array(run.matrix())
        np.fill_diagonal(found, np.nan)
        np.testing.assert_equal(found, expected)
        assert list(run.keys) == list(names)
        assert run.finished


def test_groups_go_come_and_change(tmp_path: Path) -> None:
    world = World(tmp_path)
    left = [name for name in NAMES if name not in ("g02", "g05")]
    world.check(tartan.remove(world.run, ["g02", "g05"]), left)
    shutil.rmtree(tmp_path / "in" / "g02")
    (tmp_path / "in" / "g05" / "g05-0.txt").unlink()
    world.check(tartan.add(world.run, [world.write("h00")], **WAYS), [*left, "h00"])
    world.check(tartan.replace(world.run, "g03", world.write("g03"), **WAYS), [*left, "h00"])
    tartan.remove(world.run, ["h00"])
    shutil.rmtree(tmp_path / "in" / "h00")  # all that was added at once
    run = tartan.add(world.run, [world.write("h01")], **WAYS)
    world.check(run, [*left, "h01"])
    assert tartan.rename(world.run, "h01", "new").keys[-1] == "new"
    tartan.expire(world.run, now=True)
    data = b"".join(file.read_bytes() for file in world.run.rglob("*") if file.is_file())
    assert not [word for word in (b"g02", b"g05", b"h00") if word in data]
    assert b"g04-1.txt" in data
    world.totals["new"] = world.totals["h01"]
    world.check(tartan.open(world.run), [*left, "new"])
    world.check(tartan.add(world.run, [world.write("h02")], **WAYS), [*left, "new", "h02"])


def test_best_of_groups_are_compared_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"kind": "top-k", "k": 2, "largest": True})
    large = sorted(NAMES, key=lambda name: world.totals[name])[-1]
    run = tartan.remove(world.run, [large])
    shutil.rmtree(tmp_path / "in" / large)
    assert run.n_pairs_left > 0
    run = tartan.resume(world.run, **WAYS)
    names = [name for name in NAMES if name != large]
    totals = np.array([world.totals[name] for name in names])
    scores = np.outer(totals, totals)
    np.fill_diagonal(scores, -1)
    np.testing.assert_equal(run.neighbors(2, largest=True)[1], -np.sort(-scores, axis=1)[:, :2])
