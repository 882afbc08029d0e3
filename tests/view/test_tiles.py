"""Tiles of a pyramid are the means of the matrix, at every level, of every kind of run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tartan
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.view.tiles import TILE, ChunkPyramid, KeptPyramid, WholePyramid, draw_tile, n_levels, pyramid_of

ITEMS = np.random.default_rng(5).normal(size=(300, 4)).astype(np.float32)


def run_of(tmp_path: Path, **options: Any) -> Any:
    from tartan.apps.vectors.app import Vectors

    items = options.pop("items", ITEMS)
    return tartan.allpairs(Vectors(metric="euclidean"), items, out=tmp_path / "r", tile=77, workers=1, **options)


def means_of(matrix: np.ndarray, level: int) -> np.ndarray:
    """Return the means of squares of 2^level, slowly."""
    side = 1 << level
    shape = tuple(-(-n // side) for n in matrix.shape)
    means = np.full(shape, np.nan)
    for row, column in itertools.product(*map(range, shape)):
        part = matrix[row * side : (row + 1) * side, column * side : (column + 1) * side]
        if np.isfinite(part).any():
            means[row, column] = np.nanmean(part)
    return means


def all_tiles(pyramid: Any, level: int) -> np.ndarray:
    rows, columns = (-(-n // (TILE << level)) for n in pyramid.shape)
    tiles = [[pyramid.cells(level, row, column) for column in range(columns)] for row in range(rows)]
    assert all(complete for line in tiles for _, complete in line)
    return np.block([[means for means, _ in line] for line in tiles])


def test_the_last_level_is_one_tile() -> None:
    sizes = [1, 2, 255, 256, 257, 512, 513, 100_000]
    assert [n_levels((n, n)) for n in sizes] == [1, 1, 1, 1, 2, 2, 3, 10]
    assert all(-(-n // (1 << (n_levels((n, 1)) - 1))) <= TILE for n in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("level", [pytest.param(0, marks=pytest.mark.exhaustive), 1, 2])
def test_chunks_give_the_means_of_the_matrix(tmp_path: Path, level: int) -> None:
    run = run_of(tmp_path)
    matrix = run.matrix()
    np.fill_diagonal(matrix, np.nan)  # not computed, so nothing to show
    np.testing.assert_allclose(all_tiles(ChunkPyramid(run), level), means_of(matrix, level), rtol=1e-6)


@pytest.mark.slow
def test_two_sets_have_the_first_as_rows(tmp_path: Path) -> None:
    run = run_of(tmp_path, items=ITEMS[:170], against=ITEMS[170:])
    matrix = run.matrix()
    for pyramid, level in itertools.product((ChunkPyramid(run), WholePyramid(run)), (0, 1)):
        np.testing.assert_allclose(all_tiles(pyramid, level), means_of(matrix, level), rtol=1e-6)


@pytest.mark.slow
def test_a_small_finished_matrix_is_ordered(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    pyramid = pyramid_of(run)
    assert isinstance(pyramid, WholePyramid)
    assert sorted(pyramid.order) == list(range(300))
    matrix = run.matrix()[np.ix_(pyramid.order, pyramid.order)]
    np.fill_diagonal(matrix, np.nan)  # where an item meets itself there is no pair
    np.testing.assert_allclose(all_tiles(pyramid, 1), means_of(matrix, 1), rtol=1e-6)


@pytest.mark.slow
def test_kept_pairs_are_drawn_on_both_sides(tmp_path: Path) -> None:
    run = run_of(tmp_path, reduce={"kind": "threshold", "threshold": 0.8, "largest": False})
    matrix = run_of(tmp_path / "all").matrix()
    np.fill_diagonal(matrix, np.nan)
    matrix[matrix > 0.8] = np.nan
    pyramid = pyramid_of(run)
    assert isinstance(pyramid, KeptPyramid)
    for level in (0, 1):
        np.testing.assert_allclose(all_tiles(pyramid, level), means_of(matrix, level), rtol=1e-6)


@pytest.mark.slow
def test_a_tile_that_takes_long_comes_in_parts(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    ticks = itertools.count()
    pyramid = ChunkPyramid(run, seconds=1.5, clock=lambda: float(next(ticks)))
    known, rounds = [], 0
    while rounds < 30:
        means, complete = pyramid.cells(1, 0, 0)
        known.append(np.isfinite(means).sum())
        rounds += 1
        if complete:
            break
    assert complete
    assert 2 < rounds < 20
    assert known == sorted(known)


@pytest.mark.slow
def test_a_chunk_that_comes_later_is_seen(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    status = tmp_path / "r" / "status.zarr" / "c" / "0" / "2"
    moved = status.rename(tmp_path / "aside")
    pyramid = ChunkPyramid(run)
    before, _ = pyramid.cells(0, 0, 0)
    assert np.isnan(before[:77, 154:231]).all()
    moved.rename(status)
    after, _ = pyramid.cells(0, 0, 0)
    assert np.isfinite(after[:77, 154:231]).all()


def sparse_run(folder: Path, n_items: int = 100_000, chunk: int = 500) -> Any:
    """Make a folder of many items in which only some chunks are committed: those on the diagonal and one far away."""
    about = {
        "name": "apart", "kind": "object", "source": "python:apart", "source_hash": "", "parameters": {},
        "outputs": {"scores": "float32"}, "symmetric": True, "diagonal": False, "similarity": False,
        "releases_gil": True, "ragged": False,
    }  # fmt: skip
    grid = {"chunk": chunk, "panel": chunk, "strip": chunk, "span": chunk}
    manifest = Manifest(about, {"kind": "all"}, n_items, grid, inputs={"kind": "array"}, created="2026-01-02T03:04:05")
    made = RunFolder.create(folder, manifest)
    upper = np.triu(np.ones((chunk, chunk), np.uint8), 1)
    last = n_items // chunk - 1
    with made.lock():
        for row, column in ((0, 0), (0, last), (last, last)):
            status = upper if row == column else np.ones_like(upper)
            made.commit(row, column, {"scores": np.full((chunk, chunk), 1.0 + row + column, np.float32)}, status)
    return tartan.open(folder)


@pytest.mark.exhaustive
def test_a_hundred_thousand_items(tmp_path: Path) -> None:
    run = sparse_run(tmp_path / "r")
    assert isinstance(pyramid_of(run), ChunkPyramid)
    pyramid = ChunkPyramid(run, clock=lambda: 0.0)
    top = n_levels(run.shape) - 1
    assert top == 9
    means, complete = pyramid.cells(top, 0, 0)
    assert complete
    assert means.shape == (196, 196)
    assert means[0, 0] == 1.0
    assert means[0, -1] == means[-1, 0] == 200.0
    assert means[-1, -1] == 399.0
    assert np.isnan(means[50, 100])
    fine, _ = pyramid.cells(0, 0, 390)
    assert fine.shape == (256, 160)
    assert (fine == 200.0).all()
    tile = draw_tile(pyramid, top, 0, 0)
    assert tile.png.startswith(b"\x89PNG")
    assert tile.scale.far > tile.scale.near  # distances: the smaller, the more similar
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["n_items"] == 100_000
