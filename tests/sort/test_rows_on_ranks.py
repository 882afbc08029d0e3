"""Rows of text and tables on several ranks: the bytes of a sort on one machine, nothing left behind, and resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ranks_crew import RankKilled, ThreadWays

from tartan.cluster.launch import ClusterTarget
from tartan.errors import ClusterError
from tartan.sort import sort_file
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
