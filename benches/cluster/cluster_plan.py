"""Replays of runs on several nodes: loads and fills against their bounds, the paper's cluster, a thousand nodes.

All in virtual time, in chunks, by the coordinator, the division and the homes of a real run. Speeds are guessed equal;
"unlike" are speeds of up to 10 % more or less, and "1:2:4:8".

Words: ``items=2000``; ``small`` leaves out the million items.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from benches.shared._measure import options_of, print_table
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.division import chunk_pairs
from tartan.core.replay.cluster import ClusterReplay
from tartan.core.replay.described import ClusterNetwork, ClusterOptions, ClusterPrediction, ReplayedRank
from tartan.plan import plan_report
from tartan.plan.cluster import ClusterRow

LINES = 500
PAIRS_A_SECOND = 1000.0
ROOMS = ((4, 0.05), (4, 0.1), (4, 0.2), (4, 0.25), (4, 0.3), (4, 0.5), (16, 0.1), (16, 0.21))


def replayed(n_items: int, room: float, speeds: list[float]) -> ClusterPrediction:
    """Replay all pairs on ranks with room for a part of the items."""
    chunk = n_items // LINES
    pairs = chunk_pairs(Grid(n_items, chunk, 0, chunk, chunk), AllPairs(n_items))
    ranks = [ReplayedRank(round(room * n_items), speed, load_seconds=1e-3) for speed in speeds]
    return ClusterReplay(pairs, chunk, n_items, ranks, ClusterNetwork(), ClusterOptions(ahead_seconds=0.5)).run()


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    chosen = options_of(words, items=2000, small=False)
    failed = [*_loads(chosen.items), *_uneven(chosen.items), *_paper()]
    if not chosen.small:
        failed += _million()
    for text in failed:
        print(f"NOT HELD: {text}", file=sys.stderr)
    return 1 if failed else 0


def _loads(n_items: int) -> list[str]:
    lines, failed = [], []
    rng = np.random.default_rng(0)
    for n_ranks, room in ROOMS:
        for unlike in (0.0, 0.1):
            speeds = (PAIRS_A_SECOND * (1 + unlike * rng.uniform(-1, 1, n_ranks))).tolist()
            found = replayed(n_items, room, speeds)
            loads = found.storage_load_factor / found.storage_load_factor_bound
            fills = found.load_factor / found.load_factor_bound
            ideal = sum(found.pairs) / sum(speeds)
            both = [found.storage_load_factor, loads, found.load_factor, fills]
            lines.append([n_ranks, room, f"{unlike:.0%}", *both, found.seconds / ideal])
            total = n_ranks * room
            most = 1.1 if total >= 1.2 else 1.8 if unlike else 1.6
            most_fills = 2.2 if 0.7 <= total <= 1.1 else 1.7
            if loads > most or fills > most_fills:
                failed.append(f"{n_ranks} ranks of {room} n, {unlike:.0%} unlike: R {loads:.2f}, F {fills:.2f} x bound")
    head = ["ranks", "S/n", "unlike", "R", "R/R_min", "F", "F/F_min", "time / sum of speeds"]
    print_table(f"loads and fills, {n_items} items", lines, head)
    return failed


def _uneven(n_items: int) -> list[str]:
    speeds = [PAIRS_A_SECOND * 2**k for k in range(4)]
    found = replayed(n_items, 0.5, speeds)
    ratio = found.seconds * sum(speeds) / sum(found.pairs)
    idle = 1 - min(found.ends) / found.seconds
    print_table("speeds 1:2:4:8, guessed equal", [[ratio, f"{idle:.1%}", found.steals]], ["time", "idle", "steals"])
    return [] if ratio <= 1.05 and idle <= 0.03 else [f"1:2:4:8: {ratio:.3f} of the ideal time, {idle:.1%} idle"]


def _paper() -> list[str]:
    rows = plan_report([Path("rocket-cartesius")]).rows
    lines = [[row.nodes, *_figures(row)] for row in rows]
    print_table("proteomes on Cartesius", lines, ["nodes", "R", "R/R_min", "F/F_min", "efficiency", "idle"])
    failed = []
    if rows[0].storage_load_factor > 1.15 * rows[0].storage_load_factor_bound:
        failed.append(f"one node: R is {rows[0].storage_load_factor:.2f}")
    if rows[-1].system_efficiency < 0.97 or rows[-1].storage_load_factor > 1.1:
        failed.append(f"48 nodes: efficiency {rows[-1].system_efficiency:.1%}, R {rows[-1].storage_load_factor:.2f}")
    return failed


def _figures(row: ClusterRow) -> list[object]:
    return [
        row.storage_load_factor,
        row.storage_load_factor / row.storage_load_factor_bound,
        row.load_factor / row.load_factor_bound,
        f"{row.system_efficiency:.1%}",
        f"{row.idle_share:.1%}",
    ]


def _million() -> list[str]:
    start = time.process_time()
    (row,) = plan_report([Path("million")], processes=1, fail=10).rows
    seconds = time.process_time() - start
    head = ["R", "R/R_min", "F/F_min", "efficiency", "idle", "lost", "processor s"]
    print_table("a million items on 1,000 nodes", [[*_figures(row), row.ranks_lost, seconds]], head)
    return [] if seconds < 300 and row.ranks_lost == 10 else [f"a million items take {seconds:.0f} s of a core"]
