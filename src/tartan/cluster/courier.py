"""Brings messages to members by their addresses: what relays and the driver do alike on their event loops.

``send`` stands for the network: ``await send(address, do=..., **fields)`` returns the fields of the answer, or raises
OSError. The fields that travel, ``do`` first:

- "message": ``data`` for a member, ``seconds`` to wait; answered by ``data``, or by ``lost`` with the reason.
- "post": ``data`` for a member, ``sender`` and ``number``. It is sent again until it is answered or the member is gone;
  the numbers of one sender grow, and one that was taken is not taken again.
- "view": ``data`` as ``Directory``, sent by the driver when members change.
- to the driver: "join" with ``data`` as ``About``, answered by a directory, or by ``refused`` with the reason; "beat"
  with ``name`` and ``epoch``, answered by a directory where it is newer; "gone" with ``name`` and ``reason``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from tartan.base.logs import logger_of
from tartan.cluster.engine import ClusterView

# By arithmetic: Dask's loop answers within 17 ms on busy cores (p99 30 to 50 ms); ten seconds are a peer that hangs,
# and less than a silent rank is given (PATIENCE_SECONDS).
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
    me : str
        Name of the member that sends.
    send : coroutine function
        See the module.
    retry_seconds : float
        Pause before a post is sent again.
    log : logging.Logger, optional
        Default: that of the package.

    Attributes
    ----------
    addresses : mapping of str to str
        Of the members.
    """

    def __init__(self, me: str, send: Send, *, retry_seconds: float = 0.2, log: logging.Logger | None = None) -> None:
        self._log = log or logger_of(__name__)
        self.addresses: Mapping[str, str] = {}
        self._me, self._send, self._retry_seconds = me, send, retry_seconds
        self._numbers = itertools.count(1)
        self._taken: dict[str, int] = {}
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
        """Send a message that is lost with its receiver alone."""
        number = next(self._numbers)
        n_failed = 0
        async with self._turns[peer]:
            while (address := self.addresses.get(peer)) is not None:
                try:
                    await self.call(address, do="post", data=data, sender=self._me, number=number)
                except OSError as error:
                    if not n_failed:
                        self._log.info("%s cannot be reached, and is tried until it can or is gone: %s", peer, error)
                    n_failed += 1
                    await asyncio.sleep(self._retry_seconds)
                else:
                    if n_failed:
                        self._log.info("%s has what it was sent after %d more tries", peer, n_failed)
                    return

    def takes(self, sender: str, number: int) -> bool:
        """Whether a post that has arrived is new; asked once for each."""
        new = number > self._taken.get(sender, 0)
        if new:
            self._taken[sender] = number
        return new
