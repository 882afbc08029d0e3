"""What the driver does for ranks that do not see its files: the run folder, or the input.

The depot is a server of bulk data in the driver. A rank asks it for an excerpt of the run folder and for the bytes of
items, and has it commit finished chunks: the rank offers those on a server of its own, and the depot fetches each from
there before it answers. Only members of the run are served, so that a rank that was given up commits nothing.

Deadlocks: the depot waits for the server of a rank, and that server waits for nothing.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tartan.base.format import clip_middle, printable
from tartan.base.logs import logger_of
from tartan.cluster import wire
from tartan.cluster.bulk import BulkClient, BulkServer, Parcel, end_of
from tartan.cluster.engine import Credentials
from tartan.core.pairs.ledger import Failure
from tartan.errors import ItemError, StoreError, TartanError, TransportError
from tartan.sources.files import ListedFile
from tartan.sources.items import Source, file_of
from tartan.store.claims import EncodedChunk
from tartan.store.folder import RunFolder
from tartan.store.remote import excerpt

_log = logger_of(__name__)

# By judgement: a commit to a slow shared file system takes up to minutes, and giving up makes the rank compute the
# chunk again. No benchmark.
ANSWER_SECONDS = 300.0
"""Longest wait for the depot: it commits before it answers."""
# By judgement: as ANSWER_SECONDS of cluster/fetching.
FETCH_SECONDS = 60.0
# By judgement: what a rank lets a peer make it allocate; a chunk has tens of megabytes. No benchmark.
MOST_BYTES = 16 << 30
"""Of one answer."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Demand:
    """What a rank asks of the depot.

    Attributes
    ----------
    member : str
    do : str
        "folder", "item", "commit" or "statistics".
    number : int
        Of the item, or of the chunk among those that the rank offers.
    address : str
        Where the rank offers it.
    data : bytes
        Statistics as JSON.
    """

    member: str
    do: str
    number: int = 0
    address: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class _ChunkHead:
    """All of an encoded chunk but its files."""

    chunk: tuple[int, int]
    state: str
    failures: tuple[Failure, ...]


# By judgement: two lines of a screen hold a path and a reason. No benchmark.
LONGEST_LACK = 400


class Depot:
    """Serves ranks that do not see the run folder, or the input.

    Parameters
    ----------
    folder : RunFolder
        Open for writing, as one of several writers.
    source : Source
    credentials : Credentials
        Of the run.
    host : str
        Interface to listen on.
    members : callable
        Returns the names of the members of the run.
    failed : callable
        Receives an error of the run folder, which must stop the run.
    log : callable
        Receives one line for whatever the user should know.
    """

    def __init__(
        self,
        folder: RunFolder,
        source: Source,
        credentials: Credentials,
        host: str,
        *,
        members: Callable[[], Sequence[str]],
        failed: Callable[[TartanError], None],
        log: Callable[[str], None],
    ) -> None:
        self._folder, self._source = folder, source
        self._members, self._failed, self._log = members, failed, log
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()
        self._client = BulkClient(credentials)
        self._server = BulkServer(self._serve, credentials, host=host, log=log)
        self.address = "{}:{}".format(*self._server.address)

    def close(self) -> None:
        """Serve nothing more."""
        self._server.close()
        self._client.close()

    def _serve(self, data: bytes) -> Parcel:
        request = wire.decode(data, _Demand)
        if request.member not in self._members():
            raise TransportError(f"{request.member[:100]} is not a member of the run")
        match request.do:
            case "folder":
                self._tell(request, f"does not see {self._folder.path}; its chunks are committed here")
                return _parcel(wire.encode(excerpt(self._folder)))
            case "item":
                self._tell(request, f"{_lacks(request, self._source)}; items are read for it here")
                return _parcel(self._source.read(request.number))
            case "commit":
                return Parcel(wire.encode(self._commit(request)))
            case "statistics":
                self._keep_statistics(request)
                return Parcel(b"")
        raise TransportError(f"the depot does not know {request.do[:100]!r}")

    def _tell(self, request: _Demand, what: str) -> None:
        """Say once what a rank lacks."""
        with self._lock:
            known = (request.member, request.do) in self._told
            self._told.add((request.member, request.do))
        if not known:
            _log.info("rank %s %s", request.member, what)
            self._log(f"rank {request.member} {what}")

    def _commit(self, request: _Demand) -> bool:
        head, *files = _fetch_buffers(self._client, request.address, wire.encode(request.number), FETCH_SECONDS)
        about = wire.decode(head, _ChunkHead)
        try:
            return self._folder.commit_encoded(EncodedChunk(about.chunk, about.state, tuple(files), about.failures))
        except TartanError as error:
            self._failed(error)
            raise

    def _keep_statistics(self, request: _Demand) -> None:
        self._folder.write_stats_of(request.member, json.loads(request.data))
        self._folder.flush()


