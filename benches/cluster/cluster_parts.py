"""Four parts of one run at once, one killed by SIGKILL, then a resume: the same bits as one run, nothing left behind?

Each round starts ``tartan run --part 1/4`` to ``4/4`` at the same time on one folder, kills one of them (with its
workers) when it has done a random share of its work, waits for the others, resumes, and compares with a run that one
process made. Rounds take turns: the whole matrix, the best of each item, pairs beyond a threshold.

    tartan bench cluster_parts [rounds=6] [seed=1]
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import tartan
from benches.pairs.kill import SIDE, marked, n_chunks, prepare, wait_for_end
from benches.shared._measure import options_of
from tartan.store.folder import RunFolder

N_PARTS = 4
WAYS = {
    "matrix": (),
    "top-k": ("--top-k", "5", "--largest"),
    "threshold": ("--threshold", "9", "--largest"),
}
MARK = "TARTAN_KILL_MARK"


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print one line a round and a summary; return the counts."""
    options = options_of(words or (), rounds=6, seed=1)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="tartan-parts-") as name:
        folder = Path(name)
        prepare(folder)
        whole = [one_run(folder, way) for way in list(WAYS)[: options.rounds]]
        results = [one_round(folder, number, rng, *whole[number % len(whole)]) for number in range(options.rounds)]
    summary = {
        "rounds": options.rounds,
        "identical": sum(r["identical"] for r in results),
        "killed_before_its_end": sum(r["killed"] for r in results),
        "files_left": sum(r["files_left"] for r in results),
        "processes_left": sum(r["processes_left"] for r in results),
    }
    print(
        f"\n{summary['identical']} of {options.rounds} results identical; {summary['killed_before_its_end']} parts "
        f"killed before their end; {summary['files_left']} files and {summary['processes_left']} processes left behind"
    )
    return summary


def one_run(folder: Path, way: str) -> tuple[str, list[bytes]]:
    """Compute a run in one process; return its way and its bits."""
    wait_all([begin(folder, f"whole-{way}", way)])
    return way, bits(folder / f"whole-{way}.tartan")


def begin(folder: Path, name: str, way: str, *more: str) -> subprocess.Popen[bytes]:
    """Start a run, or a part of one, in a process group of its own, marked in its environment."""
    command = [
        sys.executable, "-m", "tartan.cli.main", "run", f"{folder}/logged.py:Logged", f"{folder}/items.npy",
        "-o", f"{folder}/{name}.tartan", "--tile", str(SIDE), "--workers", "1", "--host-cache", "400items", "--quiet",
        *WAYS[way], *more,
    ]  # fmt: skip
    environment = os.environ | {MARK: f"{folder}/{name}", "TARTAN_KILL_LOG": f"{folder}/log"}
    return subprocess.Popen(command, env=environment, start_new_session=True)


def wait_all(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.wait(timeout=600) != 0:
            raise SystemExit(f"{' '.join(map(str, process.args))} ended with status {process.returncode}")


def one_round(folder: Path, number: int, rng: random.Random, way: str, expected: list[bytes]) -> dict[str, Any]:
    """Start all parts, kill one, resume, and compare."""
    name = f"round{number}"
    path = folder / f"{name}.tartan"
    parts = [begin(folder, name, way, "--part", f"{index}/{N_PARTS}") for index in range(1, N_PARTS + 1)]
    victim, share = rng.randrange(N_PARTS), rng.uniform(0.02, 0.8)
    ended = wait_until_done(path, parts[victim], victim, share)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(parts[victim].pid, signal.SIGKILL)
    parts[victim].wait()
    wait_all([part for index, part in enumerate(parts) if index != victim])
    done = [f"{1 - part.n_pairs_left / part.n_pairs:.0%}" for part in tartan.open(path).parts]
    resumed = [sys.executable, "-m", "tartan.cli.main", "resume", str(path), "--quiet", "--trust"]
    environment = os.environ | {MARK: f"{folder}/{name}", "TARTAN_KILL_LOG": f"{folder}/log"}
    wait_all([subprocess.Popen(resumed, env=environment)])
    wait_for_end(f"{folder}/{name}")
    left = [entry for place in ("writers", "writers-gone", "claims", "tmp") for entry in (path / place).glob("**/*")]
    result = {
        "identical": bits(path) == expected,
        "killed": not ended,
        "files_left": len(left),
        "processes_left": len(marked(f"{folder}/{name}")),
    }
    verdict = "identical" if result["identical"] else "DIFFERENT"
    print(
        f"{number:3} {way:9} part {victim + 1} killed at {share:.0%} of its share; in the end parts had "
        f"{', '.join(done)} of theirs ({n_chunks()} chunks in all); {verdict}",
        flush=True,
    )
    return result


def wait_until_done(path: Path, process: subprocess.Popen[bytes], part: int, share: float) -> bool:
    """Wait until a part has committed a share of its chunks; return whether its process ended before."""
    descriptor = os.pidfd_open(process.pid)
    try:
        while not select.select([descriptor], [], [], 0.02)[0]:
            with contextlib.suppress(tartan.TartanError):
                folder = RunFolder.open(path)
                chunks = set(folder.pairs.shares(N_PARTS)[part])
                if len(chunks & set(folder.committed())) >= share * len(chunks):
                    return False
        return True
    finally:
        os.close(descriptor)


def bits(path: Path) -> list[bytes]:
    """Return all that a run has found, so that every bit counts."""
    run = tartan.open(path)
    if run.manifest.reduce is None:
        return [np.asarray(run.matrix()).tobytes(), np.asarray(run.status[:]).tobytes()]
    table = pq.read_table(path / "result.parquet")
    return [np.asarray(table[name]).tobytes() for name in ("i", "j", "score")]


if __name__ == "__main__":
    main(sys.argv[1:])
