"""Write a run as one HTML page that needs nothing else: no network, no script, no other file.

The page says what was compared, what is in the matrix, what it cost against the bound, what failed and how to
do it again. It stays under `MAX_BYTES`: pictures and lists are cut to size, and say so. Every text is escaped by the
template (`pages/report.html`); besides, a content policy in the page forbids scripts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import ArrayLike

from tartan.base.files import whole_file
from tartan.errors import ConfigError
from tartan.view import report_sections as parts
from tartan.view.agreement import agreement
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
    thumbnails: Mapping[int, bytes] | None = None,
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
        The cluster found for each item.
    truth : sequence, length n, optional
        The known group of each item.
    thumbnails : mapping of int to bytes, optional
        JPEG pictures of items, by index.
    points : array_like (m, L), optional
        Places of the first m items on a map. Default: the map that the run keeps, if it keeps one.

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
    match = agreement(clusters, truth) if clusters is not None and truth is not None else None
    findings = parts.Findings(clusters, truth, match, thumbnails or {}, points)
    page = _page(run, title or Path(run.path).name, findings)
    target = Path(path)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def _page(run: Any, title: str, findings: parts.Findings) -> str:
    return render(
        "report.html",
        title=title,
        application=parts.application_name(run),
        n_items=run.n_items,
        verdict=parts.verdict(findings.match),
        cards=parts.cards(run),
        compared=parts.compared(run),
        matrix=parts.matrix(run, findings.clusters),
        map=item_map(run, findings),
        clusters=parts.clusters_found(run, findings),
        loads=parts.loads(run.stats),
        stages=parts.stages(run.stats),
        failed=parts.failed(run),
        again=parts.again(run),
    )
