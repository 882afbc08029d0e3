"""The log of failures: one row an item, nothing lost by a kill, read back in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.base.files import FileWriter
from tartan.core.pairs.ledger import DONE, FAILED_ITEM, FAILED_PAIR, OPENED, Failure
from tartan.errors import CorruptResultError
from tartan.store.claims import leave_opened
from tartan.store.failures import FailureLog, RecordedCodes, read_failures

ITEM = Failure(7, None, "parse", "item-7: not a photo\nsecond line", "Traceback ...")
PAIR = Failure(1, 2, "compare", "item-1, item-2: zero")


@pytest.fixture
def log(tmp_path: Path) -> FailureLog:
    return FailureLog(tmp_path, FileWriter(tmp_path))


def test_round_trip_before_and_after_merging(log: FailureLog, tmp_path: Path) -> None:
    log.add([PAIR, ITEM])
    assert read_failures(tmp_path) == [ITEM, PAIR]
    log.merge()
    assert not (tmp_path / "failures.jsonl").exists()
    assert read_failures(tmp_path) == [ITEM, PAIR]
    other = Failure(0, 3, "compare", "again")
    log.add([other])
    assert read_failures(tmp_path) == [ITEM, other, PAIR]
    log.merge()
    log.merge()
    assert pq.read_table(tmp_path / "failures.parquet").num_rows == 3


def test_what_is_recorded_says_how_pairs_ended(log: FailureLog, tmp_path: Path) -> None:
    recorded, read = RecordedCodes(tmp_path), partial(read_failures, tmp_path)
    assert not recorded.codes_of((0, 4, 0, 4), (4, 4), read).any()
    log.add([PAIR, ITEM])
    assert np.argwhere(recorded.codes_of((0, 4, 0, 4), (4, 4), read) == FAILED_PAIR).tolist() == [[1, 2], [2, 1]]
    beside = recorded.codes_of((0, 4, 4, 9), (4, 5), read)
    assert (beside[:, 3] == FAILED_ITEM).all()
    assert beside.sum() == 4 * FAILED_ITEM
    log.merge()
    log.replace([PAIR])
    assert not recorded.codes_of((0, 4, 4, 9), (4, 5), read).any()


def test_failures_of_what_a_removal_opened_leave_it_opened() -> None:
    status = np.array([[DONE, FAILED_PAIR, FAILED_ITEM, FAILED_PAIR]], np.uint8)
    assert leave_opened(None, status) is status
    assert leave_opened(np.array([[OPENED, 0, 0, 0]], np.uint8), status) is status
    before = np.array([[OPENED, OPENED, OPENED, 0]], np.uint8)
    assert leave_opened(before, status).tolist() == [[DONE, 0, 0, FAILED_PAIR]]


def test_an_item_is_one_row_however_often_it_is_reported(log: FailureLog, tmp_path: Path) -> None:
    for _ in range(50):
        log.add([ITEM])
    assert (tmp_path / "failures.jsonl").read_bytes().count(b"parse") == 1
    FailureLog(tmp_path, FileWriter(tmp_path)).add([ITEM])
    assert read_failures(tmp_path) == [ITEM]


def test_a_torn_line_costs_itself_only(log: FailureLog, tmp_path: Path) -> None:
    log.add([ITEM])
    with open(tmp_path / "failures.jsonl", "ab") as stream:
        stream.write(b'{"i": 4, "j"')
    FailureLog(tmp_path, FileWriter(tmp_path)).add([PAIR])
    assert read_failures(tmp_path) == [ITEM, PAIR]


def test_a_kill_between_table_and_log_counts_nothing_twice(log: FailureLog, tmp_path: Path) -> None:
    log.add([ITEM, PAIR])
    text = (tmp_path / "failures.jsonl").read_bytes()
    log.merge()
    (tmp_path / "failures.jsonl").write_bytes(text)
    assert read_failures(tmp_path) == [ITEM, PAIR]


def test_no_failures_leave_no_file(log: FailureLog, tmp_path: Path) -> None:
    log.add([])
    log.merge()
    assert read_failures(tmp_path) == []
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]


def test_a_damaged_table_is_named(log: FailureLog, tmp_path: Path) -> None:
    (tmp_path / "failures.parquet").write_bytes(b"PAR1 garbage PAR1")
    with pytest.raises(CorruptResultError, match=r"failures\.parquet"):
        read_failures(tmp_path)


def test_columns_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    row = {"i": 3, "j": None, "stage": "read", "reason": "gone", "traceback": "", "host": "n7"}
    schema = pa.schema([("i", pa.int64()), ("j", pa.int64()), *((name, pa.string()) for name in [*row][2:])])
    pq.write_table(pa.Table.from_pylist([row], schema), tmp_path / "failures.parquet")
    assert read_failures(tmp_path) == [Failure(3, None, "read", "gone")]
    pq.write_table(pa.table({"i": [3]}), tmp_path / "failures.parquet")
    with pytest.raises(CorruptResultError, match="cannot be read"):
        read_failures(tmp_path)
