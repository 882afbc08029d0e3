"""Completions and the manual page are made of the parser itself, so they name what there is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tartan
from tartan.cli.completion import SHELLS
from tartan.cli.main import main

ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_tartan; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("completion")


def written(scripts: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", kind]) == 0
    path = scripts / kind
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tartan", "clu"], ["cluster", "cluster-certs"]),
        (["tartan", "cluster", "--meth"], ["--method"]),
        (["tartan", "export", "--ov"], ["--overwrite"]),
        (["tartan", "info", "photos"], ["photos.run"]),
        (["tartan", "info", "r"], ["real.tartan"]),
        (["tartan", "microscopy", "fuse", "re"], ["real.tartan"]),
        (["tartan", "run", "fo"], ["forensics"]),
        (["tartan", "run", "mi"], ["mine.py", "microscopy"]),
        (["tartan", "show", "real.tartan", "pho"], ["photo_1.jpg", "photo_2.jpg"]),
        (["tartan", "run", "vectors", "photos"], ["photos.run"]),
    ],
)
def test_bash_completes(
    scripts: Path, tmp_path: Path, words: list[str], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = written(scripts, "bash", capsys)
    (tmp_path / "photos.run").mkdir()
    (tmp_path / "mine.py").touch()
    (tmp_path / "rest").mkdir()
    (tmp_path / "real.tartan").mkdir()
    (tmp_path / "real.tartan" / "manifest.json").touch()
    (tmp_path / "tartan").write_text(
        '#!/bin/sh\n[ "$2 $3 $4" = "items real.tartan pho" ] && echo "photo_1.jpg photo_2.jpg"'
    )
    (tmp_path / "tartan").chmod(0o755)
    path = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", ASK, "bash", script, *words], cwd=tmp_path, capture_output=True, text=True, env=path
    )
    assert sorted(ran.stdout.split()) == sorted(offered), ran.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_its_script(scripts: Path, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = written(scripts, shell, capsys)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    assert subprocess.run([shell, "-n", script], capture_output=True).returncode == 0


def test_the_manual_has_a_section_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "man"]) == 0
    page = capsys.readouterr().out
    assert page.startswith('.TH TARTAN "1"')
    for command in ("run", "resume", "cluster", "sort", "doctor"):
        assert f"tartan {command}" in page


def test_an_unknown_shell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "invalid choice: 'csh'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_items_of_a_run_are_those_that_begin_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tartan.allpairs(abs_difference, {"photo_1": 1.0, "photo_2": 3.0, "other": 2.0}, tmp_path / "r", quiet=True)
    assert main(["completion", "items", str(run.path), "photo"]) == 0
    assert capsys.readouterr().out == "photo_1\nphoto_2\n"
    assert main(["completion", "items"]) == 2
    assert main(["completion", "bash", "r"]) == 2


def abs_difference(a: float, b: float) -> float:
    return abs(a - b)
