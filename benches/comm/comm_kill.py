"""Ranks and node processes are killed at random moments: do all others end within a second, and is nothing left behind?

    tartan bench comm_kill [ranks=50] [nodes=20] [seed=1] [links=loopback,mpich,openmpi] [peers=.bench-peers]

Each time a program of four ranks that exchange messages and collectives loses one of its ranks, or its node process, by
SIGKILL: on one node and on two simulated ones by turns, and on two nodes over the MPI of each wheel. The command must
end with exit status 1 and a text that names what was killed; where a node process of MPI is killed, with the status
that ``mpiexec`` has for SIGKILL. Afterwards no process of it lives, and no file of it lies in /dev/shm or among
temporary files.
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

from benches.comm._comm_peers import WHEELS, Contender, mpi_peers
from benches.shared._measure import not_held, options_of, print_table
from tartan.comm.link_mpi import mpi_place
from tartan.errors import ConfigError

MOST_SECONDS = 1.0
DEADLINE_SECONDS = 60.0
LOOPBACK = "loopback"
N_RANKS = 4
BY_SIGKILL = (9, 128 + signal.SIGKILL)
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
    right : bool
        Whether the command has ended with the status, and said what was lost, as it should.
    left : int
        Processes that still lived then, or files.
    """

    seconds: float
    right: bool
    left: int


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process and its children have started."""
    return [pid for child in children(pid) for pid in (child, *descendants(child))]


def simulated(script: Path, nodes: int) -> list[str]:
    """Return the command of a program on nodes of this machine."""
    ranks = str(N_RANKS // nodes)
    return [sys.executable, "-m", "tartan", "ranks", "--cpus", ranks, "--nodes", str(nodes), str(script)]


def over_mpi(script: Path, peer: Contender) -> list[str]:
    """Return the command of the same program on two nodes over MPI."""
    ranks = ["-m", "tartan", "ranks", "--cpus", str(N_RANKS // 2), "--link", "mpi", str(script)]
    return [*peer.command, "2", peer.script[0], *ranks]


def node_processes(pid: int, nodes: int, peer: Contender | None) -> list[int]:
    """Return the node processes of a command, in their order."""
    if peer is None:
        return children(pid)
    found = {}
    for process in descendants(pid):
        if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode() == peer.script[0]:
            words = Path(f"/proc/{process}/environ").read_text().split("\0")
            node = mpi_place(dict(word.split("=", 1) for word in words if "=" in word)).node
            found.setdefault(node, process)  # its ranks come after it
    return [found[node] for node in range(nodes)]


def killed(script: Path, rng: random.Random, nodes: int, peer: Contender | None, *, rank: bool) -> Death:
    """Start a program, kill a rank or a node process of it, and see what comes of it."""
    command = over_mpi(script, peer) if peer else simulated(script, nodes)
    env = {**(peer.environment(1) if peer else os.environ), "TMPDIR": str(script.parent)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    if process.stdout.readline() != "running\n":
        raise RuntimeError(f"the program did not begin: {process.communicate()[1]}")
    node_pids = node_processes(process.pid, nodes, peer)
    everyone = descendants(process.pid)
    handles = [os.pidfd_open(pid) for pid in (*everyone, process.pid)]
    mapped = {path for pid in everyone for path in _shared_files(pid)}
    time.sleep(rng.random() * 0.1)
    node, local = rng.randrange(nodes), rng.randrange(N_RANKS // nodes)
    start = time.monotonic()
    os.kill(children(node_pids[node])[local] if rank else node_pids[node], signal.SIGKILL)
    left = sum(not _ended(handle, start + DEADLINE_SECONDS) for handle in handles)
    seconds = time.monotonic() - start
    _, text = process.communicate(timeout=DEADLINE_SECONDS)
    if peer and not rank:
        right = process.returncode in BY_SIGKILL
    else:
        what = f"rank {node * (N_RANKS // nodes) + local}" if rank else f"node process {node}"
        right = process.returncode == 1 and f"{what} was killed" in text
    if not right:
        print(f"status {process.returncode}: {text}", file=sys.stderr)
    return Death(seconds, right, left + sum(path.exists() for path in mapped) + len(_temporary(script)))


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
    every = ",".join((LOOPBACK, *WHEELS.values()))
    options = options_of(words, ranks=50, nodes=20, seed=1, links=every, peers=".bench-peers")
    links = options.links.split(",")
    for link in links:
        if link not in every.split(","):
            raise ConfigError(f"links={link}: there are {every}")
    peers, missing = mpi_peers(Path(options.peers)) if links != [LOOPBACK] else ([], [])
    print(f"seed {options.seed}", *(f"LEFT OUT: {text}" for text in missing), sep="\n", flush=True)
    over: dict[str, Contender | None] = {WHEELS[peer.name]: peer for peer in peers}
    over[LOOPBACK] = None
    rng = random.Random(options.seed)
    rows: list[list[object]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tartan-bench-") as folder:
        script = Path(folder) / "endless.py"
        script.write_text(SCRIPT)
        for link, what in ((link, what) for link in links if link in over for what in ("rank", "node process")):
            peer, times = over[link], options.ranks if what == "rank" else options.nodes
            deaths = [
                killed(script, rng, 2 if peer else 1 + number % 2, peer, rank=what == "rank") for number in range(times)
            ]
            rows.append([f"{what}, {link}", *_row(deaths)])
            missed += [f"{what}, {link}: {text}" for text in _missed(deaths)]
    print_table("kill -9", rows, ["killed", "times", "longest s", "median s", "ended right", "left behind"])
    return not_held(missed)


def _row(deaths: list[Death]) -> list[object]:
    seconds = [death.seconds for death in deaths] or [0.0]
    right, left = sum(death.right for death in deaths), sum(death.left for death in deaths)
    return [len(deaths), f"{max(seconds):.2f}", f"{median(seconds):.2f}", right, left]


def _missed(deaths: list[Death]) -> list[str]:
    late = sum(death.seconds > MOST_SECONDS for death in deaths)
    wrong = sum(not death.right for death in deaths)
    left = sum(death.left for death in deaths)
    texts = [(late, "ended late"), (wrong, "ended with another status or text"), (left, "processes or files left")]
    return [f"{count} {text}" for count, text in texts if count]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
