"""Scenes in .pviz files, the XML of the PlotViz and WebPViz viewers: one map, its clusters, labels and edges.

The reader takes files from anywhere: it declines document types and entities (which can grow without bound), and more
than a bounded number of points. It reads as a stream, so that memory is that of the result.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from tartan.base.files import whole_file
from tartan.errors import ConfigError
from tartan.view.scene import Cluster, Scene, SceneMap

MAX_POINTS = 10_000_000
_MAX_DEPTH = 16
_MAX_TEXT = 1 << 16
_GREY = (128, 128, 128, 255)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_pviz(scene: Scene, path: str | Path) -> Path:
    """Write one map of a scene.

    Parameters
    ----------
    scene : Scene
    path : path

    Returns
    -------
    Path
        The file, written whole or not at all.
    """
    target = Path(path)
    shown = scene.maps[0]
    with whole_file(target) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="utf-8"?>\n<plotviz>\n')
        file.write(
            f"<plot><title>{_text(shown.title)}</title><pointsize>{scene.point_size!r}</pointsize>"
            f"<glyph><visible>{scene.glyph_visible:d}</visible><scale>{scene.glyph_scale!r}</scale></glyph></plot>\n"
        )
        file.write("<clusters>\n")
        file.writelines(_cluster(key, cluster) for key, cluster in enumerate(scene.clusters))
        file.write("</clusters>\n<points>\n")
        known = np.asarray(np.isfinite(shown.points).all(axis=1))
        for key in np.flatnonzero(known).tolist():
            file.write(_format_point(scene, key, shown.points[key].tolist()))
        file.write("</points>\n<edges>\n")
        edges = [edge for edge in scene.edges if known[list(edge)].all()]
        file.writelines(_edge(key, edge) for key, edge in enumerate(edges))
        file.write("</edges>\n</plotviz>\n")
    return target


def _cluster(key: int, cluster: Cluster) -> str:
    red, green, blue, opacity = cluster.colour
    return (
        f"<cluster><key>{key}</key><label>{_text(cluster.label)}</label><visible>{cluster.visible:d}</visible>"
        f'<default>{key == 0:d}</default><color r="{red}" g="{green}" b="{blue}" a="{opacity}"/>'
        f"<size>{cluster.size!r}</size><shape>{cluster.shape}</shape></cluster>\n"
    )


def _format_point(scene: Scene, key: int, place: list[float]) -> str:
    x, y, z = (*place, 0.0)[:3]
    return (
        f"<point><key>{key}</key><clusterkey>{scene.cluster_of[key]}</clusterkey>"
        f'<label>{_text(scene.labels[key])}</label><location x="{x!r}" y="{y!r}" z="{z!r}"/></point>\n'
    )


def _edge(key: int, edge: tuple[int, ...]) -> str:
    vertices = "".join(f"<vertex key={quoteattr(str(point))}/>" for point in edge)
    return f"<edge><key>{key}</key><vertices>{vertices}</vertices></edge>\n"


def _text(text: str) -> str:
    # A carriage return that is not spelled out is read as a line end.
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})


def read_pviz(path: str | Path) -> Scene:
    """Read a scene of one map.

    Parameters
    ----------
    path : path

    Returns
    -------
    Scene
        Points in the order of the file; two-dimensional if every z is 0.

    Raises
    ------
    ConfigError
        If the file is not a .pviz file, or has document types or entities, or more than ``MAX_POINTS`` points.
    """
    reader = _PvizReader(str(path))
    with open(path, "rb") as file:
        reader.read(file)
    return reader.scene()


class _PvizReader:
    """Collects what the elements of a file hold."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._entry: dict[str, Any] = {}
        self._plot: dict[str, str] = {}
        self._clusters: list[dict[str, Any]] = []
        self._points: list[dict[str, Any]] = []
        self._edges: list[list[str]] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, file: Any) -> None:
        try:
            self._parser.ParseFile(file)
        except expat.ExpatError as error:
            raise self._wrong(f"no XML: {error}") from error

    def _refuse_doctype(self, *_: Any) -> None:
        raise self._wrong("document types and entities are not read; remove the DOCTYPE")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        if len(self._open) > _MAX_DEPTH:
            raise self._wrong(f"elements lie {_MAX_DEPTH} deep and more")
        if len(self._open) == 1 and name != "plotviz":
            raise self._wrong(f"the file begins with <{name}>, not <plotviz>")
        self._text, self._length = [], 0
        if name in ("cluster", "point"):
            self._entry = {}
        elif name == "edge":
            self._edges.append([])
        elif name == "vertex" and self._edges:
            self._edges[-1].append(attributes.get("key", ""))
        elif name in ("color", "location"):
            self._entry[name] = attributes

    def _characters(self, text: str) -> None:
        self._length += len(text)
        if self._length > _MAX_TEXT:
            raise self._wrong(f"a text is longer than {_MAX_TEXT} characters")
        self._text.append(text)

    def _end(self, name: str) -> None:
        self._open.pop()
        parent = self._open[-1] if self._open else ""
        text = "".join(self._text)
        if parent in ("plot", "glyph"):
            self._plot[f"{parent}.{name}"] = text
        elif parent in ("cluster", "point"):
            self._entry.setdefault(name, text)
        elif name == "cluster":
            self._clusters.append(self._entry)
        elif name == "point":
            self._points.append(self._entry)
            if len(self._points) > MAX_POINTS:
                raise self._wrong(f"there are more than {MAX_POINTS:,} points")
        self._text, self._length = [], 0

    def scene(self) -> Scene:
        """Return the scene of what was read."""
        if not self._points:
            raise self._wrong("there is no point")
        keys = {str(point.get("key", number)).strip(): number for number, point in enumerate(self._points)}
        if len(keys) != len(self._points):
            raise self._wrong("two points have one key")
        places = {str(c.get("key", k)).strip(): k for k, c in enumerate(self._clusters)}
        clusters = [self._make_cluster(entry) for entry in self._clusters]
        cluster_of = []
        for point in self._points:
            key = str(point.get("clusterkey", "0")).strip()
            if key not in places:
                places[key] = len(clusters)
                clusters.append(Cluster(key, _GREY))
            cluster_of.append(places[key])
        points = np.array([self._place(point) for point in self._points])
        flat = not points[:, 2].any()
        labels = tuple(str(p.get("label", k)) for k, p in enumerate(self._points))
        title = self._plot.get("plot.title", "").strip()
        return Scene(
            title,
            (SceneMap(title, points[:, :2] if flat else points),),
            labels,
            tuple(clusters),
            np.array(cluster_of, np.int64),
            tuple(self._way(edge, keys) for edge in self._edges),
            self._number(self._plot.get("plot.pointsize", "1")),
            self._plot.get("glyph.visible", "1").strip() != "0",
            self._number(self._plot.get("glyph.scale", "1")),
        )

    def _make_cluster(self, entry: dict[str, Any]) -> Cluster:
        given = entry.get("color", {})
        given = given if isinstance(given, dict) else {}
        red, green, blue = (int(self._number(given.get(c, "128"))) for c in "rgb")
        colour = (red, green, blue, int(self._number(given.get("a", "255"))))
        if not all(0 <= c <= 255 for c in colour):
            raise self._wrong(f"a cluster has the colour {colour}; colours are 0 to 255")
        return Cluster(
            str(entry.get("label", "")),
            colour,
            str(entry.get("visible", "1")).strip() != "0",
            self._number(entry.get("size", "1")),
            int(self._number(entry.get("shape", "3"))),
        )

    def _place(self, point: dict[str, Any]) -> list[float]:
        given = point.get("location")
        if not isinstance(given, dict):
            raise self._wrong(f"the point {point.get('key')!r} has no location")
        return [self._number(given.get(axis, "0")) for axis in "xyz"]

    def _way(self, edge: list[str], keys: dict[str, int]) -> tuple[int, ...]:
        for key in edge:
            if key.strip() not in keys:
                raise self._wrong(f"an edge leads to the point {key!r}, which does not exist")
        return tuple(keys[key.strip()] for key in edge)

    def _number(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise self._wrong(f"{text!r} is not a number") from None
        if not math.isfinite(number):
            raise self._wrong(f"{text!r} is not finite")
        return number

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self._name}: {what} (line {self._parser.CurrentLineNumber})")
