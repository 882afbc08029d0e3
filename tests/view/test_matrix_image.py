from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tartan.base.palette import DIAGONAL, Scale, colours
from tartan.errors import ConfigError
from tartan.store.downsample import leaf_tree
from tartan.view.matrix_image import draw_matrix, save_matrix_image

UNIT = Scale(0.0, 1.0)


def _colour_counts(image):
    return {colour: count for count, colour in image.getcolors(maxcolors=1 << 20)}


def test_high_and_low_have_the_ends_of_the_map():
    found = _colour_counts(draw_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]), UNIT))
    for share in (0.0, 1.0):
        assert found[tuple(int(c) for c in colours(np.array([share]))[0])] >= 2 * 400 * 400


def test_gaps_are_hatched_and_said():
    full = draw_matrix(np.array([[np.nan, 1.0, 2.0], [1.0, np.nan, 3.0], [2.0, 3.0, np.nan]]), Scale(1.0, 3.0))
    gap = draw_matrix(np.array([[np.nan, np.nan, 2.0], [1.0, np.nan, 3.0], [2.0, 3.0, np.nan]]), Scale(1.0, 3.0))
    assert (168, 168, 173) not in _colour_counts(full)
    assert _colour_counts(gap)[(168, 168, 173)] > 10_000


def test_groups_must_fit():
    with pytest.raises(ConfigError, match="3 group labels"):
        draw_matrix(np.zeros((2, 2)), UNIT, groups=["a", "b", "c"])
    with pytest.raises(ConfigError, match="two dimensions"):
        draw_matrix(np.zeros(4), UNIT)


def test_groups_make_room_for_their_labels():
    bare = draw_matrix(np.eye(4), UNIT)
    named = draw_matrix(np.eye(4), UNIT, groups=["one"] * 2 + ["a rather long name of a group"] * 2)
    assert named.width > bare.width + 100


def test_saved_picture_is_whole_and_sorted(make_run, tmp_path):
    run = make_run(12, 2)
    order = leaf_tree(run.full, similarity=True)[0]
    with pytest.raises(ConfigError, match=r"m\.svg: pictures of matrices are \.png"):
        save_matrix_image(run, tmp_path / "m.svg")
    path = save_matrix_image(run, tmp_path / "m.png", order=order, groups=[f"g{i % 2}" for i in range(12)])
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 800
    assert [p.name for p in tmp_path.iterdir()] == ["m.png"]


def test_one_item_and_nothing_known(make_run, tmp_path):
    assert draw_matrix(np.full((1, 1), np.nan), UNIT).width > 100
    assert draw_matrix(np.full((5, 5), np.nan), UNIT).height > 100


def test_rectangles_are_drawn():
    image = draw_matrix(np.arange(6.0).reshape(2, 3), UNIT)
    assert image.width > image.height


@pytest.mark.parametrize("larger_is_nearer", [True, False])
def test_the_most_similar_pair_is_yellow_and_the_diagonal_grey(make_run, tmp_path, larger_is_nearer):
    run = make_run(4, 1)
    run.larger_is_nearer = larger_is_nearer
    run.full[:] = np.where(np.isfinite(run.full), 0.5, 0.0)
    run.full[0, 1] = run.full[1, 0] = 0.9 if larger_is_nearer else 0.1
    with Image.open(save_matrix_image(run, tmp_path / "m.png")) as image:
        pixels = np.asarray(image.convert("RGB"))
    top = 24
    cell = 840 // 4
    seen = pixels[top + cell // 2, 24 + cell + cell // 2].astype(int)
    assert np.abs(seen - colours(np.array([1.0]))[0]).max() < 6
    assert np.abs(pixels[top + cell // 2, 24 + cell // 2].astype(int) - DIAGONAL).max() < 6


@pytest.mark.slow
def test_a_scale_knows_which_end_is_similar():
    values = np.array([[np.nan, 1.0, 3.0], [1.0, np.nan, 2.0], [3.0, 2.0, np.nan]])
    near = Scale.of(values, larger_is_nearer=True, name="ANI")
    far = Scale.of(values, larger_is_nearer=False)
    assert near.far < near.near
    assert far.limits == near.limits[::-1]
    assert [share for share, _ in far.marks(3)] == [0.0, 0.5, 1.0]
    np.testing.assert_array_equal(near.paint(np.array([near.near])), far.paint(np.array([far.near])))
