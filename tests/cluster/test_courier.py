"""What relays and the driver send: posts arrive once and in order, whatever the connections do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tartan.cluster.courier import Courier


class Network:
    """One address, whose connections fail as a list says: before the message arrives, after it, or not at all."""

    def __init__(self, *fates: str) -> None:
        self.fates = list(fates)
        self.receiver = Courier("rank-1", self.send)
        self.taken: list[bytes] = []

    async def send(self, address: str, **fields: Any) -> Mapping[str, Any]:
        assert address == "there"
        fate = self.fates.pop(0) if self.fates else "fine"
        if fate == "before":
            raise OSError("connection refused")
        if fields["do"] == "post" and self.receiver.takes(fields["sender"], fields["number"]):
            self.taken.append(fields["data"])
        if fate == "after":
            raise OSError("connection reset")
        return {"data": b"answer"} if fields["do"] == "message" else {}

    def sender(self) -> Courier:
        courier = Courier("rank-0", self.send, retry_seconds=0.0)
        courier.addresses = {"rank-1": "there"}
        return courier


def test_posts_arrive_once_and_in_order() -> None:
    network = Network("before", "after", "fine", "after", "before", "before")

    async def post() -> None:
        courier = network.sender()
        await asyncio.gather(*(courier.post("rank-1", b"%d" % number) for number in range(6)))

    asyncio.run(post())
    assert network.taken == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_post_is_given_up_with_its_receiver() -> None:
    network = Network(*["before"] * 1000)

    async def post() -> None:
        courier = network.sender()
        job = asyncio.get_running_loop().create_task(courier.post("rank-1", b"lost"))
        for _ in range(20):
            await asyncio.sleep(0)
        courier.addresses = {}
        await job
        await courier.post("rank-1", b"nowhere")

    asyncio.run(post())
    assert network.taken == []


def test_a_request_says_that_the_peer_cannot_be_reached() -> None:
    async def ask(*fates: str) -> Mapping[str, Any]:
        return await Network(*fates).sender().request("rank-1", b"", 1.0)

    assert asyncio.run(ask()) == {"data": b"answer"}
    assert asyncio.run(ask("before")) == {"lost": "rank-1 cannot be reached: connection refused"}
    assert asyncio.run(Network().sender().request("rank-9", b"", 1.0)) == {"lost": "rank-9 has no address"}
