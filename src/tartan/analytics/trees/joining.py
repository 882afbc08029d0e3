"""Neighbour joining of any form of a matrix, with the kernel of ``tartan._native``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix import Dissimilarities, for_analysis
from tartan.analytics.matrix.rows import squares
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.nodes import leaf_labels
from tartan.analytics.trees.tree import Tree
from tartan.base.notices import RunNotice
from tartan.errors import ConfigError

# By judgement: as blocks of matrix/rows; a stop is heard in between. No benchmark.
_COPIED_BYTES = 32 << 20


def neighbor_joining(
    D: Any,
    names: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
    monitor: Monitor | None = None,
    **options: Any,
) -> Tree:
    """Build the neighbour-joining tree of distances.

    Parameters
    ----------
    D : anything that :func:`tartan.analytics.as_dissimilarities` takes
        Symmetric, finite distances. float32 and int16 are worked on in float32, all else in
        float64.
    names : sequence of str, optional
        Names of the n leaves; by default those of D, or their numbers.
    overwrite : bool
        Work in D itself where it is a writable array (n, n) of float32 or float64 in row order: no second matrix is
        needed, and its contents are undefined afterwards.
    monitor : Monitor, optional
        Receives progress and can cancel the call.
    **options
        For :func:`tartan.analytics.as_dissimilarities`, such as ``transform="-log(1-2d)"``.

    Returns
    -------
    Tree
        Unrooted: the root is where the last three nodes met. Branches may have negative lengths, as the method
        gives them. Leaf i is node i.

    Raises
    ------
    ConfigError
        If D is not a matrix of distances, or there are not n names.

    Notes
    -----
    Takes one matrix besides D, or none with ``overwrite``. The tree is that of the plain method; rows that cannot hold
    the closest pair are not scanned, so that the work is near n^2 on tree-like distances, and n^3 / 3 at worst. Which
    of several equally close pairs is joined depends on the matrix alone.

    References
    ----------
    Saitou, Nei: The neighbor-joining method. Mol. Biol. Evol. 4 (1987) 406-425.

    Examples
    --------
    >>> neighbor_joining([[0, 3, 4], [3, 0, 5], [4, 5, 0]], ["a", "b", "c"]).newick()
    '(a:1,b:2,c:3);'
    """
    matrix = for_analysis(D, complete=True, names=names, **options)
    labels = leaf_labels(matrix.names, matrix.n)
    matrix.check(monitor=monitor).require_complete(matrix, "a tree")
    note = note_on_unknown(matrix)
    if note is not None:
        warnings.warn(f"{matrix.label}: {note}", RunNotice, stacklevel=2)
    watch = as_monitor(monitor)
    work = _make_writable(matrix, overwrite, watch)

    def report(left: int) -> None:
        watch.report("neighbour joining", joined=matrix.n - left, of=matrix.n)
        watch.check()

    try:
        parents, lengths = _native.neighbor_joining(work, report)
    except ValueError as error:
        raise ConfigError(f"no tree of {matrix.label}: {error}") from error
    return Tree(parents, lengths, labels + ("",) * (len(parents) - len(labels)), rooted=len(labels) < 3)


def note_on_unknown(matrix: Dissimilarities) -> str | None:
    """Say how many pairs are only known to be far apart; None where every distance was measured.

    Neighbour joining adds distances up. One that stands for "farther than was measured" is too short, and by another
    factor for each pair, so that the tree may part items that are near each other.
    """
    if matrix.unknown is None:
        return None
    scores = matrix if matrix.made_of is None else matrix.made_of.scores
    n_unknown = 0
    for rows, columns in squares(scores.n, scores.dtype.itemsize):
        found = scores.values(rows, columns) == matrix.unknown
        n_unknown += int(np.count_nonzero(np.triu(found, 1) if rows == columns else found))
    if not n_unknown:
        return None
    n_pairs = matrix.n * (matrix.n - 1) // 2
    return (
        f"{n_unknown:,} of {n_pairs:,} pairs are too far apart to be measured, and neighbour joining takes the largest "
        "distance for theirs: such a tree may separate near items; the method upgma joins what is near first"
    )


def _make_writable(matrix: Dissimilarities, overwrite: bool, monitor: Monitor) -> NDArray[Any]:
    """Return distances as an array that may be written to."""
    array = matrix.array
    if array is not None and array.dtype.kind == "f":
        return array if overwrite and array.flags.writeable else _copy_by_blocks(array, monitor)
    dtype = np.float64 if matrix.dtype.itemsize == 8 else np.float32
    made = matrix.materialized(dtype, memory_bytes=sys.maxsize, monitor=monitor).array
    assert made is not None
    return made


def _copy_by_blocks(array: NDArray[Any], monitor: Monitor) -> NDArray[Any]:
    """Return a copy, made by blocks so that it can be cancelled: memory that is touched for the first time is slow."""
    copy = np.empty(array.shape, array.dtype)
    height = max(1, _COPIED_BYTES // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), height):
        monitor.check()
        copy[start : start + height] = array[start : start + height]
    return copy
