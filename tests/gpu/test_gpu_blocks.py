"""On a machine with a GPU: block tasks against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.gpu import require_gpu
from tartan import blocks
from tartan.blocks.applications.convolve import convolve
from tartan.blocks.applications.lu import lu
from tartan.blocks.applications.matmul import matmul
from tartan.blocks.applications.pagerank import pagerank
from tartan.errors import DeviceMemoryError, SubtaskError

pytestmark = pytest.mark.gpu
require_gpu()


def both(run: Callable[[blocks.Session], Any], **options: Any) -> tuple[Any, Any]:
    """Return what the same code computes on the CPU and on the GPU."""
    found = []
    for device in ("cpu", "cuda"):
        with blocks.Session(device=device, host_cache=2**28, **options) as session:
            found.append(run(session))
    return found[0], found[1]


@pytest.mark.parametrize("cache", [2**28, 2**23])
def test_products_stream_through_the_memory(cache: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((900, 900)).astype("f4") for _ in range(2))

    def run(session: blocks.Session) -> Any:
        product, report, _ = matmul(session, a, b, block=256)
        return product.array(), report

    (expected, _), (found, report) = both(run, device_cache=cache)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert report.device_subtasks == report.subtasks
    assert report.bytes_uploaded >= a.nbytes + b.nbytes


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lu(dtype: str) -> None:
    n = 500
    a = (np.random.default_rng(0).uniform(-1, 1, (n, n)) + n * np.eye(n)).astype(dtype)

    def run(session: blocks.Session) -> Any:
        factors, report = lu(session, a, block=128)
        return factors.array(), report

    _, (found, report) = both(run)
    lower, upper = np.tril(found, -1) + np.eye(n, dtype=dtype), np.triu(found)
    assert np.abs(a - lower @ upper).max() <= 10 * n * np.finfo(dtype).eps * np.abs(a).max()
    assert report.device_subtasks == report.subtasks


@pytest.mark.parametrize("side", [5, 15])
def test_convolutions(side: int) -> None:
    rng = np.random.default_rng(0)
    image, kernel = rng.random((300, 250, 3), dtype="f4"), rng.random((side, side), dtype="f4")

    def run(session: blocks.Session) -> Any:
        found, _ = convolve(session, image, [kernel, kernel], block=128)
        return found.array()

    expected, found = both(run)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_ranks_of_pages_have_the_same_bits() -> None:
    edges = np.random.default_rng(0).integers(0, 900, (20_000, 2))

    def run(session: blocks.Session) -> Any:
        ranks, _ = pagerank(session, edges, block=128, most_steps=10)
        return ranks.array()

    expected, found = both(run)
    np.testing.assert_array_equal(found, expected)


def test_errors_leave_the_session_usable() -> None:
    kept: list[Any] = []

    def changes(a: Any, xp: Any) -> None:
        a[...] = 1

    def keeps(a: Any, xp: Any) -> None:
        kept.append(a[1:])

    def greedy(a: Any, xp: Any) -> None:
        xp.zeros(2**45)

    with blocks.Session(device="cuda", host_cache=2**22, device_cache=2**20) as session:
        A = session.space(np.arange(8.0), block=4)
        wants = lambda i: A.read[A.block(i)]  # noqa: E731
        with pytest.raises(SubtaskError, match="changed array 0"):
            session.run(blocks.Task(changes, A.grid, wants, debug=True))
        with pytest.raises(SubtaskError, match="keeps array 0"):
            session.run(blocks.Task(keeps, A.grid, wants))
        kept.clear()
        with pytest.raises(DeviceMemoryError, match="smaller --device-cache"):
            session.run(blocks.Task(greedy, A.grid, wants))
        session.run(blocks.Task(changes, A.grid, wants))
        np.testing.assert_array_equal(A.array(), np.arange(8.0))
