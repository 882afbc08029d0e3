"""What the applications of block tasks will hold at most, from the shapes of their inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tartan.base.machine import held_bytes, usable_cores
from tartan.blocks.session import Session
from tartan.blocks.sources import source_of
from tartan.core.memory import MemoryNeed, need_of_blocks


def need_of_application(
    session: Session, application: str, inputs: Sequence[str], block: int | None, workers: int | None
) -> MemoryNeed:
    """Return what an application will hold at most on one rank, this process.

    Parameters
    ----------
    session : Session
        Of one rank, open.
    application : {"matmul", "lu", "convolve", "pagerank"}
    inputs : sequence of str
        Files and Zarr arrays.
    block : int or None
        Side of a block; default: that of the application.
    workers : int or None
        Subtasks at a time; default: cores.

    Raises
    ------
    ConfigError
        If an input cannot be opened.
    """
    given = [source_of(path, None, None) for path in inputs]
    sizes = [math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in given]
    dtype = np.result_type(*(one.dtype for one in given))
    item_bytes = dtype.itemsize if dtype.kind in "fc" else 8
    first, last = given[0].shape or (1,), given[-1].shape or (1,)
    side, cells = block or 1024, math.prod(first)
    block_cells = math.prod(min(side, length) for length in first[:2]) * math.prod(first[2:])
    if application == "matmul":
        cells = first[0] * last[-1]
    if application == "pagerank":
        block_cells = min(side, cells)
    return need_of_blocks(
        held_bytes(),
        application,
        sum(sizes),
        cells * item_bytes,
        mapped_bytes=sum(size for one, size in zip(given, sizes, strict=True) if one.kind == "npy"),
        block_bytes=block_cells * item_bytes,
        room_bytes=session.room_bytes,
        n_workers=workers or usable_cores(),
    )
