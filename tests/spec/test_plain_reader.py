"""The reader of the specification against Tartan, on every kind of run folder and on those of earlier versions."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.errors import StoreError
from tartan.store.folder import RunFolder

from .kinds import KINDS, LIVING
from .plain import READER, SPEC, answers_of, answers_of_plain, refuse_other_answers

DATA = Path(__file__).resolve().parents[1] / "data"
OLD = ("candidates", "file", "map", "rectangle", "threshold", "top-k", "unfinished", "vectors")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_is_read_alike(kind: str, tmp_path: Path) -> None:
    run = KINDS[kind](tmp_path / "run")
    refuse_other_answers(run, READER.PlainRun(run.path))
    if (run.path / "result.parquet").exists():  # the parts alone say what the merged result says
        merged = answers_of_plain(READER.PlainRun(run.path))
        (run.path / "result.parquet").unlink()
        assert answers_of_plain(READER.PlainRun(run.path)) == merged


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIVING)
def test_every_version_is_read_alike(kind: str, tmp_path: Path) -> None:
    run = LIVING[kind](tmp_path / "run")
    for version in run.versions:
        if kind != "grown top-k" or version.newest:  # what would be among the best of fewer items is not kept
            refuse_other_answers(tartan.open(run.path, version.number), READER.PlainRun(run.path, version.number))
    with pytest.raises(ValueError, match=f"not {run.versions[-1].number + 1}"):
        READER.PlainRun(run.path, run.versions[-1].number + 1)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the folders of earlier versions."""
    place = tmp_path_factory.mktemp("archives")
    for name in ("old_runs", "format_2"):
        with tarfile.open(DATA / f"{name}.tar.xz") as archive:
            archive.extractall(place / name, filter="data")
    return place


