"""kill -9 at random moments of a run, resume at once: same matrix, nothing computed twice, nothing left behind?

Each round starts a run with worker processes, kills it at a random moment (the parent alone, or its whole process
group), notes which chunks the ledger holds, resumes at once, and compares with a run that nobody disturbed.

    tartan bench kill [rounds=20] [seed=1]
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import options_of
from tartan.store.folder import RunFolder

MARK = "TARTAN_KILL_MARK"
N_ITEMS, DIMENSIONS, SIDE = 1200, 16, 60
APPLICATION = '''
import os, time
import numpy as np
import tartan

class Logged(tartan.Application):
    """Inner products; each call is logged before it starts. The first number of an item is its index."""
    ragged = False

    def compare(self, left, right, xp):
        line = f"{int(left[0, 0])} {int(right[0, 0])}\\n".encode()
        log = os.open(os.environ["TARTAN_KILL_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, line)
        os.close(log)
        end = time.perf_counter() + 0.002
        scores = left[:, 1:] @ right[:, 1:].T
        while time.perf_counter() < end:
            pass
        return scores
'''


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print one line a round and a summary; return the counts."""
    options = options_of(words or (), rounds=20, seed=1)
    rounds, seed = options.rounds, options.seed
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tartan-kill-") as name:
        folder = Path(name)
        prepare(folder)
        start = time.monotonic()
        finish(start_run(folder, "whole"), folder)
        whole_seconds = time.monotonic() - start
        expected = tartan.open(folder / "whole.tartan").matrix()
        results = [
            one_round(folder, number, rng.uniform(0.05, 0.95) * whole_seconds, number % 2 == 0, expected)
            for number in range(rounds)
        ]
    summary = {
        "rounds": rounds,
        "identical": sum(r["identical"] for r in results),
        "computed_twice": sum(r["computed_twice"] for r in results),
        "processes_left": sum(r["processes_left"] for r in results),
        "shared_memory_left": sum(r["shared_memory_left"] for r in results),
        "killed_before_the_end": sum(r["committed"] < n_chunks() for r in results),
    }
    print(
        f"\n{summary['identical']} of {rounds} matrices identical; {summary['computed_twice']} tiles of committed "
        f"chunks computed again; {summary['processes_left']} processes and {summary['shared_memory_left']} "
        f"files in /dev/shm left behind"
    )
    return summary


def prepare(folder: Path) -> None:
    """Write the application and its items."""
    (folder / "logged.py").write_text(APPLICATION)
    items = np.random.default_rng(0).normal(size=(N_ITEMS, DIMENSIONS + 1)).astype(np.float32)
    items[:, 0] = np.arange(N_ITEMS)
    np.save(folder / "items.npy", items)


def n_chunks() -> int:
    side = -(-N_ITEMS // SIDE)
    return side * (side + 1) // 2


def start_run(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a run in a process group of its own, marked in its environment."""
    command = [
        sys.executable, "-m", "tartan.cli.main", "run", f"{folder}/logged.py:Logged", f"{folder}/items.npy",
        "-o", f"{folder}/{name}.tartan", "--tile", str(SIDE), "--workers", "2", "--host-cache", "400items", "--quiet",
    ]  # fmt: skip
    environment = os.environ | {MARK: name + uuid.uuid4().hex, "TARTAN_KILL_LOG": f"{folder}/{name}.log"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    process.mark = environment[MARK]  # type: ignore[attr-defined]
    return process


def finish(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.wait(timeout=300) != 0:
        raise SystemExit(f"a run in {folder} ended with status {process.returncode}")


def one_round(
    folder: Path, number: int, after_seconds: float, parent_alone: bool, expected: np.ndarray
) -> dict[str, Any]:
    """Kill one run, look at what is left, resume it, and compare."""
    name = f"round{number}"
    shared_before = set(Path("/dev/shm").iterdir())
    process = start_run(folder, name)
    descriptor = os.pidfd_open(process.pid)
    select.select([descriptor], [], [], after_seconds)
    os.close(descriptor)
    if parent_alone:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    left = wait_for_end(process.mark)  # type: ignore[attr-defined]
    committed = committed_chunks(folder / f"{name}.tartan")
    log = folder / f"{name}.log"
    lines_before = len(log.read_text().splitlines()) if log.exists() else 0
    finish(start_run(folder, name), folder)
    after = [tuple(map(int, line.split())) for line in log.read_text().splitlines()[lines_before:]]
    twice = sum((i // SIDE, j // SIDE) in committed for i, j in after)
    matrix = tartan.open(folder / f"{name}.tartan").matrix()
    result = {
        "committed": len(committed),
        "computed_twice": twice,
        "identical": bool(np.array_equal(matrix.view(np.uint32), expected.view(np.uint32))),
        "processes_left": len(left),
        "shared_memory_left": len(set(Path("/dev/shm").iterdir()) - shared_before),
    }
    who = "parent alone" if parent_alone else "whole group "
    print(f"{number:3} {who} after {after_seconds:5.2f} s: {len(committed):3} of {n_chunks()} chunks committed, "
          f"{'identical' if result['identical'] else 'DIFFERENT'}, {twice} computed twice, {len(left)} processes left",
          flush=True)  # fmt: skip
    return result


def committed_chunks(path: Path) -> set[tuple[int, int]]:
    """Return what the ledger holds; nothing when the run was killed before it had a manifest."""
    try:
        return set(RunFolder.open(path).committed())
    except tartan.TartanError:
        return set()


def wait_for_end(mark: str, seconds: float = 5.0) -> list[int]:
    """Return the marked processes that still live after a grace period; workers end when their parent does."""
    deadline = time.monotonic() + seconds
    while (living := marked(mark)) and time.monotonic() < deadline:
        descriptor = os.pidfd_open(living[0]) if living else -1
        select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        os.close(descriptor)
    return marked(mark)


def marked(mark: str) -> list[int]:
    """Return the living processes that carry a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    mark.encode() in (entry / "environ").read_bytes()
                    and b"Z" not in (entry / "stat").read_bytes().split()[2]
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
