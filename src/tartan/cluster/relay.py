"""Keeps a rank a member while the rank computes: starts it as a child, passes messages on, gives signs of life.

A relay runs on the event loop of a process that executes no user code, so it answers even while the rank holds its
interpreter lock. It does not look into messages. It says that the rank lives as long as the process of the rank is
there and is not stopped, says when it has ended and how, and ends it when the driver has been silent for too long.

It knows no network: see ``tartan.cluster.courier`` for what travels between relays and the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tartan.base.machine import tartan_version
from tartan.cluster import wire
from tartan.cluster.child import BOOT
from tartan.cluster.courier import About, Courier, Directory, Send
from tartan.cluster.engine import Capabilities, ClusterView, Credentials
from tartan.cluster.pipe import Kind, PassOn, RankSetup, Unframer, frame
from tartan.errors import TartanError
from tartan.workers.handle import describe_exit

_RECEIVE_BYTES = 1 << 18
_UNSENT_BYTES = 64 << 20
PATIENCE_SECONDS = 15.0
_GRACE_SECONDS = 5.0
_LAST_TRY_SECONDS = 3.0
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
    """

    run: str
    driver: str
    entry: str
    token: bytes = field(repr=False)
    beat_seconds: float = 0.5
    patience_seconds: float = PATIENCE_SECONDS


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
    """

    def __init__(
        self,
        task: RelayTask,
        address: str,
        send: Send,
        capabilities: Capabilities,
        credentials: Credentials,
        resources: Mapping[str, float],
    ) -> None:
        self.name = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        self._task, self._address, self._courier = task, address, Courier(self.name, send)
        keys = Credentials(task.token, credentials.authority, credentials.certificate, credentials.key)
        self._setup = RankSetup(task.run, self.name, capabilities, keys, dict(resources), host_of(address))
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
            self._process = _start(theirs, self._task.entry)
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._tell(Kind.SETUP, 0, wire.encode(self._setup))
        self._spawn(self._listen(reader, self._process))
        self._spawn(self._beat())

    async def handle(self, do: str, data: bytes = b"", seconds: float = 0.0, **post: Any) -> dict[str, Any]:
        """Take what the driver or another relay sends."""
        if do == "view":
            self._adopt(wire.decode(data, Directory))
        elif do == "post":
            if self._courier.takes(**post):
                self._tell(Kind.MESSAGE, 0, data)
        elif do == "message":
            return await self._ask_rank(data, seconds)
        return {}

    async def close(self, reason: str) -> None:
        """Tell the rank that it is no member any more; kill it if it does not end soon."""
        self._ending = self._ending or reason
        view = self._directory.view
        gone = {**view.gone, self.name: view.gone.get(self.name, reason)}
        self._tell(Kind.VIEW, 0, wire.encode(ClusterView(view.epoch + 1, (), gone)))
        if self._process is not None:
            await _bury(self._process)
        others = self._jobs - {asyncio.current_task()}
        for job in others:
            job.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._hang_up()

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
                for kind, ticket, body in unframer.feed(data):
                    self._take(kind, ticket, body)
        except OSError:
            pass  # it ended with messages that it had not read
        except (ValueError, TartanError) as error:
            self._ending = self._ending or f"its messages cannot be read: {error}"
            process.kill()
        status = await _bury(process)
        self._ending = self._ending or f"its process ended: {describe_exit(status)}"
        self._hang_up()
        for answer in self._answers.values():
            answer.cancel()
        with contextlib.suppress(OSError):
            await self._to_driver("gone", name=self.name, reason=self._ending)

    def _take(self, kind: Kind, ticket: int, body: bytes) -> None:
        match kind:
            case Kind.JOIN:
                self._spawn(self._join())
            case Kind.CALL:
                outgoing = wire.decode(body, PassOn)
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
        answer = await self._asked_in(About(self.name, self._address, tartan_version(), wire.VERSION))
        if "refused" in answer:
            self._ending = str(answer["refused"])
            self._tell(Kind.REFUSED, 0, self._ending.encode())
            return
        found = wire.decode(answer["data"], Directory)
        if found.view.epoch > self._directory.view.epoch:
            self._know(found)
        self._tell(Kind.JOINED, 0, wire.encode(self._directory.view))

    async def _asked_in(self, about: About) -> Mapping[str, Any]:
        reason = ""
        for _ in range(_JOIN_TIMES):
            try:
                return await self._to_driver("join", data=wire.encode(about))
            except OSError as error:
                reason = str(error)
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
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._give_sign(), max(left, last_try))
                heard = time.monotonic()
                continue
            # Where this process was stopped, the driver may live: it is given up when it does not answer one more sign.
            if left <= 0:
                self._spawn(self.close(f"the driver was silent for {patience:g} s"))
                return

    def _is_running(self) -> bool:
        return self._process is not None and _is_running(self._process.pid)

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


def _start(connection: socket.socket, entry: str) -> subprocess.Popen[bytes]:
    """Start the process of a rank; it is killed when the calling thread ends."""
    paths = [str(Path(path).absolute()) for path in sys.path if isinstance(path, str)]
    words = [str(connection.fileno()), str(os.getpid()), entry, json.dumps(paths)]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT, *words],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_stderr() else subprocess.DEVNULL,  # standard output is for data
        pass_fds=(connection.fileno(),),
    )


def _has_stderr() -> bool:
    try:
        os.fstat(2)
    except OSError:
        return False
    return True


def _is_running(pid: int) -> bool:
    """Whether a process is there, and not stopped; True where that cannot be known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not Path("/proc/self/stat").exists()
    return text.rpartition(")")[2].split()[0] not in _STOPPED


async def _bury(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that should end; kill it if it does not; return its exit status."""
    wait = asyncio.get_running_loop().run_in_executor
    with contextlib.suppress(subprocess.TimeoutExpired):
        return await wait(None, process.wait, _GRACE_SECONDS)
    process.kill()
    return await wait(None, process.wait)


def host_of(address: str) -> str:
    """Return the interface in the address of a relay; that of this machine alone where there is none."""
    return urlsplit(address).hostname or "127.0.0.1"
