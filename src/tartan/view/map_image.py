"""Draw maps: PNG for any number of points, SVG for up to 50,000, clusters in their colours.

A map of three dimensions is seen from its widest side, a little turned, near points over far ones. Where there are few
points, their labels stand beside them, as far as they do not cover each other.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.base.palette import Scale, hex_colour
from tartan.errors import ConfigError
from tartan.store.downsample import mean_cells
from tartan.view.matrix_image import draw_matrix, index_colours, require_png
from tartan.view.page import printable
from tartan.view.scene import Scene

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

    from tartan.analytics import Dissimilarities, Monitor

Floats = NDArray[np.float64]
_Name = tuple[int, str, float, float, bool]

MAX_SVG_POINTS = 50_000
_FINER = 3  # pixels of the drawing for one of the picture, so that discs have smooth rims
_MARGIN = 24
_LEGEND = 190
_LINE = 20
_LEGEND_TOP = 44
_MAX_NAMED = 60
_NAME_LENGTH, _NAME_SIZE = 24, 12
_PAPER, _INK, _SOFT = (255, 255, 255), (29, 30, 34), (91, 93, 102)


def write_map_image(scene: Scene, path: str | Path) -> Path:
    """Write a picture of a map; the suffix says whether PNG or SVG.

    Raises
    ------
    ConfigError
        For another suffix, or an SVG of more than 50,000 points.
    """
    target = Path(path)
    if target.suffix.lower() == ".svg":
        data = map_svg(scene).encode()
    elif target.suffix.lower() == ".png":
        data = map_png(scene)
    else:
        raise ConfigError(f"{target}: pictures of maps are .png or .svg")
    with whole_file(target) as unfinished:
        unfinished.write_bytes(data)
    return target


def map_png(scene: Scene, *, width: int = 1200, height: int = 900) -> bytes:
    """Return a picture of the first map as PNG, with a legend where there are several clusters."""
    from PIL import Image, ImageDraw

    places, order = _places(scene, width, height)
    fine = Image.new("RGB", (width * _FINER, height * _FINER), _PAPER)
    draw = ImageDraw.Draw(fine)
    for a, b in scene.segments().tolist():
        if np.isfinite(places[[a, b]]).all():
            ends = (places[[a, b], :2] * _FINER).ravel().tolist()
            draw.line(ends, fill=(190, 190, 190), width=_FINER)
    _draw_discs(draw, scene, places, order)
    _draw_legend_discs(draw, scene, width, height)
    picture = fine.resize((width, height), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(picture)
    for _, name, x, y, leftward in _names(scene, places, order, width):
        pen.text((x, y), name, fill=_SOFT, font=_load_font(_NAME_SIZE), anchor="rm" if leftward else "lm")
    _draw_legend(pen, scene, width, height)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def _draw_discs(draw: ImageDraw, scene: Scene, places: Floats, order: NDArray[np.int64]) -> None:
    shades, radii = _shades(scene, places), _radii(scene) * _FINER
    for i in order.tolist():
        x, y, r = places[i, 0] * _FINER, places[i, 1] * _FINER, radii[i]
        draw.ellipse((x - r, y - r, x + r, y + r), fill=tuple(shades[i].tolist()))


def _draw_legend_discs(draw: ImageDraw, scene: Scene, width: int, height: int) -> None:
    x, r = (width - _LEGEND + 5) * _FINER, 5 * _FINER
    for line, (_, colour) in enumerate(_legend(scene, height)):
        y = (_LEGEND_TOP + line * _LINE + 9) * _FINER
        if colour is not None:
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def _draw_legend(draw: ImageDraw, scene: Scene, width: int, height: int) -> None:
    font = _load_font(15)
    draw.text((_MARGIN, 10), _short(scene.title, 90), fill=_INK, font=font)
    for line, (name, _) in enumerate(_legend(scene, height)):
        draw.text((width - _LEGEND + 18, _LEGEND_TOP + line * _LINE), name, fill=_INK, font=font)


def _load_font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size=size)


def _names(scene: Scene, places: Floats, order: NDArray[np.int64], width: int) -> list[_Name]:
    """Return labels, those of near points first: point, text, where it begins or (True) ends, its middle line."""
    if len(order) > _MAX_NAMED:
        return []
    font, radii = _load_font(_NAME_SIZE), _radii(scene)
    right = width - (_LEGEND if len(scene.clusters) > 1 else 4)
    taken = [(places[i, 0] - radii[i], places[i, 0] + radii[i], places[i, 1]) for i in order.tolist()]
    found: list[_Name] = []
    for i in order[::-1].tolist():
        name = _short(scene.labels[i], _NAME_LENGTH)
        # Another font than that which is measured here may be a tenth wider.
        wide, aside = 1.1 * float(font.getlength(name)), radii[i] + 4
        x, y = places[i, :2].tolist()
        sides = ((x + aside, x + aside, False), (x - aside, x - aside - wide, True))
        beside = [(*side, y + lift) for lift in (0, -_NAME_SIZE, _NAME_SIZE) for side in sides]
        for at, first, leftward, middle in beside:
            fits = first >= 0 and first + wide <= right
            if fits and not any(a < first + wide and first < b and abs(middle - c) < _NAME_SIZE for a, b, c in taken):
                taken.append((first, first + wide, middle))
                found.append((i, name, at, middle, leftward))
                break
    return found


def map_svg(scene: Scene, *, width: int = 1200, height: int = 900, standalone: bool = True) -> str:
    """Return a picture of the first map as SVG; the label of the point under the cursor is shown.

    With ``standalone=False`` it is a part of an HTML page: as wide as the page, without a name space. A map of three
    dimensions then has what ``report.js`` needs to turn it: the depth of each point in pixels, and the middle.

    Raises
    ------
    ConfigError
        If there are more than 50,000 points.
    """
    if scene.n > MAX_SVG_POINTS:
        raise ConfigError(f"an SVG of {scene.n:,} points is too much for viewers; write a .png")
    places, order = _places(scene, width, height)
    turns = not standalone and scene.maps[0].points.shape[1] == 3
    shades, radii = _shades(scene, places, paler=not turns), _radii(scene)
    frame = _frame(scene, width, height) if turns else ""
    of_file = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" ' if standalone else ""
    parts = [
        f'<svg {of_file}{frame}viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="14">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_MARGIN}" y="24" fill="{hex_colour(_INK)}">{_xml(_short(scene.title, 90))}</text>',
    ]
    for a, b in scene.segments().tolist():
        if np.isfinite(places[[a, b]]).all():
            (x, y), (u, v) = places[a, :2].round(1).tolist(), places[b, :2].round(1).tolist()
            parts.append(f'<line x1="{x}" y1="{y}" x2="{u}" y2="{v}" stroke="#bebebe"/>')
    where = {i: k for k, i in enumerate(order.tolist())}
    for i in order.tolist():
        x, y = places[i, :2].round(1).tolist()
        # Far points are paler by opacity, which follows when the map is turned.
        deep = f' data-z="{places[i, 2]:.1f}"' if turns else ""
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="{radii[i]:.3g}" fill="{hex_colour(shades[i])}"{deep}>'
            f"<title>{_xml(_tooltip(scene, i))}</title></circle>"
        )
    for i, name, x, y, leftward in _names(scene, places, order, width):
        anchor = "end" if leftward else "start"
        at = f'x="{x:.1f}" y="{y + 4:.1f}" font-size="{_NAME_SIZE}" text-anchor="{anchor}"'
        at += f' data-point="{where[i]}"' if turns else ""
        parts.append(f'<text {at} fill="{hex_colour(_SOFT)}">{_xml(name)}</text>')
    for line, (name, colour) in enumerate(_legend(scene, height)):
        x, y = width - _LEGEND, _LEGEND_TOP + 9 + line * _LINE
        if colour is not None:
            parts.append(f'<circle cx="{x + 5}" cy="{y}" r="5" fill="{hex_colour(colour)}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 5}" fill="{hex_colour(_INK)}">{_xml(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _free(scene: Scene, width: int, height: int) -> Floats:
    """Return how wide and high a map may be in a picture, (2,)."""
    return np.array([width - 2 * _MARGIN - (_LEGEND if len(scene.clusters) > 1 else 0.0), height - 2 * _MARGIN - 16.0])


def _frame(scene: Scene, width: int, height: int) -> str:
    free = _free(scene, width, height)
    middle = _MARGIN + free / 2 + [0, 16]
    return 'data-frame="{:g} {:g} {:g} {:g}" '.format(*middle.tolist(), *free.tolist())


def _tooltip(scene: Scene, i: int) -> str:
    """Return the text of the point under the cursor."""
    label = scene.labels[i]
    return label if len(scene.clusters) < 2 else f"{label}, {scene.clusters[int(scene.cluster_of[i])].label}"


def _places(scene: Scene, width: int, height: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return x, y and depth (near is larger, 0 in the middle) in pixels, and the visible points from far to near."""
    points = scene.maps[0].points
    known = np.asarray(np.isfinite(points).all(axis=1))
    if not known.any():
        raise ConfigError(f"the map {scene.maps[0].title!r} has no point with a place")
    seen = points - points[known].mean(axis=0)
    seen = _turn(seen, known) if points.shape[1] == 3 else np.column_stack([seen, np.zeros(len(seen))])
    low, high = seen[known].min(axis=0), seen[known].max(axis=0)
    size = np.maximum(high - low, 1e-300)
    free = _free(scene, width, height)
    scale = float((free / size[:2]).min()) if (high - low)[:2].any() else 1.0
    middle = (low + high) / 2
    places = np.empty((len(seen), 3))
    places[:, 0] = _MARGIN + free[0] / 2 + scale * (seen[:, 0] - middle[0])
    places[:, 1] = _MARGIN + 16 + free[1] / 2 - scale * (seen[:, 1] - middle[1])
    places[:, 2] = scale * (seen[:, 2] - middle[2])
    visible = np.array([cluster.visible for cluster in scene.clusters])[scene.cluster_of]
    shown = np.flatnonzero(known & visible)
    # Of points of one depth any order would do; a fixed mixture lets no cluster cover the others.
    shown = shown[np.random.default_rng(0).permutation(len(shown))]
    return places, shown[np.argsort(places[shown, 2], kind="stable")]


