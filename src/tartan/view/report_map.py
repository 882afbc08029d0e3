"""The section of a report that shows the map of the items, coloured by cluster, with their names when pointed at."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from tartan.base.format import format_number
from tartan.errors import ConfigError, TartanError
from tartan.view.map_image import map_png, map_svg
from tartan.view.page import data_uri
from tartan.view.report_sections import Findings, left_out
from tartan.view.scene import Scene, scene

# A drawing with names that is larger gives way to a picture without them.
_MOST_BYTES: Final = 350_000
_KEY_LENGTH: Final = 60
_MOST_MADE: Final = 600
_MADE_HERE: Final = " Made for this page; `tartan embed` makes and keeps a better one."
_SIZE: Final = {"width": 960, "height": 640}


def item_map(run: Any, findings: Findings) -> dict[str, str] | None:
    """Draw the map that was given, that the run keeps, or one made here; None where there is none.

    A report is written even if no map can be read or made: the section says why.
    """
    try:
        kept = None if findings.points is not None else getattr(run, "map", None)
        points = findings.points if kept is None else kept.points
        made = _made(run) if points is None else None
    except TartanError as error:
        return {"drawing": "", "picture": "", "note": left_out(error)}
    points = made if points is None else points
    if points is None:
        return None
    shown = _scene(run, np.asarray(points, np.float64), findings)
    found = {"drawing": "", "picture": "", "note": "No item has a place on the map."}
    if not np.isfinite(shown.maps[0].points).all(axis=1).any():
        return found
    described = f"A map of {shown.n} items in {len(shown.clusters)} groups."
    note = _said(run, shown, kept) + (_MADE_HERE if made is not None else "")
    drawing = map_svg(shown, **_SIZE, standalone=False) if shown.n * 60 < _MOST_BYTES else ""
    if drawing and len(drawing) < _MOST_BYTES:
        drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{described}" ', 1)
        return found | {"drawing": drawing, "note": f"{note} Point at an item to see its name."}
    return found | {"picture": data_uri(map_png(shown, **_SIZE), "image/png"), "described": described, "note": note}


def _made(run: Any) -> np.ndarray | None:
    """Make a map of a finished run of few items; None for others."""
    if not run.manifest.symmetric_in() or not 3 <= run.n_items <= _MOST_MADE or run.n_pairs_left:
        return None
    method = "smacof" if run.manifest.reduce is None else "damds"
    return np.asarray(run.embed(method, 2, random_state=0).points, np.float64)


def _scene(run: Any, points: np.ndarray, findings: Findings) -> Scene:
    if points.ndim != 2 or not 0 < len(points) <= run.n_items or points.shape[1] == 0:
        raise ConfigError(f"points has shape {points.shape}; it needs a row for each of the first items of {run.path}")
    groups: Sequence[Hashable] | None = findings.clusters if findings.clusters is not None else findings.truth
    names = None if groups is None else [_short(str(name)) for name in groups[: len(points)]]
    return scene(points, title="", labels=[_short(run.keys[i]) for i in range(len(points))], clusters=names)


def _short(key: str) -> str:
    return key if len(key) <= _KEY_LENGTH else f"{key[: _KEY_LENGTH // 2]}…{key[-_KEY_LENGTH // 2 :]}"


def _said(run: Any, shown: Scene, kept: Any) -> str:
    said = "Near on the map means alike, as far as it can be shown in "
    said += "a plane." if shown.maps[0].points.shape[1] == 2 else "space; seen from its widest side."
    without = int((~np.isfinite(shown.maps[0].points).all(axis=1)).sum()) + run.n_items - shown.n
    if without:
        said += f" {without:,} {'item has' if without == 1 else 'items have'} no place on it."
    if kept is not None:
        known = kept.stress[np.isfinite(kept.stress)]
        if len(known):
            said += f" Made by {kept.method}; median stress of an item {format_number(float(np.median(known)))}."
        placed = len(kept) - kept.n_fitted
        said += f" {placed:,} of the items were placed later." if placed else ""
    return said
