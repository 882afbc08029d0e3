"""The engine port: who takes part in a run, and small messages among them. What carries them stands behind it.

An engine joins one process to one run, as the driver or as a rank. It knows the members, carries requests and posts of
at most 1 MiB (``tartan.cluster.wire``), and says when the members change. It moves no large buffers
(``tartan.cluster.bulk``), and knows nothing of regions, items or chunks.

What every engine holds to, and ``tartan.testing.engine_kit`` tests:

- The name of a member is never used again. The driver decides who is a member; the epoch grows with every change.
- Handlers and ``on_view`` are called in one thread of the engine, one after the other, in the order in which messages
  arrive. They answer and do not compute; they may post, and must not call ``request``.
- A request is answered, or raises by its timeout. It is carried out at most once, and is never sent twice.
- A post is delivered once, or is lost with its receiver without an error. Posts from one member to another arrive in
  their order; a request may overtake them.
- A member that was expelled can do nothing any more: all its calls raise ``StaleEpoch``, and ``on_view`` gives it a
  view without itself. So a process that wakes up after the others have given it up ends without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tartan.errors import ClusterError, RankLostError, TransportError

DRIVER = "driver"
"""Name of the driver among the members."""

# By judgement: handlers run on the loop that also beats, which a megabyte holds for a millisecond; `tartan bench
# cluster_bulk` measures both ways for large data.
LIMIT_BYTES = 1 << 20
"""Size of the largest message; what is larger goes beside the engine."""
# By arithmetic: below LIMIT_BYTES with a head and what msgpack adds.
PIECE_BYTES = 900_000
"""Of what goes in pieces, as it is longer than a message and needs no speed."""


class PeerLost(RankLostError):  # noqa: N818
    """The member that was asked is not a member any more, was lost before it answered, or cannot be reached."""

    default_code = "peer-lost"


class Timeout(TransportError):  # noqa: N818
    """No answer came in time; whether the request was carried out is not known."""

    default_code = "timeout"


class Oversize(TransportError):  # noqa: N818
    """A message is larger than engines carry."""

    default_code = "oversize"


class StaleEpoch(ClusterError):  # noqa: N818
    """The sender acts on an old view, or was expelled.

    Attributes
    ----------
    epoch : int
        That of the receiver.
    """

    default_code = "stale-epoch"

    def __init__(self, message: str, epoch: int = 0) -> None:
        super().__init__(message, context={"epoch": epoch})

    @property
    def epoch(self) -> int:
        """Epoch of the receiver."""
        return int(self.context["epoch"])


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do beyond messages.

    Attributes
    ----------
    elastic : bool
        Members may join at any time.
    survives_loss : bool
        The others continue when a member is lost.
    encrypted : bool
        Messages cannot be read or forged on their way.
    """

    elastic: bool
    survives_loss: bool
    encrypted: bool


@dataclass(frozen=True)
class Credentials:
    """What members of one run share, to know each other beside the engine.

    Attributes
    ----------
    token : bytes
        Secret of the run.
    authority, certificate, key : str
        As PEM, for TLS in both directions; empty where there is none.
    """

    token: bytes = field(default=b"", repr=False)
    authority: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)

    @property
    def encrypted(self) -> bool:
        """Whether there is a certificate."""
        return bool(self.certificate)


@dataclass(frozen=True)
class ClusterView:
    """The members of a run at one time.

    Attributes
    ----------
    epoch : int
        Grows with every change, from 1; 0 before the first view.
    members : tuple of str
        The driver first, then the ranks in the order in which they joined.
    gone : mapping of str to str
        Members of earlier views that are gone, each with the reason.
    """

    epoch: int = 0
    members: tuple[str, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[str, ...]:
        """The members without the driver."""
        return tuple(name for name in self.members if name != DRIVER)


@dataclass(frozen=True)
class Call:
    """A message as its handler receives it.

    Attributes
    ----------
    sender : str
        Name of a member.
    do : str
        What is wanted; it chose the handler.
    epoch : int
        That of the sender.
    body : bytes
        Encoded by ``tartan.cluster.wire.encode``.
    """

    sender: str
    do: str
    epoch: int
    body: bytes


Handler = Callable[[Call], bytes]
"""Returns the body of the answer; what it returns for a post is dropped."""

OnView = Callable[[ClusterView], None]


class ClusterEngine(Protocol):
    """One process's place in a run. Methods may be called from any thread but that of the handlers, except ``post``.

    Attributes
    ----------
    me : str
        Name of this member.
    capabilities : Capabilities
    credentials : Credentials
        Known once it is started.
    host : str
        Interface under which other ranks reach this process.
    resources : mapping of str to float
        What the process was started with beyond cores and devices, such as "storage"; empty for the driver.
    """

    me: str
    capabilities: Capabilities
    credentials: Credentials
    host: str
    resources: Mapping[str, float]

    def start(self, handlers: Mapping[str, Handler], on_view: OnView) -> None:
        """Become a member. From here on handlers and ``on_view`` are called; the first view follows at once.

        Raises
        ------
        ClusterError
            If the driver refuses this process.
        """
        ...

    def view(self) -> ClusterView:
        """Return the newest view that this member knows."""
        ...

    def request(
        self, peer: str, do: str, body: bytes = b"", *, timeout_seconds: float, epoch: int | None = None
    ) -> bytes:
        """Send a message and return the body of its answer.

        Parameters
        ----------
        peer : str
            A member.
        do : str
            Chooses the handler there.
        body : bytes
            At most ``LIMIT_BYTES`` with its head.
        timeout_seconds : float
            Longest wait.
        epoch : int, optional
            The view on which the request rests: refused where the receiver knows a newer one. Default: any.

        Raises
        ------
        PeerLost
            If the peer is not a member, or is lost before it answers.
        Timeout
            If no answer comes in time.
        StaleEpoch
            If the epoch is old, or this member was expelled.
        Oversize
            If the message is too large; nothing was sent.
        TransportError
            If the peer's handler failed; the message says why.
        """
        ...

    def post(self, peer: str, do: str, body: bytes = b"") -> None:
        """Send a message without an answer; it is lost with its receiver.

        Raises
        ------
        StaleEpoch
            If this member was expelled.
        Oversize
            If the message is too large.
        """
        ...

    def silence_seconds(self, peer: str) -> float:
        """Return how long nothing came from a rank; the driver alone can say. Engines send signs of life by themselves.

        A rank whose code holds the interpreter lock is not silent; one whose process is stopped is.
        """
        ...

    def expel(self, peer: str, reason: str) -> None:
        """End the membership of a rank, for all members; the driver alone may. Nothing happens where it is gone."""
        ...

    def leave(self, reason: str = "") -> None:
        """End the own membership. When the driver leaves, the run is over for all. Nothing happens a second time."""
        ...
