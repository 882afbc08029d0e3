"""Commands and answers between a session and its ranks as messages of an engine.

They are pickled: both ends are of one run, whose engine lets in only those who show its certificate, and a command
carries code anyway. What is larger than a message goes as several, which arrive in their order.
"""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import cloudpickle

from tartan.cluster import wire
from tartan.cluster.engine import ClusterEngine

PART, WHOLE = "part", "whole"
"""What messages do that carry a part of a letter, and the last of it."""

_PART_BYTES = 900_000


def post(engine: ClusterEngine, peer: str, letter: Any) -> None:
    """Send anything that can be pickled."""
    try:
        packed = pickle.dumps(letter)
    except Exception:
        packed = cloudpickle.dumps(letter)
    data = zlib.compress(packed, 1)
    while len(data) > _PART_BYTES:
        engine.post(peer, PART, wire.encode(data[:_PART_BYTES]))
        data = data[_PART_BYTES:]
    engine.post(peer, WHOLE, wire.encode(data))


class Letters:
    """Puts letters together again, of each sender its own."""

    def __init__(self) -> None:
        self._begun: dict[str, bytearray] = {}

    def part(self, sender: str, body: bytes) -> None:
        """Take a part."""
        self._begun.setdefault(sender, bytearray()).extend(wire.decode(body, bytes))

    def whole(self, sender: str, body: bytes) -> Any:
        """Take the last part; return the letter."""
        data = bytes(self._begun.pop(sender, bytearray())) + wire.decode(body, bytes)
        return pickle.loads(zlib.decompress(data))
