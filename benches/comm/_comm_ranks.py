"""What a rank of ``tartan ranks`` does for ``tartan bench comm``: ``_comm_ranks.py TASK OPTIONS together|apart``.

Rank 0 prints one line of JSON: the seconds of each measurement, the longest over the ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tartan import comm

sys.path.append(str(Path(__file__).parents[2] / "examples" / "comm"))


def seconds_each(world: Any, call: Callable[[], object], times: int) -> float:
    """Return what a call takes on this rank, made several times without a break."""
    world.barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def gather(world: Any, n_bytes: int, way: str, times: int, rounds: int) -> list[float]:
    """All-gather of so many bytes in all, read in place ("shared") or in a buffer of each rank ("out")."""
    mine = np.full(n_bytes // 8 // world.size, float(world.rank))
    out = np.empty(len(mine) * world.size) if way == "out" else None
    expected = len(mine) * sum(range(world.size))
    seconds = []
    for _ in range(1 + rounds):
        for _ in range(2):  # both halves of the memory are touched, outside the time
            whole = world.all_gather(mine, out=out, shared=out is None)
            assert whole.sum() == expected
        seconds.append(seconds_each(world, lambda: world.all_gather(mine, out=out, shared=out is None), times))
    return seconds[1:]


def barrier(world: Any, times: int, rounds: int) -> list[float]:
    """Meet again and again."""
    return [seconds_each(world, world.barrier, times) for _ in range(1 + rounds)][1:]


def pingpong(world: Any, n_bytes: int, times: int, rounds: int) -> list[float]:
    """Round trips between ranks 0 and 1; the others sleep in a barrier."""
    from pingpong import round_trips

    found = []
    for _ in range(1 + rounds):
        if world.rank < 2:
            found.append(round_trips(world, np.zeros(n_bytes, np.uint8), times)[0])
        else:
            world.barrier()
            found.append(0.0)
        world.barrier()
    return found[1:]


def large(world: Any, n_bytes: int, way: str, times: int, rounds: int) -> list[float]:
    """Send a large array between ranks 0 and 1: there and back ("turns"; the seconds of one way), or "both" at once."""
    mine, other = np.ones(n_bytes // 8), 1 - world.rank
    its = np.ones(n_bytes // 8) if way == "both" else mine

    def turn() -> None:
        if world.rank == 0:
            world.send(mine, to=1)
            world.recv(mine, source=1)
        else:
            world.recv(mine, source=0)
            world.send(mine, to=0)

    def both() -> None:
        world.sendrecv(mine, to=other, source=other, out=its)

    call, ways = (both, 1) if way == "both" else (turn, 2)
    return [seconds_each(world, call, times) / ways for _ in range(1 + rounds)][1:]


def mandelbrot(world: Any, width: int, height: int, limit: int, rounds: int) -> list[float]:
    """Compute a picture."""
    from mandelbrot import picture

    return [seconds_each(world, lambda: picture(world, width, height, limit), 1) for _ in range(1 + rounds)][1:]


def cannon(world: Any, n: int, rounds: int) -> list[float]:
    """Multiply matrices."""
    from cannon import blocks, product

    side = round(world.size**0.5)
    a, b = blocks(n, side, *divmod(world.rank, side))
    return [seconds_each(world, lambda: product(world, a, b), 1) for _ in range(1 + rounds)][1:]


def nbody(world: Any, n: int, steps: int, rounds: int) -> list[float]:
    """Move bodies."""
    from nbody import moved

    return [seconds_each(world, lambda: moved(world, n, steps), 1) for _ in range(1 + rounds)][1:]


def mds(world: Any, matrix: str, steps: int, rounds: int) -> list[float]:
    """Make many steps of a map, each time from the same start; return the seconds of a step."""
    from tartan.analytics import DAMDS, as_dissimilarities

    D = as_dissimilarities(np.load(matrix, mmap_mode="r"))
    X = np.random.default_rng(7).uniform(-1, 1, size=(D.n, 3))
    ranks = world if world.size > 1 else None
    map_ = DAMDS(annealing=False, tol=0, max_iter=steps)
    found = [seconds_each(world, lambda: map_.fit(D, init=X, communicator=ranks), 1) for _ in range(1 + rounds)]
    return [seconds / steps for seconds in found[1:]]


def idle(world: Any, seconds: float) -> list[float]:
    """Return which share of a core all processes of the node take while all ranks but the last wait for it."""
    if world.rank < world.size - 1:
        world.barrier()
        world.barrier()
        return [0.0]
    world.barrier()
    before, start = _processor_seconds(), time.perf_counter()
    time.sleep(seconds)
    share = (_processor_seconds() - before) / (time.perf_counter() - start)
    world.barrier()
    return [share]


def _processor_seconds() -> float:
    """Return the processor time of the node process and its children, all threads."""
    parent = os.getppid()
    pids = [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]
    paths = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e9


TASKS: dict[str, Callable[..., list[float]]] = {
    task.__name__: task for task in (gather, barrier, pingpong, large, mandelbrot, cannon, nbody, mds, idle)
}


def main() -> None:
    """Take part in one task."""
    world = comm.world()
    if sys.argv[3] == "apart":
        os.setsid()
    found = np.array(TASKS[sys.argv[1]](world, **json.loads(sys.argv[2])))
    longest = world.all_reduce(found, "max")
    if world.rank == 0:
        print(json.dumps(longest.tolist()))


if __name__ == "__main__":
    main()