class DepotLink:
    """A rank's connection to the depot; the ``Keeping`` of its remote folder.

    Parameters
    ----------
    address : str
        Of the depot.
    member : str
        Name of this rank.
    credentials : Credentials
        Of the run.
    host : str
        Interface on which to offer chunks.
    log : callable
        Receives one line for every connection that does not keep to the protocol.
    """

    def __init__(
        self, address: str, member: str, credentials: Credentials, host: str, log: Callable[[str], None]
    ) -> None:
        self._address, self._member = address, member
        self._numbers = itertools.count()
        self._offered: dict[int, EncodedChunk] = {}
        self._client = BulkClient(credentials)
        self._listen = partial(BulkServer, self._offer, credentials, host=host, log=log)
        self._server: BulkServer | None = None

    def close(self) -> None:
        """Ask and offer nothing more."""
        if self._server is not None:
            self._server.close()
        self._client.close()

    def folder(self) -> dict[str, bytes]:
        """Return an excerpt of the run folder; chunks may be committed from now on."""
        self._server = self._server or self._listen()
        (data,) = self._ask("folder")
        return wire.decode(data, dict[str, bytes])

    def item(self, index: int, reason: str = "") -> bytes:
        """Return the bytes of an item, which cannot be read here for a reason; raises TransportError as there."""
        (data,) = self._ask("item", index, reason.encode())
        return data

    def commit(self, chunk: EncodedChunk) -> bool:
        """Have a chunk committed; see ``Keeping``."""
        assert self._server is not None
        number = next(self._numbers)
        self._offered[number] = chunk
        address = "{}:{}".format(*self._server.address)
        try:
            return wire.decode(self._head(_Demand(self._member, "commit", number, address)), bool)
        finally:
            del self._offered[number]

    def keep_statistics(self, statistics: bytes) -> None:
        """Have the statistics of this rank kept."""
        self._head(_Demand(self._member, "statistics", data=statistics))

    def _ask(self, do: str, number: int = 0, data: bytes = b"") -> list[bytes]:
        request = wire.encode(_Demand(self._member, do, number, data=data))
        return _fetch_buffers(self._client, self._address, request, ANSWER_SECONDS)

    def _head(self, request: _Demand) -> bytes:
        where = end_of(self._address)
        return self._client.fetch(where, wire.encode(request), _no_place, timeout_seconds=ANSWER_SECONDS)

    def _offer(self, request: bytes) -> Parcel:
        chunk = self._offered.get(wire.decode(request, int))
        if chunk is None:
            raise StoreError("this chunk is not offered any more", code="not-offered")
        head = wire.encode(_ChunkHead(chunk.chunk, chunk.state, chunk.failures))
        return Parcel(b"", [memoryview(part) for part in (head, *chunk.files)])


class BorrowedFiles:
    """Files of the input; what this rank cannot read, or finds changed, is read by the driver. A ``Source``.

    Parameters
    ----------
    source : Source
        Of kind "files".
    ask : callable
        Returns the bytes of an item as the driver reads them, given its index and why it cannot be read here; raises
        TransportError.

    Attributes
    ----------
    n_borrowed : int
        Items that the driver has read.
    """

    def __init__(self, source: Source, ask: Callable[[int, str], bytes]) -> None:
        self._source, self._ask = source, ask
        self.kind, self.n_items, self.keys = source.kind, source.n_items, source.keys
        self.read_block, self.fingerprints, self.describe = source.read_block, source.fingerprints, source.describe
        self.n_borrowed = 0

    def file(self, index: int) -> ListedFile | None:
        """Return the file of an item as this rank may see it."""
        return file_of(self._source, index)

    def read(self, index: int) -> bytes:
        """Return the bytes of a file; raises the error that arose here if the driver cannot read it either."""
        try:
            data: bytes = self._source.read(index)
        except ItemError as error:
            try:
                data = self._ask(index, _describe_lack(error))
            except TransportError:
                raise error from None
            self.n_borrowed += 1
        return data


def _lacks(request: _Demand, source: Source) -> str:
    """Return what a rank lacks: by its own words, shortened and without what moves a cursor."""
    said = printable(request.data.decode(errors="replace"))
    return clip_middle(said, LONGEST_LACK) if said else f"cannot read {source.keys[request.number]}"


def _describe_lack(error: ItemError) -> str:
    """Return which file this process cannot read, and why: it is the folder where that is not there."""
    path, reason = str(error.context.get("path") or ""), str(error)
    if path and "://" not in path and not Path(path).parent.is_dir():
        return f"does not see the folder {Path(path).parent} of the input"
    return f"cannot read {path}: {reason}" if path else f"cannot read {reason}"


def _parcel(data: bytes) -> Parcel:
    return Parcel(b"", [memoryview(data)])


def _fetch_buffers(client: BulkClient, address: str, request: bytes, seconds: float) -> list[bytes]:
    """Return the buffers of an answer."""
    buffers: list[bytearray] = []

    def place(head: bytes, sizes: tuple[int, ...]) -> list[memoryview]:
        if sum(sizes) > MOST_BYTES:
            raise TransportError(f"an answer of {sum(sizes):,} bytes, the limit is {MOST_BYTES:,}")
        buffers.extend(bytearray(size) for size in sizes)
        return [memoryview(buffer) for buffer in buffers]

    client.fetch(end_of(address), request, place, timeout_seconds=seconds)
    return [bytes(buffer) for buffer in buffers]


def _no_place(head: bytes, sizes: tuple[int, ...]) -> list[memoryview]:
    return []
