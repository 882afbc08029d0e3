"""Run folders of strangers: their files may be pipes, their numbers forged, their texts endless."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.base.lock import list_living_writers
from tartan.cli.main import main
from tartan.core.pairs.ledger import Failure
from tartan.errors import ConfigError, CorruptResultError, StoreError
from tartan.store import failures, statistics
from tartan.store.failures import read_failures
from tartan.store.folder import RunFolder
from tartan.store.items import FILE_NAME as ITEMS_NAME
from tartan.store.manifest import Manifest
from tartan.store.writers import writers_statistics

from .kit import commit_missing, describe, table, true_scores

N = 10
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of files."""
    folder = RunFolder.create(tmp_path / "run", describe(N), table(N))
    with folder.lock():
        commit_missing(folder, {"scores": true_scores(N)})
        folder.write_stats({})
    return folder.path


def _look(path: Path) -> None:
    """Read what info and report read."""
    folder = RunFolder.open(path)
    _ = folder.n_left, folder.stats, folder.failures(), folder.keys, folder.n_parts
    folder.view().matrix()


FILES = ["manifest.json", "stats.json", "failures.jsonl", "failures.parquet", ITEMS_NAME, "shares.json"]
ARRAYS = ["status.zarr/zarr.json", "scores.zarr/zarr.json", "status.zarr/c/0/1", "scores.zarr/c/0/1"]


@pytest.mark.parametrize("name", FILES + ARRAYS)
def test_a_pipe_in_the_place_of_a_file_is_refused(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(StoreError, match=f"{name}.*not a regular file"):
        _look(run)


@pytest.mark.parametrize("name", ["manifest.json", "stats.json", "status.zarr/zarr.json"])
def test_a_command_ends_at_a_pipe(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert main(["info", str(run)]) == 1
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["manifest.json", "stats.json", "shares.json", *ARRAYS[:2]])
def test_json_that_is_too_deep_is_damaged(run: Path, name: str) -> None:
    (run / name).write_text(DEEP)
    with pytest.raises(CorruptResultError, match=f"{name}.*levels deep"):
        _look(run)


def test_a_chunk_that_is_longer_than_any_is_damaged(run: Path) -> None:
    before = RunFolder.open(run).n_left
    os.truncate(run / "status.zarr/c/0/1", 1 << 40)  # of holes
    assert RunFolder.open(run).n_left == before + 16


def test_items_without_names_are_damaged(run: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"size": np.arange(N)}), run / ITEMS_NAME)
    with pytest.raises(CorruptResultError, match="no column"):
        _look(run)


def _forge(run: Path, n_items: int, **changes: Any) -> None:
    manifest = replace(Manifest.load(run), n_items=n_items, generations=[n_items], **changes)
    (run / "manifest.json").write_text(manifest.to_json())


@pytest.mark.parametrize("application", [{}, {"symmetric": False}, {"symmetric": False, "directed": ["scores"]}])
def test_what_is_done_costs_what_is_there_whatever_the_manifest_claims(run: Path, application: dict[str, Any]) -> None:
    _forge(run, 10**8, application=Manifest.load(run).application | application)
    folder = RunFolder.open(run)
    assert folder.n_left > 10**15
    assert folder.n_known() > 0
    assert list(folder.committed()) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert len(folder.commit_times()) == 6


@pytest.mark.parametrize(("workload", "n_items"), [("all", 10**8 + 1), ("all", 2**40), ("triples", 10**7)])
def test_more_items_than_a_run_can_have_are_refused(run: Path, workload: str, n_items: int) -> None:
    kept = {"kind": "top-k", "k": 1} if workload == "triples" else None
    _forge(run, n_items, workload={"kind": workload}, reduce=kept)
    with pytest.raises(CorruptResultError, match=r"more than the .* that a run can have"):
        Manifest.load(run)


def test_no_run_is_made_that_could_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="divide them into several runs"):
        RunFolder.create(tmp_path / "run", describe(10**8 + 1))
    folder = RunFolder.create(tmp_path / "small", describe(N), table(N))
    with folder.lock(), pytest.raises(ConfigError, match="divide them into several runs"):
        folder.extend(10**8 + 1)


def test_parts_of_a_run_of_too_many_chunks_are_refused(run: Path) -> None:
    _forge(run, 10**8)
    with pytest.raises(ConfigError, match="larger --tile"):
        RunFolder.open(run).pairs.shares(4)


@pytest.mark.parametrize("name", ["01", "x", "-1", "99999999999999999999", "3", "\u0661"])
def test_files_of_no_chunk_do_not_count(run: Path, name: str) -> None:
    folder = RunFolder.open(run)
    before = list(folder.committed())
    (run / "status.zarr/c/0" / name).write_bytes(b"")
    (run / "status.zarr/c" / name).mkdir(exist_ok=True)
    assert list(folder.committed()) == before == list(folder.pairs.chunks())


