"""Ranks and node processes are killed at random moments: do all others end within a second, and is nothing left behind?

    tartan bench comm_kill [ranks=50] [nodes=20] [seed=1]

Each time a program of four ranks that exchange messages and collectives is killed by SIGKILL: one of its ranks, or its
node process, on one node and on two simulated ones by turns. The command must end with exit status 1 and a text that
names what was killed. Afterwards no process of it lives, and no file of it lies in /dev/shm or among temporary files.
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from _cluster import not_held
from _measure import options_of, print_table

MOST_SECONDS = 1.0
DEADLINE_SECONDS = 60.0
SCRIPT = """
import sys
import numpy as np
from tartan import comm

world = comm.world()
mine = np.full(5000, float(world.rank))
place = np.empty_like(mine)
turn = 0
while True:
    world.sendrecv(mine, (world.rank + 1) % world.size, (world.rank - 1) % world.size, out=place)
    world.all_gather(mine, shared=True)
    if turn % 3 == world.rank % 3:
        np.sort(np.random.default_rng(turn).random(20000))
    if turn == 20 and world.rank == 0:
        print("running", flush=True)
    turn += 1
"""


@dataclass(frozen=True)
class Death:
    """What came of one kill.

    Attributes
    ----------
    seconds : float
        From the kill to the end of the last process.
    status : int
        Of the command.
    named : bool
        Whether the command has said what was lost.
    left : int
        Processes that still lived then, or files.
    """

    seconds: float
    status: int
    named: bool
    left: int


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def killed(script: Path, rng: random.Random, nodes: int, *, rank: bool) -> Death:
    """Start a program, kill a rank or a node process of it, and see what comes of it."""
    command = [sys.executable, "-m", "tartan", "ranks", "--cpus", str(4 // nodes), "--nodes", str(nodes), str(script)]
    env = {**os.environ, "TMPDIR": str(script.parent)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    if process.stdout.readline() != "running\n":
        raise RuntimeError(f"the program did not begin: {process.communicate()[1]}")
    node_pids = children(process.pid)
    by_node = [children(pid) for pid in node_pids]
    everyone = [*node_pids, *(pid for pids in by_node for pid in pids)]
    handles = [os.pidfd_open(pid) for pid in (*everyone, process.pid)]
    mapped = {path for pid in everyone for path in _shared_files(pid)}
    time.sleep(rng.random() * 0.1)
    node = rng.randrange(nodes)
    local = rng.randrange(len(by_node[node]))
    start = time.monotonic()
    os.kill(by_node[node][local] if rank else node_pids[node], signal.SIGKILL)
    left = sum(not _ended(handle, start + DEADLINE_SECONDS) for handle in handles)
    seconds = time.monotonic() - start
    _, text = process.communicate(timeout=DEADLINE_SECONDS)
    what = f"rank {node * (4 // nodes) + local} was killed" if rank else f"node process {node} was killed"
    return Death(
        seconds,
        process.returncode,
        what in text,
        left + sum(path.exists() for path in mapped) + len(_temporary(script)),
    )


def _ended(handle: int, deadline: float) -> bool:
    """Return whether a process ends before a deadline; close its handle."""
    with os.fdopen(handle) as file:
        return bool(select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0])


def _shared_files(pid: int) -> set[Path]:
    """Return the files of /dev/shm that a process has mapped; memory of memfd has no name."""
    return {Path(line.split(maxsplit=5)[5]) for line in _maps(pid) if " /dev/shm/" in line}


def _maps(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def _temporary(script: Path) -> list[Path]:
    """Return what lies beside the script, where the processes write temporary files."""
    return [path for path in script.parent.iterdir() if path != script]


def main(words: list[str]) -> int:
    """Kill, print, and hold the bars."""
    options = options_of(words, ranks=50, nodes=20, seed=1)
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    rows: list[list[object]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tartan-bench-") as folder:
        script = Path(folder) / "endless.py"
        script.write_text(SCRIPT)
        for what, times in (("rank", options.ranks), ("node process", options.nodes)):
            deaths = [killed(script, rng, 1 + number % 2, rank=what == "rank") for number in range(times)]
            rows.append(_row(what, deaths))
            missed += _missed(what, deaths)
    print_table("kill -9", rows, ["killed", "times", "longest s", "median s", "status 1", "named", "left behind"])
    return not_held(missed)


def _row(what: str, deaths: list[Death]) -> list[object]:
    seconds = [death.seconds for death in deaths] or [0.0]
    right, named = sum(death.status == 1 for death in deaths), sum(death.named for death in deaths)
    return [
        what,
        len(deaths),
        f"{max(seconds):.2f}",
        f"{median(seconds):.2f}",
        right,
        named,
        sum(death.left for death in deaths),
    ]


def _missed(what: str, deaths: list[Death]) -> list[str]:
    late = sum(death.seconds > MOST_SECONDS for death in deaths)
    wrong = sum(death.status != 1 or not death.named for death in deaths)
    left = sum(death.left for death in deaths)
    texts = [(late, "ended late"), (wrong, "ended with another status or text"), (left, "processes or files left")]
    return [f"{what} killed: {count} {text}" for count, text in texts if count]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
