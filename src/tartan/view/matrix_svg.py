"""Draw a matrix as SVG: items in the order of a dendrogram, which stands beside it, with their names.

Cells are one picture of a pixel each, stretched without smoothing; names, lines and numbers stay text and lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.format import format_number, name_distance, round_marks
from tartan.base.palette import DIAGONAL, PaletteName, Scale, colours
from tartan.base.shown_names import show_names
from tartan.errors import ConfigError
from tartan.store.export import new_export
from tartan.view.page import png_uri, printable, show_on_one_line
from tartan.view.tree_image import branches, leaves_of, tree_ends

__all__ = ["save_matrix_svg"]

MAX_ITEMS: Final = 3000
_TREE: Final = 150.0  # pixels of width of the dendrogram
_MARGIN: Final = 20.0
_LETTER: Final = 0.6  # width of a letter, as a share of the size of the text
_LONGEST: Final = 60  # letters of a name
_INK: Final = "#26262a"
_BRANCH: Final = "#3b528b"
_UNKNOWN: Final = (168, 168, 173)
_MARKS: Final = 5
_MARKS_OF_TREE: Final = 4
_AXIS_SIZE: Final = 11  # pixels of height of the texts of the tree's axis


def save_matrix_svg(
    run: Any,
    path: str | Path,
    *,
    output: str | None = None,
    distance: Any = None,
    names: str = "full",
    method: str = "average",
    palette: PaletteName = "viridis",
    overwrite: bool = False,
    failed: str | None = None,
) -> Path:
    """Draw the matrix of a run into an SVG file, with names and a dendrogram.

    Parameters
    ----------
    run : Run
        Symmetric, with a dense matrix of at most 3,000 items. Items without any score are left out.
    path : path
    output : str, optional
        Default: the first.
    distance : str or callable, optional
        How similarities become the distances of the dendrogram; the colours are those of the scores.
    names : {"full", "stem"} or path
        Keys, keys without suffixes, or the names that a table of keys and names has.
    method : {"average", "single", "complete", "weighted"}
        Linkage of the dendrogram.
    palette : {"viridis", "magma", "grey"}
    overwrite : bool
        Whether an existing file is replaced.
    failed : {"drop", "error"}, optional
        Leave out what failed (default), or refuse such a run.

    Returns
    -------
    Path
        The file, written whole or not at all.

    Raises
    ------
    ConfigError
        If the file exists, the run has too many items or no square matrix, or the linkage needs pairs that are missing.
    """
    from tartan.analytics import linkage
    from tartan.analytics.matrix import for_analysis
    from tartan.base.outputs import require_writable

    require_writable(Path(path), overwrite=overwrite)
    if run.n_items > MAX_ITEMS:
        raise ConfigError(
            f"{run.path} has {run.n_items:,} items; a picture with names and a dendrogram is for {MAX_ITEMS:,} at "
            "most: cluster the items, and draw the matrix by cluster (tartan cluster --picture)"
        )
    output = run.manifest.analysed_by(output)
    distances = for_analysis(run, complete=method != "single", output=output, distance=distance, failed=failed)
    scores = np.asarray(run.matrix(output), np.float64)
    kept = _with_scores(scores[np.ix_(distances.kept, distances.kept)])
    joined = linkage(distances.chosen(kept), method)
    order = distances.kept[kept[leaves_of(joined)]]
    keys = show_names(run.keys, names)
    shown = [show_on_one_line(keys[item], _LONGEST) for item in order]
    np.fill_diagonal(scores, np.nan)
    cells, unit = scores[np.ix_(order, order)], run.manifest.name_score(output)
    scale = Scale.of(cells, larger_is_nearer=run.larger_is_nearer, name=unit)
    axis = "distance" if callable(distance) else name_distance(distances.conversion, unit)
    text = _svg(cells, scale, shown, joined, palette, (f"{run.path.stem}: {method} linkage", axis))
    with new_export(Path(path), overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def _with_scores(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the items that have a score with another item, all of them where there is one only."""
    known = np.isfinite(scores)
    np.fill_diagonal(known, False)
    kept = np.flatnonzero(known.any(axis=1))
    if len(scores) > 1 and not len(kept):
        raise ConfigError("no pair of the run has a score, so there is nothing to draw")
    return kept if len(kept) else np.arange(len(scores))


