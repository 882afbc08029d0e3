"""Ranks, drivers and schedulers are killed at random moments: same matrix, nothing left behind, little done again?

    tartan bench cluster_kill [kills=20] [joins=5] [stops=5] [cuts=3] [drivers=20] [schedulers=10] [items=96] [seed=1]

kills
    Four ranks of this machine, one to three of them killed by SIGKILL.
joins
    Two workers of a Dask cluster; a third is started in the middle of the run, and then one of the first is killed.
stops
    Four ranks, one of them stopped by SIGSTOP until it is given up, and woken by SIGCONT.
cuts
    Two workers of a Dask cluster with certificates, one of them in a network namespace whose link is cut; needs root.
drivers
    Four ranks of this machine, whose driver is killed by SIGKILL; ``tartan attach`` follows and goes on, in half of the
    rounds it is started afterwards. ``back_seconds``: from the kill, or from the start, until it takes over.
schedulers
    Four workers of a Dask cluster, whose scheduler is killed by SIGKILL; ``tartan attach`` goes on with another one.
    ``back_seconds``: from the kill until the command and its ranks have ended.

Each command must end with exit status 0 and the bits of one process. Pairs that were computed again are those of chunks
that were committed already when they were computed, of all that was reported before its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import options_of

N_ITEMS, TILE = 96, 4
SHORT_TIMEOUT = ("--rank-timeout", "3")
DEADLINE_SECONDS = 300.0  # by judgement: five times what the slowest takes on two busy cores
APPLICATION = """
import numpy as np
import tartan


class Waves(tartan.Application):
    ragged = False
    times = 40

    def parse(self, key, data):
        return np.frombuffer(data, np.float64)

    def compare(self, left, right, xp):
        for _ in range(self.times):
            scores = np.sin(left[:, None, :] * right[None, :, :]).sum(axis=2)
        return scores


class Slow(Waves):
    times = 160
