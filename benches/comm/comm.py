"""Ranks against mpi4py over two MPI wheels: collectives, messages, programs, a map, and what waiting costs.

    tartan bench comm [rounds=3] [parts=gather,barrier,pingpong,link,large,programs,mds,idle] [peers=.bench-peers]

All contenders of a row take turns, each in processes of its own; the ratio is that of the best of each, in programs of
the medians. The peers are installed into the folder ``peers`` on first use; one that is missing is named and left out.

Beside some bars stands their floor, measured in the same run: what would be left without any communicator. A bar that
the floor itself does not reach is beyond this machine: the row says so and is not judged.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from statistics import median

import numpy as np

from benches.comm._comm_floor import native_barriers
from benches.comm._comm_peers import (
    Contender,
    mpi_peers,
    names_of,
    socket_round_trip,
    tartan_carried,
    tartan_over_mpi,
    tartan_ranks,
)
from benches.shared._measure import not_held, options_of, print_table
from tartan import comm
from tartan.errors import ConfigError
from tartan.testing.emulated_gpu import EmulatedGpu
from tartan.testing.emulator.build import find_compiler

GATHERED_BYTES = 24_000_000
IDLE_SHARE = 0.02
LARGE_BYTES = (1_000_000, 64_000_000)
LINK_SHARE = 0.8  # of the rate of mpi4py over the same MPI
BARRIERS = 1000  # in a row: the first of them wait for ranks that the system wakes late

#: Seconds of each contender.
Times = Mapping[str, Sequence[float]]

#: What stands for many times: the best or the median.
Middle = Callable[[Iterable[float]], float]


@dataclass
class Table:
    """What was measured, and which bars were missed.

    Attributes
    ----------
    rounds : int
        How often contenders take turns.
    peers : sequence of Contender
    """

    rounds: int
    peers: Sequence[Contender]
    rows: list[list[object]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    ours: Contender = field(default_factory=tartan_ranks)

    def turns(self, contenders: Mapping[str, Callable[[], Sequence[float]]]) -> dict[str, list[float]]:
        """Let contenders take turns; return the seconds of each."""
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(self.rounds):
            order = list(contenders.items())
            for name, seconds in order if number % 2 else reversed(order):
                found[name] += seconds()
        return found

    def task(self, task: str, n_ranks: int, options: Mapping[str, object]) -> dict[str, list[float]]:
        """Let Tartan and all peers take turns in one task."""
        return self.turns({one.name: _of(one, task, n_ranks, options) for one in (self.ours, *self.peers)})

    def add(self, what: str, found: Times, peer: str, bar: float, *, at_most: bool = False, by: Middle = min) -> None:
        """Add a row: how many times faster than a peer we are at the least, or slower at most, by bests or medians."""
        ours, other = found[self.ours.name], found[peer]
        ratios = {one: one(other) / one(ours) for one in (min, median)}
        if at_most:
            ratios = {one: 1 / ratio for one, ratio in ratios.items()}
        ratio = ratios[by]
        held = ratio <= bar if at_most else ratio >= bar
        word = "slower" if at_most else "faster"
        times = [f"{1000 * by(one):.3g}" for one in (ours, other)]
        text = f"{'at most' if at_most else 'at least'} {bar:.3g}" if isfinite(bar) else ""
        self.rows.append([what, *times, peer, f"{ratios[min]:.2f} {word}", f"{ratios[median]:.2f}", text])
        if not held:
            self.missed.append(f"{what}: {ratio:.2f} times {word} than {peer}, bar {text}")

    def add_above(self, what: str, found: Times, peer: str, bar: float, floor: Sequence[float]) -> None:
        """Add a row: how many times faster than a peer we are; the floor, if known, may reach less than the bar."""
        reached = min(found[peer]) / min(floor) if floor else inf
        if reached >= bar:
            self.add(what, found, peer, bar)
            return
        print(f"BEYOND THIS MACHINE: {what}: {bar:g} times faster than {peer}; the floor is {reached:.2f} times faster")
        self.add(what, found, peer, -inf)

    def add_best(self, what: str, found: Times, bar: float, *, at_most: bool = False, by: Middle = min) -> None:
        """Add a row against the best of the peers."""
        others = {name: by(seconds) for name, seconds in found.items() if name != self.ours.name}
        if others:
            self.add(what, found, min(others, key=lambda name: others[name]), bar, at_most=at_most, by=by)

    def add_floor(self, what: str, seconds: Sequence[float]) -> None:
        """Add a row: what would be left without a communicator."""
        self.rows.append([what, f"{1000 * min(seconds):.3g}", "", "", "", "", "a floor"])


def gather(table: Table) -> None:
    """All-gather of 24 MB in all, read in place, and in a buffer of each rank."""
    for n_ranks, faster, slower in ((4, 2.0, 2.0), (8, 5.0, 1.3)):
        options = {"n_bytes": GATHERED_BYTES, "times": 5, "rounds": 3}
        ours = {way: _of(table.ours, "gather", n_ranks, {**options, "way": way}) for way in ("shared", "out")}
        peers = {peer.name: _of(peer, "gather", n_ranks, {**options, "way": "out"}) for peer in table.peers}
        found = table.turns({**ours, **peers})
        them = {name: found[name] for name in peers}
        table.add_best(f"all-gather of 24 MB in place, {n_ranks} ranks", {**them, "Tartan": found["shared"]}, faster)
        table.add_best(
            f"all-gather of 24 MB, out=, {n_ranks} ranks", {**them, "Tartan": found["out"]}, slower, at_most=True
        )


def _of(one: Contender, task: str, n_ranks: int, options: Mapping[str, object]) -> Callable[[], Sequence[float]]:
    return lambda: one.seconds(task, n_ranks, **options)


def barrier(table: Table) -> None:
    """Barriers of 8 ranks."""
    options = {"times": BARRIERS, "rounds": 3}
    ranks = {one.name: _of(one, "barrier", 8, options) for one in (table.ours, *table.peers)}
    with native_barriers(8, times=BARRIERS, rounds=3) as native:
        found = table.turns({**ranks, **native})
    for name in native:
        table.add_floor(f"barrier of 8 processes, {name}", found[name])
    floor = [seconds for name in native for seconds in found[name]]
    for peer in table.peers:
        table.add_above("barrier, 8 ranks", found, peer.name, {"MPICH": 50.0, "Open MPI": 5.0}[peer.name], floor)


def pingpong(table: Table) -> None:
    """Empty messages between two ranks of four, the others asleep."""
    socket = "socketpair"
    options = {"n_bytes": 0, "times": 1000, "rounds": 3, "apart": False}
    contenders = {"Tartan": _of(table.ours, "pingpong", 4, options), socket: lambda: [socket_round_trip(3000)]}
    found = table.turns(contenders)
    table.add("0-byte round trip, 2 of 4 ranks", found, socket, 3.0, at_most=True)


def link(table: Table) -> None:
    """Empty messages between two nodes over MPI, against mpi4py that sleeps as we do, and that spins."""
    options = {"n_bytes": 0, "times": 1000, "rounds": 3, "apart": False}
    for peer in table.peers:
        ours, polite, spinning = "Tartan", f"{peer.name}, 50 us sleeps", f"{peer.name}, spinning"
        found = table.turns({
            ours: _of(tartan_over_mpi(peer), "pingpong", 2, options),
            polite: _of(peer, "polite", 2, options),
            spinning: _of(peer, "pingpong", 2, options),
        })  # fmt: skip
        what = f"0-byte round trip over {peer.name}"
        table.add(what, found, polite, 3.0, at_most=True)
        table.add(what, found, spinning, inf, at_most=True)


def large(table: Table) -> None:
    """Large arrays between two nodes over MPI, and within a node: there and back, and both ways at once; 2 GiB once.

    Nodes of one machine map each other's memory; "carried" is what goes by MPI nevertheless, as between machines.
    Within a node each rank has a session of its own, as with MPICH (see ``Contender.seconds``). Each MPI moves bytes as
    it does by itself on one machine; variables of an MPI that choose another transport, such as ``MPIR_CVAR_NOLOCAL``
    or ``OMPI_MCA_btl``, reach both contenders.
    """
    for n_bytes, way in itertools.product(LARGE_BYTES, ("turns", "both")):
        times = max(1, 200_000_000 // n_bytes)
        options = {"n_bytes": n_bytes, "way": way, "times": times, "rounds": 2}
        linked = {**options, "apart": False}
        what = f"{n_bytes / 1e6:.0f} MB, {'both ways at once' if way == 'both' else 'there and back'}"
        for peer in table.peers:
            contenders = {"Tartan": tartan_over_mpi(peer), "carried": tartan_carried(peer), peer.name: peer}
            found = table.turns({name: _of(one, "large", 2, linked) for name, one in contenders.items()})
            table.add(f"{what}, over {peer.name}", found, peer.name, LINK_SHARE)
            table.add(f"{what}, carried by {peer.name}", {**found, "Tartan": found["carried"]}, peer.name, LINK_SHARE)
        table.add_best(f"{what}, within a node", table.task("large", 2, options), 1.0)
    options = {"n_bytes": 1 << 31, "way": "turns", "times": 1, "rounds": 1, "apart": False}
    for peer in table.peers:
        contenders = {"Tartan": tartan_over_mpi(peer), "carried": tartan_carried(peer), peer.name: peer}
        found = {name: _of(one, "large", 2, options)() for name, one in contenders.items()}
        what = "2 GiB, there and back"
        table.add(f"{what}, over {peer.name}", found, peer.name, LINK_SHARE)
        table.add(f"{what}, carried by {peer.name}", {**found, "Tartan": found["carried"]}, peer.name, LINK_SHARE)


def programs(table: Table) -> None:
    """Mandelbrot, bodies and Cannon's product beside their twins."""
    tasks = (
        ("mandelbrot", (2, 4), {"width": 640, "height": 480, "limit": 150, "rounds": 2}),
        ("nbody", (2, 4), {"n": 1500, "steps": 5, "rounds": 2}),
        ("cannon", (1, 4), {"n": 960, "rounds": 10}),
    )
    for task, counts, options in tasks:
        for n_ranks in counts:
            bar = 1.0 if n_ranks == 4 else 0.97
            table.add_best(f"{task}, {n_ranks} ranks", table.task(task, n_ranks, options), bar, by=median)