def _svg(
    scores: NDArray[np.float64],
    scale: Scale,
    names: Sequence[str],
    joined: NDArray[np.float64],
    palette: PaletteName,
    texts: tuple[str, str],
) -> str:
    title, axis = texts
    cell = min(32.0, max(6.0, 900.0 / len(names)))
    size = min(12.0, 0.85 * cell)
    longest = max(map(len, names)) * _LETTER * size
    left, top, side = _MARGIN + _TREE + 6, _MARGIN + 60, cell * len(names)
    width = max(left + side + 8 + longest + 130, 420.0, left + len(axis) * 7.0)
    height = top + max(side + longest, 220.0) + 12 + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" fill="{_INK}">',
        f'<rect width="100%" height="100%" fill="#fff"/><title>{escape(title)}</title>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 8}" font-size="15">{escape(printable(title))}</text>',
        _tree(joined, top, cell, axis),
        f'<image x="{left}" y="{top}" width="{side:.2f}" height="{side:.2f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="{_cells(scores, scale, palette)}"/>',
        *_names(names, (left, top), side, cell, size),
        *_bar(scale, palette, (left + side + 16 + longest, top), min(max(side, 80.0), 220.0)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _names(names: Sequence[str], corner: tuple[float, float], side: float, cell: float, size: float) -> list[str]:
    """Write the names at the right of the rows and below the columns."""
    left, top = corner
    found = [f'<g font-size="{size:.2f}">']
    for place, name in enumerate(names):
        at, text = (place + 0.5) * cell, escape(name)
        found.append(f'<text x="{left + side + 5:.2f}" y="{top + at:.2f}" dominant-baseline="central">{text}</text>')
        x, y = left + at, top + side + 5
        found.append(
            f'<text transform="translate({x:.2f} {y:.2f}) rotate(90)" dominant-baseline="central">{text}</text>'
        )
    return [*found, "</g>"]


def _tree(joined: NDArray[np.float64], top: float, cell: float, name: str) -> str:
    """Draw the joints from the right, where the items are, to the left, and above them the axis of their distances."""
    if not len(joined):
        return ""
    far, near = tree_ends(joined[:, 2], larger_is_nearer=False)
    right = _MARGIN + _TREE

    def x(height: float) -> float:
        return _MARGIN + (height - far) * _TREE / (near - far)

    lines = branches(joined, x, lambda place: top + (place + 0.5) * cell, leaf=near)
    axis = top - 8
    marks = round_marks(far, near, _MARKS_OF_TREE, letters=_TREE / (_AXIS_SIZE * _LETTER))
    texts = "".join(f'<text x="{x(at):.2f}" y="{axis - 7}" text-anchor="middle">{text}</text>' for at, text in marks)
    ticks = "".join(f"M{x(at):.2f} {axis}v-4" for at, _ in marks)
    return (
        f'<path d="{lines}" fill="none" stroke="{_BRANCH}" stroke-width="1.1"/>'
        f'<g font-size="{_AXIS_SIZE}">'
        f'<path d="M{_MARGIN} {axis}H{right}{ticks}" stroke="{_INK}" stroke-width="0.8"/>{texts}'
        f'<text x="{_MARGIN}" y="{axis - 20}">{escape(name)}</text></g>'
    )


def _cells(scores: NDArray[np.float64], scale: Scale, palette: PaletteName) -> str:
    from PIL import Image

    pixels = scale.paint(scores, palette)
    pixels[~np.isfinite(scores)] = _UNKNOWN
    same = np.arange(len(pixels))
    pixels[same, same] = DIAGONAL
    return png_uri(Image.fromarray(pixels))


def _bar(scale: Scale, palette: PaletteName, corner: tuple[float, float], height: float) -> list[str]:
    """Draw the colours with the scores that they stand for: what is similar above."""
    from PIL import Image

    (x, y), ramp = corner, colours(np.linspace(1.0, 0.0, 256), palette)[:, None, :]
    found = [
        f'<image x="{x:.2f}" y="{y}" width="16" height="{height:.2f}" preserveAspectRatio="none" '
        f'href="{png_uri(Image.fromarray(ramp))}"/><g font-size="11">'
        f'<text x="{x:.2f}" y="{y - 12}">{escape(scale.name)}</text>'
    ]
    for share, value in scale.marks(_MARKS if height >= 80 else 2):
        at, end = y + height * (1 - share), {0.0: " different", 1.0: " similar"}.get(share, "")
        text = escape(format_number(value) + end)
        found.append(f'<text x="{x + 21:.2f}" y="{at:.2f}" dominant-baseline="central">{text}</text>')
    return [*found, "</g>"]
