"""Brings messages to members by their addresses: what relays and the driver do alike on their event loops.

``send`` stands for the network: ``await send(address, do=..., **fields)`` returns the fields of the answer, or raises
OSError. The fields that travel, ``do`` first:

- "message", "post": ``data`` for a member, ``seconds`` to wait; answered by ``data``, or by ``lost`` with the reason.
- "view": ``data`` as ``Directory``, sent by the driver when members change.
- to the driver: "join" with ``data`` as ``About``, answered by a directory, or by ``refused`` with the reason; "beat"
  with ``name`` and ``epoch``, answered by a directory where it is newer; "gone" with ``name`` and ``reason``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from tartan.cluster.engine import ClusterView

CALL_SECONDS = 10.0
"""Longest wait for an answer that needs no rank."""

Send = Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]


@dataclass(frozen=True)
class About:
    """What the driver must know of a rank that joins."""

    name: str
    address: str
    tartan: str
    messages: int


@dataclass(frozen=True)
class Directory:
    """A view, with the address of every member."""

    view: ClusterView
    addresses: Mapping[str, str]


class Courier:
    """Sends to members; posts to one member go one after the other.

    Parameters
    ----------
    send : coroutine function
        See the module.

    Attributes
    ----------
    addresses : mapping of str to str
        Of the members.
    """

    def __init__(self, send: Send) -> None:
        self.addresses: Mapping[str, str] = {}
        self._send = send
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def call(self, address: str, **fields: Any) -> Mapping[str, Any]:
        """Send fields to an address; raises OSError also where no answer comes."""
        try:
            return await asyncio.wait_for(self._send(address, **fields), CALL_SECONDS)
        except TimeoutError:
            raise OSError(f"no answer within {CALL_SECONDS:g} s") from None

    async def request(self, peer: str, data: bytes, seconds: float) -> Mapping[str, Any]:
        """Return ``data`` with the reply, or ``lost`` with the reason; nothing where no reply came in time."""
        address = self.addresses.get(peer)
        if address is None:
            return {"lost": f"{peer} has no address"}
        sent = self._send(address, do="message", data=data, seconds=seconds)
        try:
            return await asyncio.wait_for(sent, seconds + CALL_SECONDS)
        except TimeoutError:
            return {}
        except OSError as error:
            return {"lost": f"{peer} cannot be reached: {error}"}

    async def post(self, peer: str, data: bytes) -> None:
        """Send a message that is lost where the peer cannot be reached."""
        async with self._turns[peer]:
            address = self.addresses.get(peer)
            if address is not None:
                with contextlib.suppress(OSError):
                    await self.call(address, do="post", data=data)
