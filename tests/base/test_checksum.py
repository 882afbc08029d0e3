"""Checksums of items: what they tell apart, what they do not, and that they never change."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tartan.base.checksum import (
    NOT_TELLING,
    checksum_of_bytes,
    checksum_of_object,
    checksums_of_entries,
    checksums_of_rows,
)

FORMS = [
    ((5, 3), "f4"), ((5, 4), "f8"), ((4, 1), "u1"), ((4, 7), "u1"), ((4, 5), "?"), ((3, 2, 3), "f2"), ((6,), "i8"),
    ((3, 5000), "f4"), ((3, 0), "f4"), ((0, 3), "f4"), ((4, 3), "c16"), ((3, 9001), "u1"),
]  # fmt: skip


def by_hand(row: bytes) -> int:
    """Add up what the docstring says, word by word."""
    import hashlib

    text = b"".join(hashlib.sha256(b"tartan rows %d" % at).digest() for at in range(1024))
    padded = row + bytes(-len(row) % 4)
    words = np.frombuffer(padded, "<u4").tolist()
    factors = np.frombuffer(text, "<u8").tolist()
    total = len(padded)
    for start in range(0, len(words), 4096):
        band = sum(word * factor for word, factor in zip(words[start : start + 4096], factors, strict=False))
        total = (total * 0x9E3779B97F4A7C15 + band) % 2**64
    return max(total, 2)


@pytest.mark.parametrize(("shape", "dtype"), FORMS)
def test_rows_have_the_sums_of_the_slow_way(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 255, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype).reshape(shape)
    if dtype == "?":
        rows = rng.random(shape) < 0.5
    assert checksums_of_rows(rows).tolist() == [by_hand(row.tobytes()) for row in rows]


@pytest.mark.parametrize("dtype", ["?", "u1", "f2", "i4", "f4", "u8", "f8"])
@pytest.mark.parametrize("width", [1, 7, 1023, 4096, 9001])
def test_entries_have_the_sums_of_rows_with_their_zeros(dtype: str, width: int) -> None:
    rng = np.random.default_rng(width)
    rows = np.zeros((5, width), dtype)
    length = min(width, 40)
    positions = np.array([np.sort(rng.choice(width, length, replace=False)) for _ in rows], np.uint32)
    values = rng.integers(1, 100, positions.shape).astype(dtype)
    there = np.arange(length) < np.array([0, 1, length // 2, length, length])[:, None]
    for row in range(5):
        rows[row, positions[row][there[row]]] = values[row][there[row]]
    positions[~there] = 0xFFFFFFFF
    assert checksums_of_entries(positions, values, there, width).tolist() == checksums_of_rows(rows).tolist()


def test_sums_do_not_depend_on_blocks_or_layout() -> None:
    rows = np.random.default_rng(2).random((40, 6))
    whole = checksums_of_rows(rows)
    assert checksums_of_rows(np.asfortranarray(rows)).tolist() == whole.tolist()
    assert checksums_of_rows(np.repeat(rows, 2, axis=1)[:, ::2]).tolist() == whole.tolist()
    assert [int(checksums_of_rows(rows[i : i + 1])[0]) for i in range(40)] == whole.tolist()


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i8"])
def test_every_single_change_of_a_row_is_seen(dtype: str) -> None:
    """Flips of one bit, of two signs, and rows that are only ordered otherwise."""
    row = np.random.default_rng(3).integers(1, 100, 33).astype(dtype)
    bits = np.unpackbits(row.view(np.uint8))
    flipped = np.packbits(bits ^ np.eye(len(bits), dtype=np.uint8), axis=1)
    pairs = np.eye(33, dtype=np.uint8)
    sums = checksums_of_rows(np.concatenate([flipped, row.view(np.uint8)[None]]))
    assert len(np.unique(sums)) == len(bits) + 1
    if dtype.startswith("f"):
        signs = np.where(pairs | np.roll(pairs, 7, axis=1), -row, row)
        assert len(np.unique(checksums_of_rows(signs))) == 33
    orders = np.array([np.roll(row, by) for by in range(33)])
    assert len(np.unique(checksums_of_rows(orders))) == len(np.unique(orders, axis=0))


def test_rows_of_zeros_differ_by_their_length() -> None:
    assert checksums_of_rows(np.zeros((1, 4), "u1")) != checksums_of_rows(np.zeros((1, 8), "u1"))


def test_bytes_are_told_by_length_and_content() -> None:
    assert checksum_of_bytes(b"") != checksum_of_bytes(b"\0")
    assert checksum_of_bytes(b"ab") != checksum_of_bytes(b"ba")
    assert checksum_of_bytes(b"123456789") == 9 << 32 | 0xE3069283


class Thing:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"), ("1", 1), (1, 1.0), (1.0, 2.0), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}),
        (np.zeros(3), np.zeros(4)), (np.zeros(3), np.zeros(3, "f4")), (Thing(1), Thing(2)),
        (np.float32(1), np.float32(2)), ([np.arange(3)], [np.arange(1, 4)]), ((1, [2]), (1, (2,))), (None, False),
    ],
)  # fmt: skip
def test_unlike_objects_have_other_sums(one: Any, other: Any) -> None:
    assert checksum_of_object(one) != checksum_of_object(other)
    assert checksum_of_object(one) == checksum_of_object(pickle.loads(pickle.dumps(one)))


def test_one_text_twice_is_as_two_equal_texts() -> None:
    text = "".join(["some", " text"])
    assert checksum_of_object([text, text]) == checksum_of_object(["some text", "".join(["some ", "text"])])


def test_objects_that_hold_themselves_or_cannot_be_pickled() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert checksum_of_object(loop) == checksum_of_object(loop) != NOT_TELLING
    assert checksum_of_object(lambda: 1) == NOT_TELLING


@pytest.mark.slow
def test_sets_and_objects_have_one_sum_in_every_process() -> None:
    code = (
        "from tartan.base.checksum import checksum_of_object as c; import numpy as np;"
        "print(c([{'a', 'b', 'c', ('d', 1)}, {'x': frozenset({'y', 'z'})}, np.arange(4), 'text', 1.5]))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
