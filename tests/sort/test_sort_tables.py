"""Parquet and Arrow files, sorted, against a slow sort of rows."""

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

import tartan
from tartan.cli.main import main
from tartan.errors import ConfigError, ItemError
from tartan.sort import sort_file
from tartan.sort.tables import TableSource

MEMORY = "8GB"  # of the whole process, which holds what other tests have left


def table(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 20, n)
    missing = rng.random(n) < 0.1
    return pa.table(
        {
            "row": pa.array(np.arange(n)),
            "group": pa.array(numbers, mask=missing),
            "name": pa.array(
                [None if m else f"name-{v % 7}" * (v % 3) for v, m in zip(numbers, missing, strict=True)], pa.string()
            ),
            "score": pa.array(rng.standard_normal(n).astype(np.float32)),
            "kind": pa.array([f"k{v % 4}" for v in numbers], pa.string()).dictionary_encode(),
        }
    )


def write(path: Path, content: pa.Table, **options: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(content, path, **options)
    else:
        with pa.ipc.new_file(path, content.schema) as writer:
            for batch in content.to_batches(max_chunksize=100):
                writer.write_batch(batch)
    return path


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


def expected(content: pa.Table, *key: tuple[str, str], nulls_first: bool = False) -> list[dict[str, Any]]:
    """Sort the slow way; rows of equal keys stay in order."""
    rows: list[dict[str, Any]] = content.to_pylist()
    for name, direction in reversed(key):
        there = [row for row in rows if row[name] is not None]
        there.sort(key=lambda row: row[name], reverse=direction == "descending")
        nulls = [row for row in rows if row[name] is None]
        rows = nulls + there if nulls_first else there + nulls
    return rows


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("score", [("score", "ascending")]),
        ("group:desc,name", [("group", "descending"), ("name", "ascending")]),
        ("name:desc,score:desc", [("name", "descending"), ("score", "descending")]),
    ],
)
@pytest.mark.parametrize("nulls", ["last", "first"])
def test_rows_keep_together(suffix: str, key: str, order: list[Any], nulls: str, tmp_path: Path) -> None:
    content = table(1000)
    source = write(tmp_path / f"in{suffix}", content)
    result = sort_file(source, tmp_path / f"out{suffix}", key=key, nulls=nulls, memory=MEMORY)  # type: ignore[arg-type]
    found = read(tmp_path / f"out{suffix}")
    assert found.to_pylist() == expected(content, *order, nulls_first=nulls == "first")
    assert found.schema.names == content.schema.names
    assert suffix == ".arrow" or found.schema == content.schema
    assert result.n_records == 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, f"out{suffix}"])


def test_a_column_of_numbers_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal(5000)
    values[:4] = np.nan, -0.0, 0.0, -np.inf
    source = write(tmp_path / "in.parquet", pa.table({"x": values}), row_group_size=700)
    sort_file(source, tmp_path / "out.parquet", descending=True, memory=MEMORY)
    found = read(tmp_path / "out.parquet")["x"].to_numpy()
    np.testing.assert_array_equal(found, np.concatenate([np.sort(values[1:])[::-1], [np.nan]]))


@pytest.mark.slow
def test_texts_that_a_file_repeats_are_read_in_parts_of_bounded_size(tmp_path: Path) -> None:
    texts = pa.array([None, *["a" * 2000] * 20_000])
    path = write(tmp_path / "a.parquet", pa.table({"text": texts, "k": range(20_001)}), compression="zstd")
    assert path.stat().st_size < 300_000
    batches = list(TableSource(path).batches())
    assert max(batch.nbytes for batch in batches) <= 32 << 20
    assert pa.Table.from_batches(batches)["text"].combine_chunks().equals(texts)


def test_several_files_and_chosen_columns(tmp_path: Path) -> None:
    contents = [table(300, seed) for seed in range(3)]
    for number, content in enumerate(contents):
        write(tmp_path / f"in-{number}.parquet", content)
    words = [str(tmp_path / "in-*.parquet"), str(tmp_path / "out.arrow"), "--key", "score", "--columns", "score,row"]
    assert main(["sort", *words, "--memory", MEMORY, "--quiet"]) == 0
    found = read(tmp_path / "out.arrow")
    whole = pa.concat_tables(contents).select(["score", "row"])
    assert found.to_pylist() == expected(whole, ("score", "ascending"))


