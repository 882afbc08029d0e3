"""Every export format, read back by somebody else's reader and compared."""

from __future__ import annotations

import csv
import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tartan.core.pairs.ledger import FAILED_PAIR
from tartan.errors import ConfigError, DiskFullError, StoreError
from tartan.result.run import Run
from tartan.store import export as formats
from tartan.store.export import FORMATS, format_of, names_table, new_export
from tartan.store.folder import RunFolder

from .kit import commit_chunk, describe, table, true_scores

Finished = Callable[..., tuple[Run, np.ndarray]]


@pytest.fixture
def run(finished: Finished) -> Run:
    return finished(11, 4, similarity=False)[0]


@pytest.fixture
def partial(tmp_path: Path) -> Run:
    """A run with chunk (0, 1) only."""
    folder = RunFolder.create(tmp_path / "p.tartan", describe(), table(10))
    with folder.lock():
        commit_chunk(folder, (0, 1), np.ones((4, 4), bool), {"scores": true_scores(10)})
    return Run(folder.path)


def test_npy(run: Run, tmp_path: Path) -> None:
    np.testing.assert_array_equal(np.load(run.export(tmp_path / "m.npy")), run.matrix())
    mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
    assert (mapped.dtype, mapped.shape) == (np.float32, (11, 11))


def test_npy_condensed(run: Run, tmp_path: Path) -> None:
    condensed = np.load(run.export(tmp_path / "m.npy", "npy-condensed"))
    np.testing.assert_array_equal(condensed, run.condensed())


def test_float32(run: Run, tmp_path: Path) -> None:
    raw = np.fromfile(run.export(tmp_path / "m.f32"), "<f4").reshape(11, 11)
    np.testing.assert_array_equal(raw, run.matrix())


@pytest.mark.parametrize(("suffix", "dtype"), [("i16", "<i2"), ("i16be", ">i2")])
def test_int16(run: Run, tmp_path: Path, suffix: str, dtype: str) -> None:
    raw = np.fromfile(run.export(tmp_path / f"m.{suffix}"), dtype).reshape(11, 11)
    np.testing.assert_array_equal(raw, np.rint(run.matrix().astype(np.float32) * 32767))
    assert raw.min() == 0
    assert (tmp_path / f"m.{suffix}").stat().st_size == 2 * 11 * 11


def test_int16_says_missing_with_minus_one(partial: Run, tmp_path: Path) -> None:
    raw = np.fromfile(partial.export(tmp_path / "m.i16"), "<i2").reshape(10, 10)
    np.testing.assert_array_equal(raw == -1, np.isnan(partial.matrix()))


