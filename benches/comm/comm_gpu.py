"""Slots on a GPU, absolute: messages in all directions, barriers, copies beside them, programs, many messages.

    tartan bench comm-gpu [times=1000] [slots=64] [largest=64000000] [messages=10000000]
    tartan bench comm-gpu device=emulated times=2 slots=3 largest=1000 messages=100

Without a GPU and CuPy it fails, and says so. ``device=emulated`` runs slots on threads of the CPU, to try the benchmark
itself: its times say nothing and no bar is held. A time is that of rank 0, a CPU rank, between two barriers of all.
Beside them are the figures of DCGN's paper, on GPUs of its time.

The three programs are those of ``examples/comm``, against the same kernels cut at each message: the host launches each
step, and carries what slots send each other. Where it can leave that on the GPU instead, the ratio is stated, without
a bar: all slots are on one GPU here, and those of several could not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benches.shared._measure import not_held, options_of, print_table
from support.fake_cupy import FakeCupy
from tartan import comm
from tartan.comm.slots_gpu import GpuSlots
from tartan.devices.cuda import import_cupy
from tartan.errors import ConfigError
from tartan.testing.emulated_gpu import EmulatedGpu

sys.path.append(str(Path(__file__).parents[2] / "examples" / "comm"))
import slots as slot_programs

from benches.comm._comm_gpu_peers import (
    CopyingSlots,
    Gpu,
    cannon_by_host,
    copy_rates,
    mandelbrot_by_host,
    nbody_by_host,
)

ONE_WAY_US, BARRIER_US, COPY_SHARE = 10.0, 60.0, 0.5
BESIDE_SHARE, PROGRAM_RATIO = 0.95, 1.0
COPY_BYTES = 64_000_000
WAYS = {"CPU rank to CPU rank": (0, 1), "CPU rank to slot": (0, 2), "slot to CPU rank": (2, 0), "slot to slot": (2, 3)}
#: What DCGN's paper says of its sends, in times of those of MVAPICH2 between CPUs.
DCGN_SENDS = {
    ("CPU rank to CPU rank", 0): "28", ("slot to slot", 0): "564",
    ("CPU rank to CPU rank", 1_000_000): "1.04", ("slot to slot", 1_000_000): "1.5",
}  # fmt: skip
#: Its microseconds of a barrier, of which each slot was a GPU, on up to four nodes; rank 0 is a CPU rank here, always.
DCGN_BARRIERS = {
    (2, 0): "38", (8, 0): "43", (1, 1): "50", (2, 2): "53", (4, 4): "55", (8, 8): "70",
    (1, 2): "313 without a CPU", (1, 4): "747 without a CPU", (1, 8): "806 without a CPU",
}  # fmt: skip
#: Size and steps of the programs where they are only tried; what the paper's speed was, in times of its peer's.
TRIED = {"mandelbrot": (24, 20), "cannon": (24, 1), "nbody": (24, 2)}
DCGN_PROGRAMS = {"mandelbrot": "0.88", "cannon": "0.96", "nbody": "1.0"}
SOURCE = """
#include <tartan_comm.h>
// The slots that take part send and receive, or all meet; others wait in the last barrier.
extern "C" __global__ void turns(tartan::Slots slots, unsigned char* all, long long bytes, int first, int second,
                                 int times) {
    auto me = slots.here();
    me.barrier();
    if (first < 0) {
        for (int turn = 0; turn < times; turn++) me.barrier();
    } else {
        unsigned char* mine = all + (me.rank() == second ? bytes : 0);
        for (int turn = 0; turn < times; turn++) {
            if (me.rank() == first) {
                me.send(mine, bytes, second, 1);
                me.recv(mine, bytes, second, 2);
            } else if (me.rank() == second) {
                me.recv(mine, bytes, first, 1);
                me.send(mine, bytes, first, 2);
            }
        }
    }
    me.barrier();
}

// All wait until rank 0 comes to the second barrier.
extern "C" __global__ void wait(tartan::Slots slots) {
    auto me = slots.here();
    me.barrier();
    me.barrier();
}

