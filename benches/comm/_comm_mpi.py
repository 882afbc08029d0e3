"""The twins of ``_comm_ranks.py`` and of the programs of ``examples/comm``, written by hand for mpi4py.

``mpiexec -n N python _comm_mpi.py TASK OPTIONS together|apart``. The programs share the functions that compute with
their twins; the messages are what a user of mpi4py writes: buffers, allocated once. Rank 0 prints one line of JSON: the
seconds of each measurement, the longest over the ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.append(str(Path(__file__).parents[2] / "examples" / "comm"))

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


def seconds_each(call: Callable[[], object], times: int) -> float:
    """Return what a call takes on this rank, made several times without a break."""
    WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def gather(n_bytes: int, way: str, times: int, rounds: int) -> list[float]:
    """``Allgather`` of so many bytes in all into a buffer that is used again; ``way`` makes no difference."""
    mine = np.full(n_bytes // 8 // SIZE, float(RANK))
    out = np.empty(len(mine) * SIZE)
    expected = len(mine) * sum(range(SIZE))
    seconds = []
    for _ in range(1 + rounds):
        WORLD.Allgather(mine, out)
        assert out.sum() == expected
        seconds.append(seconds_each(lambda: WORLD.Allgather(mine, out), times))
    return seconds[1:]


def barrier(times: int, rounds: int) -> list[float]:
    """Meet again and again."""
    return [seconds_each(WORLD.Barrier, times) for _ in range(1 + rounds)][1:]


def pingpong(n_bytes: int, times: int, rounds: int) -> list[float]:
    """Round trips between ranks 0 and 1; the others wait in a barrier."""
    message, echo = np.zeros(n_bytes, np.uint8), np.empty(n_bytes, np.uint8)

    def trip() -> None:
        if RANK == 0:
            WORLD.Send(message, dest=1)
            WORLD.Recv(echo, source=1)
        else:
            WORLD.Recv(echo, source=0)
            WORLD.Send(echo, dest=0)

    found = []
    for _ in range(1 + rounds):
        if RANK < 2:
            found.append(seconds_each(trip, times))
        else:
            WORLD.Barrier()
            found.append(0.0)
        WORLD.Barrier()
    return found[1:]


def large(n_bytes: int, way: str, times: int, rounds: int) -> list[float]:
    """Send a large array between ranks 0 and 1: there and back ("turns"; the seconds of one way), or "both" at once."""
    mine, other = np.ones(n_bytes // 8), 1 - RANK
    its = np.ones(n_bytes // 8) if way == "both" else mine

    def turn() -> None:
        if RANK == 0:
            WORLD.Send(mine, dest=1)
            WORLD.Recv(mine, source=1)
        else:
            WORLD.Recv(mine, source=0)
            WORLD.Send(mine, dest=0)

    def both() -> None:
        WORLD.Sendrecv(mine, other, 0, its, other, 0)

    call, ways = (both, 1) if way == "both" else (turn, 2)
    return [seconds_each(call, times) / ways for _ in range(1 + rounds)][1:]


def polite(n_bytes: int, times: int, rounds: int) -> list[float]:
    """Round trips between ranks 0 and 1, which sleep for 50 us between two looks at a posted receive."""
    message, echo = np.zeros(n_bytes, np.uint8), np.empty(n_bytes, np.uint8)
    ctypes.CDLL(None).prctl(29, ctypes.c_ulong(1000), 0, 0, 0)  # so that sleeps are no longer than they are to be

    def trip() -> None:
        receiving = WORLD.Irecv(echo, source=1 - RANK)
        if RANK == 0:
            WORLD.Isend(message, dest=1).Wait()
        while not receiving.Test():
            select.select([], [], [], 50e-6)
        if RANK == 1:
            WORLD.Isend(message, dest=0).Wait()

    return [seconds_each(trip, times) for _ in range(1 + rounds)][1:]


def mandelbrot(width: int, height: int, limit: int, rounds: int) -> list[float]:
    """Compute a picture: the twin of ``examples/comm/mandelbrot.py``."""
    from mandelbrot import STRIP, strip_of

    def hand_out() -> None:
        whole, strip = np.empty((height, width), np.int32), np.empty((STRIP, width), np.int32)
        following, working, status = 0, SIZE - 1, MPI.Status()
        while working:
            WORLD.Recv(strip, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            first, rows = status.Get_tag(), status.Get_count(MPI.INT) // width
            whole[first : first + rows] = strip[:rows]
            if following >= height:
                working -= 1
            WORLD.Send(np.array([following]), dest=status.Get_source())
            following += STRIP

    def work() -> None:
        answer, strip = np.zeros(1, np.int64), np.empty((0, width), np.int32)
        while True:
            WORLD.Sendrecv(strip, 0, int(answer[0]), answer, 0)
            if answer[0] >= height:
                return
            strip = strip_of(int(answer[0]), width, height, limit)

    return [seconds_each(work if RANK else hand_out, 1) for _ in range(1 + rounds)][1:]


def cannon(n: int, rounds: int) -> list[float]:
    """Multiply matrices: the twin of ``examples/comm/cannon.py``."""
    from cannon import add_product, blocks

    side = math.isqrt(SIZE)
    row, column = divmod(RANK, side)
    left, right = row * side + (column - 1) % side, row * side + (column + 1) % side
    above, below = (row - 1) % side * side + column, (row + 1) % side * side + column
    a, b = blocks(n, side, row, column)

    def product() -> None:
        c, place = np.zeros_like(a), np.empty_like(a)
        for step in range(side):
            add_product(c, a, b, place)
            if step < side - 1:
                WORLD.Sendrecv_replace(a, left, 1, right, 1)
                WORLD.Sendrecv_replace(b, above, 2, below, 2)

    return [seconds_each(product, 1) for _ in range(1 + rounds)][1:]


def nbody(n: int, steps: int, rounds: int) -> list[float]:
    """Move bodies: the twin of ``examples/comm/nbody.py``."""
    from nbody import bodies, move

    counts = [n // SIZE + (rank < n % SIZE) for rank in range(SIZE)]
    start = sum(counts[:RANK])

    def moved() -> None:
        places, whole = bodies(n)[start : start + counts[RANK]].copy(), np.empty((n, 3))
        speeds = np.zeros_like(places)
        for _ in range(steps):
            WORLD.Allgatherv(places, (whole, [3 * count for count in counts]))
            move(places, speeds, whole)

    return [seconds_each(moved, 1) for _ in range(1 + rounds)][1:]


class OverMpi:
    """The communicator of the analytics over mpi4py."""

    rank, size = RANK, SIZE

    def __init__(self) -> None:
        self._counts: dict[int, Any] = {}
        self._shared: dict[int, Any] = {}

    def all_gather(self, rows: Any, *, shared: bool = False) -> Any:
        """Gather with ``Allgatherv``; the counts travel once, as all ranks repeat theirs in each step.

        Where the result may be shared, it goes into a buffer that is used again.
        """
        mine = np.ascontiguousarray(rows)
        if mine.size not in self._counts:
            self._counts[mine.size] = np.empty(SIZE, np.int64)
            WORLD.Allgather(np.array([mine.size], np.int64), self._counts[mine.size])
        counts = self._counts[mine.size]
        total = int(counts.sum())
        whole = self._shared.get(total) if shared else None
        if whole is None or whole.dtype != mine.dtype:
            whole = np.empty(total, mine.dtype)
        if shared:
            self._shared[total] = whole
        WORLD.Allgatherv(mine, (whole, counts))
        return whole.reshape(-1, *mine.shape[1:])

    def all_reduce(self, array: Any, op: str = "sum") -> Any:
        """Fold in the order of the ranks."""
        every = self.all_gather(np.asarray(array)[None])
        return every.max(axis=0) if op == "max" else np.add.accumulate(every)[-1]

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Return the array of one rank."""
        result = np.array(array)
        WORLD.Bcast(result, root)
        return result

    def barrier(self) -> None:
        """Wait for all."""
        WORLD.Barrier()


