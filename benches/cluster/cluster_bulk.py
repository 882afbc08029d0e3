"""Large buffers and small messages between ranks: bulk transfer against its peers, and how soon work is granted.

*Bulk*: one buffer from the memory of another process into an array here, by three ways that take turns: a bare socket
(``sendall`` and ``recv_into``, nothing else), bulk transfer, and a handler of Dask whose answer is copied into the
array. Both sides are encrypted alike: once not at all, once by TLS with certificates on both ends.

*Grant*: a rank wants work; the driver asks another one to give some up, gets it, and grants it. Four messages over
Dask, encrypted. *Busy* has a process that computes on every core meanwhile.

Words: ``mb=50 rounds=15 wants=300``; ``parts=bulk,grant`` chooses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import queue
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benches.shared._measure import cores, options_of, print_table
from tartan.errors import ConfigError

OF_SOCKET, TIMES_DASK, P50_MS = 0.80, 1.3, 5.0
PARTS = ("bulk", "grant")


def main(words: list[str]) -> dict[str, Any]:
    """Run the parts that were asked for."""
    options = options_of(words, mb=50.0, rounds=15, wants=300, parts=",".join(PARTS))
    parts = options.parts.split(",")
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"parts={part}: there are {', '.join(PARTS)}")
    results: dict[str, Any] = {}
    if "bulk" in parts:
        results["bulk"] = {name: bulk(name == "TLS", options) for name in ("plain", "TLS")}
        print_bulk(results["bulk"], options.mb)
    if "grant" in parts:
        results["grant"] = grant(options.wants)
        rows = [[name, found["p50_ms"], found["p99_ms"]] for name, found in results["grant"].items()]
        print_table(f"want to grant, one shed between (bar: p50 <= {P50_MS} ms, idle)", rows, ["", "p50 ms", "p99 ms"])
    return results


# Bulk


def bulk(encrypted: bool, options: Any) -> dict[str, float]:
    """Return gigabytes a second of the three ways, by the best of their rounds, and two ratios."""
    from dask import config

    from benches.cluster._bulk_peers import DASK
    from tartan.cluster.certs import temporary_credentials

    n_bytes = int(options.mb * 1e6)
    keys = {name: value for name, value in asdict(temporary_credentials()).items() if encrypted or name == "token"}
    text = json.dumps({**keys, "token": "secret"})
    target = np.zeros(n_bytes, np.uint8)
    with config.set(DASK), sender(n_bytes, text) as ports, contenders(ports, text, memoryview(target)) as ways:
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name in list(ways)[:: 1 if number % 2 else -1]:
                target[:] = 0
                seconds = ways[name]()
                assert target[-1000:].any(), f"{name} has sent nothing"
                if number:  # the first one is for the caches
                    times[name].append(seconds)
    speed = {name: n_bytes / 1e9 / min(found) for name, found in times.items()}
    ratios = {"of_socket": speed["bulk"] / speed["socket"], "times_dask": speed["bulk"] / speed["dask"]}
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {**speed, **ratios, "median_of_socket": medians["socket"] / medians["bulk"]}


@contextlib.contextmanager
def sender(n_bytes: int, credentials: str) -> Iterator[dict[str, Any]]:
    """Start the process that sends; yield its ports."""
    file = Path(__file__).with_name("_bulk_peers.py")
    words = [sys.executable, str(file), str(n_bytes)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(credentials, file=process.stdin, flush=True)
        yield json.loads(process.stdout.readline())
        process.stdin.close()


@contextlib.contextmanager
def contenders(ports: dict[str, Any], text: str, view: memoryview) -> Iterator[dict[str, Callable[[], float]]]:
    """Yield the three ways: each receives once, and returns its seconds."""
    from benches.cluster._bulk_peers import credentials_from
    from tartan.cluster.bulk import BulkClient

    credentials = credentials_from(text)
    bulk_client = BulkClient(credentials)
    loop = asyncio.new_event_loop()

    def by_bulk() -> float:
        start = time.perf_counter()
        bulk_client.fetch(("127.0.0.1", ports["bulk"]), b"item", lambda head, sizes: [view], timeout_seconds=30)
        return time.perf_counter() - start

    with (
        bare_connection(ports["bare"], credentials) as bare,
        dask_way(loop, ports["dask"], credentials, view) as by_dask,
    ):
        yield {"socket": lambda: by_socket(bare, view), "bulk": by_bulk, "dask": by_dask}
    bulk_client.close()
    loop.close()


@contextlib.contextmanager
def bare_connection(port: int, credentials: Any) -> Iterator[socket.socket]:
    """Yield a connected socket, encrypted where there is a certificate."""
    from tartan.cluster.bulk import tls_context

    context = tls_context(credentials, server=False)
    with socket.create_connection(("127.0.0.1", port)) as plain:
        if context is None:
            yield plain
        else:
            with context.wrap_socket(plain) as wrapped:
                yield wrapped


def by_socket(connection: socket.socket, view: memoryview) -> float:
    """Receive once over a bare socket."""
    start = time.perf_counter()
    connection.sendall(b"x")
    while view:
        view = view[connection.recv_into(view) :]
    return time.perf_counter() - start


@contextlib.contextmanager
def dask_way(
    loop: asyncio.AbstractEventLoop, address: str, credentials: Any, view: memoryview
) -> Iterator[Callable[[], float]]:
    """Yield what receives once by a handler of Dask, and copies the answer to its place."""
    from distributed.core import rpc

    from tartan.cluster.dask_engine import security_of

    keys = security_of(credentials).get_connection_args("worker") if credentials.encrypted else None
    target = np.frombuffer(view, np.uint8)

    async def connect() -> Any:
        return rpc(address, connection_args=keys)

    async def fetch() -> float:
        start = time.perf_counter()
        np.copyto(target, (await peer.fetch())["data"])
        return time.perf_counter() - start

    peer = loop.run_until_complete(connect())
    yield lambda: loop.run_until_complete(fetch())
    loop.run_until_complete(peer.close_rpc())


def print_bulk(found: dict[str, dict[str, float]], mb: float) -> None:
    """Print gigabytes a second, and both ratios."""
    rows = [
        [name, one["socket"], one["bulk"], one["dask"], one["of_socket"], one["times_dask"]]
        for name, one in found.items()
    ]
    head = ["", "socket GB/s", "bulk GB/s", "Dask + copy GB/s", "bulk / socket", "bulk / Dask"]
    print_table(f"{mb:g} MB, memory to memory (bars: {OF_SOCKET} of the socket, {TIMES_DASK} x Dask)", rows, head)


# Grant


def grant(wants: int) -> dict[str, dict[str, float]]:
    """Return how long a rank waits for work, on idle cores and on busy ones."""
    from tartan.cluster.engine import Call
    from tartan.cluster.launch import open_engine, parse_cluster

    with open_engine(parse_cluster("local:2"), "bench", entry="benches.cluster._cluster_rank:main") as driver:
        members: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
        found: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def shed(_call: Call) -> bytes:
            driver.post(driver.view().ranks[1], "shed", b"pairs wanted")
            return b""

        def given_up(call: Call) -> bytes:
            driver.post(driver.view().ranks[0], "grant", call.body)
            return b""

        def times(call: Call) -> bytes:
            found.put(call.body)
            return b""

        driver.start({"want": shed, "given_up": given_up, "times": times}, lambda view: members.put(view.ranks))
        while len(members.get(timeout=60)) < 2:
            pass
        ask(driver, found, 50)  # connections are made
        results = {"idle": ask(driver, found, wants)}
        with busy_cores():
            results["busy"] = ask(driver, found, wants)
        return results


def ask(driver: Any, found: queue.SimpleQueue[bytes], wants: int) -> dict[str, float]:
    """Let the first rank want work so many times."""
    from tartan.cluster import wire

    driver.request(driver.view().ranks[0], "want_often", wire.encode(wants), timeout_seconds=30)
    times = sorted(wire.decode(found.get(timeout=300), list[float]))
    return {"p50_ms": 1e3 * statistics.median(times), "p99_ms": 1e3 * times[int(0.99 * len(times))]}


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy by a process of its own."""
    processes = [multiprocessing.Process(target=_spin, args=(os.getpid(),), daemon=True) for _ in range(cores())]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _spin(parent: int) -> None:
    while os.getppid() == parent:
        sum(range(100_000))
