"""Find items of a run by what a user writes: a name, a part of one, a number; and say what a run is, in a few words."""

from __future__ import annotations

import base64
import datetime
import difflib
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tartan.base.format import format_bytes
from tartan.base.keys import IndexKeys
from tartan.base.lock import list_living_writers
from tartan.base.palette import Scale
from tartan.core.pairs.ledger import DONE, NOT_COMPUTED
from tartan.errors import ConfigError
from tartan.store.downsample import block_means
from tartan.store.folder import RunFolder

# By judgement: a line of a message.
_NAMED = 5


def two_items(
    keys: Sequence[str], n_left: int | None, texts: tuple[str, str], shown: Sequence[str] | None = None
) -> tuple[int, int]:
    """Return the numbers of two items that texts name; of A x B one of each side, the first of A if it is there.

    Parameters
    ----------
    keys : sequence of str
        The names of all items.
    n_left : int or None
        Items of A; None in runs of one set.
    texts : (str, str)
        As of ``item_number``; numbers count within a side.
    shown : sequence of str, optional
        What outputs call the items, which texts may name, too.

    Raises
    ------
    ConfigError
        As ``item_number``.
    """
    a, b = texts
    if n_left is None:
        return item_number(keys, a, shown), item_number(keys, b, shown)
    left, right = (keys[:n_left], shown and shown[:n_left]), (keys[n_left:], shown and shown[n_left:])
    try:
        return item_number(left[0], a, left[1]), n_left + item_number(right[0], b, right[1])
    except ConfigError:
        try:
            return n_left + item_number(right[0], a, right[1]), item_number(left[0], b, left[1])
        except ConfigError:
            pass
        raise


def item_number(keys: Sequence[str], text: str, shown: Sequence[str] | None = None) -> int:
    """Return the number of the item that a text names.

    Parameters
    ----------
    keys : sequence of str
        The names of all items.
    text : str
        A name; else a number from 0, such as 7, not 07; else a part of exactly one name, upper and lower case alike.
    shown : sequence of str, optional
        Names by which it is looked for where no key fits.

    Raises
    ------
    ConfigError
        If no item is meant, or several could be.
    """
    found = find_matching(keys, text, _NAMED + 1)
    if found and keys[found[0]] == text:
        return found[0]
    if text.isdecimal() and text == str(int(text)) and int(text) < len(keys):
        return int(text)
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(keys[item] for item in found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")
        raise ConfigError(f"several items have {text!r} in their names: {named}; write more of the name")
    if shown is not None and shown is not keys:
        return item_number(shown, text)
    near = difflib.get_close_matches(text, keys[:100_000], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the first is called {keys[0]!r}"
    raise ConfigError(f"there is no item {text!r} among {len(keys):,}; {hint}")


def find_matching(keys: Sequence[str], text: str, limit: int) -> list[int]:
    """Return at most ``limit`` items whose names have a text in them: the very name first, then as in the run."""
    if isinstance(keys, IndexKeys):
        return [int(text)] if text.isdecimal() and int(text) < len(keys) else []
    wanted = text.casefold()
    first = [item for item, key in enumerate(keys) if key == text]
    found: list[int] = []
    for item, key in enumerate(keys):
        if len(found) >= limit:
            break
        if wanted in key.casefold() and item not in first:
            found.append(item)
    return (first + found)[:limit]


# Facts of single items that a run has recorded, without opening them.


def read_facts(folder: RunFolder, item: int) -> dict[str, str]:
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


# A run in a few words, for notebooks and prompts.


def describe_run(folder: RunFolder) -> dict[str, str]:
    """Return what a run is and how far it is, by name."""
    manifest, total = folder.manifest, folder.wanted.n_scores
    done = int(folder.counts()[DONE])
    share = f" ({100 * done / total:.1f} %)" if total and done < total else ""
    facts = {
        "application": str(manifest.application.get("name")),
        "items": f"{manifest.n_items:,}",
        "pairs": f"{done:,} of {total:,}{share}",
        "outputs": ", ".join(f"{name} {dtype}" for name, dtype in manifest.outputs.items()),
    }
    if manifest.reduce is not None:
        facts["keeps"] = folder.kept
    return facts


# How far the parts of a run are that several processes compute: ``--part I/N``.


@dataclass(frozen=True)
class ShareProgress:
    """How far one part of a run is.

    Attributes
    ----------
    part : str
        Such as "3/16".
    n_pairs, n_pairs_left : int
        Pairs of its share, and those of them that are still to be computed.
    state : {"finished", "running", "unfinished"}
    host, pid
        Of the process that computes it; None where none does.
    """

    part: str
    n_pairs: int
    n_pairs_left: int
    state: str
    host: str | None = None
    pid: int | None = None


def shares_progress(folder: RunFolder) -> list[ShareProgress]:
    """Return how far each part of a run is, in order; empty where it is not divided."""
    n_parts = folder.n_parts
    if n_parts is None:
        return []
    running = {str(holder.get("part")): holder for holder in list_living_writers(folder.path)}
    committed, found = set(folder.committed()), []
    for index, chunks in enumerate(folder.pairs.shares(n_parts), start=1):
        n_pairs = sum(folder.pairs.n_in(*chunk) for chunk in chunks)
        known = folder.counts(committed.intersection(chunks))[NOT_COMPUTED + 1 :]
        left, holder = n_pairs - int(known.sum()), running.get(str(index), {})
        state = "finished" if not left else "running" if holder else "unfinished"
        whose = (holder.get("host"), holder.get("pid")) if state == "running" else (None, None)
        found.append(ShareProgress(f"{index}/{n_parts}", n_pairs, left, state, *whose))
    return found


# A small picture of a run, for notebooks.

# _SIDE and _UNKNOWN are looks, by judgement.
_SIDE: Final = 360  # pixels
# By judgement: a second or two of a disk.
_MOST_BYTES: Final = 256 << 20  # of scores; to read more would keep the notebook waiting
# By judgement: a look.
_UNKNOWN: Final = (208, 208, 211)


def matrix_png(run: Any) -> bytes | None:
    """Return the matrix of a run as a PNG of some 360 pixels, grey where no score is known.

    None for runs that keep less than the matrix, have complex scores, or are so large that reading them takes seconds.
    """
    manifest = run.manifest
    dtype = next(iter(manifest.outputs.values()))
    n_bytes = dtype.itemsize * manifest.shape[0] * manifest.shape[1]
    if manifest.reduce is not None or dtype.kind == "c" or not 0 < n_bytes <= _MOST_BYTES:
        return None
    from PIL import Image

    values = block_means(run, _SIDE)
    pixels = Scale.of(values, larger_is_nearer=manifest.larger_is_nearer).paint(values)
    pixels[~np.isfinite(values)] = _UNKNOWN
    cell = max(1, _SIDE // max(values.shape))
    picture = io.BytesIO()
    Image.fromarray(pixels.repeat(cell, 0).repeat(cell, 1)).save(picture, format="PNG", optimize=True)
    return picture.getvalue()


def run_html(folder: RunFolder, png: bytes | None) -> str:
    """Return what a run is as a table, with its picture below."""
    rows = "".join(
        f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in describe_run(folder).items()
    )
    table = f"<table><caption>{html.escape(folder.path.name)}</caption>{rows}</table>"
    if png is None:
        return table
    data = base64.b64encode(png).decode("ascii")
    return f'{table}<img alt="the matrix" src="data:image/png;base64,{data}">'
