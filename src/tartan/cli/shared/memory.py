"""What a command says of the memory that it needs, before it begins."""

from __future__ import annotations

import argparse

from tartan.base.format import format_memory
from tartan.base.machine import held_bytes
from tartan.cli.shared.output import say
from tartan.core.memory import MemoryNeed, need_of_analysis


def say_need(args: argparse.Namespace, need: MemoryNeed) -> MemoryNeed:
    """Say what a command needs, unless it is to be quiet; return it."""
    if not args.quiet:
        say(f"tartan: {format_memory(need.total_bytes, need.parts)}")
    return need


def say_analysis(args: argparse.Namespace, method: str, n: int, itemsize: int, n_near: int = 0) -> MemoryNeed:
    """Say what an analysis of a matrix needs.

    Parameters
    ----------
    args : namespace
        With ``quiet``, and ``memory`` where the command has it.
    method : str
        As for ``need_of_analysis``.
    n : int
        Items of the matrix.
    itemsize : int
        Bytes of one of its values.
    n_near : int
        Of greedy: pairs within the bound.
    """
    size = getattr(args, "memory", None)
    most = None if size is None else int(size.amount)
    return say_need(args, need_of_analysis(held_bytes(), method, n, n * n * itemsize, memory_bytes=most, n_near=n_near))
