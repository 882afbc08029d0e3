"""Newick of difficult names, and its splits, against DendroPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from difficult import NAMES, tree_distances

from tartan.analytics import Tree, neighbor_joining, read_newick, upgma

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]
dendropy = pytest.importorskip("dendropy", reason="DendroPy is not installed")


def read(text: str, names: Any = None) -> Any:
    return dendropy.Tree.get(data=text, schema="newick", taxon_namespace=names, suppress_internal_node_taxa=True)


def splits_of(tree: Any) -> set[frozenset[str]]:
    """Return the sides of all branches that part two leaves or more from two or more."""
    every = frozenset(leaf.taxon.label for leaf in tree.leaf_node_iter())
    sides = {frozenset(leaf.taxon.label for leaf in node.leaf_iter()) for node in tree.preorder_node_iter()}
    return {min(side, every - side, key=sorted) for side in sides if 1 < len(side) < len(every) - 1}


def below(tree: Tree) -> set[frozenset[str]]:
    """Return the same by the nodes of our own tree."""
    members: list[set[str]] = [set() for _ in tree.parents]
    for leaf in tree.leaves:
        node = int(leaf)
        while node >= 0:
            members[node].add(tree.names[leaf])
            node = int(tree.parents[node])
    every = frozenset(tree.leaf_names)
    sides = [frozenset(side) for side in members if 1 < len(side) < len(every) - 1]
    return {min(side, every - side, key=sorted) for side in sides}


@pytest.mark.parametrize("make", [neighbor_joining, upgma])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_read_with_the_same_names_splits_and_lengths(make: Any, seed: int) -> None:
    tree = make(tree_distances(len(NAMES), seed, 0.3), list(NAMES))
    found = read(tree.newick())
    assert sorted(leaf.taxon.label for leaf in found.leaf_node_iter()) == sorted(NAMES)
    assert splits_of(found) == below(tree)
    assert found.length() == pytest.approx(np.nansum(tree.lengths), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_what_dendropy_writes_is_read(seed: int) -> None:
    tree = neighbor_joining(tree_distances(len(NAMES), seed, 0.3), list(NAMES))
    written = read(tree.newick()).as_string(schema="newick")
    back = read_newick(written)
    assert sorted(back.leaf_names) == sorted(NAMES)
    assert back.robinson_foulds(tree) == 0


def test_robinson_foulds_is_the_symmetric_difference() -> None:
    names, space = [str(i) for i in range(30)], dendropy.TaxonNamespace()
    trees = [neighbor_joining(tree_distances(30, seed, 0.5), names) for seed in range(6)]
    theirs = [read(tree.newick(), space) for tree in trees]
    for tree in theirs:
        tree.is_rooted = False
        tree.encode_bipartitions()
    for i, one in enumerate(trees):
        for j, other in enumerate(trees):
            expected = dendropy.calculate.treecompare.symmetric_difference(theirs[i], theirs[j])
            assert one.robinson_foulds(other) == expected