// Slot 1 sends numbers to slot 2, which counts those that are not what is due.
extern "C" __global__ void many(tartan::Slots slots, long long messages) {
    auto me = slots.here();
    long long wrong = 0;
    for (long long number = 0; number < messages; number++) {
        long long found = number;
        if (me.rank() == 1) me.send(&found, sizeof found, 2);
        if (me.rank() == 2) me.recv(&found, sizeof found, 1), wrong += found != number;
    }
    if (me.rank() == 2) me.send(&wrong, sizeof wrong, 0);
}
"""


@dataclass(frozen=True)
class Turns:
    """Ranks that take turns.

    Attributes
    ----------
    first, second : int
        Ranks that send to each other; -1: all meet in barriers.
    n_bytes, times : int
    """

    first: int
    second: int
    n_bytes: int
    times: int


def take_turns(ranks: comm.RankCommunicator, turns: Turns) -> float:
    """Do what the kernel does, on a CPU rank; return the seconds between the barriers."""
    data = np.zeros(turns.n_bytes, np.uint8)
    ranks.barrier()
    start = time.perf_counter()
    for _ in range(turns.times):
        if turns.first < 0:
            ranks.barrier()
        elif ranks.rank == turns.first:
            ranks.send(data, turns.second, 1)
            ranks.recv(data, turns.second, 2)
        elif ranks.rank == turns.second:
            ranks.recv(data, turns.first, 1)
            ranks.send(data, turns.first, 2)
    ranks.barrier()
    return time.perf_counter() - start


def microseconds(device: Any, cpus: int, slots: int, turns: Turns, threads: int) -> float:
    """Return the time of one way, or of one barrier."""
    buffers = np.zeros(max(1, 2 * turns.n_bytes), np.uint8)
    numbers = (np.int32(turns.first), np.int32(turns.second), np.int32(turns.times))
    if not slots:
        return 1e6 * comm.run(partial(take_turns, turns=turns), cpus=cpus)[0] / turns.times
    kernel = comm.Kernel(SOURCE, "turns", (buffers, np.int64(turns.n_bytes), *numbers), threads=threads)
    found = comm.run(partial(take_turns, turns=turns), gpu=kernel, cpus=cpus, slots=slots, device=device)
    return 1e6 * found[0] / turns.times / (1 if turns.first < 0 else 2)


def wrong_messages(device: Any, messages: int, threads: int) -> int:
    """Return how many of many messages between two slots were lost or changed."""
    kernel = comm.Kernel(SOURCE, "many", (np.int64(messages),), threads=threads)
    return int(comm.run(_counted, gpu=kernel, cpus=1, slots=2, device=device)[0])


def _counted(ranks: comm.RankCommunicator) -> int:
    return int(ranks.recv(2)[0])


def rates_beside(device: Any, options: SimpleNamespace, threads: int) -> list[float]:
    """Return the rates of copies to the GPU and back, alone and while slots wait, in bytes a microsecond."""
    with tempfile.TemporaryDirectory(prefix="tartan-bench-") as folder:
        copying = CopyingSlots(device, loader(device), Path(folder), min(options.largest, COPY_BYTES))
        kernel = comm.Kernel(SOURCE, "wait", threads=threads)
        work = partial(_let_wait, folder=Path(folder))
        return comm.run(work, gpu=kernel, cpus=1, slots=options.slots, device=copying)[0]


def _let_wait(ranks: comm.RankCommunicator, folder: Path) -> list[float]:
    ranks.barrier()
    (folder / "waiting").touch()
    while not (folder / "rates").exists():
        time.sleep(1e-3)
    ranks.barrier()
    return [float(word) for word in (folder / "rates").read_text().split()]


def loader(device: Any) -> Any:
    """Return what loads CuPy, or its stand-in where slots are emulated."""
    return import_cupy if isinstance(device, GpuSlots) else FakeCupy


def sizes(largest: int) -> list[int]:
    """Return the lengths of messages, in bytes."""
    return [0, *(size for size in (1000, 64_000, 1_000_000, COPY_BYTES) if size <= largest)]


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars that are absolute."""
    options = options_of(words, device="gpu", times=1000, slots=64, largest=COPY_BYTES, messages=10_000_000)
    if options.device not in ("gpu", "emulated"):
        raise ConfigError(f"device={options.device}: it is gpu or emulated")
    if options.slots < 2:
        raise ConfigError(f"slots={options.slots}: two slots at the least send to each other")
    emulated = options.device == "emulated"
    device, threads = (EmulatedGpu(), 2) if emulated else (GpuSlots(), 128)
    if isinstance(device, GpuSlots):
        device.require(1)
    missed = [text for part in (one_ways, barriers, copies, programs) for text in part(device, options, threads)]
    wrong = wrong_messages(device, options.messages, threads)
    print(f"{options.messages:,} messages from slot to slot, {wrong} lost or changed")
    if wrong:
        raise RuntimeError(f"{wrong} of {options.messages} messages were lost or changed")
    return 0 if emulated else not_held(missed)