"""


class Story:
    """One run on ranks, and what happens to them.

    Parameters
    ----------
    folder : Path
        Where items, application and run folders lie.
    name : str
    rng : Random
    words : sequence of str
        Where the ranks are.
    """

    def __init__(
        self, folder: Path, name: str, rng: random.Random, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.out, self.rng, self.notes = folder / name, rng, dict[str, Any]()
        self.pids: set[int] = set()
        app = "Slow" if "--scheduler-file" in words else "Waves"
        self.process = start(folder, name, *words, app=app, env=env)

    def ranks(self) -> list[dict[str, Any]]:
        """Return the live ranks; empty while there are none."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.out / "ranks.json").read_text())
        self.pids |= {rank["pid"] for rank in found}
        return found

    def share(self) -> float:
        """Return which share of the chunks is committed."""
        side = -(-N_ITEMS // TILE)
        return len(list((self.out / "status.zarr").rglob("c/*/*"))) / (side * (side + 1) // 2)

    def wait(self, happened: Callable[[], bool]) -> bool:
        """Wait until something is so; return False where the run ends before that."""
        while not happened():
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def wait_for_share(self, share: float, n_ranks: int) -> list[dict[str, Any]]:
        """Wait until ranks have committed a share; return the ranks, or none where the run has ended."""
        come = self.wait(lambda: len(self.ranks()) == n_ranks and self.share() >= share)
        return self.ranks() if come else []

    def end(self, expected: np.ndarray, plain: Path) -> dict[str, Any]:
        """Wait for the end; return what came of it."""
        status = self.process.wait(DEADLINE_SECONDS)
        run = tartan.open(self.out)
        left = {path.name for path in run.path.iterdir()} - {path.name for path in plain.iterdir()}
        again = max(0, run.stats.get("pairs_computed", 0) - N_ITEMS * (N_ITEMS - 1) // 2)
        return {
            "status": status,
            "identical": run.finished and np.array_equal(run.matrix(), expected, equal_nan=True),
            "files_left": len(left),
            "processes_left": sum(not ended(pid) for pid in self.pids),
            "pairs_again": again,
            "ranks_lost": run.stats.get("ranks_lost", 0),
            **self.notes,
        }


def ended(pid: int, seconds: float = 30.0) -> bool:
    """Return whether a process ends within some seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor) as file:
        return bool(select.select([file], [], [], seconds)[0])


def start(
    folder: Path, out: str, *more: str, app: str = "Waves", env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a run."""
    words = ["run", f"waves.py:{app}", "items", "-o", out, "--tile", str(TILE), "--host-cache", "30items"]
    command = [sys.executable, "-m", "tartan", *words, "--workers", "1", "--quiet", *more]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **(env or {})})


# -- what happens ------------------------------------------------------------------------------------------------------


def kill(folder: Path, name: str, rng: random.Random) -> Story:
    """Kill one to three of four ranks."""
    story = Story(folder, name, rng, ["--on", "local:4"])
    ranks = story.wait_for_share(rng.uniform(0.05, 0.9), 4)
    victims = rng.sample(ranks, rng.randint(1, 3)) if ranks else []
    for rank in victims:
        os.kill(rank["pid"], signal.SIGKILL)
    story.notes["killed"] = len(victims)
    return story


def stop(folder: Path, name: str, rng: random.Random) -> Story:
    """Stop one of four ranks until it is given up, then wake it."""
    story = Story(folder, name, rng, ["--on", "local:4", *SHORT_TIMEOUT])
    ranks = story.wait_for_share(rng.uniform(0.05, 0.4), 4)
    story.notes |= {"stopped": bool(ranks), "woken_and_ended": False}
    if ranks:
        pid = rng.choice(ranks)["pid"]
        os.kill(pid, signal.SIGSTOP)
        story.wait(lambda: pid not in {rank["pid"] for rank in story.ranks()})
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        story.notes["woken_and_ended"] = ended(pid)
    return story


@contextlib.contextmanager
def cluster(folder: Path, host: str, *more: str, env: Mapping[str, str] | None = None) -> Iterator[Callable[..., Any]]:
    """Start a Dask scheduler; yield what starts a worker of it, a command before it if need be."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, **(env or {})}}
    file = folder / f"scheduler-{secrets.token_hex(4)}.json"
    dask = [sys.executable, "-m", "dask"]
    dash = ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with contextlib.ExitStack() as stack:

        def begin(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(words, cwd=folder, **quiet)  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        scheduler = begin(*dask, "scheduler", "--host", host, "--port", "0", *dash, *more)
        while not file.exists():
            time.sleep(0.05)

        def worker(at: str = host, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
            words = ["worker", "--host", at, "--nthreads", "1", "--memory-limit", "0", "--no-nanny", *dash]
            return begin(*before, *dask, *words)

        worker.file, worker.scheduler = file, scheduler  # type: ignore[attr-defined]
        yield worker


def join(folder: Path, name: str, rng: random.Random) -> Story:
    """Let a rank join two, and kill one of those afterwards."""
    with cluster(folder, "127.0.0.1") as worker:
        worker(), worker()
        story = Story(folder, name, rng, ["--scheduler-file", str(worker.file)])
        first = story.wait_for_share(rng.uniform(0.02, 0.15), 2)
        story.notes |= {"joined": False, "killed": 0}
        if first:
            worker()
            story.notes["joined"] = story.wait(lambda: len(story.ranks()) == 3)
            if story.notes["joined"]:
                os.kill(rng.choice(first)["pid"], signal.SIGKILL)
                story.notes["killed"] = 1
        story.process.wait(DEADLINE_SECONDS)
    return story


@contextlib.contextmanager
def link(number: int) -> Iterator[tuple[str, str, str]]:
    """Make a network namespace with a link to this one; yield its name and the addresses of both ends."""
    space, ours, theirs = f"tartan{number}", f"tartan{number}a", f"tartan{number}b"
    here, there = f"10.213.{number}.1", f"10.213.{number}.2"
    commands = [
        f"ip netns add {space}",
        f"ip link add {ours} type veth peer name {theirs} netns {space}",
        f"ip addr add {here}/24 dev {ours}",
        f"ip link set {ours} up",
        f"ip -n {space} addr add {there}/24 dev {theirs}",
        f"ip -n {space} link set {theirs} up",
        f"ip -n {space} link set lo up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield space, here, there
    finally:
        for command in (f"ip link del {ours}", f"ip netns del {space}"):
            subprocess.run(command.split(), check=False, stderr=subprocess.DEVNULL)


def cut(folder: Path, name: str, rng: random.Random) -> Story:
    """Cut the link of one of two ranks."""
    certificates = folder / f"certificates-{name}"
    subprocess.run([sys.executable, "-m", "tartan", "cluster-certs", str(certificates), "--days", "1"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    env = {"DASK_CONFIG": str(certificates)}
    number = int(name.rpartition("-")[2]) + 1
    with link(number) as (space, here, there), cluster(folder, here, "--protocol", "tls", env=env) as worker:
        worker(here), worker(there, ["ip", "netns", "exec", space])
        story = Story(folder, name, rng, ["--scheduler-file", str(worker.file), *SHORT_TIMEOUT], env)
        found = story.wait_for_share(rng.uniform(0.05, 0.4), 2)
        story.notes["cut"] = bool(found)
        if found:
            subprocess.run(["ip", "link", "set", f"tartan{number}a", "down"], check=True)
        story.process.wait(DEADLINE_SECONDS)
        story.notes["ended_by_themselves"] = all(ended(pid) for pid in story.pids)
    return story


def driver(folder: Path, name: str, rng: random.Random) -> Story:
    """Kill the driver of four ranks; one that follows, before or after, goes on."""
    story = Story(folder, name, rng, ["--on", "local:4", "--wait", "10min"])
    share, follows = rng.uniform(0.05, 0.8), rng.random() < 0.5
    seen = story.wait_for_share(0.01, 4)
    heir = attach(folder, name) if follows and seen else None
    if seen and heir is not None:
        story.wait(lambda: "computes" in said_by(folder, name))
    story.wait_for_share(share, 4)
    done = tartan.open(story.out).n_pairs_done
    story.notes["killed"] = story.process.poll() is None
    story.process.kill()
    begun = time.monotonic()
    story.process.wait()
    heir = heir or attach(folder, name)
    return take_over(story, folder, heir, done, begun)


def scheduler(folder: Path, name: str, rng: random.Random) -> Story:
    """Kill the scheduler of four workers; go on with another one."""
    with cluster(folder, "127.0.0.1") as worker:
        for _ in range(4):
            worker()
        story = Story(folder, name, rng, ["--scheduler-file", str(worker.file), "--wait", "10min"])
        story.wait_for_share(rng.uniform(0.05, 0.8), 4)
        done = tartan.open(story.out).n_pairs_done
        story.notes["killed"] = story.process.poll() is None
        worker.scheduler.kill()
        begun = time.monotonic()
        story.process.wait(DEADLINE_SECONDS)
        for pid in story.pids:
            ended(pid)
        back = time.monotonic() - begun
    with cluster(folder, "127.0.0.1") as worker:
        for _ in range(4):
            worker()
        heir = attach(folder, name, "--scheduler-file", str(worker.file))
        take_over(story, folder, heir, done, begun)
        story.process.wait(DEADLINE_SECONDS)
        story.notes["back_seconds"] = round(back, 2)
    return story


def attach(folder: Path, name: str, *more: str) -> subprocess.Popen[bytes]:
    """Start ``tartan attach``, which says what it does in a file."""
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tartan", "attach", name, "--wait", "10min", *more], cwd=folder, stderr=log
        )


def said_by(folder: Path, name: str) -> str:
    """Return what the process that attached has said."""
    with contextlib.suppress(OSError):
        return (folder / f"{name}.log").read_text()
    return ""


def take_over(story: Story, folder: Path, heir: subprocess.Popen[bytes], done: int, begun: float) -> Story:
    """Wait until the one that attached takes over; it is the process of the story from now on."""
    story.process = heir
    story.wait(lambda: "taking over" in said_by(folder, story.out.name))
    story.notes["back_seconds"] = round(time.monotonic() - begun, 2)
    left = N_ITEMS * (N_ITEMS - 1) // 2 - tartan.open(story.out).n_pairs_done
    story.notes["lost_of_committed"] = max(0, left + done - N_ITEMS * (N_ITEMS - 1) // 2)
    story.notes["left_at_takeover"] = left
    return story


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print one line a round and a summary of each kind; return the summaries."""
    global N_ITEMS  # the stories count chunks and pairs
    options = options_of(words or (), kills=20, joins=5, stops=5, cuts=3, drivers=20, schedulers=10, items=96, seed=1)
    N_ITEMS = options.items
    rounds = {kill: options.kills, join: options.joins, stop: options.stops, cut: options.cuts}
    rounds |= {driver: options.drivers, scheduler: options.schedulers}
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
        found = {tell.__name__: many(tell, n, folder, expected, options.seed) for tell, n in rounds.items() if n}
    for kind, summary in found.items():
        print(f"{kind}: {summary}")
    return found


def many(
    tell: Callable[[Path, str, random.Random], Story], n_rounds: int, folder: Path, expected: np.ndarray, seed: int
) -> dict[str, Any]:
    """Tell one kind of story some times; return the sum."""
    rng = random.Random(seed)
    results = []
    for number in range(n_rounds):
        results.append(tell(folder, f"{tell.__name__}-{number}", rng).end(expected, folder / "whole"))
        print(f"{tell.__name__} {number}: {results[-1]}", flush=True)
    notes = [name for name in results[0] if name not in ("status", "pairs_again")]
    return {
        "rounds": n_rounds,
        "exit_0": sum(result["status"] == 0 for result in results),
        **{name: sum(result[name] for result in results) for name in notes if name != "back_seconds"},
        **(
            {"slowest_back_seconds": max(result["back_seconds"] for result in results)}
            if "back_seconds" in notes
            else {}
        ),
        "largest_share_again": max(result["pairs_again"] for result in results) / (N_ITEMS * (N_ITEMS - 1) // 2),
    }
