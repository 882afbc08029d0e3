"""What a sort says of itself, and the sample that its expectations rest on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.sort.formats import open_sources
from tartan.sort.job import sample_width_bits
from tartan.sort.result import EDGES, Edge, SortResult

RESULT = SortResult(
    path=Path("out.npy"), n_records=500_000_000, n_bytes=4 * 10**9, record_bytes=8, run_files=26, run_files_adopted=0,
    levels=1, ranges=27, packed=True, pack_reason="asked for", bits_per_value=43.41, expected_bits_per_value=43.4,
    edges={name: Edge(*ends, 4 * 10**9, 2.0, 1.0) for name, ends in EDGES.items()}, busy_seconds={"sort": 6.5},
    phase_seconds={"sort": 6.0, "merge": 4.0}, wall_seconds=10.0, direct={"read": True}, io="uring",
    memory_bytes=10**9, peak_rss_bytes=9 * 10**8,
)  # fmt: skip


def test_summary_of_packed_run_files() -> None:
    assert RESULT.summary() == (
        "500 M records, 4 GB in 10 s (400 MB/s); 26 run files packed to 43.4 of 64 bits; peak memory 900 MB; "
        "result in out.npy"
    )


def test_summary_of_a_resumed_sort() -> None:
    resumed = dataclasses.replace(RESULT, packed=False, bits_per_value=None, run_files=0, run_files_adopted=26)
    assert "(400 MB/s); 26 run files from before; peak" in resumed.summary()
    half = dataclasses.replace(resumed, adopted_bytes=resumed.n_bytes)
    assert "(200 MB/s); 26 run files from before; peak" in half.summary(), "they were merged, and not sorted"


def test_edges_have_a_speed_where_something_moved() -> None:
    assert RESULT.edges["run_write"].bytes_per_second == 2e9
    assert dataclasses.replace(RESULT.edges["run_write"], busy_seconds=0.0).bytes_per_second is None


def width(folder: Path, values: np.ndarray[Any, Any]) -> float | None:
    np.save(folder / "values.npy", values)
    return sample_width_bits(*open_sources([folder / "values.npy"], None))


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        (np.full(10, 7), 0.0),
        (np.arange(1024), 10.0),
        (np.arange(1024, dtype=">u4") + np.uint32(5), 10.0),
        (np.array([-(2**63), 2**63 - 1]), 64.0),
        (np.array([0, 2**64 - 1], np.uint64), 64.0),
        (np.array([-0.0, 0.0]), 1.0),
        (np.array([1.0, np.nextafter(1.0, 2)], ">f8"), 1.0),
        (np.array([-1.0, 1.0], np.float32), 31.0),
    ],
)
def test_width_is_of_sort_keys(tmp_path: Path, values: Any, bits: float) -> None:
    assert width(tmp_path, values) == pytest.approx(bits, abs=0.02)


@pytest.mark.parametrize(
    "values", [np.empty(0, "i8"), np.zeros(3, "i2"), np.zeros(3, "V8"), np.zeros(3, [("a", "i8")])]
)
def test_what_is_not_packed_has_no_width(tmp_path: Path, values: Any) -> None:
    assert width(tmp_path, values) is None


def test_a_sample_reaches_all_parts_of_all_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    np.arange(100_000).tofile(first)
    (np.arange(100_000) + 2**20 - 100_000).tofile(second)
    assert sample_width_bits(*open_sources([first, second], "i8")) == pytest.approx(20, abs=0.01)
