"""Spaces: blocks, boxes, contiguous pieces and overlaps, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.blocks.boxes import first_overlap
from tartan.core.blocks.space import (
    BlockGrid,
    Box,
    common,
    describe,
    resolve,
    shape_of,
    whole,
    within,
    without,
)
from tartan.errors import ConfigError

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*interval) for interval in box)


@st.composite
def spaces(draw: st.DrawFn) -> BlockGrid:
    shape = draw(lengths)
    return BlockGrid(shape, tuple(draw(st.integers(1, 6)) for _ in shape))


@st.composite
def boxes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    starts = [draw(st.integers(0, length - 1)) for length in shape]
    return tuple((start, draw(st.integers(start + 1, length))) for start, length in zip(starts, shape, strict=True))


@given(spaces(), st.data())
def test_parts_cover_a_box_once(grid: BlockGrid, data: st.DataObject) -> None:
    box = data.draw(boxes_of(grid.shape))
    covered, numbers = np.zeros(grid.shape, int), np.zeros(grid.shape, int)
    for number in range(grid.n_blocks):
        assert grid.number(grid.index(number)) == number
        numbers[slices(grid.box(number))] += number
    for number, part in grid.parts(box):
        covered[slices(part)] += 1
        assert (numbers[slices(part)] == number).all()
        assert all(a <= c and d <= b for (a, b), (c, d) in zip(grid.box(number), part, strict=True))
    expected = np.zeros(grid.shape, int)
    expected[slices(box)] = 1
    np.testing.assert_array_equal(covered, expected)


@given(lengths, st.data())
def test_a_box_without_another(shape: tuple[int, ...], data: st.DataObject) -> None:
    box, hole = data.draw(boxes_of(shape)), data.draw(boxes_of(shape))
    left = np.zeros(shape, int)
    for part in without(box, hole):
        left[slices(part)] += 1
    expected = np.zeros(shape, int)
    expected[slices(box)] = 1
    expected[slices(hole)] = 0
    np.testing.assert_array_equal(left, expected)


@given(lengths, st.data())
def test_an_index_expression_means_what_numpy_means(shape: tuple[int, ...], data: st.DataObject) -> None:
    box = data.draw(boxes_of(shape))
    key = tuple(
        slice(start, None if stop == length else stop) for (start, stop), length in zip(box, shape, strict=True)
    )
    array = np.arange(np.prod(shape)).reshape(shape)
    assert resolve(key, shape) == box
    np.testing.assert_array_equal(array[key], array[slices(resolve(key, shape))])
    assert shape_of(box) == array[key].shape
    np.testing.assert_array_equal(array[slices(whole(shape))][within(box, whole(shape))], array[key])


def test_integers_negative_bounds_and_what_is_left_out() -> None:
    assert resolve(-1, (4, 3)) == ((3, 4), (0, 3))
    assert resolve((..., slice(-2, None)), (4, 3)) == ((0, 4), (1, 3))
    assert resolve((), (4, 3)) == ((0, 4), (0, 3))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (slice(0, 5), "not within 0:4"),
        (slice(2, 2), "empty"),
        (slice(3, 1), "not within"),
        (slice(0, 4, 2), "step of 2"),
        ((0, 0, 0), "3 intervals for a space of 2"),
        (4, "not within"),
        (-5, "not within"),
        ("a", "names no interval"),
        (True, "names no interval"),
        (slice(0.5, 2), "not a bound"),
    ],
)
def test_what_names_no_box_is_refused(key: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(key, (4, 3))


@pytest.mark.parametrize(
    ("shape", "block"), [((), ()), ((1,) * 5, (1,) * 5), ((3, 3), (2,)), ((0, 3), (1, 1)), ((3,), (0,))]
)
def test_grids_that_cannot_be(shape: tuple[int, ...], block: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError):
        BlockGrid(shape, block)


@given(st.integers(1, 3), st.data())
def test_overlaps_are_found(n_dimensions: int, data: st.DataObject) -> None:
    shape = (6,) * n_dimensions
    boxes = data.draw(st.lists(boxes_of(shape), max_size=6))
    truth = {(i, j) for j in range(len(boxes)) for i in range(j) if common(boxes[i], boxes[j])}
    found = first_overlap(np.array(boxes).reshape(len(boxes), n_dimensions, 2))
    assert (found in truth) if truth else found is None


def test_many_disjoint_blocks_are_checked_at_once() -> None:
    grid = BlockGrid((150, 150), (2, 2))
    boxes = np.array([grid.box(number) for number in range(grid.n_blocks)])
    assert first_overlap(boxes) is None
    boxes[3333, 0, 0] -= 1
    one, other = first_overlap(boxes) or (0, 0)
    assert common(tuple(map(tuple, boxes[one])), tuple(map(tuple, boxes[other])))


def test_boxes_are_shown_as_slices() -> None:
    assert describe(((0, 3), (2, 4))) == "[0:3, 2:4]"


@pytest.mark.slow
def test_blocks_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="no block"):
        BlockGrid((4, 4), (2, 2)).number((2, 0))
    assert BlockGrid((4,), (9,)).block == (4,)
