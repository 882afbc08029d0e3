"""``tartan run --cluster local:N``, with real processes: the bits of one process, also after the loss of ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tartan

APPLICATION = '''
import numpy as np
import tartan


class Waves(tartan.Application):
    """Slow enough that a rank can be lost in the middle."""

    ragged = False

    def parse(self, key, data):
        return np.frombuffer(data, np.float64)

    def compare(self, left, right, xp):
        for _ in range(60):
            scores = np.sin(left[:, None, :] * right[None, :, :]).sum(axis=2)
        return scores
'''
N = 48


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "waves.py").write_text(APPLICATION)
    folder = tmp_path / "items"
    folder.mkdir()
    rng = np.random.default_rng(3)
    for number in range(N):
        (folder / f"{number:03}.bin").write_bytes(rng.normal(size=500).tobytes())
    return tmp_path


def command(folder: Path, out: str, *more: str) -> list[str]:
    words = ["run", "waves.py:Waves", "items", "-o", out, "--tile", "4", "--host-cache", "20items", "--workers", "1"]
    return [sys.executable, "-m", "tartan", *words, *more]


def run_with(folder: Path, *more: str, once_ranks: Callable[[list[int]], None] | None = None) -> tuple[int, str]:
    """Run on two ranks; call ``once_ranks`` with their process ids once both compute; return status and stderr."""
    process = subprocess.Popen(
        command(folder, "several", "--cluster", "local:2", *more),
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip

    def watch() -> None:
        stopped = threading.Event()
        while process.poll() is None and not stopped.wait(0.02):
            with contextlib.suppress(OSError, ValueError):
                ranks = json.loads((folder / "several" / "ranks.json").read_text())
                if len(ranks) == 2 and any((folder / "several" / "status.zarr").rglob("c/*/*")):
                    assert once_ranks is not None
                    once_ranks([int(rank["pid"]) for rank in ranks])
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    if once_ranks is not None:
        watcher.start()
    _, errors = process.communicate(timeout=200)
    return process.returncode, errors


def check_same(folder: Path) -> None:
    subprocess.run(command(folder, "one", "--quiet"), cwd=folder, check=True)
    one, several = tartan.open(folder / "one"), tartan.open(folder / "several")
    assert several.finished
    np.testing.assert_array_equal(several.matrix(), one.matrix())
    left = {path.name for path in (folder / "several").iterdir()} - {path.name for path in (folder / "one").iterdir()}
    assert left == set()


@pytest.mark.slow
def test_a_rank_is_killed_and_no_bit_differs(inputs: Path) -> None:
    status, errors = run_with(inputs, once_ranks=lambda ranks: os.kill(ranks[0], signal.SIGKILL))
    assert status == 0, errors
    assert "is lost: " in errors
    assert "; the others compute its part" in errors
    assert "2 ranks, 1 lost" in errors
    check_same(inputs)


@pytest.mark.exhaustive
def test_the_driver_is_interrupted_and_the_run_resumed(inputs: Path) -> None:
    process = subprocess.Popen(command(inputs, "several", "--cluster", "local:2", "--quiet"), cwd=inputs)
    ledger = inputs / "several" / "status.zarr"
    pause = threading.Event()
    while process.poll() is None and not any(ledger.rglob("c/*/*")):
        pause.wait(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(100) == 130
    assert not tartan.open(inputs / "several").finished
    subprocess.run([sys.executable, "-m", "tartan", "resume", "several", "--quiet"], cwd=inputs, check=True)
    check_same(inputs)


@pytest.mark.exhaustive
def test_all_ranks_are_killed_and_the_run_can_be_resumed(inputs: Path) -> None:
    def kill(ranks: list[int]) -> None:
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)

    status, errors = run_with(inputs, once_ranks=kill)
    assert status != 0
    assert "no rank is left" in errors
    subprocess.run([sys.executable, "-m", "tartan", "resume", "several", "--quiet"], cwd=inputs, check=True)
    check_same(inputs)
