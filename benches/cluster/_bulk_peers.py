"""The sending side of ``cluster_bulk``: one process with three listeners, all of which send the same buffer.

Reads the credentials as JSON from stdin, prints the ports as JSON, and ends when stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from typing import Any

import dask
import numpy as np
from distributed.core import Server
from distributed.protocol import to_serialize

from tartan.cluster.bulk import BulkServer, Parcel, tls_context
from tartan.cluster.dask_engine import security_of
from tartan.cluster.engine import Credentials

DASK = {"distributed.comm.shard": "1GiB", "distributed.comm.timeouts.tcp": "15s"}


def credentials_from(text: str) -> Credentials:
    """Return credentials from JSON; the token goes as text."""
    found = json.loads(text)
    return Credentials(found.pop("token").encode(), **found)


def listen_bare(view: memoryview, credentials: Credentials) -> int:
    """Send the buffer for every byte that arrives, by nothing but ``sendall``; return the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    context = tls_context(credentials, server=True)

    def serve() -> None:
        connection, _ = listener.accept()
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        while connection.recv(1):
            connection.sendall(view)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


async def listen_dask(array: np.ndarray, credentials: Credentials) -> Server:
    """Answer by a handler as Dask's workers do."""

    async def fetch() -> dict[str, Any]:
        return {"data": to_serialize(array)}

    server = Server({"fetch": fetch}, needs_workdir=False)
    if credentials.encrypted:
        await server.listen("tls://127.0.0.1", **security_of(credentials).get_listen_args("worker"))
    else:
        await server.listen("tcp://127.0.0.1")
    return server


async def main(n_bytes: int) -> None:
    """Serve until stdin closes."""
    credentials = credentials_from(sys.stdin.readline())
    array = np.random.default_rng(0).integers(0, 256, n_bytes, np.uint8)
    view = memoryview(array)
    bulk = BulkServer(lambda request: Parcel(b"", [view]), credentials, log=print)
    with dask.config.set(DASK):
        server = await listen_dask(array, credentials)
        ports = {"bare": listen_bare(view, credentials), "bulk": bulk.address[1], "dask": server.address}
        print(json.dumps(ports), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.close()
    bulk.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
