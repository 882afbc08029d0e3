"""Two checkouts of Tartan, the same short benchmarks in turns: what became slower?

    python benches/_before.py OLD_PYTHON OLD_CHECKOUT [rounds=5] [only=mds,sort]

``OLD_PYTHON`` runs the package of ``OLD_CHECKOUT``; this interpreter runs that of this checkout. Every benchmark runs
in its short form, ``rounds`` times in each checkout, in turns. Compared are the figures of time that both print, each
by its median, and the processor time of the whole command. Above 1 the new one is slower. ``spread`` is how far the
figures of the old checkout lie apart by themselves (highest over lowest).
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SHORT = {
    "chisq": ["n=120", "rounds=1"],
    "commit": [],
    "forensics": [],
    "loads": ["slots=60", "times=5,10"],
    "mds": ["n=1500", "large=0", "rounds=1"],
    "overhead": ["n=1500", "rounds=1"],
    "pair_function": ["n=200", "trivial=600", "rounds=1"],
    "phylogeny": [],
    "pwc": ["n=1500", "k=4"],
    "simulated": ["seconds=4", "rounds=1"],
    "sort": ["gigabytes=0.3", "parts=integers,records"],
    "tree": ["n=1000"],
    "vectors_kernels": [],
    "vs": ["n=12000", "small=500"],
}


def main(arguments: list[str]) -> int:
    """Print one table; return 0."""
    python, checkout = arguments[0], Path(arguments[1])
    words = dict(word.split("=", 1) for word in arguments[2:])
    rounds, chosen = int(words.get("rounds", "5")), words.get("only", ",".join(SHORT)).split(",")
    print(f"{'benchmark':18} {'figure':44} {'new / old':>9} {'spread':>7}")
    for name in chosen:
        old: list[dict[str, float]] = []
        new: list[dict[str, float]] = []
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                (old, new)[which].append(figures((python, sys.executable)[which], (checkout, HERE)[which], name))
        for figure in old[0]:
            if all(figure in one for one in (*old, *new)):
                before, after = ([one[figure] for one in many] for many in (old, new))
                ratio = statistics.median(after) / max(statistics.median(before), 1e-12)
                spread = max(before) / max(min(before), 1e-12)
                print(f"{name:18} {figure:44} {ratio:9.3f} {spread:7.2f}", flush=True)
    return 0


def figures(python: str, checkout: Path, name: str) -> dict[str, float]:
    """Run a benchmark once; return its figures of time, in seconds or as inverse rates."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [python, "-m", "tartan", "bench", name, *SHORT[name], "--json"],
        cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = {"whole command, wall s": wall, "whole command, processor s": cpu}
    if done.returncode == 0 and done.stdout.strip():
        found |= dict(leaves(json.loads(done.stdout)[name], ""))
    else:
        print(f"{name}: exit status {done.returncode} in {checkout}", file=sys.stderr)
    return found


def leaves(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a result whose names say that they are times or rates."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        last = path.rpartition(".")[2]
        if last.endswith(("seconds", "_ms", "_us", "_s")) and not last.endswith("per_s"):
            yield path, float(value)
        elif last.endswith("per_s"):
            yield f"1 / {path}", 1 / value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
