"""The most memory that a command and all that it starts hold at a time, watched from outside.

What counts is memory of the machine: the private pages of every process, pages of shared memory once (the proportional
share of each process, ``Pss_Shmem``), and mapped files, which are libraries above all, once (those of the process that
maps most). A process alone is also asked for its own record, ``VmHWM``, which no sampling misses.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# By judgement: short enough to see a buffer that is filled and freed, long enough to leave the processor to what is
# watched.
SAMPLE_SECONDS = 0.005
_KB = 1024


@dataclass(frozen=True)
class Watched:
    """A command that ended, and the most memory that it held."""

    status: int
    out: str
    err: str
    peak_bytes: int
    n_processes: int


def watch(words: Sequence[str], folder: Path, *, timeout: float = 120, env: Mapping[str, str] | None = None) -> Watched:
    """Run ``tartan`` with arguments; return how it ended, and its peak in bytes."""
    out, err = folder / "watched.out", folder / "watched.err"
    command = [sys.executable, "-m", "tartan", *words]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=folder, env={**os.environ, **(env or {})})
        peak, most, deadline = 0, 1, time.monotonic() + timeout
        try:
            while child.poll() is None:
                held, n = held_bytes(child.pid)
                peak, most = max(peak, held), max(most, n)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{words} took more than {timeout} s")
                time.sleep(SAMPLE_SECONDS)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    return Watched(child.returncode, out.read_text(), err.read_text(), peak, most)


def held_bytes(pid: int) -> tuple[int, int]:
    """Return the memory of a process and its descendants, as this module counts it, and their number."""
    private = shared = files = alone = 0
    found = _tree(pid)
    for one in found:
        status = _fields(f"/proc/{one}/status")
        private += status.get("RssAnon", 0)
        files = max(files, status.get("RssFile", 0))
        shared += _fields(f"/proc/{one}/smaps_rollup").get("Pss_Shmem", 0) if status.get("RssShmem") else 0
        alone = max(alone, status.get("VmHWM", 0))
    return max(private + shared + files, alone), len(found)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            for children in Path(f"/proc/{one}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


def _fields(path: str) -> dict[str, int]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {one[0].rstrip(":"): int(one[1]) * _KB for one in words if len(one) == 3 and one[2] == "kB"}
