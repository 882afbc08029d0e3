"""A scene as one HTML page with everything in it: rotate, zoom, hide, recolour, look up, play, save a picture.

The page needs no network. Its content policy lets in only the script that is in it, by its hash; all text of the
scene is data, which the script writes as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.view.markup import clipped, text
from tartan.view.scene import Scene, SceneMap

__all__ = ["scene_page", "write_scene_page"]

_START = (
    'new Viewer(readScene(JSON.parse(document.getElementById("scene").textContent)), '
    "(id) => document.getElementById(id));"
)
_BODY = """<aside id="panel">
<h1>{title}</h1><p id="count"></p>
<div class="row"><button id="reset" type="button">Reset view</button>
<button id="save" type="button">Save picture</button></div>
<p>{hint}</p>
<div id="sequence"><h2>Maps</h2><label><input id="beside" type="checkbox"> side by side</label>
<label><input id="frame" type="range" min="0" value="0" step="0.01" aria-label="map"></label>
<div class="row"><button id="play" type="button">Play</button>
<label>seconds a map <input id="delay" type="number" min="0.2" max="60" step="0.2" value="2"
size="4"></label></div></div>
<h2>Show</h2>
<label>point size <input id="size" type="range" min="1" max="30" step="0.25"></label>
<label><input id="labels" type="checkbox"> labels of points</label>
<label><input id="names" type="checkbox"> names of clusters</label>
<label><input id="edges" type="checkbox"> edges</label>
<label><input id="axes" type="checkbox"> axes</label>
<label><input id="spin" type="checkbox"> turn slowly</label>
<h2>Find</h2><input id="search" type="search" placeholder="label" aria-label="find a label"><p id="match"></p>
<h2>Clusters</h2><div class="row"><button id="all" type="button">all</button>
<button id="none" type="button">none</button></div>
<ul id="clusters"></ul>
</aside>
<div id="stage" tabindex="0" role="application" aria-label="map"><canvas id="maps"></canvas><canvas id="over"></canvas>
<div id="tip" hidden></div></div>
<noscript>This page draws with JavaScript.</noscript>"""
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
    script = f"{_resource('viewer.js')}\n{_resource('viewer_page.js')}\n{_START}\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    flat = all(shown.points.shape[1] == 2 for shown in scene.maps)
    # In a script element only "</" and "<!--" have a meaning: with no "<" the data cannot end it.
    data = json.dumps(_data(scene), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">\n'
        f"<title>{clipped(scene.title)}</title>\n<style>\n{_resource('viewer.css')}</style>\n</head>\n<body>\n"
        f"{_BODY.format(title=clipped(scene.title), hint=_HINTS[flat])}\n"
        f'<script id="scene" type="application/json">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _resource(name: str) -> str:
    return files("tartan.view").joinpath(name).read_text(encoding="utf-8")


def _data(scene: Scene) -> dict[str, Any]:
    return {
        "title": scene.title,
        "n": scene.n,
        "maps": [
            {"title": shown.title, "dim": shown.points.shape[1], "points": _packed(_three(shown), "<f4")}
            for shown in scene.maps
        ],
        "labels": scene.labels,
        "clusters": [
            {"label": cluster.label, "colour": cluster.colour, "visible": cluster.visible, "size": cluster.size}
            for cluster in scene.clusters
        ],
        "clusterOf": _packed(scene.cluster_of, "<u4"),
        "edges": _packed(scene.segments(), "<u4"),
        "pointSize": scene.point_size,
    }


def _three(shown: SceneMap) -> NDArray[np.float64]:
    flat = shown.points.shape[1] == 2
    points = np.column_stack([shown.points, np.zeros(len(shown.points))]) if flat else shown.points
    # Small numbers far from 0 would lose their digits in float32.
    known = np.asarray(np.isfinite(points).all(axis=1))
    centre = points[known].mean(axis=0) if known.any() else np.zeros(3)
    return np.where(known[:, None], points - centre, np.nan)


def _packed(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode("ascii")
