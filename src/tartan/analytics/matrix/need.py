"""What an analysis of a matrix will hold at most, from what the process holds now."""

from __future__ import annotations

from tartan.base.machine import held_bytes
from tartan.core.memory import MemoryNeed, need_of_analysis


def need_of_matrix(
    method: str, n: int, itemsize: int, *, memory_bytes: int | None = None, n_near: int = 0, n_drawn: int = 0
) -> MemoryNeed:
    """Return what an analysis needs.

    Parameters
    ----------
    method : str
        As for ``need_of_analysis``.
    n : int
        Items of the matrix.
    itemsize : int
        Bytes of one of its values.
    memory_bytes : int, optional
        Most memory for rows.
    n_near : int
        Of greedy: pairs within the bound.
    n_drawn : int
        Items by which the number of clusters is sought; 0 where it is given.
    """
    return need_of_analysis(
        held_bytes(), method, n, n * n * itemsize, memory_bytes=memory_bytes, n_near=n_near, n_drawn=n_drawn
    )
