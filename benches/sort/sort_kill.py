"""Ranks of a sort and its driver are killed at random moments: same bytes, nothing left behind?

    tartan bench sort_kill [kills=20] [stops=5] [drivers=5] [gigabytes=0.4] [memory=256MB] [seed=1] [folder=DIR]

kills
    Four ranks of this machine, one or two of them killed by SIGKILL.
stops
    One of four ranks stopped by SIGSTOP until it is given up, and woken by SIGCONT.
drivers
    The driver killed by SIGKILL, with all its ranks; the same command goes on.

The moments lie between the first rank and the end of a sort that nobody disturbs. Each sort must end with exit status 0
and the bytes of that one. What is left are processes of the sort, and files beside source and result.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.cluster.cluster_kill import ended
from benches.shared._measure import options_of, print_table
from benches.sort._sort_data import write_integers

N_RANKS = 4
SHORT_TIMEOUT = "3"
DEADLINE_SECONDS = 600.0  # by judgement: ten times what a sort takes on two busy cores
_HAS_COME = re.compile(r"rank \S+ has come: host \S+, process (\d+)")
_LOST = re.compile(r"rank \S+ is lost")


class Sort:
    """One sort on ranks.

    Parameters
    ----------
    folder : Path
        With the source, and for the result.
    memory : str
    more : str
        Options.
    """

    def __init__(self, folder: Path, memory: str, *more: str) -> None:
        self._log = folder / "log"
        self._log.unlink(missing_ok=True)
        self.pids: set[int] = set()
        words = ["sort", "source.bin", "sorted.bin", "--dtype", "int64", "--on", f"local:{N_RANKS}", "--overwrite"]
        words += ["--memory", memory, "--threads", "1", "--quiet", "--log-file", "log", *more]
        self.process = subprocess.Popen([sys.executable, "-m", "tartan", *words], cwd=folder)

    def log(self) -> str:
        """Return what the driver has said."""
        with contextlib.suppress(OSError):
            return self._log.read_text()
        return ""

    def ranks(self) -> list[int]:
        """Return the processes of all ranks that have come."""
        found = [int(pid) for pid in _HAS_COME.findall(self.log())]
        self.pids |= set(found)
        return found

    def wait_for_ranks(self, seconds: float) -> list[int]:
        """Wait until all ranks are there, and so long after that; return them, or none where the sort has ended."""
        while len(self.ranks()) < N_RANKS and self.process.poll() is None:
            time.sleep(0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.ranks() if self.process.poll() is None else []

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        status = self.process.wait(DEADLINE_SECONDS)
        self.ranks()
        return status


def kill(folder: Path, memory: str, rng: random.Random, seconds: float) -> tuple[Sort, int]:
    """Kill one or two ranks; return how many."""
    sort = Sort(folder, memory)
    ranks = sort.wait_for_ranks(rng.uniform(0, seconds))
    victims = rng.sample(ranks, rng.randint(1, 2)) if ranks else []
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return sort, len(victims)


def stop(folder: Path, memory: str, rng: random.Random, seconds: float) -> tuple[Sort, int]:
    """Stop a rank until it is given up, then wake it."""
    sort = Sort(folder, memory, "--rank-timeout", SHORT_TIMEOUT)
    ranks = sort.wait_for_ranks(rng.uniform(0, seconds / 2))
    if ranks:
        pid = rng.choice(ranks)
        os.kill(pid, signal.SIGSTOP)
        while not _LOST.search(sort.log()) and sort.process.poll() is None:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return sort, bool(ranks)


def kill_driver(folder: Path, memory: str, rng: random.Random, seconds: float) -> tuple[Sort, int]:
    """Kill the driver, wait for its ranks, and run the same command again."""
    first = Sort(folder, memory)
    ranks = first.wait_for_ranks(rng.uniform(0, seconds))
    first.process.kill()
    first.process.wait()
    left = sum(not ended(pid) for pid in ranks)
    sort = Sort(folder, memory)
    sort.pids |= set(ranks)
    return sort, bool(ranks) and not left


def main(arguments: Sequence[str]) -> int:
    """Run all rounds; 1 if one of them ended otherwise than it must."""
    options = options_of(arguments, kills=20, stops=5, drivers=5, gigabytes=0.4, memory="256MB", seed=1, folder="")
    rounds = [("kill", kill)] * options.kills + [("stop", stop)] * options.stops
    rounds += [("driver", kill_driver)] * options.drivers
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="tartan-bench-", dir=options.folder or None) as name:
        folder, rng = Path(name), random.Random(options.seed)
        write_integers(folder / "source.bin", "random", int(options.gigabytes * 10**9) // 8)
        plain = Sort(folder, options.memory)
        plain.wait_for_ranks(0)
        start = time.monotonic()
        if plain.end():
            raise SystemExit("the sort that nobody disturbs has failed")
        seconds = time.monotonic() - start
        expected = (folder / "sorted.bin").read_bytes()
        files = {path.name for path in folder.iterdir()}
        for what, disturb in rounds:
            (folder / "sorted.bin").unlink()
            sort, hit = disturb(folder, options.memory, rng, seconds)
            status = sort.end()
            same = status == 0 and (folder / "sorted.bin").read_bytes() == expected
            left = sorted({path.name for path in folder.iterdir() if not path.name.startswith("log")} - files)
            alive = sum(not ended(pid) for pid in sort.pids)
            rows.append([what, int(hit), status, int(same), len(left), alive])
            print(f"{what}: {int(hit)} hit, status {status}, same {same}, files left {left}, alive {alive}", flush=True)
    print_table("a sort on four ranks", rows, ["what", "hit", "status", "same", "files left", "processes left"])
    return int(any(row[2] or not row[3] or row[4] or row[5] for row in rows))
