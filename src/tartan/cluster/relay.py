"""Keeps a rank a member while the rank computes: starts it as a child, passes messages on, gives signs of life.

A relay runs on the event loop of a process that executes no user code, so it answers even while the rank holds its
interpreter lock. It does not look into messages. It says that the rank lives as long as the process of the rank is
there and is not stopped, says when it has ended and how, and ends it when the driver has been silent for too long.

It knows no network: see ``tartan.cluster.courier`` for what travels between relays and the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import logging
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tartan.base.child import describe_exit, die_with_parent, start_child
from tartan.base.format import printable, reason_of
from tartan.base.logs import LogSettings, close_private, logging_to, private_logger, rank_settings
from tartan.base.machine import tartan_version
from tartan.base.signals import end_beside_threads, has_workers, leave_interrupts_to_others
from tartan.cluster import wire
from tartan.cluster.courier import About, Courier, Directory, Send
from tartan.cluster.engine import LIMIT_BYTES, Capabilities, ClusterView, Credentials, PeerLost
from tartan.cluster.station import Station, fail, settle
from tartan.errors import ClusterError, ConfigError, InternalError, RunCancelledError, TartanError

# The rank's end of the pipe to its relay: an engine for a process that may hold the interpreter lock for long.
#
# The relay is the parent process. It started this one, keeps it a member, and passes messages on. This
# process ends with its relay, whatever it is doing at that time.

# By judgement: as WELCOME_SECONDS of cluster/rank.
_JOIN_SECONDS = 60.0


class ChildEngine(Station):
    """The engine of a rank that is a child of its relay.

    Parameters
    ----------
    connection : socket
        To the relay, which sends the setup first.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._tickets = itertools.count(1)
        self._calls: dict[int, Future[bytes]] = {}
        self._joined: Future[bytes] = Future()
        setup = self._setup()
        super().__init__(setup.run, setup.me, setup.capabilities)
        self.credentials, self.resources, self.host = setup.credentials, setup.resources, setup.host
        self.log = setup.log
        self._reader = threading.Thread(target=self._read, name="tartan-relay", daemon=True)

    def _setup(self) -> RankSetup:
        head = self._exactly(HEADER.size)
        kind, _, length = HEADER.unpack(head)
        if kind != Kind.SETUP:
            raise ClusterError(f"the relay began with frame {kind} instead of a setup")
        return wire.decode(self._exactly(length), RankSetup)

    def _exactly(self, n_bytes: int) -> bytes:
        data = self._connection.recv(n_bytes, socket.MSG_WAITALL)
        if len(data) < n_bytes:
            raise ClusterError("the relay ended before its setup")
        return data

    # Station

    def _join(self) -> None:
        self._reader.start()
        self._frame(Kind.JOIN, 0)
        try:
            self._joined.result(_JOIN_SECONDS)
        except TimeoutError:
            raise ClusterError(f"the driver did not admit {self.me} within {_JOIN_SECONDS:g} s") from None

    def _carry(self, peer: str, data: bytes, waiting: Future[bytes] | None, timeout_seconds: float) -> None:
        ticket = 0 if waiting is None else next(self._tickets)
        if waiting is not None:
            self._calls[ticket] = waiting
            waiting.add_done_callback(lambda _: self._calls.pop(ticket, None))
        self._frame(Kind.CALL, ticket, wire.encode(PassOn(peer, data, timeout_seconds)))

    def _depart(self, reason: str) -> None:
        self._frame(Kind.LEAVE, 0, reason.encode())

    # The socket

    def _frame(self, kind: Kind, ticket: int, body: bytes = b"") -> None:
        # A relay that is gone is noticed by the reader.
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(frame(kind, ticket, body))

    def _read(self) -> None:
        unframer = Unframer()
        with contextlib.suppress(OSError):
            while data := self._connection.recv(_RECEIVE_BYTES):
                for kind, ticket, body in unframer.take_bytes(data):
                    self._take(kind, ticket, body)
        reason = "its relay is gone"
        fail(self._joined, ClusterError(f"{self.me} cannot join: {reason}"))
        self.adopt(ClusterView(self.view().epoch + 1, (), {**self.view().gone, self.me: reason}))

    def _take(self, kind: Kind, ticket: int, body: bytes) -> None:
        match kind:
            case Kind.JOINED:
                self.adopt(wire.decode(body, ClusterView))
                settle(self._joined, b"")
            case Kind.REFUSED:
                fail(self._joined, ClusterError(body.decode()))
            case Kind.VIEW:
                view = wire.decode(body, ClusterView)
                if self.me in view.gone:
                    fail(self._joined, RunCancelledError(f"{self.me} cannot join: {view.gone[self.me]}"))
                self.adopt(view)
            case Kind.MESSAGE:
                self.receive(body, partial(self._frame, Kind.ANSWER, ticket) if ticket else None)
            case Kind.REPLY if ticket in self._calls:
                settle(self._calls[ticket], body)
            case Kind.LOST if ticket in self._calls:
                fail(self._calls[ticket], PeerLost(body.decode()))


