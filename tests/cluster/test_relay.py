"""The relay of a rank, on an event loop of this process, with the driver and the other ranks played by the test."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tartan.cluster import wire
from tartan.cluster.courier import About, Directory
from tartan.cluster.engine import DRIVER, Capabilities, ClusterView, Credentials
from tartan.cluster.relay import Relay, RelayTask, is_refused

pytestmark = pytest.mark.slow

ABLE = Capabilities(elastic=True, survives_loss=True, encrypted=False)


class PlayedDriver:
    """Admits the rank and answers its beats; keeps what it is told."""

    def __init__(self, entry: str, refuses: Any = None, **settings: Any) -> None:
        task = RelayTask("run", "driver:1", entry, b"token", **settings)
        self.relay = Relay(task, "rank:1", self.send, ABLE, Credentials(), {"storage": 1.0}, refuses)
        self.view = ClusterView(1, (DRIVER,))
        self.refusal = ""
        self.is_over = False
        self.beating = True
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.joined: asyncio.Future[About] = asyncio.get_running_loop().create_future()
        self.beats = asyncio.Semaphore(0)

    async def send(self, address: str, do: str, **fields: Any) -> Mapping[str, Any]:
        assert address == "driver:1"
        match do:
            case "join":
                self.joined.set_result(wire.decode(fields["data"], About))
                if self.is_over:
                    return {"over": True}
                if self.refusal:
                    return {"refused": self.refusal}
                self.view = ClusterView(2, (DRIVER, fields.get("name", self.relay.name)))
                return {"data": self.directory()}
            case "beat" if self.beating:
                self.beats.release()
            case "beat":
                raise OSError("connection refused")
            case "gone":
                self.gone.set_result(fields["reason"])
        return {}

    def directory(self) -> bytes:
        return wire.encode(Directory(self.view, {DRIVER: "driver:1", self.relay.name: "rank:1"}))

    async def ask(self, do: str) -> Any:
        envelope = wire.Envelope(wire.VERSION, "run", self.view.epoch, DRIVER, do)
        answer = await self.relay.handle("message", wire.seal(envelope), 20.0)
        return wire.decode(wire.open_reply(answer["data"]).body, object)

    async def beats_without_end(self, pause_seconds: float) -> None:
        """Wait for beats until none comes in time."""
        while True:
            await asyncio.wait_for(self.beats.acquire(), pause_seconds)

    async def started(self) -> int:
        """Start the rank; return its process."""
        await self.relay.start()
        assert (await asyncio.wait_for(self.joined, 30)).name == self.relay.name
        return int(await self.ask("pid"))


KIT = "tartan.testing.engine_kit:rank_main"


def test_a_killed_rank_is_reported_with_the_signal() -> None:
    async def story() -> str:
        driver = PlayedDriver(KIT)
        pid = await driver.started()
        assert await driver.ask("resources") == ["storage"]
        for number in range(50):  # messages that it will not read
            envelope = wire.Envelope(wire.VERSION, "run", 2, DRIVER, "echo", bytes(10_000))
            await driver.relay.handle("post", wire.seal(envelope), sender=DRIVER, number=number + 1)
        os.kill(pid, signal.SIGKILL)
        return await asyncio.wait_for(driver.gone, 30)

    assert asyncio.run(story()) == "its process ended: killed by SIGKILL"


def test_a_stopped_rank_gives_no_sign_of_life() -> None:
    async def story() -> None:
        driver = PlayedDriver(KIT, beat_seconds=0.02)
        pid = await driver.started()
        await asyncio.wait_for(driver.beats.acquire(), 30)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await driver.beats_without_end(0.3)
        os.kill(pid, signal.SIGCONT)
        await asyncio.wait_for(driver.beats.acquire(), 30)
        await driver.relay.close("the test is over")

    asyncio.run(story())


async def wait_for_end(process_id: int) -> None:
    """Wait until a process has ended."""
    descriptor, ended = os.pidfd_open(process_id), asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    await asyncio.wait_for(ended.wait(), 30)
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


def test_a_rank_ends_when_its_driver_is_silent() -> None:
    async def story() -> None:
        driver = PlayedDriver(KIT, beat_seconds=0.02, patience_seconds=0.1)
        process_id = await driver.started()
        driver.beating = False
        await wait_for_end(process_id)
        await driver.relay.close("the test is over")

    asyncio.run(story())


def test_a_refused_rank_ends_with_the_reason() -> None:
    async def story() -> str:
        driver = PlayedDriver(KIT)
        driver.refusal = "the rank has version 0 of Tartan"
        await driver.relay.start()
        return await asyncio.wait_for(driver.gone, 30)

    assert asyncio.run(story()) == "the rank has version 0 of Tartan"


def test_a_rank_that_comes_when_the_run_is_over_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        driver = PlayedDriver(KIT)
        driver.is_over = True
        await driver.relay.start()
        await asyncio.wait_for(driver.joined, 30)
        await driver.relay.close("the test is over")

    asyncio.run(story())
    assert capfd.readouterr().err == ""


def test_a_rank_that_cannot_be_run_is_reported() -> None:
    async def story() -> str:
        driver = PlayedDriver("tartan.no_such_module:main")
        await driver.relay.start()
        return await asyncio.wait_for(driver.gone, 30)

    assert asyncio.run(story()) == "its process ended: exit status 1"


def test_a_rank_ends_when_its_driver_refuses_connections() -> None:
    """Long before the patience of an hour that a silent one has."""

    async def story() -> list[str]:
        asked: list[str] = []

        async def refuses(address: str) -> bool:
            asked.append(address)
            return True

        driver = PlayedDriver(KIT, refuses, patience_seconds=3600.0, beat_seconds=0.02)
        process_id = await driver.started()
        driver.beating = False
        await wait_for_end(process_id)
        await driver.relay.close("the test is over")
        return asked

    assert asyncio.run(story()) == ["driver:1", "driver:1"]


def test_only_a_port_without_a_process_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not asyncio.run(is_refused(f"tls://127.0.0.1:{port}"))
    assert asyncio.run(is_refused(f"tls://127.0.0.1:{port}"))
    for nowhere in ("driver:1", "tls://", "tcp://127.0.0.1:99999", ""):
        assert not asyncio.run(is_refused(nowhere))
