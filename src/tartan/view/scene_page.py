"""Write a scene as one HTML page with everything in it: rotate, zoom, hide, recolour, find, play, save a picture.

The page needs no network. Its content policy allows only its own script, by its hash; all text of the
scene is data, which the script writes as text.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.view.page import hash_script, pack_json, render, resource
from tartan.view.scene import Scene, SceneMap

__all__ = ["scene_page", "write_scene_page"]

_START = (
    'new Viewer(readScene(JSON.parse(document.getElementById("scene").textContent)), '
    "(id) => document.getElementById(id));"
)
_HINTS = {
    True: "Drag to move, wheel to zoom, Alt-drag to turn, double click to reset.",
    False: "Drag to turn, Shift-drag to move, wheel to zoom, double click to reset.",
}


def write_scene_page(scene: Scene, path: str | Path) -> Path:
    """Write the page of a scene.

    Parameters
    ----------
    scene : Scene
    path : path
        The HTML file; written whole or not at all.
    """
    target = Path(path)
    page = scene_page(scene)
    with whole_file(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def scene_page(scene: Scene) -> str:
    """Return the page of a scene: about 25 bytes a point and map, and the labels."""
    script = f"{resource('viewer.js')}\n{resource('viewer_page.js')}\n{_START}\n"
    flat = all(shown.points.shape[1] == 2 for shown in scene.maps)
    named = {"title": scene.title, "hint": _HINTS[flat], "digest": hash_script(script), "script": script}
    return render("scene.html", **named, data=pack_json(_data(scene)))


def _data(scene: Scene) -> dict[str, Any]:
    return {
        "title": scene.title,
        "n": scene.n,
        "maps": [
            {"title": shown.title, "dim": shown.points.shape[1], "points": _pack(_three(shown), "<f4")}
            for shown in scene.maps
        ],
        "labels": scene.labels,
        "clusters": [
            {"label": cluster.label, "colour": cluster.colour, "visible": cluster.visible, "size": cluster.size}
            for cluster in scene.clusters
        ],
        "clusterOf": _pack(scene.cluster_of, "<u4"),
        "edges": _pack(scene.segments(), "<u4"),
        "pointSize": scene.point_size,
    }


def _three(shown: SceneMap) -> NDArray[np.float64]:
    flat = shown.points.shape[1] == 2
    points = np.column_stack([shown.points, np.zeros(len(shown.points))]) if flat else shown.points
    # Small numbers far from 0 would lose their digits in float32.
    known = np.asarray(np.isfinite(points).all(axis=1))
    centre = points[known].mean(axis=0) if known.any() else np.zeros(3)
    return np.where(known[:, None], points - centre, np.nan)


def _pack(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode("ascii")