def _turn(points: Floats, known: NDArray[np.bool_]) -> Floats:
    """Turn a map so that its widest directions lie in the picture, then a little, so that depth can be seen."""
    _, axes = np.linalg.eigh(points[known].T @ points[known])
    axes = axes[:, ::-1]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), range(3)] < 0, -1.0, 1.0)
    if np.linalg.det(axes) < 0:
        axes[:, 2] *= -1.0
    c, s, e, t = np.cos(0.35), np.sin(0.35), np.cos(0.25), np.sin(0.25)
    about_y = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    about_x = np.array([[1, 0, 0], [0, e, -t], [0, t, e]])
    turned: Floats = points @ axes @ about_y.T @ about_x.T
    return turned


def _shades(scene: Scene, places: Floats, *, paler: bool = True) -> NDArray[np.uint8]:
    """Return the colour of each point, paler where it is far; or not ``paler``."""
    colours = np.array([cluster.colour[:3] for cluster in scene.clusters], np.float64)[scene.cluster_of]
    depths = places[:, 2]
    deep = float(np.nanmax(depths) - np.nanmin(depths))
    pale = np.zeros(len(places))
    if paler and deep > 0:
        pale = 0.25 * np.nan_to_num((np.nanmax(depths) - depths) / deep, nan=1.0)
    return np.rint(colours + (255 - colours) * pale[:, None]).astype(np.uint8)


