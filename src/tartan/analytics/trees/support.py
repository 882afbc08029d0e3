"""Support of the branches of a tree: how often they come back in trees of resampled items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tartan.analytics.trees.tree import Tree
from tartan.errors import ConfigError


def with_support(tree: Tree, others: Iterable[Tree]) -> Tree:
    """Return a tree with the share of other trees that have each of its branches.

    Parameters
    ----------
    tree : Tree
    others : iterable of Tree
        Trees of the same leaves, such as those of resampled items; taken one at a time.

    Returns
    -------
    Tree
        With ``support``.

    Raises
    ------
    ConfigError
        If there is no other tree, the leaves differ, or two leaves have one name.

    References
    ----------
    Felsenstein: Confidence limits on phylogenies: an approach using the bootstrap. Evolution 39 (1985) 783-791.

    Examples
    --------
    >>> from tartan.analytics import read_newick
    >>> tree, other = (read_newick(text) for text in ("((a,b),c,(d,e));", "((a,b),d,(c,e));"))
    >>> with_support(tree, [tree, other]).newick()
    '((a,b)100,c,(d,e)50);'
    """
    splits = tree.split_hashes()
    counts: Counter[int] = Counter()
    n_others = 0
    for other in others:
        tree.compare(other)  # refuses other leaves
        counts.update(set(other.split_hashes().values()))
        n_others += 1
    if not n_others:
        raise ConfigError("support needs other trees to compare with, at least one")
    support = np.full(tree.n_nodes, np.nan)
    for node, split in splits.items():
        support[node] = counts[split] / n_others
    return replace(tree, support=support)
