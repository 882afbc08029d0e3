"""Rows of any length, one row for each key, the first rows, files without names, folders: as Python sorts them."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_layouts import layouts, small_layout

from tartan.errors import ConfigError, ItemError
from tartan.sort import pieces, sort_file
from tartan.sort.keys import KeyPart
from tartan.sort.pieces import LengthCount, LongTexts
from tartan.sort.selection import choose_leaders
from tartan.sort.tables import TableSource

MEMORY = "4GB"  # more than a process of tests holds already
Rows = list[list[str]]


def make_rows(n: int, seed: int) -> Rows:
    """Return rows of a text, a number below 20 and a text; some texts are long, and differ at their end."""
    rng = random.Random(seed)
    long = ["a" * 400, "a" * 400 + "b", "a" * 399, "b" * 3000, "b" * 2999 + "\0", "é" * 40_000]

    def value() -> str:
        odd = ["", 'x"y', "a\nb", "p,q", "\0", "a\0", "a"]
        some = rng.random()
        return rng.choice(long if some < 0.05 else odd) if some < 0.3 else "".join(rng.choices("abc", k=3))

    return [[value(), str(rng.randrange(20)), value()] for _ in range(n)]


def write_csv(path: Path, rows: Rows, **ways: Any) -> Path:
    with open(path, "w", newline="") as stream:
        csv.writer(stream, lineterminator="\n", **ways).writerows(rows)
    return path


def read_csv(path: Path, **ways: Any) -> Rows:
    with open(path, newline="") as stream:
        return list(csv.reader(stream, **ways))


def told_by_python(rows: Rows, key: Callable[[list[str]], Any], *, down: bool, unique: bool, top: int | None) -> Rows:
    """Return the rows in order; Python's sort keeps the order of equal ones in either direction."""
    ordered = sorted(rows, key=key, reverse=down)
    if unique:
        first: dict[Any, list[str]] = {}
        for row in ordered:
            first.setdefault(key(row), row)
        ordered = list(first.values())
    return ordered[:top]


KEYS: dict[str, Callable[[list[str]], Any]] = {
    "k:text": lambda row: row[0].encode(),
    "n:number": lambda row: int(row[1]),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("unique", "top"), [(False, None), (True, None), (False, 7), (True, 7), (False, 1000)])
def test_long_rows_of_csv(tmp_path: Path, key: str, unique: bool, top: int | None) -> None:
    rows = make_rows(300, seed=1)
    source = write_csv(tmp_path / "a.csv", [["k", "n", "v"], *rows])
    for down in (False, True):
        chosen = {"unique": unique, "top": top, "descending": down}
        result = sort_file(source, tmp_path / "b.csv", key=key, memory=MEMORY, overwrite=True, **chosen)
        expected = told_by_python(rows, KEYS[key], down=down, unique=unique, top=top)
        assert read_csv(result.path) == [["k", "n", "v"], *expected]
        assert result.n_records == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["k", "n"])
@pytest.mark.parametrize(("unique", "top"), [(False, None), (True, None), (True, 5)])
@pytest.mark.parametrize("cut_bytes", [64, 4 << 20])
def test_long_rows_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, unique: bool, top: int | None, cut_bytes: int
) -> None:
    monkeypatch.setattr(pieces, "CUT_BYTES", cut_bytes)
    rows = make_rows(200, seed=2)
    table = pa.table(
        {"k": [row[0] for row in rows], "n": [int(row[1]) for row in rows], "v": [r[2] or None for r in rows]}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=60)
    name = {"k": "k:text", "n": "n:number"}[key]
    for target in ("b.parquet", "b.arrow"):
        result = sort_file(tmp_path / "a.parquet", tmp_path / target, key=key, memory=MEMORY, unique=unique, top=top)
        found = pq.read_table(result.path) if target.endswith("t") else pa.ipc.open_file(result.path).read_all()
        expected = told_by_python(rows, KEYS[name], down=False, unique=unique, top=top)
        assert [[one["k"], str(one["n"]), one["v"] or ""] for one in found.to_pylist()] == expected
        assert found.schema == table.schema


