"""Ranks as threads over the real arena, proxy and leaders: many small worlds without starting a process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from typing import TypeVar

from tartan._native import CommArena, CommProxy, CommRank
from tartan.comm.link import NodeLink, SocketLink
from tartan.comm.node import Leader
from tartan.comm.process import waits
from tartan.comm.rank import RankCommunicator
from tartan.comm.state import DEADLOCK, LOST, RankSeat, all_wait
from tartan.errors import ClusterError

__all__ = ["ThreadWorld"]

T = TypeVar("T")
_ROOM_BYTES = 1 << 24
_TURN_SECONDS = 0.02


class ThreadWorld:
    """Some ranks, divided among simulated nodes.

    Parameters
    ----------
    sizes : tuple of int
        Ranks of each node.
    link : callable, optional
        Returns the link of a node, given its sockets by node; default: ``SocketLink``.
    near : bool
        Whether nodes map each other's memory, as those of one machine do.

    Attributes
    ----------
    messages : int
        Messages between nodes for ranks and collectives, once ``run`` has returned.

    Examples
    --------
    >>> ThreadWorld((2, 1)).run(lambda ranks: ranks.rank)
    [0, 1, 2]
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        *,
        link: Callable[[dict[int, socket.socket]], NodeLink] = SocketLink,
        near: bool = False,
    ) -> None:
        self.nodes = tuple(node for node, size in enumerate(sizes) for _ in range(size))
        self.messages = 0
        self._firsts = [self.nodes.index(node) for node in range(len(sizes))]
        self._arenas = [self._arena(size) for size in sizes]
        self._proxies = [
            CommProxy(arena, list(self.nodes), node, self._firsts[node]) for node, arena in enumerate(self._arenas)
        ]
        self._shares = [arena.share() for arena in self._arenas] if near else []
        self._leaders: list[Leader] = []
        self._lock, self._n_left = threading.Lock(), list(sizes)
        if len(sizes) > 1:
            for node, sockets in enumerate(_sockets(len(sizes))):
                stop, told = self._stopper(node), partial(self._waits, node)
                view = self._arenas[node].view
                self._leaders.append(Leader(link(sockets), self._proxies[node], self.nodes, node, stop, told, view))

    def _arena(self, n_ranks: int) -> CommArena:
        arena = CommArena(n_ranks, len(self.nodes), _ROOM_BYTES, _ROOM_BYTES)
        arena.found(0, list(range(len(self.nodes))))
        return arena

    def _stopper(self, node: int) -> Callable[[int, str], None]:
        def stop(kind: int, reason: str) -> None:
            self._arenas[node].abort(kind, reason)

        return stop

    def _waits(self, node: int) -> str:
        return waits(self._arenas[node], self._firsts[node], self.nodes.count(node))

    def run(self, function: Callable[[RankCommunicator], T]) -> list[T]:
        """Run a function on each rank; return what each returned, or raise what the first that failed has raised."""
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended,))
        with ThreadPoolExecutor(len(self.nodes), thread_name_prefix="rank") as pool:
            calls = [pool.submit(self._rank, function, rank) for rank in range(len(self.nodes))]
            watch.start()
            errors = [error for call in calls if (error := call.exception()) is not None]
        ended.set()
        watch.join()
        closing = [threading.Thread(target=leader.end) for leader in self._leaders]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        self.messages = sum(leader.n_sent for leader in self._leaders)
        for error in sorted(errors, key=lambda error: isinstance(error, ClusterError)):
            raise error
        return [call.result() for call in calls]

    def _rank(self, function: Callable[[RankCommunicator], T], rank: int) -> T:
        node = self.nodes[rank]
        arena = self._arenas[node]
        line = CommRank(arena, self.nodes, rank, has_core=False)
        for other, (descriptor, n_bytes, token) in enumerate(self._shares):
            if other != node:
                there = [one for one, place in enumerate(self.nodes) if place == other]
                line.add_near(there, f"/proc/self/fd/{descriptor}", n_bytes, token)
        state = RankSeat(arena, line, rank, self.nodes)
        try:
            result = function(RankCommunicator(state, range(len(self.nodes)), 0, 0))
        except BaseException as error:
            self.stop(f"rank {rank} has failed: {type(error).__name__}: {error}", node)
            raise
        line.end()
        with self._lock:
            self._n_left[node] -= 1
            if self._leaders and not self._n_left[node]:
                self._leaders[node].say_end()
        return result

    def stop(self, reason: str, node: int = 0) -> None:
        """End all ranks as if one were lost."""
        if self._arenas[node].reason() is not None:
            return  # this follows from it
        if self._leaders:
            self._leaders[node].halt(LOST, reason)
        else:
            self._stopper(node)(LOST, reason)

    def _watch(self, ended: threading.Event) -> None:
        """Look for deadlocks of a single node; leaders do it for several."""
        last = None
        while not self._leaders and not ended.wait(_TURN_SECONDS):
            stamp = self._proxies[0].stuck()
            if stamp is not None and stamp == last:
                self._stopper(0)(DEADLOCK, all_wait([self._waits(0)]))
            last = stamp


def _sockets(n_nodes: int) -> list[dict[int, socket.socket]]:
    found: list[dict[int, socket.socket]] = [{} for _ in range(n_nodes)]
    for one, other in combinations(range(n_nodes), 2):
        found[one][other], found[other][one] = socket.socketpair()
    return found
