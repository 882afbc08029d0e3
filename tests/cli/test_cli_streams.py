"""What commands do where the shell gives them streams that are closed, full, or without a reader."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.cli.main import main

pytestmark = pytest.mark.slow  # each starts Python anew


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "five.tartan"
    tartan.allpairs(lambda a, b: float(abs(a - b)), [1.0, 2.0, 4.0, 7.0, 11.0], out=path, workers=1)
    return path


def shell(words: str, run: Path) -> subprocess.CompletedProcess[str]:
    """Run ``tartan`` by a shell, with the redirections in ``words``."""
    program = f"{shlex.quote(sys.executable)} -m tartan "
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RUN": str(run)}
    return subprocess.run(
        ["/bin/sh", "-c", program + words], capture_output=True, text=True, env=environment, cwd=run.parent, check=False
    )


@pytest.mark.parametrize("words", ['info "$RUN" >&-', 'resume "$RUN" 2>&-'])
def test_closed_streams_are_no_failure(run: Path, words: str) -> None:
    done = shell(words, run)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_takes_the_number_of_a_closed_stream(run: Path) -> None:
    np.save(run.parent / "rows.npy", np.random.default_rng(1).random((6, 3)))
    done = shell("run vectors rows.npy -o rows.tartan --json <&- >&- 2>&-", run)
    assert done.returncode == 0
    assert np.isfinite(tartan.open(run.parent / "rows.tartan").condensed()).all()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", ['info "$RUN" --json', "--help"])
def test_data_that_cannot_be_written_are_one_line(run: Path, words: str) -> None:
    done = shell(f"{words} >/dev/full", run)
    assert done.returncode == 1
    assert done.stderr == "tartan: error: cannot write to stdout: No space left on device; the output ends there\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_messages_that_cannot_be_written_are_no_failure(run: Path) -> None:
    assert shell('resume "$RUN" 2>/dev/full', run).returncode == 0


def test_reader_that_has_enough_ends_it_quietly(run: Path) -> None:
    done = shell('neighbors "$RUN" --quiet | true; true', run)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_system_refuses_is_no_defect(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, version: int | None = None) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(tartan, "open", refuse)
    assert main(["info", str(run)]) == 1
    assert capsys.readouterr().err == f"tartan: error: {run} cannot be used: Input/output error\n"