def test_long_text_becomes_a_table_and_text_again(tmp_path: Path) -> None:
    rows = [row for row in make_rows(200, seed=3) if row[0]]
    source = write_csv(tmp_path / "a.csv", [["k", "n", "v"], *rows])
    table = sort_file(source, tmp_path / "b.parquet", key="k:text", memory=MEMORY).path
    back = sort_file(table, tmp_path / "c.csv", key="n", memory=MEMORY).path
    expected = sorted(sorted(rows, key=KEYS["k:text"]), key=KEYS["n:number"])
    assert read_csv(back)[1:] == expected


@pytest.mark.parametrize("ways", [[], ["-r"], ["-u"], ["-r", "-u"]])
def test_lines_as_by_gnu_sort(tmp_path: Path, ways: list[str]) -> None:
    lines = [row[0].replace("\n", " ") for row in make_rows(500, seed=4)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    told = subprocess.run(
        ["sort", "-s", *ways, "a.txt"], cwd=tmp_path, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=True
    )
    options = {"descending": "-r" in ways, "unique": "-u" in ways}
    assert sort_file(tmp_path / "a.txt", tmp_path / "b.txt", memory=MEMORY, **options).path.read_bytes() == told.stdout


def test_one_long_line_does_not_widen_the_others(tmp_path: Path) -> None:
    lines = [f"{number:08d} some line of ordinary text" for number in range(2000, 0, -1)]
    lines[1000] = "x" * 60_000
    source = tmp_path / "a.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    result = sort_file(source, tmp_path / "b.txt", memory=MEMORY)
    assert result.n_bytes < 4 * source.stat().st_size
    assert result.path.read_text().split("\n")[:-1] == sorted(lines)
    rows = [["k", "v"], *([str(number), line] for number, line in enumerate(lines))]
    result = sort_file(write_csv(tmp_path / "a.csv", rows), tmp_path / "b.csv", key="k:desc", memory=MEMORY)
    assert result.n_bytes < 3 * source.stat().st_size


@pytest.mark.parametrize("key", ["k:text", "n:number"])
def test_the_result_does_not_depend_on_run_files(tmp_path: Path, key: str) -> None:
    rows = make_rows(400, seed=5)
    source = write_csv(tmp_path / "a.csv", [["k", "n", "v"], *rows])
    for number, chosen in enumerate([{}, {"unique": True}, {"top": 50, "unique": True}]):
        whole = sort_file(source, tmp_path / f"whole{number}.csv", key=key, memory=MEMORY, **chosen)
        with layouts(small_layout(512)):
            many = sort_file(source, tmp_path / f"many{number}.csv", key=key, memory=MEMORY, **chosen)
        assert many.run_files > 2 or chosen.get("top")
        assert many.path.read_bytes() == whole.path.read_bytes()


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv.pop(1))
from small_layouts import aborting, layouts, small_layout
from tartan.cli.main import main
with layouts(small_layout(512)), aborting(**json.loads(sys.argv.pop(1))):
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [{"runs": 2}, {"ranges": 1}])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_killed_sort_of_long_rows_goes_on(tmp_path: Path, after: dict[str, int], suffix: str) -> None:
    source = write_csv(tmp_path / "a.csv", [["k", "n", "v"], *make_rows(400, seed=6)])
    target = tmp_path / f"b{suffix}"
    words = ["sort", str(source), str(target), "--key", "n,k:desc", "--threads", "1", "--unique", "-q"]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), json.dumps(after), *words], capture_output=True
    )
    assert ended.returncode in (-signal.SIGABRT, -signal.SIGKILL), ended.stderr
    assert not target.exists()
    with layouts(small_layout(512)):
        result = sort_file(source, target, key="n,k:desc", threads=1, unique=True)
    assert result.run_files_adopted >= 1
    fresh = sort_file(source, tmp_path / f"c{suffix}", key="n,k:desc", unique=True, memory=MEMORY)
    assert result.path.read_bytes() == fresh.path.read_bytes()


