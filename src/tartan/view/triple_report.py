"""Write a run of triples as one HTML page: the best triples, the items that are in most of them, a picture of pairs.

A cell of the picture is the best score of a kept triple that has both items. As in all pictures yellow is best.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tartan.base.files import whole_file
from tartan.base.format import format_duration, format_long_count, format_number
from tartan.base.palette import Scale
from tartan.store.downsample import leaf_tree
from tartan.view import report_sections as parts
from tartan.view.page import hash_script, pack_json, render, resource
from tartan.view.page_record import PageRecord
from tartan.view.report_drawings import MAX_NAMED, histogram_svg, matrix_svg

# By judgement: what is read; `tartan export --sorted` has the others.
_SHOWN: Final = 20
# By judgement: a picture of a page is 480 pixels wide, and a tree of more items takes seconds.
_MOST_ORDERED: Final = 2000
_SAMPLE: Final = 2_000_000


def write_triple_report(run: Any, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page of a run of triples; the same run gives the same bytes.

    Parameters
    ----------
    run : TripleRun
    path : path
        The HTML file to write.
    title : str, optional
        Heading; default: the name of the run folder.

    Returns
    -------
    Path
        The file, written whole or not at all.
    """
    script = f"{resource('report.js')}\n{resource('report_page.js')}"
    cells, counts, scores = _read_kept(run)
    page = render(
        "triples.html",
        title=title or Path(run.path).name,
        application=parts.application_name(run),
        record=PageRecord.of(run).encode(),
        digest=hash_script(script),
        script=script,
        data=pack_json({"items": None, "groups": None, "matrix": None}),
        compared=_describe(run),
        cards=_cards(run, len(scores)),
        unfinished=_say_unfinished(run),
        best=_list_best(run, len(scores)),
        often=_list_often(run, counts),
        matrix=_draw_pairs(run, cells, scores),
        histogram=_draw_scores(run, scores),
        failed=parts.list_failed(run),
        stopped=run.stats.get("stopped") if run.n_triples_left else None,
        timeline=None,
        loads=parts.loads(run.stats),
        stages=parts.stages(run.stats),
        again=_again(run),
        n_items=run.n_items,
    )
    target = Path(path)
    with whole_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


def _read_kept(run: Any) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the best score of each pair of cells, (m, m), how many kept triples have each item, and all scores."""
    n, worst = run.n_items, -np.inf if run.rule.largest else np.inf
    m = min(n, parts.PICTURE_SIDE)
    cells, counts, found = np.full((m, m), worst), np.zeros(n, np.int64), [np.zeros(0)]
    better = np.maximum if run.rule.largest else np.minimum
    for batch in run.triples(run.rule.output):
        ends = [batch.column(name).to_numpy(zero_copy_only=False).astype(np.int64) for name in ("i", "j", "k")]
        scores = batch.column("score").to_numpy(zero_copy_only=False).astype(np.float64)
        for end in ends:
            np.add.at(counts, end, 1)
        for a, b in ((0, 1), (0, 2), (1, 2)):
            at = ends[a] * m // n, ends[b] * m // n
            better.at(cells, at, scores)
            better.at(cells, at[::-1], scores)
        found.append(scores)
    cells[~np.isfinite(cells)] = np.nan
    if m == n:
        np.fill_diagonal(cells, np.nan)
    return cells, counts, np.concatenate(found)


def _describe(run: Any) -> dict[str, Any]:
    found = parts.describe_items(run)
    rule = run.rule
    best = "largest" if rule.largest else "smallest"
    kept = (
        f"the {rule.k:,} {best} of each item"
        if rule.k is not None
        else f"all that are {format_number(rule.threshold)} or {'more' if rule.largest else 'less'}"
    )
    return found | {"triples": f"All {run.n_triples:,} triples of {run.n_items:,} items", "kept": kept, "best": best}


def _cards(run: Any, n_kept: int) -> list[tuple[str, str]]:
    wall = float(run.stats.get("wall_seconds") or 0.0)
    done = run.n_triples_done
    return [
        (format_long_count(run.n_items), "items"),
        (format_long_count(done), "triples, all of them" if done == run.n_triples else f"of {run.n_triples:,} triples"),
        (format_long_count(n_kept), "triples kept"),
        (format_duration(wall), "from start to end"),
        (format_long_count(len(run.failures)), "failures"),
    ]


def _say_unfinished(run: Any) -> str:
    left = run.n_triples_left
    if not left:
        return ""
    return f"This run is not finished: {left:,} of {run.n_triples:,} triples are missing in all that this page shows."


def _list_best(run: Any, n_kept: int) -> dict[str, Any] | None:
    rows = run.triples(run.rule.output, limit=_SHOWN).read_all().to_pylist()
    if not rows:
        return None
    better = "larger" if run.rule.largest else "smaller"
    return {
        "caption": f"The best of {n_kept:,} kept triples; the {better}, the better",
        "rows": [
            {
                "rank": rank,
                "names": [run.keys[row[end]] for end in ("i", "j", "k")],
                "score": format_number(float(row["score"]), 4),
            }
            for rank, row in enumerate(rows, 1)
        ],
    }


def _list_often(run: Any, counts: NDArray[np.int64]) -> list[Mapping[str, Any]]:
    """List the items that are in most kept triples."""
    order = np.argsort(-counts, kind="stable")[:_SHOWN]
    return [{"name": run.keys[int(item)], "count": f"{counts[item]:,}"} for item in order if counts[item]]


def _draw_pairs(run: Any, cells: NDArray[np.float64], scores: NDArray[np.float64]) -> dict[str, str] | None:
    if not len(scores):
        return None
    order, largest = np.arange(len(cells)), run.rule.largest
    if len(cells) == run.n_items <= _MOST_ORDERED:
        order, _ = leaf_tree(cells, similarity=largest)
    drawn, name = cells[np.ix_(order, order)], run.manifest.name_score(run.rule.output)
    few = len(cells) == run.n_items <= MAX_NAMED
    drawing = matrix_svg(
        drawn,
        Scale.of(drawn, larger_is_nearer=largest, name=f"{name}, of the best triple"),
        described=f"For each two of {run.n_items:,} items the best score of a kept triple that has both.",
        names=[run.keys[int(item)] for item in order] if few else (),
        ends=("worst", "best"),
    )
    note = "A cell is the best score of a kept triple that has both items; hatched: no kept triple has both."
    note += " Items that are in good triples together stand together." if len(cells) == run.n_items else ""
    return {"drawing": drawing, "note": note}


def _draw_scores(run: Any, scores: NDArray[np.float64]) -> str | None:
    known = scores[np.isfinite(scores)]
    if not len(known):
        return None
    sample = known[:: max(1, len(known) // _SAMPLE)]
    name = run.manifest.name_score(run.rule.output)
    ends = ("worst", "best") if run.rule.largest else ("best", "worst")
    return histogram_svg(sample, len(known), larger_is_nearer=run.rule.largest, name=name, ends=ends)


def _again(run: Any) -> dict[str, Any]:
    folder = shlex.quote(str(run.path))
    lines = [f"tartan info {folder}", f"tartan export {folder} triples.csv --sorted"]
    versions = ", ".join(f"{name} {version}" for name, version in run.manifest.versions.items())
    return {"commands": [line for line in lines if line.isprintable()], "versions": versions}
