"""Pictures of trees: work that grows with the leaves only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tartan.analytics import read_newick

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
