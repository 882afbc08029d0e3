"""Matrices in files: every format, and every way in which a file is not what it is said to be."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import squareform

import tartan
from tartan.analytics.matrix import as_dissimilarities, read_matrix, write_int16
from tartan.analytics.matrix.check import check
from tartan.errors import ConfigError

N = 41
NAMES = tuple(f"n{i}" for i in range(N))


def square(n: int = N) -> np.ndarray:
    """Return distances with many digits, the largest of which is 1."""
    x = np.random.default_rng(2).normal(size=(n, 3))
    D = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))
    return D / D.max()


def whole(D) -> np.ndarray:
    return D.values(slice(0, D.n), slice(0, D.n))


def raw(path, values: np.ndarray, dtype: str):
    np.ascontiguousarray(values).astype(dtype).tofile(path)
    return path


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f8", "<i2", ">i2"])
@pytest.mark.parametrize("shape", ["square", "condensed", "column order"])
def test_npy_is_mapped(tmp_path, dtype, shape) -> None:
    values = (square() * 32767 if "i" in dtype else square()).round(6).astype(dtype)
    given = {"square": values, "condensed": squareform(values, checks=False), "column order": np.asfortranarray(values)}
    np.save(tmp_path / "m.npy", given[shape])
    D = read_matrix(tmp_path / "m.npy")
    np.testing.assert_allclose(whole(D), square(), atol=1e-4)
    mapped = D.array is not None
    assert mapped == (shape != "condensed" and dtype != ">f8")
    if D.array is not None:
        assert not D.array.flags.owndata
        assert not D.array.flags.writeable
    assert as_dissimilarities(str(tmp_path / "m.npy")).fingerprint() == D.fingerprint()


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("n", [N, None])
def test_raw_int16_in_either_byte_order(tmp_path, order, said, n) -> None:
    path = raw(tmp_path / "m.bin", np.rint(square() * 32767), "<i2" if order == "little" else ">i2")
    D = read_matrix(path, "int16", n=n, byteorder=order if said else None)
    np.testing.assert_allclose(whole(D), square(), atol=2e-5)
    assert D.array is not None
    assert not D.array.flags.owndata


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_raw_floats_in_either_byte_order(tmp_path, dtype) -> None:
    path = raw(tmp_path / f"m.f{8 * int(dtype[2])}", square(), dtype)
    np.testing.assert_allclose(whole(read_matrix(path)), square(), rtol=1e-6)
    np.testing.assert_allclose(whole(read_matrix(path, byteorder="big" if ">" in dtype else "little")), square(), 1e-6)


def test_raw_pairs_without_the_rest(tmp_path) -> None:
    path = raw(tmp_path / "m.f32", squareform(square()), "<f4")
    D = read_matrix(path)
    assert D.n == N
    np.testing.assert_allclose(whole(D), square(), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "said", "likely"), [(">i2", "little", "big"), ("<i2", "big", "little")])
def test_the_wrong_byte_order_is_noticed(tmp_path, dtype, said, likely) -> None:
    path = raw(tmp_path / "m.bin", np.rint(square() * 32767), dtype)
    with pytest.raises(ConfigError, match=f"said to be {said} endian, .* only as {likely} endian"):
        read_matrix(path, "int16", byteorder=said)


def test_pages_of_a_mapped_file_are_given_back_as_it_is_read(tmp_path, monkeypatch) -> None:
    path = raw(tmp_path / "m.i16", np.rint(square() * 32767), "<i2")
    D = read_matrix(path, byteorder="little")
    released = []
    give_back = D.source.release
    monkeypatch.setattr(D.source, "release", lambda: released.append(give_back()))
    assert check(D, None, None, square_bytes=32, released_bytes=64).largest == pytest.approx(1)
    assert len(released) > 10
    np.testing.assert_allclose(whole(D), square(), atol=2e-5)


def test_changes_that_are_in_memory_only_are_kept(tmp_path) -> None:
    np.save(tmp_path / "m.npy", square())
    private = np.load(tmp_path / "m.npy", mmap_mode="c")
    private[0, 1] = private[1, 0] = 7.0
    D = as_dissimilarities(private)
    D.source.release()
    assert D.block(0, 1)[0, 1] == 7.0


def test_missing_pairs_do_not_hide_the_byte_order(tmp_path) -> None:
    values = np.rint(square() * 32767)
    values[np.random.default_rng(0).random(values.shape) < 0.9] = -1
    path = raw(tmp_path / "m.bin", values, ">i2")
    assert read_matrix(path, "int16").dtype == np.dtype(">i2")


def test_small_values_show_the_byte_order_by_their_bytes(tmp_path) -> None:
    path = raw(tmp_path / "m.bin", np.rint(square() * 100), ">i2")
    assert whole(read_matrix(path, "int16", maximum=32767.0)).max() == 100


def test_a_byte_order_that_does_not_show_is_asked_for(tmp_path) -> None:
    values = np.array([[0, 0x0102, 0x0201], [0x0102, 0, 0x0202], [0x0201, 0x0202, 0]])
    path = raw(tmp_path / "m.bin", values, "<i2")
    with pytest.raises(ConfigError, match="do not show whether it is little or big endian; say `byteorder="):
        read_matrix(path, "int16")
    assert read_matrix(path, "int16", byteorder="big", maximum=32767.0).values(slice(0, 1), slice(1, 2)) == 0x0201
    zeros = raw(tmp_path / "zeros.bin", np.zeros((3, 3)), "<i2")
    assert not whole(read_matrix(zeros, "int16")).any()


@pytest.mark.parametrize(
    ("size", "kind", "n", "message"),
    [
        (2 * N * N - 1, "int16", None, "neither a square matrix of int16 .*cut off, or have a header"),
        (4 * N * N, "int16", N, "41 items take 3,362 bytes as int16; it would fit float32 of 41 items"),
        (8 * N * N, "float32", N, "it would fit int16 of 82 items or float64 of 41 items"),
        (2 * N * N, "float64", None, "it would fit int16 of 41 items"),
        (0, "int16", None, "has 0 bytes"),
        (2 * N * N, "int16", 40, "40 items take 3,200 bytes as int16; it would fit int16 of 41 items"),
    ],
)
def test_a_file_of_the_wrong_size_is_explained(tmp_path, size, kind, n, message) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(ConfigError, match=message):
        read_matrix(path, kind, n=n)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("m.bin", b"abcd", {}, "its name does not tell the format; say `format="),
        ("m.npy", b"\x93NUMPY\x01\x00", {}, "cannot be read as npy"),
        ("m.npy", b"hello", {"format": "npy"}, "cannot be read as npy"),
        ("m.csv", b"0,1\n1,0\n", {"n": 2}, "`n=` and `byteorder=` are for raw files; csv says both itself"),
        ("m.csv", b"0,1\n1,0\n", {"format": "xls"}, "format is 'xls'; it must be one of npy, zarr"),
        ("m.i16", b"\x00\x00", {"byteorder": "middle"}, "byteorder is 'middle'"),
        ("m.i16", b"\x00\x00", {"n": 0}, "n is 0"),
        ("m.csv", b"", {}, "is empty"),
        ("m.csv", b"\xff\xfe\x00", {}, "is not text"),
        ("m.csv", b"0,1\n1,x\n", {}, "line 2, number 2: 'x' is not a number"),
        ("m.csv", b"0,1,2\n1,0\n2,1,0\n", {}, "row 1 has 3 distances where 2 are due"),
        ("m.csv", b"0,1,2\n", {}, "has 1 rows and 3 columns; the matrix is not square"),
        ("m.phy", b"", {}, "PHYLIP begins with the number of items"),
        ("m.phy", b"two\na 0 1\nb 1 0\n", {}, "line 1: PHYLIP begins with the number of items, not with 'two'"),
        ("m.phy", b"100000000\na 0 1\nb 1 0\n", {}, "100,000,000 items take .* bytes at least, and the file has 22"),
        ("m.phy", b"3\na 0 1 2\nb 1 0 1\n", {}, "ends before item 3 of 3; it has been cut off"),
        ("m.phy", b"2\na 0 1\nb 1 0\nc 1 1\n", {}, "line 4: more follows after the 2 items"),
        ("m.phy", b"2\na 0 1\nb 1 0 5\n", {}, "line 3: b has 3 distances where 2 are due"),
        ("m.phy", b"2\na 0 1\nbcdefghijklmn y z\n", {}, "line 3, number 1: 'lmn' is not a number"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, name, content, options, message) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_matrix(path, **options)


def test_files_that_are_not_there(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*m.npy"):
        read_matrix(tmp_path / "m.npy")
    with pytest.raises(ConfigError, match="is a folder, but neither a run nor a Zarr array"):
        read_matrix(tmp_path)


def rows(separator: str, *, lower: bool = False) -> list[str]:
    D = square()
    return [separator.join(map(repr, row[: i if lower else N])) for i, row in enumerate(D.tolist())]


@pytest.mark.parametrize("shape", ["square", "lower", "upper", "wrapped", "strict"])
def test_phylip_in_all_its_forms(tmp_path, shape) -> None:
    D = square().tolist()
    cut = {"lower": lambda i: D[i][:i], "upper": lambda i: D[i][i + 1 :]}.get(shape, lambda i: D[i])
    names = [f"{name:10.10}" if shape != "strict" else f"the {name:6.6}" for name in NAMES]
    lines = [name + ("" if shape == "strict" else " ") + " ".join(map(repr, cut(i))) for i, name in enumerate(names)]
    if shape == "wrapped":
        lines = [line.replace(" ", "\n   ", 40).replace("\n   ", " ", 15) for line in lines]
    path = tmp_path / "m.phy"
    path.write_text(f"   {N}\n" + "\n".join(lines) + "\n\n")
    found = read_matrix(path)
    np.testing.assert_array_equal(whole(found), square())
    assert found.names == tuple(name.strip() for name in names)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t"), ("csv", ";"), ("tsv", " ")])
def test_tables_with_and_without_names(tmp_path, above, left, suffix, separator) -> None:
    lines = [(name + separator if left else "") + row for name, row in zip(NAMES, rows(separator))]
    if above:
        lines.insert(0, ("key" + separator if left else "") + separator.join(NAMES))
    path = tmp_path / f"m.{suffix}"
    path.write_text("\n".join(lines) + "\n")
    found = read_matrix(path)
    np.testing.assert_array_equal(whole(found), square())
    assert found.names == (NAMES if above or left else None)


def test_numbers_as_names_quotes_and_absent_values(tmp_path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(',"1","2, b",3\n1,0,,0.5\n"2, b",NA,0,0.25\n3,0.5,0.25,0\n')
    found = read_matrix(path, missing="nan")
    assert found.names == ("1", "2, b", "3")
    assert found.check().n_missing == 1
    np.testing.assert_array_equal(found.block(2, 3), [[0.5, 0.25, 0]])


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("quote", ["", '"'])
def test_blanks_around_names_are_part_of_them(tmp_path, suffix, separator, quote) -> None:
    names = (" a", "a", "b ", " ", "  ")
    cells = [f"{quote}{name}{quote}" for name in names]
    lines = [separator.join([name, *"00000"]) for name in cells]
    path = tmp_path / f"m.{suffix}"
    for above, left in [(True, True), (True, False), (False, True)]:
        header = [separator.join(["", *cells] if left else cells)] if above else []
        path.write_text("\n".join([*header, *(line if left else separator.join("00000") for line in lines)]) + "\n")
        assert read_matrix(path).names == names


def test_blanks_on_one_side_only_are_layout(tmp_path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("key, a, b\na, 0, 1\nb, 1, 0\n")
    assert read_matrix(path).names == ("a", "b")
    path.write_text("key, b, a\na, 0, 1\nb, 1, 0\n")
    with pytest.raises(ConfigError, match="row 1, 'a', and column 1, 'b'"):
        read_matrix(path)


def test_one_item_as_text(tmp_path) -> None:
    for name, text in [("m.csv", "0\n"), ("m.phy", "1\na 0\n"), ("n.phy", "1\na\n")]:
        (tmp_path / name).write_text(text)
        assert read_matrix(tmp_path / name).check().n == 1


def test_rows_in_another_order_than_columns_are_refused(tmp_path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(",b,a\na,0.5,1\nb,1,0.5\n")
    with pytest.raises(ConfigError, match="row 1, 'a', and column 1, 'b'"):
        read_matrix(path, distance="1-s")
    path.write_text(",b,a\n1,0,1\n2,1,0\n")
    assert read_matrix(path).names == ("b", "a")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_zarr_is_read_in_pieces(tmp_path, dtype) -> None:
    values = np.rint(square() * 32767) if dtype == "i2" else square()
    array = zarr.create_array(tmp_path / "m.zarr", shape=(N, N), chunks=(10, 10), dtype=dtype)
    array[:] = values.astype(dtype)
    for D in (read_matrix(tmp_path / "m.zarr"), as_dissimilarities(array)):
        np.testing.assert_allclose(whole(D), square(), atol=4e-5)
        assert D.array is None
        assert D.check().n_valid == N * (N - 1) // 2
    array[5, 7] = array[5, 7] + array[5, 7]
    with pytest.raises(ConfigError, match=r"d\(5, 7\)"):
        read_matrix(tmp_path / "m.zarr").check()
    assert read_matrix(tmp_path / "m.zarr", triangle="lower").check().largest_asymmetry == 0


@pytest.mark.slow
def test_groups_and_other_shapes_of_zarr(tmp_path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("a", shape=(N, N), dtype="f8")[:] = square()
    np.testing.assert_array_equal(whole(read_matrix(tmp_path / "g.zarr")), square())
    group.create_array("pairs", shape=(N * (N - 1) // 2,), dtype="f8")[:] = squareform(square())
    group.create_array("flat", shape=(N, 3), dtype="f8")
    group.create_array("complex", shape=(N, N), dtype="c8")
    np.testing.assert_array_equal(whole(read_matrix(tmp_path / "g.zarr", output="pairs")), square())
    for output, message in [
        (None, "has the arrays a, complex, flat, pairs; name one"),
        ("b", "has the arrays"),
        ("flat", r"shape \(41, 3\)"),
        ("complex", "the type complex64"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_matrix(tmp_path / "g.zarr", output=output)
    (tmp_path / "broken.zarr").mkdir()
    (tmp_path / "broken.zarr" / "zarr.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"broken.zarr has no array"):
        read_matrix(tmp_path / "broken.zarr")
    (tmp_path / "broken.zarr" / "zarr.json").write_text("[")
    with pytest.raises(ConfigError, match=r"broken.zarr' cannot be opened"):
        read_matrix(tmp_path / "broken.zarr")


class Numbers(tartan.Application):
    """Distances and similarities of numbers; the number 5 fails."""

    releases_gil = True
    outputs = {"apart": np.float32, "alike": np.float64}  # noqa: RUF012 - as applications declare them

    def __init__(self, similarity: bool | None = False) -> None:
        self.similarity = similarity

    def parse(self, key, data):
        if data == 5:
            raise ValueError("five")
        return np.array([float(data)])

    def compare(self, left, right, xp):
        apart = xp.abs(left - right.T)
        return {"apart": apart, "alike": 1 / (1 + apart)}


def expected(n: int) -> np.ndarray:
    """Return the distances of 0 to n - 1, without those of 5."""
    found = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)
    found[5] = found[:, 5] = np.nan
    found[5, 5] = 0
    return found


@pytest.fixture(scope="module")
def run():
    return tartan.allpairs(Numbers(), list(range(30)), tile=8)


@pytest.mark.slow
def test_a_run_is_a_matrix(run) -> None:
    for D in (as_dissimilarities(run), read_matrix(run.path), as_dissimilarities(run.path, output="apart")):
        np.testing.assert_array_equal(whole(D), expected(30))
        np.testing.assert_array_equal(D.block(7, 21), expected(30)[7:21])
        assert D.names == tuple(run.keys)
        assert (D.check().n_missing, D.has_missing) == (29, True)
        np.testing.assert_array_equal(D.materialized().block(0, 30), expected(30))
        with pytest.raises(ConfigError, match=r"into 2 groups .*; 5 \(5\)\. Leave out what failed \(5 \(5\)\) with"):
            D.check().require_connected(D)


@pytest.mark.slow
def test_another_output_of_a_run_by_a_formula(run) -> None:
    D = as_dissimilarities(run, output="alike", distance="1/s-1")
    np.testing.assert_allclose(whole(D), expected(30), atol=1e-12)
    with pytest.raises(ConfigError, match="has no output 'other'"):
        as_dissimilarities(run, output="other")


@pytest.mark.slow
def test_runs_that_are_no_matrix_of_dissimilarities() -> None:
    alike = tartan.allpairs(Numbers(similarity=True), [1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="has similarities, and its application declares no distance; say how"):
        as_dissimilarities(alike)
    across = tartan.allpairs(Numbers(), [1.0, 2.0], against=[3.0, 4.0])
    with pytest.raises(ConfigError, match="compares two sets of items; this needs the pairs within one"):
        as_dissimilarities(across)
    best = tartan.allpairs(Numbers(), [1.0, 2.0, 3.0], reduce={"kind": "top-k", "k": 1, "largest": False})
    with pytest.raises(ConfigError, match=r"keeps .*, no matrix"):
        as_dissimilarities(best)


@pytest.mark.parametrize("order", ["little", "big"])
def test_int16_is_written_as_the_ecosystem_does(tmp_path, order) -> None:
    D = square()
    D[1, 2] = D[2, 1] = np.nan
    path = write_int16(D, tmp_path / "m.bin", byteorder=order, missing="nan")
    stored = np.fromfile(path, "<i2" if order == "little" else ">i2").reshape(N, N)
    with np.errstate(invalid="ignore"):
        cut = np.where(np.isnan(D), -1, np.trunc(D * 32767)).astype(int)
    np.testing.assert_array_equal(stored, cut)
    again = read_matrix(path, "int16")
    assert again.has_missing is None
    other = write_int16(again, tmp_path / "again.bin", byteorder=order, maximum=1.0)
    assert other.read_bytes() == path.read_bytes()


def test_a_file_is_turned_into_the_other_byte_order_where_it_is(tmp_path) -> None:
    path = write_int16(square(), tmp_path / "m.int16", byteorder="little")
    stored = np.fromfile(path, "<i2")
    assert write_int16(path, path, byteorder="big", maximum=1.0) == path
    np.testing.assert_array_equal(np.fromfile(path, ">i2"), stored)
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_as_int16(tmp_path) -> None:
    with pytest.raises(ConfigError, match="byteorder is 'native'"):
        write_int16(square(), tmp_path / "m.bin", byteorder="native")
    with pytest.raises(ConfigError, match=r"the largest dissimilarity is 1, above the maximum 0\.5"):
        write_int16(square(), tmp_path / "m.bin", maximum=0.5)
    assert list(tmp_path.iterdir()) == []
