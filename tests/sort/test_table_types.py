"""Columns of every type that programs write: what is read is written, value for value, or refused before that."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.errors import ConfigError
from tartan.sort import sort_file
from tartan.sort.categories import Categories

MEMORY = "8GB"  # of the whole process, which holds what other tests have left


def write(path: Path, content: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(content, path, row_group_size=4)
    else:
        with pa.ipc.new_file(path, content.schema) as writer:
            writer.write_table(content.combine_chunks(), max_chunksize=1000)
    return path


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path, coerce_int96_timestamp_unit="us")
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


def bits(column: pa.ChunkedArray) -> list[Any]:
    """Return values so that they are equal only if they are the same: NaN and zeros by their bits."""
    return [value for chunk in column.chunks for value in _bits(chunk)]


def _bits(array: pa.Array) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        return _bits(array.storage)
    if pa.types.is_dictionary(array.type):
        values = [*_bits(array.dictionary), None]
        return [values[-1 if index is None else index] for index in array.indices.to_pylist()]
    if pa.types.is_floating(array.type):
        return array.view(pa.binary(array.type.bit_width // 8)).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_temporal(array.type):
        return array.view(pa.int64() if array.type.bit_width == 64 else pa.int32()).to_pylist()  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def check(source: Path, target: Path, key: str, order: list[int]) -> None:
    """Sort; the rows that come out are those of ``order``."""
    content = read(source)
    sort_file(source, target, key=key, memory=MEMORY, overwrite=True)
    found = read(target)
    assert found.schema.equals(content.schema, check_metadata=True)
    for name in content.schema.names:
        there = bits(content[name])
        assert bits(found[name]) == [there[row] for row in order], name
        if pa.types.is_dictionary(content[name].type):
            before, after = (table[name].chunk(0).dictionary.to_pylist() for table in (content, found))
            assert after[: len(before)] == before, "the order of the categories is that of the first dictionary"


D = decimal.Decimal
MOMENTS = [2**62, -(2**62), 0, None, 1]
VALUES: dict[str, pa.Array] = {
    **{str(kind): pa.array([1, 0, None, 100, 5], kind) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16())},
    "int64": pa.array([2**63 - 1, -(2**63), None, 0, 5]),
    "uint64": pa.array([2**64 - 1, 0, None, 2**63, 5], pa.uint64()),
    **{
        str(kind): pa.array(np.array([np.nan, -0.0, 0.0, np.inf, 1.5]).astype(kind.to_pandas_dtype()), kind)
        for kind in (pa.float16(), pa.float32(), pa.float64())
    },
    "nan of two signs": pa.array(np.array([0x7FF8000000000000, 0xFFF8000000000001, 0, 1, 2], "u8").view("f8")),
    "bool": pa.array([True, None, False, True, True]),
    "null": pa.nulls(5),
    "decimal32": pa.array([D("1.10"), D("-9.99"), None, D(0), D(5)], pa.decimal32(5, 2)),
    "decimal64": pa.array([D("1.10"), D("-9.99"), None, D(0), D(5)], pa.decimal64(15, 2)),
    "decimal128": pa.array([D("9" * 36 + ".99"), D("-" + "9" * 36), None, D(0), D(5)], pa.decimal128(38, 2)),
    "decimal256": pa.array([D("9" * 70), D("-" + "9" * 70), None, D(0), D(5)], pa.decimal256(76, 2)),
    "date32": pa.array([2**31 - 1, -(2**31), None, 0, 5], pa.int32()).cast(pa.date32()),
    "date64": pa.array([86400000 * 10**6, -86400000, None, 0, 86400000], pa.int64()).cast(pa.date64()),
    "time32": pa.array([1, 86399, None, 0, 5], pa.time32("s")),
    "time64": pa.array([1, 86399 * 10**9, None, 0, 5], pa.time64("ns")),
    **{f"timestamp {unit}": pa.array(MOMENTS, pa.timestamp(unit)) for unit in ("ms", "us", "ns")},
    "timestamp of a zone": pa.array(MOMENTS, pa.timestamp("us", "Europe/Berlin")),
    **{f"duration {unit}": pa.array(MOMENTS, pa.duration(unit)) for unit in ("s", "ns")},
    **{
        f"{kind}": pa.array(["b\0", "", None, "日本", "b"], kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    **{
        f"{kind}": pa.array([b"b\0", b"", None, b"\xff", b"b"], kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))
        if kind != pa.binary(2)
    },
    "fixed": pa.array([b"ab", b"\0\0", None, b"\xff\0", b"  "], pa.binary(2)),
    "uuid": pa.array([uuid.UUID(int=n).bytes for n in (3, 1, 2, 0, 5)], pa.uuid()),
    "json": pa.array(['{"a": 1}', "[]", None, "1", "2"], pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None, 2, 1], pa.int8())),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1, 2], pa.int8()), ["z", "a", "m", "never"]),
    "ordered": pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1, 2], pa.int8()), ["lo", "mid", "hi", "never"], ordered=True
    ),
}


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.replace(" ", "-"))
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_columns_that_are_carried(kind: str, suffix: str, tmp_path: Path) -> None:
    values = VALUES[kind]
    field = pa.field("v", values.type, metadata={"unit": "m"})
    schema = pa.schema([field, pa.field("row", pa.int8(), nullable=False)], metadata={"origin": "station 7"})
    source = write(tmp_path / f"in{suffix}", pa.table([values, pa.array(range(5), pa.int8())], schema=schema))
    check(source, tmp_path / f"out{suffix}", "row:desc", [4, 3, 2, 1, 0])


DICTIONARIES = {
    "numbers": pa.array([5, 3, 4], pa.int16()),
    "floats": pa.array([-0.0, 0.0, np.nan]),
    "dates": pa.array([5, 3, 4], pa.int32()).cast(pa.date32()),
    "decimals": pa.array([D("5.5"), D(3), D(4)], pa.decimal128(5, 1)),
    "views": pa.array(["z", "a", "m"], pa.string_view()),
    "bytes": pa.array([b"z", b"a", b"m"], pa.binary()),
    "bools": pa.array([True, False]),
    "a value that is missing": pa.array(["z", None, "m"]),
}


@pytest.mark.parametrize("kind", DICTIONARIES, ids=lambda kind: kind.replace(" ", "-"))
def test_dictionaries_of_all_kinds(kind: str, tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1, 0], pa.int8()), DICTIONARIES[kind])
    source = write(tmp_path / "in.arrow", pa.table({"v": values, "row": range(5)}))
    sort_file(source, tmp_path / "out.arrow", key="row:desc", memory=MEMORY)
    content, found = read(source), read(tmp_path / "out.arrow")
    assert found.schema == content.schema
    assert bits(found["v"]) == bits(content["v"])[::-1]


@pytest.mark.parametrize("kind", [*VALUES, *DICTIONARIES], ids=lambda kind: kind.replace(" ", "-"))
def test_what_arrow_holds_in_parquet(kind: str, tmp_path: Path) -> None:
    values = VALUES.get(kind)
    if values is None:
        values = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1, 0], pa.int8()), DICTIONARIES[kind])
    source = write(tmp_path / "in.arrow", pa.table({"v": values, "row": range(5)}))
    if kind in ("date64", "time32"):
        with pytest.raises(ConfigError, match=r"column 'v' is .* which Parquet holds as"):
            sort_file(source, tmp_path / "out.parquet", key="row:desc", memory=MEMORY)
        assert [path.name for path in tmp_path.iterdir()] == ["in.arrow"]
        return
    sort_file(source, tmp_path / "out.parquet", key="row:desc", memory=MEMORY)
    content, found = read(source), read(tmp_path / "out.parquet")
    assert bits(found["v"]) == bits(content["v"])[::-1]
    if kind not in DICTIONARIES:
        assert found.schema.field("v").type == values.type
    elif kind in ("views", "bytes", "a value that is missing"):
        assert pa.types.is_dictionary(found.schema.field("v").type)


def test_keys_of_dictionaries(tmp_path: Path) -> None:
    names = ["lo", "mid", "hi", "never"]
    for ordered, order in ((True, [2, 4, 0, 1, 3]), (False, [1, 2, 4, 0, 3])):
        values = pa.DictionaryArray.from_arrays(pa.array([1, 2, 0, None, 0], pa.int8()), names, ordered=ordered)
        for suffix in (".parquet", ".arrow"):
            source = write(tmp_path / f"in{suffix}", pa.table({"v": values, "row": range(5)}))
            check(source, tmp_path / f"out{suffix}", "v", order)
    floats = pa.array([1.5, -0.0]).dictionary_encode()
    source = write(tmp_path / "f.arrow", pa.table({"v": floats}))
    with pytest.raises(ConfigError, match="'v' is a dictionary of floats"):
        sort_file(source, tmp_path / "out.arrow", key="v", memory=MEMORY, overwrite=True)


def test_dictionaries_of_several_files_become_one(tmp_path: Path) -> None:
    contents = [["z", "a"], ["m", "z", "unused"]]
    for number, names in enumerate(contents):
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), names)
        write(tmp_path / f"{number}.parquet", pa.table({"v": values}))
    sort_file(f"{tmp_path}/?.parquet", tmp_path / "out.parquet", key="v", memory=MEMORY)
    found = read(tmp_path / "out.parquet")["v"]
    assert found.to_pylist() == ["a", "m", "z", "z", None, None]
    assert found.chunk(0).dictionary.to_pylist() == ["z", "a", "m", "unused"]
    many = (
        pa.array([f"{number}" for number in range(300)])
        .dictionary_encode()
        .cast(pa.dictionary(pa.int16(), pa.string()))
    )
    narrow = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["x"])
    categories = Categories("v", narrow.type, 1 << 20)
    for column in (narrow, many):
        categories.add(column, "a file")
    assert categories.type == pa.dictionary(pa.int32(), pa.string())


def ordered(*names: str) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), list(names), ordered=True)


def test_orders_of_categories_must_agree() -> None:
    categories = Categories("v", ordered("a").type, 1 << 20)
    for column in (ordered("lo", "hi"), ordered("lo", "mid", "hi"), ordered("mid", "hi")):
        categories.add(column, "b.parquet")
    assert categories.column(np.array([0, 1, 2], np.uint32), None).to_pylist() == ["lo", "mid", "hi"]
    with pytest.raises(ConfigError, match=r"'v' has ordered categories, which are \['hi', 'lo'\] in c.parquet and"):
        categories.add(ordered("hi", "lo"), "c.parquet")
    small = Categories("v", pa.dictionary(pa.int8(), pa.string()), 10)
    with pytest.raises(ConfigError, match="the categories of column 'v' take more than 10 B"):
        small.add(pa.array(["a long category"]).dictionary_encode(), "d.parquet")


REFUSED: dict[str, pa.Array] = {
    "list": pa.array([[1], None]),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]),
    "list view": pa.array([[1], None], pa.list_view(pa.int8())),
}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.replace(" ", "-"))
def test_columns_that_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.arrow", pa.table({"deep": REFUSED[kind], "row": [1, 0]}))
    with pytest.raises(ConfigError, match=r"column 'deep' is .*leave it out with `columns=`"):
        sort_file(source, tmp_path / "out.arrow", key="row", memory=MEMORY)
    assert [path.name for path in tmp_path.iterdir()] == ["in.arrow"]
    sort_file(source, tmp_path / "out.arrow", key="row", columns=["row"], memory=MEMORY)
    assert read(tmp_path / "out.arrow")["row"].to_pylist() == [0, 1]


def int96(path: Path, *moments: int, unit: str = "us", name: str = "ts") -> Path:
    """Write dates as Spark does."""
    content = pa.table({name: pa.array([*moments, None], pa.timestamp(unit)), "i": range(len(moments) + 1)})
    pq.write_table(content, path, use_deprecated_int96_timestamps=True)
    return path


YEAR_9999, YEAR_1 = 253402214400 * 10**6, -62135596800 * 10**6
NANO = 1577934245123456789


def test_int96_holds_what_spark_writes(tmp_path: Path) -> None:
    source = int96(tmp_path / "a.parquet", YEAR_9999, 5, YEAR_1)
    sort_file(source, tmp_path / "o.parquet", key="ts", memory=MEMORY)
    found = read(tmp_path / "o.parquet")
    assert found["ts"].cast(pa.int64()).to_pylist() == [YEAR_1, 5, YEAR_9999, None]
    assert found["i"].to_pylist() == [2, 1, 0, 3]
    sort_file(int96(tmp_path / "n.parquet", NANO, 1, unit="ns"), tmp_path / "m.parquet", key="ts", memory=MEMORY)
    assert pq.read_table(tmp_path / "m.parquet")["ts"].cast(pa.int64()).to_pylist() == [1, NANO, None]


def test_int96_of_several_files_has_one_unit(tmp_path: Path) -> None:
    int96(tmp_path / "in-1.parquet", 7)
    int96(tmp_path / "in-2.parquet", YEAR_9999)
    sort_file(f"{tmp_path}/in-*", tmp_path / "o.parquet", key="ts", memory=MEMORY)
    assert read(tmp_path / "o.parquet")["ts"].cast(pa.int64()).to_pylist() == [7, YEAR_9999, None, None]
    int96(tmp_path / "in-3.parquet", NANO, unit="ns")
    with pytest.raises(
        ConfigError, match=r"'ts' of .*2.parquet has INT96 dates outside .* 'ts' of .*3.parquet some with"
    ):
        sort_file(f"{tmp_path}/in-*", tmp_path / "p.parquet", key="ts", memory=MEMORY)
    sort_file(f"{tmp_path}/in-*", tmp_path / "p.parquet", key="i", columns=["i"], memory=MEMORY)


def pandas_files(folder: Path) -> None:
    import pandas as pd

    day = pd.Timestamp("2020-01-02", tz="Europe/Berlin")
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["lo", "hi", None], categories=["lo", "mid", "hi"], ordered=True),
            "u": pd.Categorical(["z", "a", "z"]),
            "n": [None, None, None],
            "i": pd.array([2**62 + 1, None, 3], dtype="Int64"),
            "s": pd.array(["é", None, ""], dtype="string"),
            "t": [day, pd.NaT, day],
            "d": pd.to_timedelta([1, 2, None], "ns"),
            "b": pd.array([True, None, False], dtype="boolean"),
            "f": [1.5, np.nan, -0.0],
            "k": [3, 1, 2],
        },
        index=pd.Index([10, 20, 30], name="place"),
    )
    frame.to_parquet(folder / "frame.parquet")
    frame.reset_index(drop=True).to_parquet(folder / "plain.parquet")


def polars_files(folder: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "c": pl.Series(["z", None, "a"], dtype=pl.Categorical),
            "e": pl.Series(["lo", "hi", None], dtype=pl.Enum(["lo", "mid", "hi"])),
            "n": pl.Series([None] * 3, dtype=pl.Null),
            "t": pl.Series([datetime.time(1), None, datetime.time(0)]),
            "d": pl.Series([datetime.timedelta(1), None, datetime.timedelta(0)]),
            "m": pl.Series([datetime.datetime(2020, 1, 1)] * 3, dtype=pl.Datetime("ns", "UTC")),
            "b": [b"\0", None, b""],
            "s": ["é", None, ""],
            "x": pl.Series([D("1.50"), None, D(0)], dtype=pl.Decimal(38, 2)),
            "u": pl.Series([2**64 - 1, None, 0], dtype=pl.UInt64),
            "k": [3, 1, 2],
        }
    )
    frame.write_parquet(folder / "frame.parquet", row_group_size=2)
    frame.write_ipc(folder / "frame.arrow")


def duckdb_files(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    columns = """(7 - i) % 3 as k, uuid() as u, i::hugeint as h, 'x' || i as s, ('z')::enum('z', 'x') as e, i > 1 as b,
        date '2020-01-01' + i::int as d, time '10:00:00' as t, timestamp '2020-01-01' as ts, timestamptz '2020-01-01' as
        tz, timestamp_ns '2020-01-01' as tn, 1.5::decimal(38, 2) as x, 2.5::float as f, null as n, '{}'::json as j,
        'ab'::blob as bl, 5::utinyint as ut, 18446744073709551615::ubigint as ub"""
    duckdb.sql(f"copy (select {columns} from range(3) r(i)) to '{folder / 'frame.parquet'}'")


@pytest.mark.parametrize("make", [pandas_files, polars_files, duckdb_files])
def test_what_other_programs_write(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    for source in sorted(tmp_path.iterdir()):
        keys = read(source)["k"].to_pylist()
        check(source, source.with_name(f"out{source.suffix}"), "k", sorted(range(len(keys)), key=keys.__getitem__))


def test_intervals_of_duckdb_are_refused_by_name(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    source = tmp_path / "iv.parquet"
    duckdb.sql(f"copy (select i as k, interval (i) day as iv from range(3) r(i)) to '{source}'")
    with pytest.raises(ConfigError, match=r"column 'iv' of .* is Interval in Parquet, which would be lost"):
        sort_file(source, tmp_path / "o.parquet", key="k", memory=MEMORY)
    assert sort_file(source, tmp_path / "o.parquet", key="k", columns=["k"], memory=MEMORY).n_records == 3


def test_metadata_that_is_wrong_about_nulls_is_an_error() -> None:
    from tartan.errors import ItemError
    from tartan.sort.columns import ColumnFacts, RowForm

    batch = pa.record_batch({"a": pa.array([1, None]), "b": pa.array(["x", None])})
    for schema, facts in (
        (batch.schema, [ColumnFacts(), ColumnFacts()]),
        (pa.schema([batch.schema[0]]), [ColumnFacts()]),
    ):
        with pytest.raises(ItemError, match="column 'a' has rows without a value"):
            RowForm(schema, facts).records(batch.select(schema.names))