def one_ways(device: Any, options: SimpleNamespace, threads: int) -> list[str]:
    """Print the times of messages in all directions; return which bars are missed."""
    missed: list[str] = []
    rows: list[list[object]] = []
    for n_bytes in sizes(options.largest):
        times = max(2, min(options.times, 200_000_000 // max(1, n_bytes)))
        for what, (first, second) in WAYS.items():
            found = microseconds(device, 2, 2, Turns(first, second, n_bytes, times), threads)
            rows.append([what, f"{n_bytes:,}", f"{found:.1f}", f"{n_bytes / found / 1000:.2f}"])
            rows[-1] += [DCGN_SENDS.get((what, n_bytes), ""), ""]
            if (what, n_bytes) == ("slot to slot", 0) and found > ONE_WAY_US:
                missed.append(f"slot to slot, 0 bytes: {found:.1f} us one way, bar {ONE_WAY_US:g}")
            if (what, n_bytes) == ("slot to CPU rank", COPY_BYTES) and isinstance(device, GpuSlots):
                with Gpu(import_cupy()) as gpu:
                    share = n_bytes / found / copy_rates(gpu, n_bytes)()[1]
                rows[-1][-1] = f"{share:.0%} of the rate of a pinned copy"
                if share < COPY_SHARE:
                    missed.append(f"slot to CPU rank, 64 MB: {share:.0%} of a pinned copy, bar {COPY_SHARE:.0%}")
    print_table("one way", rows, ["what", "bytes", "us", "GB/s", "DCGN / MVAPICH2", ""])
    return missed


def barriers(device: Any, options: SimpleNamespace, threads: int) -> list[str]:
    """Print the times of barriers of CPU ranks and slots; return which bars are missed."""
    missed: list[str] = []
    rows: list[list[object]] = []
    own = {(1, options.slots): "", (4, options.slots): ""}
    for (cpus, slots), paper in (own | DCGN_BARRIERS).items():
        if slots > options.slots or cpus > 2 * options.slots:
            continue
        found = microseconds(device, cpus, slots, Turns(-1, -1, 0, options.times), threads)
        rows.append([cpus, slots, f"{found:.1f}", paper])
        if (cpus, slots) == (1, options.slots) and found > BARRIER_US:
            missed.append(f"barrier of {slots} slots and a CPU rank: {found:.1f} us, bar {BARRIER_US:g}")
    print_table("barriers", rows, ["CPU ranks", "slots", "us", "DCGN us"])
    return missed


def copies(device: Any, options: SimpleNamespace, threads: int) -> list[str]:
    """Print the rates of copies of other streams while slots wait; return which bars are missed."""
    missed: list[str] = []
    rows: list[list[object]] = []
    found = rates_beside(device, options, threads)
    for what, alone, beside in zip(("to the GPU", "from the GPU"), found[:2], found[2:], strict=True):
        rows.append([what, f"{alone / 1000:.2f}", f"{beside / 1000:.2f}", f"{beside / alone:.0%}"])
        if beside < BESIDE_SHARE * alone:
            missed.append(f"copies {what} beside slots: {beside / alone:.0%} of their rate, bar {BESIDE_SHARE:.0%}")
    print_table(f"copies while {options.slots} slots wait", rows, ["copies", "alone GB/s", "beside GB/s", ""])
    return missed


def programs(device: Any, options: SimpleNamespace, threads: int) -> list[str]:
    """Print how fast programs are on slots, against the host that drives them; return which bars are missed."""
    missed: list[str] = []
    rows: list[list[object]] = []
    peers = {
        "mandelbrot": {"the host": mandelbrot_by_host},
        "cannon": {
            "the host": partial(cannon_by_host, carried=True),
            "the host, data left on the GPU": partial(cannon_by_host, carried=False),
        },
        "nbody": {
            "the host": partial(nbody_by_host, carried=True),
            "the host, data left on the GPU": partial(nbody_by_host, carried=False),
        },
    }
    for name, ways in peers.items():
        size, steps = (slot_programs.USUAL if isinstance(device, GpuSlots) else TRIED)[name]
        slots = int(options.slots**0.5) ** 2 if name == "cannon" else options.slots
        run = partial(slot_programs.run, name, size, steps, cpus=1, slots=slots, threads=threads, device=device)
        ours, result = min((run() for _ in range(3)), key=lambda found: found[0])
        for way, by_host in ways.items():
            with Gpu(loader(device)()) as gpu:
                theirs, expected = min(
                    (by_host(gpu, slots, threads, size, steps) for _ in range(3)), key=lambda found: found[0]
                )
            if not np.allclose(result, expected):
                raise RuntimeError(f"{name}: slots and {way} have other results")
            held = way == "the host"
            paper = DCGN_PROGRAMS[name] if held else ""
            rows.append([name, way, f"{1000 * ours:.2f}", f"{1000 * theirs:.2f}", f"{theirs / ours:.2f}", paper])
            if held and theirs < PROGRAM_RATIO * ours:
                missed.append(f"{name}: {theirs / ours:.2f} times the speed of {way}, bar {PROGRAM_RATIO:g}")
    print_table(
        f"programs, {options.slots} slots", rows, ["program", "against", "ms", "its ms", "times its speed", "DCGN"]
    )
    return missed