def test_int16_refuses_or_clips_what_it_cannot_hold(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(outputs={"a": "float32", "b": "float64"})
    with pytest.raises(ConfigError, match="0 to 1"):
        run.export(tmp_path / "m.i16", output="b")
    assert list(tmp_path.glob("*m.i16*")) == [], "nothing is left of a refused export"
    raw = np.fromfile(run.export(tmp_path / "m.i16", output="b", clip=True, diagonal=0), "<i2").reshape(10, 10)
    np.testing.assert_array_equal(raw, np.rint(np.clip(truth * 20.0, 0, 1) * 32767))


def test_int16_forgives_rounding() -> None:
    values = np.array([[1 + 1e-6, -1e-6, 0.5]], np.float32)

    class Stub:
        clip = False

        def bands(self) -> Any:
            yield 0, values

    class Stream:
        data = b""

        def write(self, data: Any) -> None:
            self.data += bytes(data)

    stream = Stream()
    formats.write_int16(Stub(), stream, "<")  # type: ignore[arg-type]
    assert np.frombuffer(stream.data, "<i2").tolist() == [32767, 0, 16384]


def test_phylip(run: Run, tmp_path: Path) -> None:
    lines = run.export(tmp_path / "m.phy").read_text().splitlines()
    assert lines[0] == "11"
    names, values = zip(*(line.split("  ", 1) for line in lines[1:]), strict=True)
    assert list(names) == list(run.keys)
    np.testing.assert_array_equal([[np.float32(v) for v in row.split()] for row in values], run.matrix())


def test_phylip_names_have_no_blanks() -> None:
    assert formats.phylip_names(["a b\tc", "", "x"]) == ["a_b_c", "item_1", "x"]


def test_phylip_names_mean_nothing_in_the_trees_that_programs_make_of_them() -> None:
    names = formats.phylip_names(["NC_1.1:1-20", "E. coli (K-12)", "it's", "a;b", "[x]", "a,b", '"q"', "NC_1.1_1-20"])
    assert names == ["NC_1.1_1-20_0", "E._coli__K-12_", "it_s", "a_b", "_x_", "a_b_5", "_q_", "NC_1.1_1-20"]


def test_phylip_names_differ() -> None:
    names = formats.phylip_names(["a b", "a_b", "a\tb", "item_3", ""])
    assert names == ["a_b_0", "a_b", "a_b_2", "item_3", "item_4"]


def test_phylip_cannot_say_missing(partial: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"item-0 and item-1 is missing.*missing=1\.0"):
        partial.export(tmp_path / "m.phy")
    lines = partial.export(tmp_path / "m.phy", missing=2).read_text().splitlines()
    values = np.array([line.split()[1:] for line in lines[1:]], np.float32)
    np.testing.assert_array_equal(values, partial.matrix(fill=2, diagonal=0))


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_csv(run: Run, tmp_path: Path, suffix: str, delimiter: str) -> None:
    with open(run.export(tmp_path / f"m.{suffix}"), newline="") as stream:
        head, *rows = csv.reader(stream, delimiter=delimiter)
    assert head[1:] == [row[0] for row in rows] == list(run.keys)
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float32), run.matrix())


def test_csv_quotes_keys_and_writes_nan(tmp_path: Path) -> None:
    keys = ['say "hi"', "a,b", "c\nd"]
    items = table(3)
    items.keys[:] = keys
    run = Run(RunFolder.create(tmp_path / "r", describe(3), items))
    with open(run.export(tmp_path / "m.csv"), newline="") as stream:
        head, *rows = csv.reader(stream)
    assert head[1:] == [row[0] for row in rows] == ['say "hi"', "a,b", "c\\nd"]
    assert {value for row in rows for value in row[1:]} == {"nan"}


def test_text_holds_every_digit(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(outputs={"scores": "float64"})
    with open(run.export(tmp_path / "m.csv", diagonal=0), newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float64), truth)


