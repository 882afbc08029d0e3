"""The protocol of a run on several ranks in a deterministic simulation: one seed replays everything."""

from __future__ import annotations

import random
from pathlib import Path

from fuzz.cluster.world import simulate_with


def attack(rng: random.Random, folder: Path) -> None:
    """Simulate one run on several ranks with faults; nothing is written."""
    simulate_with(rng)
