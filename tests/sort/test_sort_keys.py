"""Records and keys: what is read from texts, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.errors import ConfigError
from tartan.sort import sort_file
from tartan.sort.dtypes import describe_dtype, parse_dtype
from tartan.sort.keys import MAX_PARTS, KeyPart, parse_key

TERASORT = parse_dtype("record:100")
FIELDS = parse_dtype("key:u4,score:f8,tag:S4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int64", "<i8"), ("uint32", "<u4"), ("float32", "<f4"), (">f8", ">f8"), (" i2 ", "<i2"), (np.int8, "|i1"),
        ("f2", "<f2"), ("bool", "|b1"), ("record:100", "V100"), ("S10", "S10"), (np.dtype(">i4"), ">i4"),
        ("S10,V90", [("f0", "S10"), ("f1", "V90")]),
        ("key:u4,score:f8,tag:S4", [("key", "u4"), ("score", "f8"), ("tag", "S4")]),
        ("key:u4, body:record:9", [("key", "u4"), ("body", "V9")]), ([("x", "f4", (3,))], [("x", "f4", (3,))]),
    ],
)  # fmt: skip
def test_dtypes(text: Any, expected: Any) -> None:
    assert parse_dtype(text) == np.dtype(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        "int65", "", "record:0", "record:x", "record:-3", "c16", "M8[s]", "m8[s]", "O", "f16", "S0", ":i4",
        "key:,x:i4", "key:nope", "a:i4,a:i4", "S10,O", None, object, 7,
    ],
)  # fmt: skip
def test_unknown_dtypes_are_refused_with_a_list_of_the_known(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="known are int8 int16") as caught:
        parse_dtype(wrong)
    assert str(wrong) in str(caught.value)


def test_refusal_says_what_is_inside_and_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"contains datetime64.*sort the int64 behind it"):
        parse_dtype([("when", "M8[s]"), ("x", "i4")])


@pytest.mark.parametrize(
    ("values", "raw", "view"),
    [
        (np.array(["2024-02-03", "1999-01-01"], "M8[D]"), "i8", "i8"),
        (np.array([2 + 1j, 1 + 9j]), "real:f8,imaginary:f8", [("real", "f8"), ("imaginary", "f8")]),
    ],
)
def test_what_a_refusal_advises_works(tmp_path: Path, values: np.ndarray, raw: str, view: Any) -> None:
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(ConfigError, match=r"for a raw file, .*view.* of the array for \.npy"):
        sort_file(tmp_path / "a.npy", tmp_path / "b.npy", memory="4GB")
    np.save(tmp_path / "a.npy", values.view(view))
    sort_file(tmp_path / "a.npy", tmp_path / "b.npy", memory="4GB")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy").view(values.dtype), np.sort(values))
    values.tofile(tmp_path / "a.bin")
    sort_file(tmp_path / "a.bin", tmp_path / "b.bin", dtype=raw, memory="4GB")
    np.testing.assert_array_equal(np.fromfile(tmp_path / "b.bin", values.dtype), np.sort(values))


@pytest.mark.parametrize("dtype", ["<i8", ">f4", "|u1", "V100", "S10", [("a", "<i4"), ("b", ">f8", (2, 3))]])
def test_descriptions_can_be_read_again(dtype: Any) -> None:
    text = describe_dtype(np.dtype(dtype))
    assert parse_dtype(text if isinstance(dtype, str) else eval(text)) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("key", "dtype", "parts"),
    [
        (None, parse_dtype("int64"), [(0, "<i8", False)]),
        (None, parse_dtype(">f4"), [(0, ">f4", False)]),
        (None, TERASORT, [(0, "S100", False)]),
        (None, parse_dtype("bool"), [(0, "|u1", False)]),
        (None, FIELDS, [(0, "<u4", False), (4, "<f8", False), (12, "S4", False)]),
        ("0:10", TERASORT, [(0, "S10", False)]),
        ("90:10:desc", TERASORT, [(90, "S10", True)]),
        ("8:<f8:desc,0:>u4", TERASORT, [(8, "<f8", True), (0, ">u4", False)]),
        ("8:i2:asc", TERASORT, [(8, "<i2", False)]),
        ("score:desc,key", FIELDS, [(4, "<f8", True), (0, "<u4", False)]),
        ("score:desc , key:asc", FIELDS, [(4, "<f8", True), (0, "<u4", False)]),
        (["tag", "key:desc"], FIELDS, [(12, "S4", False), (0, "<u4", True)]),
        ("0:4", FIELDS, [(0, "S4", False)]),
        ("f0", parse_dtype("S10,V90"), [(0, "S10", False)]),
    ],
)
def test_keys(key: Any, dtype: Any, parts: list[tuple[int, str, bool]]) -> None:
    assert parse_key(key, dtype) == tuple(KeyPart(*part) for part in parts)


def test_descending_is_for_parts_without_their_own_direction() -> None:
    parts = parse_key("score,key:asc,tag:desc", FIELDS, descending=True)
    assert [part.descending for part in parts] == [True, False, True]
    assert parse_key(None, np.dtype("i8"), descending=True)[0].descending


def test_nested_fields_subarrays_and_text_become_plain_parts() -> None:
    inner = np.dtype([("x", "<f4"), ("y", ">i2")])
    dtype = np.dtype([("id", "u1"), ("position", inner, (2,)), ("name", "<U2"), ("none", "V0")])
    parts = parse_key("position,name", dtype)
    assert [(p.offset, p.kind) for p in parts] == [
        (1, "<f4"), (5, ">i2"), (7, "<f4"), (11, ">i2"), (13, "<u4"), (17, "<u4"),
    ]  # fmt: skip
    assert parse_key("at.y", np.dtype([("id", "u1"), ("at", inner)])) == (KeyPart(5, ">i2"),)


@pytest.mark.parametrize(
    ("key", "dtype", "said"),
    [
        ("95:10", TERASORT, "'95:10' ends at byte 105, outside of the record of 100 bytes"),
        ("97:i8", TERASORT, "ends at byte 105"),
        ("0:10,9:4", TERASORT, "'0:10' and '9:4' overlap at byte 9"),
        ("9:4,0:10", TERASORT, "'0:10' and '9:4' overlap at byte 9"),
        ("key,key", FIELDS, "'key' and 'key' overlap at byte 0"),
        ("key,2:4", FIELDS, "overlap at byte 2"),
        ("nothing", FIELDS, "'nothing' is not a field of .* its fields are key, score, tag"),
        ("key.x", FIELDS, "no field"),
        ("x", TERASORT, "it has no fields; omit the key"),
        ("x", np.dtype("i8"), "within 0:8"),
        ("", FIELDS, "empty"),
        ("key,,tag", FIELDS, "empty part"),
        ([], FIELDS, "empty"),
        ("0:0", TERASORT, "known are|empty"),
        ("0:10:up", TERASORT, "cannot be read; write NAME, OFFSET:LENGTH"),
        ("a:b:c:d", TERASORT, "cannot be read"),
        ("-1:4", TERASORT, "cannot be read"),
        ("0:nope", TERASORT, "known are"),
        (":desc", FIELDS, "cannot be read"),
    ],
)
def test_wrong_keys_are_refused_with_their_place(key: Any, dtype: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_key(key, dtype)


def test_fields_that_overlap_are_refused() -> None:
    dtype = np.dtype({"names": ["a", "b"], "formats": ["<u4", "<u4"], "offsets": [0, 2], "itemsize": 8})
    with pytest.raises(ConfigError, match="overlap at byte 2"):
        parse_key(None, dtype)
    assert parse_key("b", dtype) == (KeyPart(2, "<u4"),)


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"more than {MAX_PARTS} parts"):
        parse_key(None, np.dtype(("<i4", (10**6,))))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.booleans()), min_size=1, max_size=5))
def test_every_key_is_read_or_refused(places: list[tuple[int, int, bool]]) -> None:
    """A key is accepted exactly when its parts lie inside and apart, and then it is what was said."""
    dtype = np.dtype("V32")
    text = ",".join(f"{offset}:{length}{':desc' if down else ''}" for offset, length, down in places)
    touched = [byte for offset, length, _ in places for byte in range(offset, offset + length)]
    if max(touched) >= 32 or len(set(touched)) < len(touched):
        with pytest.raises(ConfigError):
            parse_key(text, dtype)
    else:
        assert parse_key(text, dtype) == tuple(KeyPart(o, f"S{n}", down) for o, n, down in places)
