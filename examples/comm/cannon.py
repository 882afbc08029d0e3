"""Multiply two square matrices on a square of ranks by Cannon's algorithm: blocks travel left and up, step by step.

tartan ranks --cpus 4 examples/comm/cannon.py --n 1024
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from tartan import comm


def add_product(c: np.ndarray, a: np.ndarray, b: np.ndarray, place: np.ndarray) -> None:
    """Add the product of two blocks to a third; ``place`` holds it meanwhile."""
    np.matmul(a, b, out=place)
    c += place


def blocks(n: int, side: int, row: int, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks of the two matrices with which a place of the square begins: already moved left and up."""
    a, b = matrices(n)
    size, inner = n // side, (row + column) % side
    rows, columns, middle = (slice(k * size, (k + 1) * size) for k in (row, column, inner))
    return a[rows, middle].copy(), b[middle, columns].copy()


def matrices(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two matrices."""
    rng = np.random.default_rng(1)
    return rng.standard_normal((n, n)), rng.standard_normal((n, n))


def product(world: comm.RankCommunicator, a: np.ndarray, b: np.ndarray, idle: int = 0) -> np.ndarray:
    """Return this rank's block of the product; ``a`` and ``b`` are used up. The first ``idle`` ranks take no part."""
    side = math.isqrt(world.size - idle)
    row, column = divmod(world.rank - idle, side)
    left, right = (idle + row * side + (column + step) % side for step in (-1, 1))
    above, below = (idle + (row + step) % side * side + column for step in (-1, 1))
    c, place = np.zeros_like(a), np.empty_like(a)
    for step in range(side):
        add_product(c, a, b, place)
        if step < side - 1:
            world.sendrecv_replace(a, to=left, source=right, tag=1, recv_tag=1)
            world.sendrecv_replace(b, to=above, source=below, tag=2, recv_tag=2)
    return c


def main() -> None:
    """Multiply, gather the blocks on rank 0, and save them in their places."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1024, help="rows of each matrix")
    parser.add_argument("--save", metavar="FILE.npy")
    args = parser.parse_args()
    world = comm.world()
    side = math.isqrt(world.size)
    if side * side != world.size or args.n % side:
        raise SystemExit(f"{world.size} ranks are not a square whose side divides {args.n}")
    a, b = blocks(args.n, side, *divmod(world.rank, side))
    world.barrier()
    start = time.perf_counter()
    c = product(world, a, b)
    world.barrier()
    seconds = time.perf_counter() - start
    gathered = world.gather(c[None])
    if gathered is not None:
        print(f"{world.size} ranks: {2 * args.n**3 / seconds / 1e9:.2f} Gflop/s")
        if args.save:
            size = args.n // side
            np.save(args.save, gathered.reshape(side, side, size, size).swapaxes(1, 2).reshape(args.n, args.n))


if __name__ == "__main__":
    main()