def test_files_without_names(tmp_path: Path) -> None:
    rows = [["3", "b"], ["1", "a;x"], ["2", ""], ["10", 'q"']]
    source = write_csv(tmp_path / "a.csv", rows, delimiter=";")
    ways = {"header": False, "separator": ";", "memory": MEMORY}
    found = sort_file(source, tmp_path / "b.csv", key="1", **ways).path
    assert read_csv(found, delimiter=";") == sorted(rows, key=lambda row: int(row[0]))
    some = sort_file(source, tmp_path / "c.tsv", key="1:desc", columns=["2", "1"], quote="double", **ways).path
    assert read_csv(some, delimiter="\t") == [[b, a] for a, b in sorted(rows, key=lambda row: -int(row[0]))]
    table = sort_file(source, tmp_path / "d.parquet", key="column_1", **ways).path
    assert pq.read_table(table).to_pydict()["column_1"] == [1, 2, 3, 10]
    back = sort_file(table, tmp_path / "e.csv", key="2", columns=["1", "2"], header=False, memory=MEMORY).path
    assert read_csv(back) == [*sorted([row for row in rows if row[1]], key=lambda row: row[1]), ["2", ""]]


@pytest.mark.parametrize("separator", ["|", "^", "-", "]", "\\", "\x01", " ", "tab", "\\t"])
def test_separators(tmp_path: Path, separator: str) -> None:
    character = "\t" if separator in ("tab", "\\t") else separator
    rows = [["k", "v"], ["2", f"a{character}b"], ["1", 'c"'], ["3", "plain"]]
    source = write_csv(tmp_path / "a.csv", rows, delimiter=character)
    found = sort_file(source, tmp_path / "b.csv", key="k", separator=separator, memory=MEMORY).path
    assert read_csv(found, delimiter=character) == [rows[0], rows[2], rows[1], rows[3]]


def test_blank_lines_marks_and_empty_parts_of_files_without_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf\n\nb\n\r\na\n")
    one = sort_file(tmp_path / "a.csv", tmp_path / "b.csv", key="1", header=False, memory=MEMORY).path
    assert one.read_text() == '""\n""\n""\na\nb\n', "one column: every line is a row"
    (tmp_path / "c.csv").write_bytes(b"\n\n2,b\n\n1,a\n")
    (tmp_path / "d.csv").write_bytes(b"")
    both = [tmp_path / "d.csv", tmp_path / "c.csv"]
    assert sort_file(both, tmp_path / "e.csv", key="1", header=False, memory=MEMORY).path.read_text() == "1,a\n2,b\n"
    (tmp_path / "f.csv").write_bytes(b"1,2\n3\n")
    with pytest.raises(ItemError, match=r"row 2 of .* has 1 value, and the first line 2 values"):
        sort_file(tmp_path / "f.csv", tmp_path / "g.csv", key="1", header=False, memory=MEMORY)


def test_a_name_is_preferred_to_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2,x,x\n1,b,8\n3,a,9\n")
    assert sort_file(tmp_path / "a.csv", tmp_path / "b.csv", key="2:desc", memory=MEMORY).path.read_text()[6:8] == "3,"
    assert sort_file(tmp_path / "a.csv", tmp_path / "c.csv", key="3:desc", memory=MEMORY).path.read_text()[6:8] == "3,"
    with pytest.raises(ConfigError, match=r"several columns 'x'.*by its number, the first is 2"):
        sort_file(tmp_path / "a.csv", tmp_path / "d.csv", key="x", memory=MEMORY)
    with pytest.raises(ConfigError, match="no column '4'"):
        sort_file(tmp_path / "a.csv", tmp_path / "d.csv", key="4", memory=MEMORY)


def test_folders_of_parts(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    (folder / "deeper").mkdir(parents=True)
    write_csv(folder / "b.csv", [["k", "v"], ["3", "b"], ["1", "b"]])
    write_csv(folder / "deeper" / "a.csv", [["k", "v"], ["1", "deeper"]])
    write_csv(folder / "a.csv", [["k", "v"], ["1", "a"]])
    for other in ("_SUCCESS", ".a.csv.crc"):
        (folder / other).write_bytes(b"\0")
    (folder / "s.csv.tartan-sort-01234567").mkdir()
    (folder / "s.csv.tartan-sort-01234567" / "run-0.trun").write_bytes(b"\0")
    found = sort_file(folder, tmp_path / "s.csv", key="k", memory=MEMORY).path
    assert found.read_text() == "k,v\n1,a\n1,b\n1,deeper\n3,b\n", "files in the order of their names"
    (folder / "c.tsv").write_text("k\tv\n")
    with pytest.raises(ConfigError, match=r"files of several kinds, .*name those to sort by a pattern"):
        sort_file(folder, tmp_path / "t.csv", key="k", memory=MEMORY)
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="none has no files to sort"):
        sort_file(tmp_path / "none", tmp_path / "t.csv", key="k", memory=MEMORY)
    (tmp_path / "hive" / "year=2024").mkdir(parents=True)
    with pytest.raises(ConfigError, match="year=2024 has the value of a column in its name"):
        sort_file(tmp_path / "hive", tmp_path / "t.csv", key="k", memory=MEMORY)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("a.csv", {"separator": ";;"}, "is not one character of ASCII"),
    ("a.csv", {"separator": '"'}, "is not one character of ASCII"),
    ("a.csv", {"separator": "é"}, "is not one character of ASCII"),
    ("a.csv", {"separator": ";"}, "if another character stands between values|there are k,v"),
    ("a.tsv", {"separator": ";"}, "in TSV it is a tab"),
    ("a.txt", {"separator": ";"}, "say `format='csv'`"),
    ("a.txt", {"header": False}, "say `format='csv'`"),
    ("a.csv", {"top": 0}, "top"),
    ("a.bin", {"unique": True, "dtype": "u1"}, "`unique=` and `top=` are for tables and text"),
    ("a.bin", {"top": 3, "dtype": "u1"}, "`unique=` and `top=` are for tables and text"),
]


