"""What a command says of the memory that it needs, before it begins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tartan.base.format import format_memory
from tartan.base.machine import memory
from tartan.cli.shared.output import say

if TYPE_CHECKING:
    from tartan.analytics.matrix import Dissimilarities, MemoryNeed


def say_need(args: argparse.Namespace, need: MemoryNeed) -> MemoryNeed:
    """Say what a command needs, unless it is to be quiet; return it."""
    if not args.quiet:
        say(f"tartan: {format_memory(need.total_bytes, need.parts, memory().available_bytes)}")
    return need


def say_of_matrix(
    args: argparse.Namespace,
    method: str,
    matrix: Dissimilarities,
    n_near: int = 0,
    n_drawn: int = 0,
    held: int | None = None,
) -> MemoryNeed:
    """Say what an analysis of a matrix that is open needs; see ``say_analysis``."""
    ways = {"n_near": n_near, "n_drawn": n_drawn, "held": held}
    return say_analysis(args, method, matrix.n, matrix.dtype.itemsize, source=matrix.source, **ways)


def say_analysis(args: argparse.Namespace, method: str, n: int, itemsize: int, **ways: Any) -> MemoryNeed:
    """Say what an analysis of a matrix needs, unless the command is to be quiet; return it.

    Parameters
    ----------
    args : namespace
        With ``quiet``, and ``memory`` where the command has it.
    method, n, itemsize, **ways
        As for ``need_of_matrix``.
    """
    from tartan.analytics.matrix import need_of_matrix

    size = getattr(args, "memory", None)
    most = None if size is None else int(size.amount)
    return say_need(args, need_of_matrix(method, n, itemsize, memory_bytes=most, **ways))
