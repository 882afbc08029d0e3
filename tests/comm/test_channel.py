"""Pickles over a socket: in pieces, in bulk, and after the other end has gone."""

from __future__ import annotations

import pickle
import socket
import struct

from tartan.comm.channel import Channel


def test_messages_come_whole_however_they_are_cut() -> None:
    one, other = socket.socketpair()
    receiver = Channel(other)
    data = pickle.dumps({"rank": 1})
    message = struct.pack("<Q", len(data)) + data
    one.sendall(message[:5])
    assert receiver.receive() == []
    one.sendall(message[5:12])
    assert receiver.receive() == []
    one.sendall(message[12:] + message)
    assert receiver.receive() == [{"rank": 1}, {"rank": 1}]
    assert receiver.receive(wait=False) == []
    assert not receiver.closed
    one.close()
    receiver.close()


def test_what_was_sent_before_the_end_is_received() -> None:
    sender, receiver = (Channel(end) for end in socket.socketpair())
    for number in range(3):
        sender.send(number)
    sender.close()
    assert receiver.drain() == [0, 1, 2]
    assert receiver.closed
    receiver.close()


def test_sending_to_an_end_that_is_gone_is_noticed() -> None:
    sender, receiver = (Channel(end) for end in socket.socketpair())
    receiver.close()
    sender.send("in vain")
    assert sender.closed
    sender.close()
