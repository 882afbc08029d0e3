"""Smooth an image ten times, on as many ranks as you like: ``python smooth.py IMAGE.npy OUT.zarr [local:4]``."""

import sys

import numpy as np
from scipy.ndimage import uniform_filter

from tartan import blocks


def smooth(window: np.ndarray, out: np.ndarray) -> None:
    """Take means of 7 x 7 elements; the window has three more on every side."""
    out[...] = uniform_filter(window, 7)[3:-3, 3:-3]


def main(image: str, target: str, on: str | None = None) -> None:
    """Smooth."""
    with blocks.Session(on) as session:
        old, new = session.space(image, block=1024), session.space(like=image, block=1024)
        for _ in range(10):
            before, after = old, new

            def wants(i: int, j: int, old: blocks.Space = before, new: blocks.Space = after) -> object:
                where = new.block(i, j)
                return old.read[blocks.halo(where, 3, boundary="reflect")], new.write[where]

            session.run(blocks.Task(smooth, new.grid, wants))
            old, new = new, old
        old.to_zarr(target)
        print(f"{session.total.subtasks} subtasks, {session.total.bytes_moved} bytes moved between ranks")


if __name__ == "__main__":
    main(*sys.argv[1:])
