"""Write a run as one HTML page that needs nothing else: no network, no script, no other file.

The page says what was compared, what is in the matrix, what it cost against the bound, what failed and how to
do it again. It stays under `MAX_BYTES`: pictures and lists are cut to size, and say so. Every text is escaped by the
template (`pages/report.html`); besides, a content policy in the page forbids scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from numpy.typing import ArrayLike

from tartan.base.files import whole_file
from tartan.errors import ConfigError
from tartan.view import report_sections as parts
from tartan.view.agreement import agreement
from tartan.view.groups import Groups, groups_of
from tartan.view.overview import TREE_SIDE, overview
from tartan.view.page import render
from tartan.view.report_map import item_map

__all__ = ["MAX_BYTES", "write_report"]

MAX_BYTES: Final = 2_000_000


def write_report(
    run: Any,
    path: str | Path,
    *,
    title: str | None = None,
    clusters: Sequence[Hashable] | None = None,
    truth: Sequence[Hashable] | None = None,
    picture_of: Callable[[int], bytes | None] | None = None,
    points: ArrayLike | None = None,
) -> Path:
    """Write the report of a run.

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
    points : array_like (m, L), optional
        Places of the first m items on a map. Default: the map that the run keeps; of few items one is made.

    Returns
    -------
    Path
        The file, written whole or not at all; under 2 MB.

    Raises
    ------
    ConfigError
        If clusters or truth do not have one entry an item, or the points are no map of the items.
    """
    for name, given in (("clusters", clusters), ("truth", truth)):
        if given is not None and len(given) != run.n_items:
            raise ConfigError(f"{len(given)} {name} for {run.n_items} items: each item needs one of both")
    found = groups_of(run) if clusters is None else Groups(clusters)
    findings = findings_of(found, truth, picture_of, points)
    page = _page(run, title or Path(run.path).name, findings)
    target = Path(path)
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
    match = agreement(clusters, truth) if clusters is not None and truth is not None else None
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
        "unfinished": parts.unfinished(run),
        "clusters": clusters,
        "tree": tree,
        "nearest": None if seen is None else parts.nearest_pairs(run, seen),
        "matrix": None if live or seen is None else parts.matrix(run, findings, seen),
        "map": item_map(run, findings),
        "histogram": None if seen is None else parts.histogram(run, findings, seen),
        "failed": parts.failed(run),
        "stopped": run.stats.get("stopped") if parts.unfinished(run) else None,
        "loads": parts.loads(run.stats),
        "timeline": parts.timeline(run),
        "stages": parts.stages(run.stats),
        "compared": parts.compared(run),
        "again": parts.again(run),
    }


def _page(run: Any, title: str, findings: parts.Findings) -> str:
    return render(
        "report.html",
        title=title,
        application=parts.application_name(run),
        verdict=parts.verdict(findings.match),
        cards=parts.cards(run),
        **report_values(run, findings),
    )
