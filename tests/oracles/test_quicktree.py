"""quicktree reads what is exported and joins it as we do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from difficult import tree_distances
from exported import run_of

from tartan.analytics import read_newick

PROGRAM = shutil.which("quicktree")
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(PROGRAM is None, reason="quicktree is not installed (Debian package quicktree)"),
]


def tree_of(path: Path, *words: str) -> str:
    command = [str(PROGRAM), "-in", "m", "-out", "t", *words, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("n", [4, 20, 60])
@pytest.mark.parametrize("method", ["nj", "upgma"])
def test_the_tree_of_an_exported_run_is_ours(method: str, n: int, tmp_path: Path) -> None:
    D = tree_distances(n, 5, 0.2)
    run = run_of(D, tmp_path)
    run.export(tmp_path / "d.phy")
    labels = [line.split()[0] for line in (tmp_path / "d.phy").read_text().splitlines()[1:]]
    assert len(set(labels)) == n
    expected = read_newick(tree_of(tmp_path / "d.phy", *(["-upgma"] if method == "upgma" else [])))
    found = run.tree(method)
    back = dict(zip(run.keys, labels, strict=True))
    renamed = type(found)(
        found.parents, found.lengths, tuple(back.get(name, name) for name in found.names), found.rooted
    )
    again = type(expected)(
        expected.parents, expected.lengths, tuple(name.replace(" ", "_") for name in expected.names), expected.rooted
    )
    assert renamed.robinson_foulds(again) == 0
    np.testing.assert_allclose(np.nansum(renamed.lengths), np.nansum(again.lengths), rtol=1e-3, atol=1e-3)
