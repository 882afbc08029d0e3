"""Scenes survive .pviz files; pages and pictures hold what the scene has, and nothing that a text smuggles in."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tartan.errors import ConfigError
from tartan.view.map_image import map_png, map_svg, write_map_image
from tartan.view.pviz import read_pviz, write_pviz
from tartan.view.scene import Cluster, Scene, SceneMap, group_colour, scene
from tartan.view.scene_page import scene_page

POINTS = np.random.default_rng(0).normal(size=(30, 3))
NASTY = '</script><b>& "x" \' \u00e9\xa0\u3000\u2028\x85\r\n.'


def example(dimension: int = 3) -> Scene:
    made = scene(
        POINTS[:, :dimension],
        title=NASTY,
        labels=[f"{NASTY} {i}" for i in range(30)],
        clusters=[f"{i % 3} <&>" for i in range(30)],
        edges=[(0, 1), (2, 5, 9)],
        point_size=1.5,
    )
    hidden = (Cluster("hidden", (1, 2, 3, 40), visible=False, size=2.5, shape=1), *made.clusters[1:])
    return replace(made, clusters=hidden, glyph_visible=False, glyph_scale=0.75)


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_scene_survives_its_file(tmp_path: Path, dimension: int) -> None:
    made = example(dimension)
    again = read_pviz(write_pviz(made, tmp_path / "map.pviz"))
    np.testing.assert_array_equal(again.maps[0].points, made.maps[0].points)
    np.testing.assert_array_equal(again.cluster_of, made.cluster_of)
    for name in ("title", "labels", "clusters", "edges", "point_size", "glyph_visible", "glyph_scale"):
        assert getattr(again, name) == getattr(made, name)
    assert [path.name for path in tmp_path.iterdir()] == ["map.pviz"]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><plotviz><points>&b;</points></plotviz>'
POINT = "<point><key>0</key><clusterkey>0</clusterkey><label>p</label>{}</point>"
WORD, INFINITE, EMPTY = '<location x="one"/>', '<location x="inf"/>', "<location/>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "DOCTYPE"),
        ("<plotviz>", "no XML"),
        ("nothing", "no XML"),
        ("<html></html>", "not <plotviz>"),
        ("<plotviz></plotviz>", "no point"),
        ("<plotviz>" * 30, "deep"),
        (f"<plotviz><points>{POINT.format('')}</points></plotviz>", "no location"),
        (f"<plotviz><points>{POINT.format(WORD)}</points></plotviz>", "is not a number"),
        (f"<plotviz><points>{POINT.format(INFINITE)}</points></plotviz>", "not finite"),
        (f"<plotviz><points>{POINT.format(EMPTY) * 2}</points></plotviz>", "one key"),
        (f"<plotviz><title>{'x' * 70000}</title></plotviz>", "longer"),
        (
            f"<plotviz><points>{POINT.format(EMPTY)}</points><edges><edge><vertices>"
            '<vertex key="7"/></vertices></edge></edges></plotviz>',
            "which does not exist",
        ),
    ],
)  # fmt: skip
def test_files_that_are_not_scenes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.pviz"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_pviz(file)


def test_the_page_holds_the_scene_as_data() -> None:
    made = example()
    page = scene_page(made)
    assert page.count("</script>") == 2
    assert "<b>" not in page
    (data,) = re.findall(r'<script id="scene" type="application/json">(.*?)</script>', page)
    found = json.loads(data)
    assert found["labels"] == list(made.labels)
    points = np.frombuffer(base64.b64decode(found["maps"][0]["points"]), "<f4").reshape(-1, 3)
    np.testing.assert_allclose(points, POINTS - POINTS.mean(0), atol=1e-6)
    assert np.frombuffer(base64.b64decode(found["clusterOf"]), "<u4").tolist() == made.cluster_of.tolist()
    assert np.frombuffer(base64.b64decode(found["edges"]), "<u4").tolist() == [0, 1, 2, 5, 5, 9]
    assert [cluster["visible"] for cluster in found["clusters"]] == [False, True, True]


def test_only_the_script_of_the_page_may_run() -> None:
    page = scene_page(example())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(page)
    assert "http" not in re.sub(r'<script id="scene".*?</script>', "", page).replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_every_element_that_the_script_asks_for_is_there() -> None:
    page = scene_page(example())
    asked = set(re.findall(r'byId\("([a-z]+)"\)', page))
    assert len(asked) > 15
    assert asked <= set(re.findall(r'id="([a-z]+)"', page))


def test_pictures_show_clusters_in_their_colours() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [np.nan, 0.0]])
    made = scene(points, clusters=["a", "b", "b", "a"], labels=["p", "<q>", "r", "s"])
    picture = np.asarray(Image.open(io.BytesIO(map_png(made, width=300, height=200))))
    assert picture.shape == (200, 300, 3)
    for cluster in made.clusters:
        assert (picture == cluster.colour[:3]).all(axis=2).any()
    svg = map_svg(made)
    assert svg.count("<title>") == 3
    assert "&lt;q&gt;" in svg
    hidden = replace(made, clusters=(replace(made.clusters[0], visible=False), made.clusters[1]))
    assert map_svg(hidden).count("<title>") == 2


def test_pictures_are_png_or_svg(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        write_map_image(example(), tmp_path / "map.jpg")
    assert write_map_image(example(), tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ConfigError, match="no point with a place"):
        map_png(scene(np.full((3, 2), np.nan)))


def test_a_scene_must_fit_together() -> None:
    clusters, none = (Cluster("c", (0, 0, 0, 255)),), np.zeros(2, np.int64)
    shown = (SceneMap("m", np.zeros((2, 2))),)
    whole = {"title": "", "maps": shown, "labels": ("a", "b"), "clusters": clusters, "cluster_of": none}
    for broken in (
        {"maps": ()},
        {"maps": (SceneMap("m", np.zeros((3, 2))),)},
        {"cluster_of": none + 1},
        {"edges": ((0,),)},
        {"edges": ((0, 2),)},
    ):
        with pytest.raises(ConfigError):
            Scene(**whole | broken)
    with pytest.raises(ConfigError, match="clusters for 2 points"):
        scene(np.zeros((2, 2)), clusters=["a"])


def test_colours_of_many_clusters_differ() -> None:
    assert len({group_colour(k) for k in range(60)}) == 60


@pytest.mark.slow
def test_few_points_have_their_names_beside_them_and_no_two_cover_each_other() -> None:
    rng = np.random.default_rng(1)
    made = scene(rng.normal(size=(40, 2)), labels=[f"item number {i} with a long name" for i in range(40)])
    svg = map_svg(made, width=700, height=400)
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" font-size="12" text-anchor="(\w+)"[^>]*>([^<]*)<', svg)
    assert 10 < len(texts) <= 40
    assert all(len(text) <= 24 and text.startswith("item number") for *_, text in texts)
    wide = 100.0  # no such label is shorter
    spans = [(float(x) - wide * (anchor == "end"), float(y)) for x, y, anchor, _ in texts]
    assert all(0 <= x <= 700 - wide for x, _ in spans)
    covered = [
        (i, j)
        for i, (x, y) in enumerate(spans)
        for j, (u, v) in enumerate(spans[:i])
        if abs(y - v) < 12 and abs(x - u) < wide
    ]
    assert covered == []
    many = scene(rng.normal(size=(61, 2)))
    assert 'font-size="12"' not in map_svg(many)
    assert "xmlns" not in map_svg(many, standalone=False)
