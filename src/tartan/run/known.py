"""Facts of single items that a run has recorded, without opening them."""

from __future__ import annotations

import datetime
from typing import Any

from tartan.base.format import format_bytes
from tartan.store.folder import RunFolder


def recorded_facts(folder: RunFolder, item: int) -> dict[str, str]:
    """Return what the run has recorded of an item: its number, size, time of change, and why it failed."""
    facts: dict[str, str] = {"item": f"{item:,} of {folder.manifest.n_items:,}"}
    if folder.manifest.workload["kind"] == "rectangle":
        n_left, n_right = folder.manifest.shape
        first = item < n_left
        facts["item"] = f"{item if first else item - n_left:,} of {n_left if first else n_right:,}"
        facts["side"] = "first set" if first else "second set"
    items = folder.items
    for name, values, said in (
        ("file size", None if items is None else items.sizes, format_bytes),
        ("last changed", None if items is None else items.mtimes, _date),
    ):
        if values is not None and int(values[item]) >= 0:
            facts[name] = said(int(values[item]))
    failed = next((failure for failure in folder.failures() if failure.j is None and failure.i == item), None)
    if failed is not None:
        facts["failed"] = f"{failed.stage}: {failed.reason}"
    return facts


def _date(nanoseconds: Any) -> str:
    return datetime.datetime.fromtimestamp(nanoseconds / 1e9, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
