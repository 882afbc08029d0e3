"""Folders and files with names that mean something to somebody else: as addresses, or that are not text at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tartan
from tartan.cli.shared.pairs_file import read_pairs
from tartan.sort import sort_file

NAMES = [b"exp:1", b"file:run", b"s3:run", b"a b\n", b"\xff"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names are those that are mistaken."""
    monkeypatch.chdir(tmp_path)


def distance(a: float, b: float) -> float:
    return abs(a - b)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", NAMES)
@pytest.mark.parametrize("reduce", [None, {"kind": "top-k", "k": 1}])
def test_runs(given: bytes, reduce: dict[str, object] | None) -> None:
    name = os.fsdecode(given)
    tartan.allpairs(distance, [1.0, 2.0, 4.0], name, reduce=reduce, workers=1)
    run = tartan.open(name)
    assert (run.n_pairs_done, run.failures, list(run.keys)) == (3, [], ["0", "1", "2"])
    run.export(f"{name}.parquet")
    with open(f"{name}.parquet", "rb") as file:
        assert pq.read_table(file).num_rows == 3
    if reduce is None:
        run.export(f"{name}.parquet", sort=True, overwrite=True)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", NAMES)
def test_failures(given: bytes) -> None:
    def fails(a: float, b: float) -> float:
        return 1.0 / (a - 1) / (b - 1)

    name = os.fsdecode(given)
    tartan.allpairs(fails, [1.0, 2.0, 4.0], name, workers=1)
    assert len(tartan.open(name).failures) == 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", NAMES)
def test_tables_and_lists_of_pairs(given: bytes) -> None:
    table = pa.table({"i": [2, 0, 1], "j": [0, 1, 2]})
    for suffix in ("parquet", "arrow"):
        name = os.fsdecode(given) + f".{suffix}"
        with open(name, "wb") as file:
            if suffix == "parquet":
                pq.write_table(table, file)
            else:
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
        sort_file(name, f"sorted {name}", key="i")
    name = os.fsdecode(given) + ".parquet"
    np.testing.assert_array_equal(read_pairs(Path(f"sorted {name}"), "abc"), [[0, 1], [1, 2], [2, 0]])
    np.testing.assert_array_equal(read_pairs(Path(name), "abc"), [[2, 0], [0, 1], [1, 2]])
    name = os.fsdecode(given) + ".csv"
    Path(name).write_text("0,1\n", encoding="utf-8")
    np.testing.assert_array_equal(read_pairs(Path(name), "abc"), [[0, 1]])
