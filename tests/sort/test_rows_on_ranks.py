"""Rows of text and tables on several ranks: the bytes of a sort on one machine, nothing left behind, and resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ranks_crew import RankKilled, ThreadWays

from tartan.cluster.launch import ClusterTarget
from tartan.errors import ClusterError, ConfigError, ItemError
from tartan.sort import sort_file, table_job
from tartan.sort.ranks import request as ranks_request
from tartan.sort.result import SortResult

N = 30_000
WAYS = ThreadWays(ClusterTarget(n_local=4))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows, some of them long, where ranks are threads."""
    rng = np.random.default_rng(1)
    keys, words = rng.integers(0, N // 3, N).tolist(), rng.integers(0, 300, N).tolist()
    rows = (f"{key},{'x' * word},{place}\n" for place, (key, word) in enumerate(zip(keys, words, strict=True)))
    (tmp_path / "a.csv").write_text("key,text,place\n" + "".join(rows))
    pq.write_table(pyarrow.csv.read_csv(tmp_path / "a.csv"), tmp_path / "a.parquet", row_group_size=4000)
    use(monkeypatch, WAYS)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, ways: ThreadWays) -> None:
    def read(on: Any, *, target: Path, **others: Any) -> ThreadWays:
        return replace(ways, folders=(str(target.parent.resolve()),))

    monkeypatch.setattr(ranks_request, "read_ways", read)


def sort(source: Path, target: Path, **ways: Any) -> SortResult:
    return sort_file(source, target, memory="1GB", quiet=True, **ways)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("target", ["csv", "parquet"])
@pytest.mark.parametrize("ways", [{"key": "key:desc"}, {"key": "key", "unique": True}, {"key": "text,place:desc"}])
def test_the_bytes_are_those_of_one_machine(folder: Path, source: str, target: str, ways: dict[str, Any]) -> None:
    one, several = (folder / f"{name}.{target}" for name in ("one", "several"))
    here = sort(folder / source, one, **ways)
    there = sort(folder / source, several, on="local:4", **ways)
    assert several.read_bytes() == one.read_bytes()
    assert (there.n_records, there.path) == (here.n_records, several)
    assert there.ranks is not None
    assert there.ranks["n_ranks"] == 4
    assert {path.name for path in folder.iterdir()} == {"a.csv", "a.parquet", one.name, several.name}


def test_the_first_rows_need_no_ranks(folder: Path) -> None:
    result = sort(folder / "a.csv", folder / "top.csv", key="key,place", top=5, on="local:4")
    assert result.ranks is None
    assert (folder / "top.csv").read_text().count("\n") == 6


@pytest.mark.slow
@pytest.mark.parametrize("resume", [True, False])
def test_a_stopped_sort_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, resume: bool) -> None:
    def kill(sender: str, do: str) -> None:
        if do == "merged":
            raise RankKilled

    use(monkeypatch, replace(WAYS, posted=kill))
    with pytest.raises(ClusterError, match="no rank"):
        sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    assert not (folder / "out.csv").exists()
    use(monkeypatch, WAYS)
    result = sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4", resume=resume)
    assert (result.run_files_adopted > 0) == resume
    sort(folder / "a.csv", folder / "one.csv", key="key")
    assert (folder / "out.csv").read_bytes() == (folder / "one.csv").read_bytes()
    assert {path.name for path in folder.iterdir()} == {"a.csv", "a.parquet", "one.csv", "out.csv"}


def test_rows_of_other_sources_are_read_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(sender: str, do: str) -> None:
        raise RankKilled

    use(monkeypatch, replace(WAYS, posted=kill))
    with pytest.raises(ClusterError):
        sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    (folder / "a.csv").write_text("key,text,place\n2,b,0\n1,a,1\n")
    use(monkeypatch, WAYS)
    sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    assert (folder / "out.csv").read_text() == "key,text,place\n1,a,1\n2,b,0\n"
    assert {path.name for path in folder.iterdir()} == {"a.csv", "a.parquet", "out.csv"}


@pytest.mark.parametrize("rows", ["", "2,b,0\n", "2,b,0\n1,a,1\n"])
def test_ranks_may_be_more_than_rows(folder: Path, rows: str) -> None:
    (folder / "a.csv").write_text(f"key,text,place\n{rows}")
    result = sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    assert result.n_records == rows.count("\n")
    assert (folder / "out.csv").read_text().splitlines()[1:] == sorted(rows.splitlines())


