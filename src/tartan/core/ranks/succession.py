"""Who may go on with a run whose driver may be gone: judged by who writes to its folder, and for how long it is silent.

A driver and its ranks keep a lease each, renewed every few seconds. A process of this machine can be asked whether it
is there; one that is gone is void at once, however new its lease is, and one that runs never is, however old: its disk
may be slow. Of a process that is stopped, or of another machine, only its silence tells. Whoever takes over raises the
epoch of the folder first: a driver that comes back finds a higher one than its own, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

# By contract: a driver that cannot be asked is replaced when its lease and five seconds are over.
GRACE_SECONDS = 5.0

Fate = Literal["gone", "stopped", "runs", "elsewhere"]
"""Of a process of this machine what can be seen of it; "elsewhere" for one of another machine."""


@dataclass(frozen=True)
class SeenWriter:
    """A process that writes to a run, as another one sees it.

    Attributes
    ----------
    name : str
        For messages.
    fate : {"gone", "stopped", "runs", "elsewhere"}
    silent_seconds : float
        Since its lease was renewed.
    drives : bool
        Whether it is a driver.
    """

    name: str
    fate: Fate
    silent_seconds: float
    drives: bool = False


class Act(Enum):
    """What one that wants to go on with a run does."""

    FREE = "free"  # nobody writes: lock the folder and go on
    FOLLOW = "follow"  # the driver lives
    WAIT = "wait"  # the driver is gone, and its ranks end by themselves
    TAKE = "take"  # all that hold it are silent for too long: raise the epoch, then go on


@dataclass(frozen=True)
class Succession:
    """What to do now.

    Attributes
    ----------
    act : Act
    holders : tuple of str
        Names of those who keep one from going on.
    seconds : float
        Until the silence of all of them is long enough, if they stay silent; infinite for those that run.
    """

    act: Act
    holders: tuple[str, ...] = ()
    seconds: float = 0.0


def judge_writers(writers: Sequence[SeenWriter], lease_seconds: float) -> Succession:
    """Judge who writes to a run.

    Parameters
    ----------
    writers : sequence of SeenWriter
    lease_seconds : float
        Silence after which ranks of the run count as lost.

    Returns
    -------
    Succession
    """
    holding = [writer for writer in writers if writer.fate != "gone"]
    if not holding:
        return Succession(Act.FREE)
    limit = lease_seconds + GRACE_SECONDS
    living = [writer for writer in holding if writer.fate == "runs" or writer.silent_seconds < limit]
    if not living:
        return Succession(Act.TAKE, tuple(writer.name for writer in holding))
    left = max(float("inf") if one.fate == "runs" else limit - one.silent_seconds for one in living)
    drivers = [writer for writer in living if writer.drives]
    names = tuple(writer.name for writer in drivers or living)
    return Succession(Act.FOLLOW if drivers else Act.WAIT, names, left)
