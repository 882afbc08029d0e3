"""The reader of the specification against Tartan, on every kind of run folder and on those of earlier versions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import tartan

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
@pytest.mark.parametrize("name", [name.replace(", ", "-").replace(" ", "-") for name in (*KINDS, *LIVING)])
def test_folders_of_format_2_say_what_they_said(archives: Path, name: str) -> None:
    """What Tartan read when it wrote the folder is beside it."""
    place = archives / "format_2" / name
    for number, expected in json.loads((place / "answers.json").read_text()).items():
        version = None if number == "newest" else int(number)
        assert answers_of_plain(READER.PlainRun(place / "run", version)) == expected
        assert answers_of(tartan.open(place / "run", version)) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"format": 3}, "format 3"), ({"features": ["clocks"]}, "clocks"), ({"n_items": 4}, "checksum")],
)
def test_the_reader_refuses_what_it_does_not_know(
    archives: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    shutil.copytree(archives / "old_runs" / "file", tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))
    with pytest.raises(ValueError, match=words):
        READER.PlainRun(tmp_path / "run")


def test_the_reader_is_short_and_does_without_tartan(archives: Path) -> None:
    text = (SPEC / "read_run.py").read_text()
    assert len(text.splitlines()) <= 150
    code = (
        "import sys; sys.modules['tartan'] = None; from read_run import PlainRun; run = PlainRun(sys.argv[1]); "
        "print(len(run.keys), len(run.pairs()), run.score(0, 1))"
    )
    path = archives / "old_runs" / "file"
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=SPEC, capture_output=True, text=True, check=True)
    run = tartan.open(path)
    assert done.stdout.split() == ["14", "91", str(run.matrix()[0, 1].item())]