def mds(matrix: str, steps: int, rounds: int) -> list[float]:
    """Make many steps of a map, each time from the same start; return the seconds of a step."""
    from tartan.analytics import DAMDS, as_dissimilarities

    D = as_dissimilarities(np.load(matrix, mmap_mode="r"))
    X = np.random.default_rng(7).uniform(-1, 1, size=(D.n, 3))
    map_ = DAMDS(annealing=False, tol=0, max_iter=steps)
    found = [seconds_each(lambda: map_.fit(D, init=X, communicator=OverMpi()), 1) for _ in range(1 + rounds)]
    return [seconds / steps for seconds in found[1:]]


TASKS: dict[str, Callable[..., list[float]]] = {
    task.__name__: task for task in (gather, barrier, pingpong, large, polite, mandelbrot, cannon, nbody, mds)
}


def main() -> None:
    """Take part in one task, where asked in a session of its own; each rank of MPICH has one already."""
    if sys.argv[3] == "apart":
        with contextlib.suppress(PermissionError):
            os.setsid()
    found = np.array(TASKS[sys.argv[1]](**json.loads(sys.argv[2])))
    longest = np.empty_like(found)
    WORLD.Allreduce(found, longest, MPI.MAX)
    if RANK == 0:
        print(json.dumps(longest.tolist()))


if __name__ == "__main__":
    main()