def test_parquet_pairs(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(outputs={"scores": "float32", "count": "int16"})
    both = pq.read_table(run.export(tmp_path / "m.parquet"))
    assert both.equals(run.pairs().read_all())
    one = pq.read_table(run.export(tmp_path / "one.parquet", output="count"))
    assert one.column_names == ["i", "j", "key_i", "key_j", "score"]
    np.testing.assert_array_equal(one["score"], (truth * 20).astype(np.int16)[one["i"], one["j"]])


@pytest.mark.parametrize("suffix", ["npy", "csv", "f32", "i16"])
def test_rectangles(finished: Finished, tmp_path: Path, suffix: str) -> None:
    run, truth = finished(workload={"kind": "rectangle", "n_left": 6})
    path, expected = run.export(tmp_path / f"m.{suffix}"), truth[:6, 6:]
    if suffix == "npy":
        np.testing.assert_array_equal(np.load(path), expected)
    elif suffix == "csv":
        with open(path, newline="") as stream:
            head, *rows = csv.reader(stream)
        assert (head[1:], [row[0] for row in rows]) == (list(run.keys[6:]), list(run.keys[:6]))
        np.testing.assert_array_equal(np.array([row[1:] for row in rows], np.float32), expected)
    elif suffix == "f32":
        np.testing.assert_array_equal(np.fromfile(path, "<f4").reshape(6, 4), expected)
    else:
        np.testing.assert_array_equal(np.fromfile(path, "<i2").reshape(6, 4), np.rint(expected * 32767))


@pytest.mark.parametrize("changes", [{"symmetric": False}, {"workload": {"kind": "rectangle", "n_left": 6}}])
@pytest.mark.parametrize("name", ["phylip", "npy-condensed"])
def test_formats_for_symmetric_matrices_only(finished: Finished, tmp_path: Path, changes: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="symmetric"):
        finished(**changes)[0].export(tmp_path / "m", name)


def test_an_existing_file_is_kept_unless_told_otherwise(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.npy"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="exists"):
        run.export(path)
    assert path.read_text() == "precious"
    run.export(path, overwrite=True)
    np.testing.assert_array_equal(np.load(path), run.matrix())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.npy", "made.tartan"]


@pytest.mark.parametrize("name", ["manifest.json", "scores.zarr/zarr.json"])
def test_nothing_of_the_run_is_replaced(run: Run, name: str) -> None:
    before = (run.path / name).read_bytes()
    with pytest.raises(ConfigError, match="lies in the run"):
        run.export(run.path / name, "npy", overwrite=True)
    assert (run.path / name).read_bytes() == before


def test_what_is_no_regular_file_is_not_replaced(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(ConfigError, match="not a regular file"):
        run.export(tmp_path / "pipe.npy", overwrite=True)
    assert (tmp_path / "pipe.npy").is_fifo()


@pytest.mark.parametrize("suffix", ["phy", "i16", "f32"])
def test_complex_scores_are_refused_where_they_have_no_place(finished: Finished, tmp_path: Path, suffix: str) -> None:
    run, truth = finished(outputs={"scores": "complex64"})
    with pytest.raises(ConfigError, match=r"output 'scores' is complex64; .* real numbers"):
        run.export(tmp_path / f"m.{suffix}")
    with pytest.raises(ConfigError, match="neighbours need real numbers"):
        run.neighbors(1)
    run.export(tmp_path / "m.npy", diagonal=0)
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), truth.astype("c8"))


def test_formats_are_found_by_suffix() -> None:
    assert {
        format_of(Path("x" + s)) for s in (".npy", ".PHY", ".csv", ".tsv", ".parquet", ".i16", ".i16be", ".f32")
    } == (set(FORMATS) - {"npy-condensed", "phylip-strict"})
    for wrong in ({"path": Path("m.xyz")}, {"path": Path("m")}, {"path": Path("m.npy"), "name": "excel"}):
        with pytest.raises(ConfigError, match="phylip"):
            format_of(**wrong)  # type: ignore[arg-type]


def test_a_full_disk_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    def fail() -> None:
        with new_export(tmp_path / "m.npy", overwrite=False) as temporary:
            temporary.write_bytes(b"the first half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DiskFullError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["made.tartan"]


@pytest.mark.parametrize(("name", "least"), [("m.npy", 484), ("m.f32", 484), ("m.i16", 242), ("m.csv", 242)])
def test_a_matrix_that_cannot_fit_is_refused_at_once(
    run: Run, tmp_path: Path, name: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=least - 1))
    with pytest.raises(DiskFullError, match=rf"the matrix takes {least} B at least, and {least - 1} B are free"):
        run.export(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["made.tartan"]


@pytest.mark.parametrize("name", ["m.npy", "m.csv", "m.parquet"])
def test_a_file_larger_than_the_system_allows_leaves_nothing_behind(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half a compiled module would fail every later import
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, largest[1]))
    try:
        with pytest.raises(StoreError, match="larger than"):
            run.export(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, largest)
    assert [p.name for p in tmp_path.iterdir()] == ["made.tartan"]


def test_a_folder_that_is_not_there(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        run.export(tmp_path / "absent" / "m.npy")


DISTANCE_FORMATS = ["phylip", "phylip-strict", "int16", "int16-be", "npy-condensed"]


@pytest.mark.parametrize("name", DISTANCE_FORMATS)
def test_formats_of_distances_refuse_similarities(finished: Finished, tmp_path: Path, name: str) -> None:
    run, _ = finished(similarity=True)
    with pytest.raises(ConfigError, match=r"has similarities, and .* holds distances; say how.*`distance='max-s'`"):
        run.export(tmp_path / "m", name, missing=1.0)
    assert [p.name for p in tmp_path.iterdir()] == ["made.tartan"]
    for plain in ("npy", "csv", "float32"):
        run.export(tmp_path / f"plain.{plain}", plain)


def test_similarities_become_distances(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(similarity=True)
    expected = 1 - truth
    np.fill_diagonal(expected, 0)
    lines = run.export(tmp_path / "m.phy", distance="1-s").read_text().splitlines()[1:]
    np.testing.assert_array_equal(np.array([line.split()[1:] for line in lines], np.float32), expected)
    raw = np.fromfile(run.export(tmp_path / "m.i16", distance="1-s"), "<i2").reshape(10, 10)
    np.testing.assert_array_equal(raw, np.rint(expected * np.float32(32767)))
    condensed = np.load(run.export(tmp_path / "c.npy", "npy-condensed", distance=lambda s: 1 - s))
    np.testing.assert_array_equal(condensed, expected[np.triu_indices(10, 1)])
    whole = np.load(run.export(tmp_path / "m.npy", distance="max-s"))
    np.testing.assert_allclose(whole[0, 1:], (truth.max() - truth)[0, 1:], atol=1e-6)


def test_what_the_application_declares_is_used(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(similarity=True, meaning={"scores": {"distance": "1-s"}})
    raw = np.fromfile(run.export(tmp_path / "m.i16"), "<i2").reshape(10, 10)
    assert (raw[0, 0], raw[0, 1]) == (0, np.rint((1 - truth[0, 1]) * np.float32(32767)))
    assert np.isnan(np.load(run.export(tmp_path / "m.npy"))[0, 0]), "npy holds the scores as they are"
    other = np.fromfile(run.export(tmp_path / "o.i16", distance="(1-s)/2"), "<i2").reshape(10, 10)
    assert abs(2 * int(other[0, 1]) - int(raw[0, 1])) <= 1, "what the caller says counts more"


def test_missing_scores_stay_missing_distances(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "p.tartan", describe(similarity=True), table(10))
    with folder.lock():
        commit_chunk(folder, (0, 1), np.ones((4, 4), bool), {"scores": true_scores(10)})
    run = Run(folder.path)
    raw = np.fromfile(run.export(tmp_path / "m.i16", distance="1-s"), "<i2").reshape(10, 10)
    np.testing.assert_array_equal(raw == -1, np.isnan(run.matrix(diagonal=0)))


def test_what_makes_no_distance_is_refused(finished: Finished, tmp_path: Path) -> None:
    run, _ = finished(similarity=True)
    with pytest.raises(ConfigError, match=r"makes -.* of the score .*, which is not a distance"):
        run.export(tmp_path / "m.phy", distance="0.1-s")
    rectangle, _ = (Run(RunFolder.create(tmp_path / "r", _rectangle(), table(10))), None)
    with pytest.raises(ConfigError, match="max and mean"):
        rectangle.export(tmp_path / "r.i16", distance="max-s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made.tartan", "r"]


def _rectangle() -> Any:
    return describe(similarity=True, workload={"kind": "rectangle", "n_left": 6})


def test_strict_phylip(finished: Finished, tmp_path: Path) -> None:
    run, truth = finished(12, similarity=False)
    run.folder.items.keys[:] = [f"folder/Escherichia coli {i}.faa.gz" for i in range(10)] + ["a", "b:(c)"]  # type: ignore[union-attr]
    path = run.export(tmp_path / "m.phy", "phylip-strict", names="stem")
    head, *lines = path.read_text().splitlines()
    names = [line[:10] for line in lines]
    assert (head, len(set(names)), {len(name) for name in names}) == ("12", 12, {10})
    assert names[-2:] == ["a         ", "b__c_     "]
    assert names[:2] == ["Escherich1", "Escherich2"]
    np.testing.assert_array_equal(np.array([line[10:].split() for line in lines], np.float32), truth)
    with open(names_table(path), newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))
    assert rows == [["name", "key"], *([name.strip(), key] for name, key in zip(names, run.keys))]
    path.unlink()
    with pytest.raises(ConfigError, match=r"names\.tsv exists"):
        run.export(path, "phylip-strict")
    assert not path.exists(), "both files are written, or none"


def test_strict_names_differ_whatever_the_keys() -> None:
    keys = ["abcdefghij1", "abcdefghij2", "abcdefghi1", "abcdefghi2", "", "i000000002", "long" * 9]
    names = formats.strict_names(keys)
    assert len(set(names)) == len(keys)
    assert max(map(len, names)) <= 10
    assert "" not in names
    assert formats.strict_names([f"x{i}" for i in range(5)]) == ["x0", "x1", "x2", "x3", "x4"]


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_pairs_as_text(finished: Finished, tmp_path: Path, suffix: str, separator: str) -> None:
    run, truth = finished()
    text = run.export(tmp_path / f"p.{suffix}", pairs=True).read_text()
    head, *rows = [line.split(separator) for line in text.splitlines()]
    assert head == ["i", "j", "score"]
    found = {(int(i), int(j)): np.float32(score) for i, j, score in rows}
    assert found == {(i, j): truth[i, j] for i in range(10) for j in range(i + 1, 10)}


def test_pairs_as_text_by_name(finished: Finished, tmp_path: Path) -> None:
    run, _ = finished(outputs={"scores": "float32", "count": "int16"})
    run.folder.items.keys[:] = [f'say "{i}", b.jpg' for i in range(10)]  # type: ignore[union-attr]
    with open(run.export(tmp_path / "p.csv", pairs=True, names="stem"), newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["i", "j", "scores", "count", "key_i", "key_j"]
    assert {(row["key_i"], row["key_j"]) for row in rows} <= {
        (f'say "{row["i"]}", b', f'say "{row["j"]}", b') for row in rows
    }
    one = run.export(tmp_path / "one.csv", pairs=True, output="count").read_text().splitlines()
    assert one[0] == "i,j,score"


def test_failed_pairs_have_no_score(finished: Finished, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "p.tartan", describe(4), table(4))
    with folder.lock():
        wanted = np.triu(np.ones((4, 4), bool), 1)
        commit_chunk(folder, (0, 0), wanted, {"scores": true_scores(4)}, code=FAILED_PAIR)
    rows = Run(folder.path).export(tmp_path / "p.csv", pairs=True).read_text().splitlines()[1:]
    assert len(rows) == 6
    assert all(row.endswith(",") for row in rows)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_sorted_pairs_of_every_run(finished: Finished, tmp_path: Path, suffix: str) -> None:
    run, truth = finished(similarity=True)
    path = run.export(tmp_path / f"p.{suffix}", sort=True)
    if suffix == "csv":
        scores = [np.float32(line.split(",")[2]) for line in path.read_text().splitlines()[1:]]
    else:
        scores = pq.read_table(path)["score"].to_pylist()
    np.testing.assert_array_equal(scores, np.sort(truth[np.triu_indices(10, 1)])[::-1])


def test_pairs_of_other_formats_are_refused(run: Run, tmp_path: Path) -> None:
    for options in ({"pairs": True}, {"sort": True}, {"count": 3}):
        with pytest.raises(ConfigError, match="pairs are written as CSV, TSV or Parquet"):
            run.export(tmp_path / "p.npy", **options)  # type: ignore[arg-type]
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("p.csv", {"pairs": True, "missing": 1.0}),
        ("p.csv", {"pairs": True, "distance": "1-s"}),
        ("p.csv", {"sort": True, "distance": "1-s"}),
        ("p.parquet", {"clip": True}),
        ("p.npy", {"names": "stem"}),
        ("p.csv", {"names": "short"}),
    ]
    for name, options in wrong:
        with pytest.raises(ConfigError):
            run.export(tmp_path / name, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["made.tartan"]


def test_names_without_suffixes(finished: Finished, tmp_path: Path) -> None:
    run, _ = finished(3, similarity=False)
    run.folder.items.keys[:] = ["a.faa.gz", "b.jpg", "b.png"]  # type: ignore[union-attr]
    head = run.export(tmp_path / "m.csv", names="stem").read_text().splitlines()[0]
    assert head == ",a,b.jpg,b.png"
    assert run.export(tmp_path / "full.csv").read_text().splitlines()[0] == ",a.faa.gz,b.jpg,b.png"
    pairs = pq.read_table(run.export(tmp_path / "p.parquet", names="stem"))
    assert pairs["key_i"].to_pylist() == ["a", "a", "b.jpg"]
