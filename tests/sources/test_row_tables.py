"""Rows of Parquet and Arrow tables, in the forms of pandas, polars, DuckDB, LanceDB and Hugging Face datasets."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tartan.errors import ConfigError
from tartan.sources.items import Source, open_source
from tartan.sources.rows import unpacked
from tartan.sources.rows.unpacked import StoredRows

ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
IDS = [f"doc{i}" for i in range(60)]


def lists(rows: Any = ROWS, kind: Any = None) -> pa.Array:
    """Return rows as lists of any length."""
    return pa.array([row.tolist() for row in rows], kind or pa.list_(pa.float32()))


def fixed(rows: np.ndarray = ROWS) -> pa.Array:
    """Return rows as lists of one length."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def write(path: Path, table: pa.Table, **ways: Any) -> str:
    """Write a table in the format that the suffix says."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, **ways)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, str(path), **ways)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, **ways)
    return str(path)


def opened(name: Any) -> StoredRows:
    """Open rows."""
    source: Source = open_source(name, rows=True)
    assert isinstance(source, StoredRows)
    return source


COLUMNS = {
    "list": lists(),
    "large list": lists(kind=pa.large_list(pa.float32())),
    "array": fixed(),
    "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [5]), fixed()),
}


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrows"])
@pytest.mark.parametrize("form", COLUMNS)
def test_a_column_of_lists_is_the_rows_and_id_their_names(tmp_path: Path, form: str, suffix: str) -> None:
    table = pa.table({"text": IDS[::-1], "id": IDS, "embedding": COLUMNS[form], "year": list(range(60))})
    ways = {".parquet": {"row_group_size": 7}, ".feather": {"chunksize": 7}, ".arrows": {"max_chunksize": 7}}
    source = opened(write(tmp_path / f"rows{suffix}", table, **ways[suffix]))
    assert source.shape == (60, 5)
    assert source.dtype == np.float32
    assert list(source.keys) == IDS
    np.testing.assert_array_equal(source.read_block(0, 60), ROWS)
    np.testing.assert_array_equal(source.read_block(13, 29), ROWS[13:29])
    np.testing.assert_array_equal(source.read(59), ROWS[59])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64"])
def test_values_keep_their_type(tmp_path: Path, dtype: str) -> None:
    rows = (ROWS * 10).astype(dtype)
    source = opened(write(tmp_path / "rows.parquet", pa.table({"v": fixed(rows)})))
    assert source.read_block(0, 60).dtype == rows.dtype
    np.testing.assert_array_equal(source.read_block(0, 60), rows)
    assert list(source.keys[:2]) == ["0", "1"]


def test_columns_of_numbers_are_positions(tmp_path: Path) -> None:
    columns: dict[str, Any] = {f"dim_{at}": ROWS[:, at] for at in range(5)}
    table = pa.table({"label": list(range(60)), **columns, "__index_level_0__": IDS})
    source = opened(write(tmp_path / "rows.parquet", table))
    np.testing.assert_array_equal(source.read_block(0, 60), ROWS)
    assert list(source.keys) == IDS, "pandas writes the index so"


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_columns_of_another_order_are_the_same_positions(tmp_path: Path, suffix: str) -> None:
    names = [f"dim_{i}" for i in (0, 1, 2, 9, 10)]
    columns = {name: ROWS[:, at] for at, name in enumerate(names)}
    write(tmp_path / f"s-0{suffix}", pa.table({**columns, "label": np.zeros(60)}))
    turned = pa.table({name: columns[name] for name in reversed(names)})
    write(tmp_path / f"s-1{suffix}", turned)
    for name in (str(tmp_path), str(tmp_path / "*")):
        rows = open_source(name, rows=True)
        rows.prepare()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(rows.read_block(0, 120), np.concatenate([ROWS, ROWS]))  # type: ignore[attr-defined]


def test_a_frame_of_pandas_is_read_as_it_was(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, index=IDS, columns=list(map(str, range(5))))
    frame.to_parquet(tmp_path / "wide.parquet")
    source = opened(str(tmp_path / "wide.parquet"))
    np.testing.assert_array_equal(source.read_block(0, 60), frame.to_numpy())
    assert list(source.keys) == IDS
    pandas.DataFrame({"name": IDS, "v": list(ROWS)}).to_parquet(tmp_path / "list.parquet")
    source = opened(tmp_path / "list.parquet")
    np.testing.assert_array_equal(source.read_block(0, 60), ROWS)
    assert list(source.keys) == IDS


def test_names_are_those_of_the_column_that_is_wanted(tmp_path: Path) -> None:
    table = pa.table({"id": ["same"] * 60, "url": IDS, "number": list(range(5, 65)), "v": lists()})
    source = opened(write(tmp_path / "rows.parquet", table))
    source.name_rows("url")
    assert list(source.keys) == IDS
    source.name_rows("number")
    assert source.keys[0] == "5"
    source.name_rows("numbers")
    assert source.keys[0] == "0"
    with pytest.raises(ConfigError, match="no column 'link' of texts or whole numbers; it has 'id', 'url', 'number'"):
        source.name_rows("link")


def test_columns_that_could_name_rows_are_offered(tmp_path: Path) -> None:
    name = write(
        tmp_path / "rows.parquet", pa.table({"vector": lists(), "doc": [f"doc {row}" for row in range(len(ROWS))]})
    )
    source = opened(name)
    assert source.say().endswith("; rows have numbers, `--keys COLUMN` names them (doc)")
    source.name_rows("doc")
    assert source.say().endswith("; names from 'doc'")
    source.name_rows("numbers")
    assert "names" not in source.say()


def test_the_column_behind_the_colon_is_meant(tmp_path: Path) -> None:
    name = write(tmp_path / "rows.parquet", pa.table({"title": lists(-ROWS), "body": lists()}))
    with pytest.raises(ConfigError, match=r"2 columns of lists of numbers, 'title', 'body'; name one.*parquet:title"):
        opened(name)
    source = opened(f"{name}:body")
    np.testing.assert_array_equal(source.read_block(0, 60), ROWS)
    assert source.describe()["patterns"] == [f"{name}:body"]
    with pytest.raises(ConfigError, match="no column 'head' of lists of numbers; it has 'title', 'body'"):
        opened(f"{name}:head")


def test_rows_travel_by_their_name(tmp_path: Path) -> None:
    table = pa.table({"id": IDS, "url": IDS[::-1], "a": lists(), "b": lists(-ROWS)})
    source = opened(write(tmp_path / "rows.parquet", table) + ":b")
    source.name_rows("url")
    there = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(there.read_block(3, 9), -ROWS[3:9])
    assert list(there.keys) == IDS[::-1]
    assert len(pickle.dumps(source)) < 500, "no row travels"


def spoiled(row: Any, *, at: int = 41) -> list[Any]:
    """Return rows, one of which is another."""
    rows: list[Any] = ROWS.tolist()
    rows[at] = row
    return rows


WRONG = {
    "another width": (
        pa.list_(pa.float32()),
        [1.0, 2.0],
        r"row 41 \(row group 5\) of column 'v' has 2 values.* row 5;",
    ),
    "no values": (pa.list_(pa.float32()), [], r"row 41 \(row group 5\) of column 'v' has 0 values"),
    "null": (pa.list_(pa.float32()), None, r"row 41 \(row group 5\) of column 'v' is null; .*notna"),
    "a null inside": (pa.list_(pa.float32()), [1, 2, None, 4, 5], r"row 41 .*has a null at position 2; fill it"),
    "a null inside an array": (pa.list_(pa.float32(), 5), [1, None, 3, 4, 5], "row 41 .*has a null at position 1"),
    "a null array": (pa.list_(pa.float32(), 5), None, r"rows.parquet: (row 41|behind row 40)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_row_that_is_none_is_named(tmp_path: Path, case: str) -> None:
    kind, row, said = WRONG[case]
    table = pa.table({"id": IDS, "v": pa.array(spoiled(row), kind)})
    source = opened(write(tmp_path / "rows.parquet", table, row_group_size=8))
    for _ in range(2):
        with pytest.raises(ConfigError, match=said):
            source.prepare()


def test_a_null_in_a_column_of_numbers_is_named(tmp_path: Path) -> None:
    table = pa.table({"x0": [1.0, 2.0, 3.0], "x1": [1.0, None, 3.0]})
    with pytest.raises(ConfigError, match="row 1 has a null in column 'x1'; fill it"):
        opened(write(tmp_path / "rows.parquet", table)).prepare()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([*IDS[:59], "doc7"], r"row 7 \(row group 0\) and row 59 \(row group 7\) have the same 'id', 'doc7'"),
        ([*IDS[:58], None, "x"], r"row 58 \(row group 7\) has no 'id'"),
        ([*IDS[:58], "", "x"], r"row 58 \(row group 7\) has an empty 'id'"),
    ],
)
def test_a_name_that_is_none_is_named(tmp_path: Path, names: list[Any], said: str) -> None:
    name = write(tmp_path / "rows.parquet", pa.table({"id": names, "v": lists()}), row_group_size=8)
    with pytest.raises(ConfigError, match=f"{said}.*--keys COLUMN.*--keys numbers"):
        list(opened(name).keys)


def test_a_table_without_rows_of_numbers_says_what_it_has(tmp_path: Path) -> None:
    name = write(tmp_path / "rows.parquet", pa.table({"id": IDS, "text": IDS}))
    with pytest.raises(
        ConfigError, match=r"no column of lists of numbers, and none of numbers; it has 'id \(string\)'"
    ):
        opened(name)
    name = write(tmp_path / "empty.parquet", pa.table({"v": pa.array([], pa.list_(pa.float32()))}))
    with pytest.raises(ConfigError, match="has no rows"):
        opened(name)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match=r"it is damaged.*write it again"):
        opened(str(path))


def test_a_full_disk_is_told_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(write(tmp_path / "rows.parquet", pa.table({"v": lists()})))
    monkeypatch.setattr(unpacked.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1199})())
    with pytest.raises(ConfigError, match=r"its rows take 1.20 kB unpacked, and .* set TMPDIR"):
        source.prepare()
