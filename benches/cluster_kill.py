"""Ranks of a cluster are killed at random moments: same matrix, nothing left behind, little computed again?

Each round compares on four ranks of this machine and kills one to three of them by SIGKILL; the command must end with
exit status 0 and the bits of one process.

    tartan bench cluster_kill [rounds=20] [seed=1]
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from _measure import options_of

N_ITEMS, N_RANKS = 96, 4
APPLICATION = """
import numpy as np
import tartan


class Waves(tartan.Application):
    ragged = False

    def parse(self, key, data):
        return np.frombuffer(data, np.float64)

    def compare(self, left, right, xp):
        for _ in range(40):
            scores = np.sin(left[:, None, :] * right[None, :, :]).sum(axis=2)
        return scores
"""


def start(folder: Path, out: str, *more: str) -> subprocess.Popen[bytes]:
    """Start a run."""
    words = ["run", "waves.py:Waves", "items", "-o", out, "--tile", "4", "--host-cache", "30items", "--workers", "1"]
    return subprocess.Popen([sys.executable, "-m", "tartan", *words, "--quiet", *more], cwd=folder)


def one_round(folder: Path, number: int, rng: random.Random, expected: np.ndarray) -> dict[str, Any]:
    """Kill ranks of one run; return what came of it."""
    out, n_killed = f"round-{number}", rng.randint(1, N_RANKS - 1)
    process = start(folder, out, "--cluster", f"local:{N_RANKS}")
    share, killed = rng.uniform(0.05, 0.9), 0
    total = -(-N_ITEMS // 4) * (-(-N_ITEMS // 4) + 1) // 2
    while process.poll() is None and not killed:
        time.sleep(0.02)
        with contextlib.suppress(OSError, ValueError):
            ranks = json.loads((folder / out / "ranks.json").read_text())
            if len(ranks) == N_RANKS and len(list((folder / out / "status.zarr").rglob("c/*/*"))) >= share * total:
                for rank in rng.sample(ranks, n_killed):
                    os.kill(rank["pid"], signal.SIGKILL)
                    killed += 1
    status = process.wait()
    run = tartan.open(folder / out)
    left = {path.name for path in run.path.iterdir()} - {path.name for path in (folder / "whole").iterdir()}
    pids = {rank["pid"] for rank in ranks} if killed else set()
    result = {
        "status": status,
        "killed": killed,
        "identical": run.finished and np.array_equal(run.matrix(), expected, equal_nan=True),
        "files_left": len(left),
        "processes_left": sum(Path(f"/proc/{pid}").exists() for pid in pids),
        "pairs_again": run.stats["pairs_computed"] - N_ITEMS * (N_ITEMS - 1) // 2,
    }
    print(f"round {number}: {n_killed} killed at {share:.0%}: {result}", flush=True)
    return result


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print one line a round and a summary; return the counts."""
    options = options_of(words or (), rounds=20, seed=1)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="tartan-cluster-") as name:
        folder = Path(name)
        (folder / "waves.py").write_text(APPLICATION)
        (folder / "items").mkdir()
        numbers = np.random.default_rng(options.seed)
        for index in range(N_ITEMS):
            (folder / "items" / f"{index:03}.bin").write_bytes(numbers.normal(size=500).tobytes())
        if start(folder, "whole").wait():
            raise SystemExit("the run of one process failed")
        expected = tartan.open(folder / "whole").matrix()
        results = [one_round(folder, number, rng, expected) for number in range(options.rounds)]
    summary = {
        "rounds": options.rounds,
        "exit_0": sum(result["status"] == 0 for result in results),
        "identical": sum(result["identical"] for result in results),
        "ranks_killed": sum(result["killed"] for result in results),
        "files_left": sum(result["files_left"] for result in results),
        "processes_left": sum(result["processes_left"] for result in results),
        "largest_share_again": max(result["pairs_again"] for result in results) / (N_ITEMS * (N_ITEMS - 1) // 2),
    }
    print(summary)
    return summary
