"""Maps of a run: from Python, from the command line, and when they are stopped on the way."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.distance import pdist
from whole_program import APPLICATIONS, Command, Numbers

import tartan
from tartan.analytics import Monitor
from tartan.apps.vectors.app import Vectors
from tartan.errors import RunCancelledError
from tartan.run.session import RunSession
from tartan.store.folder import RunFolder
from tartan.store.maps import FILE_NAME
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


PROTEOMES = Path(__file__).resolve().parents[3] / "shared" / "data" / "proteomes"


@pytest.mark.exhaustive
def test_real_proteomes_added_to_a_run_are_placed_on_its_map(tmp_path: Path, command: Command) -> None:
    """Six genomes are compared and mapped; two more are added, and the picture shows them."""
    if not PROTEOMES.is_dir():
        pytest.skip(f"there is no {PROTEOMES}")
    genomes = sorted(PROTEOMES.glob("*.gz"))
    run, base = tmp_path / "bact.tartan", tmp_path / "bact"
    assert command("run", "phylogeny", *genomes[:6], "-o", run, "--quiet").status == 0
    assert command("embed", run, "-o", base, "--dim", 2).status == 0
    before = read_coordinates(f"{base}.tsv")
    done = command("add", run, *genomes[6:], "--json")
    assert done.status == 0
    assert "map: 2 new placed, 2 in all, on the map of 6 items" in done.err
    said = json.loads(done.out)["map"]
    assert (said["n_fitted"], said["n_placed"], said["without_place"]) == (6, 2, [])
    assert 0 < said["stress_fitted"] < said["stress_placed"] < 0.5
    assert command("embed", run, "--extend", "--overwrite", "-o", base, "--density", tmp_path / "pairs.png").status == 0
    after = read_coordinates(f"{base}.tsv")
    assert after.keys == tuple(genome.name for genome in genomes)
    np.testing.assert_array_equal(after.points[:6], before.points)
    assert np.isfinite(after.points).all()
    page = Path(f"{base}.html").read_text()
    assert '"label":"placed later"' in page
    picture = np.asarray(Image.open(f"{base}.png"))
    assert (picture == (230, 159, 0)).all(axis=2).any()  # the colour of the second kind of points


def mapped(numbers: Numbers, tmp_path: Path, command: Command) -> Path:
    """Return a run of eight numbers that keeps a map."""
    run = tmp_path / "run"
    assert command("run", f"{APPLICATIONS}:Distances", numbers(8), "-o", run, "--quiet").status == 0
    assert command("embed", run, "-o", tmp_path / "m", "--dim", 1, "--method", "smacof", "--quiet").status == 0
    assert json.loads(command("info", run, "--json").out)["map"]["n_fitted"] == 8
    return run


def grown(numbers: Numbers, tmp_path: Path, command: Command, *words: object) -> tuple[Path, Any]:
    """Return a run of eight numbers that keeps a map, after two more were added."""
    run = mapped(numbers, tmp_path, command)
    return run, command("add", run, numbers(2, "new", 8), *words)


def test_new_numbers_lie_where_they_must(numbers: Numbers, tmp_path: Path, command: Command) -> None:
    run, done = grown(numbers, tmp_path, command)
    assert done.status == 0, done.err
    assert "--extend --overwrite` writes coordinates and pictures" in done.err
    found = tartan.open(run).map
    assert found is not None
    np.testing.assert_allclose(np.abs(np.diff(found.points[:, 0])), 1.0, atol=1e-3)


def test_python_adds_as_the_command_does(
    numbers: Numbers, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scores, the same map, and the same words where the map cannot be extended."""
    first, new = mapped(numbers, tmp_path, command), numbers(2, "new", 8)
    copies = {name: Path(shutil.copytree(first, tmp_path / name)) for name in ("by-hand", "failing", "failing-by-hand")}
    assert command("add", first, new, "--quiet").status == 0
    one, other = tartan.open(first), tartan.add(copies["by-hand"], new, trust=True, quiet=True)
    np.testing.assert_array_equal(one.matrix(), other.matrix())
    assert one.map is not None
    assert other.map is not None
    np.testing.assert_array_equal(one.map.points, other.map.points)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(tartan.Run, "extend_map", broken)
    done = command("add", copies["failing"], new, "--trust", "--json")
    with pytest.warns(RuntimeWarning) as warned:
        tartan.add(copies["failing-by-hand"], new, trust=True, quiet=True)
    problem = json.loads(done.out)["map"]["error"]
    assert problem == "ZeroDivisionError: a defect"
    assert f"its map was not extended: {problem};" in str(warned[0].message)


