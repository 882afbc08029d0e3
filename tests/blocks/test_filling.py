"""Ranges that several ranks hold in parts: who is asked when, and what becomes of failures."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tartan.blocks.gathering import FetchParts, RangeGatherer
from tartan.blocks.node import RangeFiller
from tartan.blocks.node_events import GatheredRange
from tartan.blocks.sources import source_of
from tartan.blocks.store import BlockStore
from tartan.blocks.work import PartOrigin, RangeKey
from tartan.core.blocks.pieces import PieceKey
from tartan.errors import TransportError

N = 8
PATIENCE = 20.0


def origins(*ranks: int) -> tuple[PartOrigin, ...]:
    """A range of which each of some ranks holds an equal part."""
    part = N // len(ranks)
    boxes = [((k * part, (k + 1) * part),) for k in range(len(ranks))]
    return tuple(PartOrigin(box, PieceKey(1, k, 0), box, rank) for k, (box, rank) in enumerate(zip(boxes, ranks)))


@contextmanager
def filling(folder: Path, fetch: FetchParts) -> Iterator[tuple[RangeFiller, BlockStore, queue.SimpleQueue]]:
    store, ended = BlockStore(1 << 20, folder), queue.SimpleQueue()
    gatherer = RangeGatherer(0, store, fetch, lambda **counts: None)
    gatherer.sources.add(3, source_of(None, (N,), "f8").open())
    filler = RangeFiller(gatherer, lambda key, error: ended.put((key, error)))
    try:
        yield filler, store, ended
    finally:
        filler.close()
        store.close()


def begin(filler: RangeFiller, store: BlockStore, parts: tuple[PartOrigin, ...], first: int = 0) -> GatheredRange:
    key = GatheredRange.of(RangeKey(3, ((0, N),), ((first, 0),), "nearest"), parts)
    assert store.add(key, key.range.shape, np.dtype("f8"), forgettable=True)
    filler.fill(key, parts)
    return key


def test_ranks_are_asked_at_the_same_time(tmp_path):
    """Each answer waits until all three ranks were asked."""
    meeting = threading.Barrier(3)

    def fetch(rank: int, wanted: list[PartOrigin], targets: list[np.ndarray]) -> int:
        meeting.wait(PATIENCE)
        for target in targets:
            target[...] = rank
        return 1

    with filling(tmp_path, fetch) as (filler, store, ended):
        key = begin(filler, store, origins(1, 2, 3, 2), first=2)
        assert ended.get(timeout=PATIENCE) == (key, None)
        assert store.array(key).tolist() == [1, 1, 1, 1, 2, 2, 3, 3, 2, 2]


def test_a_rank_that_does_not_answer_keeps_no_other_waiting(tmp_path):
    answering = threading.Event()

    def fetch(rank: int, wanted: list[PartOrigin], targets: list[np.ndarray]) -> int:
        assert rank == 2 or answering.wait(PATIENCE)
        return 1

    with filling(tmp_path, fetch) as (filler, store, ended):
        slow = [begin(filler, store, origins(1), first) for first in (1, 2)]
        fast = begin(filler, store, origins(2))
        assert ended.get(timeout=PATIENCE) == (fast, None)
        answering.set()
        assert [ended.get(timeout=PATIENCE)[0] for _ in slow] == slow


def test_the_first_failure_is_told_once_all_parts_have_ended(tmp_path):
    """Nobody writes into the array any more when its range is given up."""
    failed, n_writing = threading.Event(), []

    def fetch(rank: int, wanted: list[PartOrigin], targets: list[np.ndarray]) -> int:
        if rank == 1:
            failed.set()
            raise TransportError("rank 1 is gone")
        assert failed.wait(PATIENCE)
        n_writing.append(rank)
        return 1

    with filling(tmp_path, fetch) as (filler, store, ended):
        key = begin(filler, store, origins(1, 2))
        found, error = ended.get(timeout=PATIENCE)
        assert found == key
        assert n_writing == [2]
        with pytest.raises(TransportError, match="rank 1 is gone"):
            raise error
        assert ended.empty()
