"""What a user may give as items, and what each of it becomes."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import scipy.sparse
import zarr

from tartan.base.urls import is_url
from tartan.errors import ConfigError, ItemError
from tartan.sources.arrays import ArraySource, ZarrSource
from tartan.sources.files import find_keys, item_keys
from tartan.sources.items import SequenceSource, Source, join_sources, open_source
from tartan.sources.paths import Location, absolute, expand, has_magic


def write(folder: Path, *names: str) -> Path:
    """Files whose content is their own relative name."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def contents(source: Source) -> list[Any]:
    return [source.read(index) for index in range(source.n_items)]


class TestFiles:
    def test_glob_is_expanded_and_sorted_by_name(self, tmp_path: Path) -> None:
        write(tmp_path, "b.fa", "a.fa", "c.txt", "C.fa")
        source = open_source(f"{tmp_path}/*.fa")
        assert source.kind == "files"
        assert list(source.keys) == ["C.fa", "a.fa", "b.fa"]
        assert contents(source) == [b"C.fa", b"a.fa", b"b.fa"]

    def test_glob_takes_files_not_folders(self, tmp_path: Path) -> None:
        write(tmp_path, "a", "sub/b")
        assert list(open_source(f"{tmp_path}/*").keys) == ["a"]

    def test_two_stars_go_through_folders(self, tmp_path: Path) -> None:
        write(tmp_path, "a.fa", "x/b.fa", "x/y/c.fa")
        assert list(open_source(f"{tmp_path}/**/*.fa").keys) == ["a.fa", "b.fa", "c.fa"]

    def test_folder_is_searched_for_the_suffixes_of_the_application(self, tmp_path: Path) -> None:
        write(tmp_path, "b.JPG", "a.jpeg", "truth.json", ".hidden.jpg", "sub/c.jpg")
        source = open_source(tmp_path, suffixes=(".jpg", ".jpeg"))
        assert list(source.keys) == ["a.jpeg", "b.JPG"]

    def test_folder_without_suffixes_gives_every_visible_file(self, tmp_path: Path) -> None:
        write(tmp_path, "b", "a.txt", ".hidden")
        assert list(open_source(str(tmp_path)).keys) == ["a.txt", "b"]

    def test_list_keeps_its_order(self, tmp_path: Path) -> None:
        write(tmp_path, "z.fa", "m/b.fa", "m/a.fa")
        source = open_source([tmp_path / "z.fa", f"{tmp_path}/m/*.fa"])
        assert list(source.keys) == ["z.fa", "a.fa", "b.fa"]

    def test_existing_name_with_brackets_is_no_pattern(self, tmp_path: Path) -> None:
        write(tmp_path, "photo[1].jpg", "photo1.jpg")
        assert list(open_source(f"{tmp_path}/photo[1].jpg").keys) == ["photo[1].jpg"]

    def test_home_folder_is_expanded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(write(tmp_path, "a.fa")))
        assert contents(open_source("~/*.fa")) == [b"a.fa"]

    def test_equal_names_become_paths_below_the_common_folder(self, tmp_path: Path) -> None:
        write(tmp_path, "one/x/1.jpg", "one/y/1.jpg", "one/y/2.jpg")
        source = open_source(f"{tmp_path}/**/*.jpg")
        assert list(source.keys) == ["x/1.jpg", "y/1.jpg", "y/2.jpg"]

    def test_keys_do_not_depend_on_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "x/1.jpg", "y/1.jpg")
        monkeypatch.chdir(tmp_path / "x")
        assert list(open_source(["1.jpg", "../y/1.jpg"]).keys) == ["x/1.jpg", "y/1.jpg"]

    def test_name_that_is_no_utf8_gets_a_printable_key(self, tmp_path: Path) -> None:
        with open(os.fsencode(tmp_path) + b"/caf\xe9.fa", "wb") as file:
            file.write(b"x")
        source = open_source(tmp_path)
        assert source.keys[0] == "caf\\xe9.fa"
        assert source.keys[0].encode()
        assert source.read(0) == b"x"

    def test_file_named_twice_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "a.fa", "b.fa")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match=r"a\.fa' is named twice") as caught:
            open_source(["*.fa", f"{tmp_path}/a.fa"])
        assert caught.value.code == "duplicate-item"

    @pytest.mark.parametrize("name", ["missing.fa", "*.fa", "empty"])
    def test_nothing_there_is_refused_by_name(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(ConfigError) as caught:
            open_source(f"{tmp_path}/{name}", suffixes=(".fa",))
        assert name in str(caught.value)

    def test_strings_that_are_no_paths_are_told_the_way_out(self) -> None:
        with pytest.raises(ConfigError, match="enumerate"):
            open_source(["kitten", "sitting"])

    def test_one_missing_file_among_many_is_refused_at_the_start(self, tmp_path: Path) -> None:
        write(tmp_path, "a.fa")
        with pytest.raises(ConfigError, match=r"b\.fa.*No such file"):
            open_source([f"{tmp_path}/a.fa", f"{tmp_path}/b.fa"])

    def test_patterns_are_described_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "a.fa")
        monkeypatch.chdir(tmp_path)
        described = open_source("*.fa").describe()
        assert described == {"kind": "files", "patterns": [f"{tmp_path}/*.fa"]}

    def test_rows_are_not_to_be_had(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="has no blocks"):
            open_source(write(tmp_path, "a")).read_block(0, 1)


