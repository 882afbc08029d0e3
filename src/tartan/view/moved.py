"""What moved since the report before: items that are in other groups, groups that are new, and groups that vanished.

A page says which run and version it shows (``PageRecord``). The page that takes its place reads that, finds the groups
of that version as it did, and compares. Nothing of it is kept in the run folder.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tartan.errors import TartanError
from tartan.result.run import Run
from tartan.store.version_view import open_version
from tartan.view.groups import ASIDE, groups_of

# By judgement: the record is in the head of a page, before its style. No benchmark.
_HEAD_BYTES: Final = 4096
# By judgement: as many rows as a table of groups has; the rest is counted. No benchmark.
_MOST_NAMED: Final = 100
_META: Final = re.compile(r'<meta name="tartan-report" content="([^"<>]*)">')


@dataclass(frozen=True)
class PageRecord:
    """What a page says of the run that it shows.

    Attributes
    ----------
    created : str
        When the run was.
    version : int
        Of its items, from 1.
    """

    created: str
    version: int

    @classmethod
    def of(cls, run: Any) -> PageRecord:
        """Return that of a run, or of one of its versions."""
        return cls(str(run.manifest.created), int(getattr(run, "version", 1)))

    def encode(self) -> str:
        """Return the text for the page; the template escapes it."""
        return json.dumps(asdict(self))


def read_record(path: Path) -> PageRecord | None:
    """Return what a page says; None where there is no page, or it says nothing that is understood."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
        found = _META.search(head)
        about = json.loads(html.unescape(found[1])) if found else None
        if not isinstance(about, dict) or type(about.get("version")) is not int:
            return None
        return PageRecord(str(about.get("created")), about["version"])
    except (OSError, ValueError, RecursionError):
        return None


def describe_moved(run: Any, labels: Sequence[Any] | None, before: PageRecord | None) -> dict[str, Any] | None:
    """Return what a page says of the changes since the page before; None where there is nothing to say.

    Parameters
    ----------
    run : Run
    labels : sequence, length n, or None
        Group of each item.
    before : PageRecord or None
        Of the page that this one replaces.
    """
    if before is None or before.created != run.manifest.created or before.version >= getattr(run, "version", 1):
        return None
    found: dict[str, Any] = {"version": before.version, "rows": [], "n_more": 0}
    try:
        old = Run(open_version(run.path, before.version))
        groups = groups_of(old)
    except TartanError as error:
        return found | {"said": f"What moved since version {before.version} cannot be told: {error}"}
    if labels is None or groups is None or groups.labels is None:
        return found | {"said": f"What moved since version {before.version} cannot be told: one of both has no groups."}
    shared = match_items(old, run)
    moved, new, vanished = compare_labels([str(one) for one in groups.labels], [str(one) for one in labels], shared)
    rows = [{"key": run.keys[item], "old": left, "new": entered} for item, left, entered in moved]
    return found | {
        "said": _say(len(moved), new, vanished, run.n_items - len(shared), old.n_items - len(shared)),
        "rows": rows[:_MOST_NAMED],
        "n_more": max(0, len(rows) - _MOST_NAMED),
    }


def match_items(old: Any, new: Any) -> dict[int, int]:
    """Return which item of the newer of two versions is which of the older: itself, or what stood under its name."""
    slots = [np.arange(run.n_items) if run.folder.slots is None else run.folder.slots for run in (old, new)]
    place = {slot: at for at, slot in enumerate(slots[0].tolist())}
    stays = set(slots[1].tolist())
    keys = old.folder.keys, new.folder.keys
    named = {keys[0][at]: at for slot, at in place.items() if slot not in stays}
    found = {at: place.get(slot, named.get(keys[1][at], -1)) for at, slot in enumerate(slots[1].tolist())}
    return {at: before for at, before in found.items() if before >= 0}


def compare_labels(
    old: Sequence[str], new: Sequence[str], shared: dict[int, int]
) -> tuple[list[tuple[int, str, str]], list[str], list[str]]:
    """Compare the groups of two versions.

    A group is the one of before with which it shares the most items, each at most one: those that share more choose
    first. An item has moved if its group is not the one that it was in.

    Parameters
    ----------
    old, new : sequence of str
        Group of each item; ``ASIDE`` for those in none.
    shared : dict of int to int
        Which items of ``new`` are which of ``old``.

    Returns
    -------
    moved : list of (int, str, str)
        Item, and the groups that it left and entered, by the names of their versions.
    new, vanished : list of str
        Groups that are none of before, and groups of before that are none now.
    """
    counts = Counter((old[before], new[at]) for at, before in shared.items())
    same = {ASIDE: ASIDE}
    taken = {ASIDE}
    for (left, entered), _ in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if entered not in same and left not in taken:
            same[entered] = left
            taken.add(left)
    moved = [(at, old[before], new[at]) for at, before in sorted(shared.items()) if same.get(new[at]) != old[before]]
    return moved, sorted(set(new) - same.keys()), sorted(set(old) - taken)


def _say(n_moved: int, new: list[str], vanished: list[str], n_come: int, n_gone: int) -> str:
    parts = [
        f"{n_moved:,} {'item is' if n_moved == 1 else 'items are'} in another group",
        f"{len(new):,} {'group is' if len(new) == 1 else 'groups are'} new{_list(new)}",
        f"{len(vanished):,} vanished{_list(vanished)}",
        f"{n_come:,} {'item' if n_come == 1 else 'items'} came and {n_gone:,} went",
    ]
    return "; ".join(parts) + "."


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f" ({', '.join(names[:5])}{more})" if names else ""
