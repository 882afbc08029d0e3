"""Where the blocks of a space are at first."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Literal, get_args

import numpy as np

from tartan.errors import ConfigError

Place = Literal["source", "centralized", "row cyclic", "column cyclic", "random", "grid"]
PLACES: tuple[Place, ...] = get_args(Place)


def place_blocks(counts: Sequence[int], place: Place, n_ranks: int, seed: int) -> np.ndarray:
    """Return which of the ranks has each block, by number.

    Parameters
    ----------
    counts : sequence of int
        Blocks in each dimension.
    place : {"centralized", "row cyclic", "column cyclic", "random", "grid"}
        All on the first rank; rows or columns of blocks on the ranks in turn; each block on any rank; cyclic in two
        dimensions.
    n_ranks : int
    seed : int
        Of "random".

    Returns
    -------
    ndarray of int, shape (n_blocks,)
        From 0.

    Raises
    ------
    ConfigError
        If blocks are not placed that way; for "source" they are on no rank.

    Examples
    --------
    >>> place_blocks((2, 2), "row cyclic", 2, 0).tolist()
    [0, 0, 1, 1]
    """
    indices = np.indices(counts).reshape(len(counts), -1)
    rows, columns = indices[0], indices[1] if len(indices) > 1 else np.zeros_like(indices[0])
    high = next(k for k in range(isqrt(n_ranks), 0, -1) if n_ranks % k == 0)
    wide = n_ranks // high
    match place:
        case "centralized":
            return np.zeros_like(rows)
        case "row cyclic":
            return np.asarray(rows % n_ranks)
        case "column cyclic":
            return np.asarray((columns if len(indices) > 1 else rows) % n_ranks)
        case "random":
            return np.random.default_rng(seed).integers(0, n_ranks, len(rows))
        case "grid":
            return np.asarray(rows % high * wide + columns % wide)
    raise ConfigError(f"{place!r} is not a placement of blocks")
