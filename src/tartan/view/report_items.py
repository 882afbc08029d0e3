"""The section of a report that lists what is known of the items."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tartan.view.report_sections import Findings
from tartan.view.scene import ASIDE, order_groups

# By judgement: an application that says nothing of twelve items says nothing of others.
_MOST_MISSES: Final = 12
# By judgement: a table that is read, of files that are opened in a few seconds; `tartan show` has the others.
_MOST_DESCRIBED: Final = 100
# By judgement: the width of a page.
_MAX_COLUMNS: Final = 8


def items_known(run: Any, findings: Findings) -> dict[str, Any] | None:
    """List facts of the items, group by group; None where nothing is known of the first ones."""
    failed = {failure.i for failure in run.failures if failure.j is None}
    labels, sizes = findings.labels, Counter(findings.labels)
    items = [item for item in range(run.n_items) if item not in failed]
    if labels:
        place = {name: k for k, name in enumerate(order_groups(labels))}
        items.sort(key=lambda item: (labels[item] == ASIDE, -sizes[labels[item]], place[labels[item]]))
    shown = items[:_MOST_DESCRIBED]
    known: list[dict[str, str]] = []
    for item in shown:
        known.append(dict(findings.facts_of(item)))
        if len(known) >= _MOST_MISSES and not any(known):
            return None
    columns = [*dict.fromkeys(name for facts in known for name in facts)][:_MAX_COLUMNS]
    if not columns:
        return None
    caption = "Items of a group stand together, the largest first" if labels else "In the order of the run"
    return {
        "caption": caption + (f"; the first {len(shown):,} of {len(items):,}" if len(shown) < len(items) else ""),
        "columns": [
            {"name": name, "is_number": all(_is_number(facts.get(name, "")) for facts in known)} for name in columns
        ],
        "has_groups": bool(labels),
        "rows": [
            {
                "item": item,
                "key": run.keys[item],
                "group": labels[item] if labels else "",
                "cells": [facts.get(name, "") for name in columns],
            }
            for item, facts in zip(shown, known)
        ],
    }


def _is_number(text: str) -> bool:
    """Whether a fact is a number, a share or nothing."""
    try:
        float(text.replace(",", "").removesuffix("%") or 0)
    except ValueError:
        return False
    return True
