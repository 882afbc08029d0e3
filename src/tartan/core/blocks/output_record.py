"""What is known of an output that a command did not finish: which command it belongs to, which chunks are whole."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

_LINE = re.compile(rb"(?P<text>(?P<index>\d+(\.\d+)*) (?P<n_bytes>-1|\d+) (?P<crc>\d+)) (?P<total>\d+)")
ABSENT = -1
"""Bytes of a chunk of zeros alone, of which Zarr makes no file."""
# By judgement: a loss costs half a step of work on average, so a fiftieth for saving is never felt; at a tenth it would
# be. No benchmark.
_SAVED_SHARE = 0.02
"""Of the time of a command that may go into saving its steps."""


class ChunkSeal(NamedTuple):
    """What the file of a whole chunk is like."""

    n_bytes: int
    crc: int


def format_line(index: tuple[int, ...], seal: ChunkSeal) -> bytes:
    """Return the line of a record that says that a chunk is whole; the one before it may be torn.

    Examples
    --------
    >>> chunks_in(format_line((0, 2), ChunkSeal(80, 7)) + format_line((1, 2), ChunkSeal(90, 8))[:-3])
    {(0, 2): ChunkSeal(n_bytes=80, crc=7)}
    """
    text = f"{'.'.join(map(str, index))} {seal.n_bytes} {seal.crc}"
    return f"\n{text} {zlib.crc32(text.encode())}\n".encode()


def chunks_in(record: bytes) -> dict[tuple[int, ...], ChunkSeal]:
    """Return the chunks that a record says are whole; lines that are torn say nothing."""
    found = {}
    for line in record.split(b"\n"):
        whole = _LINE.fullmatch(line)
        if whole is not None and int(whole["total"]) == zlib.crc32(whole["text"]):
            index = tuple(map(int, whole["index"].split(b".")))
            found[index] = ChunkSeal(int(whole["n_bytes"]), int(whole["crc"]))
    return found


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in what a command is another one than that of an output.

    Examples
    --------
    >>> differences({"block": 64, "input a.npy": [8, 1]}, {"block": 32, "input a.npy": [8, 2]})
    ['block was 64, not 32', 'input a.npy has changed']
    """
    found = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old != new:
            plain = not isinstance(old, list) and not isinstance(new, list)
            found.append(f"{name} was {old}, not {new}" if plain else f"{name} has changed")
    return found


def is_due(seconds_since_saved: float, seconds_to_save: float) -> bool:
    """Whether a step is saved now: saving takes no more than a fiftieth of the time."""
    return seconds_to_save <= _SAVED_SHARE * seconds_since_saved
