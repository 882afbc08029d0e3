"""The communicator of a CPU rank: messages and collectives in the memory of its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan._native import CommFailure, CommGroup
from tartan.base.checks import whole
from tartan.base.format import pluralize
from tartan.comm.communicator import (
    Operation,
    fold_by,
    join_operation,
    name_operation,
    partition,
    require_operation,
    require_root,
)
from tartan.comm.messages import ANY_SOURCE, ANY_TAG, Mailbox, Pending, Status
from tartan.comm.payload import (
    Bytes,
    as_bytes,
    bundle,
    make_payload,
    make_receivable,
    pickle_object,
    signature,
    unbundle,
    unpickle_object,
)
from tartan.comm.state import RankSeat
from tartan.errors import ConfigError

_NOTHING: Bytes = np.empty(0, np.uint8)
# By arithmetic: 32,768 float64 are 256 KiB, so that what is folded stays in the second cache. No benchmark.
_FOLD_ITEMS = 1 << 15
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class RankCommunicator:
    """The ranks of a world or of a group of it, as one of them sees them.

    All ranks of the communicator call the same collectives in the same order; messages are taken in the order in which
    a rank sent them, for each receiver and tag. A rank communicates from one thread.

    Parameters
    ----------
    state : RankSeat
    members : sequence of int
        Global numbers of the ranks, in the order of this communicator.
    group, slot : int
        Number of the communicator; of its window in the memory of the node.
    """

    def __init__(self, state: RankSeat, members: Sequence[int], group: int, slot: int) -> None:
        self._state, self._members = state, tuple(members)
        self._mailbox = Mailbox(state, self._members, group)
        self._group = group
        self.rank = self._members.index(state.rank)
        self.size = len(self._members)
        here = [member for member in self._members if state.nodes[member] == state.nodes[state.rank]]
        self._local, self._n_local = here.index(state.rank), len(here)
        self._native = CommGroup(state.line, group, slot, self.rank, self._n_local)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank."""
        return tuple(self._state.nodes[member] for member in self._members)

    def send(self, data: Any, to: int, tag: int = 0) -> None:
        """Send an array or a buffer, and return when a receive has taken it."""
        self._mailbox.send(data, to, tag)

    def recv(
        self,
        out: Any = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        *,
        status: Status | None = None,
        shared: bool = False,
    ) -> NDArray[Any]:
        """Wait for a message and return it as an array.

        Parameters
        ----------
        out : array, optional
            Where it goes; a longer message is refused on both sides. A number here is the source.
        source, tag : int
            What to take; default: any.
        status : Status, optional
            Receives the source, the tag and the bytes.
        shared : bool
            Return the message read-only, where the sender laid it in the memory of the node; it holds until this rank's
            next collective of this communicator, and its memory is not free before. Not used with ``out``.
        """
        out, source, tag = _reorder(out, source, tag)
        return self._mailbox.recv(out, source, tag, status, shared)

    def isend(self, data: Any, to: int, tag: int = 0) -> Pending:
        """Begin to send; the data may be changed at once."""
        return self._mailbox.isend(data, to, tag)

    def irecv(self, out: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, shared: bool = False) -> Pending:
        """Begin to receive; ``wait`` returns the message."""
        out, source, tag = _reorder(out, source, tag)
        return self._mailbox.irecv(out, source, tag, shared)

    def send_object(self, thing: Any, to: int, tag: int = 0) -> None:
        """Send a Python object as a pickle, and return when ``receive_object`` has taken it.

        Raises
        ------
        ConfigError
            If it cannot be pickled.
        """
        self._mailbox.send(pickle_object(thing), to, tag)

    def receive_object(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, status: Status | None = None) -> Any:
        """Wait for what ``send_object`` sends, and return the object.

        Warnings
        --------
        A pickle can run any code where it is opened. Ranks are processes of one program, started by one user; do not
        hand on to ``send_object`` what came from elsewhere as a pickle, and start no ranks with those you do not trust.

        Raises
        ------
        ConfigError
            If the message is an array, which is lost then.
        """
        told = Status() if status is None else status
        return unpickle_object(self._mailbox.recv(None, source, tag, told, False), told.source, told.tag)

    def end_sends(self) -> str:
        """Wait until what this rank has sent is received, as it ends; return what never is."""
        return self._state.end_sends()

    def sendrecv(
        self,
        data: Any,
        to: int,
        source: int = ANY_SOURCE,
        *,
        tag: int = 0,
        recv_tag: int = ANY_TAG,
        out: Any = None,
        status: Status | None = None,
        shared: bool = False,
    ) -> NDArray[Any]:
        """Send to one rank while receiving from another; return what was received."""
        out, source, recv_tag = _reorder(out, source, recv_tag)
        return self._mailbox.exchange(data, to, tag, out, source, recv_tag, status, shared)

    def sendrecv_replace(
        self, array: NDArray[Any], to: int, source: int = ANY_SOURCE, *, tag: int = 0, recv_tag: int = ANY_TAG
    ) -> NDArray[Any]:
        """Send an array and receive another one in its place."""
        return self.sendrecv(array, to, source, tag=tag, recv_tag=recv_tag, out=array)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, *, wait: bool = True) -> Status | None:
        """Return where the next message comes from, and leave it; None without one where ``wait`` is false."""
        return self._mailbox.probe(source, tag, wait)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._exchange(b"barrier", _NOTHING)

    def all_gather(self, rows: Any, out: Any = None, *, shared: bool = False) -> NDArray[Any]:
        """Return the rows of all ranks, one below the other in the order of the ranks.

        Parameters
        ----------
        rows : array of shape (n, ...)
            The ranks may give unequal numbers of rows, also none; dtype and the other lengths are the same on all.
        out : array, optional
            Where the result goes.
        shared : bool
            Return a read-only view of the memory of the node, which holds until the next collective of this rank here.
        """
        array = make_payload(rows)
        if array.ndim == 0:
            raise ConfigError("all_gather takes rows, and a single number has none; give an array of one number")
        call = signature("all_gather", array.dtype, array.shape[1:])
        joined, places = self._exchange(call, _read_rows(array))
        return self._rows(array, joined, places, out, shared)

    def gather(self, rows: Any, root: int = 0, out: Any = None, *, shared: bool = False) -> NDArray[Any] | None:
        """Return the rows of all ranks on one of them, None on the others."""
        array = make_payload(rows)
        require_root(root, self.size)
        if array.ndim == 0:
            raise ConfigError("gather takes rows, and a single number has none; give an array of one number")
        call = signature(f"gather to {root}", array.dtype, array.shape[1:])
        joined, places = self._exchange(call, _read_rows(array))
        return self._rows(array, joined, places, out, shared) if self.rank == root else None

    def broadcast(self, array: Any, root: int = 0, *, out: Any = None, shared: bool = False) -> NDArray[Any]:
        """Return the array of one rank. The others give an array of the same shape and dtype."""
        require_root(root, self.size)
        if array is None:
            raise ConfigError(
                f"rank {self.rank} gives None to broadcast: all ranks give an array of the same shape and dtype, the "
                "others for instance np.empty(shape, dtype); where they do not know the shape, scatter([data] * size) "
                "on the root and scatter(root=root) elsewhere"
            )
        mine = make_payload(array)
        call = signature(f"broadcast from {root}", mine.dtype, mine.shape)
        joined, places = self._exchange(call, as_bytes(mine) if self.rank == root else _NOTHING)
        view = self._view_typed(places[root], mine.dtype, mine.shape)
        return _hand_out(view, out, shared, joined)

    def scatter(self, parts: Any = None, root: int = 0, *, out: Any = None, shared: bool = False) -> NDArray[Any]:
        """Return this rank's part of what one rank gives: an array for each, or one whose rows are divided evenly."""
        require_root(root, self.size)
        mine = bundle(self._parts(parts)) if self.rank == root else _NOTHING
        joined, places = self._exchange(b"scatter from %d" % root, mine)
        return _hand_out(unbundle(self._bytes(places[root]), self.rank), out, shared, joined)

    def all_to_all(self, parts: Any, *, out: Sequence[Any] | None = None, shared: bool = False) -> list[NDArray[Any]]:
        """Give each rank a part, an array each or the rows of one divided; return what each rank gave this one."""
        if out is not None and len(out) != self.size:
            raise ConfigError(f"out has {pluralize(len(out), 'array')} for {self.size} ranks; give one for each")
        joined, places = self._exchange(b"all_to_all", bundle(self._parts(parts)))
        views = [unbundle(self._bytes(place), self.rank) for place in places]
        into = [None] * self.size if out is None else out
        return [_hand_out(view, one, shared, joined) for view, one in zip(views, into)]

    def all_reduce(self, array: Any, op: Operation = "sum", *, out: Any = None, shared: bool = False) -> NDArray[Any]:
        """Return the arrays of all ranks folded in the order of the ranks: the same bits on all.

        Parameters
        ----------
        array : array
            Of the same shape and dtype on all ranks.
        op : {"sum", "prod", "min", "max"} or callable
            Of each element; or a function of two whole arrays, which returns one like them and changes the second not:
            f(f(a0, a1), a2), ... Every rank calls it for itself, so it is the same on all and always returns the same.
        out, shared
            As ``all_gather``.

        Raises
        ------
        ConfigError
            If there is no such operation for the dtype, or the function returns another shape.
        """
        mine = make_payload(array)
        require_operation(op, mine.dtype)
        call = signature(f"all_reduce {name_operation(op)}", mine.dtype, mine.shape)
        joined, places = self._exchange(call, as_bytes(mine))
        result, common = self._reduce_contributions(call, op, mine, places if mine.size else [], joined)
        return _hand_out(result, out, shared, common)

    def reduce(
        self, array: Any, op: Operation = "sum", root: int = 0, *, out: Any = None, shared: bool = False
    ) -> NDArray[Any] | None:
        """Return what ``all_reduce`` does on one rank, None on the others."""
        mine = make_payload(array)
        require_operation(op, mine.dtype)
        require_root(root, self.size)
        call = signature(f"reduce {name_operation(op)} to {root}", mine.dtype, mine.shape)
        joined, places = self._exchange(call, as_bytes(mine))
        result, common = self._reduce_contributions(call, op, mine, places if mine.size else [], joined)
        return _hand_out(result, out, shared, common) if self.rank == root else None

    def split(self, color: int | None, key: int = 0) -> RankCommunicator | None:
        """Return the communicator of the ranks that give the same color, in the order of their keys and ranks.

        A rank that gives None belongs to none.
        """
        state = self._state
        whole("color", 0 if color is None else color, _LEAST, _MOST)
        whole("key", key, _LEAST, _MOST)
        mine = np.array([[color is not None, color or 0, key, state.next_group]], np.int64)
        asked = self.all_gather(mine)
        colors = sorted({int(row[1]) for row in asked if row[0]})
        first = int(asked[:, 3].max())
        state.next_group = first + len(colors)
        order = sorted(range(self.size), key=lambda rank: (int(asked[rank, 2]), rank))
        places = [rank for rank in order if asked[rank, 0] and asked[rank, 1] == (color or 0)]
        members = [self._members[rank] for rank in places]
        if color is None:
            members = []
        slots = self.all_gather(np.array([self._open_window(members)], np.int64))
        if not members:
            return None
        slot = next(int(slots[rank]) for rank in places if self._is_here(self._members[rank]))
        return RankCommunicator(state, members, first + colors.index(int(color or 0)), slot)

    def free(self) -> None:
        """Use this communicator no more: all its ranks call it, and its room is there for other groups.

        Arrays that calls with ``shared=True`` have returned hold no longer. Requests that were begun can be waited for.

        Raises
        ------
        ConfigError
            If it is the communicator of all ranks, or was freed already.
        """
        if not self._group:
            raise ConfigError("the communicator of all ranks cannot be freed; free what split has returned")
        self._exchange(b"free", _NOTHING)
        self._mailbox.end()
        self._native.leave()

    def _is_here(self, member: int) -> bool:
        return self._state.nodes[member] == self._state.nodes[self._state.rank]

    def _open_window(self, members: list[int]) -> int:
        """Take a window for a new group, as the first of its ranks on this node; -1 otherwise."""
        if not members or next(member for member in members if self._is_here(member)) != self._state.rank:
            return -1
        slot = self._state.arena.take_slot()
        try:
            self._state.arena.found(slot, members)
        except OSError as error:
            raise ConfigError(f"{error}; free those that are used no more (free)") from None
        return slot

    def _exchange(self, call: bytes, contribution: Bytes) -> tuple[bool, list[tuple[int, int]]]:
        self._mailbox.require_usable()
        self._mailbox.give_back()
        try:
            return self._native.exchange(call, contribution)
        except CommFailure as failure:
            raise self._state.error(failure) from None

    def _bytes(self, place: tuple[int, int]) -> Bytes:
        return self._native.view(*place)

    def _view_typed(self, place: tuple[int, int], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if not place[1]:
            return np.empty(shape, dtype)
        return self._bytes(place).view(dtype).reshape(shape)

    def _rows(
        self, mine: NDArray[Any], joined: bool, places: list[tuple[int, int]], out: Any, shared: bool
    ) -> NDArray[Any]:
        """Return the rows that lie at some places, copied once or not at all."""
        row_bytes, total = _row_bytes(mine), sum(n_bytes for _, n_bytes in places)
        if row_bytes == 0:
            counts = [int(self._view_typed(place, np.dtype(np.int64), (1,))[0]) for place in places]
            return _hand_out(np.empty((sum(counts), *mine.shape[1:]), mine.dtype), out, shared, False)
        shape = (total // row_bytes, *mine.shape[1:])
        if shared and joined:
            return _hand_out(self._view_typed((places[0][0], total), mine.dtype, shape), out, True, True)
        result = np.empty(shape, mine.dtype) if out is None else make_receivable("out", out, mine.dtype, shape)
        self._native.copy(as_bytes(result))
        result.flags.writeable = not shared or out is not None
        return result

    def _reduce_contributions(
        self, call: bytes, op: Operation, mine: NDArray[Any], places: list[tuple[int, int]], joined: bool
    ) -> tuple[NDArray[Any], bool]:
        """Return the folded contributions, and whether they lie in the memory of the node."""
        if not places:
            return mine.copy(), False
        if callable(op):
            return fold_by(op, [self._view_typed(place, mine.dtype, mine.shape) for place in places]), False
        views = [self._view_typed(place, mine.dtype, (mine.size,)) for place in places]
        room = self._native.room(mine.nbytes) if joined else None
        if room is None:
            result = np.empty(mine.size, mine.dtype)
            _fold(op, views, result, 0, mine.size)
            return result.reshape(mine.shape), False
        result = self._view_typed((room, mine.nbytes), mine.dtype, (mine.size,))
        _fold(op, views, result, *partition(mine.size, self._n_local)[self._local])
        try:
            self._native.meet_here(call)
        except CommFailure as failure:
            raise self._state.error(failure) from None
        return result.reshape(mine.shape), True

    def _parts(self, parts: Any) -> list[NDArray[Any]]:
        if isinstance(parts, list | tuple):
            if len(parts) != self.size:
                raise ConfigError(f"{len(parts)} parts for {self.size} ranks; give one for each")
            return [make_payload(part) for part in parts]
        rows = make_payload(parts)
        if rows.ndim == 0:
            raise ConfigError("a single number cannot be divided among ranks; give an array, or one for each rank")
        return [rows[start:stop] for start, stop in partition(len(rows), self.size)]


def _reorder(out: Any, source: int, tag: int) -> tuple[Any, int, int]:
    """Return buffer, source and tag where the first argument may be the source."""
    if not isinstance(out, int | np.integer):
        return out, source, tag
    if source == ANY_SOURCE or tag == ANY_TAG:
        return None, int(out), tag if source == ANY_SOURCE else source
    raise ConfigError(f"rank {out} is given first, and {source} and {tag} after it; give one source and one tag")


def _row_bytes(rows: NDArray[Any]) -> int:
    return rows[:1].nbytes if len(rows) else int(np.prod(rows.shape[1:])) * rows.itemsize


def _read_rows(rows: NDArray[Any]) -> Bytes:
    """Return the bytes of some rows; how many there are where they have none."""
    return as_bytes(rows if _row_bytes(rows) else np.array([len(rows)], np.int64))


def _hand_out(view: NDArray[Any], out: Any, shared: bool, common: bool) -> NDArray[Any]:
    """Return a result: in ``out``, read-only where it is shared, else as an array of the caller's own.

    ``common`` says that the view lies where it holds until the next collective.
    """
    if out is not None:
        result = make_receivable("out", out, view.dtype, view.shape)
        result[...] = view
        return result
    result = view if (shared and common) or view.base is None else view.copy()
    result.flags.writeable = not shared
    return result


def _fold(op: str, views: list[NDArray[Any]], result: NDArray[Any], start: int, stop: int) -> None:
    """Fold some columns in the order of the ranks, as ((a0 + a1) + a2) + ..."""
    join = join_operation(op)
    for begin in range(start, stop, _FOLD_ITEMS):
        end = min(begin + _FOLD_ITEMS, stop)
        part = result[begin:end]
        part[...] = views[0][begin:end]
        for view in views[1:]:
            join(part, view[begin:end], out=part)
