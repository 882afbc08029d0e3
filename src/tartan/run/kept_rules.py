"""Rules of what a run of triples keeps."""

from __future__ import annotations

from typing import Any


def top(k: int, *, largest: bool | None = None, output: str | None = None) -> dict[str, Any]:
    """Keep the k best triples of each item: a value for ``keep`` of ``alltuples``.

    Parameters
    ----------
    k : int
    largest : bool, optional
        Whether large scores are the best. Default: they are, unless the application says that scores are distances
        (``similarity = False``).
    output : str, optional
        The output that decides; default: the first.
    """
    return _rule({"kind": "top-k", "k": k, "largest": largest}, output)


def over(threshold: float, *, output: str | None = None) -> dict[str, Any]:
    """Keep the triples whose score is a threshold or more: a value for ``keep`` of ``alltuples``."""
    return _rule({"kind": "threshold", "threshold": threshold, "largest": True}, output)


def under(threshold: float, *, output: str | None = None) -> dict[str, Any]:
    """Keep the triples whose score is a threshold or less: a value for ``keep`` of ``alltuples``."""
    return _rule({"kind": "threshold", "threshold": threshold, "largest": False}, output)


def _rule(rule: dict[str, Any], output: str | None) -> dict[str, Any]:
    return rule if output is None else rule | {"output": output}
