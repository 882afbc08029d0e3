"""The map file of a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tartan.base.files import FileWriter
from tartan.errors import CorruptResultError, StoreError
from tartan.store import maps
from tartan.store.maps import FILE_NAME, StoredMap, read_map, write_map

POINTS = np.random.default_rng(0).normal(size=(7, 3))


def example(dimension: int = 3) -> StoredMap:
    points = np.column_stack([POINTS, POINTS])[:, :dimension].copy()
    points[2] = np.nan
    recipe = {"matrix": {"distance": "1-s"}, "rule": {"floor": 0.0, "tiny": 1e-20, "sammon": None}}
    return StoredMap(points, np.arange(7.0), 5, "damds", "2026-01-02", recipe, {"stress": 0.5, "n_iter": 3})


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_a_map_is_read_as_it_was_written(tmp_path: Path, dimension: int) -> None:
    made = example(dimension)
    write_map(tmp_path, made, FileWriter(tmp_path))
    again = read_map(tmp_path)
    assert again is not None
    np.testing.assert_array_equal(again.points, made.points)
    np.testing.assert_array_equal(again.stress, made.stress)
    for name in ("n_fitted", "method", "run", "recipe", "numbers"):
        assert getattr(again, name) == getattr(made, name)
    named = pq.read_table(tmp_path / FILE_NAME).column_names
    assert named == [*(["x", "y", "z"] if dimension <= 3 else ["x1", "x2", "x3", "x4", "x5"])[:dimension], "stress"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME, "tmp"]


def test_a_formula_has_had_another_name(tmp_path: Path) -> None:
    made = example()
    write_map(tmp_path, replace(made, recipe=made.recipe | {"matrix": {"similarity": "1-s"}}), FileWriter(tmp_path))
    again = read_map(tmp_path)
    assert again is not None
    assert again.recipe == made.recipe


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_map(tmp_path) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "bits", "foreign"])
def test_damage_is_said(tmp_path: Path, damage: str) -> None:
    path = write_map(tmp_path, example(), FileWriter(tmp_path))
    data = path.read_bytes()
    if damage == "foreign":
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    else:
        path.write_bytes({"cut": data[:-20], "empty": b"", "bits": data[:40] + b"\xff\xff" + data[42:]}[damage])
    with pytest.raises(CorruptResultError, match=r"cannot be read as a map: .*`tartan embed .*` makes it afresh"):
        read_map(tmp_path)


def test_a_newer_format_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "FORMAT", 2)
    write_map(tmp_path, example(), FileWriter(tmp_path))
    monkeypatch.undo()
    with pytest.raises(StoreError, match="has format 2, this Tartan knows 1"):
        read_map(tmp_path)


def test_a_map_must_fit_together() -> None:
    for broken in ({"n_fitted": 0}, {"n_fitted": 8}, {"stress": np.zeros(3)}, {"points": np.zeros(7)}):
        with pytest.raises(ValueError, match=r"items of|points"):
            replace(example(), **broken)
