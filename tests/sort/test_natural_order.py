"""Numbers within texts as numbers, and the same of lines, CSV and what becomes a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.errors import ConfigError
from tartan.sort import sort_file
from tartan.sort.text_files import order_naturally

ORDERED = [
    b"", b"-1", b"1", b"01", b"2", b"10", b"10a", b"10a2", b"10a11", b"a", b"a-1", b"a1", b"a1b", b"a2", b"a010",
    b"a" + b"9" * 254, b"a1" + b"0" * 254, b"a1" + b"0" * 300, b"ab1", b"chr2", b"chr10", b"chrX",
]  # fmt: skip


def test_bytes_order_as_the_numbers_in_them() -> None:
    keys = order_naturally(pa.array([*ORDERED, None], pa.large_binary())).to_pylist()
    assert keys.pop() is None
    assert keys == sorted(keys)
    equal = [number for number in range(1, len(keys)) if keys[number] == keys[number - 1]]
    assert [ORDERED[number] for number in equal] == [b"01"], "zeros in front do not count"


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_chromosomes(tmp_path: Path, suffix: str) -> None:
    names = ["chr10", "chr2", "chrX", "chr1", "chr20", "", "chr2"]
    (tmp_path / "a.csv").write_text("c,p\n" + "".join(f"{name},{place}\n" for place, name in enumerate(names)))
    target = tmp_path / f"b{suffix}"
    sort_file(tmp_path / "a.csv", target, key="c:natural,p:desc", memory="1GB", quiet=True)
    if suffix != ".parquet":  # which rows of equal names stay in their order
        sort_file(target, tmp_path / "c.parquet", key="c:natural:asc", memory="1GB", quiet=True)
        target = tmp_path / "c.parquet"
    found = pq.read_table(target)["p"].to_pylist()
    found.remove(5)  # an empty value is an empty text in CSV, and null in a table
    assert found == [3, 6, 1, 0, 4, 2]


@pytest.mark.parametrize("target", ["b.txt", "b.parquet"])
def test_lines(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.txt").write_text("x 0010 long\nx 9\nx 10\n")
    sort_file(tmp_path / "a.txt", tmp_path / target, key="line:natural:desc", memory="1GB", quiet=True)
    if target == "b.txt":
        assert (tmp_path / target).read_text() == "x 0010 long\nx 10\nx 9\n"
    else:
        assert pq.read_table(tmp_path / target)["line"].to_pylist() == ["x 0010 long", "x 10", "x 9"]


def test_an_unknown_word_names_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(ConfigError, match="with :number, :text or :natural"):
        sort_file(tmp_path / "a.txt", tmp_path / "b.txt", key="line:numeric", memory="1GB", quiet=True)
