"""Write a run as one HTML page that needs nothing else: no network, no other file.

The page says what was compared, what is in the matrix, what it cost against the bound, what failed and how to
do it again. It stays under `MAX_BYTES`: pictures and lists are cut to size, and say so. Every text is escaped by the
template (`pages/report.html`); besides, a content policy in the page forbids all scripts but its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from tartan.base.files import whole_file
from tartan.base.format import format_number
from tartan.errors import ConfigError, TartanError
from tartan.store.downsample import require_shown
from tartan.view import report_sections as parts
from tartan.view.agreement import compare_groups
from tartan.view.coordinates import Coloured
from tartan.view.groups import Groups, groups_of
from tartan.view.map_image import map_png, map_svg
from tartan.view.moved import describe_moved
from tartan.view.overview import TREE_SIDE, overview
from tartan.view.page import clip_text, data_uri, hash_script, pack_json, render, resource
from tartan.view.page_map import PageMap, make_page_map, make_points
from tartan.view.page_record import PageRecord, read_record
from tartan.view.report_data import report_data
from tartan.view.report_items import items_known
from tartan.view.report_sections import Findings, say_left_out
from tartan.view.scene import ASIDE, Scene, scene

__all__ = ["MAX_BYTES", "write_report"]

MAX_BYTES: Final = 5_000_000


def write_report(
    run: Any,
    path: str | Path,
    *,
    title: str | None = None,
    clusters: Sequence[Hashable] | None = None,
    truth: Sequence[Hashable] | None = None,
    picture_of: Callable[[int], bytes | None] | None = None,
    facts_of: Callable[[int], Mapping[str, str]] | None = None,
    points: ArrayLike | None = None,
    coloured: Coloured | None = None,
) -> Path:
    """Write the report of a run; in place of one of an older version it says what moved since.

    Parameters
    ----------
    run : Run
        What `tartan.open` or `tartan.allpairs` returns.
    path : path
        The HTML file to write.
    title : str, optional
        Heading of the page; default: the name of the run folder.
    clusters : sequence, length n, optional
        The cluster found for each item. Default: those that ``tartan cluster`` finds by itself.
    truth : sequence, length n, optional
        The known group of each item.
    picture_of : callable, optional
        Returns a small JPEG picture of an item by its number, or None.
    facts_of : callable, optional
        Returns what is known of an item by its number, as texts by name; asked for the first hundred items.
    points : array_like (m, L), optional
        Places of the first m items on a map. Default: the map that the run keeps; of few items one is made.
    coloured : Coloured, optional
        Colours of the items on the map; default: those of their clusters.

    Returns
    -------
    Path
        The file, written whole or not at all; under 5 MB.

    Raises
    ------
    ConfigError
        If clusters or truth do not have one entry an item, the points are not a map of the items, or colours are given
        and there is no map.
    """
    for name, given in (("clusters", clusters), ("truth", truth)):
        if given is not None and len(given) != run.n_items:
            raise ConfigError(f"{len(given)} {name} for {run.n_items} items: each item needs one of both")
    require_shown(run)
    found = groups_of(run) if clusters is None else Groups(clusters)
    findings = findings_of(found, truth, picture_of, points)
    findings = findings if facts_of is None else replace(findings, facts_of=facts_of)
    target = Path(path)
    before = read_record(target)
    made = None if points is not None else _map_of_page(run, before)
    if made is not None:
        findings = replace(findings, made=made.points)
    if coloured is not None:
        if points is None and made is None and getattr(run, "map", None) is None:
            raise ConfigError(
                f"{run.path} keeps no map that could be coloured by {coloured.column!r}; make one by "
                f"`tartan embed {shlex.quote(str(run.path))}`"
            )
        findings = replace(findings, coloured=coloured)
    moved = describe_moved(run, findings.clusters, before, "" if made is None else made.said)
    record = PageRecord.of(run, None if made is None else made.frame)
    page = _page(run, title or Path(run.path).name, findings, moved, record)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def findings_of(
    found: Groups | None,
    truth: Sequence[Hashable] | None = None,
    picture_of: Callable[[int], bytes | None] | None = None,
    points: ArrayLike | None = None,
) -> parts.Findings:
    """Gather what is known of the items besides their scores."""
    clusters = None if found is None else found.labels
    # Each item that is in no group is a group of its own, and right where it truly is alone.
    known = None if clusters is None else [f"{ASIDE} {i}" if c == ASIDE else c for i, c in enumerate(clusters)]
    match = compare_groups(known, truth) if known is not None and truth is not None else None
    findings = parts.Findings(clusters, truth, match, picture_of or parts.no_picture, points)
    if found is None:
        return findings
    return replace(findings, said=found.said, cut=found.cut, cut_said=found.cut_said)


def report_values(run: Any, findings: parts.Findings, *, live: bool = False) -> dict[str, Any]:
    """Return what the sections of a report show (``pages/report_body.html``).

    A live page draws the matrix itself, and does not wait until a large one is read as a whole.
    """
    long = live and run.manifest.reduce is None and max(run.shape) > TREE_SIDE
    seen = None if long else overview(run, parts.PICTURE_SIDE, findings.clusters)
    clusters, tree = parts.clusters_found(run, findings), parts.tree(run, findings)
    return {
        "n_items": run.n_items,
        "unfinished": parts.say_unfinished(run),
        "clusters": clusters,
        "tree": tree,
        "items": items_known(run, findings),
        "seen": seen,
        "nearest": None if seen is None else parts.nearest_pairs(run, seen),
        "matrix": None if live or seen is None else parts.matrix(run, findings, seen),
        "map": item_map(run, findings),
        "histogram": None if seen is None else parts.histogram(run, findings, seen),
        "failed": parts.list_failed(run),
        "stopped": run.stats.get("stopped") if parts.say_unfinished(run) else None,
        "loads": parts.loads(run.stats),
        "timeline": parts.draw_timeline_of(run),
        "stages": parts.stages(run.stats),
        "compared": parts.describe_compared(run),
        "again": parts.again(run),
    }


def _map_of_page(run: Any, before: PageRecord | None) -> PageMap | None:
    """Make the map that a page shows where the run keeps none; None where none can be made, as its section says."""
    try:
        return None if getattr(run, "map", None) is not None else make_page_map(run, before)
    except TartanError:
        return None


def _page(run: Any, title: str, findings: parts.Findings, moved: dict[str, Any] | None, record: PageRecord) -> str:
    script = f"{resource('report.js')}\n{resource('report_page.js')}"
    values = report_values(run, findings)
    return render(
        "report.html",
        title=title,
        script=script,
        data=pack_json(report_data(run, values.pop("seen"), findings)),
        digest=hash_script(script),
        application=parts.application_name(run),
        verdict=parts.verdict(findings.match),
        cards=parts.cards(run),
        record=record.encode(),
        moved=moved,
        **values,
    )


# The section of a report that shows the map of the items, coloured by cluster, with their names when pointed at.

# A drawing with names that is larger gives way to a picture without them.
_MOST_BYTES: Final = 350_000
_KEY_LENGTH: Final = 60
_MADE_HERE: Final = " Made for this page; `tartan embed` makes and keeps a better one."
_SIZE: Final = {"width": 960, "height": 640}


def item_map(run: Any, findings: Findings) -> dict[str, Any] | None:
    """Draw the map that was given, that the run keeps, or one made here; None where there is none.

    A report is written even if no map can be read or made: the section says why.
    """
    try:
        kept = None if findings.points is not None else getattr(run, "map", None)
        points = findings.points if kept is None else kept.points
        made = findings.made if findings.made is not None else make_points(run) if points is None else None
    except TartanError as error:
        return {"drawing": "", "picture": "", "note": say_left_out(error)}
    points = made if points is None else points
    if points is None:
        return None
    shown = _make_scene(run, np.asarray(points, np.float64), findings)
    found: dict[str, Any] = {
        "drawing": "",
        "picture": "",
        "turns": False,
        "flat": "",
        "note": "No item has a place on the map.",
    }
    if not np.isfinite(shown.maps[0].points).all(axis=1).any():
        return found
    described = f"A map of {shown.n} items in {len(shown.clusters)} groups."
    note = _say(run, shown, kept) + (_MADE_HERE if made is not None else "")
    if findings.coloured is not None:
        note += f" Coloured by {clip_text(findings.coloured.column, 60)}."
    drawing = map_svg(shown, **_SIZE, standalone=False) if shown.n * 60 < _MOST_BYTES else ""
    if drawing and len(drawing) < _MOST_BYTES:
        turns = shown.maps[0].points.shape[1] == 3
        named = f'<svg role="img" aria-label="{described}" '
        found |= {"drawing": drawing.replace("<svg ", named, 1), "note": f"{note} Point at an item to see its name."}
        return found | {"turns": turns} | (_draw_flat(run, findings, named) if turns else {})
    return found | {"picture": data_uri(map_png(shown, **_SIZE), "image/png"), "described": described, "note": note}


def _draw_flat(run: Any, findings: Findings, named: str) -> dict[str, str]:
    """Draw a map of two dimensions, which paper shows in place of one that turns; nothing where none is made."""
    try:
        points = make_points(run)
    except TartanError:
        return {}
    if points is None or not np.isfinite(points).all(axis=1).any():
        return {}
    shown = _make_scene(run, points, findings)
    note = f"{_say(run, shown, None)} Made in two dimensions, for paper; on the screen the map has three."
    return {"flat": map_svg(shown, **_SIZE, standalone=False).replace("<svg ", named, 1), "flat_note": note}


def _make_scene(run: Any, points: np.ndarray, findings: Findings) -> Scene:
    if points.ndim != 2 or not 0 < len(points) <= run.n_items or points.shape[1] == 0:
        raise ConfigError(f"points has shape {points.shape}; it needs a row for each of the first items of {run.path}")
    labels = [_short(run.keys[i]) for i in range(len(points))]
    if findings.coloured is not None:
        classes, shades = findings.coloured.classes[: len(points)], findings.coloured.shades
        return scene(points, title="", labels=labels, clusters=classes, colours=shades)
    groups: Sequence[Hashable] | None = findings.clusters if findings.clusters is not None else findings.truth
    names = None if groups is None else [_short(str(name)) for name in groups[: len(points)]]
    return scene(points, title="", labels=labels, clusters=names)


def _short(key: str) -> str:
    return key if len(key) <= _KEY_LENGTH else f"{key[: _KEY_LENGTH // 2]}…{key[-_KEY_LENGTH // 2 :]}"


def _say(run: Any, shown: Scene, kept: Any) -> str:
    said = "Items that are similar are near each other, as far as distances can be shown in "
    said += "a plane." if shown.maps[0].points.shape[1] == 2 else "three dimensions; seen from its widest side."
    if run.manifest.reduce is not None:
        said += " Parts that no kept pair joins stand side by side; the distance between them means nothing."
    without = int((~np.isfinite(shown.maps[0].points).all(axis=1)).sum()) + run.n_items - shown.n
    if without:
        said += f" {without:,} {'item has' if without == 1 else 'items have'} no place on it."
    if kept is not None:
        known = kept.stress[np.isfinite(kept.stress)]
        if len(known):
            said += f" Made by {kept.method}; median stress of an item {format_number(float(np.median(known)))}."
        placed = len(kept) - kept.n_fitted - len(kept.waiting)
        said += f" {placed:,} of the items were placed later." if placed else ""
    return said