class TestReadErrors:
    def test_vanished_file_fails_as_an_item(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path, "a.fa", "b.fa"))
        (tmp_path / "a.fa").unlink()
        with pytest.raises(ItemError, match=r"a\.fa: cannot be read: No such file.*ENOENT") as caught:
            source.read(0)
        assert caught.value.context["key"] == "a.fa"
        assert caught.value.context["errno"] == 2
        assert source.read(1) == b"b.fa"

    def test_unreadable_file_fails_as_an_item(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path, "loop", "b"))
        (tmp_path / "loop").unlink()
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(ItemError, match=r"loop: cannot be read: .*ELOOP"):
            source.read(1)

    def test_named_pipe_fails_instead_of_waiting(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ItemError, match="pipe: cannot be read: not a regular file"):
            open_source(tmp_path).read(0)

    def test_oversized_file_fails_as_an_item(self, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(bytes(101))
        (tmp_path / "fits").write_bytes(bytes(100))
        source = open_source(tmp_path, max_item_bytes=100)
        with pytest.raises(ItemError, match=r"big: cannot be read: 101 bytes.*limit of 100"):
            source.read(0)
        assert len(source.read(1)) == 100

    def test_empty_file_is_empty_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert open_source(tmp_path).read(0) == b""


class TestFingerprints:
    def test_sizes_and_times_of_files(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path, "a", "bcd"))
        os.utime(tmp_path / "a", ns=(5, 5))
        sizes, mtimes, *_ = source.fingerprints() or pytest.fail("files have fingerprints")
        assert sizes.dtype == mtimes.dtype == np.int64
        assert sizes.tolist() == [1, 3]
        assert mtimes[0] == 5
        assert mtimes[1] == (tmp_path / "bcd").stat().st_mtime_ns

    def test_vanished_file_is_unknown(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path, "a", "b"))
        (tmp_path / "a").unlink()
        sizes, mtimes, *_ = source.fingerprints() or pytest.fail("files have fingerprints")
        assert (sizes[0], mtimes[0]) == (-1, -1)
        assert sizes[1] == 1

    def test_arrays_and_sequences_have_none(self) -> None:
        assert open_source(np.zeros((2, 2))).fingerprints() is None
        assert open_source([object(), object()]).fingerprints() is None


