"""A rank that is asked for a space before it knows of it answers as soon as it does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tartan.blocks.node import BlockNode
from tartan.blocks.sources import OpenSources, source_of
from tartan.blocks.store import BlockStore
from tartan.blocks.work import AddSpace
from tartan.core.blocks.pieces import PieceKey
from tartan.errors import TransportError


def unused(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("nothing is computed, and no rank asked")


def test_a_rank_asked_for_a_space_that_is_added_later_gives_it(tmp_path: Any) -> None:
    values = np.arange(6.0)
    node = BlockNode(0, BlockStore(1 << 20, tmp_path), unused, unused, unused)
    try:
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(node.provide, PieceKey(0, 3, 0), ((1, 4),))
            node.post(AddSpace(3, source_of(values, None, None)))
            array, release = asked.result()
            assert array.tolist() == [1, 2, 3]
            release()
    finally:
        node.close()


def test_a_space_that_does_not_come_is_not_there() -> None:
    with pytest.raises(TransportError, match="space 7"):
        OpenSources().wait_for(7, timeout_seconds=0.0)
