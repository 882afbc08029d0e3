"""What benchmarks of several ranks share: one real run on the simulated device, and the replay of such a run."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from tartan.core.pairs.grid import Grid
from tartan.core.pairs.workload import AllPairs
from tartan.core.ranks.division import chunk_pairs
from tartan.core.ranks.layout import choose_cluster_grid
from tartan.core.replay.cluster import ClusterReplay
from tartan.core.replay.described import ClusterNetwork, ClusterOptions, ClusterPrediction, ReplayedRank, lines_of_run

PARSE_SECONDS = 5e-4
LATENCY_SECONDS = 3e-3


class Quick(tartan.Application):
    """Items of one form that cost little; the device takes its time as told."""

    releases_gil = True
    ragged = False

    def parse(self, key: str, data: Any) -> Any:
        """Sleep, then return a small array."""
        time.sleep(PARSE_SECONDS)
        return np.full(4, data, np.float32)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Return something."""
        return left[:, 0][:, None] + right[:, 0][None, :]


@dataclass(frozen=True)
class Outcome:
    """What a run or a replay came to; loads and fills also over their bounds."""

    loads: float
    loads_ratio: float
    fills: float
    fills_ratio: float
    seconds: float
    steals: int
    grid: Grid


def real(app: Any, n_items: int, slots: int, seconds: float, n_ranks: int = 4, device: str = "") -> Outcome:
    """Compare all pairs on ranks that take about ``seconds`` together, each with so many host slots."""
    nanoseconds = seconds * n_ranks * 1e9 / (n_items * (n_items - 1) / 2)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        run = tartan.allpairs(
            app,
            list(range(n_items)),
            Path(place) / "run",
            device=device or f"sim:compare={nanoseconds:.0f}ns",
            host_cache=f"{slots}items",
            device_cache=f"{slots}items",
            workers=1,
            quiet=True,
            on=f"local:{n_ranks}",
        )
        cuts = json.loads((run.path / "manifest.json").read_text())["grid"]
        stats = run.stats
    return Outcome(
        stats["storage_load_factor"],
        stats["storage_load_factor"] / stats["storage_load_factor_bound"],
        stats["load_factor"],
        stats["load_factor"] / stats["load_factor_bound"],
        stats["wall_seconds"],
        stats["steals"],
        Grid(n_items, *(cuts[name] for name in ("chunk", "panel", "strip", "span"))),
    )


def replayed(
    n_items: int, slots: int, speeds: Sequence[float], *, homes: bool = True, grid: Grid | None = None
) -> Outcome:
    """Replay such a run on ranks of given speeds, in pairs a second; ``grid`` is that of a run that was made."""
    pairs_of, all_slots = AllPairs(n_items), slots * len(speeds)
    grid = grid or choose_cluster_grid(pairs_of, slots, len(speeds))
    lines, pieces = lines_of_run(grid, slots, all_slots if homes else slots)
    ranks = [ReplayedRank(slots, speed, load_seconds=PARSE_SECONDS, division=lines) for speed in speeds]
    options = ClusterOptions(homes=homes, pieces=pieces)
    network = ClusterNetwork(latency_seconds=LATENCY_SECONDS)
    found = ClusterReplay(chunk_pairs(grid, pairs_of), grid.chunk, n_items, ranks, network, options).run()
    return outcome_of(found, grid)


def outcome_of(found: ClusterPrediction, grid: Grid) -> Outcome:
    """Return what a replay came to."""
    return Outcome(
        found.storage_load_factor,
        found.storage_load_factor / found.storage_load_factor_bound,
        found.load_factor,
        found.load_factor / found.load_factor_bound,
        found.seconds,
        found.steals,
        grid,
    )


def bars(room: float, n_ranks: int, *, unlike: bool = False) -> tuple[float, float]:
    """Return the most loads and fills over their bounds, for ranks with room for a part of the items each."""
    total = round(room * n_ranks, 6)
    loads = 1.1 if total >= 1.2 else 1.8 if unlike else 1.6
    return loads, 2.2 if 0.7 <= total <= 1.1 else 1.7
