"""Input from elsewhere: connections that deliver in pieces or end early, and arrays that name their own decoders."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tartan.analytics import read_matrix
from tartan.errors import ConfigError, ItemError
from tartan.sources.files import DEFAULT_MAX_ITEM_BYTES, read_location
from tartan.sources.items import open_source
from tartan.sources.paths import Location
from tartan.sources.remote import Patience

CONTENT = bytes(range(256)) * 40
IMPATIENT = Patience(seconds=0.02, bytes_per_second=1e9, tries=3, pause_seconds=0.0)


class Pieces(io.BytesIO):
    """Delivers at most 1,000 bytes a read, as a connection does."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(1000, len(CONTENT) if size is None or size < 0 else size))


class Server:
    """The part of a file system that reading one location needs; ``cut`` bytes are lost on the way."""

    def __init__(self, cut: int = 0) -> None:
        self.content = CONTENT[: len(CONTENT) - cut]

    def open(self, path: str, mode: str) -> Pieces:
        return Pieces(self.content)

    def cat_file(self, path: str) -> bytes:
        return self.content


@pytest.mark.parametrize("size_bytes", [-1, len(CONTENT)])
def test_a_location_is_read_to_its_end(size_bytes: int) -> None:
    assert read_location(Location("x", Server(), size_bytes), 10**6) == CONTENT


def test_a_location_above_the_limit_is_refused_without_its_length() -> None:
    with pytest.raises(OSError, match="above the limit of 9,999"):
        read_location(Location("x", Server()), 9999)


def test_a_file_larger_than_memory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with open(tmp_path / "huge.fa", "wb") as file:
        file.truncate(2**43)
    with pytest.raises(OSError, match=r"8,796,093,022,208 bytes.* give it compressed .* more memory"):
        read_location(Location(str(tmp_path / "huge.fa")), 2**50)


def test_what_a_machine_can_hold_is_no_reason_to_refuse_a_file() -> None:
    assert os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") <= DEFAULT_MAX_ITEM_BYTES


def test_a_connection_that_ends_early_is_an_error() -> None:
    with pytest.raises(OSError, match="10239 bytes came of 10240"):
        read_location(Location("x", Server(cut=1), len(CONTENT)), 10**6, patience=IMPATIENT)


class Unreliable(Server):
    """Does not answer, or fails, the first times that it is asked."""

    def __init__(self, *errors: Exception | None) -> None:
        super().__init__()
        self.errors = list(errors)
        self.n_asked = 0

    def open(self, path: str, mode: str) -> Pieces:
        self.answer()
        return super().open(path, mode)

    def cat_file(self, path: str) -> bytes:
        self.answer()
        return super().cat_file(path)

    def answer(self) -> None:
        self.n_asked += 1
        if self.errors:
            error = self.errors.pop(0)
            if error is None:
                threading.Event().wait()
            else:
                raise error


@pytest.mark.parametrize("size_bytes", [-1, len(CONTENT)])
def test_a_server_that_never_answers_fails_after_its_tries(size_bytes: int) -> None:
    server = Unreliable(*[None] * 9)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.02 seconds"):
        read_location(Location("x", server, size_bytes), 10**6, patience=IMPATIENT)
    assert server.n_asked == 3


@pytest.mark.parametrize("error", [None, ConnectionResetError("reset"), OSError(0, "busy")])
def test_a_server_that_answers_late_is_asked_again(error: Exception | None) -> None:
    server = Unreliable(error, error)
    assert read_location(Location("x", server, len(CONTENT)), 10**6, patience=IMPATIENT) == CONTENT


class RefusedError(Exception):
    """What a web server answers."""

    status = 403


@pytest.mark.parametrize("error", [FileNotFoundError("x"), PermissionError("x"), RefusedError()])
def test_a_server_that_refuses_is_not_asked_again(error: Exception) -> None:
    server = Unreliable(error)
    with pytest.raises(type(error)):
        read_location(Location("x", server), 10**6, patience=IMPATIENT)
    assert server.n_asked == 1


def test_a_url_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigError, match=r"s3 needs .*pip install 'tartan-allpairs\[s3\]'") as raised:
        open_source("s3://bucket/x.fa")
    assert raised.value.code == "missing-extra"
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(ConfigError, match=r"input 'ssh://host/x.fa': .*paramiko"):
        open_source("ssh://host/x.fa")


def test_links_in_a_circle_are_named_and_the_others_read(tmp_path: Path) -> None:
    (tmp_path / "good.fa").write_bytes(b"x")
    (tmp_path / "circle.fa").symlink_to(tmp_path / "circle.fa")
    source = open_source(tmp_path, suffixes=(".fa",))
    assert list(source.keys) == ["circle.fa", "good.fa"]
    assert source.read(1) == b"x"
    with pytest.raises(ItemError, match=r"circle\.fa: cannot be read: .*ELOOP"):
        source.read(0)


def test_patterns_follow_no_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("1.fa", "a/2.fa", "a/b/3.fa", "a/b/.hidden.fa", "a/4.txt"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(tmp_path)
    assert list(open_source(f"{tmp_path}/**/*.fa").keys) == ["1.fa", "2.fa", "3.fa"]
    assert list(open_source(f"{tmp_path}/**").keys) == ["1.fa", "2.fa", "4.txt", "3.fa"]
    assert list(open_source(f"{tmp_path}/a/again/a/[23].fa").keys) == ["2.fa"]
    assert list(open_source(f"{tmp_path}/*/?.fa").keys) == ["2.fa", "1.fa"]


def npy(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)


@pytest.mark.parametrize(
    "shape", ["(-1, 2)", "(2, -4)", "(-2, -4)", "(99999999999, 4)", "(4, 2**70)", "('a', 2)", "(2, 2", "{}"]
)
def test_shapes_that_no_array_has_are_refused(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(npy(shape))
    for read in (open_source, read_matrix):
        with pytest.raises(ConfigError, match=r"x\.npy"):
            read(path)


def stored(folder: Path, **changes: Any) -> Path:
    """Write a Zarr array (4, 4) of format 2 whose metadata is changed afterwards."""
    zarr.create_array(str(folder), data=np.ones((4, 4)), chunks=(2, 4), zarr_format=2, compressors=None)
    path = folder / ".zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


UNSAFE = [
    {"filters": [{"id": "zlib", "level": 1}, {"id": "pickle", "protocol": 4}]},
    {"compressor": {"id": "pickle", "protocol": 4}},
    {"filters": [{"id": "msgpack2"}]},
    {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 4}], "fill_value": None},
    {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": ""},
]


@pytest.mark.parametrize("changes", UNSAFE, ids=lambda changes: "-".join(changes))
def test_arrays_that_name_unsafe_decoders_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    for read in (open_source, read_matrix):
        with pytest.raises(ConfigError, match=r"not read|cannot be opened"):
            read(stored(tmp_path / f"{read.__name__}.zarr", **changes))


def test_codecs_within_shards_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(str(path), data=np.ones((4, 4)), chunks=(2, 2), shards=(4, 4))
    assert open_source(path).n_items == 4
    about = json.loads((path / "zarr.json").read_text())
    about["codecs"][0]["configuration"]["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
    (path / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match="zarr"):
        open_source(path)
