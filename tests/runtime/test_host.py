"""Where loaded items lie, as workers see it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tartan.errors import ResourceError
from tartan.runtime.host import HOST_ARENA, REMEMBERED_SPANS, Place, RaggedBlobs, RaggedObjects, UniformItems
from tartan.runtime.items import ItemForm
from tartan.workers.arena import Arena

FORM = ItemForm(np.dtype(np.float32), (3,))


def arenas(n_bytes: int = 1 << 16) -> dict[str, Arena]:
    return {HOST_ARENA: Arena(n_bytes, shared=False)}


def rows(first: int, count: int) -> list[np.ndarray]:
    return [np.full(3, first + row, np.float32) for row in range(count)]


def test_consecutive_places_are_one_array_without_a_copy() -> None:
    memory, items = arenas(), UniformItems(FORM)
    assert items.store(memory, Place(0, 4, 2, 1, 0), rows(0, 2)) == 24
    items.store(memory, Place(1, 6, 3, 2, 0), rows(2, 3))
    operand = items.operand(memory, [Place(0, 4, 2, 1, 0), Place(1, 6, 3, 2, 0)])
    assert operand[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert np.shares_memory(operand, items.block(memory, 4, 5))


def test_scattered_places_are_gathered_in_order() -> None:
    memory, items = arenas(), UniformItems(FORM)
    places = [Place(0, 9, 1, 1, 0), Place(1, 0, 2, 2, 0), Place(2, 2, 1, 3, 0)]
    for place in places:
        items.store(memory, place, rows(10 * place.span, place.length))
    assert items.operand(memory, places)[:, 0].tolist() == [0, 10, 11, 20]


def test_operands_cannot_be_written_to() -> None:
    memory, items = arenas(), UniformItems(FORM)
    with pytest.raises(ValueError, match="read-only"):
        items.operand(memory, [Place(0, 0, 1, 1, 0)])[0, 0] = 1


def test_objects_are_held_as_they_are() -> None:
    memory, items = arenas(), RaggedObjects()
    first, second = [np.zeros(4)], ["abc"]
    assert items.store(memory, Place(0, 0, 1, 1, 0), first) == 32
    items.store(memory, Place(1, 1, 1, 2, 0), second)
    assert items.operand(memory, [Place(1, 1, 1, 2, 0), Place(0, 0, 1, 1, 0)])[1].base is first[0]


def test_blobs_come_back_in_another_process() -> None:
    memory, items = arenas(), RaggedBlobs(4096)
    items.store(memory, Place(5, 2, 2, 1, 0), [np.arange(4), ("x", np.arange(2))])
    there = pickle.loads(pickle.dumps(items))
    first, (name, second) = there.operand(memory, [Place(5, 2, 2, 1, 0)])
    assert (first.tolist(), name, second.tolist()) == ([0, 1, 2, 3], "x", [0, 1])


def test_a_window_that_is_filled_anew_is_decoded_anew() -> None:
    memory, items = arenas(), RaggedBlobs(4096)
    items.store(memory, Place(5, 2, 1, 1, 0), [np.arange(4)])
    assert items.operand(memory, [Place(5, 2, 1, 1, 0)])[0].tolist() == [0, 1, 2, 3]
    items.store(memory, Place(8, 2, 1, 2, 0), ["new"])
    items.store(memory, Place(5, 3, 1, 3, 0), [np.arange(2)])
    assert items.operand(memory, [Place(8, 2, 1, 2, 0), Place(5, 3, 1, 3, 0)])[0] == "new"
    assert items.operand(memory, [Place(5, 3, 1, 3, 0)])[0].tolist() == [0, 1]


def test_decoded_spans_are_remembered_up_to_a_number_and_to_a_size() -> None:
    memory, items = arenas(1 << 20), RaggedBlobs(4096, remembered_bytes=20_000)
    places = [Place(span, span, 1, span, 0) for span in range(REMEMBERED_SPANS + 5)]

    def n_remembered(places: list[Place]) -> int:
        """Decode all, then ask for the last ones first, so that what is forgotten meanwhile has been counted."""
        decoded = [items.operand(memory, [place])[0] for place in places]
        return sum(items.operand(memory, [place])[0] is item for place, item in zip(places[::-1], decoded[::-1]))

    for place in places:
        items.store(memory, place, [np.arange(place.span)])
    assert n_remembered(places) == REMEMBERED_SPANS
    for place in places[:10]:
        items.store(memory, place, ["x" * 3500])
    assert 1 <= n_remembered([place._replace(serial=1000 + place.span) for place in places[:10]]) <= 5


def test_items_far_larger_than_expected_are_refused() -> None:
    with pytest.raises(ResourceError, match="far more"):
        RaggedBlobs(4096).store(arenas(), Place(0, 0, 1, 1, 0), [np.zeros(1000)])
