"""Rows of archives, HDF5, raw memory and bfloat16, and shards of all of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tartan.base.notices import RunNotice
from tartan.errors import ConfigError
from tartan.sources.arrays import MappedSource
from tartan.sources.files import FileSource
from tartan.sources.items import files_of, open_source
from tartan.sources.rows import unpacked
from tartan.sources.rows.opening import missing_shards, name_part, split_part
from tartan.sources.rows.shards import ShardSource
from tartan.sources.rows.unpacked import StoredRows

ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
IDS = [f"doc{i}" for i in range(60)]


def opened(name: Any) -> StoredRows:
    """Open rows."""
    source = open_source(name, rows=True)
    assert isinstance(source, StoredRows)
    return source


def packs(source: StoredRows, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether rows are written to another file, instead of mapped where they are."""
    written: list[int] = []
    plain = unpacked.write_unnamed
    monkeypatch.setattr(unpacked, "write_unnamed", lambda *about: written.append(about[3]) or plain(*about))
    source.prepare()
    return bool(written)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_array_of_an_archive_is_the_rows(
    tmp_path: Path, save: Any, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a.npz", vectors=np.asarray(ROWS, order=order), id=np.array(IDS), label=np.arange(60.0))
    source = opened(tmp_path / "a.npz")
    assert packs(source, monkeypatch) == (save is np.savez_compressed)
    assert (source.shape, source.dtype) == ((60, 5), np.float32)
    np.testing.assert_array_equal(source.read_block(7, 31), ROWS[7:31])
    assert list(source.keys) == IDS


def test_an_archive_of_two_arrays_asks_which(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train=ROWS, test=-ROWS[:9])
    with pytest.raises(ConfigError, match=r"2 arrays of rows, 'train', 'test'; name one: .*a.npz:train"):
        opened(tmp_path / "a.npz")
    np.testing.assert_array_equal(opened(f"{tmp_path}/a.npz:test").read_block(0, 9), -ROWS[:9])
    with pytest.raises(ConfigError, match=r"no array 'x' of rows of numbers; it has train \(60, 5\) float32"):
        opened(f"{tmp_path}/a.npz:x")
    np.savez(tmp_path / "flat.npz", v=ROWS.ravel())
    with pytest.raises(ConfigError, match=r"no array \(n, d\) of numbers; it has v \(300,\) float32"):
        opened(tmp_path / "flat.npz")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", v=ROWS)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[400:500] = bytes(100)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ConfigError, match=r"a.npz: (this is not an archive of NumPy, or|its rows|it says)"):
        opened(tmp_path / "a.npz").prepare()
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match=r"this is not an archive of NumPy"):
        opened(tmp_path / "b.npz")


