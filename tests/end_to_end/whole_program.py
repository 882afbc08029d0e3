"""How the tests run the whole program: commands inside this process, and commands as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tartan

__all__ = ["APPLICATIONS", "Command", "Numbers", "Outcome", "Start", "Started", "find_marked", "start_process"]

APPLICATIONS = Path(__file__).with_name("applications.py")
MARK = "TARTAN_TEST_MARK"


@dataclass
class Outcome:
    """What one command did; the status of a process that a signal killed is negative."""

    status: int
    out: str
    err: str


@dataclass
class Started:
    """A command that runs in a process group of its own."""

    process: subprocess.Popen[str]
    mark: str

    def finish(self, timeout_seconds: float = 60.0) -> Outcome:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=timeout_seconds)
        return Outcome(self.process.returncode, out, err)

    def family(self) -> list[int]:
        """Return the processes that it started and that live, itself among them."""
        return find_marked(f"{MARK}={self.mark}")

    def end(self) -> None:
        """Kill all that is left."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


Command = Callable[..., Outcome]
Numbers = Callable[..., Path]
Start = Callable[..., Started]


def start_process(*words: object, env: dict[str, str] | None = None, **options: Any) -> Started:
    """Start ``tartan WORDS`` with the package under test; options go to ``subprocess.Popen``."""
    mark = uuid.uuid4().hex
    package = str(Path(tartan.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tartan.cli.main", *map(str, words)],
        env={**os.environ, MARK: mark, "PYTHONPATH": package, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    return Started(process, mark)


def find_marked(mark: str) -> list[int]:
    """Return the processes that live in whose environment this NAME=VALUE stands."""
    return [pid for pid in _pids() if _has_mark(pid, mark)]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
