"""What moved since the report before: items in other groups, groups that are new or vanished, branches of the tree.

A page says which run and version it shows (page_record.py). The page that takes its place reads that, finds the groups
and the tree of that version as it did, and compares. What moved on the map is said by page_map.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tartan.base.format import name_some
from tartan.errors import TartanError
from tartan.result.run import Run
from tartan.store.version_view import open_version
from tartan.view.groups import groups_of
from tartan.view.page_record import PageRecord, match_items
from tartan.view.report_sections import tree_of
from tartan.view.scene import ASIDE

if TYPE_CHECKING:
    from tartan.analytics import Tree

# By judgement: as many rows as a table of groups has; the rest is counted. No benchmark.
_MOST_NAMED: Final = 100


def describe_moved(
    run: Any, labels: Sequence[Any] | None, before: PageRecord | None, map_said: str = ""
) -> dict[str, Any] | None:
    """Return what a page says of the changes since the page before; None where there is nothing to say.

    Parameters
    ----------
    run : Run
    labels : sequence, length n, or None
        Group of each item.
    before : PageRecord or None
        Of the page that this one replaces.
    map_said : str
        What moved on the map.
    """
    if before is None or not before.is_before(run):
        return None
    found: dict[str, Any] = {"version": before.version, "rows": [], "n_more": 0, "tree": None, "map": map_said}
    try:
        old = Run(open_version(run.path, before.version))
        groups = groups_of(old)
    except TartanError as error:
        return found | {"said": f"What moved since version {before.version} cannot be told: {error}"}
    shared = match_items(old, run)
    found["tree"] = _describe_tree(old, run, shared)
    if labels is None or groups is None or groups.labels is None:
        cannot = f"Whether items are in other groups than in version {before.version} cannot be told"
        return found | {"said": f"{cannot}: one of both has no groups."}
    moved, new, vanished = compare_labels([str(one) for one in groups.labels], [str(one) for one in labels], shared)
    rows = [{"key": run.keys[item], "old": left, "new": entered} for item, left, entered in moved]
    return found | {
        "said": _say(len(moved), new, vanished, run.n_items - len(shared), old.n_items - len(shared)),
        "rows": rows[:_MOST_NAMED],
        "n_more": max(0, len(rows) - _MOST_NAMED),
    }


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


def _describe_tree(old: Any, new: Any, shared: Mapping[int, int]) -> dict[str, Any] | None:
    """Return what a page says of the branches of its tree; None where one of both versions has none."""
    try:
        was, found = tree_of(old), tree_of(new)
    except TartanError:  # the section of the tree says why
        return None
    if was is None or found is None:
        return None
    places = [{str(key): at for at, key in enumerate(run.folder.keys)} for run in (old, new)]
    at_of_old = {before: at for at, before in shared.items()}
    items = [
        {name: at_of_old[places[0][name]] for name in was.leaf_names if places[0][name] in at_of_old},
        {name: places[1][name] for name in found.leaf_names if places[1][name] in shared},
    ]
    both = sorted(set(items[0].values()) & set(items[1].values()))
    if len(both) < 4:  # a tree of three has one form
        return None
    bits = {item: bit for bit, item in enumerate(both)}
    before, now = (
        list_splits(tree, {name: bits[item] for name, item in of.items() if item in bits})
        for tree, of in zip((was, found), items, strict=True)
    )
    names = [str(new.keys[item]) for item in both]
    rows = [("new", _name_side(split, names)) for split in sorted(now - before)]
    rows += [("gone", _name_side(split, names)) for split in sorted(before - now)]
    n_new, n_gone, n_same = len(now - before), len(before - now), len(now & before)
    return {
        "said": f"Of the tree, of the {len(both):,} items that both have: {n_same:,} of {len(before):,} clades are as "
        f"before, {n_new:,} {'is' if n_new == 1 else 'are'} new, {n_gone:,} {'is' if n_gone == 1 else 'are'} gone.",
        "rows": [{"what": what, "items": side} for what, side in rows[:_MOST_NAMED]],
        "n_more": max(0, len(rows) - _MOST_NAMED),
    }


def list_splits(tree: Tree, bits: Mapping[str, int]) -> set[int]:
    """Return how the branches of a tree without a root divide some of its leaves, but for single ones.

    Parameters
    ----------
    tree : Tree
    bits : mapping of str to int
        Numbers from 0 of the leaves that count, by name; others are left out.

    Returns
    -------
    set of int
        For each split the side without leaf 0, as bits.
    """
    sides, whole = [0] * tree.n_nodes, (1 << len(bits)) - 1
    for node in reversed(tree.order):
        children = tree.children[node]
        if not children and tree.names[node] in bits:
            sides[node] = 1 << bits[tree.names[node]]
        for child in children:
            sides[node] |= sides[child]
    found = {whole ^ side if side & 1 else side for side in sides}
    return {side for side in found if 1 < side.bit_count() < len(bits) - 1}


def _name_side(split: int, names: Sequence[str]) -> str:
    """Name the items of the smaller side of a split."""
    inside = [bool(split >> bit & 1) for bit in range(len(names))]
    smaller = 2 * sum(inside) <= len(names)
    side = [name for name, one in zip(names, inside, strict=True) if one == smaller]
    return name_some(side, len(side))
