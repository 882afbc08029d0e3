"""Messages from one rank to another: send, receive, and requests that are waited for later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tartan._native import CommFailure, CommMemory
from tartan.comm.payload import as_bytes, buffer, make_payload, of_line, pack_description, parse_description
from tartan.errors import ConfigError, InternalError

if TYPE_CHECKING:
    from tartan.comm.state import RankSeat

ANY_SOURCE = -1
ANY_TAG = -1
# By limit of MPI_TAG_UB as MPICH and Open MPI have it.
_MOST_TAG = 2**31 - 1
_NO_LIMIT = 2**64 - 1
_DONE, _TOO_LONG, _PENDING = range(3)
# By format: flag::INLINE of crates/tartan-comm/src/line.rs.
_IN_LINE = 1 << 14
# By format: flag::STREAM there.
_IN_PARTS = 1 << 12
_WHOLE_NUMBER = int | np.integer

Reply = tuple[int, int, int, int, int, int, bytes]


class Status:
    """Where a received message came from.

    Attributes
    ----------
    source, tag : int
        The sender's rank in the communicator, and the tag.
    n_bytes : int
        Of the message.
    """

    source: int = ANY_SOURCE
    tag: int = ANY_TAG
    n_bytes: int = 0

    def __repr__(self) -> str:
        return f"Status(source={self.source}, tag={self.tag}, n_bytes={self.n_bytes})"


class Mailbox:
    """The messages of one communicator: its ranks as others know them, and its number.

    Parameters
    ----------
    state : RankSeat
    members : tuple of int
        Global numbers of the ranks.
    group : int
        Number of the communicator.
    """

    def __init__(self, state: RankSeat, members: tuple[int, ...], group: int) -> None:
        self._state, self._members, self._group = state, members, group
        self._places = {member: place for place, member in enumerate(members)}
        self._lent: list[tuple[CommMemory, int]] = []
        self._ended = False

    def send(self, data: Any, to: int, tag: int) -> None:
        """Send, and wait until a receive has taken the message."""
        array, to, tag = make_payload(data), self._peer("to", to), _tag(tag)
        description, kind = pack_description(array)
        try:
            reply = self._state.line.send(as_bytes(array), description, kind, to, tag, self._group)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        self._note_sent(reply, to)

    def isend(self, data: Any, to: int, tag: int) -> Pending:
        """Send without waiting."""
        array, to, tag = make_payload(data), self._peer("to", to), _tag(tag)
        description, kind = pack_description(array)
        try:
            number = self._state.line.isend(as_bytes(array), description, kind, to, tag, self._group)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        self._state.sends[number] = (to, tag, array.nbytes)
        return Pending(self, number, to=to)

    def exchange(
        self,
        data: Any,
        to: int,
        tag: int,
        out: Any,
        source: int,
        recv_tag: int,
        status: Status | None,
        shared: bool,
    ) -> NDArray[Any]:
        """Send while receiving; a large array goes from where it lies, unless it is received into."""
        array, into = make_payload(data), None if out is None else buffer("out", out)
        number = None
        if into is None or not np.may_share_memory(array, into):
            number = self._begin_stream(array, to, tag)
        if number is None:
            sending = self.isend(array, to, tag)
            received = self.recv(out, source, recv_tag, status, shared)
            sending.wait()
            return received
        try:
            received = self.recv(into, source, recv_tag, status, shared)
        finally:
            self._state.line.end_stream()
        Pending(self, number, to=to).wait()
        return received

    def _begin_stream(self, array: NDArray[Any], to: int, tag: int) -> int | None:
        to, tag = self._peer("to", to), _tag(tag)
        description, kind = pack_description(array)
        try:
            number = self._state.line.begin_stream(as_bytes(array), description, kind, to, tag, self._group)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        if number is not None:
            self._state.sends[number] = (to, tag, array.nbytes)
        return number

    def recv(self, out: Any, source: int, tag: int, status: Status | None, shared: bool) -> NDArray[Any]:
        """Wait for a message; return it, in ``out`` where that is given, in the memory of the node if ``shared``."""
        if status is not None and not isinstance(status, Status):
            raise ConfigError(f"status is {status!r}; give a comm.Status()")
        into = None if out is None else buffer("out", out)
        wanted = self._check_wanted(source, tag)
        try:
            reply = self._state.line.recv(*wanted, self._group, _NO_LIMIT if into is None else into.nbytes)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        return self._take_received(reply, into, status, shared)

    def irecv(self, out: Any, source: int, tag: int, shared: bool) -> Pending:
        """Receive without waiting."""
        into = None if out is None else buffer("out", out)
        wanted = self._check_wanted(source, tag)
        try:
            number = self._state.line.irecv(*wanted, self._group, _NO_LIMIT if into is None else into.nbytes)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        return Pending(self, number, into=into, shared=shared)

    def probe(self, source: int, tag: int, wait: bool) -> Status | None:
        """Return where the message comes from that a receive would take."""
        wanted = self._check_wanted(source, tag)
        try:
            reply = self._state.line.probe(*wanted, self._group, not wait)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        return None if reply[0] == _PENDING else self._tell(Status(), reply)

    def finish(self, pending: Pending, now: bool) -> bool:
        """Take the outcome of a request, if there is one now or ``now`` is false."""
        try:
            reply = self._state.line.wait(pending.number, now)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        if reply[0] == _PENDING:
            return False
        pending.done = True
        if pending.to is not None:
            self._state.sends.pop(pending.number, None)
            self._note_sent(reply, pending.to)
        else:
            pending.result = self._take_received(reply, pending.into, pending.status, pending.shared)
        return True

    def give_back(self) -> None:
        """End the views that ``shared`` receives have returned."""
        while self._lent:
            memory, block = self._lent.pop()
            memory.give_back(block)

    def end(self) -> None:
        """Carry no more messages: the communicator was freed."""
        self._ended = True

    def require_usable(self) -> None:
        """Refuse calls of a communicator that was freed, and those from a fork of the rank."""
        if self._ended:
            raise ConfigError("this communicator was freed; split anew")
        self._state.require_own_process()

    def wait_any(self, numbers: Sequence[int]) -> None:
        """Wait until one of some requests of this rank has ended."""
        try:
            known = self._state.line.wait_any(list(numbers))
        except CommFailure as failure:
            raise self._state.error(failure) from None
        if not known:
            raise InternalError("a request is not known")

    def is_of(self, other: Mailbox) -> bool:
        """Whether the requests of another mailbox are those of the same rank."""
        return self._state is other._state

    def _peer(self, name: str, rank: int) -> int:
        if not isinstance(rank, _WHOLE_NUMBER) or not 0 <= rank < len(self._members):
            raise ConfigError(f"{name}: rank {rank} does not exist; there are {len(self._members)}, from 0")
        self.require_usable()
        return self._members[rank]

    def _check_wanted(self, source: int, tag: int) -> tuple[int, int]:
        self.require_usable()
        peer = ANY_SOURCE if _is_any(source, ANY_SOURCE) else self._peer("source", source)
        return peer, ANY_TAG if _is_any(tag, ANY_TAG) else _tag(tag)

    def _note_sent(self, reply: Reply, to: int) -> None:
        status, _, tag, _, n_bytes, _, _ = reply
        if status == _TOO_LONG:
            place = self._places[to]
            raise ConfigError(
                f"the message of {n_bytes} bytes with tag {tag} is longer than the buffer in which rank {place} "
                "receives it; nothing was written"
            )
        if status != _DONE:
            raise InternalError(f"a message ended with status {status}")

    def _take_received(
        self, reply: Reply, into: NDArray[Any] | None, status: Status | None, shared: bool
    ) -> NDArray[Any]:
        code, source, tag, flags, n_bytes, block, inline = reply
        told = self._tell(Status() if status is None else status, reply)
        if code == _TOO_LONG:
            room = 0 if into is None else into.nbytes
            raise ConfigError(
                f"the message of {n_bytes} bytes from rank {told.source} with tag {tag} is longer than the buffer of "
                f"{room} bytes; nothing was written"
            )
        if code != _DONE:
            raise InternalError(f"a receive ended with status {code}")
        if flags & _IN_LINE:
            dtype, shape = of_line(flags, n_bytes)
            message = np.ndarray(shape, dtype, inline)
            return message if shared and into is None else _place(message, into, told)
        try:
            return self._fetch(source, block, n_bytes, into, told, shared, bool(flags & _IN_PARTS))
        except CommFailure as failure:
            raise self._state.error(failure) from None

    def _fetch(
        self,
        source: int,
        block: int,
        n_bytes: int,
        into: NDArray[Any] | None,
        told: Status,
        shared: bool,
        in_parts: bool,
    ) -> NDArray[Any]:
        line = self._state.line
        memory = line.memory(source, in_parts)
        description, begin = memory.description(block)
        dtype, shape = parse_description(description)
        if into is not None and into.dtype != dtype:
            memory.give_back(block)
            raise _unlike(into, dtype, told)
        if shared and into is None:
            if in_parts:
                begin = line.whole(memory, block, begin, n_bytes)
            view = memory.view(begin, n_bytes).view(dtype).reshape(shape)
            view.flags.writeable = False
            self._lent.append((memory, block))
            return view
        result = np.empty(shape, dtype) if into is None else into
        room = as_bytes(result)[:n_bytes]
        if in_parts:
            line.drain(memory, block, begin, room)
        else:
            memory.fetch(block, begin, room)
        return result

    def _tell(self, status: Status, reply: Reply) -> Status:
        status.source, status.tag, status.n_bytes = self._places[reply[1]], reply[2], reply[4]
        return status


class Pending:
    """A send or a receive that was begun; ``wait`` ends it.

    A receive that was not waited for keeps its message in the memory of the node.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        number: int,
        *,
        to: int | None = None,
        into: NDArray[Any] | None = None,
        shared: bool = False,
    ) -> None:
        self._mailbox, self.number, self.to, self.into, self.shared = mailbox, number, to, into, shared
        self.status = Status()
        self.result: NDArray[Any] | None = None
        self.done = self._freed = False

    def wait(self) -> NDArray[Any] | None:
        """Wait; return what was received, None for a send.

        Raises
        ------
        ConfigError
            If it was waited for already.
        """
        self._require_held()
        if not self.done:
            self._freed = True
            self._mailbox.finish(self, now=False)
        self._freed = True
        return self.result

    def test(self) -> bool:
        """Return whether ``wait`` would return at once."""
        self._require_held()
        return self.done or self._mailbox.finish(self, now=True)

    def _require_held(self) -> None:
        if self._freed:
            raise ConfigError("this request was waited for already; begin another one")


