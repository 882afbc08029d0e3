"""Nodes of a tree: parents, lengths and names, and the orders in which they are visited.

Nothing here recurses, so that a tree may be of any depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tartan.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes that one root joins; :class:`tartan.analytics.Tree` describes the attributes."""

    parents: NDArray[np.int64]
    lengths: NDArray[np.float64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.parents)
        if not n == len(self.lengths) == len(self.names) or int((np.asarray(self.parents) < 0).sum()) != 1:
            raise ConfigError(f"a tree of {n} nodes needs {n} lengths, {n} names and one root")
        if len(self.order) != n:
            raise ConfigError("the parents of the nodes form a circle")

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.parents)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node."""
        found: list[list[int]] = [[] for _ in range(self.n_nodes)]
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                found[parent].append(node)
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Nodes from the root down, first child first: each parent comes before its children."""
        waiting, found = [int(np.argmin(self.parents))], []
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(reversed(self.children[node]))
        return tuple(found)

    @property
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children, in the order of a drawing."""
        return tuple(node for node in self.order if not self.children[node])

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """Names of the leaves, in the order of a drawing."""
        return tuple(self.names[leaf] for leaf in self.leaves)


def leaf_labels(names: Iterable[object] | None, n: int) -> tuple[str, ...]:
    """Return the names of n leaves as texts; where none are given, their numbers.

    Raises
    ------
    ConfigError
        If the names are not n.
    """
    try:
        labels = tuple(map(str, range(n) if names is None else names))
    except TypeError:
        raise ConfigError(f"names is {names!r}; it must be a name for each of {n} items") from None
    if len(labels) != n:
        raise ConfigError(f"{len(labels)} names for {n} items")
    return labels
