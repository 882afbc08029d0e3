"""Sparse rows, in memory and as SciPy saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

import tartan
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError
from tartan.sources.items import open_source
from tartan.sources.rows.sparse import CsrSource

DENSE = np.where(np.random.default_rng(0).random((90, 70)) < 0.15, np.random.default_rng(1).random((90, 70)), 0)
DENSE[:, 0] += 0.1


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_rows_of_a_file_are_dense_when_they_are_read(tmp_path: Path, dtype: str, compressed: bool) -> None:
    rows = (DENSE * 9).astype(dtype)
    sp.save_npz(tmp_path / "a.npz", sp.csr_matrix(rows), compressed=compressed)
    source = open_source(str(tmp_path / "a.npz"), rows=True)
    assert isinstance(source, CsrSource)
    assert (source.shape, source.dtype) == (rows.shape, rows.dtype)
    np.testing.assert_array_equal(source.read_block(0, 90), rows)
    np.testing.assert_array_equal(source.read_block(13, 14), rows[13:14])
    assert source.read_block(5, 5).shape == (0, 70)


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
@pytest.mark.parametrize("kept", [None, tartan.top(4)])
def test_distances_are_those_of_dense_rows(tmp_path: Path, metric: str, kept: Any) -> None:
    rows = DENSE.astype("f4")
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(rows))
    truth = cdist(rows, rows, metric) if metric == "cosine" else cdist(rows != 0, rows != 0, metric)
    for given in (str(tmp_path / "a.npz"), sp.csr_array(rows), sp.coo_matrix(rows)):
        run = tartan.allpairs(Vectors(metric=metric), given, reduce=kept, workers=2, quiet=True)
        dense = tartan.allpairs(Vectors(metric=metric), rows, reduce=kept, workers=2, quiet=True)
        for found, other in zip(run.neighbors(4), dense.neighbors(4), strict=True):
            np.testing.assert_array_equal(found, other)
        if kept is None:
            np.testing.assert_allclose(run.matrix(), truth, atol=1e-6)


def test_a_value_that_is_stored_twice_is_the_sum() -> None:
    matrix = sp.csr_matrix((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 3))
    np.testing.assert_array_equal(open_source(matrix, rows=True).read_block(0, 2), [[0, 3, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("indices", [0, 1, 7], "row 1 has position 7 of 3"),
        ("indices", [0, -1, 2], "row 0 has position -1 of 3"),
        ("indptr", [0, 3, 2], "row 1 ends at 2, with 3 values in all"),
        ("indptr", [0, 2, 9], "row 1 ends at 9, with 3 values in all"),
        ("indptr", [0, 3], r"2 ends of rows, 3 positions and 3 values are not \(2, 3\)"),
        ("data", [1.0], r"3 ends of rows, 3 positions and 1 values are not \(2, 3\)"),
    ],
)
def test_a_damaged_matrix_is_named(tmp_path: Path, part: str, values: list[Any], said: str) -> None:
    parts = {"indptr": [0, 2, 3], "indices": [0, 1, 2], "data": [1.0, 2.0, 3.0], "shape": [2, 3], "format": b"csr"}
    np.savez(tmp_path / "a.npz", **{name: np.array(value) for name, value in (parts | {part: values}).items()})
    with pytest.raises(ConfigError, match=f"a.npz: it is damaged: {said}"):
        open_source(str(tmp_path / "a.npz"), rows=True).read_block(0, 2)


def test_another_form_says_how_it_becomes_rows(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", sp.csc_matrix(DENSE))
    with pytest.raises(ConfigError, match=r"in the form 'csc'; rows are read from 'csr': .*X.tocsr\(\)"):
        open_source(str(tmp_path / "a.npz"), rows=True)


@pytest.mark.parametrize("form", ["coo", "csc", "bsr", "dia", "coords"])
def test_other_forms_of_sparse_matrices_are_refused_by_name(tmp_path: Path, form: str) -> None:
    """A file of diagonals holds an array of (n, d) numbers, which is not the matrix; so do coordinates."""
    rows = sp.random_array((20, 30), density=0.1, rng=np.random.default_rng(1))
    if form == "coords":  # as sparse.save_npz of PyData writes
        found = {"coords": np.stack([rows.row, rows.col]), "data": rows.data, "shape": rows.shape, "fill_value": 0.0}
        np.savez(tmp_path / "a.npz", **found)
    else:
        sp.save_npz(tmp_path / "a.npz", rows.asformat(form))
    with pytest.raises(ConfigError, match=rf"in the form '{form}'; rows are read from 'csr'.*X\.tocsr"):
        open_source(str(tmp_path / "a.npz"), rows=True)
