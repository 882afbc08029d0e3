"""Compute a picture of the Mandelbrot set: rank 0 hands out strips of rows, the others ask for the next one.

tartan ranks --cpus 4 examples/comm/mandelbrot.py --width 640 --height 480
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tartan import comm

STRIP = 8


def strip_of(first: int, width: int, height: int, limit: int) -> np.ndarray:
    """Return after how many steps the points of some rows escape, ``limit`` where they do not."""
    rows = np.arange(first, min(first + STRIP, height))
    c = (np.linspace(-2.2, 0.8, width)[None, :] + 1j * (2.4 * rows / height - 1.2)[:, None]).ravel()
    steps = np.full(c.size, limit, np.int32)
    left, z = np.arange(c.size), np.zeros_like(c)
    for step in range(limit):
        z = z * z + c[left]
        inside = z.real**2 + z.imag**2 <= 4.0
        steps[left[~inside]] = step
        left, z = left[inside], z[inside]
    return steps.reshape(len(rows), width)


def picture(world: comm.RankCommunicator, width: int, height: int, limit: int) -> np.ndarray | None:
    """Return the picture on rank 0; strips cost unlike times, so each goes to the rank that asks first."""
    if world.rank:
        work(world, width, height, limit)
        return None
    whole = np.empty((height, width), np.int32)
    if world.size == 1:
        for first in range(0, height, STRIP):
            whole[first : first + STRIP] = strip_of(first, width, height, limit)
    else:
        hand_out(world, whole)
    return whole


def hand_out(world: comm.RankCommunicator, whole: np.ndarray) -> None:
    """Give each rank that asks the first row of the next strip; it asks by the strip that it has done, if any."""
    following, working, status = 0, world.size - 1, comm.Status()
    while working:
        strip = world.recv(status=status).reshape(-1, whole.shape[1])
        whole[status.tag : status.tag + len(strip)] = strip
        if following >= len(whole):
            working -= 1
        world.send(np.array([following]), to=status.source)
        following += STRIP


def work(world: comm.RankCommunicator, width: int, height: int, limit: int) -> None:
    """Ask for strips until there are none; the tag of a strip is its first row."""
    first, strip = 0, np.empty((0, width), np.int32)
    while (first := int(world.sendrecv(strip, to=0, source=0, tag=first)[0])) < height:
        strip = strip_of(first, width, height, limit)


def main() -> None:
    """Compute a picture, and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--limit", type=int, default=200, help="steps after which a point counts as inside")
    parser.add_argument("--save", metavar="FILE.npy")
    args = parser.parse_args()
    world = comm.world()
    start = time.perf_counter()
    whole = picture(world, args.width, args.height, args.limit)
    if whole is not None:
        seconds = time.perf_counter() - start
        print(f"{world.size} ranks: {whole.size / seconds / 1e6:.2f} million points a second")
        if args.save:
            np.save(args.save, whole)


if __name__ == "__main__":
    main()
