"""The pieces of a space: what is where after any writes, against an array."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tartan.core.blocks.pieces import PieceKey, PieceMap
from tartan.core.blocks.space import BlockGrid, Box, common, whole

SHAPE = (5, 7)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    starts = [draw(st.integers(0, length - 1)) for length in SHAPE]
    return tuple((start, draw(st.integers(start + 1, length))) for start, length in zip(starts, SHAPE, strict=True))


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*interval) for interval in box)


@given(st.lists(st.lists(boxes(), max_size=3), max_size=5), boxes())
def test_parts_say_who_wrote_each_element_last(tasks: list[list[Box]], asked: Box) -> None:
    pieces = PieceMap(3, BlockGrid(SHAPE, (2, 3)))
    writers = np.full(SHAPE, -1)
    keys: list[PieceKey] = []
    for task, wanted in enumerate(tasks, 1):
        written: list[tuple[PieceKey, Box]] = []
        for box in wanted:
            if not any(common(box, other) for _, other in written):
                written.append((PieceKey(task, len(written), 0), box))
        gone = pieces.replace(written)
        for key, box in written:
            writers[slices(box)] = len(keys)
            keys.append(key)
        assert all(key.from_source or keys.index(key) not in writers for key in gone)
        assert pieces.keys() == {keys[k] for k in np.unique(writers) if k >= 0}
        assert pieces.version == task
    found = np.full(SHAPE, -9)
    for box, key in pieces.parts(asked):
        assert (found[slices(box)] == -9).all()
        found[slices(box)] = -1 if key.from_source else keys.index(key)
    expected = np.full(SHAPE, -9)
    expected[slices(asked)] = writers[slices(asked)]
    np.testing.assert_array_equal(found, expected)


def test_a_source_block_is_gone_when_all_of_it_is_overwritten() -> None:
    pieces = PieceMap(0, BlockGrid((4,), (2,)))
    assert pieces.parts(whole((4,)))[1].key == PieceKey(0, 0, 1)
    assert pieces.replace([(PieceKey(1, 0, 0), ((0, 1),))]) == set()
    assert pieces.replace([(PieceKey(2, 0, 0), ((1, 3),))]) == {PieceKey(0, 0, 0)}
    assert pieces.replace([(PieceKey(3, 0, 0), ((0, 4),))]) == {
        PieceKey(0, 0, 1),
        PieceKey(1, 0, 0),
        PieceKey(2, 0, 0),
    }
