"""Items as arrays for the disk level: what comes back, and that nothing of a stranger is unpickled."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.runtime.disk_level import from_arrays, to_arrays

KEY = bytes(range(32))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


class Named(NamedTuple):
    words: list[str]
    values: np.ndarray


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@given(PLAIN)
def test_plain_items_come_back_without_a_key_or_a_pickle(item: Any) -> None:
    arrays = to_arrays(item, "name", KEY)
    assert arrays is not None
    assert repr(from_arrays(arrays, "name", KEY)) == repr(item)
    plain = to_arrays(item, "name", None)
    if plain is not None:
        assert repr(from_arrays(plain, "other", None)) == repr(item)


@pytest.mark.parametrize(
    "item",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        (np.arange(3, dtype=np.uint32), np.array(2.5), [np.empty((0, 2), np.complex64)]),
        {"a": np.float32(0.1), "b": np.array(["x", "yz"]), "c": np.datetime64("2020-01-01")},
        [True, np.True_, 1, 1.0, np.int8(-3), float("nan"), -float("inf"), b"\x00\xff", "\ud800", None],
    ],
)
def test_arrays_and_numbers_keep_their_kinds(item: Any) -> None:
    arrays = to_arrays(item, "name", None)
    assert arrays is not None
    again = from_arrays([array.copy() for array in arrays], "name", None)
    assert repr(again) == repr(item)
    np.testing.assert_equal(again, item)


@pytest.mark.parametrize("item", [Named(["a"], np.ones(2)), {1: 2}, {3}, np.array([None]), np.zeros(1, "i4,f4")])
def test_what_needs_a_pickle_is_kept_with_a_key_only(item: Any) -> None:
    assert to_arrays(item, "name", None) is None
    arrays = to_arrays(item, "name", KEY)
    assert arrays is not None
    again = from_arrays(arrays, "name", KEY)
    assert type(again) is type(item)
    assert repr(again) == repr(item)


@pytest.mark.parametrize("change", ["key", "no key", "name", "bytes", "split", "seal"])
def test_a_pickle_that_is_not_sealed_here_is_not_loaded(tmp_path: Path, change: str) -> None:
    arrays = to_arrays(Bomb(tmp_path / "exploded"), "name", KEY)
    assert arrays is not None
    name, key = "name", KEY
    if change == "key":
        key = bytes(32)
    elif change == "name":
        name = "other"
    elif change == "bytes":
        arrays[1] = arrays[1].copy()
        arrays[1][-2] ^= 1
    elif change == "split":
        arrays = [arrays[0], arrays[1][:5], arrays[1][5:]]
    elif change == "seal":
        arrays[0] = np.frombuffer(json.dumps({"seal": "0" * 64}).encode(), np.uint8)
    with pytest.raises(ValueError, match="a pickle that this user did not write"):
        from_arrays(arrays, name, None if change == "no key" else key)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{}", b"[]", b"3", b"\xff", b'{"plain": {"array": 7}}', b'{"plain": {"array": -1}}',
        b'{"plain": {"array": "0"}}', b'{"plain": {"pickle": 0}}', b'{"plain": [1]}', b'{"plain": {"float": "x"}}',
        b'{"plain": {"tuple": 3}}', b'{"plain": {"dict": [[1]]}}', b'{"plain": {}}',
        b'{"plain": ' + b'{"list": [' * 60 + b"]}" * 60 + b"}",
    ],
)  # fmt: skip
def test_headers_that_describe_no_item_are_refused(tmp_path: Path, header: bytes) -> None:
    body = np.frombuffer(pickle.dumps(Bomb(tmp_path / "exploded")), np.uint8)
    with pytest.raises((ValueError, TypeError, LookupError, RecursionError)):
        from_arrays([np.frombuffer(header, np.uint8), body], "name", KEY)
    assert not (tmp_path / "exploded").exists()
