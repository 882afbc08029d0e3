"""The nearest join against all pairs computed by NumPy."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tartan
from tartan.base.row_screen import RowScreen
from tartan.cli.main import main
from tartan.errors import ConfigError
from tartan.join import blocks, nearest, spilled


def table(n: int, width: int, seed: int, **columns: Any) -> pa.Table:
    """Rows with numbers, and vectors of float32."""
    rows = np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), width)
    return pa.table({"id": pa.array(np.arange(n)), **columns, "embedding": vectors})


def rows_of(given: pa.Table) -> np.ndarray:
    return np.array(given["embedding"].to_pylist(), np.float64)


def distances(left: pa.Table, right: pa.Table) -> np.ndarray:
    a, b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (rows_of(left), rows_of(right)))
    return 1 - a @ b.T


def pairs_of(reader: pa.RecordBatchReader) -> list[tuple[int, int, int]]:
    found = reader.read_all()
    return list(zip(*(found[name].to_pylist() for name in ("id", "id_right", "rank")), strict=True))


def by_rank(pairs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return sorted(pairs, key=lambda pair: (pair[0], pair[2]))


def plain_pairs(
    D: np.ndarray, k: int | None, within: float | None = None, counts: np.ndarray | None = None
) -> list[tuple[int, int, int]]:
    found = []
    for row, values in enumerate(D):
        order = [item for item in np.argsort(values, kind="stable").tolist() if counts is None or counts[row, item]]
        near = [item for item in order if within is None or values[item] <= within][:k]
        found += [(row, item, rank) for rank, item in enumerate(near, 1)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "width"), [(3, 5, 2), (60, 70, 16), (700, 5000, 64), (530, 9000, 96)])
def test_it_is_all_pairs_sorted(n: int, m: int, width: int) -> None:
    left, right = table(n, width, 1), table(m, width, 2)
    D = distances(left, right)
    assert pairs_of(tartan.nearest_join(left, right, k=4)) == plain_pairs(D, 4)
    values = np.sort(D, axis=None)[: max(3, D.size // 300)][-200:]
    at = int(np.argmax(np.diff(values)))  # far from both, so that rounding to float32 moves no pair across
    bound = float(values[at : at + 2].mean())
    found = tartan.nearest_join(left, right, within=bound).read_all()
    assert {(i, j) for i, j in zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)} == {
        (i, j) for i, j, _ in plain_pairs(D, None, bound)
    }
    order = np.lexsort((found["id_right"], found["distance"], found["id"]))
    assert order.tolist() == list(range(found.num_rows))
    firsts = np.concatenate([np.arange(1, count + 1) for count in np.bincount(found["id"], minlength=n)])
    assert found["rank"].to_pylist() == firsts.tolist()
    assert pairs_of(tartan.nearest_join(left, right, k=2, within=bound)) == plain_pairs(D, 2, bound)


@pytest.mark.parametrize("width", [1, 5, 32, 33, 63, 64, 65])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "minkowski"])
def test_rows_of_few_values(metric: str, width: int) -> None:
    left, right = table(60, width, 8), table(70, width, 9)
    squares = ((rows_of(left)[:, None] - rows_of(right)) ** 2).sum(axis=2)
    D = squares if metric == "sqeuclidean" else np.sqrt(squares)
    assert pairs_of(tartan.nearest_join(left, right, k=3, metric=metric)) == plain_pairs(D, 3)
    values = np.sort(D, axis=None)[20:60]
    at = int(np.argmax(np.diff(values)))
    bound = float(values[at : at + 2].mean())
    found = tartan.nearest_join(left, right, within=bound, metric=metric)
    assert by_rank(pairs_of(found)) == by_rank(plain_pairs(D, None, bound))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "manhattan"])
def test_screened_is_unscreened_bit_for_bit(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "TILE_VALUES", 1 << 15)  # several tiles: of the first, too few pairs are ruled out
    left, right = table(600, 80, 3), table(6000, 80, 4)
    for ways in ({"k": 5}, {"within": {"cosine": 0.7, "euclidean": 9.5, "sqeuclidean": 90, "manhattan": 65}[metric]}):
        found, plain = (
            tartan.nearest_join(left, right, metric=metric, screened=screened, **ways).read_all()
            for screened in (True, False)
        )
        assert found.num_rows > 0
        assert found.equals(plain)


def test_a_wrong_bound_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "TILE_VALUES", 1 << 15)
    left, right = table(600, 80, 3), table(6000, 80, 4)
    right_way = tartan.nearest_join(left, right, k=5).read_all()
    monkeypatch.setattr(nearest, "RowScreen", partial(RowScreen, trust=-3.0))
    assert not tartan.nearest_join(left, right, k=5).read_all().equals(right_way)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_keys_join_within_equal_ones_only(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = 400, 1500
    kinds = [0, 1, 2, 3, None] if seed % 2 else [*range(300), None]
    keys = [
        [None if value is None else f"k{value}" for value in rng.choice(np.array(kinds, object), size)]
        for size in (n, m)
    ]
    left, right = table(n, 8, 1, by=pa.array(keys[0])), table(m, 8, 2, by=pa.array(keys[1], pa.large_string()))
    counts = np.array([[one is not None and one == other for other in keys[1]] for one in keys[0]])
    D = distances(left, right)
    found = pairs_of(tartan.nearest_join(left, right, k=3, by="by"))
    assert by_rank(found) == plain_pairs(D, 3, counts=counts)
    kept = tartan.nearest_join(left, right, k=3, by=["by"], how="left").read_all()
    assert set(kept["id"].to_pylist()) == set(range(n))
    alone = [row["id"] for row in kept.to_pylist() if row["id_right"] is None]
    assert sorted(alone) == np.flatnonzero(~counts.any(axis=1)).tolist()
    assert kept.schema.names == ["id", "by", "id_right", "rank", "distance"]


def test_zeros_of_either_sign_are_one_key() -> None:
    left, right = (table(2, 4, seed, key=pa.array(keys)) for seed, keys in ((1, [0.0, 1.0]), (2, [1.0, -0.0])))
    assert pairs_of(tartan.nearest_join(left, right, by="key")) == [(0, 1, 1), (1, 0, 1)]


def test_two_keys_are_one() -> None:
    left = table(50, 4, 1, a=pa.array([i % 3 for i in range(50)]), b=pa.array([i % 2 for i in range(50)], pa.int8()))
    right = table(80, 4, 2, a=pa.array([i % 3 for i in range(80)]), b=pa.array([i % 4 for i in range(80)]))
    counts = np.array([[i % 3 == j % 3 and i % 2 == j % 4 for j in range(80)] for i in range(50)])
    found = pairs_of(tartan.nearest_join(left, right, k=2, by=["a", "b"]))
    assert by_rank(found) == plain_pairs(distances(left, right), 2, counts=counts)


def test_a_key_a_row_makes_few_blocks() -> None:
    keys = np.random.default_rng(0).permutation(20_000)
    found = list(blocks.blocks_of_keys(np.arange(20_000), keys, 10_000, keeps_all=False))
    assert len(found) < 200
    assert sum(len(block.left) for block in found) == 20_000


@pytest.mark.slow
def test_little_memory_cuts_blocks_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = table(300, 16, 5), table(2000, 16, 6)
    ways: list[dict[str, Any]] = [{"k": 3}, {"within": 0.5}]
    whole = [tartan.nearest_join(left, right, **way).read_all() for way in ways]
    for name in ("PAIR_BYTES", "LISTED_BYTES"):
        monkeypatch.setattr(nearest, name, 1 << 17)  # some hundred pairs fill the memory for results
    monkeypatch.setattr(nearest, "TILE_VALUES", 1 << 10)
    monkeypatch.setattr(nearest, "BATCH_ROWS", 50)
    for way, expected in zip(ways, whole, strict=True):
        cut = tartan.nearest_join(left, right, memory="300MB", **way)
        batches = list(cut)
        assert max(batch.num_rows for batch in batches) <= 50
        assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(expected.to_batches()))


def test_ids_are_texts_repeated_and_null() -> None:
    right = table(4, 3, 1).set_column(0, "id", pa.array(["x", "x", None, "y"]))
    left = right.rename_columns(["name", "embedding"]).append_column(
        "more", pa.array([[1], None, [2, 3], []], pa.list_(pa.int8()))
    )
    found = tartan.nearest_join(left, right, "embedding", k=1).read_all()
    assert found.select(["name", "id", "more"]).to_pylist() == [
        {"name": "x", "id": "x", "more": [1]},
        {"name": "x", "id": "x", "more": None},
        {"name": None, "id": None, "more": [2, 3]},
        {"name": "y", "id": "y", "more": []},
    ]
    assert found["distance"].to_pylist() == [0.0] * 4


def test_left_rows_without_a_match_are_kept() -> None:
    left, right = table(5, 3, 1), table(4, 3, 2)
    D = distances(left, right)
    bound = float(np.sort(D.min(axis=1))[1]) + 1e-6
    found = tartan.nearest_join(left, right, within=bound, how="left").read_all()
    near = plain_pairs(D, None, bound)
    expected = list(near)
    expected += [(row, None, None) for row in range(5) if row not in {pair[0] for pair in near}]  # type: ignore[misc]
    assert sorted(zip(*(found[name].to_pylist() for name in ("id", "id_right", "rank")), strict=True)) == sorted(
        expected
    )
    assert found["id"].to_pylist() == sorted(found["id"].to_pylist())
    assert [value is None for value in found["distance"].to_pylist()] == [
        value is None for value in found["rank"].to_pylist()
    ]


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_empty_tables(n: int, m: int, how: str) -> None:
    left, right = table(max(n, 1), 4, 1)[:n], table(max(m, 1), 4, 2)[:m]
    found = tartan.nearest_join(left, right, k=2, how=how).read_all()
    assert found.num_rows == (n if how == "left" else 0)
    assert found.schema.names == ["id", "id_right", "rank", "distance"]


def test_k_above_n_gives_all_there_are() -> None:
    left, right = table(3, 4, 1), table(5, 4, 2)
    assert pairs_of(tartan.nearest_join(left, right, k=10**9)) == plain_pairs(distances(left, right), 5)


def test_a_table_of_vectors_alone_has_rows() -> None:
    one = table(3, 4, 1).select(["embedding"])
    found = tartan.nearest_join(one, one, k=1).read_all()
    assert found.select(["row", "row_right"]).to_pydict() == {"row": [0, 1, 2], "row_right": [0, 1, 2]}


@pytest.mark.parametrize("kind", ["list", "large_list", "float64", "float16", "int8", "view", "sliced", "reader"])
def test_vectors_come_in_any_list(kind: str) -> None:
    rows = np.random.default_rng(7).integers(-9, 10, (30, 5)).astype(np.float32)
    values = {"float64": pa.float64(), "float16": pa.float16(), "int8": pa.int8()}.get(kind, pa.float32())
    lists = {"list": pa.list_(values), "large_list": pa.large_list(values)}.get(kind, pa.list_(values, 5))
    cells = [row.astype(values.to_pandas_dtype()) for row in rows]
    given: Any = pa.table({"id": list(range(30)), "embedding": pa.array(cells, lists)})
    D = distances(given, given)
    if kind == "view":  # backwards in memory, in chunks that end with it
        starts = pa.array(np.arange(29, -1, -1) * 5, pa.int32())
        views = pa.ListViewArray.from_arrays(starts, pa.array([5] * 30, pa.int32()), pa.array(rows[::-1].ravel()))
        given = pa.table({"id": list(range(30)), "embedding": pa.chunked_array([views[:11], views[11:]])})
    if kind == "sliced":
        given, D = given[7:], D[7:]
    right = pa.table({"id": list(range(30)), "embedding": pa.array(list(rows), pa.list_(pa.float32()))})
    found = tartan.nearest_join(given.to_reader() if kind == "reader" else given, right, k=1).read_all()
    np.testing.assert_allclose(found["distance"].to_numpy(), D.min(axis=1), atol=1e-6)


def bad(value: Any) -> pa.Table:
    cells: list[Any] = [[1.0, 2.0]] * 5
    cells[3] = value
    return pa.table({"id": range(5), "embedding": pa.array(cells, pa.list_(pa.float64()))})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, np.nan], "right, row 3: value nan at position 1; leave such rows out first"),
        ([np.inf, 1.0], "right, row 3: value inf at position 0"),
        ([0.0, 0.0], "right, row 3: all values are 0: a zero vector has no direction"),
        ([1.0], "right, row 3: the vector has 1 values, and 2 are wanted"),
        ([], "right, row 3: the vector has 0 values"),
        (None, "right, row 3: the vector is null; leave such rows out first"),
        ([1.0, None], "right, row 3: the value at position 1 is null"),
    ],
)
def test_bad_vectors_are_named(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tartan.nearest_join(table(4, 2, 1), bad(value), k=1)


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({"on": "vector"}, "left has no column 'vector'; it has id, embedding"),
        ({"on": "id"}, "left: the column 'id' has the type int64; vectors are lists"),
        ({"on": ("embedding", "other")}, "right has no column 'other'"),
        ({"by": "language"}, r"left \(by\) has no column 'language'"),
        ({"by": "embedding"}, "by: 'embedding' is the column of vectors"),
        ({"suffix": ""}, "the result would have two columns 'id'"),
        ({"k": 0}, "k is 0"),
        ({"within": float("nan")}, "within is nan"),
        ({"how": "outer"}, "how: 'outer' is unknown"),
        ({"metric": "angle"}, "metric: 'angle' is unknown"),
        ({"memory": "1MB"}, "memory is 1 MB; NumPy, PyArrow and tiles of rows take"),
    ],
)
def test_wrong_options_are_named(ways: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tartan.nearest_join(table(3, 4, 1), table(3, 4, 2), **ways)


def test_other_inputs_are_named(tmp_path: Path) -> None:
    right = table(3, 4, 2)
    with pytest.raises(ConfigError, match=r"left is a builtins.list; give a table with __arrow_c_stream__"):
        tartan.nearest_join([1], right)
    with pytest.raises(ConfigError, match="right, row 0: the vector has 3 values, and 4 are wanted"):
        tartan.nearest_join(right, table(3, 3, 1))
    with pytest.raises(
        ConfigError, match=r"left: .*none.parquet cannot be read as a Parquet or Arrow file: No such file"
    ):
        tartan.nearest_join(tmp_path / "none.parquet", right)
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(ConfigError, match=r"text.parquet cannot be read as a Parquet or Arrow file"):
        tartan.nearest_join(tmp_path / "text.parquet", right)
    keyed = [side.append_column("by", pa.array(by)) for side, by in ((right, [1, 2, 3]), (right, ["a", "b", "c"]))]
    with pytest.raises(ConfigError, match="by: a column has the type int64 on the left and string on the right"):
        list(tartan.nearest_join(*keyed, by="by"))


def test_rows_are_gathered_as_they_lie(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((2000, 7)).astype(np.float32)
    with open(tmp_path / "v", "w+b") as file:
        vectors = spilled.VectorFile(file)
        for part in np.array_split(rows, 9):
            vectors.append(part)
        file.flush()
        chosen = np.random.default_rng(1).permutation(2000)[:700]
        np.testing.assert_array_equal(vectors.take(chosen), rows[chosen])
        np.testing.assert_array_equal(vectors.take(range(5, 60)), rows[5:60])
        np.testing.assert_array_equal(vectors.take(np.arange(5, 60)), rows[5:60])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    left, right = table(6, 4, 1), table(9, 4, 2)
    pq.write_table(left, "a.parquet")
    pq.write_table(right, "b.parquet")
    with pa.OSFile("b.arrow", "wb") as file, pa.ipc.new_file(file, right.schema) as writer:
        writer.write_table(right)
    expected = tartan.nearest_join(left, right, k=2).read_all()
    for other, out in itertools.product(("b.parquet", "b.arrow"), ("c.parquet", "c.arrow")):
        assert main(["neighbors", "a.parquet", "--of", other, "-k", "2", "-o", out, "--overwrite", "-q"]) == 0
        found = pq.read_table(out) if out.endswith("parquet") else pa.ipc.open_file(out).read_all()
        assert found.equals(expected)
    capsys.readouterr()
    assert main(["neighbors", "a.parquet", "--of", "b.parquet", "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id\tid_right\trank\tdistance"
    assert [tuple(map(int, line.split("\t")[:3])) for line in lines[1:]] == plain_pairs(distances(left, right), 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.npy", "--within", "1"], "--within is for two tables of vectors; name the other one with --of"),
        (["a.parquet", "--of", "b.parquet", "--json"], "--json is for runs and matrices"),
        (["a.parquet", "--of", "b.parquet", "--distance", "max-s"], "--distance is for runs and matrices"),
        (["a.parquet", "--of", "b.parquet", "-o", "c.xlsx"], "c.xlsx"),
    ],
)
def test_the_command_refuses(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["neighbors", *words]) == 2
    assert message in capsys.readouterr().err


def test_in_a_duckdb_session() -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    con = duckdb.connect()
    con.register("given", table(50, 4, 1))
    relation = con.sql("SELECT id, embedding::FLOAT[4] AS embedding FROM given")
    joined = tartan.nearest_join(relation, con.sql("SELECT * FROM given"), "embedding", k=3)
    assert joined.schema.names == ["id", "id_right", "rank", "distance"]
    found = con.sql("SELECT id, id_right, rank FROM joined ORDER BY id, rank").fetchall()
    assert found == plain_pairs(distances(table(50, 4, 1), table(50, 4, 1)), 3)


def test_in_a_polars_session() -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame({"name": [f"n{i}" for i in range(50)]}).with_columns(
        pl.Series("embedding", rows_of(table(50, 4, 1)).tolist())
    )
    found = pl.DataFrame(tartan.nearest_join(frame, frame, k=2))
    assert found.columns == ["name", "name_right", "rank", "distance"]
    assert found.filter(pl.col("rank") == 1)["name_right"].to_list() == frame["name"].to_list()
    with pytest.raises(ConfigError, match=r"LazyFrame: call .collect\(\) first"):
        tartan.nearest_join(frame.lazy(), frame)


def test_in_a_pandas_session() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"name": ["a", "b"], "embedding": [[1.0, 0.0], [0.0, 1.0]]})
    assert tartan.nearest_join(frame, frame, k=1).read_all()["name_right"].to_pylist() == ["a", "b"]
