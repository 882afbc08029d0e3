"""Applications that the tests name on the command line as ``applications.py:NAME``.

Items are files or objects that hold one whole number each; the score of two is ``|a - b|``.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tartan
from tartan.runtime import node
from tartan.testing import faults

node.GRACE_SECONDS = 0.5  # no test waits long for calls that never end


class Distances(tartan.Application):
    """The healthy one, in threads."""

    releases_gil = True

    def parse(self, key: str, data: Any) -> np.ndarray:
        return np.array([float(data)])

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        return xp.abs(left - right.T)


class Halting(Distances):
    """Says so by the FIFO that the environment names, after some compare calls, and waits for its end.

    Calls of fewer pairs than TARTAN_TEST_PAIRS do not count: single ones are compared before a run, too.
    """

    def __init__(self) -> None:
        self._calls = 0

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        fifo = os.environ.get("TARTAN_TEST_FIFO")
        self._calls += len(left) * len(right) >= int(os.environ.get("TARTAN_TEST_PAIRS", "1"))
        if fifo and self._calls > 5:
            Path(fifo).write_text("halted")
            threading.Event().wait()
        return super().compare(left, right, xp)


class Logged(Distances):
    """Appends a line to a file for each item parsed and each tile compared.

    Parameters
    ----------
    log : str
        The file; "" for none.
    """

    def __init__(self, log: str = "") -> None:
        self.log = log

    def parse(self, key: str, data: Any) -> np.ndarray:
        self.write({"parse": key})
        return super().parse(key, data)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        rows, columns = np.asarray(left)[:, 0].astype(int).tolist(), np.asarray(right)[:, 0].astype(int).tolist()
        self.write({"compare": [rows, columns]})
        return super().compare(left, right, xp)

    def write(self, what: dict[str, Any]) -> None:
        if self.log:
            descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, json.dumps(what).encode() + b"\n")
            finally:
                os.close(descriptor)


class LoggedInProcesses(Logged):
    """The same in worker processes."""

    releases_gil = False


def compared_pairs(log: Path) -> list[tuple[int, int]]:
    """Return the pairs i < j that a log says were compared, as often as they were."""
    pairs = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "compare" in entry:
            rows, columns = entry["compare"]
            pairs += [(i, j) for i in rows for j in columns if i < j]
    return pairs


def parsed_keys(log: Path) -> list[str]:
    """Return the keys that a log says were parsed, as often as they were."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry["parse"] for entry in entries if "parse" in entry]


def absolute_difference(a: Any, b: Any) -> float:
    """Compare two items without any class: a plain function."""
    return abs(float(a) - float(b))


class InThreads:
    """Makes an injected fault run in threads."""

    releases_gil = True


class RaisesInThreads(InThreads, faults.RaisesOn):
    pass


class HangsInThreads(InThreads, faults.HangsOn):
    pass


class Raises(faults.RaisesOn):
    pass


class Crashes(faults.SegfaultOn):
    pass


class Hangs(faults.HangsOn):
    pass


class Typo(faults.TypoCompare):
    pass


class Stuck(Distances):
    """Reports to a FIFO, and never returns, where item 7 meets itself while the environment says so; in processes."""

    releases_gil = False
    diagonal = True

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        fifo = os.environ.get("TARTAN_TEST_FIFO")
        if fifo and 7.0 in left and 7.0 in right:
            with Path(fifo).open("w") as report:
                report.write("stuck\n")
                report.flush()
                threading.Event().wait()
        return super().compare(left, right, xp)


class StuckInThreads(Stuck):
    releases_gil = True


class Waves(Stuck):
    """Sum and product of two numbers as one complex score; stops as ``Stuck`` does."""

    outputs: ClassVar[Any] = {"wave": np.complex128}

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        super().compare(left, right, xp)
        return (left + right.T) + 1j * (left * right.T)


class Spans(Distances):
    """The span of three numbers: the largest less the smallest; pairs have theirs, too."""

    similarity = False

    def compare_triples(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        first, second, third = a[:, 0][:, None, None], b[:, 0][None, :, None], c[:, 0][None, None, :]
        largest, smallest = (choose(choose(first, second), third) for choose in (np.maximum, np.minimum))
        return largest - smallest


class HaltingSpans(Spans):
    """Says so by the FIFO that the environment names, after some compare calls, and waits for its end."""

    def __init__(self) -> None:
        self._calls = 0

    def parameters(self) -> dict[str, Any]:
        return {}

    def compare_triples(self, a: Any, b: Any, c: Any, xp: Any) -> Any:
        fifo = os.environ.get("TARTAN_TEST_FIFO")
        self._calls += 1
        if fifo and self._calls > 40:
            Path(fifo).write_text("halted")
            threading.Event().wait()
        return super().compare_triples(a, b, c, xp)


def spread(a: bytes, b: bytes, c: bytes) -> float:
    """Return the span of three numbers in files, by a plain function."""
    numbers = [float(one) for one in (a, b, c)]
    return max(numbers) - min(numbers)
