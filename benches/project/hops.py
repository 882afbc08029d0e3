"""Through how many files one item and one tile pass in a real run, and how often they return to one already left.

The run has one item, compared with itself, in one file on disk: it makes one load, one tile and one chunk, with one
worker process, on the CPU device. A profile hook in every thread of both processes notes each call of a function of
``tartan``.

An *item* goes from the event that grants the scheduler its segment (where none is granted: from the start of the
scheduler) to the end of the event that says it was loaded. A *tile* goes from there to the end of the event that says
its chunk was committed, and so through the ledger.

A *visit* is a longest sequence of calls of functions of one file, in one thread. A *return* is a visit to a file that
was visited before, by any thread. So ``returns = visits - files``. Not counted, because they are not stations:

- what watches: trace and progress;
- vocabulary that any file may ask: ``core/pairs/grid.py``, ``core/pairs/workload.py``, ``application.py``,
  ``errors.py``;
- attributes (properties), and the frames of comprehensions and generator expressions.

Each figure is the median of several runs, because the threads that serve worker processes wake up more or less often.
The same script counts older versions: ``PYTHONPATH=OLDER/src python -m benches.project.hops``.

Words: ``rounds=5``; ``way`` prints the visits of the last run.
"""

from __future__ import annotations

import ast
import functools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tartan
from benches.shared._measure import options_of

PACKAGE = f"{Path(tartan.__file__).parent}/"
NOT_COUNTED = (
    "trace.py", "progress.py", "live_line.py", "core/pairs/grid.py", "core/pairs/workload.py", "application.py",
    "errors.py",
)  # fmt: skip
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
LOADED = ("Scheduler.loaded", "Scheduler.filled")


class Event(NamedTuple):
    """One call or return of a function."""

    when_ns: int
    thread: str
    kind: str
    file: str
    name: str


class Traced(tartan.Application):
    """Compares one item with itself, and takes the hook along to its worker."""

    diagonal = True

    def __init__(self, log: str = "") -> None:
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        return _traced, (self.log,)

    def parse(self, key: str, data: bytes) -> np.ndarray:
        """Read an item."""
        return np.frombuffer(data, np.float32)

    def compare(self, left: np.ndarray, right: np.ndarray, xp: Any) -> np.ndarray:
        """Compare."""
        return left @ right.T


def _traced(log: str) -> Traced:
    _watch(log)
    return Traced(log)


def _watch(log: str) -> None:
    """Note every call and return of the package, from now on and in every new thread."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(frame: Any, kind: str, _: Any) -> None:
        code = frame.f_code
        if kind in ("call", "return") and code.co_filename.startswith(PACKAGE):
            thread = f"{os.getpid()}/{threading.get_native_id()}"
            file = code.co_filename[len(PACKAGE) :]
            os.write(target, f"{time.perf_counter_ns()}\t{thread}\t{kind}\t{file}\t{code.co_qualname}\n".encode())

    threading.setprofile(note)
    sys.setprofile(note)


def _run_once(folder: Path) -> list[Event]:
    np.arange(4, dtype=np.float32).tofile(folder / "item.bin")
    log = folder / "log"
    _watch(str(log))
    try:
        tartan.allpairs(
            Traced(str(log)), [str(folder / "item.bin")], out=folder / "run", workers=1, device="cpu", quiet=True
        )
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        sys.setprofile(None)
    rows = (line.split("\t") for line in log.read_text().splitlines())
    return sorted(Event(int(when), *rest) for when, *rest in rows)


@functools.cache
def _properties(file: str) -> set[str]:
    """Return the names of the properties of a file."""
    found = set()
    for node in ast.walk(ast.parse(Path(PACKAGE, file).read_text())):
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef) and any(ast.unparse(d) == "property" for d in part.decorator_list)
            }
    return found


def _is_station(event: Event) -> bool:
    return (
        event.kind == "call"
        and not event.file.endswith(NOT_COUNTED)
        and not event.name.endswith(COMPREHENSIONS)
        and event.name not in _properties(event.file)
    )


def _visits(events: list[Event]) -> list[str]:
    """Return the file of each visit, thread after thread, in the order in which the threads come first."""
    by_thread: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if _is_station(event):
            by_thread[event.thread].append(event.file)
    return [file for files in by_thread.values() for file, _ in groupby(files)]


def _ways(events: list[Event]) -> tuple[list[str], list[str]]:
    """Return the visits of the item and of the tile."""

    def found(kind: str, *names: str) -> list[int]:
        return [at for at, event in enumerate(events) if event.kind == kind and event.name in names]

    start = min(found("call", "Scheduler.granted") or found("call", "Scheduler.start"))
    loaded, end = max(found("return", *LOADED)), max(found("return", "Scheduler.committed"))
    return _visits(events[start : loaded + 1]), _visits(events[loaded + 1 : end + 1])


def main(words: list[str]) -> None:
    """Count and print."""
    chosen = options_of(words, rounds=5, way=False)
    found: list[tuple[list[str], list[str]]] = []
    for _ in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(_ways(_run_once(Path(folder))))
    for at, name in enumerate(("item", "tile")):
        files = statistics.median(len(set(ways[at])) for ways in found)
        returns = statistics.median(len(ways[at]) - len(set(ways[at])) for ways in found)
        print(f"{name}: {files:g} files, {returns:g} returns")
        if chosen.way:
            print("   " + " > ".join(found[-1][at]))


if __name__ == "__main__":
    main(sys.argv[1:])
