"""What benchmarks share: taking turns, describing the machine, printing one table, measuring memory."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tartan.errors import ConfigError

__all__ = [
    "Contest",
    "alternate",
    "cores",
    "in_process",
    "load_average",
    "options_of",
    "print_table",
    "seconds_of",
    "stolen_share",
    "with_peak_memory",
]


@dataclass(frozen=True)
class Contest:
    """Times of two contenders that took turns, in seconds."""

    ours: list[float]
    peer: list[float]

    @property
    def best_ratio(self) -> float:
        """How many times faster we are, by the best of each."""
        return min(self.peer) / min(self.ours)

    @property
    def median_ratio(self) -> float:
        """The same by the medians."""
        return statistics.median(self.peer) / statistics.median(self.ours)


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> Contest:
    """Let two contenders take turns; each returns its own time in seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            os.sync()  # nobody pays for what the other one left to be written
            times[which].append((ours, peer)[which]())
    return Contest(*times)


def options_of(words: Sequence[str], **defaults: Any) -> SimpleNamespace:
    """Read ``name=value`` words, each of the type of its default; one whose default is False is a bare word.

    Raises
    ------
    ConfigError
        If a word is none of these, or its value is of another type.
    """
    found = dict(defaults)
    for word in words:
        name, given, value = word.partition("=")
        if name not in defaults or bool(given) is (defaults[name] is False):
            known = ", ".join(key if default is False else f"{key}={default}" for key, default in defaults.items())
            raise ConfigError(f"{word}: this benchmark takes the words {known}")
        kind = type(defaults[name])
        try:
            found[name] = kind(value) if given else True
        except ValueError as error:
            raise ConfigError(f"{word}: {value!r} is no {kind.__name__}") from error
    return SimpleNamespace(**found)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def load_average() -> float:
    """Return how many processes were busy during the last minute."""
    return os.getloadavg()[0]


def _processor_times() -> tuple[float, float]:
    """Return the processor time of this machine since its start: stolen by the host, and in all."""
    try:
        times = [float(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0, 1.0
    return times[7], sum(times)


_AT_START = _processor_times()


def stolen_share() -> float:
    """Return which share of the processors' time the host has given to others since this benchmark began."""
    stolen, total = (now - before for now, before in zip(_processor_times(), _AT_START, strict=True))
    return stolen / total if total else 0.0


def in_process(file: str, *words: object) -> dict[str, Any]:
    """Run a benchmark file in a process of its own; the last line that it prints is its result, as JSON."""
    done = subprocess.run(
        [sys.executable, file, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True, env=environment()
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def with_peak_memory(file: str, *words: object) -> tuple[dict[str, Any], int]:
    """As ``in_process``; return also the peak of its memory in bytes (PSS, summed over all its processes)."""
    child = subprocess.Popen(
        [sys.executable, file, *map(str, words)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    watcher = Path(__file__).with_name("_memory.py")
    watch = subprocess.Popen([sys.executable, str(watcher), str(child.pid)], stdout=subprocess.PIPE, text=True)
    text, _ = child.communicate()
    peak, _ = watch.communicate()
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return json.loads(text.splitlines()[-1]), int(peak)


def environment() -> dict[str, str]:
    """Return the variables of a process that runs a file of this folder."""
    # As installed: modules that were compiled once are not compiled in every process.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2])}


def print_table(title: str, rows: Sequence[Sequence[object]], head: Sequence[str]) -> None:
    """Print one table with the load of the machine below it."""
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(len(line[c]) for line in [list(head), *texts]) for c in range(len(head))]
    print(title)
    for line in [list(head), *texts]:
        print("  " + "  ".join(_aligned(line, widths)).rstrip())
    print(
        f"  ({cores()} cores, {platform.machine()}; load average {load_average():.1f}, "
        f"{stolen_share():.0%} of the processors' time stolen)",
        flush=True,
    )


def _aligned(line: Iterable[str], widths: Sequence[int]) -> list[str]:
    return [text.rjust(width) if c else text.ljust(width) for c, (text, width) in enumerate(zip(line, widths))]


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def not_held(texts: Sequence[str]) -> int:
    """Print what missed its bar; return the exit status."""
    for text in texts:
        print(f"NOT HELD: {text}")
    return 1 if texts else 0
