"""One execution of a run of triples: a node with a desk for boxes in place of those for tiles and chunks."""

from __future__ import annotations

from tartan.core.actions import Commit, Compare
from tartan.core.triples import TripleGrid
from tartan.errors import InternalError
from tartan.runtime.box_desk import BoxDesk
from tartan.runtime.committer import TripleCommitter
from tartan.runtime.events import BoxCompared, BoxDropped, BoxFailed, ChunkCommitted
from tartan.runtime.execution import Execution
from tartan.runtime.node import Node
from tartan.runtime.wiring import Wiring
from tartan.store.triple_keeper import TripleKeeper


class TripleNode(Node):
    """Runs an execution of a run of triples to its end.

    Parameters
    ----------
    execution : Execution
        Its grid is a ``TripleGrid`` and its sink a ``TripleCommitter``.
    keeper : TripleKeeper
    """

    def __init__(self, execution: Execution, keeper: TripleKeeper) -> None:
        self._keeper = keeper
        super().__init__(execution)

    def _open_buffers(self, wiring: Wiring) -> None:
        """Take none: scores never leave the workers."""

    def _open_desks(self, wiring: Wiring) -> None:
        x, sink, grid = self._x, self._x.sink, self._x.grid
        if not isinstance(sink, TripleCommitter) or not isinstance(grid, TripleGrid):
            raise InternalError("a node of triples needs a grid and a sink of triples")
        boxes = BoxDesk(wiring, grid, self._scheduler, self._items, self._keeper, sink, x.report)
        self._tiles = boxes
        self._carry_out |= {Compare: boxes.compare, Commit: boxes.commit}
        self._handle |= {
            BoxCompared: boxes.compared,
            BoxFailed: boxes.failed,
            BoxDropped: boxes.dropped,
            ChunkCommitted: boxes.committed,
        }

    @property
    def _buffer_bytes(self) -> int:
        return 0
