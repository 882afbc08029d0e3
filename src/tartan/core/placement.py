"""Where the blocks of a space are at first."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Literal, get_args

import numpy as np

from tartan.core.space import BlockGrid

Place = Literal["source", "centralized", "row cyclic", "column cyclic", "random", "grid"]
PLACES: tuple[Place, ...] = get_args(Place)


def place_blocks(grid: BlockGrid, place: Place, ranks: Sequence[int], seed: int) -> list[int]:
    """Return the rank of each block, by number.

    Examples
    --------
    >>> place_blocks(BlockGrid((4, 4), (2, 2)), "row cyclic", [0, 1], 0)
    [0, 0, 1, 1]
    """
    indices = np.indices(grid.counts).reshape(len(grid.counts), -1)
    rows, columns = indices[0], indices[1] if len(indices) > 1 else indices[0]
    n_ranks = len(ranks)
    if place == "random":
        found = np.random.default_rng(seed).integers(0, n_ranks, grid.n_blocks)
    elif place == "row cyclic":
        found = rows % n_ranks
    elif place == "column cyclic":
        found = columns % n_ranks
    elif place == "grid":
        height = next(k for k in range(isqrt(n_ranks), 0, -1) if n_ranks % k == 0)
        found = rows % height * (n_ranks // height) + (columns % (n_ranks // height) if len(indices) > 1 else 0)
    else:
        found = np.zeros(grid.n_blocks, int)
    return [ranks[k] for k in found.tolist()]
