"""Text to Parquet and Arrow and back, by the name of the destination: every value is what it was."""

from __future__ import annotations

import csv
import datetime
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.errors import ConfigError
from tartan.sort import sort_file

MEMORY = "8GB"  # of the whole process, which holds what other tests have left
CSV = """id,zip,price,x,y,flag,day,note,empty,big
3,007,12.50,1.0,1,true,2024-01-31,"a,b",,123456789012345678901234567890
1,10115,3.00,2.55,2.5,false,1999-12-31,"say ""hi"" to
all",,5
2,10116,,1e-05,0.00001,,,"",,
"""


def converted(source: Path, target: Path, key: Any = "id", **options: Any) -> Path:
    return sort_file(source, target, key=key, memory=MEMORY, **options).path


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(CSV)
    return tmp_path / "a.csv"


@pytest.mark.parametrize("name", ["b.parquet", "b.arrow"])
def test_columns_get_types_and_text_comes_back(source: Path, tmp_path: Path, name: str) -> None:
    found = read(converted(source, tmp_path / name))
    types = {field.name: str(field.type) for field in found.schema}
    assert types == {
        "id": "int64", "zip": "string", "price": "decimal128(18, 2)", "x": "double", "y": "double", "flag": "bool",
        "day": "date32[day]", "note": "string", "empty": "string", "big": "decimal128(38, 0)",
    }  # fmt: skip
    assert found["zip"].to_pylist() == ["10115", "10116", "007"]
    assert found["note"].to_pylist() == ['say "hi" to\nall', "", "a,b"]
    assert found["empty"].to_pylist() == [None, None, None]
    assert found["price"].to_pylist() == [decimal.Decimal("3.00"), None, decimal.Decimal("12.50")]
    assert found["big"].to_pylist()[2] == 123456789012345678901234567890
    back = converted(tmp_path / name, tmp_path / "c.csv", "id:desc").read_text()
    lines = CSV.split("\n")
    assert back.split("\n") == [lines[0], lines[1], lines[4], lines[2], lines[3], ""]


def test_text_of_tables_and_pipes_of_both_kinds(source: Path, tmp_path: Path) -> None:
    table = converted(source, tmp_path / "b.parquet", columns=["note", "id"], compression="zstd")
    assert pq.ParquetFile(table).metadata.row_group(0).column(0).compression == "ZSTD"
    assert pq.read_table(table).column_names == ["note", "id"]
    with pytest.raises(ConfigError, match=r"row 1 of .*b.parquet has in column 'note' a separator or a line end"):
        converted(table, tmp_path / "c.tsv")
    found = converted(table, tmp_path / "c.tsv", quote="double").read_text()
    assert found == 'note\tid\n"say ""hi"" to\nall"\t1\n""\t2\na,b\t3\n'
    with pytest.raises(ConfigError, match="omit `compression=`"):
        converted(table, tmp_path / "d.csv", compression="zstd")
    assert not (tmp_path / "d.csv").exists()


