"""Ranks that do not see the files of the driver: the run folder, the input, or either as it is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_world import OPTIONS, Bomb, N, Once, Sums, asked, check, expected, ranks

from tartan import apps
from tartan.errors import ItemError
from tartan.options import run_options
from tartan.run.execute import extend, start
from tartan.run.reopen import reopen_request
from tartan.run.request import Request, request

pytestmark = pytest.mark.slow


def absent(folder: Path) -> Callable[[int, str], Path]:
    """Let all ranks but the first look for the run folder where nothing is."""
    return lambda number, place: Path(place) if number == 0 else folder / "absent"


def nowhere(folder: Path) -> Callable[[int, str], Path]:
    return lambda number, place: folder / "absent"


@pytest.mark.parametrize("host_cache", ["16items", "100items"])
@pytest.mark.parametrize("where", [absent, nowhere])
def test_chunks_of_ranks_that_do_not_see_the_folder_are_committed_by_the_driver(
    tmp_path: Path, where: Any, host_cache: str
) -> None:
    run = start(asked(host_cache=host_cache), tmp_path / "run", ranks=ranks(locate=where(tmp_path)))
    check(run)
    assert run.stats["pairs_computed"] == N * (N - 1) // 2
    assert run.stats["ranks_lost"] == 0
    assert not (tmp_path / "absent").exists()


def test_every_file_of_the_result_is_that_of_one_process(tmp_path: Path) -> None:
    one = start(asked(), tmp_path / "one").path
    several = start(asked(), tmp_path / "several", ranks=ranks(locate=nowhere(tmp_path))).path
    for name in ("scores.zarr", "status.zarr"):
        files = {path.relative_to(one / name): path.read_bytes() for path in (one / name).rglob("*") if path.is_file()}
        assert files
        for path, data in files.items():
            assert (several / name / path).read_bytes() == data


def test_another_folder_at_the_same_place_is_not_touched(tmp_path: Path) -> None:
    start(asked(n=9), tmp_path / "other")
    before = {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()}
    elsewhere = ranks(locate=lambda number, place: tmp_path / "other")
    check(start(asked(), tmp_path / "run", ranks=elsewhere))
    assert before == {path: path.read_bytes() for path in (tmp_path / "other").rglob("*") if path.is_file()}


def test_what_ranks_without_the_folder_keep_of_each_item_is_merged(tmp_path: Path) -> None:
    reduce = {"kind": "top-k", "k": 3, "largest": True}
    one = start(asked(reduce=reduce), tmp_path / "one")
    several = start(asked(reduce=reduce), tmp_path / "several", ranks=ranks(locate=absent(tmp_path)))
    for a, b in zip(one.neighbors(3, largest=True), several.neighbors(3, largest=True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_items_are_added_by_ranks_without_the_folder(tmp_path: Path) -> None:
    start(asked(n=31), tmp_path / "run")
    options, old = run_options(OPTIONS), list(range(31))
    reopen = partial(reopen_request, options=options, registry=apps, app=Sums(), items=old)
    run = extend(tmp_path / "run", list(range(31, N)), reopen, apps, ranks(locate=nowhere(tmp_path)))
    np.testing.assert_array_equal(np.triu(run.matrix(), 1), np.triu(expected(), 1))


def test_failures_of_ranks_without_the_folder_keep_their_reasons(tmp_path: Path) -> None:
    run = start(asked(Sums(bad=4)), tmp_path / "run", ranks=ranks(locate=nowhere(tmp_path)))
    assert run.finished
    assert [(failure.i, failure.kind) for failure in run.failures] == [(4, "item")]
    assert "bad item" in run.failures[0].reason


@pytest.mark.parametrize("at", [5, 40])
def test_the_loss_of_ranks_without_the_folder_changes_no_score(tmp_path: Path, at: int) -> None:
    ways = ranks(locate=nowhere(tmp_path))
    run = start(asked(Sums(happens=Bomb(ways.hubs, at, ("rank-1",)))), tmp_path / "run", ranks=ways)
    check(run)


def test_a_rank_keeps_the_folder_that_it_opened_when_its_path_goes_away(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.symlink_to(tmp_path)
    ways = ranks(locate=lambda number, place: mount / "run" if number == 0 else Path(place))
    run = start(asked(Sums(happens=Once(6, mount.unlink))), tmp_path / "run", ranks=ways)
    check(run)
    assert run.stats["ranks_lost"] == 0


class Files:
    """Files of one number each; the copies that travel to some of the ranks find them absent."""

    kind = "files"
    copies = itertools.count()

    def __init__(self, n: int, blind: Callable[[int], bool], lost: frozenset[int] = frozenset()) -> None:
        self.n_items, self.keys, self.lost = n, [f"{i:02}" for i in range(n)], lost
        self.blind, self.absent = blind, False

    def read(self, index: int) -> bytes:
        if self.absent or index in self.lost:
            raise ItemError(f"{self.keys[index]}: cannot be read: no such file", context={"key": self.keys[index]})
        return str(index).encode()

    def read_block(self, start: int, stop: int) -> Any:
        raise TypeError("files have no rows")

    def fingerprints(self) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "patterns": []}

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (_kept(self),)


_FILES: list[Files] = []


def _kept(files: Files) -> int:
    _FILES.append(files)
    return len(_FILES) - 1


def _copied(number: int) -> Files:
    first = _FILES[number]
    copy = Files(first.n_items, first.blind, first.lost)
    copy.absent = first.blind(next(first.copies))
    return copy


class Numbers(Sums):
    """Sums of the numbers in files."""

    def parse(self, key: str, data: bytes) -> Any:
        return super().parse(key, int(data))


def of_files(blind: Callable[[int], bool], lost: frozenset[int] = frozenset()) -> Request:
    plain = request(Numbers(), list(range(N)), run_options(OPTIONS), registry=apps)
    return replace(plain, source=Files(N, blind, lost))


@pytest.mark.parametrize("blind", [lambda copy: copy % 3 == 0, lambda copy: True])
def test_ranks_without_the_input_get_their_items_from_others(tmp_path: Path, blind: Callable[[int], bool]) -> None:
    run = start(of_files(blind), tmp_path / "run", ranks=ranks())
    check(run)
    assert not run.failures


def test_an_item_that_no_rank_can_read_fails_by_its_name(tmp_path: Path) -> None:
    run = start(of_files(lambda copy: copy % 3 == 0, frozenset({7})), tmp_path / "run", ranks=ranks())
    assert [(failure.i, failure.kind) for failure in run.failures] == [(7, "item")]
    assert "07: cannot be read: no such file" in run.failures[0].reason
