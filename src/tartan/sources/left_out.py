"""What folders that were given as inputs leave out: files of other suffixes, and fitting files of subfolders."""
# ruff: noqa: PTH100, PTH112, PTH118, PTH119, PTH120, PTH122, PTH208
# Paths are texts here, as in ``paths``.

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from tartan.base.format import clip_middle, pluralize, show_value

# By judgement: a fraction of a second on a local disk. No benchmark.
MOST_ENTRIES = 10_000
"""Entries of subfolders that are looked at: a folder may hold a whole disk."""

# By judgement: more than a message shows, so that all commands say the same.
MOST_NAMED = 10
"""Suffixes and subfolders that are kept by name; the others as one."""

# By judgement: a line of a message.
_SAID, _LONGEST = 3, 60  # names that a message has, and characters of each
OTHERS = "others"


def count_left_out(
    patterns: Sequence[str], suffixes: tuple[str, ...], beside: Set[str] = frozenset()
) -> dict[str, dict[str, int]]:
    """Count what local folders leave out.

    Parameters
    ----------
    patterns : sequence of str
        Inputs; those that are not folders leave nothing out.
    suffixes : tuple of str
        Lower-case endings of the files that are taken; empty: all that are not hidden.
    beside : set of str
        Paths of files that are read with those beside them.

    Returns
    -------
    dict
        ``suffixes``: files by suffix, and ``folders``: fitting files by subfolder, as far as ``MOST_ENTRIES`` reach.
        What is empty is left out.
    """
    others, inside = Counter[str](), Counter[str]()
    for folder in patterns:
        if not os.path.isdir(folder):
            continue
        for name in _names(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                count = sum(_fits(found, suffixes) for found in _files_below(path))
                inside += Counter({os.path.join(os.path.basename(os.path.abspath(folder)), name): count})
            elif not _fits(name, suffixes) and path not in beside:
                others[os.path.splitext(name)[1].lower() or "no suffix"] += 1
    found = {"suffixes": _shorten(others), "folders": _shorten(inside)}
    return {name: counts for name, counts in found.items() if counts}


def describe_left_out(inputs: Iterable[Mapping[str, Any]]) -> str:
    """Say what is left out by inputs as manifests describe them; "" where nothing is."""
    others, inside = Counter[str](), Counter[str]()
    for leaf in inputs:
        found = leaf.get("left_out") or {}
        others.update(found.get("suffixes") or {})
        inside.update(found.get("folders") or {})
    parts = []
    if others:
        parts.append(f"{pluralize(others.total(), 'file')} of other suffixes ({_name_suffix(others)})")
    if inside:
        folder = os.path.dirname(next(iter(inside)))
        glob = show_value(os.path.join(folder, "**", "*"))
        parts.append(
            f"{pluralize(inside.total(), 'file')} in subfolders ({_name_suffix(inside)}), which a glob such as "
            f"{glob} takes"
        )
    return " and ".join(parts)


def _name_suffix(counts: Counter[str]) -> str:
    listed = [f"{count:,} {clip_middle(name, _LONGEST)}" for name, count in counts.most_common(_SAID)]
    more = len(counts) - len(listed)
    return ", ".join(listed) + (f", and {more} more" if more else "")


def _shorten(counts: Counter[str]) -> dict[str, int]:
    kept = dict(counts.most_common(MOST_NAMED))
    rest = counts.total() - sum(kept.values())
    return kept | ({OTHERS: rest} if rest else {})


def _fits(name: str, suffixes: tuple[str, ...]) -> bool:
    return not suffixes or name.lower().endswith(suffixes)


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []


def _files_below(folder: str) -> Iterator[str]:
    """Yield the names of files in a folder and the folders below it, not through links."""
    seen = 0
    for _, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                yield name
        seen += len(folders) + len(names)
        if seen >= MOST_ENTRIES:
            return
