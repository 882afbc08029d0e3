"""Exit statuses by one table: 2 where the words, or what they name, must change; 1 where they may succeed later."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.apps.vectors import Vectors
from tartan.base.lock import FolderLock
from tartan.errors import (
    ConfigError,
    CorruptResultError,
    DiskFullError,
    RunFailedError,
    RunNotFoundError,
    StoreError,
    TartanError,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (RunNotFoundError("x"), 2),
        *((StoreError("x", code=code), 2) for code in ("exists", "foreign-folder", "other-run", "newer-format")),
        (StoreError("x", code="not-trusted"), 2),
        *((StoreError("x", code=code), 1) for code in ("locked", "read-only", "refused", "taken-over", "gone")),
        (CorruptResultError("x"), 1),
        (DiskFullError("x"), 1),
        (RunFailedError("x"), 1),
    ],
    ids=lambda value: getattr(value, "code", str(value)),
)
def test_statuses_of_errors(error: TartanError, status: int) -> None:
    assert error.exit_status == status


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", np.random.default_rng(0).random((5, 3)))
    np.save("others.npy", np.random.default_rng(1).random((6, 3)))
    tartan.allpairs(Vectors(), "points.npy", out="a.tartan", quiet=True)
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("precious")
    Path("there.npy").write_text("precious")
    Path("there").write_text("precious")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("run vectors points.npy -o a.tartan", 0),  # finished already
        ("run vectors others.npy -o a.tartan", 2),
        ("run vectors points.npy -o mine", 2),
        ("run vectors nothing.npy -o b.tartan", 2),
        ("run nothing points.npy -o b.tartan", 2),
        ("run vectors points.npy -o there.npy", 2),
        ("run vectors points.npy -o there", 1),  # the system refuses
        ("resume mine", 2),
        ("resume absent", 2),
        ("info mine", 2),
        ("report mine", 2),
        ("add absent points.npy", 2),
        ("export a.tartan there.npy", 2),
        ("export mine b.npy", 2),
        ("cluster absent.npy", 2),
        ("cluster mine", 2),
        ("neighbors a.tartan -o there.npy", 2),
        ("sort points.npy there.npy", 2),
        ("simulate vectors mine -n 3", 2),
        ("nothing", 2),
        ("info a.tartan --nothing", 2),
    ],
)
def test_statuses_of_commands(command: Any, place: Path, words: str, status: int) -> None:
    done = command(*shlex.split(words))
    assert done.status == status, done.err


@pytest.mark.parametrize("words", ["resume a.tartan", "run vectors points.npy -o a.tartan --overwrite"])
def test_a_folder_in_use_is_no_wrong_use(command: Any, place: Path, words: str) -> None:
    shutil.rmtree("a.tartan/status.zarr/c")
    with FolderLock(Path("a.tartan")):
        busy = command(*shlex.split(words))
    assert (busy.status, "is in use by" in busy.err) == (1, True)
    assert command(*shlex.split(words)).status == 0


@pytest.mark.parametrize(
    ("words", "n_failed"), [("run vectors gaps.npy -o g.tartan", 1), ("resume g.tartan --retry-failed", 1)]
)
def test_failed_items_are_3(command: Any, place: Path, words: str, n_failed: int) -> None:
    points = np.random.default_rng(0).random((5, 3))
    points[1, 1] = np.nan
    np.save("gaps.npy", points)
    first = command("run", "vectors", "gaps.npy", "-o", "g.tartan")
    assert first.status == 3
    assert command(*shlex.split(words)).status == 3


def test_a_mended_row_is_taken_as_the_message_says(command: Any, place: Path) -> None:
    points = np.random.default_rng(0).random((5, 3))
    points[1, 1] = np.nan
    np.save("gaps.npy", points)
    said = command("run", "vectors", "gaps.npy", "-o", "g.tartan").err
    points[1, 1] = 0.5
    np.save("gaps.npy", points)
    advice = said.partition("`")[2].partition("`")[0]
    assert advice == "tartan resume g.tartan --retry-failed"
    assert command(*shlex.split(advice)[1:]).status == 0


def test_truth_of_simulations_is_read_by_cluster(command: Any, place: Path) -> None:
    assert command("simulate", "vectors", "s", "-n", "30", "--set", "clusters=3", "spread=0.01").status == 0
    assert command("run", "vectors", "s/vectors.npy", "-o", "s.tartan").status == 0
    found = command("cluster", "s.tartan", "-k", "3", "--truth", "s/truth.json")
    assert "adjusted rand: 1.0000" in found.err
    np.save("few.npy", np.eye(3))
    assert command("run", "vectors", "few.npy", "-o", "few.tartan").status == 0
    refused = command("cluster", "few.tartan", "-k", "2", "--truth", "s/truth.json")
    assert (refused.status, "no clusters of these 3 items" in refused.err) == (2, True)


class TestBlocks:
    """``blocks --overwrite`` replaces an array, and no other folder."""

    def test_replaces_an_array(self, command: Any, place: Path) -> None:
        np.save("m.npy", np.eye(4))
        words = ("blocks", "matmul", "m.npy", "m.npy", "-o", "c.zarr", "--block", "2", "--workers", "1")
        assert command(*words).status == 0
        refused = command(*words)
        assert (refused.status, "`--overwrite`" in refused.err) == (2, True)
        assert command(*words, "--overwrite").status == 0

    @pytest.mark.parametrize("out", ["mine", "there.npy"])
    def test_keeps_anything_else(self, command: Any, place: Path, out: str) -> None:
        np.save("m.npy", np.eye(4))
        refused = command("blocks", "matmul", "m.npy", "m.npy", "-o", out, "--overwrite")
        assert (refused.status, "Zarr array" in refused.err) == (2, True)
        assert Path("mine/thesis.tex").read_text() == Path("there.npy").read_text() == "precious"

    @pytest.mark.parametrize("option", ["--report", "--trace"])
    def test_side_files_are_kept(self, command: Any, place: Path, option: str) -> None:
        np.save("m.npy", np.eye(4))
        target = Path("page.html")
        target.write_text("precious")
        refused = command("blocks", "matmul", "m.npy", "m.npy", "-o", "c.zarr", option, target)
        assert (refused.status, target.read_text()) == (2, "precious")
        assert not os.path.lexists("c.zarr")