def wait_all(requests: Iterable[Pending]) -> list[NDArray[Any] | None]:
    """Wait for several requests; return what each received, None for sends.

    Raises
    ------
    ConfigError
        If one is not a request; none is waited for then.
    """
    asked = list(requests)
    for request in asked:
        if not isinstance(request, Pending):
            raise ConfigError(f"{request!r} is not a request; give what isend and irecv return")
    return [request.wait() for request in asked]


def wait_any(requests: Iterable[Pending]) -> tuple[int, NDArray[Any] | None]:
    """Wait until one of several requests has ended; return which, and what it received, None for a send.

    That request was waited for then; leave it out of the next call. Of several that have ended the first is returned.

    Raises
    ------
    ConfigError
        If there is none, one is not a request, or one was waited for already.
    """
    asked = list(requests)
    for request in asked:
        if not isinstance(request, Pending):
            raise ConfigError(f"{request!r} is not a request; give what isend and irecv return")
    if not asked or not all(asked[0]._mailbox.is_of(request._mailbox) for request in asked):
        raise ConfigError("wait_any takes one request or more of this rank")
    while True:
        for place, request in enumerate(asked):
            if request.test():
                return place, request.wait()
        asked[0]._mailbox.wait_any([request.number for request in asked])


def _is_any(number: int, mark: int) -> bool:
    return isinstance(number, _WHOLE_NUMBER) and number == mark


def _tag(tag: int) -> int:
    if not isinstance(tag, _WHOLE_NUMBER) or not 0 <= tag <= _MOST_TAG:
        raise ConfigError(f"tag {tag} is not a whole number from 0 to {_MOST_TAG}")
    return int(tag)


def _place(message: NDArray[Any], into: NDArray[Any] | None, told: Status) -> NDArray[Any]:
    if into is None:
        return message.copy()
    if into.dtype != message.dtype:
        raise _unlike(into, message.dtype, told)
    if into.shape == message.shape:
        into[...] = message
    else:
        into.reshape(-1)[: message.size] = message.reshape(-1)
    return into


def _unlike(into: NDArray[Any], dtype: np.dtype[Any], told: Status) -> ConfigError:
    return ConfigError(
        f"the message from rank {told.source} with tag {told.tag} is of {dtype}, the buffer of {into.dtype}; "
        "receive into an array of its dtype, or without one"
    )
