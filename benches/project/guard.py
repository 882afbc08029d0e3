"""Has anything become slower? One line of each benchmark that has a bar, by another version and this one in turns.

    tartan bench guard before=OLD/.venv/bin/python [rounds=5] [minutes=15] [only=mds,sort]

``before`` is the interpreter of the other version; without it, this version takes turns with itself, which shows what
the machine does to the times. A line takes a second or two (``_guard_lines.py``), each time in a process of its own.
Both versions use the kernel of matrix products that they choose themselves; it is named, for times of two kernels
cannot be compared.

A ratio is this version's time over that of the other one, the median of all pairs; the spread is how far apart the
quarters of the ratios lie, which one disturbed pair does not change. *slower*: the ratio is above 1.05 by more than
the spread. *unclear*: it may be above 1.05, the spread does not tell. Exit status 1: a line is slower, this version
cannot do it, or there was no time for three pairs of it.

Rounds go over all lines, so that each has about as many pairs when the time is over. ``only`` takes lines that begin
with one of these words.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benches.shared._measure import options_of, print_table
from tartan.errors import ConfigError

LINES_FILE = Path(__file__).with_name("_guard_lines.py")
MOST = 1.05
LEAST_PAIRS = 3
#: Set for one machine or one measurement: both versions would be measured with another kernel than users get.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")

Clock = Callable[[], float]
#: Measure a line by an interpreter: seconds and kernel; or why it cannot, as text.
Measure = Callable[[str, str], "tuple[float, str] | str"]


@dataclass
class Found:
    """What is known of a line: pairs of seconds, before and now, the kernels, and who cannot do it, and why."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    fails_before: str = ""
    fails_now: str = ""

    @property
    def ratio(self) -> float:
        """The median of now over before; NaN without a pair."""
        return statistics.median([now / before for before, now in self.pairs] or [math.nan])

    @property
    def spread(self) -> float:
        """How far apart the lower and the upper quarter of the ratios lie; infinite where they are too few."""
        if len(self.pairs) < LEAST_PAIRS:
            return math.inf
        low, _, high = statistics.quantiles([now / before for before, now in self.pairs], n=4, method="inclusive")
        return high - low

    @property
    def verdict(self) -> str:
        """In a word, or a few."""
        if self.fails_now:
            return "fails"
        if self.fails_before:
            return "new"
        if len(self.pairs) < LEAST_PAIRS:
            return "not judged"
        if self.ratio - self.spread > MOST:
            return "slower"
        if self.ratio + self.spread > MOST:
            return "unclear"
        return "faster" if self.ratio + self.spread < 1 / MOST else "same"


BAD = ("fails", "not judged", "slower")


def main(words: Sequence[str]) -> int:
    """Print the table and the verdict; return 1 where something is slower, fails, or was not judged."""
    options = options_of(words, before=sys.executable, rounds=5, minutes=15.0, only="")
    chosen = chosen_lines(options.only)
    before = version_of(options.before)
    print(f"before: {before}\nnow:    {version_of(sys.executable)}", file=sys.stderr)
    found = take_turns(chosen, (options.before, sys.executable), options.rounds, 60 * options.minutes, measured)
    head = ("", "before, ms", "now, ms", "ratio", "spread", "pairs", "kernel", "")
    print_table("now over before", table(found), head)
    print("\n".join(closing(found, options.before)))
    return int(any(one.verdict in BAD for one in found.values()))


def chosen_lines(only: str) -> list[str]:
    """Return the names of lines that begin with one of some words.

    Raises
    ------
    ConfigError
        If a word is the beginning of none.
    """
    from benches.project._guard_lines import LINES

    starts = only.split(",") if only else [""]
    for start in starts:
        if not any(name.startswith(start) for name in LINES):
            raise ConfigError(f"only={start}: lines begin with {', '.join(benchmarks(LINES))}")
    return [name for name in LINES if name.startswith(tuple(starts))]