@pytest.mark.parametrize("name", OLD)
def test_folders_of_format_1_are_read_alike(archives: Path, name: str) -> None:
    path = archives / "old_runs" / name
    refuse_other_answers(tartan.open(path), READER.PlainRun(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file", "unfinished", "threshold", "candidates", "map"])
def test_folders_of_format_1_live_on(archives: Path, tmp_path: Path, name: str) -> None:
    """The first change makes them format 2; what was there before is version 1."""
    path = shutil.copytree(archives / "old_runs" / name, tmp_path / "run")
    before = answers_of(tartan.open(path))
    keys = before["keys"]
    tartan.remove(path, [keys[3], keys[0]])
    tartan.rename(path, keys[5], "five")
    assert json.loads((path / "manifest.json").read_text())["format"] == 2
    assert READER.PlainRun(path).keys == ["five" if key == keys[5] else key for key in (*keys[1:3], *keys[4:])]
    for version in (1, 2, 3):
        refuse_other_answers(tartan.open(path, version), READER.PlainRun(path, version))
    assert answers_of_plain(READER.PlainRun(path, 1)) == before
    tartan.expire(path, now=True)
    refuse_other_answers(tartan.open(path), READER.PlainRun(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name.replace(", ", "-").replace(" ", "-") for name in (*KINDS, *LIVING)])
def test_folders_of_format_2_say_what_they_said(archives: Path, name: str) -> None:
    """What Tartan read when it wrote the folder is beside it."""
    place = archives / "format_2" / name
    for number, expected in json.loads((place / "answers.json").read_text()).items():
        version = None if number == "newest" else int(number)
        assert answers_of_plain(READER.PlainRun(place / "run", version)) == expected
        assert answers_of(tartan.open(place / "run", version)) == expected


def test_failures_are_read_while_several_write(archives: Path, tmp_path: Path) -> None:
    """The log of the run is the newest; those of writers hold where nothing else does; torn lines are passed over."""
    shutil.copytree(archives / "format_2" / "matrix" / "run", tmp_path / "run")
    known = tartan.open(tmp_path / "run").failures
    texts = {
        "failures.jsonl": [
            line(known[0].i, known[0].j, "newest"),
            line(2, None, "of the log"),
            '{"i": 3, "j": 4, "rea',
        ],
        "writers/n1.7.0123abcd/failures.jsonl": [line(2, None, "no"), line(1, 5, "of a writer"), "\n\n[", "{}x"],
    }
    for name, lines in texts.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    found = READER.PlainRun(tmp_path / "run").failures()
    assert [
        row["reason"] for row in found if (row["i"], row["j"]) in ((known[0].i, known[0].j), (2, None), (1, 5))
    ] == [
        "of the log",
        "of a writer",
        "newest",
    ]
    refuse_other_answers(tartan.open(tmp_path / "run"), READER.PlainRun(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["threshold", "threshold-one-way", "top-k", "top-k-one-way", "lived-threshold"])
def test_rows_of_pairs_that_are_not_done_do_not_count(archives: Path, tmp_path: Path, name: str) -> None:
    """A kill came before their status, or they were taken back, and will be computed anew."""
    path = shutil.copytree(archives / "format_2" / name / "run", tmp_path / "run")
    folder = RunFolder.open(path, writable=True)
    whole = answers_of(tartan.open(path))["rows"]
    with folder.lock():
        for chunk in ((0, 1), (0, 0)):
            which = np.zeros(folder.chunk_shape(*chunk), bool)
            which[:2] = True
            folder.take_back(*chunk, which)
        folder.forget_result()
    found = answers_of(tartan.open(path))["rows"]
    assert found == answers_of_plain(READER.PlainRun(path))["rows"]
    assert len(found) < len(whole)


def test_half_an_upgrade_is_read_and_a_lost_log_is_not(archives: Path, tmp_path: Path) -> None:
    """The log is written before the manifest says format 2; without it what was removed would be read."""
    shutil.copytree(archives / "format_2" / "lived" / "run", tmp_path / "run")
    expected = answers_of(tartan.open(tmp_path / "run"))
    manifest = tmp_path / "run" / "manifest.json"
    body = {name: value for name, value in json.loads(manifest.read_text()).items() if name != "checksum"}
    check = hashlib.sha256(json.dumps(body | {"format": 1}, sort_keys=True).encode()).hexdigest()[:16]
    before = manifest.read_text()
    manifest.write_text(json.dumps(body | {"format": 1, "checksum": check}))
    assert answers_of(tartan.open(tmp_path / "run")) == expected
    assert answers_of_plain(READER.PlainRun(tmp_path / "run")) == expected
    manifest.write_text(before)
    log = tmp_path / "run" / "versions.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    for text, words in (("".join(lines[:-1]), "changes of|cut off"), (None, "is gone"), (_forged(lines), "checksum")):
        log.unlink() if text is None else log.write_text(text)
        with pytest.raises(StoreError, match=words):
            tartan.open(tmp_path / "run")
        with pytest.raises(ValueError, match=words):
            READER.PlainRun(tmp_path / "run")


def _forged(lines: list[str]) -> str:
    return "".join(lines).replace('"gone":[[1,2]]', '"gone":[[1,1]]')


def line(i: int, j: int | None, reason: str) -> str:
    return json.dumps({"i": i, "j": j, "stage": "compare", "reason": reason, "traceback": ""})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 3}, "format 3"),
        ({"features": ["clocks"]}, "clocks"),
        ({"workload": {"kind": "quads"}}, "quads"),
        ({"reduce": {"kind": "odd"}}, "odd"),
        ({"n_items": 4}, "checksum"),
    ],
)
def test_the_reader_refuses_what_it_does_not_know(
    archives: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    shutil.copytree(archives / "old_runs" / "file", tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))
    with pytest.raises(ValueError, match=words):
        READER.PlainRun(tmp_path / "run")


@pytest.mark.slow
def test_the_reader_is_short_and_does_without_tartan(archives: Path) -> None:
    text = (SPEC / "read_run.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 150
    code = (
        "import sys; sys.modules['tartan'] = None; from read_run import PlainRun; run = PlainRun(sys.argv[1]); "
        "print(len(run.keys), len(run.pairs()), run.score(0, 1))"
    )
    path = archives / "old_runs" / "file"
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=SPEC, capture_output=True, text=True, check=True)
    run = tartan.open(path)
    assert done.stdout.split() == ["14", "91", str(run.matrix()[0, 1].item())]
