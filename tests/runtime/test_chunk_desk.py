"""The buffers of open chunks."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.errors import InternalError
from tartan.runtime.chunk_desk import ChunkBuffers, OpenWork

DTYPES = {"scores": np.dtype(np.float32), "code": np.dtype(np.uint8), "exact": np.dtype(np.float64)}


def make(n_buffers: int = 2, side: int = 5, mirrored: bool = False) -> ChunkBuffers:
    return ChunkBuffers(side, DTYPES, n_buffers, mirrored=mirrored, shared=False)


def test_codes_of_an_old_chunk_do_not_stay() -> None:
    """Buffers are not emptied: only the codes of parts that left some count."""
    buffers = make(1)
    buffers.open((0, 0)).views(buffers.arena).status[...] = 3
    buffers.close((0, 0))
    codes = buffers.open((0, 1)).views(buffers.arena).status
    coverage = OpenWork(plain=[(slice(0, 2), slice(0, 5))], coded=[(slice(2, 4), slice(0, 3))])
    codes[2:4, 0:3] = 2
    assert coverage.status(codes).tolist() == [[1] * 5] * 2 + [[2, 2, 2, 0, 0]] * 2 + [[0] * 5]


def test_a_chunk_of_plain_parts_has_one_code_in_memory() -> None:
    coverage = OpenWork(plain=[(slice(0, 5), slice(0, 2)), (slice(0, 5), slice(2, 5))])
    status = coverage.status(np.zeros((5, 5), np.uint8))
    assert status.tolist() == [[1] * 5] * 5
    assert status.strides == (0, 0)


def test_a_closed_chunk_of_codes_alone_holds_no_memory() -> None:
    """What is given back to the system comes back as zeros."""
    buffers = ChunkBuffers(64, {}, 1, mirrored=False, shared=False)
    buffers.open((0, 0)).views(buffers.arena).status[...] = 3
    buffers.close((0, 0))
    assert not buffers.open((0, 1)).views(buffers.arena).status.any()


def test_an_open_chunk_keeps_its_buffers() -> None:
    buffers = make()
    first = buffers.open((0, 0))
    first.views(buffers.arena).status[1, 2] = 1
    assert buffers.open((0, 0)) is first
    assert first.views(buffers.arena).status[1, 2] == 1


@pytest.mark.parametrize("mirrored", [False, True])
def test_buffers_do_not_touch_each_other(mirrored: bool) -> None:
    buffers = make(3, mirrored=mirrored)
    blocks = []
    for number in range(3):
        chunk = buffers.open((0, number))
        views = chunk.views(buffers.arena)
        blocks += [*views.scores.values(), *(views.mirrored or {}).values(), views.status]
    for value, block in enumerate(blocks):
        block[...] = value
    assert [set(block.ravel().tolist()) for block in blocks] == [{value} for value in range(len(blocks))]
    assert {block.shape for block in blocks} == {(5, 5)}


def test_more_chunks_than_were_announced_are_a_defect() -> None:
    buffers = make(1)
    buffers.open((0, 0))
    with pytest.raises(InternalError, match="announced"):
        buffers.open((0, 1))


def test_what_was_given_back_last_is_taken_first() -> None:
    buffers = make(3)
    buffers.open((0, 0))
    second = buffers.open((0, 1))
    buffers.close((0, 1))
    assert buffers.open((0, 2)).slot == second.slot