def test_the_map_is_left_alone_when_asked_and_extended_by_hand(
    numbers: Numbers, tmp_path: Path, command: Command
) -> None:
    run, done = grown(numbers, tmp_path, command, "--no-map", "--json")
    assert done.status == 0
    assert json.loads(done.out)["map"] is None
    assert len(tartan.open(run).map or ()) == 8
    assert "map: 2 of 10 items are not on it yet" in command("resume", run).err
    done = command("embed", run, "--extend", "--overwrite", "-o", tmp_path / "m", "--json", "--quiet")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out)["map"]["n_missing"] == 0
    assert read_coordinates(tmp_path / "m.tsv").points.shape == (10, 1)
    assert "are not on it yet" not in command("resume", run).err


@pytest.mark.parametrize("damage", ["file", "defect"])
def test_a_map_that_fails_costs_no_score(
    damage: str, numbers: Numbers, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    def damaged(self: Any, *_: Any) -> Any:
        (self.path / FILE_NAME).write_bytes(b"rubbish")
        return extend(self)

    extend = tartan.Run.extend_map
    monkeypatch.setattr(tartan.Run, "extend_map", {"file": damaged, "defect": broken}[damage])
    run, done = grown(numbers, tmp_path, command)
    assert done.status == 0
    assert "warning: the map was not extended, all scores are there: " in done.err
    assert {"file": "cannot be read as a map", "defect": "ZeroDivisionError: a defect"}[damage] in done.err
    assert f"tartan embed {shlex.quote(str(run))} --extend --overwrite` places the new items" in done.err
    assert tartan.open(run).n_pairs_done == 45


def test_ctrl_c_while_items_are_placed(
    numbers: Numbers, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(self: Any, monitor: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return extend(self, monitor)

    extend = tartan.Run.extend_map
    monkeypatch.setattr(tartan.Run, "extend_map", signalled)
    run, done = grown(numbers, tmp_path, command)
    assert done.status == 130
    assert "stopped while new items were placed on the map; all scores are there" in done.err
    monkeypatch.undo()
    assert tartan.open(run).n_pairs_done == 45
    assert len(tartan.open(run).extend_map()) == 10


def test_items_of_an_interrupted_add_are_placed_after_resume(
    numbers: Numbers, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: Any, folder: Any) -> None:
        raise RunCancelledError("stopped", context={"signal": signal.SIGTERM})

    with monkeypatch.context() as patched:
        run = tmp_path / "run"
        command("run", f"{APPLICATIONS}:Distances", numbers(8), "-o", run, "--quiet")
        command("embed", run, "-o", tmp_path / "m", "--dim", 1, "--method", "smacof", "--quiet")
        patched.setattr(RunSession, "execute", stopped)
        done = command("add", run, numbers(2, "new", 8))
        assert done.status == 143
    assert tartan.open(run).n_items == 10
    done = command("embed", run, "--extend", "--overwrite", "-o", tmp_path / "m")
    assert done.status == 2
    assert f"is not finished, 17 pairs are to be computed; `tartan resume {run}` does that" in done.err
    assert "map: 2 of 10 items are not on it yet" in command("resume", run).err
    assert command("embed", run, "--extend", "--overwrite", "-o", tmp_path / "m").status == 0
    np.testing.assert_allclose(np.abs(np.diff(read_coordinates(tmp_path / "m.tsv").points[:, 0])), 1.0, atol=1e-3)


def test_a_locked_run_is_mapped_but_keeps_nothing(folder: Path, tmp_path: Path, command: Command) -> None:
    kept = RunFolder.open(folder, writable=True)
    before = kept.path / FILE_NAME
    before.unlink(missing_ok=True)
    with kept.lock():
        done = command("embed", folder, "-o", tmp_path / "m", "--method", "smacof")
    assert done.status == 0
    assert "warning: the map is not kept for tartan add" in done.err
    assert (tmp_path / "m.png").exists()
    assert not before.exists()
    assert command("embed", folder, "-o", tmp_path / "m", "--method", "smacof", "--no-keep", "--overwrite").status == 0
    assert not before.exists()


def test_extend_takes_no_other_way_to_make_a_map(folder: Path, tmp_path: Path, command: Command) -> None:
    for words, said in (
        (["--dim", "2"], "leave out --dim"),
        (["--distance", "1-s"], "leave out --distance"),
        (["--no-keep"], "not allowed with argument --extend"),
    ):
        done = command("embed", folder, "--extend", "--overwrite", "-o", tmp_path / "m", *words)
        assert done.status == 2
        assert said in done.err
    np.save(tmp_path / "D.npy", np.zeros((2, 2)))
    done = command("embed", tmp_path / "D.npy", "--extend")
    assert done.status == 2
    assert "--extend is for a run that keeps a map" in done.err
    assert list(tmp_path.iterdir()) == [tmp_path / "D.npy"]
