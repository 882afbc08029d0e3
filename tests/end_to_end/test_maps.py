"""Maps of a run: from Python, from the command line, and when they are stopped on the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from whole_program import Command

import tartan
from tartan.analytics import Monitor
from tartan.apps.vectors import Vectors
from tartan.view.coordinates import read_coordinates

POINTS = np.random.default_rng(5).normal(size=(40, 3))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps") / "points.tartan"
    tartan.allpairs(Vectors(metric="euclidean"), POINTS, out=folder)
    return folder


def test_a_run_becomes_a_map_with_its_distances(folder: Path) -> None:
    found = tartan.open(folder).embed("smacof", random_state=0)
    np.testing.assert_allclose(pdist(found.points), pdist(POINTS), atol=1e-2)
    assert list(found.keys) == list(tartan.open(folder).keys)


@pytest.mark.parametrize("name", ["flat", "flat.tsv", "flat.html"])
def test_the_command_maps_a_run_folder(name: str, folder: Path, tmp_path: Path, command: Command) -> None:
    density = tmp_path / "pairs.png"
    done = command("embed", folder, "--dim", "2", "-o", tmp_path / name, "--density", density, "--json", "--quiet")
    assert done.status == 0, done.err
    assert {path.name for path in tmp_path.iterdir()} == {"flat.tsv", "flat.png", "flat.html", "pairs.png"}
    assert [Path(file).suffix for file in json.loads(done.out)["files"]] == [".tsv", ".png", ".html", ".png"]
    assert density.read_bytes().startswith(b"\x89PNG")
    assert read_coordinates(tmp_path / "flat.tsv").points.shape == (40, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", ["damds", "lmmds"])
def test_a_stopped_map_goes_on_to_the_same_end(
    method: str, number: signal.Signals, folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(name: str) -> tuple[Any, ...]:
        return ("embed", folder, "--method", method, "-o", tmp_path / name, "--quiet", "--checkpoint", checkpoint)

    checkpoint, saves, save = tmp_path / "checkpoint.npz", [], Monitor.save
    assert command(*words("whole")).status == 0

    def signalled(monitor: Monitor, state: Any) -> None:
        save(monitor, state)
        saves.append(1)
        if len(saves) == 3:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Monitor, "save", signalled)
    stopped = command(*words("part"))
    assert stopped.status == 128 + number
    assert str(checkpoint) in stopped.err
    assert len(saves) == 3
    assert not (tmp_path / "part.tsv").exists()
    assert checkpoint.exists()
    assert command(*words("part")).status == 0
    assert not checkpoint.exists()
    whole, part = (read_coordinates(tmp_path / f"{name}.tsv").points for name in ("whole", "part"))
    np.testing.assert_array_equal(whole, part)
