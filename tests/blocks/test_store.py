"""The arrays of a rank: room, eviction, disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tartan.blocks.store import BlockStore, FreeRoom
from tartan.errors import InternalError

PAGE = 4096


def test_room_that_is_given_back_joins_its_neighbours() -> None:
    room = FreeRoom(3 * PAGE)
    places = [room.take(PAGE - 5) for _ in range(3)]
    assert places == [0, PAGE, 2 * PAGE]
    assert room.take(1) is None
    for place in (0, 2 * PAGE, PAGE):
        room.give(place, PAGE - 5)
    assert room.take(3 * PAGE) == 0


def filled(store: BlockStore, key: str, value: int, *, forgettable: bool) -> None:
    assert store.add(key, (PAGE,), np.dtype(np.uint8), forgettable=forgettable)
    store.array(key)[...] = value
    store.unpin(key)


def test_room_is_taken_from_either_end() -> None:
    room = FreeRoom(4 * 4096)
    assert [room.take(4096), room.take(4096, last=True), room.take(4096)] == [0, 3 * 4096, 4096]
    room.give(0, 4096)
    assert room.take(4096, last=True) == 2 * 4096
    assert room.take(8192, last=True) is None


def test_what_is_needed_last_goes_first_and_pieces_come_back(tmp_path: Path) -> None:
    store = BlockStore(2 * PAGE, tmp_path)
    uses = {"piece": 5.0, "range": 3.0}
    store.next_use = lambda key: uses.get(str(key), 0.0)
    filled(store, "piece", 1, forgettable=False)
    filled(store, "range", 2, forgettable=True)
    filled(store, "new", 3, forgettable=False)
    assert store.bytes_spilled == PAGE
    assert "range" in store
    part = np.zeros(3, np.uint8)
    store.copy("piece", (slice(0, 3),), part)
    assert part.tolist() == [1, 1, 1]
    assert store.pin("piece")
    assert "range" not in store
    assert (store.array("piece") == 1).all()
    assert store.pin("new")
    assert not store.add("more", (1,), np.dtype(float), forgettable=True)
    store.drop(["piece"])
    assert store.is_dropped("piece")
    store.unpin("piece")
    assert "piece" not in store
    assert [*tmp_path.iterdir()] == []
    store.close()


def test_misuse_is_told(tmp_path: Path) -> None:
    store = BlockStore(2 * PAGE, tmp_path)
    filled(store, "a", 1, forgettable=False)
    with pytest.raises(InternalError, match="already"):
        store.add("a", (1,), np.dtype(float), forgettable=True)
    with pytest.raises(KeyError):
        store.pin("b")
    store.close()


def test_another_rank_may_read_when_the_store_is_closed(tmp_path: Path) -> None:
    store = BlockStore(PAGE, tmp_path)
    filled(store, "piece", 1, forgettable=False)
    assert store.pin("piece")
    store.close()
    store.unpin("piece")
    assert "piece" not in store
