"""Messages of slots on a GPU, absolute: ping-pongs in all directions, barriers, and many messages, none lost.

    tartan bench comm-gpu [times=1000] [slots=64] [largest=64000000] [messages=10000000]
    tartan bench comm-gpu device=emulated times=2 slots=3 largest=1000 messages=100

Without a GPU and CuPy it fails, and says so. ``device=emulated`` runs slots on threads of the CPU, to try the benchmark
itself: its times say nothing and no bar is held. A time is that of rank 0, a CPU rank, between two barriers of all.
Beside barriers are the figures of DCGN's paper, on GPUs of its time.

Not measured here: whether copies of other streams keep their rate while slots wait, and the programs Mandelbrot, bodies
and Cannon's product on slots.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from _cluster import not_held
from _measure import options_of, print_table
from tartan import comm
from tartan.comm.slots_gpu import GpuSlots
from tartan.devices.cuda import import_cupy
from tartan.errors import ConfigError
from tartan.testing.emulated_gpu import EmulatedGpu

ONE_WAY_US, BARRIER_US, COPY_SHARE = 10.0, 60.0, 0.5
COPY_BYTES = 64_000_000
WAYS = {"CPU rank to CPU rank": (0, 1), "CPU rank to slot": (0, 2), "slot to CPU rank": (2, 0), "slot to slot": (2, 3)}
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
    kernel = comm.Kernel(SOURCE, "turns", (buffers, np.int64(turns.n_bytes), *numbers), threads=threads)
    found = comm.run(partial(take_turns, turns=turns), gpu=kernel, cpus=cpus, slots=slots, device=device)
    return 1e6 * found[0] / turns.times / (1 if turns.first < 0 else 2)


def wrong_messages(device: Any, messages: int, threads: int) -> int:
    """Return how many of many messages between two slots were lost or changed."""
    kernel = comm.Kernel(SOURCE, "many", (np.int64(messages),), threads=threads)
    return int(comm.run(_counted, gpu=kernel, cpus=1, slots=2, device=device)[0])


def _counted(ranks: comm.RankCommunicator) -> int:
    return int(ranks.recv(2)[0])


def copy_rate() -> float:
    """Return the rate of copies from the GPU to pinned memory, in bytes a microsecond."""
    cupy = import_cupy()
    source = cupy.zeros(COPY_BYTES, cupy.uint8)
    target = np.frombuffer(cupy.cuda.alloc_pinned_memory(COPY_BYTES), np.uint8, COPY_BYTES)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        source.get(stream=stream, out=target)
        stream.synchronize()
        times.append(time.perf_counter() - start)
    return COPY_BYTES / min(times) / 1e6


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
    missed = one_ways(device, options, threads) + barriers(device, options, threads)
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
            rows.append([what, f"{n_bytes:,}", f"{found:.1f}", f"{n_bytes / found / 1000:.2f}", ""])
            if (what, n_bytes) == ("slot to slot", 0) and found > ONE_WAY_US:
                missed.append(f"slot to slot, 0 bytes: {found:.1f} us one way, bar {ONE_WAY_US:g}")
            if (what, n_bytes) == ("slot to CPU rank", COPY_BYTES) and isinstance(device, GpuSlots):
                share = n_bytes / found / copy_rate()
                rows[-1][-1] = f"{share:.0%} of the rate of a pinned copy"
                if share < COPY_SHARE:
                    missed.append(f"slot to CPU rank, 64 MB: {share:.0%} of a pinned copy, bar {COPY_SHARE:.0%}")
    print_table("one way", rows, ["what", "bytes", "us", "GB/s", ""])
    return missed


def barriers(device: Any, options: SimpleNamespace, threads: int) -> list[str]:
    """Print the times of barriers of CPU ranks and slots; return which bars are missed."""
    missed: list[str] = []
    rows: list[list[object]] = []
    for cpus, slots in ((2, 1), (1, 2), (1, options.slots), (4, options.slots)):
        found = microseconds(device, cpus, slots, Turns(-1, -1, 0, options.times), threads)
        rows.append([cpus, slots, f"{found:.1f}"])
        if (cpus, slots) == (1, options.slots) and found > BARRIER_US:
            missed.append(f"barrier of {slots} slots and a CPU rank: {found:.1f} us, bar {BARRIER_US:g}")
    print_table("barriers (DCGN: 38 us for 2 CPU ranks, 313 for 2 GPUs, 806 for 8)", rows, ["CPU ranks", "slots", "us"])
    return missed