def test_in_place_and_compression(tmp_path: Path) -> None:
    content = table(400)
    path = write(tmp_path / "in.parquet", content, compression="zstd")
    sort_file(path, key="score", in_place=True, memory=MEMORY)
    assert read(path).to_pylist() == expected(content, ("score", "ascending"))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    sort_file(path, tmp_path / "out.parquet", key="row", compression="none", memory=MEMORY)
    assert read(tmp_path / "out.parquet").to_pylist() == content.to_pylist()
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.row_group(0).column(0).compression == "UNCOMPRESSED"


@pytest.mark.parametrize("n", [0, 1])
def test_next_to_nothing(n: int, tmp_path: Path) -> None:
    for suffix in (".parquet", ".arrow"):
        content = table(n)
        sort_file(write(tmp_path / f"in{suffix}", content), tmp_path / f"out{suffix}", key="name", memory=MEMORY)
        assert read(tmp_path / f"out{suffix}").to_pylist() == content.to_pylist()


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from small_layouts import aborting
from tartan.sort import sort_file
from tartan.sort.tables import TableSource
with aborting(**json.loads(sys.argv[2])):
    result = sort_file(sys.argv[3], sys.argv[4], key="score", memory=sys.argv[5])
print(result.peak_rss_bytes, result.run_files, result.run_files_adopted)
"""


def sort_in_process(source: Path, target: Path, memory: str, **after: int) -> subprocess.CompletedProcess[str]:
    """Sort in a process of its own, which prints what it took and adopted, or dies ``after`` that many run files."""
    path = str(Path(tartan.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), json.dumps(after), str(source), str(target), memory],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=250,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_the_promise_of_memory_and_resume(tmp_path: Path) -> None:
    n = 10_000_000
    rng = np.random.default_rng(4)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    schema = pa.schema([("row", pa.int64()), ("score", pa.float64())])
    with pq.ParquetWriter(source, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, n, 1 << 20):
            count = min(1 << 20, n - start)
            writer.write_table(pa.table([np.arange(start, start + count), rng.standard_normal(count)], schema=schema))
    killed = sort_in_process(source, target, "320MB", runs=2)
    assert killed.returncode == -6
    assert not target.exists()
    done = sort_in_process(source, target, "320MB")
    assert done.returncode == 0, done.stderr
    peak, runs, adopted = map(int, done.stdout.split())
    assert peak <= 320 * 10**6
    assert runs > 2
    assert adopted >= 2
    last, rows = -np.inf, 0
    for batch in pq.ParquetFile(target).iter_batches(1 << 20):
        scores, rows = batch["score"].to_numpy(), rows + int(batch["row"].to_numpy().sum())
        assert scores[0] >= last
        assert (np.diff(scores) >= 0).all()
        last = scores[-1]
    assert rows == n * (n - 1) // 2


@pytest.mark.slow
def test_what_cannot_be_sorted_is_said(tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", table(10))
    target = tmp_path / "out.parquet"

    def refused(message: str, *paths: Path, to: Path = target, **options: Any) -> None:
        with pytest.raises((ConfigError, ItemError), match=message):
            sort_file(paths or source, to, **{"key": "score", "memory": MEMORY, **options})

    refused("there is no column 'other'", key="other")
    refused("has no column 'other'; there are row", columns=["other"])
    refused("name the columns to sort by", key=None)
    refused("empty part", key="score,,row")
    refused("300 MB is the least", memory="200MB")
    refused("is not the name of a table", to=tmp_path / "out.bin")
    refused("hold their types themselves", dtype="int64")
    refused("'middle' is unknown; choose last or first", nulls="middle")
    refused(
        "'snappy'` is unknown to out.arrow; there are none, lz4, zstd", to=tmp_path / "out.arrow", compression="snappy"
    )
    (tmp_path / "raw.bin").write_bytes(bytes(16))
    refused("sort files of one kind", source, tmp_path / "raw.bin")
    refused("is source and destination", to=source)
    deep = write(tmp_path / "deep.parquet", pa.table({"score": [1.0], "deep": [[1, 2]]}))
    refused("column 'deep' is list", deep)
    refused(r"has the columns score, deep, but .* has row", source, deep)
    other = write(tmp_path / "other.parquet", table(10).set_column(3, "score", pa.array(np.arange(10))))
    refused("column 'score' is int64 in .* and float in", source, other)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    refused(r"bad.parquet cannot be read as parquet", tmp_path / "bad.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    refused(r"pipe.parquet is not a regular file", tmp_path / "pipe.parquet")
    refused(r"nowhere.parquet", tmp_path / "nowhere.parquet")
    assert not target.exists()
