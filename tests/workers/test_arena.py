"""Arenas: shared and private, sparse, bounded, gone without a trace."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tartan.errors import InternalError, ResourceError
from tartan.workers.arena import Arena

Make = Callable[[int], Arena]


@pytest.fixture(params=["shared", "file", "private"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Every kind of arena: of a memory file, of a temporary file where memory files are refused, private."""
    if request.param == "file":
        monkeypatch.setattr(os, "memfd_create", refuse)
    arenas: list[Arena] = []

    def make_one(n_bytes: int) -> Arena:
        arenas.append(Arena(n_bytes, request.param != "private", folder=tmp_path))
        return arenas[-1]

    yield make_one
    for arena in arenas:
        arena.close()
    assert not list(tmp_path.iterdir())


def refuse(*_: object) -> int:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def resident_bytes(arena: Arena) -> int:
    """Blocks that the file of a shared arena takes."""
    return os.fstat(arena.fd).st_blocks * 512


def test_views_are_writable_windows_on_the_same_bytes(make: Make) -> None:
    arena = make(10_000)
    whole = arena.view(0, (arena.n_bytes,), np.uint8)
    assert not whole.any()
    part = arena.view(24, (3, 5), np.float32)
    part[:] = np.arange(15).reshape(3, 5)
    assert part.flags.c_contiguous
    assert whole[24 : 24 + 60].view(np.float32).tolist() == list(range(15))
    assert not whole[:24].any()
    assert not whole[84:].any()


def test_size_is_rounded_up_to_pages(make: Make) -> None:
    assert make(1).n_bytes == mmap.PAGESIZE
    assert make(mmap.PAGESIZE).n_bytes == mmap.PAGESIZE
    assert make(mmap.PAGESIZE + 1).n_bytes == 2 * mmap.PAGESIZE


@pytest.mark.parametrize(("offset", "shape"), [(0, (4097,)), (4096, (1,)), (-1, (1,)), (4000, (97,))])
def test_a_view_outside_is_refused(make: Make, offset: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="outside an arena of 4096 bytes"):
        make(4096).view(offset, shape, np.uint8)


def test_an_empty_view_at_the_end_is_fine(make: Make) -> None:
    assert make(4096).view(4096, (0, 7), np.float64).shape == (0, 7)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_bytes", [1 << 62, 1 << 64, 0, -5])
def test_an_impossible_size_names_the_option(shared: bool, n_bytes: int) -> None:
    with pytest.raises(ResourceError, match="--host-cache") as caught:
        Arena(n_bytes, shared)
    assert caught.value.code == "host-memory"
    assert caught.value.context["option"] == "--host-cache"


def test_a_full_disk_is_reported_at_once_where_memory_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match="No space left"):
        Arena(1 << 20, shared=True)


def test_a_big_arena_costs_nothing_until_it_is_touched() -> None:
    with Arena(1 << 36, shared=True) as arena:
        assert resident_bytes(arena) == 0
        arena.view((1 << 36) - 8, (1,), np.float64)[0] = 3.0
        # One page, or one huge page where the system is set up for those.
        assert 0 < resident_bytes(arena) <= 1 << 21


def test_punching_gives_whole_pages_back() -> None:
    page = mmap.PAGESIZE
    with Arena(1 << 23, shared=True) as arena:
        view = arena.view(0, (1 << 23,), np.uint8)
        view[:] = 7
        full = resident_bytes(arena)
        arena.punch(10, (1 << 22) + page)
        assert resident_bytes(arena) == full - (1 << 22)
        assert view[:page].all()  # the first page and the last one are not wholly inside the range
        assert not view[page : page + (1 << 22)].any()
        assert view[page + (1 << 22) :].all()
        del view


def test_punching_keeps_the_rest(make: Make) -> None:
    page = mmap.PAGESIZE
    arena = make(4 * page)
    view = arena.view(0, (4 * page,), np.uint8)
    view[:] = 7
    arena.punch(page, page)
    arena.punch(2 * page + 1, page - 1)  # no whole page
    assert view[:page].all()
    assert view[2 * page :].all()
    with pytest.raises(InternalError):
        arena.punch(0, 5 * page)


def test_an_attached_arena_is_the_same_memory() -> None:
    with Arena(1 << 16, shared=True) as arena, Arena.attach(os.dup(arena.fd), arena.n_bytes) as other:
        arena.view(128, (4,), np.int64)[:] = [1, 2, 3, 4]
        assert other.view(128, (4,), np.int64).tolist() == [1, 2, 3, 4]


def test_attaching_to_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    with pytest.raises(ResourceError):
        Arena.attach(read_end, 4096)
    with pytest.raises(OSError):
        os.fstat(read_end)  # it belonged to the arena, which closed it


def test_descriptors_do_not_survive_exec(make: Make) -> None:
    arena = make(4096)
    if arena.shared:
        assert not os.get_inheritable(arena.fd)


@pytest.mark.slow
def test_closing_keeps_views_alive_and_no_descriptor(make: Make) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    arena = make(4096)
    arena.close()
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    arena = make(4096)
    view = arena.view(0, (16,), np.uint8)
    arena.close()
    arena.close()
    view[:] = 9
    assert view.sum() == 144
    with pytest.raises(InternalError, match="arena of 0 bytes"):
        arena.view(0, (1,), np.uint8)
    with pytest.raises(InternalError):
        _ = arena.fd
