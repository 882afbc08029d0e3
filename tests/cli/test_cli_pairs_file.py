"""Lists of pairs: by index or by key, in every format, and what is wrong with the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.base.machine import Memory
from tartan.cli.shared import pairs_file
from tartan.cli.shared.pairs_file import read_pairs
from tartan.errors import ConfigError

KEYS = ["a.fa", "b.fa", "c, d.fa", "7"]


@pytest.mark.parametrize(
    ("name", "text", "pairs"),
    [
        ("p.csv", "0,1\n3,2\n", [[0, 1], [3, 2]]),
        ("p.csv", "i,j\n0,1\n", [[0, 1]]),
        ("p.csv", "score,j,i\n0.5,1,0\n", [[0, 1]]),
        ("p.csv", "a.fa,b.fa\n", [[0, 1]]),
        ("p.csv", 'key_i,key_j\na.fa,"c, d.fa"\n', [[0, 2]]),
        ("p.csv", "key_i,key_j\r\na.fa,7\r\n", [[0, 3]]),
        ("p.csv", "a.fa,7\n7,b.fa\n", [[0, 3], [3, 1]]),
        ("p.tsv", "0\t1\n", [[0, 1]]),
        ("p.txt", "a.fa\tc, d.fa\n", [[0, 2]]),
        ("p.txt", " 0 , 1 \n", [[0, 1]]),
        ("p.csv", "\ufeffkey_i,key_j\na.fa,b.fa\n", [[0, 1]]),
        ("p.csv", "\ufeffa.fa,b.fa\n", [[0, 1]]),
    ],
)
def test_text(tmp_path: Path, name: str, text: str, pairs: list[list[int]]) -> None:
    (tmp_path / name).write_text(text)
    found = read_pairs(tmp_path / name, KEYS)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, pairs)


@pytest.mark.parametrize(
    ("columns", "pairs"),
    [
        ({"i": [0, 3], "j": [1, 2], "score": [0.1, 0.2]}, [[0, 1], [3, 2]]),
        ({"key_i": ["a.fa"], "key_j": ["7"], "i": [9]}, [[0, 3]]),
        ({"left": ["a.fa"], "right": ["b.fa"]}, [[0, 1]]),
        ({"left": [2], "right": [1]}, [[2, 1]]),
    ],
)
def test_parquet(tmp_path: Path, columns: dict[str, Any], pairs: list[list[int]]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    np.testing.assert_array_equal(read_pairs(tmp_path / "p.parquet", KEYS), pairs)


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.array([[0, 1], [2, 3]], np.uint16))
    np.testing.assert_array_equal(read_pairs(tmp_path / "p.npy", KEYS), [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.csv", b"", "p.csv: it "),
        ("p.csv", b"i,j\n", "it holds no pairs"),
        ("p.csv", b"0,4\n", "pair 0 names item 4; there are 4"),
        ("p.csv", b"0,1\n0,-1\n", "pair 1 names item -1"),
        ("p.csv", b"a.fa,x.fa\n", "there is no item 'x.fa'; keys look like 'a.fa'"),
        (
            "p.csv",
            b"one,two\na.fa,b.fa\n",
            "no item 'one'; keys look like 'a.fa'; a header names the columns key_i and key_j",
        ),
        (
            "p.csv",
            b"one,two\n0,1\n",
            "no item 'one'; keys look like 'a.fa'; a header names the columns key_i and key_j",
        ),
        ("p.csv", b"a.fa,b.fa\none,two\n", "no item 'one'; keys look like 'a.fa'"),
        ("p.csv", b"key_i,key_j\none,two\n", "no item 'one'; keys look like 'a.fa'"),
        ("p.csv", b"i,j\na.fa,b.fa\n", "columns i and j must hold whole numbers"),
        ("p.csv", b"0\n1\n", "it has one column"),
        ("p.csv", b"0,1\n0,1,2\n", "cannot be read"),
        ("p.parquet", b"no parquet", "cannot be read"),
        ("p.npy", b"no array", "it is not an array"),
        ("p.npy", b"", "it is not an array"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_pairs(tmp_path / name, KEYS)
    assert said in str(caught.value)
    assert caught.value.context["option"] == "--pairs"


@pytest.mark.parametrize("array", [np.zeros((2, 3), int), np.zeros((2, 2)), np.zeros(4, int)])
def test_array_of_another_shape_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "p.npy", array)
    with pytest.raises(ConfigError, match=r"whole numbers \(m, 2\) are needed"):
        read_pairs(tmp_path / "p.npy", KEYS)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    for name in ("p.csv", "p.npy", "p.parquet"):
        with pytest.raises(ConfigError, match="No such file"):
            read_pairs(tmp_path / name, KEYS)


@pytest.mark.parametrize("as_dictionary", [False, True])
def test_repeated_texts_of_parquet_count_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_dictionary: bool
) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["a.fa"]))
    table = pa.table({"key_i": column, "key_j": column})
    pq.write_table(table, tmp_path / "p.parquet", store_schema=as_dictionary)
    assert len(read_pairs(tmp_path / "p.parquet", KEYS)) == 1000
    monkeypatch.setattr(pairs_file, "memory", lambda: Memory(110_000, 110_000))
    with pytest.raises(ConfigError, match=r"its 1,000 rows take .* may be used; divide the pairs"):
        read_pairs(tmp_path / "p.parquet", KEYS)


def test_more_rows_than_fit_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"i": np.zeros(10**6, np.int64), "j": np.ones(10**6, np.int64)}), tmp_path / "p.parquet")
    monkeypatch.setattr(pairs_file, "memory", lambda: Memory(50_000_000, 50_000_000))
    monkeypatch.setattr(pq, "read_table", None)
    with pytest.raises(ConfigError, match="its 1,000,000 rows take"):
        read_pairs(tmp_path / "p.parquet", KEYS)


def test_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("0," * 10**6)
    with pytest.raises(ConfigError, match="first line has 1,048,576 characters and more"):
        read_pairs(tmp_path / "p.csv", KEYS)


def test_numbers_that_may_be_names_are_refused(tmp_path: Path) -> None:
    keys = ["2", "0", "1"]
    (plain := tmp_path / "plain.csv").write_text("2,0\n")
    with pytest.raises(ConfigError, match="may be places of items or names, such as '2'; call the columns i and j"):
        read_pairs(plain, keys)
    (places := tmp_path / "places.csv").write_text("i,j\n2,0\n")
    (names := tmp_path / "names.csv").write_text("key_i,key_j\n2,0\n")
    assert read_pairs(places, keys).tolist() == [[2, 0]]
    assert read_pairs(names, keys).tolist() == [[0, 1]]
    assert read_pairs(plain, ["0", "1", "2"]).tolist() == [[2, 0]]
