"""Signals that ``tartan ranks`` gets: they reach the ranks' own handlers first, and what is left is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 60

SCRIPT = """
import os, signal, sys, time
from tartan import comm

world = comm.world()
how, folder = sys.argv[1:]

def save(number, frame):
    with open(f"{folder}/{world.rank}-{signal.Signals(number).name}", "w") as file:
        file.write("saved")
    if how == "goes-on":
        return
    if how == "stays":
        while True:
            signal.pause()
    sys.exit(0 if how == "ends" else 7)

if how != "default":
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGUSR1, save)
world.barrier()
os.write(1, b"ready" + bytes([10]))
if how == "goes-on":
    world.barrier()
    while not os.path.exists(f"{folder}/{world.rank}-SIGUSR1"):
        signal.sigtimedwait([signal.SIGUSR2], 0.01)
    world.barrier()
elif world.rank:
    world.recv(source=0)      # in a wait of a call
else:
    time.sleep(1000)
"""


def start(tmp_path: Path, how: str, *options: str) -> subprocess.Popen[str]:
    """Start ranks; return when all have set their handlers."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "tartan", "ranks", *options, str(script), how, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    return process


def saved(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if path.name != "script.py")


@pytest.mark.parametrize(
    ("nodes", "name", "how", "status"),
    [
        (1, "SIGTERM", "ends", 0),
        (2, "SIGTERM", "ends", 0),
        (2, "SIGUSR1", "ends", 0),
        (1, "SIGTERM", "fails", 7),  # of several nodes, one that fails ends others that may not have the signal yet
    ],
)
def test_all_ranks_save_before_they_end(tmp_path, nodes, name, how, status) -> None:
    process = start(tmp_path, how, "--cpus", str(2 // nodes), "--nodes", str(nodes))
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert saved(tmp_path) == [f"0-{name}", f"1-{name}"], err
    assert process.returncode == status, err


def test_ranks_go_on_after_a_signal_that_they_have_handled(tmp_path) -> None:
    process = start(tmp_path, "goes-on", "--cpus", "1", "--nodes", "2")
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert saved(tmp_path) == ["0-SIGUSR1", "1-SIGUSR1"]


def test_ranks_without_a_handler_end_as_processes_do(tmp_path) -> None:
    process = start(tmp_path, "default", "--cpus", "2")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err


def test_ranks_that_do_not_end_in_time_are_killed(tmp_path) -> None:
    process = start(tmp_path, "stays", "--cpus", "2", "--grace", "300ms")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert saved(tmp_path) == ["0-SIGTERM", "1-SIGTERM"]


@pytest.mark.parametrize("grace", ["30", "-1s", "1d", "inf", "1e3s", "25h"])
def test_a_grace_that_is_no_time_is_refused(capsys, grace) -> None:
    from tartan.cli.main import main

    assert main(["ranks", "--cpus", "2", f"--grace={grace}", "script.py"]) == 2
    assert "not a time of at most a day" in capsys.readouterr().err
