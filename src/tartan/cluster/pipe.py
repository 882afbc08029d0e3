"""What a rank and its relay say to each other over their socket: frames of a kind, a ticket and msgpack.

The relay is the parent. It keeps the rank a member while the rank computes, and passes messages on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tartan.cluster.engine import LIMIT_BYTES, Capabilities, Credentials
from tartan.errors import InternalError

HEADER = struct.Struct("<BQI")
_LONGEST_BODY = 4 * LIMIT_BYTES


class Kind(IntEnum):
    """What a frame is; the type of its body beside it."""

    SETUP = 0  # to the rank, first: RankSetup
    JOIN = 1  # to the relay: the rank is ready to become a member
    JOINED = 2  # to the rank: ClusterView
    REFUSED = 3  # to the rank: why, as text
    CALL = 4  # to the relay: PassOn; a ticket of 0 asks for no answer
    REPLY = 5  # to the rank: the reply's bytes
    LOST = 6  # to the rank: why a call has no reply, as text
    MESSAGE = 7  # to the rank: an envelope; a ticket of 0 asks for no answer
    ANSWER = 8  # to the relay: the reply's bytes
    VIEW = 9  # to the rank: ClusterView
    LEAVE = 10  # to the relay: why, as text


@dataclass(frozen=True)
class RankSetup:
    """What a rank must know before it joins.

    Attributes
    ----------
    run, me : str
        Names of the run and of the rank.
    capabilities : Capabilities
    credentials : Credentials
    resources : mapping of str to float
    host : str
        Interface under which other ranks reach this one.
    """

    run: str
    me: str
    capabilities: Capabilities
    credentials: Credentials
    resources: Mapping[str, float]
    host: str


@dataclass(frozen=True)
class PassOn:
    """A message that a relay is to pass on."""

    peer: str
    data: bytes
    timeout_seconds: float


def frame(kind: Kind, ticket: int, body: bytes = b"") -> bytes:
    """Return one frame."""
    return HEADER.pack(kind, ticket, len(body)) + body


class Unframer:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._inbox = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, int, bytes]]:
        """Take bytes; yield the frames that are complete, as (kind, ticket, body)."""
        self._inbox += data
        while len(self._inbox) >= HEADER.size:
            kind, ticket, length = HEADER.unpack_from(self._inbox)
            if length > _LONGEST_BODY:
                raise InternalError(f"a frame of {length:,} bytes between a rank and its relay")
            end = HEADER.size + length
            if len(self._inbox) < end:
                return
            body = bytes(memoryview(self._inbox)[HEADER.size : end])
            del self._inbox[:end]
            yield Kind(kind), ticket, body