@pytest.mark.slow
def test_a_rank_that_does_not_see_the_rows_merges_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sort(folder / "a.csv", folder / "one.csv", key="key")
    begun: list[tuple[str, str]] = []
    elsewhere = {"b": lambda name: folder / "nowhere" if name.endswith("a.csv") else Path(name)}
    use(monkeypatch, replace(WAYS, locate=elsewhere, posted=lambda sender, do: begun.append((sender, do))))
    result = sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    assert any("rank b does not see the sources, so it sorts nothing" in note for note in result.notes)
    assert {sender for sender, do in begun if do == "sorted"} == {"a", "c", "d"}
    assert (folder / "out.csv").read_bytes() == (folder / "one.csv").read_bytes()


def test_rows_that_no_rank_sees_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locate(name: str) -> Path:
        return folder / "nowhere" if name.endswith("a.csv") else Path(name)

    use(monkeypatch, replace(WAYS, locate=dict.fromkeys("abcd", locate)))
    with pytest.raises(ConfigError, match="no rank sees the sources"):
        sort(folder / "a.csv", folder / "out.csv", key="key", on="local:4")
    assert {path.name for path in folder.iterdir()} == {"a.csv", "a.parquet"}


@pytest.mark.slow
def test_a_rank_that_is_lost_costs_its_own_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sort(folder / "a.parquet", folder / "one.parquet", key="key")
    sorted_by: list[str] = []

    def kill(sender: str, do: str) -> None:
        if do == "sorted":
            if sender == "b" and "b" in sorted_by:
                raise RankKilled
            sorted_by.append(sender)

    use(monkeypatch, replace(WAYS, posted=kill))
    result = sort(folder / "a.parquet", folder / "out.parquet", key="key", on="local:4")
    assert result.ranks is not None
    assert len(result.ranks["lost"]) == 1
    assert sorted_by.count("b") == 1
    assert len(sorted_by) == 1 + 12  # three chunks of each rank, and that of b's which was told before
    assert (folder / "out.parquet").read_bytes() == (folder / "one.parquet").read_bytes()


def test_unequal_names_of_columns_are_refused_on_ranks(folder: Path) -> None:
    (folder / "b.csv").write_text("key,other\n1,2\n")
    with pytest.raises(ConfigError, match=r"b\.csv has the columns key, other, but .*a\.csv has key, text, place"):
        sort_file([folder / "a.csv", folder / "b.csv"], folder / "out.csv", key="key", quiet=True, on="local:4")


def test_a_table_of_other_types_is_refused_on_ranks(folder: Path) -> None:
    pq.write_table(pa.table({"key": ["1"], "text": ["x"], "place": [1]}), folder / "b.parquet")
    with pytest.raises(ConfigError, match=r"column 'key' is string in .*b\.parquet and int64 in .*a\.parquet"):
        sort_file(
            [folder / "a.parquet", folder / "b.parquet"], folder / "out.parquet", key="key", quiet=True, on="local:4"
        )


def test_a_row_group_that_is_not_what_the_file_says_ends_the_sort(folder: Path) -> None:
    path = folder / "n.parquet"
    pq.write_table(pa.table({"key": np.arange(4000)}), path, row_group_size=1000, compression="none")
    place = pq.read_metadata(path).row_group(2).column(0)
    begin = place.dictionary_page_offset or place.data_page_offset
    data = bytearray(path.read_bytes())
    data[begin : begin + 40] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(ItemError, match=r"n\.parquet cannot be read"):
        sort(path, folder / "out.parquet", key="key", on="local:4")
    assert not (folder / "out.parquet").exists()


@pytest.mark.slow
def test_tables_that_are_read_through_temporary_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sort(folder / "a.parquet", folder / "one.parquet", key="key")
    monkeypatch.setattr(table_job, "READING_SHARE", 1e-6)
    sort(folder / "a.parquet", folder / "out.parquet", key="key", on="local:4")
    assert (folder / "out.parquet").read_bytes() == (folder / "one.parquet").read_bytes()
    assert {path.name for path in folder.iterdir()} == {"a.csv", "a.parquet", "one.parquet", "out.parquet"}
