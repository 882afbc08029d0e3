"""Commands and answers between a session and its ranks as messages of an engine.

They are pickled: both ends are of one run, whose engine lets in only those who show its certificate, and a command
carries code anyway. What is larger than a message goes as several, which arrive in their order.
"""

from __future__ import annotations

import itertools
import pickle
import zlib
from typing import Any, NamedTuple

import cloudpickle

from tartan.base.logs import logger_of
from tartan.cluster import wire
from tartan.cluster.engine import PIECE_BYTES, ClusterEngine

_log = logger_of(__name__)

PART, WHOLE = "part", "whole"
"""What messages do that carry a part of a letter, and the last of it."""

_NUMBERS = itertools.count()


class _LetterPart(NamedTuple):
    number: int
    data: bytes


def post(engine: ClusterEngine, peer: str, letter: Any) -> None:
    """Send anything that can be pickled."""
    try:
        packed = pickle.dumps(letter)
    except Exception:
        packed = cloudpickle.dumps(letter)
    data, number = zlib.compress(packed, 1), next(_NUMBERS)
    _log.debug("letter %d to %s is a %s: %d bytes", number, peer, type(letter).__name__, len(data))
    while len(data) > PIECE_BYTES:
        engine.post(peer, PART, wire.encode(_LetterPart(number, data[:PIECE_BYTES])))
        data = data[PIECE_BYTES:]
    engine.post(peer, WHOLE, wire.encode(_LetterPart(number, data)))


class Letters:
    """Puts letters together again, of each sender its own; threads of a sender may post at the same time."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], bytearray] = {}

    def part(self, sender: str, body: bytes) -> None:
        """Take a part."""
        number, data = wire.decode(body, _LetterPart)
        self._begun.setdefault((sender, number), bytearray()).extend(data)

    def whole(self, sender: str, body: bytes) -> Any:
        """Take the last part; return the letter."""
        number, last = wire.decode(body, _LetterPart)
        data = bytes(self._begun.pop((sender, number), bytearray())) + last
        return pickle.loads(zlib.decompress(data))
