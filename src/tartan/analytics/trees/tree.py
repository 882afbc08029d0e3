"""Trees of distances: neighbour joining, UPGMA, Newick text, comparison of trees, drawings for a terminal.

A tree is two arrays and the names of its nodes; nothing here recurses, so that a tree may be as deep as it likes.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan import _native
from tartan.analytics.matrix import Dissimilarities, as_dissimilarities
from tartan.analytics.monitor import Monitor, as_monitor
from tartan.analytics.trees.drawing import draw
from tartan.analytics.trees.newick import parse, quoted
from tartan.errors import ConfigError

__all__ = ["Tree", "draw_text", "neighbor_joining", "read_newick", "upgma"]

_COPIED_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree with branch lengths.

    Attributes
    ----------
    parents : ndarray of int64, shape (n_nodes,)
        Parent of each node; -1 for the root, of which there is one. Children are in the order of their numbers.
    lengths : ndarray of float64, shape (n_nodes,)
        Length of the branch above each node; NaN where none is known. Neighbour joining may give negative ones.
    names : tuple of str
        Names of the nodes; "" for a node without one.
    rooted : bool
        Whether the root means something. Neighbour joining leaves the root where it ended.

    Examples
    --------
    >>> tree = read_newick("((a:1,b:2):1,c:3,'d e':4);")
    >>> tree.leaf_names
    ('a', 'b', 'c', 'd e')
    >>> tree.newick()
    "((a:1,b:2):1,c:3,'d e':4);"
    """

    parents: NDArray[np.int64]
    lengths: NDArray[np.float64]
    names: tuple[str, ...]
    rooted: bool = True

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

    def newick(self, *, digits: int = 9) -> str:
        """Return the tree as Newick, with branch lengths of so many digits; names are quoted where they must be."""
        parts: list[str] = []
        waiting: list[int | str] = [self.order[0]]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                parts.append(item)
            elif self.children[item]:
                inner: list[int | str] = ["("]
                for child in self.children[item]:
                    inner += [child, ","]
                waiting.extend(reversed([*inner[:-1], ")" + self._label(item, digits)]))
            else:
                parts.append(self._label(item, digits))
        return "".join(parts) + ";"

    def _label(self, node: int, digits: int) -> str:
        length = float(self.lengths[node])
        known = self.parents[node] >= 0 and not math.isnan(length)
        return quoted(self.names[node]) + (f":{length:.{digits}g}" if known else "")

    def robinson_foulds(self, other: Tree, *, normalized: bool = False) -> float:
        """Return the Robinson-Foulds distance: how many splits of the leaves one of the two unrooted trees has alone.

        Parameters
        ----------
        other : Tree
            A tree with the same leaf names.
        normalized : bool
            Divide by the number of splits of both, so that trees without a common split have distance 1.

        Raises
        ------
        ConfigError
            If the leaves differ, or two leaves have one name.

        References
        ----------
        Robinson, Foulds: Comparison of phylogenetic trees. Math. Biosci. 53 (1981) 131-147.
        """
        compared = self.compare(other)
        return compared["normalized" if normalized else "robinson_foulds"]

    def compare(self, other: Tree) -> dict[str, float]:
        """Return ``robinson_foulds``, the ``n_splits`` of both trees together, and their ratio ``normalized``.

        Raises
        ------
        ConfigError
            If the leaves differ, or two leaves have one name.
        """
        mine, others = set(self.leaf_names), set(other.leaf_names)
        for tree, names in ((self, mine), (other, others)):
            if len(names) != len(tree.leaves):
                raise ConfigError(f"{len(tree.leaves)} leaves have {len(names)} names; trees are compared by names")
        if mine != others:
            raise ConfigError(f"the trees have unlike leaves, such as {min(mine ^ others)!r}")
        a, b = self._splits(), other._splits()
        alone, splits = len(a ^ b), len(a) + len(b)
        return {"robinson_foulds": float(alone), "n_splits": float(splits), "normalized": alone / max(1, splits)}

    def _splits(self) -> set[int]:
        """Return a 128-bit hash of each split that is not a single leaf: the exclusive or of its leaves' hashes."""
        hashes, sizes = [0] * self.n_nodes, [0] * self.n_nodes
        for node in reversed(self.order):
            if not self.children[node]:
                hashes[node] = int.from_bytes(hashlib.blake2b(self.names[node].encode(), digest_size=16).digest())
                sizes[node] = 1
            parent = int(self.parents[node])
            if parent >= 0:
                hashes[parent] ^= hashes[node]
                sizes[parent] += sizes[node]
        root, n = self.order[0], sizes[self.order[0]]
        inner = (node for node in self.order[1:] if 1 < sizes[node] < n - 1)
        return {min(hashes[node], hashes[node] ^ hashes[root]) for node in inner}

    def rooted_at_midpoint(self) -> Tree:
        """Return the tree with its root in the middle of the longest way between two leaves.

        Negative and unknown lengths count as zero here, and are kept.
        """
        way = self._longest_way()
        if not way:
            return self
        lengths = [max(0.0, _known(self.lengths[node])) for node, _ in way]
        target, passed = sum(lengths) / 2, 0.0
        for at, (_, length) in enumerate(zip(way, lengths)):
            if passed + length >= target or at == len(way) - 1:
                break
            passed += length
        node, upwards = way[at]
        share = min(max(target - passed, 0.0), lengths[at])
        return self._rerooted(node, share if upwards else lengths[at] - share)

    def _longest_way(self) -> list[tuple[int, bool]]:
        """Return the branches between the two most distant leaves: (lower node, whether the way goes up)."""
        depth, lowest = [0.0] * self.n_nodes, list(range(self.n_nodes))
        best, ends = -1.0, (self.order[0], self.order[0], self.order[0])
        for node in reversed(self.order):
            reach = sorted(
                ((depth[c] + max(0.0, _known(self.lengths[c])), c) for c in self.children[node]), reverse=True
            )
            if reach:
                depth[node], lowest[node] = reach[0][0], lowest[reach[0][1]]
            if len(reach) > 1 and reach[0][0] + reach[1][0] > best:
                best, ends = reach[0][0] + reach[1][0], (node, lowest[reach[0][1]], lowest[reach[1][1]])
        top, first, second = ends
        return [*((n, True) for n in self._up(first, top)), *((n, False) for n in reversed([*self._up(second, top)]))]

    def _up(self, node: int, top: int) -> Iterator[int]:
        while node != top:
            yield node
            node = int(self.parents[node])

    def _rerooted(self, node: int, above: float) -> Tree:
        """Return the tree with a new root so far above the node on its branch."""
        parents, lengths = self.parents.tolist(), self.lengths.tolist()
        way = [node, *self._up(parents[node], -1)]
        root = self.n_nodes
        parents[node], parents[way[1]] = root, root
        lengths[node], lengths[way[1]] = above, self.lengths[node] - above
        for lower, upper in pairwise(way[1:]):
            parents[upper], lengths[upper] = lower, self.lengths[lower]
        parents, lengths, names = [*parents, -1], [*lengths, 0.0], [*self.names, ""]
        old = way[-1]
        if parents.count(old) == 1:
            _remove_joint(parents, lengths, names, old)
        return Tree(np.array(parents), np.array(lengths), tuple(names))

    def draw(self, width: int | None = None) -> str:
        """Return a drawing for a terminal; see :func:`draw_text`. An unrooted tree is drawn from its midpoint."""
        return draw_text(self if self.rooted else self.rooted_at_midpoint(), width)


