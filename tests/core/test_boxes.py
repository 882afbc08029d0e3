"""Boxes in arrays against what is said of one box at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.core.blocks.boxes import block_parts, box_of, boxes_of, codes_of, first_overlap, sizes_of, surely_disjoint
from tartan.core.blocks.space import BlockGrid, Box, common, size_of


def random_boxes(rng: np.random.Generator, shape: tuple[int, ...], count: int) -> list[Box]:
    bounds = [np.sort(rng.integers(0, length + 1, (count, 2)), axis=1) for length in shape]
    found = [tuple((int(a), int(b)) for a, b in (bound[k] for bound in bounds)) for k in range(count)]
    return [box for box in found if size_of(box)]


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_many_boxes_are_those_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, rng.integers(1, 5)).tolist())
    grid = BlockGrid(shape, tuple(rng.integers(1, 6, len(shape)).tolist()))
    boxes = random_boxes(rng, shape, 15)
    if not boxes:
        return
    parts = block_parts(grid, boxes_of(boxes))
    expected = [(k, number, size_of(part)) for k, box in enumerate(boxes) for number, part in grid.parts(box)]
    assert list(zip(*(found.tolist() for found in parts), strict=True)) == expected
    assert sizes_of(boxes_of(boxes)).tolist() == [size_of(box) for box in boxes]
    assert [box_of(row) for row in boxes_of(boxes)] == boxes


@pytest.mark.parametrize("scale", [1, 2**20, 2**40])
def test_codes_are_equal_for_equal_rows_alone_and_ordered_as_rows(scale: int) -> None:
    rows = np.random.default_rng(0).integers(0, 3, (60, 4)) * scale
    codes = codes_of(rows)
    order = np.lexsort(rows.T[::-1])
    assert (np.diff(codes[order]) >= 0).all()
    assert ((codes[:, None] == codes) == (rows[:, None] == rows).all(axis=2)).all()


@pytest.mark.parametrize("seed", range(30))
def test_an_overlap_is_found_wherever_there_is_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = random_boxes(rng, (40, 40), int(rng.integers(2, 6)))
    pairs = [(a, b) for b in range(len(boxes)) for a in range(b) if common(boxes[a], boxes[b])]
    found = first_overlap(boxes_of(boxes)) if boxes else None
    assert (found in pairs) if pairs else found is None
    assert not (pairs and surely_disjoint(boxes_of(boxes)))


def test_blocks_of_a_grid_are_disjoint_by_their_lattice() -> None:
    grid = BlockGrid((10, 7), (3, 2))
    boxes = boxes_of([grid.box(k) for k in range(grid.n_blocks)])
    assert surely_disjoint(boxes)
    assert first_overlap(np.concatenate([boxes, boxes[4:5]])) == (4, grid.n_blocks)