def main(descriptor: int, parent_pid: int, entry: str) -> None:
    """Run ``module:function`` with an engine; the process ends with it, as Python does, or with its parent."""
    die_with_parent(parent_pid)
    leave_interrupts_to_others()  # to the driver
    os.set_inheritable(descriptor, False)
    status = 1
    try:
        with socket.socket(fileno=descriptor) as connection:
            engine = ChildEngine(connection)
            with logging_to(engine.log, engine.me, needed=False):
                entry_of(entry)(engine)
                engine.leave()
        status = 0
    except RunCancelledError:
        pass  # whoever ended the run says so
    except TartanError as error:
        print(printable(f"tartan: error: {reason_of(error)}"), file=sys.stderr)
    if has_workers():
        end_beside_threads(status)
    sys.exit(status)


def entry_of(entry: str) -> Callable[[ChildEngine], Any]:
    """Return the function that ``module:function`` names.

    Raises
    ------
    ConfigError
        If there is none.
    """
    module, _, name = entry.partition(":")
    try:
        found: Callable[[ChildEngine], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"there is no {entry!r} to run as a rank: {error}") from None
    return found


# By convention of Linux: a socket's buffer is 208 KiB by default (net.core.rmem_default).
_RECEIVE_BYTES = 1 << 18
# By judgement: 64 messages of LIMIT_BYTES; a rank that reads none of them is stuck. No benchmark.
_UNSENT_BYTES = 64 << 20
# By contract: the default of --rank-timeout; Dask itself tells a frozen worker after 8 to 13 s at best (measured,
# worker-ttl 5 s), so less would be false alarms on busy machines.
PATIENCE_SECONDS = 15.0
# By judgement: a rank ends its workers and writes what it knows; then it is killed. bench cluster_kill holds that
# nothing is left.
_GRACE_SECONDS = 5.0
# By judgement: a connection to a driver that moved takes CONNECT 3 s at most. No benchmark.
_LAST_TRY_SECONDS = 3.0
# By judgement: as a beat; a driver that answers later is asked whether it is there at all, which costs it nothing.
_DOUBT_SECONDS = 0.5
# By judgement: two refusals half a second apart: a process that is gone refuses for ever. No benchmark.
_REFUSALS = 2
# By judgement: without a driver nothing that the rank could still say is heard; it publishes what it is publishing.
_ORPHAN_SECONDS = 1.0
# By judgement: five beats; a driver that starts with its ranks listens by then. No benchmark.
_JOIN_TIMES = 5
_STOPPED = "TtZX"


@dataclass(frozen=True)
class RelayTask:
    """What a relay is to do; it travels to every process that is to hold one.

    Attributes
    ----------
    run : str
        Names the run.
    driver : str
        Address of the driver.
    entry : str
        ``module:function`` that the rank runs, with its engine.
    token : bytes
        Secret of the run.
    beat_seconds : float
        Time between two signs of life.
    patience_seconds : float
        Silence of the driver after which the rank is ended.
    log : LogSettings
        Of the driver.
    """

    run: str
    driver: str
    entry: str
    token: bytes = field(repr=False)
    beat_seconds: float = 0.5
    patience_seconds: float = PATIENCE_SECONDS
    log: LogSettings = field(default_factory=LogSettings)


