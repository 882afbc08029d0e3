"""Runs as what other libraries work with."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.errors import ConfigError, ResourceError

N = 9


class Scores(tartan.Application):
    """Distances of numbers; those above ``limit`` fail."""

    releases_gil = True
    outputs = {"distance": np.float64, "count": np.int32}  # noqa: RUF012
    similarity = False

    def __init__(self, limit: float = 1e9) -> None:
        self.limit = limit

    def compare_pair(self, a: float, b: float) -> dict[str, float]:
        if abs(a - b) > self.limit:
            raise ValueError("too far")
        return {"distance": abs(a - b), "count": int(a + b)}


def numbers(n: int = N) -> list[float]:
    return [float(k * k) for k in range(n)]


TRUTH = np.abs(np.subtract.outer(numbers(), numbers()))


@pytest.fixture(scope="module")
def dense() -> tartan.Run:
    return tartan.allpairs(Scores(), numbers(), workers=1)


@pytest.fixture(scope="module")
def gaps() -> tartan.Run:
    return tartan.allpairs(Scores(limit=60), numbers(), workers=1)


@pytest.fixture(scope="module")
def nearest() -> tartan.Run:
    return tartan.allpairs(Scores(), numbers(), workers=1, reduce={"kind": "top-k", "k": 2})


@pytest.fixture(scope="module")
def near() -> tartan.Run:
    return tartan.allpairs(Scores(), numbers(), workers=1, reduce={"kind": "threshold", "threshold": 20.0})


@pytest.fixture(scope="module")
def rectangle() -> tartan.Run:
    return tartan.allpairs(Scores(), numbers(4), against=numbers(3), workers=1)


def test_asarray(dense: tartan.Run, nearest: tartan.Run, rectangle: tartan.Run) -> None:
    np.testing.assert_array_equal(np.asarray(dense), TRUTH)
    assert np.asarray(dense, np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(rectangle), TRUTH[:4, :3])
    with pytest.raises(ValueError, match="without a copy"):
        np.array(dense, copy=False)
    with pytest.raises(ConfigError):
        np.asarray(nearest)


def test_pandas(dense: tartan.Run, gaps: tartan.Run, nearest: tartan.Run) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = dense.to_pandas()
    assert list(frame.index) == list(frame.columns) == list(dense.keys)
    np.testing.assert_array_equal(frame.to_numpy(), TRUTH)
    np.testing.assert_array_equal(dense.to_pandas("count").to_numpy()[0, 1:], np.square(range(1, N)))
    pairs = gaps.to_pandas(pairs=True)
    assert list(pairs.columns) == ["i", "j", "key_i", "key_j", "distance", "count"]
    assert int(pairs["distance"].isna().sum()) == int((np.triu(TRUTH) > 60).sum())
    assert len(nearest.to_pandas()) == 2 * N


def test_xarray(dense: tartan.Run) -> None:
    pytest.importorskip("xarray", reason="xarray is not installed")
    array = dense.to_xarray()
    assert (array.dims, array.name) == (("i", "j"), "distance")
    assert float(array.sel(i="2", j="5")) == TRUTH[2, 5]


def test_sparse(dense: tartan.Run, gaps: tartan.Run, rectangle: tartan.Run) -> None:
    found = dense.to_sparse()
    np.testing.assert_array_equal(found.toarray(), TRUTH)
    assert found.nnz == N * (N - 1), "the diagonal is not known, all else is"
    some = gaps.to_sparse()
    np.testing.assert_array_equal(some.toarray(), np.where(TRUTH > 60, 0, TRUTH))
    assert some.nnz == int((TRUTH <= 60).sum()) - N
    np.testing.assert_array_equal(rectangle.to_sparse().toarray(), TRUTH[:4, :3])
    assert rectangle.to_sparse().nnz == 12, "scores of 0 are stored"


def test_sparse_of_what_a_run_keeps(nearest: tartan.Run, near: tartan.Run) -> None:
    best = nearest.to_sparse()
    assert np.diff(best.indptr).tolist() == [2] * N
    assert sorted(best.indices[best.indptr[8] : best.indptr[9]].tolist()) == [6, 7]
    kept = near.to_sparse().toarray()
    np.testing.assert_array_equal(kept, np.where(TRUTH <= 20, TRUTH, 0))


def test_sparse_of_one_direction() -> None:
    class Difference(tartan.Application):
        releases_gil = True
        symmetric = False

        def compare_pair(self, a: float, b: float) -> float:
            return a - b

    run = tartan.allpairs(Difference(), numbers(4), workers=1)
    np.testing.assert_array_equal(run.to_sparse().toarray(), np.subtract.outer(numbers(4), numbers(4)))
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    graph = run.to_networkx()
    assert isinstance(graph, networkx.DiGraph)
    assert graph["1"]["3"]["weight"] == -8


def test_networkx(dense: tartan.Run, gaps: tartan.Run, nearest: tartan.Run, rectangle: tartan.Run) -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    graph = dense.to_networkx()
    assert list(graph.nodes) == list(dense.keys)
    assert (graph.number_of_edges(), graph["2"]["5"]["weight"]) == (N * (N - 1) // 2, TRUTH[2, 5])
    assert gaps.to_networkx().number_of_edges() == int((np.triu(TRUTH, 1) <= 60).sum()) - N * (N + 1) // 2
    assert networkx.is_connected(nearest.to_networkx())
    two = rectangle.to_networkx("count")
    assert two["A", "3"]["B", "2"]["weight"] == 13


def test_anndata(dense: tartan.Run, nearest: tartan.Run, rectangle: tartan.Run) -> None:
    pytest.importorskip("anndata", reason="anndata is not installed")
    found = dense.to_anndata()
    np.testing.assert_array_equal(found.obsp["distance"], TRUTH)
    assert (list(found.obs_names), set(found.obsp)) == (list(dense.keys), {"distance", "count"})
    assert not found.obs["failed"].any()
    assert nearest.to_anndata().obsp["distance"].nnz == 2 * N
    sides = rectangle.to_anndata()
    assert sides.shape == (4, 3)
    np.testing.assert_array_equal(sides.layers["distance"], TRUTH[:4, :3])


@pytest.mark.slow
def test_anndata_has_the_map(tmp_path: Path) -> None:
    pytest.importorskip("anndata", reason="anndata is not installed")
    run = tartan.allpairs(Scores(), numbers(), tmp_path / "run", workers=1)
    run.embed(n_components=2, keep=True, random_state=0)
    assert run.to_anndata().obsm["X_tartan"].shape == (N, 2)


@pytest.mark.parametrize("library", ["pandas", "xarray", "networkx", "anndata"])
def test_a_missing_library_is_named(dense: tartan.Run, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=f"needs {library}, which is not installed: pip install {library}"):
        getattr(dense, f"to_{library}")()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    run = tartan.allpairs(Scores(), numbers(4), tmp_path / "run", workers=1)
    run.manifest.n_items = 10_000_000
    with pytest.raises(ResourceError, match=r"takes .* of memory.*bands\(\) or pairs\(\)"):
        np.asarray(run)


def test_notebooks_show_a_picture(dense: tartan.Run, nearest: tartan.Run) -> None:
    from io import BytesIO

    from PIL import Image

    png = dense._repr_png_()
    assert png is not None
    picture = Image.open(BytesIO(png))
    assert picture.size == (360, 360)
    colours = {picture.convert("RGB").getpixel((at, 5)) for at in (60, 355)}
    assert len(colours) == 2, "near and far differ"
    text = dense._repr_html_()
    assert text.startswith("<table>")
    assert "data:image/png;base64," in text
    assert nearest._repr_png_() is None
    assert "<img" not in nearest._repr_html_()
