"""Rows of a .npy file that is mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tartan.sources.arrays import MappedSource, open_stored_array


def resident_bytes(name: str) -> int:
    """Return how much of a mapped file counts as memory of this process."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            found = line.endswith(name)
        elif found and line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_those_of_the_file(tmp_path: Path, order: str) -> None:
    rows = np.random.default_rng(0).random((50, 7))
    np.save(tmp_path / "rows.npy", np.asarray(rows, order=order))  # type: ignore[call-overload]
    source = open_stored_array(str(tmp_path / "rows.npy"))
    assert isinstance(source, MappedSource)
    early = source.read_block(0, 20)
    np.testing.assert_array_equal(source.read_block(20, 50), rows[20:])
    np.testing.assert_array_equal(early, rows[:20], "blocks that were read before stay good")
    np.testing.assert_array_equal(source.read(3), rows[3])


def test_a_file_that_was_read_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    np.save(path, np.ones((4096, 1024), np.float32))
    source = open_stored_array(str(path))
    assert source is not None
    for start in range(0, 4096, 512):
        assert source.read_block(start, start + 512).sum() == 512 * 1024
    assert resident_bytes("large.npy") <= 2 * 512 * 1024 * 4
