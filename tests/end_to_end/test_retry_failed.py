"""``tartan resume RUN --retry-failed`` as its user sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from whole_program import APPLICATIONS, Command, Numbers, Start

import tartan

N = 9


def distances() -> np.ndarray:
    values = np.arange(N, dtype=np.float64)
    return np.abs(values[:, None] - values)


@pytest.fixture
def broken(numbers: Numbers, command: Command, tmp_path: Path) -> Path:
    """Return a run of nine files, two of which hold no number."""
    folder = numbers(N)
    for name in ("002.txt", "006.txt"):
        (folder / name).write_text("none")
    shown = command("run", f"{APPLICATIONS}:Distances", folder, "-o", tmp_path / "run", "--tile", 4)
    assert shown.status == 3
    assert f"tartan resume {tmp_path}/run --retry-failed" in shown.err
    return folder


@pytest.mark.slow
def test_from_a_failure_to_the_whole_matrix(broken: Path, command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (broken / "002.txt").write_text("2")
    (broken / "006.txt").write_text("no better")
    plain = command("resume", run)
    assert (plain.status, "is finished already; nothing to do" in plain.err) == (3, True)
    first = command("resume", run, "--retry-failed", "--json")
    assert first.status == 3
    assert "1 of 2 failed items are healed" in first.err
    assert "no better" in first.err
    about = json.loads(first.out)
    assert (about["n_healed"], about["n_failed_items"], about["n_pairs_done"]) == (1, 1, 28)
    again = command("resume", run, "--retry-failed")
    assert (again.status, "0 of 1 failed items are healed" in again.err) == (3, True)
    (broken / "006.txt").write_text("6")
    last = command("resume", run, "--retry-failed", "--quiet")
    assert (last.status, last.err) == (0, "")
    np.testing.assert_array_equal(tartan.open(run).matrix(diagonal=0.0), distances())
    nothing = command("resume", run, "--retry-failed")
    assert (nothing.status, "nothing to do" in nothing.err) == (0, True)


def test_another_changed_input_is_refused(broken: Path, command: Command, tmp_path: Path) -> None:
    (broken / "002.txt").write_text("2")
    (broken / "004.txt").write_text("44")
    refused = command("resume", tmp_path / "run", "--retry-failed")
    assert refused.status == 2
    assert "size of items has changed: 004.txt" in refused.err


@pytest.mark.slow
def test_killed_while_it_heals(numbers: Numbers, command: Command, start: Start, tmp_path: Path) -> None:
    """The process that heals is killed while it compares; a plain resume does the rest."""
    folder, run, fifo = numbers(N), tmp_path / "run", tmp_path / "fifo"
    (folder / "002.txt").write_text("none")
    words = ("run", f"{APPLICATIONS}:Halting", folder, "-o", run, "--tile", 1)
    assert command(*words, "--workers", 1).status == 3
    (folder / "002.txt").write_text("2")
    os.mkfifo(fifo)
    heals = start("resume", run, "--retry-failed", "--workers", 1, env={"TARTAN_TEST_FIFO": str(fifo)})
    assert fifo.read_text() == "halted"
    heals.process.kill()
    heals.process.wait()
    assert not tartan.open(run).finished
    assert command("resume", run, "--workers", 1).status == 0
    np.testing.assert_array_equal(tartan.open(run).matrix(diagonal=0.0), distances())