@pytest.mark.parametrize("ways", [{}, {"chunks": (7, 3)}, {"chunks": (7, 5), "compression": "gzip"}])
def test_the_dataset_of_hdf5_is_the_rows(tmp_path: Path, ways: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("group/vectors", data=ROWS, **ways)
        file.create_dataset("group/id", data=np.array(IDS, dtype=object), dtype=h5py.string_dtype())
        file.create_dataset("other/id", data=np.arange(60))
    source = opened(tmp_path / "a.h5")
    assert packs(source, monkeypatch) == bool(ways)
    np.testing.assert_array_equal(source.read_block(7, 31), ROWS[7:31])
    assert list(source.keys) == IDS
    again = opened(f"{tmp_path}/a.h5:group/vectors")
    np.testing.assert_array_equal(again.read_block(0, 60), ROWS)
    (tmp_path / "b.h5").write_bytes(b"no such file")
    with pytest.raises(ConfigError, match=r"this is not an HDF5 file, or it is damaged"):
        opened(tmp_path / "b.h5")


def test_links_of_hdf5_to_other_files_are_not_followed(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["v"] = ROWS
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = h5py.ExternalLink("secret.h5", "/v")
        layout = h5py.VirtualLayout((60, 5), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "v", (60, 5))
        file.create_virtual_dataset("w", layout)
    with pytest.raises(ConfigError, match=r"no array \(n, d\) of numbers; it has nothing"):
        opened(tmp_path / "a.h5")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8"])
def test_raw_memory_is_mapped(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (ROWS * 20).astype(dtype)
    rows.tofile(tmp_path / "rows.bin")
    source = opened(name_part(str(tmp_path / "rows.bin"), dtype, 5))
    assert not packs(source, monkeypatch)
    assert source.dtype == dtype
    np.testing.assert_array_equal(source.read_block(3, 44), rows[3:44])


def bfloat16(rows: np.ndarray) -> np.ndarray:
    """Return the upper halves of float32."""
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_is_widened_as_it_is_read(tmp_path: Path) -> None:
    bits = bfloat16(ROWS)
    truth = (bits.astype(np.uint32) << 16).view(np.float32)
    bits.tofile(tmp_path / "rows.bin")
    np.save(tmp_path / "rows.npy", bits.view("V2"))  # as ml_dtypes saves it
    for name in (name_part(f"{tmp_path}/rows.bin", "bfloat16", 5), name_part(f"{tmp_path}/rows.npy", "bfloat16", None)):
        source = opened(name)
        assert (source.dtype, source.shape) == (np.float32, (60, 5))
        np.testing.assert_array_equal(source.read_block(3, 44), truth[3:44])
        np.testing.assert_array_equal(source.read(59), truth[59])
        assert source.say().endswith("bfloat16, compared as float32")
    with pytest.raises(ConfigError, match=r"two bytes and no type, as bfloat16 is saved; say so by --dtype bfloat16"):
        opened(tmp_path / "rows.npy")
    np.save(tmp_path / "wide.npy", ROWS)
    with pytest.raises(ConfigError, match=r"float32 of shape \(60, 5\), no rows of bfloat16"):
        opened(f"{tmp_path}/wide.npy:bfloat16")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("float32x7", r"1,200 bytes, no whole number of rows of 7 float32, 28 bytes each; give the right --dtype"),
        ("float33x5", r"'float33' is not a dtype of vectors; choose float16, bfloat16"),
        ("U4x5", r"'U4' is not a dtype of vectors"),
        ("float32x0", r"--dim is 0"),
    ],
)
def test_raw_memory_that_is_no_rows_is_named(tmp_path: Path, part: str, said: str) -> None:
    ROWS.tofile(tmp_path / "rows.bin")
    with pytest.raises(ConfigError, match=said):
        opened(f"{tmp_path}/rows.bin:{part}")


def test_dtype_and_dim_are_asked_for_together() -> None:
    assert name_part("rows.bin", None, None) == "rows.bin"
    for dtype, dim in (("float32", None), (None, 5)):
        with pytest.raises(ConfigError, match=r"need both --dtype and --dim"):
            name_part("rows.bin", dtype, dim)
    assert name_part("rows.parquet", "float32", 5) == "rows.parquet"
    assert split_part("s3://bucket/rows.bin:float32x5")[1] is None


def shards(folder: Path, *, count: int = 12) -> list[str]:
    """Write rows in shards whose order by name is not that of their numbers."""
    names = []
    for number, rows in enumerate(np.array_split(ROWS, count)):
        names.append(str(folder / f"part-{number}.npy"))
        np.save(names[-1], rows)
    return names


def test_shards_of_a_glob_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = shards(tmp_path)
    for given in (f"{tmp_path}/part-*.npy", str(tmp_path), names):
        source = open_source(given, rows=True)
        assert isinstance(source, ShardSource)
        assert source.shape == (60, 5)
        np.testing.assert_array_equal(source.read_block(0, 60), ROWS)
        np.testing.assert_array_equal(source.read_block(4, 23), ROWS[4:23])
        np.testing.assert_array_equal(source.read(33), ROWS[33])
        assert source.describe()["patterns"] == names
        assert list(files_of(source)) == names
        assert source.keys[59] == "59"
    there = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(there.read_block(4, 23), ROWS[4:23])


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    names = shards(tmp_path)
    Path(names[3]).unlink()
    Path(names[7]).unlink()
    said = r"of the shards part-0.npy to part-11.npy, part-3.npy, part-7.npy are missing"
    for given in (f"{tmp_path}/part-*.npy", str(tmp_path)):
        with pytest.raises(ConfigError, match=f"{said}; bring what is missing, or name the files one by one"):
            open_source(given, rows=True)
    with pytest.warns(RunNotice, match=said):
        source = open_source([name for name in names if Path(name).exists()], rows=True)
    assert source.n_items == 50


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["a_00.npy", "a_02.npy", "a_03.npy"], ["a_01.npy"]),
        (["a9.npy", "a11.npy"], ["a10.npy"]),
        (
            ["e-00000-of-00004.parquet", "e-00001-of-00004.parquet"],
            ["e-00002-of-00004.parquet", "e-00003-of-00004.parquet"],
        ),
        (["a.npy", "b.npy"], []),
        (["2024-01-01.npy", "2024-02-02.npy"], []),
        (["20240101.npy", "20240201.npy", "20240301.npy"], []),
        (["one.npy"], []),
    ],
)
def test_only_a_sequence_has_gaps(names: list[str], missing: list[str]) -> None:
    assert missing_shards(names) == missing


