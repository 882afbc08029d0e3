"""What the script of a report works with: names of the items, their groups, and the scores that the matrix shows.

It stays small: what would be too large is left out, and the page says by which command it is to be had.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import numpy as np

from tartan.base.text_table import cell_of
from tartan.view.overview import Overview
from tartan.view.report_sections import Findings, name_score, order_of_rows
from tartan.view.scene import group_colours, order_groups

# By judgement: 10,000 names of files are 0.3 MB, and a page of 5 MB opens in 2 s.
_MOST_CHARACTERS: Final = 2_000_000


def report_data(run: Any, seen: Overview | None, findings: Findings) -> dict[str, Any]:
    """Return what the page needs to search its groups, to write them as CSV, and to name the cells of its matrix.

    Returns
    -------
    dict
        items: the cell of a table for each item, or None where they are too long; groups: {names, colours, of}, of: the
        place of each item's group in names, or None; matrix: what ``_describe_cells`` returns, or None.
    """
    items = [cell_of(str(key)) for key in run.keys]
    if sum(map(len, items)) > _MOST_CHARACTERS:
        return {"items": None, "groups": None, "matrix": None}
    groups = None
    if findings.clusters is not None:
        labels = findings.labels
        names = order_groups(labels)
        place, colour = {name: k for k, name in enumerate(names)}, group_colours(labels)
        groups = {
            "names": [cell_of(name) for name in names],
            "colours": [colour[name] for name in names],
            "of": [place[label] for label in labels],
        }
        if sum(map(len, names)) > _MOST_CHARACTERS:
            groups = None
    return {"items": items, "groups": groups, "matrix": None if seen is None else _describe_cells(run, seen)}


def _describe_cells(run: Any, seen: Overview) -> dict[str, Any]:
    """Return the cells of the matrix: how many, the items of rows and columns, and scores as packed float32."""
    rows, columns = seen.cells.shape
    square = run.shape[0] == run.shape[1] == run.n_items
    order = order_of_rows(run, seen).tolist()
    across = order if square else list(range(run.n_items - run.shape[1], run.n_items))
    mirrored = square and bool(np.array_equal(seen.cells, seen.cells.T, equal_nan=True))
    scores = seen.cells[np.triu_indices(rows)] if mirrored else seen.cells.ravel()
    return {
        "rows": rows,
        "columns": columns,
        "down": order,
        "across": None if across == order else across,
        "mirrored": mirrored,
        "scores": base64.b64encode(scores.astype("<f4").tobytes()).decode("ascii"),
        "unit": name_score(run),
    }
