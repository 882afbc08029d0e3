"""A driver of two ranks of the engine kit, in a process of its own: says what it sees, and ends on SIGTERM."""

from __future__ import annotations

import queue
import signal
import sys

from tartan.cluster import wire
from tartan.cluster.engine import DRIVER, ClusterView
from tartan.cluster.launch import open_engine, parse_cluster
from tartan.errors import TartanError


def main(text: str) -> None:
    """Run on ``local:N``, or on the scheduler of a file."""
    local = text.startswith("local:")
    target = parse_cluster(text if local else None, scheduler_file=None if local else text)
    views: queue.Queue[ClusterView | None] = queue.Queue()
    signal.signal(signal.SIGTERM, lambda *_: views.put(None))
    with open_engine(target, "run", entry="tartan.testing.engine_kit:rank_main") as driver:
        driver.start({}, views.put)
        names: tuple[str, ...] = ()
        while len(names) < 2:
            seen = views.get(timeout=60)
            names = seen.ranks if seen is not None else names
        pids = [wire.decode(driver.request(name, "pid", timeout_seconds=30), int) for name in names]
        print("encrypted", driver.capabilities.encrypted)
        resources = [wire.decode(driver.request(name, "resources", timeout_seconds=30), list[str]) for name in names]
        print("resources", *resources[0])
        print("ranks", *pids, flush=True)
        while (view := views.get()) is not None:
            if DRIVER not in view.members:
                print("over", view.gone[DRIVER], flush=True)
                return
    print("left", len(names), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TartanError as error:
        print("refused", error, flush=True)
