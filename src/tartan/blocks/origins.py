"""Where ranges come from, told to each rank once: orders of one task name the same ranges again and again."""

from __future__ import annotations

from collections import defaultdict

from tartan.blocks.work import PartOrigin, RangeKey, WorkOrder


class ToldRanges:
    """What the session has told each rank in one call of ``run``.

    Examples
    --------
    >>> told = ToldRanges()
    >>> wanted = (4, RangeKey(0, ((0, 8),)))
    >>> told.is_new(0, *wanted), told.is_new(0, *wanted), told.is_new(1, *wanted)
    (True, False, True)
    """

    def __init__(self) -> None:
        self._told: dict[int, set[tuple[int, RangeKey]]] = defaultdict(set)

    def is_new(self, rank: int, task: int, wanted: RangeKey) -> bool:
        """Note that a rank is told where a range is, as a task reads it; return whether it was not told before."""
        told = self._told[rank]
        n_before = len(told)
        told.add((task, wanted))
        return len(told) > n_before

    def forget(self) -> None:
        """Tell all ranks again: ranges are elsewhere."""
        self._told.clear()


class KnownOrigins:
    """What a rank was told of the ranges of orders."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, RangeKey], tuple[PartOrigin, ...]] = {}

    def complete(self, order: WorkOrder) -> WorkOrder:
        """Return an order with the origins of all that it reads; those that it brings replace older ones."""
        for wanted, origins in order.origins.items():
            self._known[order.subtask.task, wanted] = origins
        reads = order.subtask.reads()
        return WorkOrder(order.subtask, {wanted: self._known[order.subtask.task, wanted] for wanted in reads})

    def forget(self) -> None:
        """Forget all: the call of ``run`` has ended."""
        self._known.clear()
