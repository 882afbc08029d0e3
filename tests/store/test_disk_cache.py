"""The disk level: round trip, bound, order of eviction, damage, two users."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tartan.errors import ConfigError, StoreError
from tartan.store.disk_cache import DiskCache, decode, encode

NOISE = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
DTYPES = st.sampled_from(["u1", "<i8", "<f4", ">f4", "<c8", "?", "<f2", "<M8[s]", "S3"])


def name(number: int) -> str:
    return f"{number:08x}"


def entry(folder: Path, number: int) -> Path:
    """Return the file of an entry."""
    return folder / name(number)[:2] / name(number)


@given(
    st.lists(DTYPES.flatmap(lambda d: arrays(d, st.sampled_from([(), (0,), (3,), (2, 0, 4), (40, 30)]))), max_size=4)
)
def test_arrays_round_trip(given_arrays: list[np.ndarray]) -> None:
    data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in encode(given_arrays))
    again = decode(np.frombuffer(data, np.uint8).copy())
    assert [(a.dtype, a.shape, a.tobytes()) for a in again] == [(a.dtype, a.shape, a.tobytes()) for a in given_arrays]


def test_entries_survive_the_process_that_wrote_them(tmp_path: Path) -> None:
    arrays_in = [np.arange(12, dtype=np.float32).reshape(3, 4), np.array(5)]
    assert DiskCache(tmp_path / "cache", 10**6).put(name(1), arrays_in)
    cache = DiskCache(tmp_path / "cache", 10**6)
    found = cache.get(name(1))
    assert found is not None
    for before, after in zip(arrays_in, found, strict=True):
        np.testing.assert_array_equal(after, before)
        assert after.flags.writeable
    assert cache.get(name(2)) is None
    assert cache.used_bytes == files(tmp_path / "cache")


def files(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def test_a_transposed_array_keeps_its_meaning(tmp_path: Path) -> None:
    cache, matrix = DiskCache(tmp_path, 10**6), np.arange(6).reshape(2, 3).T
    cache.put(name(1), [matrix])
    found = cache.get(name(1))
    assert found is not None
    np.testing.assert_array_equal(found[0], matrix)


def test_only_what_shrinks_is_compressed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**7)
    cache.put(name(1), [NOISE])
    plain = cache.used_bytes
    cache.put(name(2), [np.zeros(100_000)])
    assert NOISE.nbytes < plain < NOISE.nbytes + 512
    assert cache.used_bytes - plain < 2048


def test_the_cache_stays_below_its_bound_and_forgets_the_least_recently_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 5 * 4400)
    for number in range(4):
        cache.put(name(number), [NOISE])
        os.utime(entry(tmp_path, number), (number, number))  # the clock is coarser than this test
    assert cache.get(name(0)) is not None, "the oldest becomes the newest by being used"
    for number in range(4, 7):
        cache.put(name(number), [NOISE])
    kept = {number for number in range(7) if cache.get(name(number)) is not None}
    assert kept == {0, 3, 4, 5, 6}
    assert cache.used_bytes == files(tmp_path) <= cache.capacity_bytes


def test_a_smaller_bound_is_kept_from_the_start(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**6)
    for number in range(10):
        cache.put(name(number), [NOISE])
    assert DiskCache(tmp_path, 10_000).used_bytes == files(tmp_path) <= 10_000


def test_what_is_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    assert not cache.put(name(1), [NOISE])
    assert files(tmp_path) == 0


@pytest.mark.parametrize("at", [0, 9, 13, 20, 200, 3000, -1])
def test_a_flipped_bit_or_a_cut_makes_an_entry_absent(tmp_path: Path, at: int) -> None:
    cache = DiskCache(tmp_path, 10**6)
    for harm in ("flip", "cut", "empty"):
        cache.put(name(1), [NOISE, np.zeros(1000)])
        path = entry(tmp_path, 1)
        data = bytearray(path.read_bytes())
        end = len(bytes(data).rstrip(b"\x00")) - 1 if at == -1 else at  # what follows is padding
        data[end] ^= 4
        path.write_bytes({"flip": bytes(data), "cut": bytes(data[:end]), "empty": b""}[harm])
        assert cache.get(name(1)) is None
        assert not path.exists(), "it is dropped"
    assert cache.put(name(1), [NOISE])


def test_two_users_of_one_folder(tmp_path: Path) -> None:
    one, two = DiskCache(tmp_path, 3 * 4400), DiskCache(tmp_path, 3 * 4400)
    one.put(name(1), [NOISE])
    assert two.get(name(1)) is not None
    assert two.put(name(1), [NOISE])
    for number in range(2, 9):
        (one, two)[number % 2].put(name(number), [NOISE])
    assert files(tmp_path) <= 2 * 3 * 4400
    three = DiskCache(tmp_path, 3 * 4400)
    assert three.used_bytes == files(tmp_path) <= 3 * 4400
    assert sum(two.get(name(n)) is not None for n in range(9)) == files(tmp_path) // 4096


def test_leftovers_of_killed_writers_go_first(tmp_path: Path) -> None:
    left = tmp_path / "tmp-elsewhere.1.00000000-1"
    left.write_bytes(bytes(9000))
    os.utime(left, (0, 0))
    cache = DiskCache(tmp_path, 10_000)
    assert cache.used_bytes == 9000
    cache.put(name(1), [NOISE])
    assert not left.exists()


def test_only_entries_are_ever_removed(tmp_path: Path) -> None:
    others = [
        "thesis.tex",
        "tmp-1-1",
        "ab/thesis.tex",
        "ab/cd000000",
        "photos/00000001",
        "ab/abcdef01/file",
        "0abcdef0",
    ]
    for other in others:
        (tmp_path / other).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / other).write_bytes(bytes(5000))
        os.utime(tmp_path / other, (0, 0))
    cache = DiskCache(tmp_path, 5000)
    assert cache.used_bytes == 0
    for number in range(4):
        cache.put(name(number), [NOISE])
    assert cache.used_bytes <= 5000
    assert all((tmp_path / other).stat().st_size == 5000 for other in others)


def test_no_link_in_a_cache_is_followed(tmp_path: Path) -> None:
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    (theirs / "00").mkdir(parents=True)
    (theirs / "00" / name(7)).write_bytes(bytes(5000))
    run.mkdir()
    (run / "cache").symlink_to(theirs)
    with pytest.raises(StoreError, match="cache is a symbolic link") as caught:
        DiskCache(run / "cache", 10, root=run)
    assert caught.value.code == "link"
    (run / "cache").unlink()
    (run / "cache").mkdir()
    (run / "cache" / "00").symlink_to(theirs / "00")
    cache = DiskCache(run / "cache", 10**6, root=run)
    assert not cache.put(name(1), [NOISE])
    assert cache.get(name(7)) is None
    assert [path.name for path in theirs.rglob("*")] == ["00", name(7)]


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path, 10**6)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        assert not cache.put(name(1), [NOISE])
    assert cache.get(name(1)) is None
    assert (files(tmp_path), cache.used_bytes) == (0, 0)


@pytest.mark.parametrize("digest", ["", "a", "../../etc", "ab/cd", "abc."])
def test_a_digest_is_no_path(tmp_path: Path, digest: str) -> None:
    with pytest.raises(ConfigError, match="is not a digest"):
        DiskCache(tmp_path, 10).get(digest)


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="object"):
        DiskCache(tmp_path, 1000).put(name(1), [np.array([{}])])
    with pytest.raises(ConfigError, match="capacity"):
        DiskCache(tmp_path, 0)
