"""Applications of block tasks against NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from tartan.blocks import Session
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.applications.pagerank import pagerank
from tartan.errors import ConfigError, ResourceError, SubtaskError


def dominant(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    a = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    return (a + np.diag(np.full(n, n))).astype(dtype)


@pytest.mark.parametrize(("n", "block"), [(1, 4), (40, 16), (150, 70), (33, 8)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_lu_multiplies_back(n: int, block: int, dtype: str) -> None:
    a = dominant(n, dtype)
    with Session(workers=2) as session:
        factors, report = lu(session, a, block=block)
        found = factors.array()
    assert report.subtasks > 0
    lower, upper = np.tril(found, -1) + np.eye(n, dtype=found.dtype), np.triu(found)
    assert np.abs(a - lower @ upper).max() <= 10 * n * np.finfo(found.dtype).eps * np.abs(a).max()


def test_lu_of_a_block_whose_rows_lapack_would_exchange() -> None:
    a = dominant(130, "f8")
    a[5, 3] = 500.0
    with Session(workers=2) as session:
        found = lu(session, a, block=130)[0].array()
    lower, upper = np.tril(found, -1) + np.eye(130), np.triu(found)
    np.testing.assert_allclose(lower @ upper, a, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.__setitem__((slice(0, 4), slice(0, 4)), 0.0),
            r"\(0,\) of Factor: the pivot in row 0 .*zero",
        ),
        (lambda a: a.__setitem__(6, 0.0), r"subtask \(1, 1\) of Trail: the pivot in row 6 .*lu_factor"),
        (lambda a: a.__setitem__((0, 0), 1e-12), "grows to.*scale"),
    ],
)
def test_matrices_that_need_pivots_are_refused(change: Any, message: str) -> None:
    a = dominant(12, "f8")
    change(a)
    with Session(workers=1) as session:
        with pytest.raises(SubtaskError, match=message) as caught:
            lu(session, a, block=4)
        assert "traceback" not in caught.value.context
        a[3, 7] = np.nan
        with pytest.raises(ConfigError, match="not finite"):
            lu(session, a, block=4)
        with pytest.raises(ConfigError, match="square"):
            lu(session, a[:5], block=4)
        with pytest.raises(ConfigError, match="complex"):
            lu(session, a * 1j, block=4)


@pytest.mark.parametrize("boundary", ["zero", "reflect", "nearest", "clip"])
@pytest.mark.parametrize(
    ("shape", "sides", "dtype"),
    [((45, 32), [(3, 5), (5, 1)], "f8"), ((30, 41, 3), [(9, 9)], "u1"), ((17, 9), [(11, 9), (3, 3), (3, 3)], "f4")],
)
def test_convolutions_equal_scipy(boundary: Any, shape: Any, sides: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    image = rng.uniform(0, 200, shape).astype(dtype)
    kernels = [rng.uniform(-1, 1, side).astype("f4") for side in sides]
    mode = {"zero": "constant", "clip": "constant", "reflect": "reflect", "nearest": "nearest"}[boundary]
    expected = image.astype("f8")
    for kernel in kernels:
        weights = kernel.astype("f8") if image.ndim == 2 else kernel.astype("f8")[..., None]
        expected = ndimage.convolve(expected, weights, mode=mode)
    with Session(workers=2) as session:
        found, report = convolve(session, image, kernels, block=12, boundary=boundary)
        assert found.dtype == ("f8" if dtype == "f8" else "f4")
        np.testing.assert_allclose(found.array(), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert report.subtasks == len(kernels) * len(found.grid)
        with pytest.raises(ConfigError, match="odd sides"):
            convolve(session, image, [np.ones((2, 2))])
        with pytest.raises(ConfigError, match="an image of shape"):
            convolve(session, np.ones(4), kernels)


@pytest.mark.slow
@pytest.mark.parametrize("block", [3, 7, 100])
def test_ranks_of_pages(block: int) -> None:
    rng = np.random.default_rng(0)
    n = 40
    edges = rng.integers(0, n - 5, (150, 2))
    matrix = np.zeros((n, n))
    np.add.at(matrix, (edges[:, 1], edges[:, 0]), 1.0)
    out = matrix.sum(axis=0)
    matrix[:, out > 0] /= out[out > 0]
    matrix[:, out == 0] = 1 / n
    expected = np.full(n, 1 / n)
    for _ in range(300):
        expected = 0.85 * matrix @ expected + 0.15 / n
    with Session(workers=2) as session:
        ranks, _ = pagerank(session, edges, n_pages=n, block=block)
        np.testing.assert_allclose(ranks.array(), expected, atol=1e-9)


@pytest.mark.parametrize("edges", [np.zeros((0, 2), int), np.ones((3, 2)), np.ones(4, int), np.full((2, 2), -1)])
def test_links_that_are_none(edges: np.ndarray) -> None:
    with Session(workers=1) as session, pytest.raises(ConfigError, match="links"):
        pagerank(session, edges)


def test_matrices_that_cannot_be_multiplied() -> None:
    with Session(workers=1) as session, pytest.raises(ConfigError, match="cannot be multiplied"):
        matmul(session, np.ones((3, 4)), np.ones((3, 4)))


@pytest.mark.parametrize("host_cache", [130 << 10, 90 << 10])
def test_a_product_is_cut_until_a_subtask_fits(host_cache: int) -> None:
    a, b = (np.random.default_rng(3).integers(0, 9, shape).astype(float) for shape in ((64, 384), (384, 64)))
    with Session(workers=1, host_cache=host_cache) as session:
        product, *_ = matmul(session, a, b, block=32)  # three steps: in two parts, one would have two thirds
        np.testing.assert_array_equal(product.array(), a @ b)


def test_where_no_cut_fits_the_error_names_what_the_least_cut_needs() -> None:
    a = np.ones((64, 384))
    with Session(workers=1, host_cache=60 << 10) as session, pytest.raises(ResourceError, match="of at least 73"):
        matmul(session, a, a.T, block=32)


@pytest.mark.parametrize(("left", "right"), [("i1", "u1"), ("u2", "i2"), ("i8", "i4"), ("?", "?"), ("u1", "f4")])
def test_products_of_integers_do_not_overflow(left: str, right: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 100, shape).astype(kind) for shape, kind in (((9, 70), left), ((70, 11), right)))
    with Session(workers=1) as session:
        product, *_ = matmul(session, a, b, block=32)
        found = product.array()
    assert found.dtype == (np.float32 if right == "f4" else np.float64)
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))
