"""The page of block tasks: a picture of which rank computed which block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tartan.base.palette import GROUP_COLOURS
from tartan.view.blocks_report import picture_of_owners, write_blocks_report


def test_every_block_is_a_square_in_the_colour_of_its_rank() -> None:
    owners = np.array([[0, 1, 2], [2, -1, 0]])
    shades = {-1: (9, 9, 9), 0: (1, 0, 0), 1: (0, 1, 0), 2: (0, 0, 1)}
    drawn = np.asarray(picture_of_owners(owners, shades))
    side = drawn.shape[0] // 2
    assert drawn.shape == (2 * side, 3 * side, 3)
    middles = drawn[side // 2 :: side, side // 2 :: side]
    assert middles.tolist() == [[list(shades[rank]) for rank in row] for row in owners.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owners", "shape"),
    [(np.zeros(5, int), "1 x 5"), (np.zeros((4, 3, 1), int), "4 x 3"), (np.arange(1500).reshape(30, 50), "30 x 50")],
)
def test_the_page_names_ranks_and_figures(tmp_path: Path, owners: np.ndarray, shape: str) -> None:
    page = write_blocks_report(tmp_path / "page.html", "lu <a>", {"moved": "3 MB"}, owners).read_text()
    assert f"{shape} blocks of the result" in page
    assert "lu &lt;a&gt;" in page
    assert "3 MB" in page
    assert page.count("<li><span style") == len(np.unique(owners))
    if not owners.any():
        assert f"rank 0: {owners.size} blocks" in page
        assert "#{:02x}{:02x}{:02x}".format(*GROUP_COLOURS[0]) in page
