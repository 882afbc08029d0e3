"""Lines, CSV and TSV: compared with Python's own sort and reader."""

from __future__ import annotations

import csv
import gzip
import io
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tartan.errors import ConfigError, ItemError
from tartan.sort import sort_file

MEMORY = "4GB"  # more than a process of tests holds already


def sorted_file(source: Path, target: Path, **options: Any) -> Path:
    return sort_file(source, target, memory=MEMORY, **options).path


def rows_of(path: Path, separator: str = ",") -> list[list[str]]:
    with open(path, newline="") as stream:
        return list(csv.reader(stream, delimiter=separator))


def write_rows(path: Path, rows: list[list[str]]) -> None:
    with open(path, "w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


WORDS = ["pear", "Apple", "", "apple", "zoo\tx", "émile", "a" * 300, "apple ", '"quoted"', "fig, dried"]


def test_lines(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [rng.choice(WORDS) + str(rng.randrange(50)) for _ in range(3000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = sorted_file(tmp_path / "a.txt", tmp_path / "b.txt").read_bytes()
    assert found == b"".join(sorted(line.encode() + b"\n" for line in lines))
    down = sorted_file(tmp_path / "a.txt", tmp_path / "c.txt", descending=True).read_text().splitlines()
    assert down == sorted(lines, key=str.encode, reverse=True)


def test_bytes_of_lines(tmp_path: Path) -> None:
    lines = ["x2b", "x1", "y1a", "x", "", "z0"]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    found = sorted_file(tmp_path / "a.txt", tmp_path / "b.txt", key="1:1,0:1:desc").read_text().splitlines()
    assert found == sorted(lines, key=lambda line: (line[1:2], -ord(line[0]) if line else 0))


def test_numbers_of_lines(tmp_path: Path) -> None:
    lines = ["10", "9", "-3.5", "", "1e3", " 7"]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    found = sorted_file(tmp_path / "a.txt", tmp_path / "b.txt", key="line:number").read_text().splitlines()
    assert found == ["-3.5", " 7", "9", "10", "1e3", ""]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = random.Random(1)
    rows = [["name", "score", "note"]]
    for _ in range(2000):
        rows.append(
            [rng.choice(WORDS), str(rng.randrange(-20, 20) / 4), rng.choice(['say "hi"', "two\nlines", "", "a,b"])]
        )
    write_rows(tmp_path / "t.csv", rows)
    return tmp_path / "t.csv"


def test_csv_by_columns(table: Path, tmp_path: Path) -> None:
    result = sort_file(table, tmp_path / "s.csv", key="score:desc,name", memory=MEMORY)
    head, *rows = rows_of(table)
    expected = sorted(rows, key=lambda row: (-float(row[1]), row[0].encode()))
    assert rows_of(tmp_path / "s.csv") == [head, *expected]
    assert result.n_records == 2000
    assert result.notes == ("column score is sorted as numbers", "column name is sorted as text")


def test_tsv_and_some_columns(table: Path, tmp_path: Path) -> None:
    found = rows_of(
        sorted_file(table, tmp_path / "s.tsv", key="score:text", columns=["note", "name"], quote="double"), "\t"
    )
    _, *rows = rows_of(table)
    expected = [[row[2], row[0]] for row in sorted(rows, key=lambda row: row[1])]
    assert found == [["note", "name"], *expected]


def test_values_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,x\n007,1.50\n7,1.5\n0010,01e0\n,\n")
    found = sorted_file(tmp_path / "t.csv", tmp_path / "s.csv", key="x").read_text()
    assert found == "id,x\n0010,01e0\n007,1.50\n7,1.5\n,\n"
    first = sorted_file(tmp_path / "t.csv", tmp_path / "f.csv", key="x:desc", nulls="first").read_text()
    assert first == "id,x\n,\n007,1.50\n7,1.5\n0010,01e0\n"


def test_whole_numbers_of_any_size(tmp_path: Path) -> None:
    numbers = [2**63, 2**63 - 1, 2**63 + 1, -(2**90), 5]
    (tmp_path / "t.csv").write_text("n\n" + "".join(f"{n}\n" for n in numbers))
    found = sorted_file(tmp_path / "t.csv", tmp_path / "s.csv", key="n").read_text().split()[1:]
    assert [int(n) for n in found] == sorted(numbers)


def test_zeros_are_equal_unless_the_order_is_total(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,i\n0.0,1\n-0.0,2\n0.0,3\nnan,4\n-1.5,5\n")
    equal = rows_of(sorted_file(tmp_path / "t.csv", tmp_path / "s.csv", key="x"))[1:]
    assert [row[1] for row in equal] == ["5", "1", "2", "3", "4"]
    total = rows_of(sorted_file(tmp_path / "t.csv", tmp_path / "u.csv", key="x", total_order=True))[1:]
    assert [row[1] for row in total] == ["5", "2", "1", "3", "4"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files(table: Path, tmp_path: Path, suffix: str) -> None:
    packed = tmp_path / f"t.csv{suffix}"
    codec = {".gz": "gzip", ".zst": "zstd"}[suffix]
    packed.write_bytes(
        pa.compress(table.read_bytes(), codec=codec, asbytes=True)
        if suffix != ".gz"
        else gzip.compress(table.read_bytes())
    )
    target = sorted_file(packed, tmp_path / f"s.csv{suffix}", key="name")
    plain = sorted_file(table, tmp_path / "plain.csv", key="name")
    with pa.input_stream(str(target), compression=codec) as stream:
        assert stream.read() == plain.read_bytes()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ItemError, match="cannot be read as csv"):
        sorted_file(packed, tmp_path / "x.csv", key="name")


def test_several_files_count_as_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n3,a\n1,b\n")
    (tmp_path / "b.csv").write_text("k,v\n2.5,c\n")
    result = sort_file([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "s.csv", key="k", memory=MEMORY)
    assert result.path.read_text() == "k,v\n1,b\n2.5,c\n3,a\n"
    (tmp_path / "c.csv").write_text("other\n2\n")
    with pytest.raises(ConfigError, match="has no column 'k'"):
        sort_file([tmp_path / "a.csv", tmp_path / "c.csv"], tmp_path / "t.csv", key="k", memory=MEMORY)


def test_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        def __init__(self, data: bytes = b"") -> None:
            self.buffer = io.BytesIO(data)

    out = Standard()
    monkeypatch.setattr("sys.stdin", Standard(b"b\na\nc"))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.chdir(tmp_path)
    result = sort_file("-", "-", format="lines", memory=MEMORY, tmp=tmp_path)
    assert (out.buffer.getvalue(), str(result.path)) == (b"a\nb\nc\n", "-")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_copy_of_a_pipe_can_be_read_by_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watching(io.BytesIO):
        modes: ClassVar[list[int]] = []

        def read(self, size: int | None = -1) -> bytes:
            self.modes += [path.stat().st_mode & 0o777 for path in tmp_path.glob("tartan-sort-*/input")]
            return super().read(size)

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Watching(b"b\na\n")))
    sort_file("-", tmp_path / "s.txt", format="lines", memory=MEMORY, tmp=tmp_path)
    assert set(Watching.modes) == {0o600}


def test_named_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.csv")
    feeder = threading.Thread(target=(tmp_path / "p.csv").write_text, args=("k\n2\n1\n",))
    feeder.start()
    assert sorted_file(tmp_path / "p.csv", tmp_path / "s.csv", key="k").read_text() == "k\n1\n2\n"
    feeder.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "s.csv"]


def test_rows_too_long_to_be_read_are_refused_by_number(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("short\n" * 3 + "x" * (18 << 20))
    with pytest.raises(ConfigError, match=r"line 4 of .* has more than 16,777,216 bytes"):
        sorted_file(tmp_path / "c.txt", tmp_path / "b.txt")
    widest = "y" * 70_000
    (tmp_path / "d.txt").write_text(f"{widest}\na\n")
    assert sorted_file(tmp_path / "d.txt", tmp_path / "e.txt").read_text() == f"a\n{widest}\n"


WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("a.csv", "k,v\n1,2\n", {}, "name the columns to sort by"),
    ("a.csv", "k,v\n1,2\n", {"key": "x"}, "has no column 'x'"),
    ("a.tsv", '"k"\t"v"\n"1"\t"2"\n', {"key": "k"}, "its names are quoted: add --quote double"),
    ("a.csv", "k,k\n1,2\n", {"key": "k"}, "has several columns 'k'"),
    ("a.csv", "k,v\n1,2\nx,3\n", {"key": "k:number"}, r"'x' in column 'k', row 2, is not a number"),
    ("a.csv", "k,v\n1,2\n3\n", {"key": "k"}, "row 2 of .* has 1 value, and the first line 2 names"),
    ("a.csv", "", {"key": "k"}, "should begin with a line of column names"),
    ("a.txt", "a\n", {"key": "name"}, "cannot be read; write"),
    ("a.txt", "a\n", {"key": "0:0"}, "cannot be read; write"),
    ("a.txt", "a\n", {"compression": "gzip"}, "compressed by its name"),
    ("a.txt", "a\n", {"memory": "200MB"}, "too little for text"),
    ("a.txt", "a\n", {"format": "xml"}, "'xml'` is unknown"),
    ("a.npy", "", {"format": "lines", "dtype": "u1"}, "`header=` are for text"),
]


@pytest.mark.parametrize(("name", "text", "options", "says"), WRONG, ids=lambda one: str(one)[:20])
def test_wrong_use(tmp_path: Path, name: str, text: str, options: dict[str, Any], says: str) -> None:
    (tmp_path / name).write_text(text)
    target = tmp_path / ("s" + Path(name).suffix)
    with pytest.raises((ConfigError, ItemError), match=says):
        sort_file(tmp_path / name, target, **{"memory": MEMORY, **options})
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert sorted_file(tmp_path / "a.txt", tmp_path / "b.txt").read_bytes() == b""
    (tmp_path / "a.csv").write_text("k,v\n")
    assert sorted_file(tmp_path / "a.csv", tmp_path / "b.csv", key="k").read_text() == "k,v\n"


def test_in_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("b\na\n")
    sort_file(tmp_path / "a.txt", in_place=True, memory=MEMORY)
    assert (tmp_path / "a.txt").read_text() == "a\nb\n"


def test_raw_files_of_any_name_are_sorted_by_their_dtype(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes([3, 1, 2]))
    assert sorted_file(tmp_path / "a.txt", tmp_path / "b.txt", dtype="u1").read_bytes() == bytes([1, 2, 3])


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    from tartan.cli.main import main

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        shown = capfd.readouterr()
        return status, shown.out, shown.err

    return run


def test_command(command: Callable[..., tuple[int, str, str]], table: Path, tmp_path: Path) -> None:
    status, _, said = command("sort", table, tmp_path / "s.csv", "--key", "score", "--memory", MEMORY)
    assert (status, "tartan: column score is sorted as numbers" in said) == (0, True)
    status, _, said = command("sort", table, "-", "--key", "score", "--json")
    assert (status, "both go to stdout" in said) == (2, True)