class TestUrls:
    @pytest.fixture
    def memory(self) -> Any:
        filesystem = fsspec.filesystem("memory")
        filesystem.store.clear()
        for name in ("x/b.fa", "x/a.fa", "x/t.json", "x/.hidden.fa", "x/sub/c.fa"):
            filesystem.pipe(name, name.encode())
        yield filesystem
        filesystem.store.clear()

    def test_glob(self, memory: Any) -> None:
        source = open_source("memory://x/[!.]*.fa")
        assert list(source.keys) == ["a.fa", "b.fa"]
        assert contents(source) == [b"x/a.fa", b"x/b.fa"]

    def test_folder_ends_in_a_slash(self, memory: Any) -> None:
        assert list(open_source("memory://x/", suffixes=(".fa",)).keys) == ["a.fa", "b.fa"]

    def test_single_address(self, memory: Any) -> None:
        assert contents(open_source("memory://x/b.fa")) == [b"x/b.fa"]

    def test_fingerprints_come_with_the_listing(self, memory: Any) -> None:
        sizes, mtimes, *_ = open_source("memory://x/*.fa").fingerprints() or pytest.fail("known")
        assert sizes.tolist()[-1] == len("x/b.fa")
        assert (mtimes > 0).all()

    def test_missing_file_fails_as_an_item(self, memory: Any) -> None:
        with pytest.raises(ItemError, match=r"gone\.fa: cannot be read"):
            open_source("memory://x/gone.fa").read(0)

    @pytest.mark.parametrize("url", ["memory://x/b.fa", "memory://x/b*.fa"])
    def test_limit_holds(self, memory: Any, url: str) -> None:
        with pytest.raises(ItemError, match="limit of 3 bytes"):
            open_source(url, max_item_bytes=3).read(0)

    def test_no_match_is_refused(self, memory: Any) -> None:
        with pytest.raises(ConfigError, match=r"memory://x/\*\.gz"):
            open_source("memory://x/*.gz")

    def test_what_cannot_be_listed_is_said(self, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("not for you")

        monkeypatch.setattr(memory, "glob", refuse)
        with pytest.raises(ConfigError, match=r"'memory://x/\*\.fa' cannot be listed: not for you"):
            open_source("memory://x/*.fa")

    def test_unknown_protocol_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="nosuch://x"):
            open_source("nosuch://x/y")

    @pytest.mark.parametrize(
        "url",
        [
            "reference::{}/a.json",
            "zip://*.fa::{}/a.zip",
            "simplecache::memory://x/b.fa",
            "memory://x::y",
            "dir::a.zarr",
        ],
    )
    def test_chained_addresses_are_refused_before_anything_is_opened(self, tmp_path: Path, url: str) -> None:
        with pytest.raises(ConfigError, match="chained by '::'") as caught:
            open_source(url.format(tmp_path))
        assert caught.value.code == "chained-url"

    def test_two_colons_in_the_name_of_a_file_are_no_chain(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a::b.fa").write_text("1")
        assert contents(open_source(["a::b.fa"])) == [b"1"]

    @pytest.mark.parametrize("scheme", ["file://", "local://", "FILE://"])
    def test_a_local_file_is_read_as_one_whatever_its_scheme(self, tmp_path: Path, scheme: str) -> None:
        (tmp_path / "a.fa").write_text("1")
        source = open_source(f"{scheme}{tmp_path}/*.fa")
        assert contents(source) == [b"1"]
        assert source.describe()["patterns"] == [f"{tmp_path}/*.fa"]

    def test_duplicate_is_refused(self, memory: Any) -> None:
        with pytest.raises(ConfigError, match="named twice"):
            open_source(["memory://x/a.fa", "memory://x/*.fa"])

    def test_what_is_an_address_and_what_a_pattern(self) -> None:
        assert is_url("s3://bucket/key")
        assert is_url("zip://*.fa::a.zip")
        assert not is_url("/a/b")
        assert not is_url("c:d")
        assert has_magic("s3://b/*.fa")
        assert has_magic("https://h/[ab].fa")
        assert not has_magic("https://h/a.fa?version=2")
        assert absolute("s3://b/x") == "s3://b/x"


class TestArrays:
    def test_numpy_rows_are_views(self) -> None:
        array = np.arange(12.0).reshape(4, 3)
        source = open_source(array)
        assert (source.kind, source.n_items) == ("array", 4)
        assert list(source.keys) == ["0", "1", "2", "3"]
        assert source.keys[1:3] == ["1", "2"]
        assert np.shares_memory(source.read_block(1, 3), array)
        np.testing.assert_array_equal(source.read(2), [6, 7, 8])

    def test_one_dimension_counts_items(self) -> None:
        assert open_source(np.arange(5)).read(3) == 3

    def test_npy_is_mapped_and_never_copied(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        np.save(path, np.arange(20, dtype=np.float32).reshape(5, 4))
        source = open_source(path)
        assert source.kind == "array"
        block = source.read_block(1, 3)
        assert type(block) is np.ndarray
        assert not block.flags.owndata
        np.testing.assert_array_equal(block, np.arange(4, 12, dtype=np.float32).reshape(2, 4))
        described = source.describe()
        assert described["patterns"] == [str(path)]
        assert described["shape"] == [5, 4]
        assert described["dtype"] == "<f4"
        assert described["size_bytes"] == path.stat().st_size

    def test_several_npy_are_files(self, tmp_path: Path) -> None:
        for name in ("a.npy", "b.npy"):
            np.save(tmp_path / name, np.zeros((2, 2)))
        assert open_source([tmp_path / "a.npy", tmp_path / "b.npy"]).kind == "files"
        assert open_source(f"{tmp_path}/*.npy").kind == "files"
        assert open_source(tmp_path, suffixes=(".npy",)).kind == "files"

    def test_the_only_npy_of_a_folder_is_an_array(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros((3, 2)))
        (tmp_path / "truth.json").write_text("{}")
        source = open_source(tmp_path, suffixes=(".npy",))
        assert (source.kind, source.n_items) == ("array", 3)
        assert source.describe()["patterns"] == [f"{tmp_path}/a.npy"]
        assert open_source(f"{tmp_path}/*.npy").kind == "array"

    def test_npy_of_one_dimension_is_a_file(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros(3))
        assert open_source(tmp_path / "a.npy").kind == "files"

    @pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'"])
    def test_broken_npy_is_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(ConfigError, match=r"a\.npy.*cannot be opened"):
            open_source(tmp_path / "a.npy")

    def test_truncated_npy_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npy"
        np.save(path, np.zeros((100, 100)))
        os.truncate(path, 1000)
        with pytest.raises(ConfigError, match="cannot be opened"):
            open_source(path)

    def test_pickled_npy_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([[{}, {}]], dtype=object))
        with pytest.raises(ConfigError, match="cannot be opened"):
            open_source(tmp_path / "a.npy")

    @pytest.mark.parametrize(("data", "says"), [(b"", "it is empty"), (b"hello", "does not begin as a .npy file does")])
    def test_what_is_no_npy_is_never_advised_to_be_unpickled(self, data: bytes, says: str, tmp_path: Path) -> None:
        (tmp_path / "a.npy").write_bytes(data)
        with pytest.raises(ConfigError, match=says):
            open_source(tmp_path / "a.npy")

    @pytest.mark.parametrize(
        ("items", "said"),
        [
            (scipy.sparse.csr_matrix(np.eye(3)), "items are a sparse matrix; give a dense array"),
            (np.ma.array([1.0, 2.0], mask=[False, True]), "items are a masked array; fill it"),
            (np.float64(3.0), "an array without dimensions"),
            ({"a", "b"}, "items are a set; give paths, an array, or objects in a fixed order"),
            (b"bytes", "items are a bytes"),
        ],
        ids=["sparse", "masked", "number", "set", "bytes"],
    )
    def test_what_has_no_rows_in_order_is_refused(self, items: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            open_source(items)

    @pytest.mark.parametrize("array", [np.zeros((0, 3)), []])
    def test_no_rows_are_refused(self, array: Any) -> None:
        with pytest.raises(ConfigError, match=r"no (rows|items)"):
            open_source(array)

    def test_objects_in_an_array_are_a_sequence(self) -> None:
        source = open_source(np.array([{"a": 1}, {"b": 2}], dtype=object))
        assert source.kind == "sequence"
        assert source.read(1) == {"b": 2}

    def test_anything_that_can_be_sliced_is_read_by_blocks(self) -> None:
        class Lazy:
            shape = (6, 2)
            dtype = np.dtype(np.int16)

            def __getitem__(self, rows: slice) -> list[list[int]]:
                return [[i, -i] for i in range(6)[rows]]

        source = open_source(Lazy())
        assert source.kind == "array"
        np.testing.assert_array_equal(source.read_block(4, 6), [[4, -4], [5, -5]])


class CountingArray:
    """A Zarr array that counts what is decoded."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.chunks, self.size = array.shape, array.dtype, array.chunks, array.size
        self.slices: list[tuple[int, int]] = []

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.slices.append((rows.start, rows.stop))
        return np.asarray(self._array[rows])


class TestZarr:
    @pytest.fixture
    def values(self) -> np.ndarray:
        return np.arange(70, dtype=np.float32).reshape(35, 2)

    @pytest.fixture
    def array(self, tmp_path: Path, values: np.ndarray) -> zarr.Array[Any]:
        return zarr.create_array(str(tmp_path / "x.zarr"), data=values, chunks=(10, 2))

    def test_folder_is_opened_as_rows(self, tmp_path: Path, values: np.ndarray, array: zarr.Array[Any]) -> None:
        source = open_source(tmp_path / "x.zarr")
        assert isinstance(source, ZarrSource)
        assert source.describe()["patterns"] == [str(tmp_path / "x.zarr")]
        for start, stop in [(0, 35), (3, 7), (9, 11), (30, 35), (5, 5)]:
            np.testing.assert_array_equal(source.read_block(start, stop), values[start:stop])
        np.testing.assert_array_equal(source.read(34), values[34])

    def test_each_chunk_is_decoded_once_a_pass(self, array: zarr.Array[Any]) -> None:
        counting = CountingArray(array)
        source = ZarrSource(counting, "x")
        for start in range(0, 35, 4):
            source.read_block(start, min(start + 4, 35))
        assert counting.slices == [(0, 10), (10, 20), (20, 30), (30, 35)]

    def test_few_bands_are_kept(self, array: zarr.Array[Any]) -> None:
        counting = CountingArray(array)
        source = ZarrSource(counting, "x", budget_bytes=2 * 10 * 2 * 4)
        for start in (0, 10, 20, 10, 0):
            source.read_block(start, start + 2)
        assert [start for start, _ in counting.slices] == [0, 10, 20, 0]

    def test_band_above_the_budget_is_left_to_zarr(self, array: zarr.Array[Any]) -> None:
        counting = CountingArray(array)
        ZarrSource(counting, "x", budget_bytes=10).read_block(3, 5)
        assert counting.slices == [(3, 5)]

    def test_group_is_refused_with_its_arrays(self, tmp_path: Path, array: zarr.Array[Any]) -> None:
        group = zarr.create_group(str(tmp_path / "group"))
        group.create_array("inner", shape=(2, 2), dtype="f4")
        with pytest.raises(ConfigError, match=r"group.*inner"):
            open_source(tmp_path / "group")

    def test_array_without_rows_is_refused(self, tmp_path: Path) -> None:
        zarr.create_array(str(tmp_path / "none"), shape=(0, 3), dtype="f4", chunks=(1, 3))
        with pytest.raises(ConfigError, match="holds no items"):
            open_source(tmp_path / "none")

    def test_broken_metadata_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "bad").mkdir()
        (tmp_path / "bad" / "zarr.json").write_text("{")
        with pytest.raises(ConfigError, match="cannot be opened"):
            open_source(tmp_path / "bad")


class TestSequences:
    def test_elements_are_kept_by_reference(self) -> None:
        items = [object(), object()]
        source = open_source(items)
        assert source.kind == "sequence"
        assert source.read(1) is items[1]
        assert list(source.keys) == ["0", "1"]
        assert source.describe() == {"kind": "sequence"}

    def test_generator_is_listed(self) -> None:
        assert contents(open_source(i * i for i in range(4))) == [0, 1, 4, 9]

    def test_mapping_names_its_items(self) -> None:
        source = open_source({"a": [1], 2: [2]})
        assert list(source.keys) == ["a", "2"]
        assert source.read(1) == [2]

    def test_names_that_become_equal_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="'2' is given twice"):
            open_source({"2": [1], 2: [2]})

    def test_texts_are_items_when_said_so(self) -> None:
        source = open_source(SequenceSource(["kitten", "sitting"]))
        assert source.read(0) == "kitten"

    @pytest.mark.parametrize("items", [{1, 2}, b"bytes", 7, None])
    def test_what_has_no_order_is_refused(self, items: Any) -> None:
        with pytest.raises(ConfigError, match="items are a"):
            open_source(items)

    @pytest.mark.parametrize("items", [[], (), {}, iter(())])
    def test_nothing_is_refused(self, items: Any) -> None:
        with pytest.raises(ConfigError, match="no items"):
            open_source(items)

    def test_lazy_sequence_that_raises_fails_as_an_item(self) -> None:
        class Lazy(list[int]):
            def __getitem__(self, index: Any) -> Any:
                raise RuntimeError("gone")

        with pytest.raises(ItemError, match="0: cannot be read: RuntimeError: gone"):
            open_source(Lazy([1])).read(0)


class TestJoin:
    def test_arrays_count_on(self) -> None:
        a, b = np.zeros((3, 2)), np.ones((2, 2))
        source = join_sources(open_source(a), open_source(b))
        assert (source.kind, source.n_items, list(source.keys)) == ("array", 5, ["0", "1", "2", "3", "4"])
        assert np.shares_memory(source.read_block(3, 5), b)
        np.testing.assert_array_equal(source.read_block(2, 4), [[0, 0], [1, 1]])
        np.testing.assert_array_equal(source.read(4), [1, 1])
        assert source.read_block(2, 2).shape == (0, 2)
        assert source.fingerprints() is None

    def test_rows_of_unlike_dtypes_are_converted(self) -> None:
        single, double = ArraySource(np.full((3, 2), 0.1, np.float32)), ArraySource(np.full((2, 2), 0.1))
        for joined in (join_sources(single, double), join_sources(double, single)):
            assert joined.read_block(0, 5).dtype == joined.read(0).dtype == joined.read(4).dtype == np.float64
        rounded = join_sources(single, double, dtype=np.dtype(np.float32))  # as rows are added to those of a run
        assert rounded.read_block(0, 5).tolist() == np.full((5, 2), 0.1, np.float32).tolist()

    @pytest.mark.parametrize(
        ("first", "second", "dtype"),
        [
            (np.zeros((3, 2)), np.zeros((3, 4)), None),
            (np.zeros((3, 2), "i1"), np.zeros((3, 2), "i8"), np.dtype("i1")),  # whole numbers would wrap around
            (np.zeros((3, 2), "i8"), np.zeros((3, 2)), np.dtype("i8")),
            (np.zeros((3, 2)), np.zeros((3, 2), "M8[s]"), None),
        ],
    )
    def test_rows_that_fit_in_no_way_are_refused(self, first: Any, second: Any, dtype: Any) -> None:
        with pytest.raises(ConfigError, match="different rows cannot be joined: "):
            join_sources(ArraySource(first), ArraySource(second), dtype=dtype)

    def test_each_side_keeps_its_own_keys(self) -> None:
        sides = join_sources(open_source({"a": 1, "b": 2}), open_source({"b": 3, "c": 4}), sides=True)
        assert list(sides.keys) == ["a", "b", "b", "c"]
        rows = join_sources(ArraySource(np.zeros((2, 1))), ArraySource(np.zeros((3, 1))), sides=True)
        assert (rows.keys[2], rows.keys[1:4], rows.keys[-1]) == ("0", ["1", "0", "1"], "2")

    def test_unlike_kinds_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="array, sequence"):
            join_sources(open_source(np.zeros((3, 2))), open_source([[1]]))

    def test_keys_of_earlier_files_never_change(self, tmp_path: Path) -> None:
        write(tmp_path, "x/a", "x/b", "y/a", "y/c")
        source = join_sources(open_source(tmp_path / "x"), open_source(tmp_path / "y"))
        assert list(source.keys) == ["a", "b", f"{tmp_path}/y/a", "c"]
        assert contents(source) == [b"x/a", b"x/b", b"y/a", b"y/c"]
        sizes, *_ = source.fingerprints() or pytest.fail("known")
        assert sizes.tolist() == [3, 3, 3, 3]
        assert [part["patterns"] for part in source.describe()["parts"]] == [
            [f"{tmp_path}/x"],
            [f"{tmp_path}/y"],
        ]

    def test_file_that_is_already_an_item_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, "a", "b")
        with pytest.raises(ConfigError, match="already an item"):
            join_sources(open_source(tmp_path), open_source(tmp_path / "b"))

    def test_file_may_stand_on_both_sides(self, tmp_path: Path) -> None:
        write(tmp_path, "a", "b")
        both = join_sources(open_source(tmp_path), open_source(tmp_path), allow_repeats=True)
        assert len(set(both.keys)) == 4
        assert list(both.keys)[:2] == ["a", "b"]

    def test_sequences_count_on(self) -> None:
        source = join_sources(open_source([[1], [2]]), open_source([[3], [4], [5]]))
        assert list(source.keys) == ["0", "1", "2", "3", "4"]
        assert contents(source) == [[1], [2], [3], [4], [5]]

    def test_single_source_is_itself(self) -> None:
        source = open_source([[1]])
        assert join_sources(source) is source


def test_source_passes_through() -> None:
    source = open_source([[1], [2]])
    assert open_source(source) is source


def test_keys_of_one_file_and_of_none() -> None:
    assert item_keys(["/a/b.fa"]) == ["b.fa"]
    assert item_keys([]) == []


def test_reading_from_many_threads(tmp_path: Path) -> None:
    write(tmp_path, *[f"{i:03d}" for i in range(50)])
    zarr.create_array(str(tmp_path / "z.zarr"), data=np.arange(100).reshape(50, 2), chunks=(7, 2))
    files = open_source([str(tmp_path / f"{i:03d}") for i in range(50)])
    rows = open_source(tmp_path / "z.zarr")
    barrier = threading.Barrier(4)

    def read_all(_: int) -> tuple[list[Any], list[Any]]:
        barrier.wait()
        return contents(files), [row.tolist() for row in contents(rows)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(read_all, range(4)))
    assert all(result == results[0] for result in results)
    assert results[0][1][49] == [98, 99]


def test_keys_find_their_files_among_more() -> None:
    there = [Location(f"/data/{name}") for name in ("a/b.fa", "a/c.fa", "b.fa", "d.fa")]
    found = find_keys(there, ["b.fa", "a/b.fa", "gone.fa", "/data/d.fa"], None)
    assert [location.path for location in found] == ["/data/b.fa", "/data/a/b.fa", "/data/d.fa"]


def test_fingerprints_decide_between_files_of_one_name(tmp_path: Path) -> None:
    """The names were all different once; since then a file of the same name has come."""
    (tmp_path / "a").mkdir()
    old, new = tmp_path / "a" / "x.txt", tmp_path / "x.txt"
    old.write_text("old")
    new.write_text("newer")
    status = old.stat()
    there = [Location(str(old)), Location(str(new))]
    assert find_keys(there, ["x.txt"], ([status.st_size], [status.st_mtime_ns])) == [there[0]]


def test_relative_names_are_found_by_a_process_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of a cluster begin in a folder of their own; what they share is the file system."""
    write(tmp_path / "in", "a.txt", "b.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sources = [open_source("in/*.txt"), open_source(["in/b.txt", "in/a.txt"])]
    here = [contents(source) for source in sources]
    sent = pickle.dumps(sources)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [contents(source) for source in pickle.loads(sent)] == here


def test_a_pattern_that_only_capitals_keep_from_matching_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path, "b.JPG", "a.JPG", "c.png")
    with pytest.raises(ConfigError, match=r"capitals count, and 2 would match without, as 'a\.JPG'"):
        expand([str(folder / "*.jpg")], ())
    with pytest.raises(ConfigError, match="check the path"):
        expand([str(folder / "*.tif")], ())
    with pytest.raises(ConfigError, match="check the path"):
        expand([str(folder / "[ab].jpg")], ())
