"""The communicator of this process: what a script of ``tartan ranks`` asks for, and a world of one in plain Python."""

from __future__ import annotations

import resource
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tartan._native import CommArena, CommProxy, CommRank
from tartan.base.format import pluralize
from tartan.base.machine import memory, usable_cores
from tartan.comm.link import Share
from tartan.comm.rank import RankCommunicator
from tartan.comm.state import DEADLOCK, TURN_SECONDS, RankSeat, all_wait
from tartan.errors import ResourceError

# By arithmetic: x86-64 has 2**47 addresses; an eighth of them, untouched.
_MOST_ADDRESSES = 1 << 44
# By judgement: page-locked memory is taken from all; larger messages are copied by way of it. No benchmark: no GPU
# measured yet.
_MOST_PINNED = 160 << 20
_CALLS = {1: "send", 2: "recv", 3: "wait", 4: "test", 5: "probe", 100: "a collective", 101: "nothing: it has ended"}


@dataclass
class _Here:
    """The world of this process."""

    found: RankCommunicator | None = None
    asked: bool = False
    kept: list[object] = field(default_factory=list)


_here = _Here()


def world() -> RankCommunicator:
    """Return the communicator of all ranks, as this process sees it; outside ``tartan ranks``, a world of one.

    Examples
    --------
    >>> world().size
    1
    """
    _here.asked = True
    if _here.found is None:
        _here.found = _make_single()
    return _here.found


def was_asked() -> bool:
    """Whether this process has asked for its communicator."""
    return _here.asked


def enter(
    arena: CommArena, rank: int, nodes: tuple[int, ...], near: Mapping[int, Share] | None = None
) -> tuple[RankCommunicator, CommRank]:
    """Make this process rank ``rank`` of all, which maps the memory of near nodes; return communicator and line."""
    line = CommRank(arena, nodes, rank, len(nodes) <= usable_cores())
    for node, share in (near or {}).items():
        line.add_near([other for other, place in enumerate(nodes) if place == node], *share)
    _here.found = RankCommunicator(RankSeat(arena, line, rank, nodes), range(len(nodes)), 0, 0)
    return _here.found, line


def new_arena(n_local: int, size: int, *, pinned: bool = False, streams: bool = True) -> CommArena:
    """Return the memory for the ranks of a node; ``streams`` where all of them can receive large arrays in parts.

    Pages are taken where they are touched; of memory that is to be pinned, all of them.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    addresses = _MOST_ADDRESSES if limit == resource.RLIM_INFINITY else min(limit, _MOST_ADDRESSES)
    half = memory().total_bytes // 2
    most = min(_MOST_PINNED, half // 8 // (n_local + 1)) if pinned else half
    try:
        heap, result = min(most, addresses // (4 * (n_local + 1))), min(most, addresses // 16)
        arena = CommArena(n_local, size, heap, result, streams)
    except OSError as error:
        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
            raise
        raise ResourceError(
            f"{pluralize(n_local, 'rank')} share memory that counts as one large file, and a limit of this "
            "shell allows "
            "none; raise the limit (ulimit -f unlimited)"
        ) from error
    arena.found(0, list(range(size)))
    return arena


def waits(arena: CommArena, first: int, n_local: int) -> str:
    """Return who waits for what on a node."""
    told = []
    for local in range(n_local):
        _, call, peer, tag, text = arena.waiting(local)
        what = text or _CALLS.get(call, "a reply")
        if call in (1, 2, 5):
            whom = "any rank" if peer < 0 else f"rank {peer}"
            what += f" {'to' if call == 1 else 'from'} {whom}, {'any tag' if tag < 0 else f'tag {tag}'}"
        told.append(f"rank {first + local}: {what}")
    return "; ".join(told)


def _make_single() -> RankCommunicator:
    arena = new_arena(1, 1)
    proxy = CommProxy(arena, [0], 0, 0)
    _here.kept += [arena, proxy]
    threading.Thread(target=_watch, args=(arena, proxy), name="tartan-alone", daemon=True).start()
    return enter(arena, 0, (0,))[0]


def _watch(arena: CommArena, proxy: CommProxy) -> None:
    """End the waits of a world of one that nothing can end."""
    last = None
    while arena.reason() is None:
        stamp = proxy.stuck()
        if stamp is not None and stamp == last:
            arena.abort(DEADLOCK, all_wait([waits(arena, 0, 1)]))
        last = stamp
        threading.Event().wait(TURN_SECONDS)
