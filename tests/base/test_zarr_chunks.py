"""Zarr arrays that were damaged on their way, or say what is not true: one error that names the chunk, and no more."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc, GZip, Zstd

from tartan.analytics.matrix.open import read_matrix
from tartan.base.zarr_input import open_zarr, read_zarr
from tartan.blocks.sources import source_of
from tartan.errors import ConfigError, ItemError, StoreError
from tartan.sources.arrays import open_stored_array

SIDE = 4
VALUES = np.random.default_rng(0).random((3 * SIDE, SIDE), np.float32)
CODECS = {
    "zstd": zarr.codecs.ZstdCodec(),
    "blosc": zarr.codecs.BloscCodec(),
    "gzip": zarr.codecs.GzipCodec(),
    "none": None,
}


def write(path: Path, codec: str = "zstd", values: np.ndarray = VALUES) -> Path:
    """Write an array in chunks of SIDE rows; return the file of the second."""
    array = zarr.create_array(
        path, shape=values.shape, chunks=(SIDE, SIDE), dtype=values.dtype, compressors=CODECS[codec]
    )
    array[:] = values
    return path / "c" / "1" / "0"


def cut(chunk: Path) -> None:
    chunk.write_bytes(chunk.read_bytes()[:20])


def flip(chunk: Path) -> None:
    data = bytearray(chunk.read_bytes())
    data[0] ^= 0xFF
    data[-5] ^= 0xFF
    chunk.write_bytes(data)


def empty(chunk: Path) -> None:
    chunk.write_bytes(b"")


def pipe(chunk: Path) -> None:
    chunk.unlink()
    os.mkfifo(chunk)


def other_codec(chunk: Path) -> None:
    chunk.write_bytes(bytes({"zstd": GZip(), "gzip": Zstd()}.get(chunk.parts[-4], Zstd()).encode(VALUES[:SIDE])))


DAMAGE = [cut, flip, empty, pipe, other_codec]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("codec", CODECS)
def test_damaged_chunk_is_named_and_others_are_read(tmp_path: Path, codec: str, damage: Any) -> None:
    if codec == "none" and damage is flip:
        pytest.skip("nothing tells other numbers from these")
    path = tmp_path / codec
    damage(write(path, codec))
    source = open_stored_array(str(path))
    assert source is not None
    for _ in range(2):
        with pytest.raises(ItemError, match=r"chunk c/1/0 is damaged or cannot be read .*; restore it"):
            source.read(SIDE)
    np.testing.assert_array_equal(source.read_block(0, SIDE), VALUES[:SIDE])
    np.testing.assert_array_equal(source.read(2 * SIDE), VALUES[2 * SIDE])
    with pytest.raises(StoreError, match="chunk c/1/0"):
        source_of(path, None, None).open().read(((0, 9), (0, 4)), np.empty((9, 4), np.float32))


@pytest.mark.parametrize("form", [2, 3])
def test_codecs_within_others_are_guarded(tmp_path: Path, form: int) -> None:
    kind: dict[str, Any] = {"zarr_format": 2, "compressors": Blosc()} if form == 2 else {"shards": (SIDE, SIDE)}
    kind |= {} if form == 2 else {"compressors": zarr.codecs.BloscCodec()}
    array = zarr.create_array(tmp_path / "a", shape=VALUES.shape, chunks=(SIDE, SIDE), dtype="f4", **kind)
    array[:] = VALUES
    chunk = tmp_path / "a" / ("1.0" if form == 2 else "c/1/0")
    data = bytearray(chunk.read_bytes())
    data[12:16] = (1 << 20).to_bytes(4, "little")  # the packed length in the header of Blosc
    chunk.write_bytes(data)
    with pytest.raises(ConfigError, match=r"1.0 is damaged .* bytes of 1,048,576"):
        read_zarr(open_zarr(tmp_path / "a"), slice(None), "a")


@pytest.mark.parametrize("codec", ["zstd", "blosc"])
def test_small_file_that_unpacks_to_much_is_refused(tmp_path: Path, codec: str) -> None:
    chunk = write(tmp_path / "a", codec)
    packed = {"zstd": Zstd(), "blosc": Blosc()}[codec].encode(np.zeros(1 << 24, np.uint8))
    chunk.write_bytes(bytes(packed))
    with pytest.raises(ConfigError, match=r"its header says 16.8 MB, where a chunk takes"):
        read_zarr(open_zarr(tmp_path / "a"), slice(None), "a")


@pytest.mark.parametrize(
    ("sides", "message"), [([0, 4], "hold nothing"), ([1 << 30, 1 << 20], r"4504 TB each, and this machine has")]
)
def test_chunks_of_no_or_of_absurd_length_are_refused(tmp_path: Path, sides: list[int], message: str) -> None:
    write(tmp_path / "a", "none")
    about = json.loads((tmp_path / "a/zarr.json").read_text())
    about["chunk_grid"]["configuration"]["chunk_shape"] = sides
    (tmp_path / "a/zarr.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match=message):
        open_zarr(tmp_path / "a")


def test_matrix_of_more_items_than_anyone_has_is_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", shape=(1 << 40, 1 << 40), chunks=(64, 64), dtype="f4")
    with pytest.raises(ConfigError, match="says that it has 1,099,511,627,776 items; at most"):
        read_matrix(tmp_path / "a")