def mds(table: Table) -> None:
    """A step of a map: against one process with two threads, and over MPI where messages dominate."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        large, small = (_matrix(Path(folder), n) for n in (4000, 1000))
        options = {"matrix": large, "steps": 40, "rounds": 2, "apart": False}
        found = table.turns({
            "Tartan": _of(table.ours, "mds", 2, options),
            "1 process": lambda: table.ours.seconds("mds", 1, threads=2, **options),
        })  # fmt: skip
        table.add("a step of MDS, n = 4000, 2 ranks", found, "1 process", 1.35, at_most=True)
        options = {"matrix": small, "steps": 200, "rounds": 2}
        alone = "1 process without messages"
        found = table.turns({
            **{one.name: _of(one, "mds", 4, options) for one in (table.ours, *table.peers)},
            alone: lambda: table.ours.seconds("mds", 1, threads=2, apart=False, **options),
        })  # fmt: skip
    table.add_floor(f"a step of MDS, n = 1000, {alone}", found[alone])
    what = "a step of MDS, n = 1000, 4 ranks"
    for peer in table.peers:
        table.add_above(what, found, peer.name, {"MPICH": 5.0, "Open MPI": 1.0}[peer.name], found[alone])


def _matrix(folder: Path, n: int) -> str:
    """Write distances of random points as float32; return where."""
    points = np.random.default_rng(1).standard_normal((n, 10)).astype(np.float32)
    squares = np.einsum("ij,ij->i", points, points)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    distances = np.triu(distances, 1)
    np.save(folder / f"{n}.npy", distances + distances.T)
    return str((folder / f"{n}.npy").absolute())


def idle(table: Table) -> None:
    """Processor time of a node of which eight ranks wait for one that sleeps; a slot looks for itself, on a GPU."""
    share = min(table.turns({"Tartan": _of(table.ours, "idle", 9, {"seconds": 2.0})})["Tartan"])
    beside = min(_share_beside_a_slot() for _ in range(table.rounds)) if find_compiler() else 0.0
    for what, found in (("8 ranks", share), ("8 ranks and a slot", beside)):
        table.rows.append(
            [f"idle, {what} waiting", f"{found:.2%} of a core", "", "", "", "", f"at most {IDLE_SHARE:.0%}"]
        )
        if found > IDLE_SHARE:
            table.missed.append(f"{what} that wait take {found:.1%} of a core, bar {IDLE_SHARE:.0%}")


def _share_beside_a_slot() -> float:
    """Return the share of a core of a node process and its CPU ranks, where a slot waits too, apart from them."""
    source = """
        #include <tartan_comm.h>
        extern "C" __global__ void waiting(tartan::Slots slots) {
            auto me = slots.here();
            me.gather(static_cast<long*>(nullptr), 0, static_cast<long*>(nullptr), 0);
            me.barrier();
        }
    """
    kernel = comm.Kernel(source, "waiting", threads=1)
    return comm.run(_share_of_others, gpu=kernel, cpus=9, slots=1, device=EmulatedGpu())[0]


def _share_of_others(world: comm.RankCommunicator) -> float:
    pids = world.gather(np.array([os.getpid()]))
    if pids is None:
        world.barrier()
        return 0.0
    time.sleep(1.0)
    paths = [path for pid in (os.getppid(), *pids) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    before, start = _processor_seconds(paths), time.perf_counter()
    time.sleep(2.0)
    share = (_processor_seconds(paths) - before) / (time.perf_counter() - start)
    world.barrier()
    return share


def _processor_seconds(paths: Sequence[Path]) -> float:
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e9


PARTS = {part.__name__: part for part in (gather, barrier, pingpong, link, large, programs, mds, idle)}


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    options = options_of(words, rounds=3, parts=",".join(PARTS), peers=".bench-peers")
    parts = options.parts.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ConfigError(f"{unknown[0]}: there is no such part; there are {', '.join(PARTS)}")
    peers, missing = mpi_peers(Path(options.peers))
    print(f"Tartan beside {names_of(peers)}", flush=True)
    for text in missing:
        print(f"LEFT OUT: {text}", flush=True)
    table = Table(options.rounds, peers)
    for part in parts:
        table.rows.clear()
        PARTS[part](table)
        print_table(part, table.rows, ["what", "Tartan ms", "peer ms", "peer", "best", "median", "bar"])
    return not_held(table.missed)
