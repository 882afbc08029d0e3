"""info and export on a run folder that is there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gaps import Gaps

import tartan
from tartan.apps.vectors.app import Vectors
from tartan.cli.main import main
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, NOT_COMPUTED, Failure
from tartan.result.run import Run
from tartan.store.folder import RunFolder
from tartan.store.items import ItemTable
from tartan.store.manifest import Manifest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of three items, of which the last cannot be read."""
    monkeypatch.setattr(tartan, "open", lambda path, version=None: Run(path), raising=False)
    application = {"name": "f", "outputs": {"scores": "<f4"}, "symmetric": True, "diagonal": False}
    grid = {"chunk": 3, "panel": 3, "strip": 3, "span": 3}
    manifest = Manifest(application, {"kind": "all"}, 3, grid)
    run = RunFolder.create(tmp_path / "r.tartan", manifest, ItemTable(["a", "b", "c"]))
    RunFolder.create(tmp_path / "empty.tartan", manifest, ItemTable(["a", "b", "c"]))
    scores = np.full((3, 3), np.nan, np.float32)
    scores[0, 1] = 0.5
    status = np.full((3, 3), NOT_COMPUTED, np.uint8)
    status[0, 1], status[:2, 2] = DONE, FAILED_ITEM
    with run.lock():
        run.commit(0, 0, {"scores": scores}, status, [Failure(2, None, "read", "c: cannot be read")])
        run.write_stats({"loads": 3, "wall_seconds": 0.5})
    return tmp_path / "r.tartan"


def test_info(command: Any, folder: Path) -> None:
    about = json.loads(command("info", folder, "--json").out)
    assert (about["n_items"], about["n_pairs"], about["n_pairs_done"]) == (3, 3, 1)
    assert (about["n_failed_items"], about["n_failed_pairs"], about["loads"]) == (1, 0, 3)
    assert about["path"] == str(folder)
    assert (about["state"], about["seconds_left"]) == ("finished", None)
    assert "time         0.5 s, 2 pairs/s\n" in command("info", folder).out
    assert "0.500 s" in command("info", folder, "--verbose").out


def test_info_says_that_a_run_is_running_and_how_long_it_will_take(command: Any, folder: Path) -> None:
    run = RunFolder.open(folder.with_name("empty.tartan"), writable=True)
    with run.lock():
        run.write_stats({"pairs_computed": 2, "wall_seconds": 3602.0})
        shown, long = command("info", run.path).out, command("info", run.path, "-v").out
        about = json.loads(command("info", run.path, "--json").out)
    assert (about["state"], about["seconds_left"]) == ("running", 3 * 1801.0)
    assert "time left (h:mm:ss)  1:30:03\n" in long
    assert "state        running, 1 h 30 min left\n" in shown
    assert json.loads(command("info", run.path, "--json").out)["state"] == "unfinished"


def test_info_of_what_is_no_run(command: Any, folder: Path, tmp_path: Path) -> None:
    shown = command("info", tmp_path)
    assert (shown.status, shown.out) == (2, "")
    assert "is not a run" in shown.err


def test_export(command: Any, folder: Path, tmp_path: Path) -> None:
    shown = command("export", folder, tmp_path / "m.npy", "--missing", "-1")
    assert (shown.status, shown.out) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), [[-1, 0.5, -1], [0.5, -1, -1], [-1, -1, -1]])
    again = command("export", folder, tmp_path / "m.npy")
    assert again.status == 2
    assert "--overwrite" in again.err
    assert command("export", folder, tmp_path / "m.npy", "--overwrite").status == 0


