"""A cluster as its replay sees it: ranks and their slots, network, options, and what is predicted."""

from __future__ import annotations

from dataclasses import dataclass, field

from tartan.core.pairs.grid import Grid
from tartan.core.ranks.layout import KEPT_SHARE, divide_slots
from tartan.core.ranks.stealing import Affinity


@dataclass(frozen=True)
class RankLines:
    """How the slots of a rank are divided: lines that stay, pieces that stream, and pieces kept for others."""

    band: int
    stream: int
    kept: int


@dataclass(frozen=True)
class ReplayedRank:
    """One rank.

    Attributes
    ----------
    slots : int
        Host slots, those that it keeps for others included.
    speed : float
        Pairs a second, over all its devices.
    load_seconds : float
        Read and parse of one item, divided by what runs at once.
    prepare_seconds : float
        Preprocessing of one loaded item, during which the devices do not compare.
    guess : float
        What it believes its speed to be before it has measured it, in any unit.
    division : RankLines, optional
        How its slots are divided; default as ``divide_lines`` does.
    """

    slots: int
    speed: float
    load_seconds: float = 0.0
    prepare_seconds: float = 0.0
    guess: float = 1.0
    division: RankLines | None = None


@dataclass(frozen=True)
class ClusterNetwork:
    """What joins the ranks.

    Attributes
    ----------
    item_bytes, file_bytes : float
        Of an item between ranks, and in storage.
    link_bytes_per_second : float
        Of one rank, each way.
    storage_bytes_per_second : float
        Of all ranks together.
    latency_seconds : float
        Of one message.
    """

    item_bytes: float = 0.0
    file_bytes: float = 0.0
    link_bytes_per_second: float = float("inf")
    storage_bytes_per_second: float = float("inf")
    latency_seconds: float = 1e-4


@dataclass(frozen=True)
class ClusterOptions:
    """How a replay is driven.

    Attributes
    ----------
    homes : bool
        Whether ranks ask each other; otherwise each loads all it needs.
    hops : int
        Ranks ask each other by the directory of the Rocket paper, with this number of hops; 0: by homes.
    affinity : {"marginal", "none"}
    losses : tuple of (float, int)
        Ranks that are lost, and when.
    ahead_seconds : float
        See ``CoordinatorSetup``.
    circle : bool
        See ``Divider``.
    pieces : int
        In how many pieces a line is fetched; ranks then say how their slots are divided.
    """

    homes: bool = True
    hops: int = 0
    affinity: Affinity = "marginal"
    losses: tuple[tuple[float, int], ...] = ()
    ahead_seconds: float = 2.0
    circle: bool = True
    pieces: int = 1


@dataclass(frozen=True)
class ClusterPrediction:
    """What came out.

    Attributes
    ----------
    seconds : float
    load_factor, load_factor_bound : float
        F and its bound.
    storage_load_factor, storage_load_factor_bound : float
        R and its bound.
    pairs : tuple of int
        That each rank computed.
    ends : tuple of float
        When each rank had nothing left to compute.
    busy_seconds : tuple of float
        During which the devices of each rank worked.
    steals, lost : int
    bytes_between_ranks, bytes_from_storage : float
    hops : tuple of float
        Of the requests by the paper's directory: the share that was answered at each hop, and that which was not.
    steps : tuple of (int, float, float, int)
        Rank, begin, end and pairs of everything that was computed.
    """

    seconds: float
    load_factor: float
    load_factor_bound: float
    storage_load_factor: float
    storage_load_factor_bound: float
    pairs: tuple[int, ...]
    ends: tuple[float, ...]
    busy_seconds: tuple[float, ...]
    steals: int
    lost: int
    bytes_between_ranks: float
    bytes_from_storage: float
    hops: tuple[float, ...] = ()
    steps: tuple[tuple[int, float, float, int], ...] = field(repr=False, default=())


def divide_lines(slots: int, chunk: int, n_items: int, all_slots: int) -> RankLines:
    """Divide the slots of a rank into those of its band, of the stream, and those it keeps for others.

    Parameters
    ----------
    slots : int
        Of the rank.
    chunk : int
        Items of a line.
    n_items : int
    all_slots : int
        Of all ranks together. Where that is less than the items, all ranks stream about the same lines, each of which
        is kept for as long as the ranks differ; otherwise each item stays somewhere, and a line or two are enough.
    """
    lines = slots // chunk
    kept = 1 if all_slots >= n_items else max(1, round(lines * KEPT_SHARE))
    if all_slots <= slots:
        kept = 0  # there is no other rank to keep for
    if lines < 4:
        return RankLines(max(0, lines - 1), min(lines, 1), 0)
    return RankLines(lines - 2 - kept, 2, kept)


def lines_of_run(grid: Grid, slots: int, all_slots: int) -> tuple[RankLines, int]:
    """Return how a rank of a real run divides its slots, and in how many pieces it fetches a line: span by span.

    Parameters
    ----------
    grid : Grid
        Of the run.
    slots, all_slots : int
        As for ``divide_slots``.
    """
    found, span = divide_slots(grid, slots, all_slots), grid.longest_span
    if found.layout is None:
        return RankLines(0, 1, found.n_kept), 1
    room = found.layout.room
    lines = RankLines(found.band_items // grid.chunk, max(2, room.columns // span), found.n_kept)
    return lines, max(1, round(grid.chunk / span))
