"""Run a program of this folder with slots of a GPU: rank 0, a CPU rank, hands out and collects; all others compute.

python examples/comm/slots.py mandelbrot --slots 64            # slots alone compute
python examples/comm/slots.py nbody --cpus 3 --slots 62        # two CPU ranks beside 62 slots
python examples/comm/slots.py cannon --slots 4 --size 40 --threads 2 --emulated    # without a GPU
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from cannon import blocks, product
from mandelbrot import STRIP, picture
from nbody import bodies, moved
from pingpong import round_trips

from tartan import comm
from tartan.comm.slots import SlotDevice
from tartan.testing.emulated_gpu import EmulatedGpu

SOURCE = "".join((Path(__file__).parent / name).read_text() for name in ("compute.cu", "slots.cu"))

#: What a CPU rank does, which returns the whole result on rank 0, and what the kernel takes.
Work = Callable[[comm.RankCommunicator], "np.ndarray | None"]
Program = tuple[Work, tuple[object, ...]]


def pingpong(cpus: int, slots: int, size: int, steps: int) -> Program:
    """Send a message of ``size`` bytes back and forth ``steps`` times."""
    return partial(_pingpong, size=size, steps=steps), (np.zeros(size, np.uint8), np.int32(size), np.int32(steps))


def _pingpong(world: comm.RankCommunicator, size: int, steps: int) -> np.ndarray:
    return round_trips(world, np.arange(size).astype(np.uint8), steps)[1]


def mandelbrot(cpus: int, slots: int, size: int, steps: int) -> Program:
    """Compute ``size`` rows of as many points, of which one counts as inside after ``steps``."""
    numbers = (np.int32(STRIP), np.int32(size), np.int32(size), np.int32(steps))
    return partial(_mandelbrot, size=size, steps=steps), (np.zeros((cpus + slots, STRIP, size), np.int32), *numbers)


def _mandelbrot(world: comm.RankCommunicator, size: int, steps: int) -> np.ndarray | None:
    return picture(world, size, size, steps)


def cannon(cpus: int, slots: int, size: int, steps: int) -> Program:
    """Multiply matrices of ``size`` rows; the number of steps is the side of the square of ranks."""
    workers = cpus + slots - 1
    side = math.isqrt(workers)
    if side * side != workers or size % side:
        raise SystemExit(f"{workers} ranks that compute are not a square whose side divides {size}")
    pairs = [blocks(size, side, *divmod(place, side)) for place in range(workers)]
    pairs.insert(0, (np.zeros_like(pairs[0][0]), np.zeros_like(pairs[0][0])))
    a, b = (np.stack(some) for some in zip(*pairs, strict=True))
    numbers = (np.int32(size // side), np.int32(side))
    return partial(_cannon, pairs=pairs[:cpus], side=side), (np.zeros_like(a), a, b, *numbers)


def _cannon(world: comm.RankCommunicator, pairs: list[tuple[np.ndarray, np.ndarray]], side: int) -> np.ndarray | None:
    c = product(world, *pairs[world.rank], idle=1) if world.rank else np.empty(0)
    every = world.gather(c.ravel())
    if every is None:
        return None
    inner = len(pairs[0][0])
    return every.reshape(side, side, inner, inner).swapaxes(1, 2).reshape(side * inner, side * inner)


def nbody(cpus: int, slots: int, size: int, steps: int) -> Program:
    """Move ``size`` bodies."""
    wholes = np.zeros((cpus + slots, size, 3))
    args = (bodies(size), np.zeros((size, 3)), wholes, np.int32(size), np.int32(steps))
    return partial(_nbody, size=size, steps=steps), args


def _nbody(world: comm.RankCommunicator, size: int, steps: int) -> np.ndarray | None:
    every = world.gather(moved(world, size, steps, idle=1).ravel())
    return every if every is None else every.reshape(size, 3)


PROGRAMS = {program.__name__: program for program in (pingpong, mandelbrot, cannon, nbody)}
#: Size and steps of each where none are given.
USUAL = {"pingpong": (1000, 1000), "mandelbrot": (1920, 1000), "cannon": (2048, 1), "nbody": (16384, 10)}


def run(
    name: str, size: int, steps: int, *, cpus: int, slots: int, threads: int, device: SlotDevice | None = None
) -> tuple[float, np.ndarray]:
    """Run a program; return its seconds on rank 0, without those in which the kernel was loaded, and its result."""
    work, args = PROGRAMS[name](cpus, slots, size, steps)
    kernel = comm.Kernel(SOURCE, name, args, threads=threads)
    found = comm.run(partial(_timed, work=work), gpu=kernel, cpus=cpus, slots=slots, device=device)
    return found[0]


def _timed(world: comm.RankCommunicator, work: Work) -> tuple[float, np.ndarray | None]:
    world.barrier()
    start = time.perf_counter()
    result = work(world)
    return time.perf_counter() - start, result


def main() -> None:
    """Run a program, say how long it took, and save its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--cpus", type=int, default=1, help="CPU ranks, of which rank 0 does not compute")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--threads", type=int, default=128, help="threads of a slot")
    parser.add_argument("--size", type=int, help="bytes, rows of the picture or the matrices, bodies")
    parser.add_argument("--steps", type=int, help="round trips, steps until a point counts as inside, steps in time")
    parser.add_argument("--emulated", action="store_true", help="run slots on threads of the CPU")
    parser.add_argument("--save", metavar="FILE.npy")
    args = parser.parse_args()
    size, steps = args.size or USUAL[args.program][0], args.steps or USUAL[args.program][1]
    device = EmulatedGpu() if args.emulated else None
    seconds, result = run(
        args.program, size, steps, cpus=args.cpus, slots=args.slots, threads=args.threads, device=device
    )
    print(f"CPU ranks: {args.cpus}, slots: {args.slots}: {seconds:.3f} s")
    if args.save:
        np.save(args.save, result)


if __name__ == "__main__":
    main()
