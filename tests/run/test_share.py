"""Parts wait for the one that creates the folder, for a bounded time, and take its place if it dies."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tartan
from tartan.base.files import FileWriter
from tartan.base.lock import FolderLock
from tartan.errors import ConfigError, StoreError
from tartan.run.share import Share, Waiting, create_or_wait, join_as_part, parse_share
from tartan.run.statistics import collect_statistics
from tartan.store.folder import RunFolder


def difference(a: float, b: float) -> float:
    return abs(a - b)


def a_run(path: Path) -> RunFolder:
    tartan.allpairs(difference, [1.0, 2.0, 4.0], path, workers=1)
    return RunFolder.open(path, writable=True)


def test_texts_of_parts() -> None:
    assert parse_share(" 3/16 ") == Share(3, 16)
    assert str(Share(3, 16)) == "3/16"
    for text in ("", "3", "3/", "/3", "-1/3", "1.5/3", "a/b", "1/2/3", "0/3", "4/3", "1/0", "1/100001"):
        with pytest.raises(ConfigError, match="is not part of a run"):
            parse_share(text)


@pytest.mark.slow
def test_a_part_waits_for_the_creator_and_finds_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    path.mkdir()
    creator = FolderLock(path)
    creator.__enter__()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            creator.__exit__(None, None, None)
            a_run(path)

    with Waiting(Share(2, 4), 60.0, quiet=False, sleep=sleep) as waiting:
        assert create_or_wait(path, lambda: pytest.fail("the folder is there"), waiting) is None
    assert len(pauses) == 3
    assert "part 2/4 waits: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_part_takes_the_place_of_a_creator_that_died(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    creator = FolderLock(path)
    creator.__enter__()
    with Waiting(Share(2, 4), 60.0, sleep=lambda _: creator.__exit__(None, None, None)) as waiting:
        folder = create_or_wait(path, lambda: RunFolder.open(a_run(tmp_path / "made").path), waiting)
    assert folder is not None


def test_waiting_ends_with_the_name_of_the_holder(tmp_path: Path) -> None:
    clock = itertools.count(0.0, 10.0)
    waiting = Waiting(Share(2, 4), 60.0, clock=lambda: next(clock), sleep=lambda _: None)
    with (
        FolderLock(tmp_path),
        waiting,
        pytest.raises(StoreError, match=r"part 2/4 has waited .* in use by process") as e,
    ):
        create_or_wait(tmp_path, lambda: pytest.fail("the folder is held"), waiting)
    assert (e.value.code, e.value.retryable) == ("locked", True)


@pytest.mark.slow
def test_a_part_joins_when_the_folder_is_free(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    creator = FolderLock(folder.path)
    creator.__enter__()
    with Waiting(Share(1, 2), 60.0, sleep=lambda _: creator.__exit__(None, None, None)) as waiting:
        with join_as_part(folder, Share(1, 2), waiting) as one:
            assert one.is_shared
            assert one.n_parts == 2
        with (
            pytest.raises(ConfigError, match="divided into 2 parts, not 3"),
            join_as_part(folder, Share(1, 3), waiting),
        ):
            pass
    assert not folder.is_shared


@pytest.mark.slow
def test_a_damaged_record_of_parts_is_named(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    for text in ("{", "{}", '{"n_parts": 0}', '{"n_parts": 1e9}', '{"n_parts": 1000000000}', "[]"):
        (folder.path / "shares.json").write_text(text)
        with pytest.raises(StoreError, match=r"shares\.json cannot be read"):
            _ = folder.n_parts


def a_run_in_parts(path: Path) -> RunFolder:
    for part in ("1/2", "2/2"):
        tartan.allpairs(difference, [1.0, 2.0, 4.0], path, part=part, tile=2, workers=1)
    return RunFolder.open(path, writable=True)


@pytest.mark.slow
def test_the_same_call_takes_over_what_parts_left_of_a_finished_run(tmp_path: Path) -> None:
    folder = a_run_in_parts(tmp_path / "run")
    assert folder.finished
    assert folder.has_leftovers
    tartan.allpairs(difference, [1.0, 2.0, 4.0], folder.path, tile=2, workers=1)
    assert not folder.has_leftovers
    assert folder.stats["executions"] == 2


@pytest.mark.slow
def test_a_finished_run_is_opened_while_a_part_is_at_work(tmp_path: Path) -> None:
    folder = a_run_in_parts(tmp_path / "run")
    with folder.join(Share(1, 2).group):
        run = tartan.allpairs(difference, [1.0, 2.0, 4.0], folder.path, tile=2, workers=1)
    assert run.n_pairs_left == 0


@pytest.mark.slow
def test_statistics_of_parts_stay_where_the_disk_is_full(tmp_path: Path) -> None:
    path = a_run_in_parts(tmp_path / "run").path

    is_full = [False]

    def write(descriptor: int, buffers: Sequence[Any]) -> int:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.writev(descriptor, buffers)

    folder = RunFolder.open(path, writable=True, writer=FileWriter(path, write=write))
    with folder.lock():
        is_full[0] = True
        collect_statistics(folder)
    assert len(folder.writers_stats()) == 2
    again = RunFolder.open(path, writable=True)
    with again.lock():
        collect_statistics(again)
    assert again.stats["executions"] == 2
    assert not again.has_leftovers
