"""Runs of the command on several ranks of this machine, and what tests do to their processes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tartan

APPLICATION = '''
import ctypes
import os
import signal
from pathlib import Path

import numpy as np
import tartan


class Waves(tartan.Application):
    """Slow enough that a rank can be lost in the middle."""

    releases_gil = True
    ragged = False
    times = 60

    def parse(self, key, data):
        return np.frombuffer(data, np.float64)

    def compare(self, left, right, xp):
        for _ in range(self.times):
            scores = np.sin(left[:, None, :] * right[None, :, :]).sum(axis=2)
        return scores


class Slower(Waves):
    """So slow that other commands can be tried meanwhile."""

    times = 400


class Holds(Waves):
    """Holds the interpreter lock of its process for four seconds, once."""

    def compare(self, left, right, xp):
        try:
            Path("held").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            ctypes.PyDLL(None).usleep(4_000_000)
        return super().compare(left, right, xp)


class EndlessOnOneRank(Waves):
    """Never returns from the pair 5, 30 on the rank that comes to it first."""

    releases_gil = False

    def compare(self, left, right, xp):
        five, thirty = (np.fromfile(f"items/{number:03}.bin")[0] for number in (5, 30))
        if five in left[:, 0] and thirty in right[:, 0]:
            try:
                Path("first").touch(exist_ok=False)
                Path("first").write_text(str(os.getppid()))
            except FileExistsError:
                pass
            if Path("first").read_text() == str(os.getppid()):
                signal.pause()
        return super().compare(left, right, xp)


class Crashes(Waves):
    """Ends every process that compares whole tiles."""

    def compare(self, left, right, xp):
        if 4 in (len(left), len(right)):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().compare(left, right, xp)
'''
N = 48
DEADLINE_SECONDS = 120.0


def lay_out(folder: Path) -> Path:
    """Write the application and its items to a folder."""
    (folder / "waves.py").write_text(APPLICATION)
    items = folder / "items"
    items.mkdir()
    rng = np.random.default_rng(3)
    for number in range(N):
        (items / f"{number:03}.bin").write_bytes(rng.normal(size=500).tobytes())
    return folder


def command(out: str, *more: str, app: str = "Waves") -> list[str]:
    """Return the words of a command that compares the items."""
    words = ["run", f"waves.py:{app}", "items", "-o", out]
    return [*words, "--tile", "4", "--host-cache", "20items", "--workers", "1", *more]


def tartan_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    program = [sys.executable, "-m", "tartan", *words]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_SECONDS)


class Several:
    """A run on two ranks of this machine, in the folder ``several``."""

    def __init__(self, folder: Path, *more: str, app: str = "Waves") -> None:
        words = command("several", "--on", "local:2", *more, app=app)
        self.folder, self.out = folder, folder / "several"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tartan", *words],
            cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, process_group=0,
        )  # fmt: skip
        self.errors = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._pause = threading.Event()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.errors = stream.read()

    def ranks(self) -> list[int]:
        """Return the processes of the live ranks."""
        with contextlib.suppress(OSError, ValueError):
            found: list[dict[str, Any]] = json.loads((self.out / "ranks.json").read_text())
            return [int(rank["pid"]) for rank in found]
        return []

    def n_committed(self) -> int:
        """Return how many files the ledger has."""
        return sum(1 for _ in (self.out / "status.zarr").rglob("c/*/*"))

    def wait(self, happened: Callable[[], bool]) -> bool:
        """Wait until something is so; False where the run ends before that."""
        while not happened():
            if self.process.poll() is not None:
                return False
            self._pause.wait(0.02)
        return True

    def both_compute(self, n_committed: int = 1) -> list[int]:
        """Wait until both ranks take part and some chunks are committed; return their processes."""
        assert self.wait(lambda: len(self.ranks()) == 2 and self.n_committed() >= n_committed), self.end()
        return self.ranks()

    def family(self) -> list[int]:
        """Return all processes that the command has started, their children included."""
        found, rest = [], [self.process.pid]
        while rest:
            with contextlib.suppress(OSError):
                tasks = Path(f"/proc/{rest.pop()}/task").iterdir()
                rest += [int(word) for task in tasks for word in (task / "children").read_text().split()]
                found += rest
        return sorted(set(found))

    def end(self) -> tuple[int, str]:
        """Wait for the end; return status and standard error."""
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return status, self.errors


@contextlib.contextmanager
def several(folder: Path, *more: str, app: str = "Waves") -> Iterator[Several]:
    """Start a run on two ranks; nothing of it is left afterwards."""
    run = Several(folder, *more, app=app)
    try:
        yield run
    finally:
        run.process.kill()
        run.end()


def wait_ended(pids: list[int]) -> None:
    """Wait until processes are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError), os.fdopen(os.pidfd_open(pid)) as descriptor:
            assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0], f"process {pid} is still there"


def check_same(folder: Path) -> None:
    """Check that the run on several ranks is what one process makes, and that it left nothing else."""
    one = tartan_command(folder, *command("one", "--quiet"))
    assert one.returncode == 0, one.stderr
    found, plain = tartan.open(folder / "several"), tartan.open(folder / "one")
    assert found.finished
    np.testing.assert_array_equal(found.matrix(), plain.matrix())
    left = {path.name for path in found.path.iterdir()} - {path.name for path in plain.path.iterdir()}
    assert left == set()


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
