"""Messages as bytes: what goes through, and what is refused whatever arrives."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tartan.cluster import wire
from tartan.cluster.engine import LIMIT_BYTES, Oversize


@dataclass(frozen=True)
class Grant:
    """A message as core has them."""

    regions: tuple[tuple[int, int], ...]
    speed: float
    note: str | None = None


def envelope(**changes: object) -> wire.Envelope:
    values = {"version": wire.VERSION, "run": "r", "epoch": 3, "sender": "rank-0", "do": "want", "body": b"\x01"}
    return wire.Envelope(**{**values, **changes})  # type: ignore[arg-type]


def test_dataclasses_travel_with_their_types() -> None:
    grant = Grant(((0, 4), (4, 9)), 1.5)
    assert wire.decode(wire.encode(grant), Grant) == grant


def test_messages_are_maps_of_msgpack() -> None:
    assert msgspec.msgpack.decode(wire.seal(envelope()))["do"] == "want"


def test_an_envelope_goes_there_and_back() -> None:
    assert wire.open_envelope(wire.seal(envelope()), "r") == envelope()


def test_another_version_is_named_even_if_its_messages_look_different() -> None:
    other = msgspec.msgpack.encode({"version": 7, "job": "r", "payload": [1, 2]})
    with pytest.raises(wire.WireError, match="version 7 of the messages, this process version 1: install the same"):
        wire.open_envelope(other, "r")


def test_another_run_is_named() -> None:
    with pytest.raises(wire.WireError, match="a message of run 'old' is refused, this process belongs to run 'r'"):
        wire.open_envelope(wire.seal(envelope(run="old")), "r")


def test_sizes_are_limited_on_both_sides() -> None:
    with pytest.raises(Oversize, match=r"'want' has 1,048,\d+ bytes, a message at most 1,048,576"):
        wire.seal(envelope(body=bytes(LIMIT_BYTES)))
    with pytest.raises(wire.WireError, match="the limit is 1,048,576"):
        wire.open_envelope(bytes(LIMIT_BYTES + 1), "r")
    with pytest.raises(wire.WireError, match="refused"):
        wire.open_reply(bytes(2 * LIMIT_BYTES + 1))


HOSTILE = [
    b"",
    b"\x80\x04\x95",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 99999,
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: repr(data[:8]))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.open_envelope(data, "r")
    with pytest.raises(wire.WireError):
        wire.open_reply(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.open_envelope(data, "r")


@given(st.integers(0, 200), st.integers(1, 255))
def test_damaged_messages_are_read_or_refused(place: int, change: int) -> None:
    data = bytearray(wire.seal(envelope(body=wire.encode(Grant(((1, 2),), 0.5)))))
    data[place % len(data)] ^= change
    try:
        found = wire.open_envelope(bytes(data), "r")
    except wire.WireError:
        return
    assert isinstance(found.epoch, int)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(wire.WireError, match=r"are not a Grant: .*regions"):
        wire.decode(wire.encode({"regions": "all", "speed": 1.0}), Grant)