@pytest.mark.parametrize(("name", "options", "says"), WRONG, ids=lambda one: str(one)[:20])
def test_wrong_use(tmp_path: Path, name: str, options: dict[str, Any], says: str) -> None:
    (tmp_path / name).write_text("k,v\n1,2\n")
    with pytest.raises(ConfigError, match=says):
        sort_file(tmp_path / name, tmp_path / f"o{name[1:]}", key=None if name == "a.bin" else "k", **options)


def test_long_texts_take_no_more_memory_than_they_may() -> None:
    texts = LongTexts(100_000)
    texts.add(pa.array([b"x%d" % number * 100 for number in range(2000)], pa.large_binary()))
    assert 256 < texts.width <= texts.longest == 500
    assert texts.ranks_of(pa.array([None, b"ab"], pa.large_binary())).tolist() == [0, 2]


def test_many_texts_of_ordinary_length_are_compared_whole() -> None:
    texts = LongTexts(10**8)
    texts.add(pa.array([b"%d" % number * 8 for number in range(10_000, 30_000)] + [b"x" * 60_000], pa.large_binary()))
    assert texts.width == 64


def test_pieces_take_the_least_room() -> None:
    count = LengthCount()
    count.add(np.array([40] * 1000 + [60_000]))
    size, n = count.choose_piece(8)
    assert n == sum(-(-length // size) for length in [40] * 1000 + [60_000])
    assert n * (size + 18) < 2 * (40 * 1000 + 60_000)


@pytest.mark.parametrize("kind", ["<i4", ">i8", "<u2", "<f8", ">f4", "S3"])
@pytest.mark.parametrize("down", [False, True])
def test_leaders_are_the_first_of_all(kind: str, down: bool) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(-100 if kind[1] != "u" and kind[0] != "S" else 0, 100, 500).astype(kind)
    if "f" in kind:
        values[::50] = np.nan
    records = np.zeros(500, [("key", kind), ("place", "<u4")])
    records["key"], records["place"] = values, np.arange(500)

    class AllRows:
        def begins_row(self, block: np.ndarray) -> np.ndarray:
            return np.ones(len(block), bool)

    parts = [KeyPart(0, kind if kind[0] != "S" else "S3", down)]
    found = choose_leaders(
        np.array_split(records, 7), AllRows(), parts, records.dtype, unique=False, top=20, most_bytes=10**6
    )
    assert found is not None
    plain = values.tolist()
    last = float("-inf" if down else "inf")  # where NaN goes
    plain = [last if value != value else value for value in plain]
    order = sorted(range(500), key=plain.__getitem__, reverse=down)
    assert sorted(order[:20]) == found["place"].tolist()


@pytest.mark.slow
def test_long_rows_of_small_row_groups_are_read_in_parts_of_bounded_size(tmp_path: Path) -> None:
    table = pa.table({"k": list(range(6)), "t": [f"{number}" * (5 << 20) for number in range(6)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, use_dictionary=False, compression="none")
    source = TableSource(tmp_path / "a.parquet")
    assert [batch.num_rows for batch in source.batches()] == [3, 3]
    assert [batch.num_rows for batch in source.batches(1)] == [3, 2]
