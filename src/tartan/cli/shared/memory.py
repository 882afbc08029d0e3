"""What a command says of the memory that it needs, before it begins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tartan.base.format import format_memory
from tartan.cli.shared.output import say

if TYPE_CHECKING:
    from tartan.analytics.matrix import MemoryNeed


def say_analysis(
    args: argparse.Namespace, method: str, n: int, itemsize: int, n_near: int = 0, n_drawn: int = 0
) -> MemoryNeed:
    """Say what an analysis of a matrix needs, unless the command is to be quiet; return it.

    Parameters
    ----------
    args : namespace
        With ``quiet``, and ``memory`` where the command has it.
    method, n, itemsize, n_near, n_drawn
        As for ``need_of_matrix``.
    """
    from tartan.analytics.matrix import need_of_matrix

    size = getattr(args, "memory", None)
    most = None if size is None else int(size.amount)
    need = need_of_matrix(method, n, itemsize, memory_bytes=most, n_near=n_near, n_drawn=n_drawn)
    if not args.quiet:
        say(f"tartan: {format_memory(need.total_bytes, need.parts)}")
    return need
