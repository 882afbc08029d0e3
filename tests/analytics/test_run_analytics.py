"""What a run hands to the analytics."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tartan
from tartan.analytics import neighbor_joining, read_newick, upgma
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.phylogeny.simulate import simulate
from tartan.errors import ConfigError


class Saturated(tartan.Application):
    """Distances of numbers on a line that saturate at a half."""

    releases_gil = True
    similarity = False
    outputs = {"scores": np.float64}  # noqa: RUF012 - as applications declare them

    def parse(self, key, data):
        if data < 0:
            raise ValueError("negative")
        return np.array([float(data)])

    def compare(self, left, right, xp):
        return (1 - xp.exp(-xp.abs(left - right.T))) / 2


@pytest.fixture(scope="module")
def run():
    return tartan.allpairs(Saturated(), [0.0, 1.0, 3.0, 3.5, 7.0, 7.25])


@pytest.mark.slow
def test_a_run_gives_its_matrix_and_its_trees(run) -> None:
    D = run.dissimilarities(transform="-log(1-2d)")
    assert D.names == ("0", "1", "2", "3", "4", "5")
    np.testing.assert_allclose(D.block(0, 1), [[0, 1, 3, 3.5, 7, 7.25]], rtol=1e-6)
    for method, build in (("nj", neighbor_joining), ("upgma", upgma)):
        expected = build(D.block(0, 6), D.names)
        assert run.tree(method, transform="-log(1-2d)").newick(digits=6) == expected.newick(digits=6)
    heights = {method: run.tree(method).lengths.sum() for method in ("single", "average", "complete", "weighted")}
    assert heights["single"] < heights["average"] < heights["complete"]


@pytest.mark.slow
def test_trees_that_cannot_be_built(run) -> None:
    with pytest.raises(ConfigError, match="method: 'wards' is unknown; choose from nj, upgma, single"):
        run.tree("wards")
    failed = tartan.allpairs(Saturated(), [0.0, 1.0, -3.0, 3.5]).dissimilarities()
    with pytest.raises(ConfigError, match=r"3 pairs of .* have no distance; a tree needs all of them"):
        neighbor_joining(failed)


@pytest.mark.slow
def test_saturated_distances_of_proteomes_give_the_tree_when_they_are_transformed(tmp_path) -> None:
    truth = simulate(tmp_path, 24, 3, n_proteins=50, depth=0.3)
    expected = read_newick(json.loads(truth.read_text())["newick"])
    run = tartan.allpairs(Phylogeny(), str(tmp_path / "*.gz"))
    assert run.tree(transform="-log(1-2d)").robinson_foulds(expected) == 0
    assert run.tree().robinson_foulds(expected) > 0
