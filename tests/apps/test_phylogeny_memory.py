"""Long input is counted in little memory, and a file for which there is too little fails alone."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan import _native
from tartan.apps.phylogeny.app import Phylogeny

#: Parses a file, and prints the bytes that this took at most, the file included.
PARSE = """
import resource, sys
from tartan.apps.phylogeny.app import Phylogeny
app = Phylogeny(k=int(sys.argv[2]))
app.parse("warm", b">a\\nACDEFGHIKLMNPQRSTVWYACDEFG")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open(sys.argv[1], "rb") as file:
    item = app.parse("x", file.read())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, sum(array.nbytes for array in item))
"""


def write_fasta(path: Path, megabytes: int, one_record: bool) -> Path:
    letters = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)
    rng = np.random.default_rng(1)
    open_ = gzip.open if path.suffix == ".gz" else open
    with open_(path, "wb", *([1] if path.suffix == ".gz" else [])) as file:
        file.write(b">one\n")
        for _ in range(megabytes):
            lines = np.full((16393, 61), ord("\n"), np.uint8)
            lines[:, :60] = letters[rng.integers(0, 20, (16393, 60))]
            if not one_record:
                lines[::5, :4] = np.frombuffer(b">p a", np.uint8)
            file.write(lines.tobytes())
    return path


def parse_bytes(path: Path, k: int) -> tuple[int, int]:
    words = [sys.executable, "-c", PARSE, str(path), str(k)]
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=250).stdout
    taken, item = map(int, found.split())
    return taken, item


@pytest.mark.slow
@pytest.mark.parametrize("one_record", [True, False])
@pytest.mark.parametrize("suffix", [".faa", ".faa.gz"])
def test_long_input_takes_at_most_three_bytes_a_byte(suffix: str, one_record: bool, tmp_path: Path) -> None:
    path = write_fasta(tmp_path / f"x{suffix}", 24, one_record)
    taken, _ = parse_bytes(path, 5)
    assert taken <= 3 * 24e6


@pytest.mark.exhaustive
@pytest.mark.parametrize("one_record", [True, False])
@pytest.mark.parametrize("suffix", [".faa", ".faa.gz"])
def test_three_hundred_megabytes_take_at_most_three_bytes_a_byte(suffix: str, one_record: bool, tmp_path: Path) -> None:
    path = write_fasta(tmp_path / f"x{suffix}", 300, one_record)
    taken, _ = parse_bytes(path, 6)
    assert taken <= 3 * 300e6


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "k"), [(2, 6), (8, 6), (8, 9)])
def test_other_input_takes_at_most_three_times_the_vector(megabytes: int, k: int, tmp_path: Path) -> None:
    taken, item = parse_bytes(write_fasta(tmp_path / "x.faa", megabytes, False), k)
    assert taken <= 3 * item + (4 << 20)  # whatever the allocator keeps


@pytest.mark.parametrize("k", [4, 6, 9])
def test_counting_stops_at_the_memory_that_is_allowed(k: int, tmp_path: Path) -> None:
    data = write_fasta(tmp_path / "x.faa", 1, False).read_bytes()
    with pytest.raises(ValueError, match=r"more than the 1 MB of memory that are free.*leave this file out"):
        _native.composition_vector(data, k, memory_bytes=1_000_000)
    assert len(_native.composition_vector(data, k, memory_bytes=100_000_000)) == 5


@pytest.mark.slow
def test_a_file_beyond_the_limit_of_the_process_fails_and_the_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.faa").write_bytes(b">a\nACDEFGHIKLMNPQ\n>b\nACDEFGHIKLAAA\n")
    (tmp_path / "b.faa").write_bytes(b">a\nACDEFGHIKLMNPQ\n>b\nACDEFGHIKLCCC\n")
    with (tmp_path / "large.faa").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no space
    run = tartan.allpairs(Phylogeny(k=3, max_bytes=1 << 50), str(tmp_path), workers=1)
    assert [(failure.i, failure.stage) for failure in run.failures if failure.j is None] == [(2, "read")]
    assert "limit" in run.failures[0].reason or "memory" in run.failures[0].reason
    assert run.n_pairs_done == 1


def test_limits_of_the_process_count_as_memory() -> None:
    from tartan.base.machine import memory

    code = "from tartan.base.machine import memory; found = memory(); print(found.total_bytes, found.available_bytes)"
    limit = 3 << 30
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    total, available = map(int, found.stdout.split())
    assert available < total == min(limit, memory().total_bytes)
