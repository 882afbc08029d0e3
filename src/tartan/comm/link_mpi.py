"""The link over MPI: one process of ``mpiexec`` a node, whose leader alone calls MPI; its ranks never load it.

Messages go as bytes: a first part into a receive that is posted always, the rest, where there is one, into receives of
its length. The thread that waits for messages tests these receives and sleeps in between, the longer the less comes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tartan._native import CommArena
from tartan.comm.link import Arrived, Room, Share
from tartan.errors import ConfigError, ResourceError

NODES_DIFFER = "nodes-differ"
_OPEN_MPI = "Open MPI"
_RANKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", _OPEN_MPI),
    ("PMI_RANK", "PMI_SIZE", ""),
    ("PMIX_RANK", "PMIX_SIZE", ""),
)
# By judgement: one message of MPI for all but large payloads; buffers of 64 KiB wait at each node. `tartan bench comm
# parts=link` measures it.
_FIRST_BYTES = 1 << 16
# By limit of MPI's int, 2**31 - 1.
_PART_BYTES = 1 << 30  # lengths of MPI are int
_FIRST_TAG, _REST_TAG = 1, 2
_LENGTHS = struct.Struct("<QQ")  # of a message and of its bulk
_BYE = 1 << 63

# After how many seconds without a message the thread sleeps for how long between two looks.
_PAUSES = ((0.01, 50e-6), (1.0, 1e-3), (float("inf"), 2e-3))
# While a bulk is under way it does not sleep, for so many seconds after the last message: 2 GiB at 2 GB/s.
# By arithmetic; a node that is held up longer costs no core.
_AWAKE_SECONDS = 1.0
_SET_TIMER_SLACK = 29
_MPICH_MEMORY = "/dev/shm/mpich_"


@dataclass(frozen=True)
class MpiPlace:
    """Which of the processes of ``mpiexec`` this one is, and whose ``mpiexec`` it is where that is known."""

    node: int
    n_nodes: int
    vendor: str = ""


def mpi_place(environment: Mapping[str, str] = os.environ) -> MpiPlace:
    """Return this process's place, of what ``mpiexec`` has written into its environment.

    Raises
    ------
    ConfigError
        Outside ``mpiexec``.
    """
    for rank, size, vendor in _RANKS:
        if rank in environment and size in environment:
            return MpiPlace(int(environment[rank]), int(environment[size]), vendor)
    raise ConfigError(
        "--link mpi: this process was not started by mpiexec; start it so: mpiexec -n NODES tartan ... --link mpi"
    )


def require_joined(link: str | None, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to be one of several processes of ``mpiexec`` of which each would do all the work, unless a link is named.

    Raises
    ------
    ConfigError
    """
    sizes = [environment[size] for rank, size, _ in _RANKS if rank in environment and size in environment]
    if link is None and sizes and sizes[0] != "1":
        raise ConfigError(
            f"mpiexec has started {sizes[0]} of these, and each would do all the work; join them by --link mpi, or let "
            "each work for itself by --link loopback"
        )


