"""What an analysis of a matrix will hold at most, from what the process holds now."""

from __future__ import annotations

from tartan.analytics.matrix.sources import Mapped, MatrixSource
from tartan.base.machine import held_bytes
from tartan.core.memory import STREAMED, MemoryNeed, need_of_analysis, need_of_pairs


def need_of_matrix(
    method: str,
    n: int,
    itemsize: int,
    *,
    source: MatrixSource | None = None,
    memory_bytes: int | None = None,
    n_near: int = 0,
    n_drawn: int = 0,
    held: int | None = None,
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
    source : MatrixSource, optional
        Where its values come from, where that is known.
    memory_bytes : int, optional
        Most memory for rows.
    n_near : int
        Of greedy: pairs within the bound. Of neighbours: all that are found.
    n_drawn : int
        Items by which the number of clusters is sought; 0 where it is given.
    held : int, optional
        What the process held before it read of the matrix; by default what it holds now.
    """
    return need_of_analysis(
        held_bytes() if held is None else held,
        "nj in float64" if method == "nj" and itemsize == 8 else method,
        n,
        source.held_bytes if source is not None and method in STREAMED else n * n * itemsize,
        memory_bytes=memory_bytes,
        n_near=n_near,
        n_drawn=n_drawn,
        is_made=isinstance(source, Mapped),
    )


def need_of_kept(use: str, n_pairs: int, n_found: int = 0) -> MemoryNeed:
    """Return what an analysis of kept pairs, which are in memory, needs; parameters as of ``need_of_pairs``."""
    return need_of_pairs(held_bytes(), use, n_pairs, n_found)
