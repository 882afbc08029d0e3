"""Large buffers beside the engine: where they land, who may ask, and what hostile peers cannot do."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tartan.cluster.bulk import HEAD_LIMIT, REQUEST_LIMIT, BulkClient, BulkServer, Parcel
from tartan.cluster.bulk_socket import Throttle
from tartan.cluster.certs import temporary_credentials
from tartan.cluster.engine import Credentials
from tartan.errors import TransportError

TOKEN = b"t" * 32
PLAIN = Credentials(TOKEN)
ITEMS = np.arange(300_000, dtype=np.uint8).reshape(3, 100_000)


@pytest.fixture(scope="module")
def certified() -> Credentials:
    return with_token(temporary_credentials())


def with_token(credentials: Credentials) -> Credentials:
    return Credentials(TOKEN, credentials.authority, credentials.certificate, credentials.key)


class Rank:
    """A server of three items, and what it wrote to its log."""

    def __init__(self, credentials: Credentials, throttle: Throttle | None = None) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.released: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.server = BulkServer(self.serve, credentials, log=self.lines.put, throttle=throttle)
        self.address = self.server.address

    def serve(self, request: bytes) -> Parcel:
        if request == b"none":
            raise LookupError("no such span")
        if request == b"vast":
            return Parcel(b"x" * (HEAD_LIMIT + 1))
        rows = [memoryview(ITEMS[int(word)]) for word in request.split()]
        return Parcel(b"head of " + request, rows, lambda: self.released.put(request))

    def logged(self) -> str:
        return self.lines.get(timeout=10)


@contextlib.contextmanager
def rank_of(credentials: Credentials = PLAIN, throttle: Throttle | None = None) -> Iterator[Rank]:
    rank = Rank(credentials, throttle)
    try:
        yield rank
    finally:
        rank.server.close()


@contextlib.contextmanager
def pair_of(credentials: Credentials = PLAIN) -> Iterator[tuple[Rank, BulkClient]]:
    with rank_of(credentials) as rank, contextlib.closing(BulkClient(credentials)) as client:
        yield rank, client


class Slots:
    """Host slots, and where a fetch puts its buffers."""

    def __init__(self, n: int) -> None:
        self.array = np.zeros((n, ITEMS.shape[1]), np.uint8)
        self.heads: list[bytes] = []

    def place(self, head: bytes, sizes: tuple[int, ...]) -> Sequence[memoryview]:
        self.heads.append(head)
        return [memoryview(row) for row in self.array[: len(sizes)]]


@pytest.mark.parametrize("encrypted", [False, True])
def test_buffers_land_where_the_asker_says(encrypted: bool, certified: Credentials) -> None:
    slots = Slots(2)
    with pair_of(certified if encrypted else PLAIN) as (rank, client):
        for request in (b"2 0", b"1 2", b"0 1"):
            head = client.fetch(rank.address, request, slots.place, timeout_seconds=10)
            assert head == b"head of " + request == slots.heads[-1]
            np.testing.assert_array_equal(slots.array, ITEMS[[int(word) for word in request.split()]])
            assert rank.released.get(timeout=10) == request


def test_several_threads_fetch_at_once() -> None:
    found: dict[int, bool] = {}
    with pair_of() as (rank, client):

        def fetch(number: int) -> None:
            slots = Slots(1)
            for _ in range(5):
                client.fetch(rank.address, b"%d" % (number % 3), slots.place, timeout_seconds=10)
            found[number] = bool((slots.array[0] == ITEMS[number % 3]).all())

        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == dict.fromkeys(range(6), True)


def test_what_the_server_cannot_serve_is_said_and_the_connection_stays() -> None:
    with pair_of() as (rank, client):
        with pytest.raises(TransportError, match="refused the request: LookupError: no such span"):
            client.fetch(rank.address, b"none", Slots(1).place, timeout_seconds=10)
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"
        with pytest.raises(TransportError, match="a request of 65,537 bytes, the limit is 65,536"):
            client.fetch(rank.address, bytes(REQUEST_LIMIT + 1), Slots(1).place, timeout_seconds=10)


def test_a_vast_head_is_not_sent() -> None:
    with pair_of() as (rank, client):
        with pytest.raises(TransportError, match="failed: the other side has hung up"):
            client.fetch(rank.address, b"vast", Slots(1).place, timeout_seconds=10)
        assert "a parcel with a head of 1,048,577 bytes" in rank.logged()


def test_places_must_fit() -> None:
    with pair_of() as (rank, client):
        with pytest.raises(TransportError, match="2 buffers arrive that do not fit"):
            client.fetch(rank.address, b"0 1", Slots(1).place, timeout_seconds=10)
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"


def test_another_token_is_refused_on_both_sides() -> None:
    with rank_of() as rank:
        stranger = BulkClient(Credentials(b"another"))
        with pytest.raises(TransportError, match="does not accept the token of this run"):
            stranger.fetch(rank.address, b"0", Slots(1).place, timeout_seconds=10)
        assert "127.0.0.1" in (line := rank.logged())
        assert "does not know the token of this run" in line
        assert rank.released.empty()


def test_a_server_that_does_not_know_the_token_is_refused() -> None:
    def pretend() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"TARTAN1\n" + bytes(16))
            connection.recv(48, socket.MSG_WAITALL)
            connection.sendall(bytes(32))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(TransportError, match="what listens there does not know the token"):
            BulkClient(PLAIN).fetch(listener.getsockname(), b"0", Slots(1).place, timeout_seconds=10)
        thread.join()


def test_certificates_of_another_authority_are_refused(certified: Credentials) -> None:
    with rank_of(certified) as rank:
        for credentials in (with_token(temporary_credentials()), PLAIN):
            with pytest.raises(TransportError):
                BulkClient(credentials, hello_seconds=0.2).fetch(rank.address, b"0", Slots(1).place, timeout_seconds=10)
            assert "closed: " in rank.logged()
        assert rank.released.empty()


def test_an_expired_certificate_is_refused() -> None:
    expired = with_token(temporary_credentials(days=-0.01))
    with rank_of(expired) as rank:
        with pytest.raises(TransportError, match="certificate has expired"):
            BulkClient(expired).fetch(rank.address, b"0", Slots(1).place, timeout_seconds=10)
        assert rank.logged()


@pytest.mark.exhaustive
def test_a_certificate_that_expires_ends_no_connection_and_begins_none() -> None:
    seconds = 8.0
    brief, begun = with_token(temporary_credentials(days=seconds / 86400)), time.monotonic()
    with rank_of(brief) as rank, contextlib.closing(BulkClient(brief)) as client:
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"
        threading.Event().wait(begun + seconds + 1.5 - time.monotonic())
        assert client.fetch(rank.address, b"2", Slots(1).place, timeout_seconds=10) == b"head of 2"
        with pytest.raises(TransportError, match="certificate has expired"):
            BulkClient(brief).fetch(rank.address, b"0", Slots(1).place, timeout_seconds=10)
        assert rank.logged()


def test_a_port_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(TransportError, match="Connection refused"):
        BulkClient(PLAIN).fetch(address, b"0", Slots(1).place, timeout_seconds=10)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" + b"x" * 60, b"\0" * 64, b"\x16\x03\x01\xff\xff" * 20])
def test_garbage_costs_one_line(data: bytes, encrypted: bool, certified: Credentials) -> None:
    credentials = certified if encrypted else PLAIN
    with pair_of(credentials) as (rank, client):
        with socket.create_connection(rank.address) as scanner:
            scanner.sendall(data)
            scanner.settimeout(10)
            with contextlib.suppress(ConnectionError):
                while scanner.recv(4096):
                    pass
        assert "bulk connection from 127.0.0.1 closed: " in rank.logged()
        assert rank.lines.empty()
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"


def test_a_scanner_that_hangs_up_costs_one_line() -> None:
    with pair_of() as (rank, client):
        socket.create_connection(rank.address).close()
        assert "closed: " in rank.logged()
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"
        assert rank.lines.empty()


def test_a_flood_of_scanners_costs_twenty_lines() -> None:
    with pair_of() as (rank, client):
        for number in range(20):
            socket.create_connection(rank.address).close()
            assert rank.logged().endswith("; further ones are not told") == (number == 19)
        for _ in range(20):
            with socket.create_connection(rank.address) as scanner:
                scanner.sendall(bytes(64))
                scanner.settimeout(10)
                with contextlib.suppress(ConnectionError):
                    while scanner.recv(4096):
                        pass
        assert client.fetch(rank.address, b"1", Slots(1).place, timeout_seconds=10) == b"head of 1"
        assert rank.lines.empty()


class Introduced:
    """A peer that knows the token and then does as it likes."""

    def __init__(self, address: tuple[str, int]) -> None:
        import hmac

        self.socket = socket.create_connection(address)
        self.socket.settimeout(10)
        hello = self.socket.recv(24, socket.MSG_WAITALL)
        nonces = hello[8:] + bytes(16)
        self.socket.sendall(bytes(16) + hmac.digest(TOKEN, b"asks" + nonces, "sha256"))
        assert self.socket.recv(32, socket.MSG_WAITALL) == hmac.digest(TOKEN, b"answers" + nonces, "sha256")


def test_a_vast_request_is_refused_before_it_is_read() -> None:
    with rank_of() as rank:
        peer = Introduced(rank.address)
        with peer.socket:
            peer.socket.sendall(struct.pack("<I", 2**32 - 1))
            assert peer.socket.recv(1) == b""
        assert "a request of 4,294,967,295 bytes, the limit is 65,536" in rank.logged()


def test_a_half_sent_request_costs_one_line() -> None:
    with rank_of() as rank:
        peer = Introduced(rank.address)
        with peer.socket:
            peer.socket.sendall(struct.pack("<I", 100) + b"half")
        assert "hung up" in rank.logged()


def answer_once(listener: socket.socket, answer: bytes) -> None:
    """Play a server that knows the token and answers whatever is asked with given bytes."""
    import hmac

    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"TARTAN1\n" + bytes(16))
        theirs = connection.recv(48, socket.MSG_WAITALL)
        connection.sendall(hmac.digest(TOKEN, b"answers" + bytes(16) + theirs[:16], "sha256"))
        connection.recv(5, socket.MSG_WAITALL)
        connection.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (struct.pack("<BII", 0, 2**31, 1), "a head of 2,147,483,648 bytes"),
        (struct.pack("<BII", 0, 0, 2**31), "2,147,483,648 buffers"),
        (struct.pack("<BIIQ", 0, 0, 1, 10 * 10**9), "1 buffers arrive that do not fit"),
        (struct.pack("<BIIQ", 0, 0, 1, 100_000) + b"half", "the other side has hung up"),
        (b"", "the other side has hung up"),
    ],
)
def test_hostile_answers_take_no_memory(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once, args=(listener, answer))
        thread.start()
        with pytest.raises(TransportError, match=message):
            BulkClient(PLAIN).fetch(listener.getsockname(), b"0", Slots(1).place, timeout_seconds=10)
        thread.join()


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def keep_silent() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"TARTAN1\n" + bytes(16))
                theirs = connection.recv(48, socket.MSG_WAITALL)
                import hmac

                connection.sendall(hmac.digest(TOKEN, b"answers" + bytes(16) + theirs[:16], "sha256"))
                stop.wait(10)

        thread = threading.Thread(target=keep_silent)
        thread.start()
        with pytest.raises(TransportError, match=r"0\.05 s without a byte"):
            BulkClient(PLAIN).fetch(listener.getsockname(), b"0", Slots(1).place, timeout_seconds=0.05)
        stop.set()
        thread.join()


def test_a_fetch_ends_when_its_server_is_dropped() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def serve(_request: bytes) -> Parcel:
        asked.set()
        go_on.wait(10)
        return Parcel(b"late")

    server = BulkServer(serve, PLAIN, log=lambda line: None)
    client = BulkClient(PLAIN)

    def drop() -> None:
        asked.wait(10)
        client.drop(server.address)

    thread = threading.Thread(target=drop)
    thread.start()
    with pytest.raises(TransportError, match="hung up"):
        client.fetch(server.address, b"0", Slots(1).place, timeout_seconds=10)
    go_on.set()
    thread.join()
    server.close()


def test_a_throttle_bounds_the_speed() -> None:
    waits: list[float] = []
    throttle = Throttle(100_000.0, clock=lambda: sum(waits), sleep=waits.append)
    with rank_of(throttle=throttle) as rank, contextlib.closing(BulkClient(PLAIN)) as client:
        client.fetch(rank.address, b"0 1 2", Slots(3).place, timeout_seconds=10)
    assert sum(waits) == pytest.approx(3.0)
