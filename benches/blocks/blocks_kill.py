"""Ranks of LU are killed, frozen, and join at random moments: same factors, nothing left behind?

    tartan bench blocks_kill [kills=20] [joins=5] [stops=3] [seed=1]

kills
    Four ranks of this machine, one or two of them killed by SIGKILL.
joins
    Three workers of a Dask cluster; a fourth is started in the middle, and then one of the first is killed.
stops
    Four ranks, one of them stopped by SIGSTOP until it is given up, and woken by SIGCONT after the end.

Every round must give the bits of one rank, by itself, and leave neither folders nor processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benches.cluster.cluster_kill import ended
from benches.shared._measure import options_of
from tartan.blocks import Session
from tartan.blocks.applications.lu import lu

N, BLOCK = 768, 96
N_SUBTASKS = 268
JOIN_SECONDS = 60.0


class Round:
    """One factorisation on ranks, and what happens to them.

    Parameters
    ----------
    folder : Path
        Where ranks keep what does not fit; empty.
    rng : Random
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.moment = rng.randrange(5, N_SUBTASKS - 5)
        self.n_done = 0
        self.pids: set[int] = set()
        self.hit: list[int] = []
        self.deed: Callable[[], None] = lambda: None

    def progress(self, done: int, total: int) -> None:
        """Count a subtask; do what is to be done at its moment."""
        self.n_done += 1
        if self.n_done == self.moment:
            self.deed()

    def ranks(self) -> list[int]:
        """Return the processes of the ranks: those that have locked a folder."""
        found = [int(path.parts[2]) for path in Path("/proc").glob("[0-9]*/fd") if self._locks(path)]
        found = [pid for pid in found if pid != os.getpid()]
        self.pids |= set(found)
        return found

    def _locks(self, descriptors: Path) -> bool:
        with contextlib.suppress(OSError):
            for one in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    target = one.readlink()
                    if target.name == "lock" and target.parent.parent == self.folder:
                        return True
        return False

    def signal(self, number: int, count: int) -> None:
        """Send a signal to some of the ranks."""
        self.hit = self.rng.sample(self.ranks(), count)
        for pid in self.hit:
            os.kill(pid, number)

    def factored(self, matrix: np.ndarray, cluster: Any) -> tuple[np.ndarray, int]:
        """Return the factors, and how many ranks were lost."""
        with Session(cluster, folder=self.folder, workers=1, host_cache=1 << 24, progress=self.progress) as session:
            self.ranks()
            found = lu(session, matrix, block=BLOCK)[0].array()
            return found, session.total.ranks_lost


def kill(about: Round, matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Kill one or two of four ranks."""
    about.deed = lambda: about.signal(signal.SIGKILL, about.rng.randint(1, 2))
    return about.factored(matrix, "local:4")


def stop(about: Round, matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Stop one of four ranks, and wake it when all is done."""
    about.deed = lambda: about.signal(signal.SIGSTOP, 1)
    try:
        return about.factored(matrix, "local:4")
    finally:
        for pid in about.hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def join(about: Round, matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Let a rank join three, and kill one of those."""
    with _dask(3) as (cluster, client):

        def deed() -> None:
            first = about.ranks()
            cluster.scale(4)
            deadline = time.monotonic() + JOIN_SECONDS
            while len(about.ranks()) == len(first) and time.monotonic() < deadline:
                time.sleep(0.05)
            about.hit = [about.rng.choice(first)]
            os.kill(about.hit[0], signal.SIGKILL)

        about.deed = deed
        return about.factored(matrix, client)


@contextlib.contextmanager
def _dask(n_workers: int) -> Iterator[tuple[Any, Any]]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def main(words: list[str]) -> int:
    """Print one line a round and a summary of each kind; fail where a round was not as it must be."""
    options = options_of(words, kills=20, joins=5, stops=3, seed=1)
    rng = np.random.default_rng(options.seed)
    matrix = rng.uniform(-1, 1, (N, N)) + N * np.eye(N)
    with Session(workers=1) as session:
        expected = lu(session, matrix, block=BLOCK)[0].array()
    n_bad = 0
    for tell, n_rounds in ((kill, options.kills), (join, options.joins), (stop, options.stops)):
        found = [
            _round(tell, matrix, expected, f"{tell.__name__} {options.seed} {number}") for number in range(n_rounds)
        ]
        n_bad += found.count(False)
        print(f"{tell.__name__}: {found.count(True)} of {len(found)} as they must be", flush=True)
    return 1 if n_bad else 0


def _round(
    tell: Callable[[Round, np.ndarray], tuple[np.ndarray, int]], matrix: np.ndarray, expected: np.ndarray, seed: str
) -> bool:
    """Tell one story; return whether its end is as it must be."""
    with tempfile.TemporaryDirectory(prefix="tartan-kill-") as name:
        about = Round(Path(name), random.Random(seed))
        begin = time.perf_counter()
        factors, lost = tell(about, matrix)
        seconds = time.perf_counter() - begin
        result = {
            "hit": len(about.hit),
            "lost": lost,
            "identical": np.array_equal(factors, expected),
            "processes_left": sum(not ended(pid) for pid in about.pids),
            "folders_left": len(list(Path(name).iterdir())),
        }
    print(f"{tell.__name__} at subtask {about.moment}: {result}, {seconds:.0f} s", flush=True)
    whole = result["identical"] and not result["processes_left"] and not result["folders_left"]
    return bool(whole and result["hit"] and lost == result["hit"])
