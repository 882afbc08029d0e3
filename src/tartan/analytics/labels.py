"""Numbers of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def number_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number clusters from 0 in the order of their first items.

    Parameters
    ----------
    labels : array (n,)
        Any integers; equal ones mean the same cluster.
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    ranks: NDArray[np.int64] = np.argsort(np.argsort(first)).astype(np.int64)
    return ranks[inverse]
