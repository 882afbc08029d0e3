"""Little to work with, and odd words: limits of the shell, names with control characters, an empty ``-o``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tartan.base.format import printable

PROGRAM = [sys.executable, "-m", "tartan"]


def run_vectors(folder: Path, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    np.save(folder / "x.npy", np.eye(4))
    command = [*PROGRAM, "run", "vectors", str(folder / "x.npy"), *words]
    if before:
        command = ["bash", "-c", f'{before}; exec "$@"', "bash", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=folder)


@pytest.mark.slow
def test_too_few_addresses_are_named(tmp_path: Path) -> None:
    found = run_vectors(tmp_path, "-o", "run", before="ulimit -v 150000")
    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1
    assert "ulimit -v" in last or "memory" in last.lower()
    assert "please report" not in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_a_run_within_too_few_addresses_is_refused_before_a_thread_begins(tmp_path: Path) -> None:
    found = run_vectors(tmp_path, "-o", "run", before="ulimit -v 180000")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("tartan: error: `ulimit -v` allows this process 180000 kB of addresses, and a run ")
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_empty_name_of_the_result_is_refused(tmp_path: Path) -> None:
    found = run_vectors(tmp_path, "-o", "")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.strip() == (
        "tartan: error: -o is empty, where a name or a value belongs; is a variable of the shell not set?"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.slow
def test_control_characters_of_names_are_written_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "a\x1b]0;title\x07.faa").write_bytes(b">a\nACDEFGHIKLMNPQ\n>b\nACDEFGHIKLAAA\n")
    (tmp_path / "b.faa").write_bytes(b">a\nACDEFGHIKLMNPQ\n>b\nACDEFGHIKLCCC\n")
    (tmp_path / "c\x1b[31m.faa").write_bytes(b"no FASTA")
    command = [*PROGRAM, "run", "phylogeny", str(tmp_path), "-o", str(tmp_path / "run"), "--set", "k=3"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 3
    assert "c\\x1b[31m.faa" in found.stderr
    assert "\x1b" not in found.stderr


def test_printable_text_keeps_tabs_and_lines() -> None:
    assert printable("a\tb\nc\x00\x9b\x7fé") == "a\tb\nc\\x00\\x9b\\x7fé"


@pytest.mark.slow
def test_ctrl_c_while_modules_are_imported_ends_in_one_line(tmp_path: Path) -> None:
    # A module of the standard library that waits: the import is under way when the signal comes.
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    (tmp_path / "difflib.py").write_text(
        f"import time\nopen({str(reached)!r}, 'w').close()\nwhile True: time.sleep(1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen([*PROGRAM, "info"], env=environment, stderr=subprocess.PIPE, text=True) as process:
        reached.read_text()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "tartan: interrupted\n")
