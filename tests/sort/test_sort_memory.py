"""The promise of memory: the peak of the whole process, measured from inside, on inputs several times larger."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MB = 10**6


def sort_apart(folder: Path, values: np.ndarray[Any, Any], memory: str, *words: str) -> dict[str, Any]:
    """Sort in a process of its own; return its result."""
    values.tofile(folder / "in.bin")
    command = ["sort", str(folder / "in.bin"), str(folder / "out.bin"), "--memory", memory, "--json", *words]
    ran = subprocess.run([sys.executable, "-m", "tartan.cli.main", *command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    about: dict[str, Any] = json.loads(ran.stdout)
    return about


def check(about: dict[str, Any], promised: int) -> None:
    assert 0.5 * promised < about["peak_rss_bytes"] <= promised
    assert about["run_files"] > 1


@pytest.mark.exhaustive
def test_128_megabytes_for_numbers(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 25 * MB)
    check(sort_apart(tmp_path, values, "128MB", "--dtype", "i8"), 128 * MB)


@pytest.mark.exhaustive
@pytest.mark.parametrize("pack", ["never", "always"])
def test_128_megabytes_for_numbers_packed_or_not(tmp_path: Path, pack: str) -> None:
    values = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 60 * MB)
    about = sort_apart(tmp_path, values, "128MB", "--dtype", "i8", "--pack", pack)
    check(about, 128 * MB)
    values.sort()
    assert np.array_equal(np.fromfile(tmp_path / "out.bin", "i8"), values)


@pytest.mark.exhaustive
def test_128_megabytes_for_records(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, 300 * MB, np.uint8)
    about = sort_apart(tmp_path, records, "128MB", "--dtype", "record:100", "--key", "0:10", "--threads", "3")
    check(about, 128 * MB)
    first = np.fromfile(tmp_path / "out.bin", np.uint8).reshape(-1, 100)[:, :8].copy().view(">u8")[:, 0]
    assert np.all(first[1:] >= first[:-1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", [["--dtype", "i8"], ["--dtype", "record:100", "--key", "5:90:desc"]])
def test_256_megabytes(tmp_path: Path, words: list[str]) -> None:
    values = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 125 * MB)
    check(sort_apart(tmp_path, values, "256MB", *words), 256 * MB)


@pytest.mark.exhaustive
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("columns", "key"), [(3, "c1"), (100, "c1,c7:desc"), (1, "c0:text")])
def test_300_megabytes_for_text(tmp_path: Path, columns: int, key: str) -> None:
    rng = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in rng.integers(10**9, 10**10, (1_500_000 // columns // 5, columns))]
    (tmp_path / "in.csv").write_text("\n".join([",".join(f"c{number}" for number in range(columns)), *lines]))
    for source, target in (("in.csv", "out.csv"), ("in.csv", "out.parquet"), ("out.parquet", "back.csv")):
        by = key if source == "in.csv" else key.removesuffix(":text")
        words = [str(tmp_path / source), str(tmp_path / target), "--key", by, "--memory", "300MB", "--json", "-q"]
        ran = subprocess.run([sys.executable, "-m", "tartan.cli.main", "sort", *words], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["peak_rss_bytes"] <= 300 * MB, target
    assert (tmp_path / "back.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()