def test_shards_keep_their_names_and_their_widest_type(tmp_path: Path) -> None:
    for number, part in enumerate((slice(0, 20), slice(20, 60))):
        kind = (np.float32, np.float16)[number]
        rows = pa.FixedSizeListArray.from_arrays(pa.array(ROWS[part].astype(kind).ravel()), 5)
        pq.write_table(pa.table({"id": IDS[part], "v": rows}), tmp_path / f"{number}.parquet")
    source = open_source(f"{tmp_path}/*.parquet", rows=True)
    assert isinstance(source, ShardSource)
    assert list(source.keys) == IDS
    assert source.read_block(0, 60).dtype == np.float32
    np.testing.assert_array_equal(source.read_block(0, 20), ROWS[:20])
    np.testing.assert_array_equal(source.read_block(18, 60)[2:], ROWS[20:].astype(np.float16))
    source.name_rows("numbers")
    assert source.keys[1] == "1"
    pq.write_table(pa.table({"id": IDS[:40], "v": rows}), tmp_path / "1.parquet")
    with pytest.raises(ConfigError, match=r"row 0 of .*0.parquet and row 0 of .*1.parquet have the same name, 'doc0'"):
        list(open_source(f"{tmp_path}/*.parquet", rows=True).keys)


def test_shards_that_do_not_fit_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", ROWS[:, :3])
    np.save(tmp_path / "c.npy", ROWS[0])
    (tmp_path / "d.txt").write_text("1")
    with pytest.raises(ConfigError, match=r"b.npy has rows of 3 values, and .*a.npy of 5"):
        open_source([f"{tmp_path}/a.npy", f"{tmp_path}/b.npy"], rows=True)
    with pytest.raises(ConfigError, match=r"c.npy is one vector, and others"):
        open_source([f"{tmp_path}/a.npy", f"{tmp_path}/c.npy"], rows=True)
    with pytest.raises(ConfigError, match=r"d.txt is not a file of rows, and others that are given with it are"):
        open_source([f"{tmp_path}/a.npy", f"{tmp_path}/d.txt"], rows=True)


def test_files_of_one_vector_stay_items(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"v{number}.npy", ROWS[number])
    (tmp_path / "v0.npy").write_bytes(b"damaged")
    assert isinstance(open_source(str(tmp_path), rows=True, suffixes=(".npy",)), FileSource)
    np.save(tmp_path / "rows.npy", ROWS)
    assert isinstance(open_source(f"{tmp_path}/rows.npy", rows=True), MappedSource)