def _known(length: float) -> float:
    return 0.0 if math.isnan(length) else float(length)


def _remove_joint(parents: list[int], lengths: list[float], names: list[str], node: int) -> None:
    """Remove a node with one child: the child's branch goes on to the node's parent."""
    child = parents.index(node)
    parents[child] = parents[node]
    lengths[child] += lengths[node]
    for column in (parents, lengths, names):
        del column[node]
    parents[:] = [parent - (parent > node) for parent in parents]


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
        Symmetric, finite distances. float32 and int16 are worked on in float32, all
        else in float64.
    names : sequence of str, optional
        Names of the n leaves; by default those of D, or their numbers.
    overwrite : bool
        Work in D itself where it is a writable array (n, n) of float32 or float64 in row order: no second matrix is
        needed, and D holds rubbish afterwards.
    monitor : Monitor, optional
        What hears of progress and of Ctrl-C.
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
        If D is no matrix of distances, or the names are not n.

    Notes
    -----
    Takes one matrix besides D, or none with ``overwrite``. The tree is that of the plain method; rows that cannot hold
    the closest pair are not looked at, which makes it near n^2 work on tree-like distances, n^3 / 3 at worst. Where two
    pairs are equally close, which of them is joined depends on the matrix alone.

    References
    ----------
    Saitou, Nei: The neighbor-joining method. Mol. Biol. Evol. 4 (1987) 406-425.

    Examples
    --------
    >>> neighbor_joining([[0, 3, 4], [3, 0, 5], [4, 5, 0]], ["a", "b", "c"]).newick()
    '(a:1,b:2,c:3);'
    """
    matrix = as_dissimilarities(D, **options)
    labels = _labels(matrix, names)
    matrix.check(monitor=monitor).require_complete(matrix, "a tree")
    watch = as_monitor(monitor)
    work = _working_array(matrix, overwrite, watch)

    def report(left: int) -> None:
        watch.report("neighbour joining", joined=matrix.n - left, of=matrix.n)
        watch.check()

    try:
        parents, lengths = _native.neighbor_joining(work, report)
    except ValueError as error:
        raise ConfigError(f"no tree of {matrix.label}: {error}") from error
    return Tree(parents, lengths, labels + ("",) * (len(parents) - len(labels)), rooted=len(labels) < 3)


def upgma(D: Any, names: Sequence[str] | None = None, *, monitor: Monitor | None = None, **options: Any) -> Tree:
    """Build the UPGMA tree (average linkage) of distances: rooted, all leaves equally far from the root.

    Parameters
    ----------
    D : anything that :func:`tartan.analytics.as_dissimilarities` takes
        Symmetric, finite distances.
    names : sequence of str, optional
        Names of the n leaves; by default those of D, or their numbers.
    monitor : Monitor, optional
        What hears of progress and of Ctrl-C.
    **options
        For :func:`tartan.analytics.as_dissimilarities`.

    Raises
    ------
    ConfigError
        If D is no matrix of distances, or the names are not n.

    Notes
    -----
    As :func:`tartan.analytics.linkage` with the method "average".

    Examples
    --------
    >>> upgma([[0, 2, 4], [2, 0, 4], [4, 4, 0]], ["a", "b", "c"]).newick()
    '(c:2,(a:1,b:1):1);'
    """
    from tartan.analytics.trees.hierarchy import linkage, linkage_tree

    matrix = as_dissimilarities(D, **options)
    return linkage_tree(linkage(matrix, "average", monitor=monitor), _labels(matrix, names))


def _working_array(matrix: Dissimilarities, overwrite: bool, monitor: Monitor) -> NDArray[Any]:
    """Return distances as an array that may be written to."""
    array = matrix.array
    if array is not None and array.dtype.kind == "f":
        return array if overwrite and array.flags.writeable else _copied(array, monitor)
    dtype = np.float64 if matrix.dtype.itemsize == 8 else np.float32
    made = matrix.materialized(dtype, memory_bytes=sys.maxsize, monitor=monitor).array
    assert made is not None
    return made


def _copied(array: NDArray[Any], monitor: Monitor) -> NDArray[Any]:
    """Return a copy; a stop is heard on the way, since memory that is touched for the first time is slow."""
    copy = np.empty(array.shape, array.dtype)
    height = max(1, _COPIED_BYTES // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), height):
        monitor.check()
        copy[start : start + height] = array[start : start + height]
    return copy


def _labels(matrix: Dissimilarities, names: Sequence[str] | None) -> tuple[str, ...]:
    given = matrix.names if names is None else names
    try:
        labels = tuple(map(str, range(matrix.n) if given is None else given))
    except TypeError:
        raise ConfigError(f"names is {given!r}; it is a name for each of {matrix.n} rows of distances") from None
    if len(labels) != matrix.n:
        raise ConfigError(f"{len(labels)} names for {matrix.n} rows of distances")
    return labels


def read_newick(text: str) -> Tree:
    """Read a tree in Newick.

    Parameters
    ----------
    text : str
        One tree, ending with a semicolon. Comments in brackets are left out; in labels without quotes an underscore
        stands for a blank.

    Raises
    ------
    ConfigError
        If the text is no tree; the message has the position.

    Examples
    --------
    >>> read_newick("(a_b:1,'c_d':2);").leaf_names
    ('a b', 'c_d')
    """
    if not isinstance(text, str):
        raise ConfigError(f"{text!r:.40} is no text; give a tree in Newick")
    parents, lengths, names = parse(text)
    return Tree(np.array(parents), np.array(lengths), tuple(names))


def draw_text(tree: Tree, width: int | None = None) -> str:
    """Draw a tree with its root at the left, one line a leaf.

    Parameters
    ----------
    tree : Tree
        Branches are drawn in proportion to their lengths, negative ones as zero; all alike where no length is known.
    width : int, optional
        Columns to use, at least 20; by default those of the terminal.

    Returns
    -------
    str
        Lines without a line end at the last. Names that do not fit half of the width are cut.

    Examples
    --------
    >>> print(draw_text(read_newick("((a:1,b:1):1,c:2);"), 20))
    ┌───────┬───────── a
    ┤       └───────── b
    └───────────────── c
    """
    return draw(tree, max(20, width or shutil.get_terminal_size((100, 24)).columns))
