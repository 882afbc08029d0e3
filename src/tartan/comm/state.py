"""What a rank has of its node: the memory, its line, where the ranks are; and what failures mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tartan._native import CommArena, CommFailure, CommRank
from tartan.base.format import pluralize
from tartan.errors import ClusterError, ConfigError, DeadlockError, InternalError, RankLostError, ResourceError

# By contract: TURN of crates/tartan-comm/src/wait.rs, 100 ms.
TURN_SECONDS = 0.1
#: Kinds of reasons for which all waits of a node are ended.
#: By format: kinds of crates/tartan-comm/src/refusal.rs.
LOST, DEADLOCK, NO_ROOM, REFUSED, DEFECT = 1, 2, 3, 4, 9

_ERRORS: dict[int, type[Exception]] = {
    LOST: RankLostError,
    DEADLOCK: DeadlockError,
    NO_ROOM: ResourceError,
    REFUSED: ConfigError,
    DEFECT: InternalError,
}


@dataclass
class RankSeat:
    """What the communicators of one rank share.

    Attributes
    ----------
    arena : CommArena
        The memory of the node.
    line : CommRank
        By which the rank asks.
    rank : int
        Its number among all ranks.
    nodes : tuple of int
        The node of each rank.
    next_group : int
        The least number that no group of this rank has.
    pid : int
        The process; a fork of it is not a rank.
    sends : dict
        Of each message begun and not waited for, by the number of the request: the rank that it goes to, tag, bytes.
    """

    arena: CommArena
    line: CommRank
    rank: int
    nodes: tuple[int, ...]
    next_group: int = 1
    pid: int = field(default_factory=os.getpid)
    sends: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def require_own_process(self) -> None:
        """Refuse calls from a fork of the rank."""
        if os.getpid() != self.pid:
            raise ConfigError(
                f"process {os.getpid()} is a fork of rank {self.rank} and no rank; communicate in the rank itself"
            )

    def end_sends(self) -> str:
        """Wait until what was sent is received; return what never is, empty where all was.

        What became of the messages after the first that is not received is not known: all waits have ended by then.
        """
        for number, (to, tag, n_bytes) in list(self.sends.items()):
            try:
                self.line.wait(number, False)
            except CommFailure:
                reason = self.arena.reason()
                if reason is None or reason[0] != DEADLOCK:
                    return ""  # another rank has failed
                later = len(self.sends) - 1
                more = f", nor perhaps {pluralize(later, 'later one')}" if later else ""
                return (
                    f"rank {self.rank} has ended, and rank {to} never received its isend of {n_bytes:,} bytes with "
                    f"tag {tag}{more}; receive what is sent"
                )
            del self.sends[number]
        return ""

    def error(self, failure: CommFailure) -> Exception:
        """Return the error that a failed native call means."""
        kind, detail = failure.args
        if kind == "stopped":
            return stop_reason(self.arena)
        if kind == "mismatch":
            calls = "; ".join(f"rank {place} calls {call}" for place, call in enumerate(detail))
            return DeadlockError(f"the ranks of a group call different collectives: {calls}")
        if kind in ("too-large", "no-room"):
            return ResourceError(
                f"{int(detail):,} bytes do not fit into the memory that the ranks of a node share; send smaller parts"
            )
        if kind == "busy":
            return ConfigError(f"two threads of rank {self.rank} communicate at once; a rank has one thread for that")
        return ClusterError(f"an earlier call of rank {self.rank} was interrupted; it cannot communicate any more")


def all_wait(texts: Sequence[str]) -> str:
    """Return the message of a deadlock, of who waits for what on each node."""
    return "all ranks wait and nothing is under way: " + "; ".join(texts)


def stop_reason(arena: CommArena) -> Exception:
    """Return the error for which all waits of a node were ended."""
    reason = arena.reason()
    if reason is None:
        return InternalError("a wait was ended without a reason")
    return _ERRORS.get(reason[0], ClusterError)(reason[1])
