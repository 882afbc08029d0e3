"""Simulated proteomes: reproducible, well formed, and related as the truth says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.analytics import neighbor_joining, read_newick
from tartan.apps.phylogeny.app import Phylogeny
from tartan.apps.phylogeny.simulate import simulate
from tartan.errors import ConfigError


def test_the_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        truth = simulate(tmp_path / name, 5, seed, n_proteins=4, protein_length=60)
        assert truth == tmp_path / name / "truth.json"
    contents = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in "abc"]
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    names = [f"species-{i:04}.faa.gz" for i in range(5)]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [*names, "truth.json"]


def test_the_truth_describes_the_files(tmp_path: Path) -> None:
    options = {"n_proteins": 20, "protein_length": 80, "depth": 0.25}
    truth = json.loads(simulate(tmp_path, 9, 1, **options).read_text())
    tree = read_newick(truth.pop("newick"))
    assert truth == {"application": "phylogeny", "n": 9, "seed": 1, **options}
    assert set(tree.leaf_names) == {path.name for path in tmp_path.glob("*.faa.gz")}
    depth = np.zeros(tree.n_nodes)
    for node in tree.order[1:]:
        depth[node] = depth[tree.parents[node]] + tree.lengths[node]
    assert depth.max() == pytest.approx(0.25, rel=1e-4)
    assert (tree.lengths[list(tree.order[1:])] > 0).all()


def letters(path: Path) -> np.ndarray:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert max(map(len, lines)) == 70
    return np.frombuffer(b"".join(line for line in lines if not line.startswith(b">")), np.uint8)


def test_sites_change_as_often_as_branches_say(tmp_path: Path) -> None:
    truth = json.loads(simulate(tmp_path, 2, 4, n_proteins=100, depth=0.2).read_text())
    tree = read_newick(truth["newick"])
    a, b = (letters(tmp_path / name) for name in sorted(tree.leaf_names))
    frequencies = np.unique(a, return_counts=True)[1] / a.size
    assert frequencies.size == 20
    assert frequencies.min() == pytest.approx(0.0110, abs=0.003)
    assert frequencies.max() == pytest.approx(0.0965, abs=0.006)
    # Expected fraction of unlike sites when letters are drawn anew from their frequencies.
    unlike = 1 - np.square(frequencies).sum()
    way = float(np.nansum(tree.lengths))
    assert np.mean(a != b) == pytest.approx(unlike * (1 - np.exp(-way / unlike)), abs=0.012)


@pytest.mark.slow
def test_the_tree_is_found_again(tmp_path: Path) -> None:
    truth = read_newick(json.loads(simulate(tmp_path, 12, 3, depth=0.1).read_text())["newick"])
    app = Phylogeny(k=5)
    paths = sorted(tmp_path.glob("*.faa.gz"))
    items = [app.parse(path.name, path.read_bytes()) for path in paths]
    found = neighbor_joining(app.compare(items, items, np), [path.name for path in paths])
    assert found.robinson_foulds(truth) == 0


def test_one_proteome_has_a_tree_too(tmp_path: Path) -> None:
    truth = json.loads(simulate(tmp_path, 1, 0, n_proteins=2).read_text())
    assert truth["newick"] == "species-0000.faa.gz;"


@pytest.mark.parametrize(
    "wrong",
    [{"n": 0}, {"seed": -1}, {"n_proteins": 0}, {"protein_length": 5}, {"depth": 0.0}, {"depth": float("nan")}],
)
def test_wrong_options_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    options = {"n": 3, "seed": 0} | wrong
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        simulate(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