def _radii(scene: Scene) -> Floats:
    usual = min(5.5, max(1.2, 130 / np.sqrt(max(1, scene.n)))) * scene.point_size
    sizes = np.array([cluster.size for cluster in scene.clusters])[scene.cluster_of]
    radii: Floats = usual * sizes
    return radii


def _legend(scene: Scene, height: int) -> list[tuple[str, tuple[int, int, int] | None]]:
    """Return the lines of a legend that fit in a picture: the name of a cluster and its colour."""
    if len(scene.clusters) < 2:
        return []
    counts = np.bincount(scene.cluster_of, minlength=len(scene.clusters))
    shown = [k for k, cluster in enumerate(scene.clusters) if counts[k] and cluster.visible]
    most = max(2, (height - _LEGEND_TOP - _MARGIN) // _LINE)
    if len(shown) > most:  # the largest; else they stand in the order of the scene
        shown.sort(key=lambda k: -counts[k])
    named = shown if len(shown) <= most else shown[: most - 1]
    lines: list[tuple[str, tuple[int, int, int] | None]] = [
        (f"{_short(scene.clusters[k].label, 14)} ({counts[k]:,})", scene.clusters[k].colour[:3]) for k in named
    ]
    if len(shown) > len(named):
        lines.append((f"and {len(shown) - len(named):,} more", None))
    return lines


def _short(text: str, limit: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _xml(text: str) -> str:
    return escape(printable(text))


# Draw clusters: the matrix with its rows and columns sorted by cluster, and lines between the clusters.

__all__ = ["save_cluster_image"]

_SIDE = 840
_SQUARE = 1500  # side of the squares that are read at once, in items


def save_cluster_image(
    D: Any,
    labels: Sequence[Hashable],
    path: str | Path,
    *,
    title: str = "",
    scale_name: str = "distance",
    monitor: Monitor | None = None,
) -> Path:
    """Draw a matrix of dissimilarities, sorted by cluster, into a PNG file.

    Good clusters are bright squares along the diagonal; what is dark in a square does not belong together, what is
    bright beside one does.

    Parameters
    ----------
    D : anything that ``tartan.analytics.as_dissimilarities`` takes
        Every pair is read once. More than 840 items are averaged in cells; missing pairs do not count.
    labels : sequence, length n
        Cluster of each item. Clusters stand in the order of their first items, and items within one in their own.
    path : path
        The file, written whole or not at all; its name ends with .png.
    title : str
        Text above the matrix.
    scale_name : str
        What a dissimilarity is, with its unit.
    monitor : Monitor, optional
        Progress and cancel.

    Raises
    ------
    ConfigError
        If an item has no label, or the file is not a .png.

    Examples
    --------
    >>> save_cluster_image(abs(np.arange(4.0)[:, None] - np.arange(4.0)), "aabb", "four.png")  # doctest: +SKIP
    PosixPath('four.png')
    """
    from tartan.analytics import Monitor, as_dissimilarities

    target, matrix = require_png(path), as_dissimilarities(D)
    names = [str(label) for label in labels]
    if len(names) != matrix.n:
        raise ConfigError(f"{len(names)} labels for {matrix.n} items: each item needs one")
    counts = Counter(names)  # in the order of their first items
    places = {name: place for place, name in enumerate(counts)}
    order = np.argsort([places[name] for name in names], kind="stable")
    values = mean_cells(squares(matrix, monitor or Monitor()), matrix.n, _SIDE, order)
    shown = [names[int(order[(cell * matrix.n) // len(values)])] for cell in range(len(values))]
    groups = [f"{name} ({counts[name]:,})" for name in shown]
    scale = Scale.of(values, larger_is_nearer=False, name=scale_name)
    image = draw_matrix(values, scale, title=title, groups=groups, borders=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    index_colours(image).save(unfinished, format="PNG", optimize=True)
    unfinished.replace(target)
    return target


def squares(
    matrix: Dissimilarities, monitor: Monitor, side: int = _SQUARE
) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Yield squares that cover the upper triangle, missing pairs and the diagonal as NaN."""
    for top in range(0, matrix.n, side):
        for left in range(top, matrix.n, side):
            monitor.check()
            monitor.report("picture", rows=top, of=matrix.n)
            rows, columns = slice(top, min(matrix.n, top + side)), slice(left, min(matrix.n, left + side))
            values = np.array(matrix.values(rows, columns), np.float64)
            if top == left:
                np.fill_diagonal(values, np.nan)
            yield top, left, values