def without_mpi(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what ``mpiexec`` has added: a rank is not a process of MPI."""
    begins = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return {name: value for name, value in environment.items() if not name.startswith(begins)}


@dataclass
class _Incoming:
    """What comes from one node: the receive for the first part of a message, then those for the rest."""

    first: bytearray = field(default_factory=lambda: bytearray(_FIRST_BYTES))
    message: bytearray | None = None
    length: int = 0
    n_bulk: int = 0
    token: Any = None
    requests: deque[Any] = field(default_factory=deque)


class MpiLink:
    """A link to the other processes of ``mpiexec``; see ``tartan.comm.link.NodeLink``.

    Parameters
    ----------
    place : MpiPlace
        Of this process.
    description : mapping of str to str
        What must be the same on all nodes: versions and options by name.
    patience_seconds : float
        How long the other nodes may take to end after this one; then the job is aborted.

    Attributes
    ----------
    partings : dict of int to bytes
        What other nodes have sent at their end, once this link is closed.
    share : tuple, optional
        By which nodes of the same machine map the memory of this one; set before ``open``.
    near : dict of int to tuple
        That of each other node that maps this one's memory, and whose memory this one maps.
    """

    def __init__(self, place: MpiPlace, description: Mapping[str, str], *, patience_seconds: float) -> None:
        self._place, self._description, self._patience_seconds = place, dict(description), patience_seconds
        self._others = [node for node in range(place.n_nodes) if node != place.node]
        self._incoming = {node: _Incoming() for node in self._others}
        self._sending: deque[tuple[Any, Any, Callable[[], None] | None]] = deque()
        self._last = time.monotonic()
        self.partings: dict[int, bytes] = {}
        self.share: Share | None = None
        self.near: dict[int, Share] = {}

    def open(self, room: Room) -> None:
        """Initialise MPI in this thread, compare the nodes, and post the first receives.

        Raises
        ------
        ConfigError
            If MPI cannot be loaded, is another one than that of ``mpiexec``, or nodes differ.
        """
        self._room = room
        self._mpi = _load_mpi()
        if self._place.vendor not in ("", self._mpi.get_vendor()[0]):
            raise self._other_mpiexec(f"is not {self._place.vendor}, whose mpiexec it is")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what is refused next
            self._mpi.Init_thread(self._mpi.THREAD_FUNNELED)
        self._world = self._mpi.COMM_WORLD
        try:
            self._require_this_mpiexec()
            require_alike(self._world.allgather(self._description))
            if self.share is not None:
                self._find_near(self.share)
        except BaseException:
            self._mpi.Finalize()
            raise
        _unname_memory()
        with contextlib.suppress(OSError, AttributeError):  # sleeps are longer, then
            ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(1000), 0, 0, 0)
        for node in self._others:
            self._expect(node)

    def _find_near(self, share: Share) -> None:
        """Find the nodes that read this one's memory as this one reads theirs: those of this machine."""
        shares: list[Share] = self._world.allgather(share)
        readable = {node for node in self._others if CommArena.reads(*shares[node])}
        reading: list[set[int]] = self._world.allgather(readable)
        self.near = {node: shares[node] for node in sorted(readable) if self._place.node in reading[node]}

    def _require_this_mpiexec(self) -> None:
        node, n_nodes = self._world.Get_rank(), self._world.Get_size()
        if (node, n_nodes) != (self._place.node, self._place.n_nodes):
            raise self._other_mpiexec(f"knows of {n_nodes}")

    def _other_mpiexec(self, problem: str) -> ConfigError:
        library = self._mpi.Get_library_version().split("\n")[0].rstrip("\0 ")
        return ConfigError(
            f"--link mpi: mpiexec has started {self._place.n_nodes} processes, of which this is number "
            f"{self._place.node}, but the library that mpi4py loads ({library}) {problem}; "
            "use the mpiexec of that library"
        )

    def send(
        self, node: int, message: bytes, bulk: memoryview | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        """Begin to send a message, and its bulk from where it lies."""
        self._send(node, len(message), message, bulk, sent)

    def _send(
        self,
        node: int,
        length: int,
        message: bytes,
        bulk: memoryview | None = None,
        sent: Callable[[], None] | None = None,
    ) -> None:
        n_bulk = 0 if bulk is None else len(bulk)
        framed = _LENGTHS.pack(length, n_bulk) + message
        if bulk is not None and _is_in_first(len(message), n_bulk):
            framed, bulk = framed + bulk, None
        view = memoryview(framed)
        parts = [(view[:_FIRST_BYTES], _FIRST_TAG), *((part, _REST_TAG) for part in _parts(view, _FIRST_BYTES))]
        if bulk is not None:
            parts += [(part, _REST_TAG) for part in _parts(bulk, 0)]
        for number, (part, tag) in enumerate(parts, 1):
            ended = sent if number == len(parts) else None
            request = self._world.Isend([part, self._mpi.BYTE], dest=node, tag=tag)
            if not request.Test():
                self._sending.append((request, part, ended))
            elif ended is not None:
                ended()
        self._last = time.monotonic()

    def receive(self, wake: int, seconds: float) -> list[Arrived]:
        """Return the messages that have come, with the nodes that they come from."""
        deadline = time.monotonic() + seconds
        pause = 0.0
        while True:
            woken = bool(select.select([wake], [], [], pause)[0])
            found = self._progress()
            now = time.monotonic()
            if woken:
                os.eventfd_read(wake)
            if woken or found:
                self._last = now
            if woken or found or now >= deadline:
                return found
            pause = min(pause_after(now - self._last, bulk=self._is_bulk_under_way()), deadline - now)
            if not pause:
                os.sched_yield()

    def _is_bulk_under_way(self) -> bool:
        """Whether more than the first part of a message is on its way: MPI moves it where it is called alone."""
        return bool(self._sending) or any(incoming.message is not None for incoming in self._incoming.values())

    def _progress(self) -> list[Arrived]:
        """Let MPI work; return the messages that are complete."""
        while self._sending and self._sending[0][0].Test():
            _, _, sent = self._sending.popleft()
            if sent is not None:
                sent()
        found = []
        for node, incoming in self._incoming.items():
            while incoming.requests and incoming.requests[0].Test():
                incoming.requests.popleft()
                if incoming.requests or not self._is_whole(node, incoming):
                    continue
                message = bytes(incoming.message or b"")
                if incoming.length & _BYE:
                    self.partings[node] = message
                    continue
                found.append((node, message, incoming.token))
                self._expect(node)
        return found

    def _is_whole(self, node: int, incoming: _Incoming) -> bool:
        """Whether a message is there with its bulk, whose receives have ended; else post those that come next."""
        if incoming.message is None:
            incoming.length, incoming.n_bulk = _LENGTHS.unpack_from(incoming.first)
            length = incoming.length & ~_BYE
            begun = min(length, _FIRST_BYTES - _LENGTHS.size)
            try:
                incoming.message = bytearray(length)
            except MemoryError:
                raise ResourceError(f"there is no memory for a message of {length:,} bytes from node {node}") from None
            incoming.message[:begun] = memoryview(incoming.first)[_LENGTHS.size : _LENGTHS.size + begun]
            if begun < length:
                self._post(node, incoming, memoryview(incoming.message)[begun:])
                return False
        if not incoming.n_bulk or incoming.token is not None:
            return True
        bulk, incoming.token = self._room(bytes(incoming.message), incoming.n_bulk)
        if _is_in_first(len(incoming.message), incoming.n_bulk):
            begin = _LENGTHS.size + len(incoming.message)
            bulk[:] = memoryview(incoming.first)[begin : begin + incoming.n_bulk]
            return True
        self._post(node, incoming, bulk)
        return False

    def _post(self, node: int, incoming: _Incoming, view: memoryview) -> None:
        for part in _parts(view, 0):
            incoming.requests.append(self._world.Irecv([part, self._mpi.BYTE], source=node, tag=_REST_TAG))

    def _expect(self, node: int) -> None:
        incoming = self._incoming[node]
        incoming.message = incoming.token = None
        buffer = [incoming.first, self._mpi.BYTE]
        incoming.requests.append(self._world.Irecv(buffer, source=node, tag=_FIRST_TAG))

    def forget(self, node: int) -> None:
        """Do nothing: ``mpiexec`` ends all when a node process is lost."""

    def close(self, parting: bytes) -> None:
        """Send what is queued and the parting, and end MPI with the others; abort where one of them does not end."""
        deadline = time.monotonic() + self._patience_seconds
        self._last = time.monotonic()
        for node in self._others:
            self._send(node, len(parting) | _BYE, parting)
        while self._sending or len(self.partings) < len(self._others):
            self._progress()
            if time.monotonic() > deadline:
                self._world.Abort(1)
            select.select([], [], [], pause_after(time.monotonic() - self._last))
        self._mpi.Finalize()


def _is_in_first(length: int, n_bulk: int) -> bool:
    """Whether a bulk comes in the first part of its message, behind it."""
    return _LENGTHS.size + length + n_bulk <= _FIRST_BYTES


def _parts(view: memoryview, begin: int) -> list[memoryview]:
    """Cut what lies behind a place into parts that MPI can count."""
    return [view[at : at + _PART_BYTES] for at in range(begin, len(view), _PART_BYTES)]


def pause_after(seconds: float, *, bulk: bool = False) -> float:
    """Return how long to sleep between two looks, some seconds after the last message; 0 at first under a bulk."""
    if bulk and seconds < _AWAKE_SECONDS:
        return 0.0
    return next(pause for least, pause in _PAUSES if seconds < least)


def require_alike(descriptions: list[dict[str, str]]) -> None:
    """Refuse nodes that differ, and name the first difference.

    Raises
    ------
    ConfigError
    """
    first = descriptions[0]
    for node, other in enumerate(descriptions):
        for name in sorted(first.keys() | other.keys()):
            mine, its = first.get(name, "nothing"), other.get(name, "nothing")
            if mine != its:
                text = f"--link mpi: the nodes differ: {name} is {mine} on node 0 and {its} on node {node}"
                raise ConfigError(text, code=NODES_DIFFER)


def _unname_memory() -> None:
    """Remove the names of memory that the processes of MPICH share, now that all have it: a killed one leaves them."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    for path in {line.split(maxsplit=5)[5] for line in maps if f" {_MPICH_MEMORY}" in line}:
        Path(path).unlink(missing_ok=True)  # another process of this machine was first


def _load_mpi() -> Any:
    """Return the module of MPI, not initialised."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # it is absent, or finds no library
        raise ConfigError(
            f"--link mpi needs mpi4py and an MPI library ({error}); install the extra: "
            "pip install 'tartan-allpairs[mpi]'"
        ) from error
    return MPI
