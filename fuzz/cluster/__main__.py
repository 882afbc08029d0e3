"""Simulate the runs of many seeds, and say how fast that was: ``python -m fuzz.cluster FIRST COUNT``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from fuzz.cluster.checks import Violation
from fuzz.cluster.world import simulate


def main(words: list[str]) -> int:
    """Simulate; return 1 where something does not hold in a seed, which is named with the command that repeats it."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.cluster", description="Simulate runs on several ranks.")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, nargs="?", default=1, help="how many; default: 1")
    options = parser.parse_args(words)
    begun, total = time.process_time(), Counter[str]()
    for seed in range(options.first, options.first + options.count):
        try:
            outcome = simulate(seed)
        except Violation as error:
            print(f"{error}\nrepeat it with  python -m fuzz.cluster {seed}", file=sys.stderr)
            return 1
        total.update(
            runs=1, events=outcome.events, faults=len(outcome.faults), ranks=outcome.n_ranks, drivers=outcome.n_drivers
        )
    seconds = time.process_time() - begun
    counts = ", ".join(f"{count:,} {what}" for what, count in total.items())
    print(f"{counts}; {seconds:.1f} s of processor time, {total['events'] / seconds:,.0f} events/s")
    if options.count == 1:
        print("\n".join(outcome.faults))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
