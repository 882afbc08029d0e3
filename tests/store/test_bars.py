"""What may be kept of a tile of triples, by the bars of its items."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.store.bars import BarRule


@pytest.mark.parametrize(("bar", "kept"), [(0.5, 1), (0.49, 0), (0.51, 1)])
def test_what_reaches_a_bar_may_be_kept(bar: float, kept: int) -> None:
    """A score that equals the bar may come first in the order of (i, j, k), and is better then."""
    rule = BarRule("scores", {"scores": np.dtype(np.float64)}, 1, 0.0, False)
    rows = rule.choose((0, 1, 2), {"scores": np.full((1, 1, 1), 0.5)}, None, bars=tuple(np.full((3, 1), bar)))
    assert len(rows["i"]) == kept
