"""Sources and destinations: what is found in files, what is refused, and that a destination is whole or absent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.errors import ConfigError, InputChangedError
from tartan.sort.formats import Destination, expand_sources, open_sources, refuse_changes

INT = np.dtype("<i8")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "values.bin"
    np.arange(10).tofile(path)
    return path


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    path = tmp_path / "values.npy"
    np.save(path, np.arange(10))
    return path


class TestExpand:
    def test_globs_are_sorted_by_name_and_the_rest_stays(self, tmp_path: Path) -> None:
        for name in ("b.bin", "a.bin", "c.txt", "10.bin"):
            (tmp_path / name).touch()
        (tmp_path / "z.bin").mkdir()
        found = expand_sources([tmp_path / "c.txt", f"{tmp_path}/*.bin"])
        assert [path.name for path in found] == ["c.txt", "10.bin", "a.bin", "b.bin"]

    def test_a_name_that_looks_like_a_glob_is_a_name_first(self, tmp_path: Path) -> None:
        (tmp_path / "[1].bin").touch()
        (tmp_path / "1.bin").touch()
        assert expand_sources(tmp_path / "[1].bin") == [tmp_path / "[1].bin"]

    def test_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no file matches '.*none\*'"):
            expand_sources(f"{tmp_path}/none*")
        with pytest.raises(ConfigError, match="nothing to sort"):
            expand_sources([])


class TestSources:
    def test_raw(self, raw: Path) -> None:
        (source,), dtype = open_sources([raw], "int64")
        assert (source.offset, source.n_bytes, dtype) == (0, 80, INT)

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    def test_npy_carries_its_type(self, tmp_path: Path, version: tuple[int, int]) -> None:
        path = tmp_path / "values.NPY"
        with path.open("wb") as stream:
            np.lib.format.write_array(stream, np.arange(7, dtype=">f4"), version)
        (source,), dtype = open_sources([path], None)
        assert (source.n_bytes, dtype) == (28, np.dtype(">f4"))
        assert np.array_equal(np.fromfile(path, ">f4", offset=source.offset), np.arange(7))

    def test_npy_and_raw_together(self, raw: Path, npy: Path) -> None:
        sources, dtype = open_sources([raw, npy], None)
        assert (dtype, [source.offset for source in sources]) == (INT, [0, 128])

    def test_empty_files(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.empty(0, "i4"))
        (tmp_path / "b").touch()
        sources, _ = open_sources([tmp_path / "a.npy", tmp_path / "b"], None)
        assert [source.n_bytes for source in sources] == [0, 0]

    @pytest.mark.parametrize(
        ("array", "said"),
        [
            (np.zeros((3, 4)), r"has the shape \(3, 4\); only one axis can be sorted: save reshape\(-1\)"),
            (np.zeros((3, 4), order="F"), r"\(3, 4\) in Fortran order; only one axis"),
            (np.array(5), r"has the shape \(\)"),
            (np.zeros(3, "c16"), "cannot be sorted"),
            (np.array([None]), "not a whole .npy file of fixed-size values"),
        ],
    )
    def test_npy_that_cannot_be_sorted_is_refused(self, tmp_path: Path, array: Any, said: str) -> None:
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ConfigError, match=said):
            open_sources([tmp_path / "a.npy"], None)

    @pytest.mark.parametrize(
        ("change", "said"), [(-8, "not a whole .npy"), (8, "88 bytes .* but the header says 10 x 8")]
    )
    def test_npy_of_another_length_is_refused(self, npy: Path, change: int, said: str) -> None:
        os.truncate(npy, npy.stat().st_size + change)
        with pytest.raises(ConfigError, match=said):
            open_sources([npy], None)

    def test_what_is_no_npy_is_refused(self, raw: Path) -> None:
        wrong = raw.rename(raw.with_suffix(".npy"))
        with pytest.raises(ConfigError, match="rename it to sort it as raw bytes"):
            open_sources([wrong], "int64")

    def test_types_must_agree(self, npy: Path) -> None:
        with pytest.raises(ConfigError, match="holds <i8, not the <f8 asked for"):
            open_sources([npy], "f8")
        other = npy.with_name("z.npy")
        np.save(other, np.zeros(3, "f4"))
        with pytest.raises(ConfigError, match=r"holds <f4, not the <i8 of .*values.npy"):
            open_sources([npy, other], None)

    def test_raw_needs_a_type(self, raw: Path) -> None:
        with pytest.raises(ConfigError, match=r"values.bin does not say what its records are; say `dtype=`"):
            open_sources([raw], None)

    def test_no_multiple_of_the_record(self, raw: Path) -> None:
        with pytest.raises(ConfigError, match=r"has 80 bytes, .* record of 100 bytes \(record:100\): 80 are left over"):
            open_sources([raw], "record:100")

    def test_missing_and_unreadable(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file") as caught:
            open_sources([tmp_path / "none"], "i4")
        assert caught.value.code == "unreadable"
        with pytest.raises(ConfigError, match=r"cannot read .*Is a directory"):
            open_sources([tmp_path], "i4")

    def test_what_is_no_regular_file_is_refused(self, tmp_path: Path) -> None:
        """A pipe is not even opened: that would wait for its writer."""
        os.mkfifo(tmp_path / "pipe")
        for path in (Path(os.devnull), tmp_path / "pipe"):
            with pytest.raises(ConfigError, match="not a regular file"):
                open_sources([path], "i4")

    def test_changes_are_seen(self, raw: Path) -> None:
        sources, _ = open_sources([raw], "i8")
        refuse_changes(sources)
        os.utime(raw, ns=(0, 1))
        with pytest.raises(InputChangedError, match=r"values.bin was changed"):
            refuse_changes(sources)
        raw.unlink()
        with pytest.raises(InputChangedError):
            refuse_changes(sources)


class TestDestination:
    def make(self, path: Path, source: Path, *, in_place: bool = False, overwrite: bool = False) -> Destination:
        sources, dtype = open_sources([source], "i8" if source.suffix != ".npy" else None)
        return Destination(path, dtype, 10, sources, in_place=in_place, overwrite=overwrite)

    def fill(self, destination: Destination) -> None:
        destination.begin()
        with destination.part.open("r+b") as stream:
            stream.seek(destination.offset)
            stream.write(np.arange(10)[::-1].tobytes())

    @pytest.mark.parametrize("name", ["out.bin", "out.npy"])
    def test_is_whole_or_absent(self, raw: Path, name: str) -> None:
        destination = self.make(raw.with_name(name), raw)
        self.fill(destination)
        assert not destination.path.exists()
        destination.finish()
        read = np.load(destination.path) if name.endswith("npy") else np.fromfile(destination.path, "i8")
        assert np.array_equal(read, np.arange(10)[::-1])
        assert destination.path.stat().st_size == destination.n_bytes
        assert not destination.part.exists()

    def test_what_an_earlier_attempt_wrote_does_no_harm(self, raw: Path) -> None:
        destination = self.make(raw.with_name("out.npy"), raw)
        destination.part.write_bytes(b"x" * 10_000)
        self.fill(destination)
        destination.finish()
        assert np.array_equal(np.load(destination.path), np.arange(10)[::-1])

    @pytest.mark.parametrize(
        "dtype",
        [
            ">f4", "V100", [("key", "<u4"), ("tag", "S4")], [("größe", "<f8"), ("Ω", "<i2")],
            [(f"field{i}", "u1") for i in range(400)],
        ],
    )  # fmt: skip
    def test_headers_fill_blocks_of_the_disk_and_numpy_reads_them(self, tmp_path: Path, dtype: Any) -> None:
        wanted = np.dtype(dtype)
        destination = Destination(tmp_path / "a.npy", wanted, 3, [], in_place=False, overwrite=False)
        destination.begin()
        destination.finish()
        assert destination.offset % 4096 == 0
        read = np.load(destination.path, max_header_size=10**5)
        assert (read.dtype, read.shape) == (wanted, (3,))

    def test_in_place_keeps_mode_and_links(self, raw: Path) -> None:
        raw.chmod(0o640)
        link = raw.with_name("link")
        link.symlink_to(raw)
        destination = self.make(link, link, in_place=True)
        self.fill(destination)
        assert np.array_equal(np.fromfile(raw, "i8"), np.arange(10))
        destination.finish()
        assert link.is_symlink()
        assert raw.stat().st_mode & 0o777 == 0o640
        assert np.array_equal(np.fromfile(raw, "i8"), np.arange(10)[::-1])

    def test_a_source_is_refused(self, raw: Path) -> None:
        other = raw.with_name("other")
        other.hardlink_to(raw)
        for path in (raw, other):
            with pytest.raises(
                ConfigError, match=r"source and destination; name another .*or sort it with `in_place=True`"
            ):
                self.make(path, raw, overwrite=True)

    def test_existing_is_refused_unless_allowed(self, raw: Path) -> None:
        there = raw.with_name("there")
        there.touch()
        with pytest.raises(ConfigError, match="exists; choose another name") as caught:
            self.make(there, raw)
        assert caught.value.code == "exists"
        destination = self.make(there, raw, overwrite=True)
        self.fill(destination)
        destination.finish()
        assert there.stat().st_size == 80

    def test_what_appears_meanwhile_is_not_overwritten(self, raw: Path) -> None:
        destination = self.make(raw.with_name("out"), raw)
        self.fill(destination)
        destination.path.write_text("precious")
        with pytest.raises(ConfigError, match="exists"):
            destination.finish()
        assert destination.path.read_text() == "precious"

    def test_folders_are_refused(self, raw: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"there is no folder .*none for out"):
            self.make(tmp_path / "none" / "out", raw)
        (tmp_path / "folder").mkdir()
        with pytest.raises(ConfigError, match="is a folder; name a file"):
            self.make(tmp_path / "folder", raw, overwrite=True)

    def test_pipes_and_devices_are_not_replaced(self, raw: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ConfigError, match="pipe is not a regular file and is not replaced"):
            self.make(tmp_path / "pipe", raw, overwrite=True)
