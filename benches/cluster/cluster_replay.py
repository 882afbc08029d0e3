"""Real runs on four ranks against their replays in virtual time: loads, fills and seconds.

The device takes its time as told, so four ranks fit two cores, and a replay knows how fast each is.

Words: ``items=500`` ``rooms=0.1,0.3`` ``seconds=40``.
"""

from __future__ import annotations

from benches.cluster._cluster import Quick, real, replayed
from benches.shared._measure import not_held, options_of, print_table

N_RANKS = 4
MOST = (0.05, 0.05, 0.10)


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    options = options_of(words, items=500, rooms="0.1,0.3", seconds=40.0)
    lines: list[list[object]] = []
    missed: list[str] = []
    for room in map(float, options.rooms.split(",")):
        slots = round(room * options.items)
        speed = options.items * (options.items - 1) / 2 / N_RANKS / options.seconds
        found = real(Quick(), options.items, slots, options.seconds)
        foretold = replayed(options.items, slots, [speed] * N_RANKS, grid=found.grid)
        values = [(one.loads, one.fills, one.seconds) for one in (found, foretold)]
        off = [real_value / value - 1 for real_value, value in zip(*values, strict=True)]
        lines += [
            ["real", room, *values[0]],
            ["replayed", room, *values[1]],
            ["off by", room, *(f"{x:+.1%}" for x in off)],
        ]
        if any(abs(x) > most for x, most in zip(off, MOST, strict=True)):
            missed.append(f"S = {room} n: off by {', '.join(f'{x:+.1%}' for x in off)}")
    lines.append(["bar", "", *(f"{most:.0%}" for most in MOST)])
    print_table("real and replayed runs on four ranks", lines, ["", "S/n", "R", "F", "s"])
    return not_held(missed)