def test_lines_become_a_column(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("b\n\na,c\n")
    assert read(converted(tmp_path / "w.txt", tmp_path / "w.parquet", None)).to_pydict() == {"line": ["", "a,c", "b"]}
    (tmp_path / "n.txt").write_text("10\n9\n")
    found = read(converted(tmp_path / "n.txt", tmp_path / "n.arrow", "line:number"))
    assert found.to_pydict() == {"line": [9, 10]}


def test_rows_without_a_value_come_last_or_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('k,n\nb,1\n,2\n"",3\na,4\n')
    for nulls, order in (("last", [3, 4, 1, 2]), ("first", [2, 3, 4, 1])):
        found = read(converted(tmp_path / "a.csv", tmp_path / f"{nulls}.parquet", "k:text", nulls=nulls))
        assert found["n"].to_pylist() == order
        again = converted(tmp_path / f"{nulls}.parquet", tmp_path / f"{nulls}.csv", "n").read_text()
        assert again == (tmp_path / "a.csv").read_text()
    alone = read(converted(tmp_path / "a.csv", tmp_path / "n.parquet", "k", columns=["n"]))
    assert alone.to_pydict() == {"n": [3, 4, 1, 2]}


def test_a_column_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n\n2\n""\n\n1\n')
    table = converted(tmp_path / "a.csv", tmp_path / "a.parquet", "n")
    assert read(table).to_pydict() == {"n": [1, 2, None, None]}
    assert converted(table, tmp_path / "b.csv", "n").read_text() == 'n\n1\n2\n""\n""\n'


def test_several_files_have_one_type(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v,w\n3,1,1\n1,2,2\n")
    (tmp_path / "b.tsv").write_text("k\tv\tw\n2\t2.5\tx\n")
    result = sort_file([tmp_path / "a.csv", tmp_path / "b.tsv"], tmp_path / "s.parquet", key="k", memory=MEMORY)
    assert read(result.path).to_pydict() == {"k": [1, 2, 3], "v": [2.0, 2.5, 1.0], "w": ["2", "x", "1"]}
    assert converted(result.path, tmp_path / "s.csv", "k").read_text() == "k,v,w\n1,2,2\n2,2.5,x\n3,1,1\n"


def value_of(text: str) -> Callable[[random.Random], str]:
    """Return a maker of values of one kind."""
    makers: dict[str, Callable[[random.Random], str]] = {
        "whole": lambda rng: str(rng.randrange(-(10 ** rng.randrange(1, 25)), 10**15)),
        "float": lambda rng: repr(rng.choice([rng.random(), rng.gauss(0, 1e9), rng.random() * 1e-8, 0.0, 3.0])),
        "price": lambda rng: f"{rng.randrange(-9999, 99999) / 100:.2f}",
        "code": lambda rng: f"{rng.randrange(500):04}",
        "word": lambda rng: rng.choice(["a", "", "b,c", 'q"', "two\nlines", "é", "NULL", "nan", "x\ty", "\x00", " "]),
        "mixed": lambda rng: rng.choice(["1", "1.0", "1e3", "TRUE", "true", "2024-01-01", "", "0x1", "+4", "-0"]),
        "day": lambda rng: str(datetime.date.fromordinal(rng.randrange(1, 3_652_059))),
    }
    return makers[text]


@pytest.mark.parametrize("seed", range(8))
def test_random_tables_of_text_come_back(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kinds = ["whole", "float", "price", "code", "word", "mixed", "day"]
    rows = [
        [str(n), *(value_of(kind)(rng) if rng.random() < 0.95 or seed % 2 else "" for kind in kinds)]
        for n in range(rng.choice([1, 20, 300]))
    ]
    with open(tmp_path / "a.csv", "w", newline="") as stream:
        csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_MINIMAL).writerows([["n", *kinds], *rows])
    target = tmp_path / f"b.{'arrow' if seed % 3 == 0 else 'parquet'}"
    back = converted(converted(tmp_path / "a.csv", target, "n:desc"), tmp_path / "c.csv", "n")
    with open(back, newline="") as stream:
        assert list(csv.reader(stream)) == [["n", *kinds], *rows]
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


def test_values_of_tables_are_read_back_by_python(tmp_path: Path) -> None:
    utc = datetime.UTC
    content = pa.table({
        "id": pa.array([0, 1, 2], pa.uint64()),
        "f": pa.array([0.1, None, -0.0]),
        "f4": pa.array([0.1, 1e-20, 3.0], pa.float32()),
        "d": pa.array([decimal.Decimal("0.0000001"), None, decimal.Decimal("-1.5000000")], pa.decimal256(50, 7)),
        "t": pa.array([datetime.datetime(2024, 1, 31, 9, 30, 0, 5), None, datetime.datetime.min], pa.timestamp("us")),
        "z": pa.array([datetime.datetime(1880, 1, 31, tzinfo=utc), None, None], pa.timestamp("us", "Europe/Berlin")),
        "c": pa.array(["b", None, ""]).dictionary_encode(),
        "s": pa.array([None, "", "x"], pa.string_view()),
        "o": pa.array([datetime.time(23, 59, 59, 7), None, datetime.time(0)], pa.time64("us")),
        "nothing": pa.nulls(3),
        "j": pa.array(['{"a": 1}', None, "[]"], pa.json_()),
    })  # fmt: skip
    with pa.ipc.new_file(tmp_path / "a.arrow", content.schema) as writer:
        writer.write_table(content)
    found = converted(tmp_path / "a.arrow", tmp_path / "b.csv").read_text()
    assert found == (
        "id,f,f4,d,t,z,c,s,o,nothing,j\n"
        '0,0.1,0.1,0.0000001,2024-01-31 09:30:00.000005,1880-01-31 00:00:00.000000Z,b,,23:59:59.000007,,"{""a"": 1}"\n'
        '1,,1e-20,,,,,"",,,\n'
        '2,-0.0,3.0,-1.5000000,0001-01-01 00:00:00.000000,,"",x,00:00:00.000000,,[]\n'
    )


def test_what_cannot_be_converted_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    content = pa.table({
        "k": [1, 2], "b": [b"x", b"y"], "far": pa.array([0, 2932897], pa.date32()), "s": ["", None],
        "split": ["a\tb", "c"], "a\tb": [1, 2],
    })  # fmt: skip
    pq.write_table(content, tmp_path / "a.parquet")
    (tmp_path / "latin.csv").write_bytes(b"k,v\n1,a\n2,\xe9\n")
    (tmp_path / "names.csv").write_bytes(b"k,v,v\n1,2,3\n")
    (tmp_path / "odd.csv").write_bytes(b"k,\xe9\n1,2\n")

    def refused(message: str, name: str, target: str, **options: Any) -> None:
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(ConfigError, match=message):
            converted(tmp_path / name, tmp_path / target, "k", **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    refused("column 'b' is binary, which CSV has no text for", "a.parquet", "o.csv", columns=["k", "b"])
    refused("row 2 of .*a.parquet has in column 'far' a date or time", "a.parquet", "o.csv", columns=["k", "far"])
    refused("column 's' .* TSV without quotes cannot tell apart", "a.parquet", "o.tsv", columns=["k", "s"])
    refused("row 1 of .* in column 'split' a separator", "a.parquet", "o.tsv", columns=["k", "split"])
    refused(r"the name 'a\\tb' has a separator", "a.parquet", "o.tsv", columns=["k", "a\tb"])
    refused("is not the name of a table; give it a suffix of .parquet", "a.parquet", "o.txt")
    refused("`header=` are for text", "a.parquet", "o.parquet", quote="double")
    refused("row 2 of .*latin.csv has a value in column 'v' that is not UTF-8", "latin.csv", "o.parquet")
    refused("'v' of .*names.csv is the name of several columns", "names.csv", "o.parquet")
    refused(r"is a name of a column that is not UTF-8", "odd.csv", "o.arrow")
    refused("`compression='lzma'` is unknown to o.arrow", "latin.csv", "o.arrow", columns=["k"], compression="lzma")
    one = converted(tmp_path / "a.parquet", tmp_path / "s.parquet", "k", columns=["s", "k"])
    with pytest.raises(ConfigError, match="CSV of one column cannot tell apart"):
        sort_file(one, tmp_path / "o.csv", key="s", columns=["s"], memory=MEMORY)
