"""Where parsed items are kept on disk: in the run folder, or in a folder of this user on a local disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tartan
from tartan.errors import ConfigError


class Doubled(tartan.Application):
    releases_gil = True

    def parse(self, key: str, data: float) -> float:
        return 2 * data

    def compare_pair(self, left: float, right: float) -> float:
        return abs(left - right)


def compute(out: Path, place: Path, **options: str) -> tartan.Run:
    return tartan.allpairs(Doubled(), [1.0, 2.0, 4.0], out, workers=1, cache_at=place, **options)


def test_a_second_run_parses_nothing_and_nothing_else_in_the_folder_is_touched(tmp_path: Path) -> None:
    place = tmp_path / "local"
    (place / "mine").mkdir(parents=True)
    (place / "mine" / "notes").write_bytes(bytes(10_000))
    first = compute(tmp_path / "one", place, disk_cache="1kB")
    second = compute(tmp_path / "two", place, disk_cache="1kB")
    assert (first.stats["parses"], second.stats["parses"], second.stats["disk_hits"]) == (3, 0, 3)
    assert first.condensed().tolist() == second.condensed().tolist() == [2.0, 6.0, 4.0]
    assert (place / "mine" / "notes").stat().st_size == 10_000
    assert (place / f"tartan-cache-{os.getuid()}").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "one" / "cache").exists()


def test_without_a_size_half_of_the_free_disk_may_be_used(tmp_path: Path) -> None:
    compute(tmp_path / "one", tmp_path)
    assert compute(tmp_path / "two", tmp_path).stats["parses"] == 0


def test_a_place_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match=r"--cache-at .*file: Not a directory"):
        compute(tmp_path / "run", tmp_path / "file")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / f"tartan-cache-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not a folder of this user alone"):
        compute(tmp_path / "run", tmp_path / "theirs")
    with pytest.raises(ConfigError, match="cache_at is empty"):
        compute(tmp_path / "run", "")  # type: ignore[arg-type]
