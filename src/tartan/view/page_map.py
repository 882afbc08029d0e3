"""The map that a page makes of few items, for itself, in the frame of the page that it replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tartan.errors import TartanError
from tartan.result.run import Run
from tartan.store.version_view import open_version
from tartan.view.page_record import MapFrame, PageRecord, Points, match_items

_MOST_MADE: Final = 600
_MOST_NAMED: Final = 5


@dataclass(frozen=True)
class PageMap:
    """A map made for a page.

    Attributes
    ----------
    points : float64 array (n, 2)
        NaN where an item has no place.
    frame : MapFrame
        How it was laid.
    said : str
        What moved since the page before; empty where there is nothing to say.
    """

    points: Points
    frame: MapFrame
    said: str = ""


def make_points(run: Any) -> Points | None:
    """Make a map of a finished run of few items, the same each time; None for others."""
    symmetric = run.manifest.symmetric_in(run.manifest.analysed_by(None))
    if not symmetric or not 3 <= run.n_items <= _MOST_MADE or run.n_pairs_left:
        return None
    method = "smacof" if run.manifest.reduce is None else "damds"
    return np.asarray(run.embed(method, 2, random_state=0, failed="drop").points, np.float64)


def make_page_map(run: Any, before: PageRecord | None) -> PageMap | None:
    """Make the map of a page; None where none is made.

    Parameters
    ----------
    run : Run
    before : PageRecord or None
        Of the page that this one replaces: if that showed a version of the run, the map is turned, mirrored and moved,
        not scaled, to lie best on its map, by the items of both.
    """
    points = make_points(run)
    if points is None:
        return None
    if before is not None and before.is_of(run):
        if before.is_before(run):
            return _follow(run, points, before)
        if before.version == getattr(run, "version", 1):
            frame = before.frame or MapFrame()
            return PageMap(frame.apply(points), frame)
    return PageMap(points, MapFrame())


def _follow(run: Any, points: Points, before: PageRecord) -> PageMap:
    """Lay a map on that of the version that the page before showed, which is made again."""
    from tartan.analytics import align

    try:
        old = Run(open_version(run.path, before.version))
        made = make_points(old)
    except TartanError:  # expired, or no map can be made of it
        made = None
    if made is None:
        return PageMap(points, MapFrame())
    shared = match_items(old, run)
    items = np.array(sorted(shared), np.int64)
    source = points[items]
    target = (before.frame or MapFrame()).apply(made)[[shared[item] for item in items.tolist()]]
    known = np.isfinite(source).all(axis=1) & np.isfinite(target).all(axis=1)
    if int(known.sum()) <= 2:  # fewer do not fix a frame of the plane
        return PageMap(points, MapFrame())
    items, source, target = items[known], source[known], target[known]
    found = align(source, target, scale=False)
    frame = MapFrame(tuple(found.rotation.ravel().tolist()), tuple(found.translation.tolist()))
    ways = np.linalg.norm(frame.apply(source) - target, axis=1) / max(float(np.ptp(target, axis=0).max()), 1e-300)
    return PageMap(frame.apply(points), frame, _say(run, before.version, items, ways))


def _say(run: Any, version: int, items: np.ndarray, ways: np.ndarray) -> str:
    """Say how far items moved, as shares of the width of the former map."""
    farthest = np.argsort(-ways, kind="stable")[:_MOST_NAMED].tolist()
    named = [f"{run.keys[int(items[at])]} ({ways[at]:.0%})" for at in farthest if ways[at] >= 0.005]
    most = f"; most of all {', '.join(named)}" if named else ""
    return (
        f"The map lies in the frame of version {version:,}: items of both moved by {np.median(ways):.1%} of its width "
        f"(median){most}."
    )