def test_export_without_a_format_is_wrong_use(command: Any, folder: Path, tmp_path: Path) -> None:
    shown = command("export", folder, tmp_path / "m.unknown")
    assert shown.status == 2
    assert "phylip" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        ("export", "{run}", "{folder}/out.npy"),
        ("export", "{run}", "{folder}/out.parquet", "--sorted"),
        ("neighbors", "{run}", "--quiet"),
        ("neighbors", "{run}", "--quiet", "--transform", "sqrt"),
        ("outliers", "{run}", "--quiet"),
    ],
)
def test_what_is_made_of_an_unfinished_run_says_so(command: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    run = tmp_path / "half run"
    tartan.allpairs(Gaps(), [1.0, 2.0, 4.0, 8.0, 16.0], run, tile=3)
    named = [word.format(run=run, folder=tmp_path) for word in words]
    assert "warning" not in command(*named, *(["--overwrite"] if "export" in words else [])).err
    (run / "status.zarr/c/1/1").unlink()
    said = command(*named, *(["--overwrite"] if "export" in words else []))
    assert said.status == 0
    assert f"{run} is not finished: 1 of 10 pairs are missing here; `tartan resume '{run}'` computes them" in said.err


@pytest.mark.parametrize(
    ("reduced", "file", "said", "then"),
    [
        ({"kind": "top-k", "k": 1}, "m.npy", "`tartan export RUN pairs.parquet`", ("pairs.parquet",)),
        (None, "m.i16", "--clip`, or as float32", ("m.i16", "--clip")),
        (None, "m.i16", "--clip`, or as float32", ("m.f32",)),
    ],
)
def test_what_a_refused_export_advises_works_here(
    command: Any, tmp_path: Path, reduced: dict[str, Any] | None, file: str, said: str, then: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    tartan.allpairs(Gaps(), [1.0, 2.0, 4.0], run, reduce=reduced)
    refused = command("export", run, tmp_path / file)
    assert (refused.status, said in refused.err) == (2, True)
    assert command("export", run, tmp_path / then[0], *then[1:]).status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("p.parquet", "--ascending"), "`--ascending` is for pairs in the order of their scores: say `--sorted`"),
        (("p.parquet", "--memory", "1GB"), "`--memory` is for pairs in the order"),
        (("p.parquet", "--missing", "-1"), "Parquet holds pairs, and null for failed ones"),
        (("m.npy", "--clip"), "clip is for int16; npy holds the scores as they are"),
    ],
)
def test_options_that_an_export_would_not_hear_are_refused(
    command: Any, folder: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    refused = command("export", folder, tmp_path / words[0], *words[1:])
    assert (refused.status, said in refused.err) == (2, True)
    assert not (tmp_path / words[0]).exists()


@pytest.mark.parametrize(
    ("reduce", "kept"),
    [
        ({"kind": "top-k", "k": 1, "largest": True}, "the 1 largest scores of each item"),
        ({"kind": "threshold", "threshold": 2}, "pairs of 2 and below"),
    ],
)
def test_neighbors_that_a_run_does_not_keep(command: Any, tmp_path: Path, reduce: dict[str, Any], kept: str) -> None:
    run = tmp_path / "run"
    tartan.allpairs(Gaps(), [1.0, 2.0, 4.0], run, reduce=reduce)
    refused = command("neighbors", run, "-k", "1")
    assert refused.status == 2
    assert f"{run} keeps {kept}; it cannot tell the 1 smallest scores of each item: run again" in refused.err


def test_a_picture_of_the_matrix_is_exported(command: Any, tmp_path: Path) -> None:
    tartan.allpairs(Vectors(), np.random.default_rng(2).normal(size=(6, 4)), out=tmp_path / "r", workers=1)
    assert command("export", tmp_path / "r", tmp_path / "m.svg").status == 0
    assert (tmp_path / "m.svg").read_text().count("<text") >= 6
    shown = command("export", tmp_path / "r", tmp_path / "other.svg", "--missing", "-1")
    assert shown.status == 2
    assert "other.svg is a picture of the matrix, which has no use for missing" in shown.err
    assert not (tmp_path / "other.svg").exists()


def test_info_on_a_terminal_is_a_table(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["info", str(folder)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.delenv("NO_COLOR")
    assert main(["info", str(folder)]) == 0
    said = capsys.readouterr().out
    shown = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert "\x1b[2mitems" in said
    assert ["items", "3"] in [line.split() for line in shown.splitlines()]