class Relay:
    """One rank's link to the others; all methods run on one event loop.

    Parameters
    ----------
    task : RelayTask
    address : str
        Where others reach this relay.
    send : coroutine function
        ``await send(address, do=..., **fields)`` returns the fields of the answer; raises OSError if that fails.
    capabilities : Capabilities
    credentials : Credentials
        Certificates of this process; the token comes with the task.
    resources : mapping of str to float
    refuses : coroutine function, optional
        ``await refuses(address)``: whether the machine of an address is there, and no process listens; replaced in
        tests.
    """

    def __init__(
        self,
        task: RelayTask,
        address: str,
        send: Send,
        capabilities: Capabilities,
        credentials: Credentials,
        resources: Mapping[str, float],
        refuses: Callable[[str], Coroutine[Any, Any, bool]] | None = None,
    ) -> None:
        self._refuses = refuses or is_refused
        self.name = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        log = rank_settings(task.log, self.name)
        self._log = private_logger(log, "tartan.cluster", f"{self.name}/relay")
        self._task, self._address, self._courier = task, address, Courier(self.name, send, log=self._log)
        keys = Credentials(task.token, credentials.authority, credentials.certificate, credentials.key)
        self._setup = RankSetup(task.run, self.name, capabilities, keys, dict(resources), host_of(address), log)
        self._directory = Directory(ClusterView(), {})
        self._tickets = itertools.count(1)
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._ending = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        """Start the rank; it joins by itself when it is ready."""
        ours, theirs = socket.socketpair()
        try:
            descriptor = theirs.fileno()
            self._process = start_child(
                "tartan.cluster.relay:main", descriptor, os.getpid(), self._task.entry, pass_fds=(descriptor,)
            )
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        about = self._process.pid, self._task.run, self._address
        self._log.info("the rank is started: process %d, %s, its relay listens on %s", *about)
        self._tell(Kind.SETUP, 0, wire.encode(self._setup))
        self._spawn(self._listen(reader, self._process))
        self._spawn(self._beat())

    async def handle(self, do: str, data: bytes = b"", seconds: float = 0.0, **post: Any) -> dict[str, Any]:
        """Take what the driver or another relay sends."""
        self._log.debug("%s from %s to %s: %d bytes", do, post.get("sender", "a member"), self.name, len(data))
        if do == "view":
            self._adopt(wire.decode(data, Directory))
        elif do == "post":
            if self._courier.takes(**post):
                self._tell(Kind.MESSAGE, 0, data)
        elif do == "message":
            return await self._ask_rank(data, seconds)
        return {}

    async def close(self, reason: str, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Tell the rank that it is no longer a member; kill it if it does not end soon."""
        if not self._ending:
            self._log.info("the rank must end: %s", reason)
        self._ending = self._ending or reason
        view = self._directory.view
        gone = {**view.gone, self.name: view.gone.get(self.name, reason)}
        self._tell(Kind.VIEW, 0, wire.encode(ClusterView(view.epoch + 1, (), gone)))
        if self._process is not None:
            await _bury(self._process, grace_seconds)
        others = self._jobs - {asyncio.current_task()}
        for job in others:
            job.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._hang_up()
        close_private(self._log)

    # The rank

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _tell(self, kind: Kind, ticket: int, body: bytes = b"") -> bool:
        writer = self._writer
        if writer is None or writer.is_closing() or writer.transport.get_write_buffer_size() > _UNSENT_BYTES:
            return False
        writer.write(frame(kind, ticket, body))
        return True

    async def _listen(self, reader: asyncio.StreamReader, process: subprocess.Popen[bytes]) -> None:
        unframer = Unframer()
        try:
            while data := await reader.read(_RECEIVE_BYTES):
                for kind, ticket, body in unframer.take_bytes(data):
                    self._take(kind, ticket, body)
        except OSError:
            pass  # it ended with messages that it had not read
        except (ValueError, TartanError) as error:
            self._ending = self._ending or f"its messages cannot be read: {error}"
            process.kill()
        status = await _bury(process)
        self._log.log(logging.WARNING if status else logging.INFO, "the rank has ended: %s", describe_exit(status))
        self._ending = self._ending or f"its process ended: {describe_exit(status)}"
        self._hang_up()
        for answer in self._answers.values():
            answer.cancel()
        try:
            await self._to_driver("gone", name=self.name, reason=self._ending)
        except OSError as error:
            self._log.info("the driver could not be told that the rank has ended: %s", error)

    def _take(self, kind: Kind, ticket: int, body: bytes) -> None:
        match kind:
            case Kind.JOIN:
                self._spawn(self._join())
            case Kind.CALL:
                outgoing = wire.decode(body, PassOn)
                kind_of = "request" if ticket else "post"
                self._log.debug("%s from %s to %s: %d bytes", kind_of, self.name, outgoing.peer, len(outgoing.data))
                self._spawn(
                    self._pass_on(ticket, outgoing) if ticket else self._courier.post(outgoing.peer, outgoing.data)
                )
            case Kind.ANSWER if ticket in self._answers and not self._answers[ticket].done():
                self._answers[ticket].set_result(body)
            case Kind.LEAVE:
                self._ending = self._ending or f"it left: {body.decode()}"

    async def _ask_rank(self, data: bytes, seconds: float) -> dict[str, Any]:
        ticket = next(self._tickets)
        answer = self._answers[ticket] = asyncio.get_running_loop().create_future()
        try:
            if self._ending or not self._tell(Kind.MESSAGE, ticket, data):
                return {"lost": self._ending or f"{self.name} does not read its messages"}
            return {"data": await asyncio.wait_for(answer, seconds)}
        except (TimeoutError, asyncio.CancelledError):
            return {"lost": self._ending} if self._ending else {}
        finally:
            del self._answers[ticket]

    # The others

    def _adopt(self, directory: Directory) -> None:
        if directory.view.epoch > self._directory.view.epoch:
            self._know(directory)
            self._tell(Kind.VIEW, 0, wire.encode(directory.view))
            if self.name not in directory.view.members:
                self._spawn(self.close(directory.view.gone.get(self.name, "the driver has dropped it")))

    def _know(self, directory: Directory) -> None:
        self._directory = directory
        self._courier.addresses = directory.addresses

    async def _join(self) -> None:
        answer = await self._ask_in(About(self.name, self._address, tartan_version(), wire.VERSION))
        if "over" in answer:
            self._spawn(self.close("the run is over"))
            return
        if "refused" in answer:
            self._ending = str(answer["refused"])
            self._log.warning("the driver refuses this rank: %s", self._ending)
            self._tell(Kind.REFUSED, 0, self._ending.encode())
            return
        found = wire.decode(answer["data"], Directory)
        if found.view.epoch > self._directory.view.epoch:
            self._know(found)
        self._tell(Kind.JOINED, 0, wire.encode(self._directory.view))

    async def _ask_in(self, about: About) -> Mapping[str, Any]:
        reason = ""
        for _ in range(_JOIN_TIMES):
            try:
                return await self._to_driver("join", data=wire.encode(about))
            except OSError as error:
                reason = str(error)
                self._log.info("the driver at %s cannot be reached, and is tried again: %s", self._task.driver, reason)
                await asyncio.sleep(self._task.beat_seconds)
        return {"refused": f"the driver at {self._task.driver} cannot be reached: {reason}"}

    async def _pass_on(self, ticket: int, outgoing: PassOn) -> None:
        answer = await self._courier.request(outgoing.peer, outgoing.data, outgoing.timeout_seconds)
        if "data" in answer:
            self._tell(Kind.REPLY, ticket, answer["data"])
        elif "lost" in answer:
            self._tell(Kind.LOST, ticket, str(answer["lost"]).encode())

    async def _beat(self) -> None:
        heard = time.monotonic()
        patience = self._task.patience_seconds
        last_try = min(_LAST_TRY_SECONDS, patience / 4)
        while not self._ending:
            await asyncio.sleep(self._task.beat_seconds)
            left = patience - last_try - (time.monotonic() - heard)
            if not self._directory.view.epoch or not self._is_running():
                heard = time.monotonic()  # there is no sign of life to give, so no answer to miss
                continue
            try:
                await asyncio.wait_for(self._give_sign_or_find_gone(), max(left, last_try))
                heard = time.monotonic()
                continue
            except DriverGoneError:
                self._spawn(self.close("the process of the driver has ended", _ORPHAN_SECONDS))
                return
            except (OSError, TimeoutError):
                pass
            # Where this process was stopped, the driver may live: it is given up when it does not answer one more sign.
            if left <= 0:
                self._spawn(self.close(f"the driver was silent for {patience:g} s"))
                return

    def _is_running(self) -> bool:
        return self._process is not None and _is_running(self._process.pid)

    async def _give_sign_or_find_gone(self) -> None:
        """Give a sign of life; raises DriverGoneError where nothing listens any more at the address of the driver."""
        sign = asyncio.ensure_future(self._give_sign())
        refusals = 0
        try:
            while True:
                await asyncio.wait({sign}, timeout=_DOUBT_SECONDS)
                if sign.done() and sign.exception() is None:
                    return
                refusals = refusals + 1 if await self._refuses(self._task.driver) else 0
                if refusals >= _REFUSALS:
                    raise DriverGoneError(f"{self._task.driver} refuses connections")
                if sign.done():
                    if not refusals:
                        sign.result()
                    await asyncio.sleep(min(_DOUBT_SECONDS, self._task.beat_seconds))
        finally:
            sign.cancel()

    async def _give_sign(self) -> None:
        answer = await self._to_driver("beat", name=self.name, epoch=self._directory.view.epoch)
        if "data" in answer:
            self._adopt(wire.decode(answer["data"], Directory))

    async def _to_driver(self, do: str, **fields: Any) -> Mapping[str, Any]:
        return await self._courier.call(self._task.driver, do=do, **fields)

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


class DriverGoneError(Exception):
    """The machine of the driver says that no process listens there any more."""


async def is_refused(address: str) -> bool:
    """Whether the machine of an address is there, and no process listens; False where that cannot be known."""
    parts = urlsplit(address)
    try:
        connecting = asyncio.open_connection(parts.hostname, parts.port)
        _, writer = await asyncio.wait_for(connecting, _DOUBT_SECONDS)
    except ConnectionRefusedError:
        return parts.hostname is not None
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    return False


def _is_running(pid: int) -> bool:
    """Whether a process is there, and not stopped; True where that cannot be known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not Path("/proc/self/stat").exists()
    return text.rpartition(")")[2].split()[0] not in _STOPPED


async def _bury(process: subprocess.Popen[bytes], grace_seconds: float = _GRACE_SECONDS) -> int:
    """Wait for a process that should end; kill it if it does not; return its exit status."""
    wait = asyncio.get_running_loop().run_in_executor
    with contextlib.suppress(subprocess.TimeoutExpired):
        return await wait(None, process.wait, grace_seconds)
    process.kill()
    return await wait(None, process.wait)


def host_of(address: str) -> str:
    """Return the interface in the address of a relay; that of this machine alone where there is none."""
    return urlsplit(address).hostname or "127.0.0.1"


# What a rank and its relay say to each other over their socket: frames of a kind, a ticket and msgpack.
#
# The relay is the parent. It keeps the rank a member while the rank computes, and passes messages on.

HEADER = struct.Struct("<BQI")
# By contract: a message of LIMIT_BYTES and what wraps it, with room.
_LONGEST_BODY = 4 * LIMIT_BYTES


class Kind(IntEnum):
    """What a frame is; the type of its body beside it."""

    SETUP = 0  # to the rank, first: RankSetup
    JOIN = 1  # to the relay: the rank is ready to become a member
    JOINED = 2  # to the rank: ClusterView
    REFUSED = 3  # to the rank: why, as text
    CALL = 4  # to the relay: PassOn; a ticket of 0 asks for no answer
    REPLY = 5  # to the rank: the reply's bytes
    LOST = 6  # to the rank: why a call has no reply, as text
    MESSAGE = 7  # to the rank: an envelope; a ticket of 0 asks for no answer
    ANSWER = 8  # to the relay: the reply's bytes
    VIEW = 9  # to the rank: ClusterView
    LEAVE = 10  # to the relay: why, as text


@dataclass(frozen=True)
class RankSetup:
    """What a rank must know before it joins.

    Attributes
    ----------
    run, me : str
        Names of the run and of the rank.
    capabilities : Capabilities
    credentials : Credentials
    resources : mapping of str to float
    host : str
        Interface under which other ranks reach this one.
    log : LogSettings
        Of this rank.
    """

    run: str
    me: str
    capabilities: Capabilities
    credentials: Credentials
    resources: Mapping[str, float]
    host: str
    log: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True)
class PassOn:
    """A message that a relay is to pass on."""

    peer: str
    data: bytes
    timeout_seconds: float


def frame(kind: Kind, ticket: int, body: bytes = b"") -> bytes:
    """Return one frame."""
    return HEADER.pack(kind, ticket, len(body)) + body


class Unframer:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._inbox = bytearray()

    def take_bytes(self, data: bytes) -> Iterator[tuple[Kind, int, bytes]]:
        """Take bytes; yield the frames that are complete, as (kind, ticket, body)."""
        self._inbox += data
        while len(self._inbox) >= HEADER.size:
            kind, ticket, length = HEADER.unpack_from(self._inbox)
            if length > _LONGEST_BODY:
                raise InternalError(f"a frame of {length:,} bytes between a rank and its relay")
            end = HEADER.size + length
            if len(self._inbox) < end:
                return
            body = bytes(memoryview(self._inbox)[HEADER.size : end])
            del self._inbox[:end]
            yield Kind(kind), ticket, body
