"""The names of leaves in our Newick, as the readers of other programs return them."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tartan.analytics import as_dissimilarities, neighbor_joining

NAMES = (
    "a_b", "E. coli (K-12)", "x[1]", "it's", "c:d", "p;q", "r,s", "{set}", "k=v", "back\\slash", '"dq"', "plain-1.2|3",
    "tab\tx", "ü", "#1", "a/b", "100%",
)  # fmt: skip


def newick(names: tuple[str, ...]) -> str:
    places = np.random.default_rng(0).random((len(names), 3))
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    return neighbor_joining(as_dissimilarities(distances, names=names)).newick()


def test_dendropy() -> None:
    dendropy = pytest.importorskip("dendropy")
    read = dendropy.Tree.get(data=newick(NAMES), schema="newick")
    assert {leaf.taxon.label for leaf in read.leaf_node_iter()} == set(NAMES)


def test_biopython() -> None:
    phylo = pytest.importorskip("Bio.Phylo")
    read = phylo.read(io.StringIO(newick(NAMES)), "newick")
    assert {leaf.name for leaf in read.get_terminals()} == set(NAMES)


def test_scikit_bio() -> None:
    skbio = pytest.importorskip("skbio")
    read = skbio.TreeNode.read(io.StringIO(newick(NAMES)))
    assert {leaf.name for leaf in read.tips()} == set(NAMES)


def test_ete3() -> None:
    ete3 = pytest.importorskip("ete3")
    # It takes a doubled quote for two names.
    names = tuple(name for name in NAMES if "'" not in name)
    assert set(ete3.Tree(newick(names), quoted_node_names=True, format=1).get_leaf_names()) == set(names)
