"""Find items of a run by what a user writes: a name, a part of one, a number."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tartan.base.keys import IndexKeys
from tartan.errors import ConfigError

_NAMED = 5


def two_items(keys: Sequence[str], n_left: int | None, texts: tuple[str, str]) -> tuple[int, int]:
    """Return the numbers of two items that texts name; of A x B one of each side, the first of A if it is there.

    Parameters
    ----------
    keys : sequence of str
        The names of all items.
    n_left : int or None
        Items of A; None in runs of one set.
    texts : (str, str)
        As of ``item_number``; numbers count within a side.

    Raises
    ------
    ConfigError
        As ``item_number``.
    """
    a, b = texts
    if n_left is None:
        return item_number(keys, a), item_number(keys, b)
    left, right = keys[:n_left], keys[n_left:]
    try:
        return item_number(left, a), n_left + item_number(right, b)
    except ConfigError:
        try:
            return n_left + item_number(right, a), item_number(left, b)
        except ConfigError:
            pass
        raise


def item_number(keys: Sequence[str], text: str) -> int:
    """Return the number of the item that a text names.

    Parameters
    ----------
    keys : sequence of str
        The names of all items.
    text : str
        A name; else a part of exactly one name, upper and lower case alike; else a number from 0, such as 7, not 07.

    Raises
    ------
    ConfigError
        If no item is meant, or several could be.
    """
    found = matching(keys, text, _NAMED + 1)
    if found and (len(found) == 1 or keys[found[0]] == text):
        return found[0]
    if text.isdecimal() and text == str(int(text)) and int(text) < len(keys):
        return int(text)
    if found:
        named = ", ".join(keys[item] for item in found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")
        raise ConfigError(f"several items have {text!r} in their names: {named}; write more of the name")
    near = difflib.get_close_matches(text, keys[:100_000], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the first is called {keys[0]!r}"
    raise ConfigError(f"there is no item {text!r} among {len(keys):,}; {hint}")


def matching(keys: Sequence[str], text: str, limit: int) -> list[int]:
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
