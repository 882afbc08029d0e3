"""Files to worker processes: bytes a second from files in the page cache to items in host memory, with one worker.

An application takes four numbers from each file, so that only the way of its bytes is timed: through the loader of a
run, with the checksums of a run. *By the parent* is the way of what worker processes cannot read themselves, such as
URLs: read here, sent over the socket of the worker. The bound is a bare loop that reads each file into new bytes: one
copy. All take turns. Seconds of processors, of this process and the worker, say what a busy machine hides.

Words: ``megabytes=512 rounds=3``, of files of each size.
"""

from __future__ import annotations

import os
import queue
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.shared._measure import load_average, options_of, print_table
from tartan.base.daemon_pool import DaemonPool
from tartan.base.trace import NO_TRACER
from tartan.runtime.events import SpanFilled
from tartan.runtime.host import HOST_ARENA, Place, UniformItems
from tartan.runtime.items import ItemForm
from tartan.runtime.loader import Loader
from tartan.runtime.node import IO_THREADS
from tartan.runtime.tasks import ItemPlan
from tartan.runtime.wiring import Wiring
from tartan.sources.checked import note_checksums
from tartan.sources.items import Source, open_source
from tartan.workers.arena import Arena
from tartan.workers.processes import ProcessExecutor

SIZES = (64 << 10, 1 << 20, 32 << 20)
BAR = 1000.0
FORM = ItemForm(np.dtype(np.uint8), (4,))


class Few(tartan.Application):
    """Keeps four bytes of each file."""

    ragged = False

    def parse(self, key: str, data: bytes) -> Any:
        """Return the first ones."""
        return np.frombuffer(data, np.uint8, 4)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Is not called."""
        raise NotImplementedError


class Hidden:
    """Files that only this process can read."""

    def __init__(self, inner: Source) -> None:
        self.kind, self.n_items, self.keys = inner.kind, inner.n_items, inner.keys
        self.read, self.read_block = inner.read, inner.read_block
        self.fingerprints, self.describe = inner.fingerprints, inner.describe


def load_all(source: Source, executor: ProcessExecutor, item_seconds: float) -> float:
    """Load each file once in spans of up to eight, as a run does; return the seconds."""
    arena = Arena(source.n_items * FORM.nbytes, shared=True)
    executor.share(HOST_ARENA, arena)
    plan = ItemPlan(UniformItems(FORM), None, FORM, None)
    events: queue.Queue[Any] = queue.Queue()
    noted = note_checksums(source, lambda first, sums: np.empty(0, np.intp))
    wiring = Wiring(Few(), noted, executor, plan, {HOST_ARENA: arena}, events.put, NO_TRACER)
    loader = Loader(wiring, DaemonPool(IO_THREADS, "bench-io"), item_seconds=item_seconds)
    places = [Place(at // 8, at, min(8, source.n_items - at), 1, at) for at in range(0, source.n_items, 8)]
    start = time.perf_counter()
    for place in places:
        loader.load(place)
    for _ in places:
        done = events.get(timeout=600)
        assert isinstance(done, SpanFilled), done
        assert not done.failures, done.failures
    seconds = time.perf_counter() - start
    loader.close()
    return seconds


def cpu_seconds(executor: ProcessExecutor) -> float:
    """Return the seconds of processors that this process and its workers have taken."""
    total = time.process_time()
    for pid in executor.worker_pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def read_all(paths: list[Path]) -> float:
    """Read each file; return the seconds."""
    start = time.perf_counter()
    for path in paths:
        path.read_bytes()
    return time.perf_counter() - start


def measure(folder: Path, size: int, n_bytes: int, rounds: int) -> dict[str, float]:
    """Return the best megabytes a second of the three ways, and a second of processors."""
    content = np.random.default_rng(0).bytes(size)
    paths = [folder / f"{number:05}.bin" for number in range(max(4, n_bytes // size))]
    for path in paths:
        path.write_bytes(content)
    source = open_source([str(path) for path in paths])
    source.fingerprints()
    best: dict[str, float] = {}
    executor = ProcessExecutor(Few(), 1)
    try:
        item_seconds = read_all(paths) / len(paths)
        ways: dict[str, Callable[[], float]] = {
            "by the worker": partial(load_all, source, executor, item_seconds),
            "by the parent": partial(load_all, Hidden(source), executor, item_seconds),
            "bare loop": partial(read_all, paths),
        }
        for _ in range(rounds):
            for name, way in ways.items():
                before = cpu_seconds(executor)
                rate = len(paths) * size / 1e6 / way()
                cpu_rate = len(paths) * size / 1e6 / (cpu_seconds(executor) - before)
                best[name] = max(best.get(name, 0.0), rate)
                best[f"{name}, cpu"] = max(best.get(f"{name}, cpu", 0.0), cpu_rate)
    finally:
        executor.close()
    for path in paths:
        path.unlink()
    return best


def main(words: list[str]) -> dict[str, Any]:
    """Measure, print one table, return the numbers."""
    options = options_of(words, megabytes=512, rounds=3)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for size in SIZES:
            results[f"{size >> 10:,} KiB"] = measure(Path(folder), size, options.megabytes << 20, options.rounds)
    names = ("by the worker", "by the parent", "bare loop")
    for title, ending in (("a second", ""), ("a second of processors", ", cpu")):
        rows: list[list[Any]] = []
        for label, found in results.items():
            ours, before, bare = (found[name + ending] for name in names)
            rows.append([label, ours, before, bare, ours / before, f">= {BAR:.0f}" if label.startswith("32,") else ""])
        print_table(f"MB {title} of files to one worker process", rows, ("files of", *names, "ratio", "bar"))
    return results | {"load": load_average()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
