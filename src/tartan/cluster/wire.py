"""Small messages as bytes: msgpack maps with version, run, epoch and sender, of bounded size, never pickled.

``encode`` and ``decode`` turn dataclasses and plain values into the body of a message and back, checked against their
types. ``seal`` and ``open_envelope`` add and check what surrounds a body. Whatever bytes arrive, the answer is a value
or a ``WireError`` that says what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from tartan.cluster.engine import LIMIT_BYTES, Oversize
from tartan.core.ranks.messages import PROTOCOL_VERSION
from tartan.errors import TransportError

VERSION = PROTOCOL_VERSION
"""Of the messages; members of one run speak the same."""

T = TypeVar("T")


class WireError(TransportError):
    """Bytes are not a message of this version and this run."""

    default_code = "wire"


@dataclass(frozen=True)
class Envelope:
    """What surrounds the body of a message.

    Attributes
    ----------
    version : int
        Of the messages.
    run : str
        Names one execution of a run.
    epoch : int
        That of the sender.
    sender : str
    do : str
        Chooses the handler.
    body : bytes
    strict : bool
        Whether the receiver refuses it where it knows a newer view.
    """

    version: int
    run: str
    epoch: int
    sender: str
    do: str
    body: bytes = b""
    strict: bool = False


@dataclass(frozen=True)
class Reply:
    """The answer to an envelope.

    Attributes
    ----------
    status : str
        "done", or why not: "failed", "stale", "expelled", "refused", "busy".
    epoch : int
        That of who answers.
    body : bytes
        What the handler returned, or the reason as UTF-8.
    """

    status: str
    epoch: int
    body: bytes = b""


@dataclass(frozen=True)
class _Speaks:
    version: int


def encode(message: Any) -> bytes:
    """Return a dataclass, or plain values, as msgpack."""
    import msgspec

    return msgspec.msgpack.encode(message)


def decode(body: bytes, kind: type[T]) -> T:
    """Return the value of a type from msgpack.

    Raises
    ------
    WireError
        If the bytes are not a value of this type; keys that the type does not have are ignored.
    """
    import msgspec

    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, MemoryError, UnicodeDecodeError, OverflowError) as error:
        raise WireError(f"{len(body):,} bytes are not a {kind.__name__}: {error}") from None


def seal(envelope: Envelope) -> bytes:
    """Return an envelope as bytes.

    Raises
    ------
    Oversize
        If they are more than a message may have.
    """
    data = encode(envelope)
    if len(data) > LIMIT_BYTES:
        raise Oversize(
            f"message {envelope.do!r} has {len(data):,} bytes, a message at most {LIMIT_BYTES:,}; send less at a time, "
            "and large data beside the engine"
        )
    return data


def open_envelope(data: bytes, run: str) -> Envelope:
    """Return the envelope that bytes hold.

    Parameters
    ----------
    data : bytes
        From anywhere.
    run : str
        The run that this process belongs to.

    Raises
    ------
    WireError
        If they hold none, or one of another version or run.
    """
    if len(data) > LIMIT_BYTES:
        raise WireError(f"a message of {len(data):,} bytes is refused, the limit is {LIMIT_BYTES:,}")
    version = decode(data, _Speaks).version
    if version != VERSION:
        raise WireError(
            f"the sender speaks version {version} of the messages, this process version {VERSION}: "
            "install the same Tartan everywhere"
        )
    envelope = decode(data, Envelope)
    if envelope.run != run:
        raise WireError(f"a message of run {envelope.run[:100]!r} is refused, this process belongs to run {run!r}")
    return envelope


def open_reply(data: bytes) -> Reply:
    """Return the reply that bytes hold.

    Raises
    ------
    WireError
        If they hold none.
    """
    if len(data) > 2 * LIMIT_BYTES:
        raise WireError(f"an answer of {len(data):,} bytes is refused")
    return decode(data, Reply)
