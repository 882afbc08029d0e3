"""Parquet files of which the pages, and not the row groups, must fit the memory; and files with columns of no type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.errors import ConfigError
from tartan.sort import sort_file
from tartan.sort.parquet_pages import measure_reading
from tartan.sort.tables import TableSource, common_schema

MB = 10**6


def write_wide(path: Path, n_rows: int, group_rows: int, **ways: Any) -> None:
    """Write 60 columns of numbers, 19 of short texts and one of long ones."""
    rng = np.random.default_rng(3)
    text = rng.integers(97, 123, 1 << 16, np.uint8).tobytes().decode()
    writer = None
    for start in range(0, n_rows, group_rows):
        n = min(group_rows, n_rows - start)
        columns: dict[str, Any] = {"key": rng.integers(0, n_rows // 4, n), "row": np.arange(start, start + n)}
        columns |= {f"f{number}": rng.random(n) for number in range(58)}
        for number in range(20):
            begins, lengths = rng.integers(0, 60_000, n), rng.integers(5, 2000 if number == 19 else 40, n)
            columns[f"t{number}"] = [text[begin : begin + length] for begin, length in zip(begins, lengths)]
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False, **ways)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measure(path: Path, names: list[str]) -> dict[str, int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return measure_reading(descriptor, pq.read_metadata(path), names, 1 << 16)
    finally:
        os.close(descriptor)


def test_a_column_takes_its_largest_page(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(200_000)
    table = pa.table({"small": values, "large": values, "text": ["some text"] * 200_000})
    for name, page in (("small", 1 << 16), ("large", 1 << 24)):
        ways: dict[str, Any] = {"data_page_size": page, "max_rows_per_page": 1 << 20, "use_dictionary": ["text"]}
        pq.write_table(table, tmp_path / name, compression="none", **ways)
    small, large = (measure(tmp_path / name, table.schema.names) for name in ("small", "large"))
    assert small["small"] < 400_000, "what is read at once, and pages"
    assert large["large"] > 1_600_000, "a page is as long as the row group"
    assert small["text"] < 200_000, "the dictionary has one text"


def test_what_is_no_header_of_a_page_counts_as_the_whole_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.arange(1000)}), path, compression="none", use_dictionary=False)
    about = pq.read_metadata(path)
    chunk = about.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset : chunk.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(data)
    assert measure(path, ["a"])["a"] == chunk.total_compressed_size + chunk.total_uncompressed_size


@pytest.mark.parametrize("first", [0, 1, 700, 1999, 2000])
def test_columns_that_are_read_from_temporary_files_are_the_same(tmp_path: Path, first: int) -> None:
    write_wide(tmp_path / "a.parquet", 2000, 600)
    source = TableSource(tmp_path / "a.parquet", batch_bytes=1 << 18)
    wanted = ["t3", "key", "f7", "t19"]
    plain = list(source.batches(first, wanted))
    (tmp_path / "spool").mkdir()
    before = source.reading_bytes
    source.repage(tmp_path / "spool", 1 << 20)
    assert len(list((tmp_path / "spool").iterdir())) > 3, "a few columns at a time"
    assert source.reading_bytes < before
    schema = pa.schema([source.schema.field(name) for name in wanted])
    found = pa.Table.from_batches(source.batches(first, wanted), schema)
    assert found.equals(pa.Table.from_batches(plain, schema))
    assert found.num_rows == 2000 - first


@pytest.mark.parametrize("first", [0, 999, 1500, 2999])
def test_dictionaries_that_end_with_row_groups_stay_in_their_rows(tmp_path: Path, first: int) -> None:
    place = np.arange(3000)
    named = pa.array([f"q{number}" for number in place % 40 + place // 500]).dictionary_encode()
    table = pa.table({"key": place, "named": named, "text": [f"t{number}" for number in place]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1100)
    source = TableSource(tmp_path / "a.parquet", batch_bytes=5000)
    (tmp_path / "spool").mkdir()
    source.repage(tmp_path / "spool", 1)
    assert len(list((tmp_path / "spool").iterdir())) == 3
    rows = [row for batch in source.batches(first) for row in batch.to_pylist()]
    assert rows == table.slice(first).to_pylist()


def sort_apart(*words: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tartan.cli.main", "sort", *map(str, words), "--json", "-q"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    about: dict[str, Any] = json.loads(ran.stdout)
    return about


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", [1 << 20, 1 << 26])
def test_many_columns_in_the_least_memory(tmp_path: Path, page: int) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_wide(source, 100_000, 100_000, data_page_size=page, max_rows_per_page=1 << 20)
    about = sort_apart(source, target, "--key", "key", "--memory", "300MB")
    assert about["peak_rss_bytes"] <= 300 * MB
    assert about["run_files"] > 2
    table = pq.read_table(source)
    order = np.argsort(table["key"].to_numpy(), kind="stable")
    assert pq.read_table(target).equals(table.take(order))
    about = sort_apart(source, tmp_path / "top.parquet", "--key", "key", "--memory", "300MB", "--top", 100)
    assert about["peak_rss_bytes"] <= 300 * MB
    assert about["run_files"] == 0
    assert pq.read_table(tmp_path / "top.parquet").equals(table.take(order[:100]))
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "b.parquet", "top.parquet"}


def test_a_column_without_a_type_has_that_of_the_other_files(tmp_path: Path) -> None:
    tables = [
        pa.table({"id": pa.nulls(2), "name": ["b", "a"]}),
        pa.table({"id": pa.array([3, 1], pa.int32()), "name": pa.nulls(2)}),
        pa.table({"id": pa.array([2], pa.int32()), "name": ["c"]}),
    ]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    sort_file(tmp_path / "*.parquet", tmp_path / "out.arrow", key="name:desc,id", memory="1GB", quiet=True)
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        found = file.read_all()
    assert found.schema.field("id").type == pa.int32()
    assert found.to_pydict() == {"id": [2, None, None, 1, 3], "name": ["c", "b", "a", None, None]}
    pq.write_table(pa.table({"id": ["x"], "name": ["c"]}), tmp_path / "3.parquet")
    with pytest.raises(ConfigError, match=r"'id' is string in .*3\.parquet and int32 in .*1\.parquet"):
        sort_file(tmp_path / "?.parquet", tmp_path / "no.arrow", key="name", memory="1GB", quiet=True)


def test_a_column_may_be_null_if_it_may_in_one_of_the_files(tmp_path: Path) -> None:
    for name, nullable, values in (("a", False, [2, 1]), ("b", True, [None, 0])):
        schema = pa.schema([pa.field("k", pa.int64(), nullable=nullable), ("v", pa.string())])
        pq.write_table(pa.table([values, ["x", "y"]], schema=schema), tmp_path / f"{name}.parquet")
    sources = [TableSource(tmp_path / f"{name}.parquet") for name in "ab"]
    assert common_schema(sources).field("k").nullable
    sort_file(tmp_path / "[ab].parquet", tmp_path / "out.parquet", key="k", memory="1GB", quiet=True)
    assert pq.read_table(tmp_path / "out.parquet")["k"].to_pylist() == [0, 1, 2, None]