def benchmarks(names: Iterable[str]) -> list[str]:
    """Return what lines begin with, each once."""
    return list(dict.fromkeys(name.partition(":")[0] for name in names))


def version_of(python: str) -> str:
    """Return the folder of the package that an interpreter imports.

    Raises
    ------
    ConfigError
        If it is not an interpreter, or imports no Tartan.
    """
    words = [python, "-c", "import tartan; print(tartan.__path__[0])"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), cwd="/", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "").strip().rpartition("\n")[2] or str(error)
        raise ConfigError(f"before={python}: it is not Python that imports tartan: {why}") from error
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Return the environment of both versions."""
    return {name: value for name, value in os.environ.items() if name not in UNSET}


def measured(python: str, name: str) -> tuple[float, str] | str:
    """Do a line once, in an empty folder."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        os.sync()  # nobody pays for what the other one left to be written
        words = [python, str(LINES_FILE), name]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), cwd=folder, check=False)
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
    result = json.loads(done.stdout.splitlines()[-1])
    return result["seconds"], result["kernel"]


def take_turns(
    names: Sequence[str],
    pythons: tuple[str, str],
    rounds: int,
    limit_seconds: float,
    measure: Measure,
    clock: Clock = time.monotonic,
) -> dict[str, Found]:
    """Measure pairs, round after round, while there is time; which version begins alternates."""
    found, longest, began = {name: Found() for name in names}, dict.fromkeys(names, 0.0), clock()
    for number in range(rounds):
        for name, one in found.items():
            start = clock()
            if one.fails_before or one.fails_now:
                continue
            if start + longest[name] - began > limit_seconds:
                return found
            add_pair(one, name, pythons, measure, now_first=bool(number % 2))
            longest[name] = max(longest[name], clock() - start)
        print(f"round {number + 1} of {rounds}: {(clock() - began) / 60:.1f} minutes", file=sys.stderr, flush=True)
    return found


def add_pair(one: Found, name: str, pythons: tuple[str, str], measure: Measure, *, now_first: bool) -> None:
    """Measure a line by both versions."""
    results: dict[int, tuple[float, str] | str] = {}
    for which in (1, 0) if now_first else (0, 1):
        results[which] = measure(pythons[which], name)
    before, now = results[0], results[1]
    one.fails_before, one.fails_now = (result if isinstance(result, str) else "" for result in (before, now))
    if not isinstance(before, str) and not isinstance(now, str):
        one.pairs.append((before[0], now[0]))
        one.kernels |= {before[1], now[1]}


def table(found: dict[str, Found]) -> list[list[object]]:
    """Return a row for each line."""
    rows: list[list[object]] = []
    for name, one in found.items():
        columns = zip(*one.pairs) if one.pairs else ((math.nan,), (math.nan,))
        times = [f"{1e3 * statistics.median(column):.4g}" for column in columns]
        numbers = [f"{one.ratio:.3f}", f"{one.spread:.3f}", len(one.pairs)]
        rows.append([name, *times, *numbers, " and ".join(sorted(one.kernels)), one.verdict])
    return rows


def closing(found: dict[str, Found], before: str) -> list[str]:
    """Return the verdict in sentences, with the command that looks at what is in doubt again."""
    texts = [f"fails now: {name}: {one.fails_now}" for name, one in found.items() if one.fails_now]
    texts += [
        f"fails before, and is not judged: {name}: {one.fails_before}"
        for name, one in found.items()
        if one.verdict == "new"
    ]
    doubtful = [name for name, one in found.items() if one.verdict in ("slower", "unclear", "not judged")]
    if doubtful:
        again = f"before={before} rounds=11 only={','.join(benchmarks(doubtful))}"
        texts.append(f"more pairs tell more: tartan bench guard {again}")
    n_of = {
        word: sum(one.verdict == word for one in found.values()) for word in ("slower", "unclear", "same", "faster")
    }
    judged = f"{sum(n_of.values())} of {len(found)} lines judged"
    return [*texts, f"{judged}: " + ", ".join(f"{n} {word}" for word, n in n_of.items())]
