"""Pictures of trees: work that grows with the leaves only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.analytics import read_newick
from tartan.errors import ConfigError

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow  # the first use of matplotlib takes a second


def test_the_picture_is_in_memory_a_few_times_however_many_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.backends import backend_agg

    from tartan.view.tree_image import save_tree_image

    made: list[tuple[Any, ...]] = []
    plain = backend_agg.RendererAgg.__init__

    def counted(self: Any, *sizes: Any) -> None:
        made.append(sizes)
        plain(self, *sizes)

    monkeypatch.setattr(backend_agg.RendererAgg, "__init__", counted)
    leaves = ",".join(f"leaf{i}:1" for i in range(40))
    assert save_tree_image(read_newick(f"({leaves});"), tmp_path / "tree.png").stat().st_size > 1000
    assert len(made) < 5


def fills(path: Path) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", path.read_text()))


CLUSTERS = {"a": "one", "b": "one", "c": "two", "d": "two"}


@pytest.mark.parametrize("layout", ["rectangular", "radial"])
def test_clusters_have_colours_and_branches_support(tmp_path: Path, layout: str) -> None:
    from tartan.analytics.trees import with_support
    from tartan.view.tree_image import save_tree_image

    tree = read_newick("((a:1,b:1):1,c:2,d:3);")
    plain = fills(save_tree_image(tree, tmp_path / "plain.svg", layout=layout))
    coloured = save_tree_image(
        with_support(tree, [tree]), tmp_path / "tree.svg", layout=layout, clusters=CLUSTERS, title="four"
    )
    assert {"#0072b2", "#e69f00"} <= fills(coloured) - plain
    texts = re.findall(r">([^<>]+)</text>", coloured.read_text())
    assert {"a", "b", "c", "d", "100", "four"} <= set(texts)


def test_names_of_a_radial_tree_lie_inside(tmp_path: Path) -> None:
    from PIL import Image

    from tartan.view.tree_image import save_tree_image

    names = [f"a rather long name of the leaf {k}" for k in range(12)]
    tree = read_newick("(" + ",".join(f"'{name}':{1 + k % 3}" for k, name in enumerate(names)) + ");")
    pixels = np.asarray(Image.open(save_tree_image(tree, tmp_path / "t.png", layout="radial")).convert("L"))
    for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
        assert edge.min() == 255, "nothing is cut off at the edge"


def test_angles_are_shared_by_leaves() -> None:
    from tartan.view.tree_image import radial_places

    tree = read_newick("((a:1,b:1):1,c:2,d:2);")
    x, y, angles = radial_places(tree)
    leaves = list(tree.leaves)
    np.testing.assert_allclose(np.diff(angles[leaves]), np.pi / 2)
    np.testing.assert_allclose(np.hypot(x[leaves[2]], y[leaves[2]]), 2)


def test_wrong_pictures_are_refused(tmp_path: Path) -> None:
    from tartan.view.tree_image import save_tree_image

    tree = read_newick("((a:1,b:1):1,c:2,d:3);")
    with pytest.raises(ConfigError, match="layout: 'round' is unknown"):
        save_tree_image(tree, tmp_path / "t.png", layout="round")
    with pytest.raises(ConfigError, match="the leaf 'c' has none"):
        save_tree_image(tree, tmp_path / "t.png", clusters={"a": "1", "b": "1"})
    assert list(tmp_path.iterdir()) == []
