"""``sort_file`` with the real engine against the plain order of the oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_layouts import layouts, small_layout
from sort_oracle import as_rows, sort_rows

from tartan.errors import ConfigError
from tartan.sort import SortResult, sort_file
from tartan.sort.keys import parse_key

NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
ORDERED = [f"{order}{kind}" for kind in NUMBERS for order in "<>" if kind[1] != "1" or order == "<"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert [path.name for path in tmp_path.iterdir() if "tartan" in path.name] == []


def sort_values(values: NDArray[Any], folder: Path, *, layout: Any = None, **options: Any) -> tuple[Any, SortResult]:
    """Sort an array through files with buffers of some kilobytes."""
    values.tofile(folder / "in.bin")
    with layouts(layout or small_layout(values.dtype.itemsize)):
        result = sort_file(
            folder / "in.bin", folder / "out.bin", dtype=values.dtype, overwrite=True, memory="8GB", **options
        )
    return np.fromfile(folder / "out.bin", values.dtype), result


def expected(values: NDArray[Any], key: Any = None, *, descending: bool = False) -> NDArray[Any]:
    rows = sort_rows(as_rows(values), parse_key(key, values.dtype, descending=descending))
    return np.ascontiguousarray(rows).view(values.dtype).reshape(-1)


def same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left.tobytes() == right.tobytes()


def numbers(kind: str, n: int, seed: int = 0) -> NDArray[Any]:
    """Return numbers of every size with the edges of the type among them, one pattern of NaN."""
    dtype = np.dtype(kind)
    raw = np.random.default_rng(seed).integers(0, 256, n * dtype.itemsize, np.uint8)
    values = raw.view(dtype)
    if dtype.kind == "f":
        ends = np.finfo(dtype)
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, ends.max, ends.min, ends.tiny, -ends.tiny, ends.smallest_subnormal]
        values[np.isnan(values)] = 1.5
    else:
        limits = np.iinfo(dtype)
        edges = [limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max]
    values[: min(n, len(edges))] = np.array(edges, dtype)[:n]
    np.random.default_rng(seed + 1).shuffle(values)
    return values


class TestNumbers:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ORDERED)
    @pytest.mark.parametrize("descending", [False, True])
    def test_every_type(self, folder: Path, kind: str, descending: bool) -> None:
        values = numbers(kind, 20_000)
        found, result = sort_values(values, folder, descending=descending)
        assert same(found, expected(values, descending=descending))
        assert result.n_records == 20_000
        assert result.run_files > 1 or values.nbytes <= 32768

    @pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2"])
    @pytest.mark.parametrize("descending", [False, True])
    def test_every_nan_is_last_and_kept_bit_for_bit(self, folder: Path, kind: str, descending: bool) -> None:
        values = np.random.default_rng(4).integers(0, 256, 30_000 * np.dtype(kind).itemsize, np.uint8).view(kind)
        unsigned = f"{kind[0]}u{kind[2]}"
        values[::7] = np.nan
        values[1::7].view(unsigned)[:] = ~np.array(0, unsigned)  # a negative NaN with a payload
        found, _ = sort_values(values, folder, descending=descending)
        plain, nans = found[~np.isnan(found)], found[np.isnan(found)]
        assert np.isnan(found[len(plain) :]).all()
        assert same(plain, expected(values[~np.isnan(values)], descending=descending))
        assert same(np.sort(nans.view(unsigned)), np.sort(values[np.isnan(values)].view(unsigned)))

    @pytest.mark.parametrize("n", [0, 1, 2, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 50_001])
    def test_sizes_about_the_borders_of_buffers(self, folder: Path, n: int) -> None:
        values = numbers("<i8", n)
        found, result = sort_values(values, folder)
        assert same(found, np.sort(values))
        assert (result.n_records, result.n_bytes) == (n, 8 * n)

    @pytest.mark.parametrize("pack", ["auto", "always", "never"])
    @pytest.mark.parametrize(
        "shape", ["equal", "two", "sorted", "reversed", "organ pipe", "mostly one", "extremes", "narrow"]
    )
    def test_shapes(self, folder: Path, shape: str, pack: Any) -> None:
        n = 40_000
        generator = np.random.default_rng(8)
        ramp = np.arange(n) * 3
        values = {
            "equal": np.full(n, 7),
            "two": generator.integers(0, 2, n) - 1,
            "sorted": ramp,
            "reversed": ramp[::-1].copy(),
            "organ pipe": np.concatenate([ramp[::2], ramp[::-2]]),
            "mostly one": np.where(generator.random(n) < 0.99, 5, ramp),
            "extremes": generator.choice([-(2**63), 2**63 - 1], n),
            "narrow": generator.integers(0, 2**20, n),
        }[shape]
        found, result = sort_values(values, folder, pack=pack)
        assert same(found, np.sort(values))
        assert result.ranges < 5 * n * 8 / small_layout(8).buffer_bytes  # each needs space for what others left over
        assert result.packed or pack != "always"
        assert not (result.packed and pack == "never")

    @pytest.mark.parametrize("fan_in", [2, 3, 64])
    def test_several_merge_levels(self, folder: Path, fan_in: int) -> None:
        values = numbers("<u4", 150_000)
        found, result = sort_values(values, folder, layout=small_layout(4, fan_in=fan_in))
        assert same(found, np.sort(values))
        assert result.levels > 1 or fan_in == 64

    @given(
        st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), -1, 0, 2**63 - 1]), max_size=60),
        st.integers(1, 400),
        st.booleans(),
    )
    @pytest.mark.slow
    @settings(deadline=None, max_examples=25)
    def test_any_values(self, some: list[int], repeats: int, descending: bool) -> None:
        values = np.tile(np.array(some, np.int64), repeats)
        with tempfile.TemporaryDirectory() as name:
            found, _ = sort_values(values, Path(name), descending=descending, layout=small_layout(8, fan_in=2))
        assert same(found, np.sort(values)[::-1] if descending else np.sort(values))

    def test_the_result_depends_on_nothing_else(self, folder: Path) -> None:
        values = numbers("<f8", 30_000)
        outcomes = {
            sort_values(values, folder, layout=layout, threads=threads, pack=pack, direct=direct)[0].tobytes()
            for layout in (small_layout(8), small_layout(8, fan_in=2, pages=3, buffers=5))
            for threads, pack, direct in [(1, "never", "auto"), (3, "always", "never"), (2, "auto", "never")]
        }
        assert len(outcomes) == 1


class TestRecords:
    @pytest.mark.slow
    @pytest.mark.parametrize("width", [1, 3, 10, 100, 4096, 5000])
    def test_whole_records_as_bytes(self, folder: Path, width: int) -> None:
        n = 2_000_000 // max(width, 100)
        values = np.random.default_rng(2).integers(0, 256, n * width, np.uint8).view(f"V{width}")
        found, _ = sort_values(values, folder)
        assert same(found, expected(values))

    def test_terasort_records_are_sorted_stably(self, folder: Path) -> None:
        n = 20_000
        records = np.zeros(n, [("key", "S10"), ("number", ">u4"), ("rest", "V86")])
        generator = np.random.default_rng(3)
        records["key"] = generator.integers(0, 256, (n, 10), np.uint8).view("S10")[:, 0]
        records["key"][::3] = b"\xff" * 10
        records["number"] = np.arange(n)
        found, result = sort_values(records.view("V100"), folder, key="0:10")
        assert same(found, expected(records.view("V100"), "0:10"))
        ties = found.view(records.dtype)["number"][-len(records[::3]) :].astype(np.int64)
        assert np.all(np.diff(ties) > 0)
        assert result.run_files > 10

    @pytest.mark.parametrize("descending", [False, True])
    def test_ties_keep_their_order_in_both_directions(self, folder: Path, descending: bool) -> None:
        values = np.zeros(30_000, [("group", "i1"), ("number", "<i4")])
        values["group"] = np.random.default_rng(5).integers(-2, 2, len(values))
        values["number"] = np.arange(len(values))
        found, _ = sort_values(values, folder, key="group", descending=descending)
        assert same(found, expected(values, "group", descending=descending))
        for group in range(-2, 2):
            assert np.all(np.diff(found["number"][found["group"] == group]) > 0)

    @pytest.mark.slow
    def test_several_keys_of_a_structured_dtype(self, folder: Path) -> None:
        n = 15_000
        values = np.zeros(n, [("key", "<u4"), ("score", "<f8"), ("tag", "S4"), ("name", "<U3"), ("at", ">i2", (2,))])
        generator = np.random.default_rng(6)
        values["key"] = generator.integers(0, 3, n)
        values["score"] = generator.choice([0.0, -0.0, np.nan, np.inf, -1.5], n)
        values["tag"] = generator.choice([b"", b"a", b"ab", b"\xff"], n)
        values["name"] = generator.choice(["", "é", "z", "zz"], n)
        values["at"] = generator.integers(-3, 3, (n, 2))
        for key in ["score:desc,key", "tag,at:desc,name", None, "name:desc,score", ["at", "key:desc"]]:
            found, _ = sort_values(values, folder, key=key, total_order=True)
            assert same(found, expected(values, key)), key

    @given(data=st.data())
    @pytest.mark.slow
    @settings(deadline=None, max_examples=25)
    def test_any_fields_and_keys(self, data: st.DataObject) -> None:
        kinds = data.draw(st.lists(st.sampled_from([*ORDERED, "S1", "S3", "S9", "b1", "V2"]), min_size=1, max_size=5))
        dtype = np.dtype([(f"x{i}", kind) for i, kind in enumerate(kinds)])
        chosen = data.draw(st.permutations(range(len(kinds))))[: data.draw(st.integers(1, len(kinds)))]
        key = [f"x{i}:{data.draw(st.sampled_from(['asc', 'desc']))}" for i in chosen]
        n, seed = data.draw(st.integers(0, 1000)), data.draw(st.integers(0, 99))
        few = np.array([0x00, 0x3A, 0xB5], np.uint8)  # many ties, signs of both kinds, no NaN
        values = np.random.default_rng(seed).choice(few, n * dtype.itemsize).view(dtype)
        with tempfile.TemporaryDirectory() as name:
            found, _ = sort_values(
                values, Path(name), key=key, layout=small_layout(dtype.itemsize, fan_in=2, word=False)
            )
        assert same(found, expected(values, key))


class TestFiles:
    def test_npy_to_npy(self, folder: Path) -> None:
        values = numbers(">f4", 30_000)
        np.save(folder / "in.npy", values)
        with layouts(small_layout(4)):
            sort_file(folder / "in.npy", folder / "out.npy")
        read = np.load(folder / "out.npy")
        assert read.dtype == values.dtype
        assert same(read, expected(values))

    def test_npy_to_raw_and_back(self, folder: Path) -> None:
        np.save(folder / "in.npy", np.arange(1000)[::-1])
        sort_file(folder / "in.npy", folder / "out.bin")
        assert np.array_equal(np.fromfile(folder / "out.bin", "i8"), np.arange(1000))
        sort_file(folder / "out.bin", folder / "back.npy", dtype="i8", descending=True)
        assert np.array_equal(np.load(folder / "back.npy"), np.arange(1000)[::-1])

    def test_many_sources_with_empty_ones(self, folder: Path) -> None:
        values = numbers("<i4", 30_011)
        for number, piece in enumerate(np.split(values, [0, 1, 5000, 5000, 29_999])):
            if number % 2:
                np.save(folder / f"{number}.npy", piece)
            else:
                piece.tofile(folder / f"{number}.bin")
        with layouts(small_layout(4)):
            result = sort_file([f"{folder}/?.bin", f"{folder}/?.npy"], folder / "out.npy")
        assert same(np.load(folder / "out.npy"), np.sort(values))
        assert result.n_records == 30_011

    def test_in_place(self, folder: Path) -> None:
        values = numbers("<i8", 30_000)
        np.save(folder / "both.npy", values)
        with layouts(small_layout(8)):
            sort_file(folder / "both.npy", in_place=True)
        assert same(np.load(folder / "both.npy"), np.sort(values))

    def test_several_temporary_folders(self, folder: Path) -> None:
        for name in ("one", "two"):
            (folder / name).mkdir()
        values = numbers("<i8", 60_000)
        found, result = sort_values(values, folder, tmp=[folder / "one", folder / "two"])
        assert same(found, np.sort(values))
        assert [list((folder / name).iterdir()) for name in ("one", "two")] == [[], []]
        assert result.run_files > 4

    def test_bytes_on_each_edge(self, folder: Path) -> None:
        values = numbers("<i8", 100_000)
        _, result = sort_values(values, folder, pack="never", layout=small_layout(8, fan_in=32))
        edges = {name: edge.n_bytes for name, edge in result.edges.items()}
        assert edges["source_read"] == edges["output_write"] == values.nbytes
        assert values.nbytes <= edges["run_write"] < 1.2 * values.nbytes
        assert values.nbytes <= edges["run_read"] < 1.3 * values.nbytes

    def test_packing_of_narrow_values_is_told(self, folder: Path) -> None:
        values = np.random.default_rng(1).integers(0, 2**32, 300_000)
        _, result = sort_values(values, folder, pack="always", layout=small_layout(8, fan_in=32, pages=2))
        assert result.packed
        assert result.bits_per_value is not None
        assert result.expected_bits_per_value is not None
        assert abs(result.bits_per_value - result.expected_bits_per_value) < 3
        assert result.edges["run_write"].n_bytes < 0.6 * values.nbytes

    def test_what_is_refused_leaves_nothing(self, folder: Path) -> None:
        np.save(folder / "in.npy", np.arange(5))
        with pytest.raises(ConfigError):
            sort_file(folder / "in.npy", folder / "out.npy", key="5:9")
        assert [path.name for path in folder.iterdir()] == ["in.npy"]
