"""Loads from storage and fills of host slots on four ranks, against their bounds; and what LRU without homes loads.

Real runs of 500 items, with room for a part of them on each rank; the device takes its time as told, so four ranks fit
two cores. Replays of 2,000 items, on ranks of equal speed and of speeds up to 10 % more or less.

Words: ``items=500`` ``rooms=0.1,0.2,0.3,0.5`` ``seconds=20`` of a real run; ``replayed`` leaves real runs out.
"""

from __future__ import annotations

import numpy as np

from benches.cluster._cluster import Outcome, Quick, bars, real, replayed
from benches.shared._measure import not_held, options_of, print_table

N_RANKS = 4
N_REPLAYED = 2000
REPLAYED_ROOMS = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
REPLAYED_SECONDS = 40.0
UNLIKE = 0.1
HEAD = ["items", "S/n", "ranks", "R", "R/R_min", "bar", "F", "F/F_min", "bar", "steals", "s", "R of LRU, no homes"]


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    options = options_of(words, items=500, rooms="0.1,0.2,0.3,0.5", seconds=20.0, replayed=False)
    lines: list[list[object]] = []
    missed: list[str] = []

    def note(how: str, n_items: int, room: float, found: Outcome, *, unlike: bool = False) -> None:
        most_loads, most_fills = bars(room, N_RANKS, unlike=unlike)
        pairs = n_items * (n_items - 1) / 2
        alone = replayed(n_items, round(room * n_items), [pairs / N_RANKS / REPLAYED_SECONDS] * N_RANKS, homes=False)
        ratios = [found.loads, found.loads_ratio, most_loads, found.fills, found.fills_ratio, most_fills]
        lines.append([n_items, room, how, *ratios, found.steals, found.seconds, alone.loads])
        if found.loads_ratio > most_loads or found.fills_ratio > most_fills:
            missed.append(f"{n_items} items, S = {room} n, {how}")

    for room in [] if options.replayed else map(float, options.rooms.split(",")):
        note("real", options.items, room, real(Quick(), options.items, round(room * options.items), options.seconds))
    for room in REPLAYED_ROOMS:
        speed = N_REPLAYED * (N_REPLAYED - 1) / 2 / N_RANKS / REPLAYED_SECONDS
        slots = round(room * N_REPLAYED)
        note("replayed, equal", N_REPLAYED, room, replayed(N_REPLAYED, slots, [speed] * N_RANKS))
        speeds = speed * (1 + UNLIKE * np.random.default_rng(0).uniform(-1, 1, N_RANKS))
        note("replayed, unlike", N_REPLAYED, room, replayed(N_REPLAYED, slots, speeds.tolist()), unlike=True)
    print_table("loads and fills on four ranks", lines, HEAD)
    return not_held(missed)
