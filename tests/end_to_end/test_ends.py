"""How a run ends before its time: signals, a second process, a full disk. What was done stays; nobody stays behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from whole_program import APPLICATIONS, Command, Numbers, Start, Started

import tartan

N = 12
DISTANCES = np.abs(np.arange(float(N))[:, None] - np.arange(float(N)))
pytestmark = pytest.mark.slow


class Middle:
    """A run that a process has brought to its middle, where it waits."""

    def __init__(self, started: Started, report: IO[str], run: Path) -> None:
        self.started = started
        self.report = report
        self.run = run

    def wait_for_workers(self) -> None:
        """Return when nobody holds the FIFO open any more: the worker that was stuck has ended."""
        assert self.report.read() == ""

    def check_resume(self, command: Command) -> None:
        resumed = command("resume", self.run)
        assert resumed.status == 0, resumed.err
        np.testing.assert_array_equal(tartan.open(self.run).matrix(), DISTANCES)


@pytest.fixture
def middle(start: Start, numbers: Numbers, tmp_path: Path) -> Iterator[Callable[[str], Middle]]:
    opened = contextlib.ExitStack()

    def make(application: str) -> Middle:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        words = ("run", f"{APPLICATIONS}:{application}", numbers(N), "-o", tmp_path / "run", "--tile", "4")
        started = start(*words, "--workers", "2", env={"TARTAN_TEST_FIFO": str(fifo)})
        report = opened.enter_context(fifo.open())  # waits for the worker
        assert report.readline() == "stuck\n"
        return Middle(started, report, tmp_path / "run")

    yield make
    opened.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", [False, True])
def test_a_killed_run_leaves_nobody_behind_and_resumes(
    group: bool, middle: Callable[[str], Middle], command: Command
) -> None:
    run = middle("Stuck")
    pid = run.started.process.pid
    if group:
        os.killpg(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)
    assert run.started.finish().status == -signal.SIGKILL
    run.wait_for_workers()
    run.check_resume(command)


@pytest.mark.exhaustive
@pytest.mark.sampled(2)
@pytest.mark.parametrize("application", ["Stuck", "StuckInThreads"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_never_returns(
    number: signal.Signals, application: str, middle: Callable[[str], Middle], command: Command
) -> None:
    run = middle(application)
    run.started.process.send_signal(number)
    ended = run.started.finish()
    assert ended.status == 128 + number
    assert "resume" in ended.err
    run.wait_for_workers()
    assert run.started.family() == []
    run.check_resume(command)


def test_a_second_process_is_refused(middle: Callable[[str], Middle], command: Command) -> None:
    run = middle("Stuck")
    second = command("resume", run.run)
    assert second.status == 1
    assert str(run.started.process.pid) in second.err
    assert command("info", run.run).status == 0  # looking is allowed
    run.started.process.send_signal(signal.SIGINT)
    run.started.finish()
    run.check_resume(command)


def inside_small_folder(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where ``folder`` is a file system of 8 MB of its own, all but 300 kB of it in one file."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here: a small file system cannot be made")
    folder.mkdir(exist_ok=True)
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    name = shlex.quote(str(folder))
    mount = f"mount -t tmpfs -o size=8m tmpfs {name} && head -c 7892k /dev/zero > {name}/filler"
    if subprocess.run([*inside, mount], capture_output=True).returncode:
        pytest.skip("no user namespaces here: a small file system cannot be made")
    env = {**os.environ, "PYTHONPATH": str(Path(tartan.__file__).parents[1])}
    return subprocess.run([*inside, f"{mount} && {script}"], capture_output=True, text=True, env=env, timeout=120)


#: Fills the disk before its first scores are there, so that nothing could be foreseen.
FILLS_THE_DISK = """
import contextlib
from pathlib import Path

import tartan


class Filling(tartan.Application):
    releases_gil = True

    def compare(self, left, right, xp):
        if Path("small/run/manifest.json").exists():  # not while the run is being planned
            with contextlib.suppress(OSError), Path("small/filler").open("xb") as filler:
                while True:
                    filler.write(bytes(4096))
        return left[:, :1] + right[:, 0]
"""


def test_a_full_disk_stops_the_run_and_room_lets_it_go_on(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).standard_normal((600, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "filling.py").write_text(FILLS_THE_DISK)
    program = f"{shlex.quote(sys.executable)} -m tartan.cli.main"
    script = f"""
        cd {shlex.quote(str(tmp_path))}
        rm small/filler
        {program} run filling.py:Filling rows.npy -o small/run --tile 64
        echo "status $?"
        : > small/filler
        {program} resume small/run; echo "status $?"
        {program} export small/run scores.npy
    """
    ended = inside_small_folder(tmp_path / "small", script)
    assert ended.stdout.split("\n")[:2] == ["status 1", "status 0"], ended
    assert "no space left on the file system" in ended.stderr
    whole = rows[:, :1] + rows[:, 0]
    np.fill_diagonal(whole, 0)
    scores = np.load(tmp_path / "scores.npy")
    np.fill_diagonal(scores, 0)
    np.testing.assert_array_equal(scores, whole)


@pytest.mark.exhaustive
def test_a_tiny_shared_memory_folder_is_not_needed(numbers: Numbers, tmp_path: Path) -> None:
    words = ["run", f"{APPLICATIONS}:LoggedInProcesses", str(numbers(6)), "-o", str(tmp_path / "run")]
    program = shlex.join([sys.executable, "-m", "tartan.cli.main", *words])
    script = f"mount -t tmpfs -o size=4k tmpfs /dev/shm && {program}"
    ended = inside_small_folder(tmp_path / "small", script)
    assert ended.returncode == 0, ended.stderr
    assert tartan.open(tmp_path / "run").n_pairs_done == 15
