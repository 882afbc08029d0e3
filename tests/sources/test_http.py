"""Inputs behind http addresses, from a real server on this machine, which does what servers do wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tartan.errors import ItemError
from tartan.sources.files import PATIENCE
from tartan.sources.items import open_source
from tartan.sources.remote import Patience, read_remote

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp", reason="the extra http is not installed")
pytestmark = pytest.mark.slow

DATA = bytes(range(256)) * 12_000  # 3 MB: more than one piece of any buffer on the way
ONCE = Patience(seconds=30.0, tries=1)


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the file that is asked for."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        name = self.path.strip("/")
        self.server.asked.append(name)
        if name == "silent":
            self.server.ended.wait()
            return
        if name == "absent":
            self.send_error(404)
            return
        if name in ("loop", "elsewhere"):
            self.send_response(302)
            self.send_header("Location", "/loop" if name == "loop" else "file:///etc/hostname")
            self.end_headers()
            return
        if name == "noise":
            self.send(b"x" * 9000, 9000)
            return
        self.send_response(200)
        if name in ("whole", "cut"):
            self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        if body:
            self.send(DATA[: len(DATA) // 2] if name == "cut" else DATA, 997 if name == "crumbs" else len(DATA))

    def send(self, data: bytes, step: int) -> None:
        try:
            for start in range(0, len(data), step):
                self.wfile.write(data[start : start + step])
        except OSError:  # the reader had enough
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ended = threading.Event()
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.ended.set()
        found.shutdown()
        thread.join()


def http() -> object:
    return fsspec.filesystem("http", skip_instance_cache=True)


@pytest.mark.parametrize("name", ["whole", "unsized", "crumbs"])
def test_a_file_comes_whole(name: str, server: Server) -> None:
    assert open_source(f"{server.url}/{name}").read(0) == DATA


@pytest.mark.parametrize("size_bytes", [-1, len(DATA)])
def test_a_body_that_is_cut_off_is_no_file(size_bytes: int, server: Server) -> None:
    with pytest.raises(Exception, match=r"(?i)payload|cut|bytes"):
        read_remote(http(), f"{server.url}/cut", size_bytes, 1 << 30, ONCE)


@pytest.mark.parametrize("size_bytes", [-1, 10])
def test_a_server_that_never_answers_is_left(size_bytes: int, server: Server) -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2"):
        read_remote(http(), f"{server.url}/silent", size_bytes, 1 << 30, Patience(seconds=0.2, tries=1))


def test_a_silent_server_is_left_after_half_a_minute(server: Server) -> None:
    pauses = PATIENCE.pause_seconds * (2 ** (PATIENCE.tries - 1) - 1)
    assert 25 < PATIENCE.tries * PATIENCE.seconds + pauses < 35
    patience = Patience(seconds=0.1, pause_seconds=0.01)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 seconds, asked 3 times"):
        read_remote(http(), f"{server.url}/silent", 10, 1 << 30, patience)


def test_a_file_that_is_not_there_is_asked_for_once_and_named(server: Server) -> None:
    with pytest.raises(ItemError, match="absent: cannot be read from http://127"):
        open_source(f"{server.url}/absent").read(0)
    assert server.asked.count("absent") <= 2  # its size, its content


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", ".*404"),
        ("loop", "TooManyRedirects"),
        ("elsewhere", "NonHttpUrlRedirect"),
        ("cut", ".*([Pp]ayload|bytes|cut)"),
    ],
)
def test_why_an_address_cannot_be_read_is_said(
    name: str, reason: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tartan.sources.remote.time.sleep", lambda seconds: None)  # between tries
    with pytest.raises(ItemError, match=f"{name}: cannot be read from {server.url}/{name}: {reason}"):
        open_source(f"{server.url}/{name}").read(0)


def test_noise_of_a_server_does_not_fill_the_reason(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr("tartan.sources.remote.time.sleep", lambda seconds: None)  # between tries
    with pytest.raises(ItemError, match=r"^noise: cannot be read from \S+: .{1,400}$"):
        open_source(f"{server.url}/noise").read(0)


def test_a_file_of_unknown_size_is_bounded(server: Server) -> None:
    with pytest.raises(ItemError, match="1,001 bytes or more"):
        open_source(f"{server.url}/unsized", max_item_bytes=1000).read(0)
