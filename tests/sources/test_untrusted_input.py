"""Input from elsewhere: connections that deliver in pieces or end early, and arrays that name their own decoders."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tartan.analytics import read_matrix
from tartan.errors import ConfigError
from tartan.sources.items import open_source
from tartan.sources.paths import Location, read_location

CONTENT = bytes(range(256)) * 40


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
    with pytest.raises(OSError, match="above the limit of 9999"):
        read_location(Location("x", Server()), 9999)


def test_a_connection_that_ends_early_is_an_error() -> None:
    with pytest.raises(OSError, match="10239 bytes came of 10240"):
        read_location(Location("x", Server(cut=1), len(CONTENT)), 10**6)


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
