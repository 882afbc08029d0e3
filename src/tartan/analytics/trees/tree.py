"""Trees: two arrays and the names of their nodes, as Newick text, compared, rerooted, drawn for a terminal.

Nothing here recurses, so that a tree may be of any depth.
"""

from __future__ import annotations

import hashlib
import math
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.trees.drawing import draw
from tartan.analytics.trees.nodes import Nodes
from tartan.base.shown_names import match_names
from tartan.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Tree(Nodes):
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
        Whether the position of the root has a meaning. Neighbour joining leaves the root where it ended.
    support : ndarray of float64, shape (n_nodes,), or None
        Share of resampled trees that have the branch above each node (:func:`with_support`), NaN where the branch cuts
        off a single leaf or nothing. Newick and pictures show it in percent.

    Examples
    --------
    >>> tree = read_newick("((a:1,b:2):1,c:3,'d e':4);")
    >>> tree.leaf_names
    ('a', 'b', 'c', 'd e')
    >>> tree.newick()
    "((a:1,b:2):1,c:3,'d e':4);"
    """

    rooted: bool = True
    support: NDArray[np.float64] | None = None

    def newick(self, *, digits: int = 9) -> str:
        """Return the tree as Newick: branch lengths of ``digits`` significant digits, names quoted where necessary."""
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
        return quote_name(self._name(node)) + (f":{length:.{digits}g}" if known else "")

    def _name(self, node: int) -> str:
        """Return the name of a node; of an inner one without a name the support of its branch, in percent."""
        if self.names[node] or self.support is None or math.isnan(self.support[node]):
            return self.names[node]
        return f"{100 * self.support[node]:.0f}"

    def robinson_foulds(self, other: Tree, *, normalized: bool = False) -> float:
        """Return the Robinson-Foulds distance: the number of splits that only one of the two unrooted trees has.

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
            return self.compare(other._with_names_of(self))
        a, b = self._splits(), other._splits()
        alone, splits = len(a ^ b), len(a) + len(b)
        return {"robinson_foulds": float(alone), "n_splits": float(splits), "normalized": alone / max(1, splits)}

    def _with_names_of(self, other: Tree) -> Tree:
        """Return the tree with the leaf names of another one, which differ from its own in blanks and marks only."""
        matched = match_names(self.leaf_names, other.leaf_names)
        there = {name for name in matched if name is not None}
        if len(there) < len(self.leaves) or len(there) < len(other.leaves):
            odd = set(other.leaf_names) - there or {n for n, m in zip(self.leaf_names, matched) if m is None}
            raise ConfigError(
                f"the trees have different leaves, such as {min(odd)!r}; give them the same names, for instance by "
                "`names='stem'`, or by a table (`tartan names`)"
            )
        names = list(self.names)
        for leaf, name in zip(self.leaves, matched):
            names[leaf] = str(name)
        return replace(self, names=tuple(names))

    def _splits(self) -> set[int]:
        return set(self.split_hashes().values())

    def split_hashes(self) -> dict[int, int]:
        """Return a 128-bit hash of the split above each node that cuts off no single leaf, by nodes.

        It is the exclusive or of the hashes of the leaves' names on one side, and the same for both sides.
        """
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
        return {node: min(hashes[node], hashes[node] ^ hashes[root]) for node in inner}

    def rooted_at_midpoint(self) -> Tree:
        """Return the tree with its root in the middle of the longest path between two leaves.

        Negative and unknown lengths count as zero here; the tree keeps them.
        """
        path = self._longest_path()
        if not path:
            return self
        lengths = [max(0.0, _check_known(self.lengths[node])) for node, _ in path]
        target, passed = sum(lengths) / 2, 0.0
        for at, (_, length) in enumerate(zip(path, lengths)):
            if passed + length >= target or at == len(path) - 1:
                break
            passed += length
        node, upwards = path[at]
        share = min(max(target - passed, 0.0), lengths[at])
        return self._reroot(node, share if upwards else lengths[at] - share)

    def rooted_at(self, outgroup: Iterable[str]) -> Tree:
        """Return the tree with its root in the middle of the branch that parts some leaves from all others.

        Parameters
        ----------
        outgroup : iterable of str
            Names of the leaves on one side.

        Raises
        ------
        ConfigError
            If a name is of no leaf, all leaves are named, or no branch parts them from the others.

        Examples
        --------
        >>> read_newick("((a:1,b:2):1,c:3,d:4);").rooted_at(["d"]).newick()
        '(((a:1,b:2):1,c:3):2,d:2);'
        """
        wanted = set(outgroup)
        strange = wanted - set(self.leaf_names)
        if strange or not wanted:
            wrong = min(strange, default="")
            raise ConfigError(f"there is no leaf {wrong!r} in the tree to root it at; give names of leaves")
        named, below = [0] * self.n_nodes, [0] * self.n_nodes
        for node in reversed(self.order):
            inner = self.children[node]
            below[node] = sum(below[child] for child in inner) if inner else 1
            named[node] = sum(named[child] for child in inner) if inner else int(self.names[node] in wanted)
        root = self.order[0]
        whole, chosen = below[root], named[root]
        if whole == chosen:
            raise ConfigError("all leaves of the tree are in the outgroup; name those of one side")
        sides = ((chosen, chosen), (0, whole - chosen))
        fitting = [one for one in self.order[1:] if (named[one], below[one]) in sides]
        if not fitting:
            raise ConfigError(
                f"no branch of the tree parts {', '.join(sorted(wanted))} from all other leaves; name leaves that are "
                "a group in the tree, such as one alone"
            )
        node = fitting[0]
        siblings = self.children[root] if self.parents[node] == root else ()
        length = float(self.lengths[node])
        if len(siblings) == 2:  # a root between two branches is no node of an unrooted tree
            length = float(sum(self.lengths[one] for one in siblings))
        return self._reroot(node, length / 2)

    def with_lengths_from_zero(self) -> Tree:
        """Return the tree with negative lengths, which neighbour joining may give, as 0."""
        return replace(self, lengths=np.where(self.lengths < 0, 0.0, self.lengths))

    def _longest_path(self) -> list[tuple[int, bool]]:
        """Return the branches between the two most distant leaves: (lower node, whether the path goes up)."""
        depth, lowest = [0.0] * self.n_nodes, list(range(self.n_nodes))
        best, ends = -1.0, (self.order[0], self.order[0], self.order[0])
        for node in reversed(self.order):
            reach = sorted(
                ((depth[c] + max(0.0, _check_known(self.lengths[c])), c) for c in self.children[node]), reverse=True
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

    def _reroot(self, node: int, above: float) -> Tree:
        """Return the tree with a new root on the branch of a node, at a distance above it."""
        parents, lengths = self.parents.tolist(), self.lengths.tolist()
        support = [math.nan] * self.n_nodes if self.support is None else self.support.tolist()
        path = [node, *self._up(parents[node], -1)]
        root = self.n_nodes
        parents[node], parents[path[1]] = root, root
        lengths[node], lengths[path[1]] = above, self.lengths[node] - above
        before = list(support)
        support[path[1]] = math.nan if not self.children[node] else before[node]
        for lower, upper in pairwise(path[1:]):
            parents[upper], lengths[upper], support[upper] = lower, self.lengths[lower], before[lower]
        parents, lengths, names = [*parents, -1], [*lengths, 0.0], [*self.names, ""]
        support.append(math.nan)
        old = path[-1]
        if parents.count(old) == 1:
            _remove_joint(parents, (lengths, names, support), old)
        known = None if self.support is None else np.array(support)
        return Tree(np.array(parents), np.array(lengths), tuple(names), support=known)

    def draw(self, width: int | None = None) -> str:
        """Return a drawing for a terminal; see :func:`draw_text`. An unrooted tree is drawn from its midpoint."""
        return draw_text(self if self.rooted else self.rooted_at_midpoint(), width)


def _check_known(length: float) -> float:
    return 0.0 if math.isnan(length) else float(length)


def _remove_joint(parents: list[int], columns: tuple[list[float], list[str], list[float]], node: int) -> None:
    """Remove a node with one child, whose branch then ends at the node's parent; the first column has lengths."""
    lengths, child = columns[0], parents.index(node)
    parents[child] = parents[node]
    lengths[child] += lengths[node]
    del parents[node]
    for column in columns:
        del column[node]
    parents[:] = [parent - (parent > node) for parent in parents]


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
        If the text is not a tree; the message has the position.

    Examples
    --------
    >>> read_newick("(a_b:1,'c_d':2);").leaf_names
    ('a b', 'c_d')
    """
    if not isinstance(text, str):
        raise ConfigError(f"{text!r:.40} is not text; give a tree in Newick")
    parents, lengths, names = parse(text)
    return Tree(np.array(parents), np.array(lengths), tuple(names))


def draw_text(tree: Tree, width: int | None = None) -> str:
    """Draw a tree with its root at the left, one line a leaf.

    Parameters
    ----------
    tree : Tree
        Branches are drawn in proportion to their lengths, negative ones as zero; equally long where no length is known.
        Where it fits, the support or the name of an inner node stands on its branch.
    width : int, optional
        Columns to use, at least 20; by default those of the terminal.

    Returns
    -------
    str
        Lines, the last one without a line end. Names longer than half of the width are cut.

    Examples
    --------
    >>> print(draw_text(read_newick("((a:1,b:1):1,c:2);"), 20))
    ┌───────┬───────── a
    ┤       └───────── b
    └───────────────── c
    """
    inner = [tree._name(node) for node in range(tree.n_nodes)]
    return draw(tree, max(20, width or shutil.get_terminal_size((100, 24)).columns), inner)


# The text of trees: Newick tokens to arrays, and the quoting of names.

# One token of Newick: a comment, a quoted label, a mark, or anything else up to the next mark.
_TOKEN = re.compile(
    r"\[(?P<comment>[^\]]*)\]|'(?P<quoted>(?:[^']|'')*)'|(?P<mark>[(),:;])|(?P<plain>[^\s()\[\]',:;]+)|(?P<wrong>\S)"
)
# What a label must be quoted for. An underscore in a bare label stands for a blank; DendroPy takes a double quote for a
# single one, and ends a label at braces, = and a backslash, as NEXUS does.
_QUOTE = re.compile(r"""[\s()\[\]{}'",:;=\\_]""")


def quote_name(name: str) -> str:
    """Return a name as Newick writes it."""
    return "'" + name.replace("'", "''") + "'" if _QUOTE.search(name) else name


def parse(text: str) -> tuple[list[int], list[float], list[str]]:
    """Return parents, lengths and names of the nodes of one tree; the root is node 0."""
    reader = _Reader()
    for token in _TOKEN.finditer(text):
        if reader.done and token.lastgroup != "comment":
            raise reader.error(token.start(), "text follows the semicolon")
        reader.take(token)
    if not reader.done:
        raise reader.error(len(text), "the semicolon at the end is missing")
    return reader.parents, reader.lengths, reader.names


class _Reader:
    """A tree that grows token by token."""

    def __init__(self) -> None:
        self.parents, self.lengths, self.names = [-1], [math.nan], [""]
        self.node = 0
        self.done = False
        # What the node has: nothing, children, a name, a colon, a length; in this order.
        self._stage = 0

    def error(self, position: int, problem: str) -> ConfigError:
        return ConfigError(f"not Newick, at character {position}: {problem}", context={"position": position})

    def take(self, token: re.Match[str]) -> None:
        kind, position = token.lastgroup, token.start()
        if kind == "mark":
            self._mark(token[0], position)
        elif kind == "wrong":
            raise self.error(position, f"{token[0]!r} is out of place")
        elif kind != "comment":
            label = token["quoted"].replace("''", "'") if kind == "quoted" else token["plain"]
            self._text(label, kind == "quoted", position)

    def _text(self, label: str, quoted: bool, position: int) -> None:
        if self._stage == 3:
            try:
                self.lengths[self.node] = float(label)
            except ValueError as error:
                raise self.error(position, f"{label!r} is not a length") from error
            if math.isinf(self.lengths[self.node]):
                raise self.error(position, f"{label!r} is not a length: it is not finite")
        elif self._stage < 2:
            self.names[self.node] = label if quoted else label.replace("_", " ")
        else:
            raise self.error(position, f"{label!r} follows a name or a length; put names with blanks in quotes")
        self._stage = 4 if self._stage == 3 else 2

    def _mark(self, mark: str, position: int) -> None:
        parent = self.parents[self.node]
        if mark == ":":
            wrong = self._stage > 2
            self._stage = 3
        elif mark == "(":
            wrong = self._stage > 0
            self._add(self.node)
        elif mark == ",":
            wrong = self._stage == 3 or parent < 0
            self._add(parent)
        elif mark == ")":
            wrong = self._stage == 3 or parent < 0
            self.node, self._stage = parent, 1
        else:
            wrong = self._stage == 3 or parent >= 0
            self.done = True
        if wrong:
            raise self.error(position, f"{mark!r} is out of place")

    def _add(self, parent: int) -> None:
        self.node, self._stage = len(self.parents), 0
        self.parents.append(parent)
        self.lengths.append(math.nan)
        self.names.append("")
