"""Write a run as one HTML page that needs nothing else: no network, no script, no other file.

The page says what was compared, what is in the matrix, what it cost against the bound, what failed and how to
do it again. It stays under `MAX_BYTES`: pictures and lists are cut to size, and say so. Every text that comes
from a user is escaped (see `tartan.view.markup`); a content policy in the page forbids scripts besides.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from numpy.typing import ArrayLike

from tartan.base.files import whole_file
from tartan.errors import ConfigError
from tartan.view import report_sections as parts
from tartan.view.agreement import Agreement, agreement
from tartan.view.markup import Html, clipped, joined, tag, text
from tartan.view.report_map import item_map

__all__ = ["MAX_BYTES", "write_report"]

MAX_BYTES: Final = 2_000_000
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


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
            raise ConfigError(f"{len(given)} {name} for {run.n_items} items: one of each an item is needed")
    match = agreement(clusters, truth) if clusters is not None and truth is not None else None
    findings = parts.Findings(clusters, truth, match, thumbnails or {}, points)
    page = _page(run, title or Path(run.path).name, findings)
    target = Path(path)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def _page(run: Any, title: str, findings: parts.Findings) -> str:
    sections = [
        _header(run, title, findings.match),
        _section("What was compared", parts.compared(run)),
        _section("The matrix", parts.matrix(run, findings.clusters)),
        _section("The map", item_map(run, findings)),
        _section("Clusters", parts.clusters_found(run, findings)),
        _section("What it cost", parts.loads(run.stats), parts.stages(run.stats)),
        _section("What failed", parts.failed(run)),
        _section("Do it again", parts.again(run)),
        _footer(run),
    ]
    style = files("tartan.view").joinpath("report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">\n'
        f"<title>{clipped(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{joined(sections)}\n</main>\n</body>\n</html>\n"
    )


def _section(heading: str, *content: Html) -> Html:
    shown = [part for part in content if part]
    return tag("section", tag("h2", text(heading)), *shown) if shown else Html("")


def _header(run: Any, title: str, match: Agreement | None) -> Html:
    stats = run.stats
    wall = float(stats.get("wall_seconds") or 0.0)
    cards = [
        (parts.amount(run.n_items), "items"),
        (parts.amount(run.n_pairs_done), f"of {run.n_pairs:,} pairs done"),
        (parts.duration(wall), "from start to end"),
        (parts.amount(run.n_pairs_done / wall) if wall > 0 else "-", "pairs a second"),
        (
            parts.figure(stats.get("load_factor")),
            f"loads an item; the bound is {parts.figure(stats.get('load_factor_bound'))}",
        ),
        (parts.amount(len(run.failures)), "failures"),
    ]
    items = [
        tag("li", tag("span", text(value), class_="value"), tag("span", text(name), class_="name"))
        for value, name in cards
    ]
    lead = tag(
        "p",
        text("Every item compared with every other by "),
        tag("code", clipped(parts.application_name(run))),
        class_="lead",
    )
    return tag("header", tag("h1", clipped(title)), lead, _verdict(match), tag("ul", *items, class_="cards"))


def _verdict(match: Agreement | None) -> Html:
    if match is None:
        return Html("")
    wrong = match.n_items - match.n_right
    said = (
        f"All {match.n_items} items are in the right cluster."
        if match.perfect
        else f"{match.n_right} of {match.n_items} items are in the right cluster, {wrong} "
        f"{'is' if wrong == 1 else 'are'} not."
    )
    return tag("p", text(said), class_=f"verdict {'good' if match.perfect else 'warn'}")


def _footer(run: Any) -> Html:
    return tag(
        "footer",
        text(f"Tartan compares everything with everything. This page holds {run.n_items:,} items "),
        text("and needs no network."),
    )
