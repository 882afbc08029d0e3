"""The ranks of ``cluster_bulk``: one wants work again and again, the other gives up what it is asked for."""

from __future__ import annotations

import queue
import time

from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, Call, ClusterEngine, ClusterView


def main(engine: ClusterEngine) -> None:
    """Take part until this rank is no longer a member."""
    grants: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    rounds: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def want(call: Call) -> bytes:
        rounds.put(wire.decode(call.body, int))
        return b""

    def shed(call: Call) -> bytes:
        engine.post(DRIVER, "given_up", call.body)
        return b""

    def grant(call: Call) -> bytes:
        grants.put(call.body)
        return b""

    def see(view: ClusterView) -> None:
        if engine.me not in view.members:
            rounds.put(None)
            grants.put(None)

    engine.start({"want_often": want, "shed": shed, "grant": grant}, see)
    while (n := rounds.get()) is not None:
        times = []
        for _ in range(n):
            start = time.perf_counter()
            engine.post(DRIVER, "want", b"200 bytes of speed, left and band" * 6)
            if grants.get() is None:
                return
            times.append(time.perf_counter() - start)
        engine.post(DRIVER, "times", wire.encode(times))
