"""Ranks that work on one matrix: the message layer that the distributed form of the algorithms needs, and no more.

Each rank has some rows of the matrix (``partition``); only arrays of n times the dimension travel. All ranks call the
same functions in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError

__all__ = ["Alone", "Communicator", "partition"]


Operation = str | Callable[[Any, Any], Any]
"""A reduction: "sum", "prod", "min", "max", or a function of two arrays."""


class Communicator(Protocol):
    """The message layer of the algorithms.

    Every function is called by all ranks, and returns when all of them have called it. Arrays that are given are not
    changed and may be reused at once; arrays that are returned belong to the caller. If one rank fails, the others
    raise instead of waiting for it.
    """

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def all_gather(self, rows: NDArray[Any], *, shared: bool = False) -> NDArray[Any]:
        """Return the rows of all ranks, one below the other in the order of the ranks.

        The ranks may give unequal numbers of rows, also none; dtype and the other lengths are the same on all. With
        ``shared`` the result may be a read-only view that holds until this rank's next collective.
        """
        ...

    def all_reduce(self, array: NDArray[Any], op: Operation = "sum") -> NDArray[Any]:
        """Return the "sum", "prod", "min" or "max" of each element over the ranks, or what a function of two arrays
        makes of the arrays: the same bits on all of them.

        They are taken in the order of the ranks, so that they are the same every time.
        """
        ...

    def broadcast(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return the array of one rank. The others give an array of the same shape and dtype."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...


class Alone:
    """The communicator of a single process.

    Examples
    --------
    >>> Alone().all_reduce(np.array([1.0, 2.0]))
    array([1., 2.])
    """

    rank = 0
    size = 1

    def all_gather(self, rows: NDArray[Any], *, shared: bool = False) -> NDArray[Any]:
        """Return a copy."""
        return np.array(rows)

    def all_reduce(self, array: NDArray[Any], op: Operation = "sum") -> NDArray[Any]:
        """Return a copy."""
        require_operation(op, np.asarray(array).dtype)
        return np.array(array)

    def broadcast(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return a copy."""
        require_root(root, 1)
        return np.array(array)

    def barrier(self) -> None:
        """Return at once."""


def partition(n: int, size: int) -> list[tuple[int, int]]:
    """Return the first row and the row after the last of each rank.

    Every rank has n // size rows, the first n mod size one more; with more ranks than rows some have none.

    Examples
    --------
    >>> partition(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    if n < 0 or size < 1:
        raise ConfigError(f"{n} rows cannot be divided among {size} ranks")
    share, more = divmod(n, size)
    starts = [rank * share + min(rank, more) for rank in range(size + 1)]
    return list(pairwise(starts))


def require_same_input(communicator: Communicator | None, fingerprint: Callable[[], str]) -> None:
    """Refuse an input that differs between nodes, before the work; the first rank of each node reads it.

    Parameters
    ----------
    communicator : Communicator or None
        Nothing is compared where its ranks are on one node.
    fingerprint : callable
        Returns that of the input.

    Raises
    ------
    ConfigError
        On all ranks.
    """
    nodes: tuple[int, ...] = getattr(communicator, "nodes", ())
    if communicator is None or len(set(nodes)) < 2:
        return
    speaks = nodes.index(nodes[communicator.rank]) == communicator.rank
    digest = hashlib.blake2b(fingerprint().encode() if speaks else b"", digest_size=32).digest()
    found = communicator.all_gather(np.frombuffer(digest, np.uint8)[None])
    for node in sorted(set(nodes)):
        if (found[nodes.index(node)] != found[0]).any():
            raise ConfigError(
                f"the input of node {node} is not that of node {nodes[0]}; give all nodes copies of the same file"
            )


_JOINS: dict[str, tuple[Callable[..., Any], str]] = {
    "sum": (np.add, "biufcm"),
    "prod": (np.multiply, "biufc"),
    "min": (np.minimum, "biufcmM"),
    "max": (np.maximum, "biufcmM"),
}


def require_operation(op: Operation, dtype: np.dtype[Any] | None = None) -> None:
    """Refuse unknown reductions, and those of what are not numbers; dates have a minimum and a maximum."""
    if callable(op):
        return
    if op not in _JOINS:
        names = ", ".join(map(repr, _JOINS))
        raise ConfigError(f"all_reduce takes {names} or a function of two arrays, not {op!r}")
    if dtype is not None and dtype.kind not in _JOINS[op][1]:
        raise ConfigError(f"arrays of {dtype} have no {op}; reduce numbers, or give a function of two arrays")


def name_operation(op: Operation) -> str:
    """Return the name by which ranks see that they reduce alike."""
    return op if isinstance(op, str) else f"by {getattr(op, '__qualname__', type(op).__qualname__)}"


def join_operation(op: str) -> Callable[..., Any]:
    """Return the function of NumPy that a named reduction applies to two arrays."""
    return _JOINS[op][0]


def fold_by(function: Callable[[Any, Any], Any], arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Fold whole arrays in their order by a function of two of them: f(f(a0, a1), a2), ...

    Raises
    ------
    ConfigError
        If what the function returns has another shape, or does not fit into the dtype without loss of kind.
    """
    result = np.array(arrays[0])
    for array in arrays[1:]:
        second = array.view()
        second.flags.writeable = False
        found = np.asarray(function(result, second))
        if found.shape != result.shape or not np.can_cast(found.dtype, result.dtype, "same_kind"):
            raise ConfigError(
                f"the function of a reduction ({name_operation(function)}) returns {found.dtype} {found.shape} for two "
                f"arrays of {result.dtype} {result.shape}; return an array like them"
            )
        result = np.array(found, result.dtype)
    return result


def require_root(root: int, size: int) -> None:
    """Refuse ranks that do not exist."""
    if not isinstance(root, int | np.integer) or not 0 <= root < size:
        raise ConfigError(f"rank {root} does not exist; there are {size}, from 0")