def test_candidates_count_where_they_are(tmp_path: Path) -> None:
    pairs = np.array([[0, 9], [1, 8], [5, 6]])
    manifest = describe(N, workload={"kind": "candidates", "file": "candidates.npy"})
    folder = RunFolder.create(tmp_path / "run", manifest, table(N), candidates=pairs)
    with folder.lock():
        commit_missing(folder, {"scores": true_scores(N)})
    assert list(folder.committed()) == list(folder.pairs.chunks()) == [(0, 2), (1, 1)]
    assert folder.n_left == 0
    assert not folder.pairs.has_chunk(0, 0)
    (folder.path / "candidates.npy").unlink()
    os.mkfifo(folder.path / "candidates.npy")
    with pytest.raises(CorruptResultError, match="not a regular file"):
        _ = RunFolder.open(folder.path).n_left


def test_an_endless_line_of_failures_is_left_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_LINE_BYTES", 1000)
    lines = [{"i": i, "j": None, "stage": "read", "reason": "r" * n} for i, n in enumerate([5, 5000, 5, 900])]
    odd = [DEEP[:900], json.dumps({"i": [1], "j": None, "stage": "read", "reason": "r"}), "3", "{"]
    (run / "failures.jsonl").write_text("\n".join([*map(json.dumps, lines), *odd]))
    assert [failure.i for failure in read_failures(run)] == [0, 2, 3]


def test_long_reasons_are_written_so_that_they_are_read(run: Path) -> None:
    folder = RunFolder.open(run, writable=True)
    folder.add_failures([Failure(1, None, "read", "\0" * 10**6, "\U0001f600" * 10**6)])
    found = read_failures(run)[0]
    assert (found.i, found.reason[:2]) == (1, "\0\0")
    assert max(len(found.reason), len(found.traceback)) < 70_000


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"loads": "many"},
        {"loads": -1},
        {"wall_seconds": float("nan")},
        {"host_slots": 1e999},
        {"executions": 10**30},
        {"seconds_per_stage": {"read": "<b>"}},
        {"sizing": [1]},
        {"counted_writers": 3},
    ],
    ids=str,
)
def test_statistics_that_cannot_be_added_up_are_damaged(run: Path, found: Any) -> None:
    (run / "stats.json").write_text(json.dumps(found))
    with pytest.raises(CorruptResultError, match=r"Expected .*; remove it: only the record"):
        statistics.read_statistics(run)
    writer = run / "writers" / "host.1.0123abcd"
    writer.mkdir(parents=True)
    (writer / "stats.json").write_text(json.dumps(found))
    assert writers_statistics(run) == {}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("scores", {"chunk_grid": {"configuration": {"chunk_shape": [1 << 20, 1 << 20]}}}),
        ("status", {"chunk_grid": {"configuration": {"chunk_shape": [1, 1]}}}),
        ("scores", {"data_type": "complex128"}),
        ("status", {"data_type": "float64"}),
    ],
)
def test_arrays_that_contradict_the_manifest_are_damaged(run: Path, name: str, changes: dict[str, Any]) -> None:
    path = run / f"{name}.zarr" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(
        CorruptResultError, match=r"zarr.json cannot be read \(dtype and chunks are .* manifest.json has"
    ):
        RunFolder.open(run)


def test_lease_of_a_stranger_is_read_in_part_and_says_nothing(run: Path) -> None:
    for name, content in {"host.1.0123abcd": DEEP, "host.2.0123abcd": '{"part": [1]}'}.items():
        (run / "writers" / name).mkdir(parents=True)
        (run / "writers" / name / "lease").write_text(content)
    assert all(not holder.get("pid") for holder in list_living_writers(run))
    os.truncate(run / "writers/host.1.0123abcd/lease", 1 << 40)  # of holes
    with pytest.raises(StoreError, match="lease has more than 67,108,864 bytes; remove it"):
        list_living_writers(run)


def test_failures_of_items_that_a_run_does_not_have_are_left_out(run: Path) -> None:
    ends = [(99_999_999_999, -5), (1 << 70, None), (-1, None), (0, N), (0, 1), (N - 1, None)]
    lines = [json.dumps({"i": i, "j": j, "stage": "read", "reason": "r"}) for i, j in ends]
    (run / "failures.jsonl").write_text("\n".join(lines))
    folder = RunFolder.open(run, writable=True)
    with folder.lock():  # at its end the log moves into a table of 64-bit numbers
        pass
    for opened in (folder, RunFolder.open(run)):
        assert [(found.i, found.j) for found in opened.failures()] == [(N - 1, None), (0, 1)]
