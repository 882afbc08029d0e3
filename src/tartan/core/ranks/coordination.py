"""What a coordinator is made of, what it is told, what it answers and what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tartan.core.ranks.messages import FromRank, ToRank
from tartan.core.ranks.stealing import Affinity

Run = tuple[int, int, int]
"""Chunks in one row: row, first column, end."""


class Received(NamedTuple):
    """A message came. ``peer`` is the name under which the engine knows its sender."""

    peer: str
    message: FromRank


class Lost(NamedTuple):
    """A peer has gone, and can commit nothing more; ``committed`` are chunks of its own that the ledger has."""

    peer: str
    committed: tuple[Run, ...] = ()


class Tick(NamedTuple):
    """Time has passed."""


CoordinatorEvent = Received | Lost | Tick


class Outgoing(NamedTuple):
    """A message to be sent."""

    peer: str
    message: ToRank


@dataclass(frozen=True)
class CoordinatorSetup:
    """What a coordinator is made of.

    Attributes
    ----------
    pairs : ndarray of int64, shape (n_chunks, n_chunks)
        Pairs to be computed in each chunk (``division.chunk_pairs``); 0 where nothing is missing.
    chunk : int
        Side of a chunk, in items.
    identity : tuple of (str, str)
        What every rank must have the same.
    n_expected : int
        Work is divided when as many ranks have come.
    patience_seconds : float
        Or when this time has passed since the first one came.
    rank_timeout_seconds : float
        A rank that is silent for longer is lost.
    ahead_seconds : float
        Work that a rank is granted at a time.
    circle : bool
        Whether rows may stream past columns.
    affinity : {"marginal", "none"}
        How stolen work is chosen: by what it costs, or the last of the plan.
    """

    pairs: np.ndarray
    chunk: int
    identity: tuple[tuple[str, str], ...] = ()
    n_expected: int = 1
    patience_seconds: float = 10.0
    rank_timeout_seconds: float = 15.0
    ahead_seconds: float = 2.0
    circle: bool = True
    affinity: Affinity = "marginal"


@dataclass
class CoordinatorCounts:
    """What happened so far.

    Attributes
    ----------
    steals : int
        Times that a rank was given work of another one.
    shed : int
        Those of them where the victim had to give it up.
    lost : int
        Ranks.
    again : int
        Pairs that ranks ended and lost with themselves, before they committed them: others compute them again.
    """

    steals: int = 0
    shed: int = 0
    lost: int = 0
    again: int = 0


def difference(ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> str:
    """Return in words the first value in which two identities differ; empty where they do not."""
    there = dict(theirs)
    for name, value in ours:
        if there.get(name) != value:
            return f"{name} is {there.get(name, 'not known')} on this rank, but {value} in the run"
    return ""
