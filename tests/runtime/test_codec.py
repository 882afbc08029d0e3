"""Items as bytes and back."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.runtime.codec import decode, encode, encode_parts, nbytes_of

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def round_trip(items: Any) -> tuple[Any, np.ndarray]:
    parts, n_bytes = encode_parts(items)
    memory = np.full(n_bytes + 64, 0xAB, np.uint8)
    encode(parts, memory)
    assert np.all(memory[n_bytes:] == 0xAB)
    return decode(memory), memory


@given(PLAIN)
def test_any_object_comes_back(items: Any) -> None:
    assert round_trip(items)[0] == items


@given(st.lists(st.integers(0, 50), max_size=5))
def test_arrays_of_any_length_come_back(lengths: list[int]) -> None:
    arrays = [np.arange(length, dtype=np.int64) for length in lengths]
    for given_array, found in zip(arrays, round_trip(arrays)[0], strict=True):
        np.testing.assert_array_equal(found, given_array)


def test_arrays_are_read_only_views_of_the_memory() -> None:
    (found,), memory = round_trip([np.ones(100)])
    assert np.shares_memory(found, memory)
    assert not found.flags.writeable
    assert found.ctypes.data % 8 == 0


def test_strided_and_empty_arrays_come_back() -> None:
    items = [np.arange(12.0).reshape(3, 4)[:, ::2], np.empty((0, 3)), np.array(7.0)]
    for given_array, found in zip(items, round_trip(items)[0], strict=True):
        np.testing.assert_array_equal(found, given_array)


def test_objects_of_classes_that_no_module_holds_come_back() -> None:
    class Text(NamedTuple):
        words: list[str]
        weights: np.ndarray

    found = round_trip([Text(["a", "b"], np.arange(3.0))])[0][0]
    assert found.words == ["a", "b"]
    np.testing.assert_array_equal(found.weights, [0, 1, 2])


@pytest.mark.parametrize(
    ("item", "least"),
    [(np.zeros(1000), 8000), ((np.zeros(10), [np.zeros(5)]), 120), ({"a": b"x" * 500}, 500), ("y" * 300, 300)],
)
def test_sizes_are_about_what_items_take(item: Any, least: int) -> None:
    assert least <= nbytes_of(item) <= 2 * least + 64


def test_what_cannot_be_pickled_has_a_size_too() -> None:
    assert nbytes_of(threading.Lock()) > 0
