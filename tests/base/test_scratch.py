"""Memory that threads use again."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tartan.base.temporary import Scratch


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "c16"])
@pytest.mark.parametrize("shape", [(3, 128), (5, 7), (1, 1024), (4, 0), (0, 4)])
def test_blocks_have_the_shape_that_is_asked_for(dtype: str, shape: tuple[int, int]) -> None:
    block = Scratch().block("scores", shape, np.dtype(dtype))
    assert (block.shape, block.dtype) == (shape, np.dtype(dtype))
    block[...] = 1
    assert block.size == 0 or block.strides[1] == block.itemsize
    assert shape[0] < 2 or block.strides[0] % 512, "rows fall into different sets of the cache"


def test_the_same_memory_comes_again_to_the_same_thread_only() -> None:
    scratch = Scratch()
    first = scratch.block("scores", (4, 4), np.dtype("f4"))
    assert np.shares_memory(first, scratch.block("scores", (2, 3), np.dtype("f8")))
    assert not np.shares_memory(first, scratch.block("other", (4, 4), np.dtype("f4")))
    elsewhere: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: elsewhere.append(scratch.block("scores", (4, 4), np.dtype("f4"))))
    thread.start()
    thread.join()
    assert not np.shares_memory(first, elsewhere[0])
