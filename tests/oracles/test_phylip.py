"""PHYLIP's ``neighbor`` reads both forms that are exported for it, and joins them as we do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from difficult import tree_distances
from exported import run_of

from tartan.analytics import read_newick

NEIGHBOR = next(filter(None, map(shutil.which, ("neighbor", "phylip-neighbor"))), None)
PHYLIP = shutil.which("phylip")
COMMAND = [NEIGHBOR] if NEIGHBOR else [PHYLIP or "", "neighbor"]
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not (NEIGHBOR or PHYLIP), reason="PHYLIP is not installed (Debian package phylip)"),
]


def tree_of(matrix: Path) -> str:
    """Return what ``neighbor`` makes of a matrix; it asks where files of its names are there."""
    folder = matrix.parent / f"{matrix.stem}-neighbor"
    folder.mkdir()
    shutil.copy(matrix, folder / "infile")
    done = subprocess.run(COMMAND, cwd=folder, input="2\nY\n", capture_output=True, text=True, timeout=60, check=False)
    assert (folder / "outtree").exists(), done.stdout
    return (folder / "outtree").read_text()


@pytest.mark.parametrize("n", [4, 20, 60])
def test_the_tree_of_an_exported_run_is_ours(n: int, tmp_path: Path) -> None:
    run = run_of(tree_distances(n, 5, 0.2), tmp_path)
    run.export(tmp_path / "strict.phy", "phylip-strict")
    lines = (tmp_path / "strict.phy").read_text().splitlines()[1:]
    assert len({line[:10] for line in lines}) == n
    expected = read_newick(tree_of(tmp_path / "strict.phy"))
    assert len(expected.leaf_names) == n
    found = run.tree("nj")
    short = {key: line[:10].strip().replace("_", " ") for key, line in zip(run.keys, lines, strict=True)}
    names = tuple(short.get(name, name) for name in found.names)
    renamed = type(found)(found.parents, found.lengths, names, found.rooted)
    assert renamed.robinson_foulds(expected) == 0
