"""A run whose items are called otherwise, for what is written of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tartan.base.shown_names import show_names

AnyRunT = TypeVar("AnyRunT")


class ShownRun:
    """A run that gives other names as its ``keys``; all else is the run's, and what its folder says of items, too.

    Parameters
    ----------
    run : Run or TripleRun
    keys : sequence of str
        What its items are called.
    """

    def __init__(self, run: Any, keys: Sequence[str]) -> None:
        self._run = run
        self.keys = keys

    def __getattr__(self, name: str) -> Any:
        """Return what the run has."""
        return getattr(self._run, name)


def show_run(run: AnyRunT, names: str | None) -> AnyRunT:
    """Return a run whose items have the names that are asked for.

    Parameters
    ----------
    run : Run or TripleRun
    names : {"full", "stem"}, path or None
        As of ``tartan.base.shown_names.show_names``.

    Raises
    ------
    ConfigError
        As of ``show_names``.
    """
    if names in (None, "full"):
        return run
    keys: Sequence[str] = run.keys  # type: ignore[attr-defined]
    return ShownRun(run, show_names(keys, names))  # type: ignore[return-value]
