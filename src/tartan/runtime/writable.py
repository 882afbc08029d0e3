"""Who may write to items: nobody, unless the application asks for items of its own.

Items are shared by all pairs that they are in, and in threads with the program that gave them: what one call wrote
would change the scores of others. Applications with ``writable_items`` get copies, made for each call.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tartan.application import Application

REFUSALS = (ValueError, TypeError, BufferError)
"""What code raises that wants to write to a read-only buffer."""

# By judgement: a tuple in a dictionary in an object, and one more; the search only words an error. No benchmark.
_DEEPEST = 4
_WAY_OUT = (
    "; items are read-only, with copies it works: give the function `x.copy()` for each item x, or set "
    "writable_items = True in an application"
)


def read_only(item: Any) -> Any:
    """Return an item whose arrays cannot be written to, without a copy; the arrays themselves stay as they are."""
    if isinstance(item, np.ndarray):
        item = item.view()
        item.flags.writeable = False
    elif type(item) in (list, tuple):
        item = type(item)(read_only(part) for part in item)
    return item


def writable(item: Any) -> Any:
    """Return a copy of an item that shares no memory with it."""
    return item.copy() if hasattr(item, "shape") and hasattr(item, "copy") else copy.deepcopy(item)


def writable_operand(items: Any) -> Any:
    """Return an operand of ``compare`` whose items share memory with nothing, not with each other either."""
    return [writable(item) for item in items] if isinstance(items, list) else writable(items)


def comparison(app: Application, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that compares items as the application wants them: itself, or one that gets copies."""
    if not app.writable_items:
        return function
    return lambda *items: function(*map(writable, items))


def way_out(error: Exception, function: Callable[..., Any], *items: Any) -> str:
    """Return what can be done about the error of a function that failed because items are read-only; else "".

    That is found by calling it with copies, and only if something in the items is read-only.
    """
    if isinstance(error, REFUSALS) and any(_holds_read_only(item, _DEEPEST) for item in items):
        with contextlib.suppress(Exception):
            function(*map(writable, items))
            return _WAY_OUT
    return ""


def _holds_read_only(item: Any, depth: int) -> bool:
    if isinstance(item, np.ndarray):
        return not item.flags.writeable
    if not depth:
        return False
    parts: Any = ()
    if isinstance(item, list | tuple):
        parts = item
    elif isinstance(item, dict):
        parts = item.values()
    elif hasattr(item, "__dict__"):
        parts = vars(item).values()
    return any(_holds_read_only(part, depth - 1) for part in parts)
