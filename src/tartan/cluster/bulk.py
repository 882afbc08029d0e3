"""Large buffers from rank to rank, beside the engine: straight from the sender's memory into the receiver's.

One listener a rank; who wants something connects to it. Before anything else both ends show that they know the run's
token, without sending it; with certificates, inside TLS. Then the connection carries any number of exchanges:

    asks     length (4 bytes), request
    answers  status (1), length of the head (4), number of buffers (4), head, their sizes (8 each), the buffers

A buffer is sent from a memoryview and received into one that the asker chooses after it has seen head and sizes; no
bytes are copied in between, and no memory is taken because a peer names a number. What a peer may name is limited,
every wait has a deadline, and connections that break these rules are closed with one line in the log.

Deadlocks: a server never asks, so no wait for a buffer goes in a circle.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tartan.base.format import reason_of
from tartan.base.logs import logger_of
from tartan.cluster.bulk_socket import BulkSocket, Throttle, hang_up
from tartan.cluster.engine import Credentials
from tartan.errors import ConfigError, TransportError
from tartan.workers.arena import memory_file

_log = logger_of(__name__)

# By contract: a request names spans or ranges, and who asks for more asks twice; a bound on what a stranger can make a
# rank hold.
REQUEST_LIMIT = 64 << 10
# HEAD_LIMIT and BUFFER_LIMIT, by judgement: the head of an answer describes its buffers, some bytes each; bounds on
# what a peer can make a rank hold. No benchmark.
HEAD_LIMIT = 1 << 20
# By judgement, see HEAD_LIMIT.
BUFFER_LIMIT = 1 << 16

_MAGIC = b"TARTAN1\n"
# By format: 128 bits, which do not repeat.
_NONCE_BYTES = 16
_PROOF_BYTES = hashlib.sha256().digest_size
_ASK = struct.Struct("<I")
_ANSWER = struct.Struct("<BII")
_DONE, _FAILED = 0, 1
# By judgement: a handshake with TLS takes milliseconds; the rest is for a busy machine. No benchmark.
_HELLO_SECONDS = 5.0
# By judgement: a connection that nobody used for two minutes is cheaper to open again than to keep. No benchmark.
_IDLE_SECONDS = 120.0
# By judgement: longest pause of a receiver that takes nothing; below the 60 s that the asker waits for an answer.
_SEND_SECONDS = 30.0
# By convention of this cluster: as distributed.comm.timeouts.connect, which is set to 3 s because Dask's default of
# 30 s holds a rank up beside a dead peer.
_CONNECT_SECONDS = 3.0
# _MOST_STRANGERS and _MOST_PEERS, by judgement: a thread each; as many ranks as ask one at a time (ASKERS is 8) in a
# cluster of tens of nodes, and not so many that strangers take all threads. No benchmark.
_MOST_STRANGERS = 16
_MOST_PEERS = 256
# By judgement: twenty refusals say what is wrong; a scanner of ports would fill the log. No benchmark.
_MOST_LINES = 20
# By judgement: one question and one answer at the same time; each costs the peer a thread. No benchmark.
_IDLE_EACH = 2


def _release_nothing() -> None:
    """Release nothing."""


@dataclass(frozen=True)
class Parcel:
    """The answer to a request.

    Attributes
    ----------
    head : bytes
        What the asker must know to place the buffers.
    buffers : sequence of memoryview
        Contiguous bytes, sent from where they lie.
    release : callable
        Called once they are sent, or cannot be.
    """

    head: bytes
    buffers: Sequence[memoryview] = ()
    release: Callable[[], None] = _release_nothing


Serve = Callable[[bytes], Parcel]
Place = Callable[[bytes, tuple[int, ...]], Sequence[memoryview]]


class BulkServer:
    """Answers requests for buffers, in a thread a connection.

    Parameters
    ----------
    serve : callable
        Returns the parcel for a request; called in several threads. What it raises goes to the asker as text.
    credentials : Credentials
        Token and certificates of the run.
    host : str
        Interface to listen on.
    log : callable
        Receives one line for each of the first connections that do not keep to the protocol.
    throttle : Throttle, optional
        Bounds the speed of all connections together.

    Attributes
    ----------
    address : tuple of (str, int)
        Where others connect.
    """

    def __init__(
        self,
        serve: Serve,
        credentials: Credentials,
        *,
        host: str = "127.0.0.1",
        log: Callable[[str], None],
        throttle: Throttle | None = None,
    ) -> None:
        self._serve, self._token, self._log, self._throttle = serve, credentials.token, log, throttle
        self._context = tls_context(credentials, server=True)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._n_strangers = self._n_told = 0
        self._closed = False
        self._listener = socket.create_server((host, 0), backlog=128)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name="tartan-bulk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more, and break all connections."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for connection in (self._listener, *connections):
            hang_up(connection)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, origin = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.01)  # out of descriptors: those in use come free
                continue
            refusal = self._admit(connection)
            if refusal:
                connection.close()
                self._tell(f"bulk connection from {origin[0]} refused: {refusal}")
            else:
                name = f"tartan-bulk-{origin[1]}"
                threading.Thread(target=self._attend, args=(connection, origin[0]), name=name, daemon=True).start()

    def _admit(self, connection: socket.socket) -> str:
        with self._lock:
            if self._closed:
                return "this rank is ending"
            if self._n_strangers >= _MOST_STRANGERS or len(self._connections) >= _MOST_PEERS:
                return f"{len(self._connections)} are open, {self._n_strangers} of them unknown"
            self._connections.add(connection)
            self._n_strangers += 1
            return ""

    def _attend(self, connection: socket.socket, host: str) -> None:
        try:
            known = self._welcome(connection)
            with self._lock:
                self._connections.discard(connection)
                self._connections.add(known.raw)
                self._n_strangers -= 1
        except (OSError, TransportError) as error:
            self._forget(connection, stranger=True)
            self._complain(host, error)
            return
        try:
            while self._exchange(known):
                pass
        except (OSError, TransportError) as error:
            self._complain(host, error)
        finally:
            self._forget(known.raw, stranger=False)

    def _complain(self, host: str, error: Exception) -> None:
        if not self._closed:
            self._tell(f"bulk connection from {host} closed: {reason_of(error)}")

    def _tell(self, line: str) -> None:
        """Log a line, and of a flood of them the first."""
        with self._lock:
            self._n_told += 1
            n_told = self._n_told
        if n_told <= _MOST_LINES:
            _log.info("%s", line)
            self._log(line if n_told < _MOST_LINES else f"{line}; further ones are not told")

    def _forget(self, connection: socket.socket, *, stranger: bool) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._n_strangers -= stranger
        connection.close()

    def _welcome(self, connection: socket.socket) -> BulkSocket:
        """Exchange proofs of the token; the whole of it within a few seconds."""
        connection.settimeout(_HELLO_SECONDS)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        known = BulkSocket(connection, self._throttle)
        try:
            self._verify(known)
        except BaseException:
            known.close()
            raise
        return known

    def _verify(self, known: BulkSocket) -> None:
        known.limit(_HELLO_SECONDS)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        known.send(_MAGIC + nonce)
        theirs = known.receive(_NONCE_BYTES + _PROOF_BYTES)
        nonces = nonce + theirs[:_NONCE_BYTES]
        if not hmac.compare_digest(theirs[_NONCE_BYTES:], _proof(self._token, b"asks", nonces)):
            raise TransportError("it does not know the token of this run")
        known.send(_proof(self._token, b"answers", nonces))

    def _exchange(self, known: BulkSocket) -> bool:
        """Answer one request; return whether there may be another."""
        known.limit(_IDLE_SECONDS)
        try:
            first = known.receive_some(_ASK.size)
        except TimeoutError:
            return False  # it has nothing to ask
        if not first:
            return False
        known.limit(_HELLO_SECONDS)
        (length,) = _ASK.unpack(first + known.receive(_ASK.size - len(first)))
        if length > REQUEST_LIMIT:
            raise TransportError(f"a request of {length:,} bytes, the limit is {REQUEST_LIMIT:,}")
        request = known.receive(length)
        try:
            parcel = self._serve(request)
        except Exception as error:
            reason = reason_of(error).encode()
            known.send(_ANSWER.pack(_FAILED, len(reason), 0) + reason)
            return True
        try:
            _send_parcel(known, parcel)
        finally:
            parcel.release()
        return True


def _send_parcel(known: BulkSocket, parcel: Parcel) -> None:
    sizes = [buffer.nbytes for buffer in parcel.buffers]
    if len(parcel.head) > HEAD_LIMIT or len(sizes) > BUFFER_LIMIT:
        raise TransportError(f"a parcel with a head of {len(parcel.head):,} bytes and {len(sizes):,} buffers")
    known.limit(_SEND_SECONDS)
    head = _ANSWER.pack(_DONE, len(parcel.head), len(sizes)) + parcel.head
    known.send(head + struct.pack(f"<{len(sizes)}Q", *sizes))
    for buffer in parcel.buffers:
        known.send_large(buffer.cast("B"), _SEND_SECONDS)


class BulkClient:
    """Asks servers for buffers; keeps a few connections to each.

    Parameters
    ----------
    credentials : Credentials
    hello_seconds : float
        Longest wait for the proof that the other side belongs to the run.

    Notes
    -----
    Threads may call it at the same time; each exchange has a connection of its own.
    """

    def __init__(self, credentials: Credentials, *, hello_seconds: float = _HELLO_SECONDS) -> None:
        self._token, self._hello_seconds = credentials.token, hello_seconds
        self._context = tls_context(credentials, server=False)
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[BulkSocket]] = defaultdict(list)
        self._busy: dict[BulkSocket, tuple[str, int]] = {}
        self._closed = False

    def fetch(self, address: tuple[str, int], request: bytes, place: Place, *, timeout_seconds: float) -> bytes:
        """Send a request; receive the buffers of its answer where ``place`` says.

        Parameters
        ----------
        address : tuple of (str, int)
            Of a server.
        request : bytes
            At most ``REQUEST_LIMIT``.
        place : callable
            Given the head of the answer and the sizes of its buffers, returns a writable memoryview for each, of just
            that size. What it raises ends the fetch and is raised from it.
        timeout_seconds : float
            For the answer to begin, and after that for any pause in it.

        Returns
        -------
        bytes
            The head.

        Raises
        ------
        TransportError
            If the server cannot be reached, does not know the token, refuses the request, or stops in between; what
            ``place`` returned then holds rubbish.
        """
        if len(request) > REQUEST_LIMIT:
            raise TransportError(f"a request of {len(request):,} bytes, the limit is {REQUEST_LIMIT:,}")
        try:
            with self._connection(address) as known:
                return _fetch(known, request, place, timeout_seconds)
        except OSError as error:
            what = f"{timeout_seconds:g} s without a byte" if isinstance(error, TimeoutError) else str(error)
            raise TransportError(f"the bulk connection to {address[0]}:{address[1]} failed: {what}") from None

    def drop(self, address: tuple[str, int]) -> None:
        """Break all connections to a server that is lost; fetches that wait for it raise."""
        with self._lock:
            idle = self._idle.pop(address, [])
            busy = [one for one, where in self._busy.items() if where == address]
        for one in idle:
            one.close()
        for one in busy:
            one.hang_up()

    def close(self) -> None:
        """Break all connections."""
        with self._lock:
            self._closed = True
            addresses = {*self._idle, *self._busy.values()}
        for address in addresses:
            self.drop(address)

    @contextlib.contextmanager
    def _connection(self, address: tuple[str, int]) -> Iterator[BulkSocket]:
        known = self._take(address)
        try:
            yield known
        except BaseException:
            known.close()  # what comes next on it is unknown
            raise
        else:
            with self._lock:
                keep = len(self._idle[address]) < _IDLE_EACH and not self._closed
                if keep:
                    self._idle[address].append(known)
            if not keep:
                known.close()
        finally:
            with self._lock:
                self._busy.pop(known, None)

    def _take(self, address: tuple[str, int]) -> BulkSocket:
        with self._lock:
            while self._idle[address]:
                known = self._idle[address].pop()
                if known.is_quiet():
                    self._busy[known] = address
                    return known
                known.close()
        known = self._connect(address)
        with self._lock:
            self._busy[known] = address
        return known

    def _connect(self, address: tuple[str, int]) -> BulkSocket:
        connection = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection)
            known = BulkSocket(connection)
            self._introduce(known)
        except BaseException:
            connection.close()
            raise
        return known

    def _introduce(self, known: BulkSocket) -> None:
        known.limit(self._hello_seconds)
        hello = known.receive(len(_MAGIC) + _NONCE_BYTES)
        if not hello.startswith(_MAGIC):
            raise TransportError("what listens there is not a rank of this version of Tartan")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        nonces = hello[len(_MAGIC) :] + nonce
        known.send(nonce + _proof(self._token, b"asks", nonces))
        try:
            theirs = known.receive(_PROOF_BYTES)
        except ConnectionError:
            raise TransportError("the rank there does not accept the token of this run") from None
        if not hmac.compare_digest(theirs, _proof(self._token, b"answers", nonces)):
            raise TransportError("what listens there does not know the token of this run")


def _fetch(known: BulkSocket, request: bytes, place: Place, timeout_seconds: float) -> bytes:
    known.limit(timeout_seconds)
    known.send(_ASK.pack(len(request)) + request)
    status, n_head, n_buffers = _ANSWER.unpack(known.receive(_ANSWER.size))
    if n_head > HEAD_LIMIT or n_buffers > BUFFER_LIMIT:
        raise TransportError(f"an answer with a head of {n_head:,} bytes and {n_buffers:,} buffers")
    known.limit(timeout_seconds)
    head = known.receive(n_head)
    if status != _DONE:
        raise TransportError(f"the rank refused the request: {head.decode(errors='replace')}")
    sizes: tuple[int, ...] = struct.unpack(f"<{n_buffers}Q", known.receive(8 * n_buffers))
    targets = place(head, sizes)
    if tuple(target.nbytes for target in targets) != sizes:
        raise TransportError(f"{len(sizes)} buffers arrive that do not fit the places for them")
    for target in targets:
        known.receive_large(target.cast("B"), timeout_seconds)
    return head


def _proof(token: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, side + nonces, "sha256")


def end_of(address: str) -> tuple[str, int]:
    """Return host and port of the address of a server, as a text.

    Raises
    ------
    TransportError
        If it is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TransportError(f"{address[:100]!r} is not an address of a rank")
    return host, int(port)


# TLS contexts from the certificates of a run: both ends show one, and no name is compared, as ranks have none.


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext | None:
    """Return a context for one end; None where the run has no certificates.

    Raises
    ------
    ConfigError
        If the certificate or its key cannot be used.
    """
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if server:
        context.num_tickets = 0  # connections are kept, not resumed
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.authority)
        _load_chain(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate of this process cannot be used: {error}") from None
    return context


def _load_chain(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load a certificate and its key, which the library takes from files alone."""
    descriptor = memory_file(0)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write((credentials.certificate + credentials.key).encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
