"""Move bodies that attract each other: each rank moves its own, and reads the places of all in the memory of the node.

tartan ranks --cpus 4 examples/comm/nbody.py --bodies 2000 --steps 10
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tartan import comm
from tartan.comm.communicator import partition

SOFTENING = 1e-2
STEP = 1e-3
_ROWS = 64


def bodies(n: int) -> np.ndarray:
    """Return the places where all begin."""
    return np.random.default_rng(3).standard_normal((n, 3))


def move(places: np.ndarray, speeds: np.ndarray, others: np.ndarray) -> None:
    """Let all bodies pull at some for one step; change where these are, and how fast."""
    for first in range(0, len(places), _ROWS):
        rows = slice(first, first + _ROWS)
        apart = others[None, :, :] - places[rows, None, :]
        squares = np.einsum("ijk,ijk->ij", apart, apart) + SOFTENING
        speeds[rows] += STEP * np.einsum("ij,ijk->ik", squares**-1.5, apart) / len(others)
    places += STEP * speeds


def moved(world: comm.RankCommunicator, n: int, steps: int, idle: int = 0) -> np.ndarray:
    """Return where the bodies of this rank are after some steps; the first ``idle`` ranks have none."""
    start, stop = ([(0, 0)] * idle + partition(n, world.size - idle))[world.rank]
    places, speeds = bodies(n)[start:stop].copy(), np.zeros((stop - start, 3))
    for _ in range(steps):
        move(places, speeds, world.all_gather(places.ravel(), shared=True).reshape(n, 3))
    return places


def main() -> None:
    """Move, gather the places on rank 0, and save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--save", metavar="FILE.npy")
    args = parser.parse_args()
    world = comm.world()
    start = time.perf_counter()
    whole = world.gather(moved(world, args.bodies, args.steps))
    if whole is not None:
        seconds = time.perf_counter() - start
        print(f"{world.size} ranks: {args.bodies**2 * args.steps / seconds / 1e6:.1f} million pairs a second")
        if args.save:
            np.save(args.save, whole)


if __name__ == "__main__":
    main()
