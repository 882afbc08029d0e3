"""Support of branches: counted by splits, kept when a tree is rooted elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tartan.analytics import Tree, read_newick
from tartan.analytics.trees import with_support
from tartan.errors import ConfigError


def tree_of(text: str, *, rooted: bool = True) -> Tree:
    found = read_newick(text)
    return Tree(found.parents, found.lengths, found.names, rooted=rooted)


TREE = "((a:1,b:1):1,c:5,(d:1,(e:1,f:1):2):3);"


def by_split(tree: Tree) -> dict[int, float]:
    assert tree.support is not None
    return {split: float(tree.support[node]) for node, split in tree.split_hashes().items()}


def test_support_is_the_share_of_trees_with_the_split() -> None:
    others = [TREE, "((a,b),c,(e,(d,f)));", "((a,c),b,(d,(e,f)));", "(a,(b,(c,(d,(e,f)))));"]
    found = with_support(tree_of(TREE), map(tree_of, others))
    assert found.newick() == "((a:1,b:1)75:1,c:5,(d:1,(e:1,f:1)75:2)100:3);"
    assert found.support is not None
    assert all(math.isnan(found.support[leaf]) for leaf in found.leaves)


def test_the_root_of_the_others_does_not_matter() -> None:
    other = tree_of(TREE).rooted_at_midpoint()
    found = with_support(tree_of(TREE), [other])
    assert set(by_split(found).values()) == {1.0}


def test_support_goes_with_its_branch_to_another_root() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        tree = tree_of(TREE, rooted=False)
        lengths = np.where(np.isnan(tree.lengths), np.nan, rng.random(tree.n_nodes))
        tree = Tree(tree.parents, lengths, tree.names, rooted=False)
        supported = with_support(
            tree, [tree_of(TREE), tree_of("((a,b),c,(e,(d,f)));"), tree_of("((a,c),b,(d,(e,f)));")]
        )
        moved = supported.rooted_at_midpoint()
        assert by_split(moved) == by_split(supported)
        assert moved.support is not None
        assert len(moved.support) == moved.n_nodes


def test_names_of_inner_nodes_are_kept() -> None:
    named = with_support(tree_of("((a,b)clade,c,(d,e));"), [tree_of("((a,b),c,(d,e));")])
    assert named.newick() == "((a,b)clade,c,(d,e)100);"


def test_wrong_trees_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        with_support(tree_of(TREE), [])
    with pytest.raises(ConfigError, match="different leaves"):
        with_support(tree_of(TREE), [tree_of("((a,b),c,(d,x));")])
