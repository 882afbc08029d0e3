"""The records of any range of rows are those of the whole, whoever makes them: what a rank reads of text and tables."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.cluster import wire
from tartan.errors import InputChangedError
from tartan.sort import spans
from tartan.sort.engine import SortOptions
from tartan.sort.quoted_names import split_names
from tartan.sort.ranks.reading import RowReader
from tartan.sort.recipes import RowsRecipe
from tartan.sort.spans import RowMarks
from tartan.sort.table_job import TableRequest, TableRun, parse_columns, table_run
from tartan.sort.text_job import TextRequest, sort_text

rng = np.random.default_rng(5)
N_LONG = 9000


class _StoppedError(Exception):
    """A sort is not to go on."""


def prepare_text(path: Path, target: str, **ways: Any) -> TableRun:
    found: list[TableRun] = []

    def keep(run: TableRun) -> Any:
        found.append(run)
        raise _StoppedError

    request = TextRequest([path], path.with_name(target), marked=True, **ways)
    with pytest.raises(_StoppedError):
        sort_text(request, options(path), keep, quiet=True)
    return found[0]


def prepare_table(path: Path, target: str, key: str, **ways: Any) -> TableRun:
    columns = parse_columns(split_names(key), descending=False, nulls_first=False)
    return table_run(TableRequest([path], path.with_name(target), columns, marked=True, **ways), options(path))


def options(path: Path) -> SortOptions:
    return SortOptions.read(memory="1GB", tmp=path.parent, pack="auto", threads=1, direct="auto")


def write_lines(path: Path) -> None:
    path.write_text("".join(f"{key} some words\n" for key in rng.integers(0, 10**6, 100_000)))


def write_csv(path: Path) -> None:
    """Rows with quoted line ends and separators, doubled quotes, quotes that are characters, and blank lines."""
    rows = ['{0},"a\n""{1}"", {0}",x\n', '{0},7" pipe,"\n\n"\n', "{0},,y\n\n", '"{0}","",""\n']
    texts = (
        rows[kind].format(key, "w" * int(length))
        for key, kind, length in zip(
            rng.integers(0, 10**5, N_LONG), rng.integers(0, 4, N_LONG), rng.integers(0, 900, N_LONG), strict=True
        )
    )
    path.write_text("key,text,rest\n" + "".join(texts))


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"".join(b"%d,b\n" % key for key in rng.integers(0, 999, 200_000).tolist()), 1))


def make_table(n: int) -> pa.Table:
    words = [None if length == 0 else "é" * length for length in rng.integers(0, 4, n).tolist()]
    return pa.table({
        "number": pa.array(rng.integers(0, 50, n) * -0.0 + rng.integers(0, 3, n)),
        "word": pa.array(words).dictionary_encode(),
        "date": pa.array(rng.integers(0, 9, n).tolist(), pa.date32()),
    })  # fmt: skip


def write_narrow(path: Path) -> None:
    pq.write_table(make_table(5000), path, row_group_size=700)


def write_wide(path: Path) -> None:
    table = make_table(3000)
    texts = ["z" * length for length in rng.integers(0, 600, 3000).tolist()]
    pq.write_table(table.append_column("long", pa.array(texts)), path, row_group_size=500)


CASES: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], TableRun]]] = {
    "lines": ("a.txt", write_lines, lambda path: prepare_text(path, "o.txt")),
    "csv": ("a.csv", write_csv, lambda path: prepare_text(path, "o.csv", key="key,text:desc")),
    "csv to parquet": ("a.csv", write_csv, lambda path: prepare_text(path, "o.parquet", key="key")),
    "no names, gzip": ("a.csv.gz", write_gzip, lambda path: prepare_text(path, "o.csv", key="1", header=False)),
    "parquet": ("a.parquet", write_narrow, lambda path: prepare_table(path, "o.parquet", "number,word")),
    "long rows of parquet": ("a.parquet", write_wide, lambda path: prepare_table(path, "o.parquet", "long,date")),
}


@pytest.mark.parametrize("case", list(CASES))
def test_ranges_of_records_are_those_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    name, write, prepare = CASES[case]
    path = tmp_path / name
    write(path)
    monkeypatch.setattr(spans, "LEAST_BATCHES", 1)
    monkeypatch.setattr(spans, "MOST_SPANS", 3)
    run = prepare(path)
    whole = np.concatenate([block.copy() for block in run.read_records()])
    assert len(whole) == run.n_records
    recipe = wire.decode(wire.encode(run.write_recipe()), RowsRecipe)
    reader = RowReader(recipe, [path], 2)
    for first, end in [(0, 0), (0, 1), (1, len(whole)), *np.sort(rng.integers(0, len(whole), (4, 2))).tolist()]:
        made = [block.copy() for block in reader.records(first, end - first)]
        assert b"".join(block.tobytes() for block in made) == whole[first:end].tobytes(), (first, end)
    with pytest.raises(InputChangedError, match=r"rows are missing"):
        list(reader.records(len(whole) - 1, 2))


def test_marks_of_many_batches_are_few_and_lose_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "LEAST_BATCHES", 1)
    monkeypatch.setattr(spans, "MOST_SPANS", 4)
    marks, lengths = RowMarks(), [rng.integers(0, 6, n) for n in rng.integers(0, 9, 37).tolist()]
    for number, some in enumerate(lengths):
        marks.add(some, 100 * number)
    found = marks.spans(lambda sizes, counts: int((sizes * counts).sum()))
    assert 1 < len(found) <= 4
    assert sum(total for *_, total in found) == sum(int(some.sum()) for some in lengths)
    rows = np.concatenate([[0], np.cumsum([len(some) for some in lengths])])
    assert [rows[offset // 100] for _, offset, _ in found] == [first for first, *_ in found]
