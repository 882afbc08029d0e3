"""Trees against scikit-bio."""

from __future__ import annotations

import io

import numpy as np
import pytest
from difficult import NAMES, tree_distances

from tartan.analytics import neighbor_joining, read_newick

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]
skbio = pytest.importorskip("skbio", reason="scikit-bio is not installed", exc_type=ImportError)


def joined_by_scikit_bio(D: np.ndarray, names: list[str]) -> str:
    from skbio.tree import nj

    text = io.StringIO()
    nj(skbio.DistanceMatrix(D, names), neg_as_zero=False).write(text, format="newick")
    return text.getvalue()


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("n", [4, 5, 20, 100])
def test_neighbour_joining_is_that_of_scikit_bio(n: int, noise: float) -> None:
    D = tree_distances(n, 1, noise)
    names = [f"leaf {i}" for i in range(n)]
    found, expected = neighbor_joining(D, names), read_newick(joined_by_scikit_bio(D, names))
    assert found.robinson_foulds(expected) == 0
    compared = found.compare(expected)
    assert compared["robinson_foulds"] == 0
    np.testing.assert_allclose(np.nansum(found.lengths), np.nansum(expected.lengths), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_change_the_tree(unit: float) -> None:
    D = tree_distances(30, 2, 0.2)
    names = [str(i) for i in range(30)]
    expected = read_newick(joined_by_scikit_bio(D * unit, names))
    assert neighbor_joining(D * unit, names).robinson_foulds(expected) == 0


def test_scikit_bio_reads_names_with_any_letters() -> None:
    tree = neighbor_joining(tree_distances(len(NAMES), 3), NAMES)
    read = skbio.TreeNode.read(io.StringIO(tree.newick() + "\n"), format="newick")
    assert sorted(tip.name for tip in read.tips()) == sorted(NAMES)


def test_robinson_foulds_is_that_of_scikit_bio() -> None:
    names = [str(i) for i in range(25)]
    trees = [neighbor_joining(tree_distances(25, seed, 0.5), names) for seed in range(6)]
    read = [skbio.TreeNode.read(io.StringIO(tree.newick() + "\n"), format="newick") for tree in trees]
    for i, one in enumerate(trees):
        for j, other in enumerate(trees):
            assert one.robinson_foulds(other) == read[i].compare_rfd(read[j], rooted=False)
