"""What the coordinator and the ranks tell each other: plain data, one class for each message.

Every message is a frozen dataclass of numbers, texts, tuples and other such classes, so that any encoding of records
fits. What carries a message adds the run, the epoch and ``PROTOCOL_VERSION``.

    rank -> coordinator    Hello, Want, GivenUp, PassedOn, Done, Report, Leave
    coordinator -> rank    Welcome or Refused, View, Grant, Shed, Stop
    rank -> rank           Fetch, answered by items, or by Elsewhere, Yours, Busy or Failed
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tartan.core.pairs.ledger import Failure
from tartan.core.pairs.region import Region
from tartan.core.pairs.verdict import NodeReport

PROTOCOL_VERSION = 1
"""Raised when a message changes; ranks of another version are refused."""


@dataclass(frozen=True)
class Hello:
    """First message of a rank.

    Attributes
    ----------
    identity : tuple of (str, str)
        What must be the same on all ranks, by name: versions, checksum of the manifest, hash of the application.
    devices : tuple of str
        Kinds of devices.
    band_items, kept_items : int
        Host slots for what stays, and for what the rank keeps for all. A rank without room for a tile has no band: it
        is home only.
    cores : int
    host : str
        Identifies the machine.
    pid : int
        The process.
    address : str
        Where the rank sends items from.
    speed : float
        First guess, in any unit that is the same for all ranks.
    storage : bool
        Whether it reads and parses for others, and computes nothing.
    """

    identity: tuple[tuple[str, str], ...]
    devices: tuple[str, ...] = ("cpu",)
    band_items: int = 0
    kept_items: int = 0
    cores: int = 1
    host: str = ""
    pid: int = 0
    address: str = ""
    speed: float = 1.0
    storage: bool = False


@dataclass(frozen=True)
class Welcome:
    """Answer to ``Hello``: the number of the rank. Numbers are not used again."""

    rank: int


@dataclass(frozen=True)
class Refused:
    """Answer to ``Hello`` of a rank that does not belong to the run."""

    reason: str


@dataclass(frozen=True)
class Member:
    """One rank of a view."""

    rank: int
    host: str
    address: str
    speed: float
    kept_items: int
    storage: bool = False


@dataclass(frozen=True)
class View:
    """Who takes part from now on; sent to all when that changes."""

    epoch: int
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Want:
    """A rank has little left.

    Attributes
    ----------
    left_pairs : int
        Pairs of chunks that it was granted and has not committed.
    speed : float
        Pairs a second that it measured; 0 when it does not know yet.
    """

    left_pairs: int = 0
    speed: float = 0.0


@dataclass(frozen=True)
class Grant:
    """Regions to compute, after those granted before; none means that there is no work at present.

    Attributes
    ----------
    regions : tuple of Region
    passed_on : str
        Why another rank gave up pairs of them; this one has the last try. Empty where none did.
    """

    regions: tuple[Region, ...]
    passed_on: str = ""


@dataclass(frozen=True)
class Shed:
    """Ask a rank to give up work for another one.

    Attributes
    ----------
    thief : int
    pairs : int
        How much is wanted.
    lines : tuple of int
        Chunk lines whose items the thief holds or will hold.
    """

    thief: int
    pairs: int
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class GivenUp:
    """Answer to ``Shed``: regions that the rank has not begun, and will not compute."""

    thief: int
    regions: tuple[Region, ...]


@dataclass(frozen=True)
class PassedOn:
    """A chunk is committed but for pairs whose calls took too long on this rank; another one may try these.

    Attributes
    ----------
    chunk : (int, int)
    why : str
        Names such a pair and the time.
    """

    chunk: tuple[int, int]
    why: str


@dataclass(frozen=True)
class Done:
    """Chunks committed since the last message of this kind, as runs in rows: (row, first column, end)."""

    runs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Report:
    """What a rank did since its last report; also its sign of life.

    Attributes
    ----------
    node : NodeReport
        For the verdict on failures.
    speed : float
        Pairs a second over the last reports; 0 when unknown.
    storage_loads, fills : int
        Items read and parsed; items brought into host slots, from anywhere.
    """

    node: NodeReport = field(default_factory=NodeReport)
    speed: float = 0.0
    storage_loads: int = 0
    fills: int = 0


@dataclass(frozen=True)
class Leave:
    """A rank ends; it has committed or given up all that it was granted."""

    reason: str = ""


@dataclass(frozen=True)
class Stop:
    """A rank must end: the run is complete (no reason), or the reason why it is not."""

    reason: str = ""


@dataclass(frozen=True)
class Fetch:
    """Ask a rank for a span.

    Attributes
    ----------
    span : int
    stays : bool
        Whether it will stay with the asker: others may then be sent there.
    sent_on : bool
        Whether its home sent the asker here; such a question is never sent on again.
    missed : tuple of int
        Ranks where the home sent the asker before, and that did not have the span.
    """

    span: int
    stays: bool = False
    sent_on: bool = False
    missed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Elsewhere:
    """Answer to ``Fetch``: another rank has the span, or is loading it."""

    span: int
    rank: int


@dataclass(frozen=True)
class Yours:
    """Answer to ``Fetch``: load the span yourself; others are sent to you for it while it stays."""

    span: int


@dataclass(frozen=True)
class Busy:
    """Answer to ``Fetch``: no slot is free, or the span has gone; load it yourself."""

    span: int


@dataclass(frozen=True)
class Failed:
    """Answer to ``Fetch``: the span could not be loaded at its home; each item with its reason."""

    span: int
    failures: tuple[Failure, ...]


FromRank = Hello | Want | GivenUp | PassedOn | Done | Report | Leave
ToRank = Welcome | Refused | View | Grant | Shed | Stop
Answer = Elsewhere | Yours | Busy | Failed
