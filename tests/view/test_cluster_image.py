"""The matrix sorted by cluster: what lies where, the lines, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tartan.analytics import Monitor, as_dissimilarities
from tartan.base.palette import Scale, colours
from tartan.errors import ConfigError, RunCancelledError
from tartan.store.downsample import mean_cells, shrink
from tartan.view.map_image import save_cluster_image, squares
from tartan.view.matrix_image import draw_matrix

LABELS = ["b", "a", "b", "c", "a", "b", "c", "b"]


def distances() -> np.ndarray:
    """Return 0 on the diagonal, 1 in a cluster and 2 outside."""
    names = np.array(LABELS)
    D = np.where(names[:, None] == names, 1.0, 2.0)
    np.fill_diagonal(D, 0.0)
    return D


def test_clusters_are_squares_along_the_diagonal(tmp_path: Path) -> None:
    path = save_cluster_image(distances(), LABELS, tmp_path / "c.png", title="three")
    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    near, far = (colours(np.array([level]))[0].astype(int) for level in (1.0, 0.0))
    is_near = (np.abs(picture - near) <= 4).all(axis=2)
    top, left = (np.flatnonzero(is_near[:, : picture.shape[1] - 130].any(axis=axis))[0] for axis in (1, 0))
    cell = 840 // 8
    middles = np.arange(8) * cell + cell // 2
    at = picture[top + middles[:, None] - 0, left + middles[None, :] - 0]
    sizes = np.repeat([0, 1, 2], [4, 2, 2])  # b, a, c in the order of their first items
    inside = (sizes[:, None] == sizes) & ~np.eye(8, dtype=bool)
    assert (np.abs(at[inside] - near) <= 4).all()
    assert (np.abs(at[sizes[:, None] != sizes] - far) <= 4).all()
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.png"]


def test_lines_lie_between_the_groups() -> None:
    groups = ["x"] * 4 + ["y"] * 4 + ["z"] * 2
    values = np.full((10, 10), 0.5)
    plain, lined = (
        np.asarray(draw_matrix(values, Scale(0.0, 1.0), groups=groups, borders=lines)) for lines in (False, True)
    )
    changed = (plain != lined).any(axis=2)
    rows = np.flatnonzero(changed.mean(axis=1) > 0.3)
    columns = np.flatnonzero(changed.mean(axis=0) > 0.3)
    assert len(rows) == len(columns) == 2
    assert rows[1] - rows[0] == columns[1] - columns[0] == 4 * 84
    assert (lined[changed] == 255).all()


def test_many_small_groups_have_no_lines_over_them() -> None:
    groups, values = [str(i) for i in range(600)], np.full((600, 600), 0.5)
    drawn = [np.asarray(draw_matrix(values, Scale(0.0, 1.0), groups=groups, borders=lines)) for lines in (False, True)]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("missing", [False, True])
def test_large_matrices_are_averaged_in_squares(missing: bool) -> None:
    rng = np.random.default_rng(0)
    D = rng.random((50, 50))
    if missing:
        D[rng.random((50, 50)) < 0.6] = np.nan
    D = np.triu(D) + np.triu(D, 1).T
    order, at = rng.permutation(50), range(0, 50, 7)
    tiles = [(row, column, D[row : row + 7, column : column + 7]) for row in at for column in at if row <= column]
    found = mean_cells(tiles, 50, 12, order)
    np.testing.assert_allclose(found, shrink(D[np.ix_(order, order)], 12))
    np.testing.assert_allclose(mean_cells(tiles, 50, 80, order), D[np.ix_(order, order)])


def test_squares_make_one_picture() -> None:
    matrix = as_dissimilarities(distances())
    order = np.argsort(LABELS, kind="stable")
    whole, parts = (list(squares(matrix, Monitor(), side)) for side in (matrix.n, 3))
    assert (len(whole), len(parts)) == (1, 6)
    np.testing.assert_array_equal(mean_cells(parts, matrix.n, 840, order), mean_cells(whole, matrix.n, 840, order))


@pytest.mark.slow
def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="7 labels for 8 items"):
        save_cluster_image(distances(), LABELS[:7], tmp_path / "c.png")
    with pytest.raises(ConfigError, match=r"c\.svg: pictures of matrices are \.png"):
        save_cluster_image(distances(), LABELS, tmp_path / "c.svg")
    monitor = Monitor()
    monitor.cancel()
    with pytest.raises(RunCancelledError):
        save_cluster_image(distances(), LABELS, tmp_path / "c.png", monitor=monitor)
    assert list(tmp_path.iterdir()) == []
