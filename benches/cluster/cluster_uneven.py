"""Four ranks whose speeds are as 1, 2, 4 and 8, first guessed equal: the time of the sum of speeds, and who idles last.

Each rank takes the next speed when it compares first, and takes its time: so four ranks fit two cores.

Words: ``items=500`` ``seconds=40`` ``room=0.5``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tartan
from benches.cluster._cluster import real
from benches.shared._measure import not_held, options_of, print_table

SPEEDS = (1, 2, 4, 8)
LATE_SECONDS = 0.002
MOST_TIME = 1.05
MOST_IDLE = 0.03


class Uneven(tartan.Application):
    """Compares as fast as the number that its process could claim says."""

    releases_gil = True
    ragged = False

    def __init__(self, *, claims: str = "", pair_seconds: float = 0.0, driver: int = 0) -> None:
        self.claims = claims
        self.pair_seconds = pair_seconds
        self.driver = driver
        self._speed = 0
        self._free = 0.0

    def parse(self, key: str, data: Any) -> Any:
        """Return a small array."""
        return np.full(4, data, np.float32)

    def compare(self, left: Any, right: Any, xp: Any) -> Any:
        """Take the time that the pairs cost, then return something."""
        if os.getpid() != self.driver:
            self._take_time(len(left) * len(right))
        return left[:, 0][:, None] + right[:, 0][None, :]

    def _take_time(self, n_pairs: int) -> None:
        speed = self._speed or self._claimed()
        cost = n_pairs * self.pair_seconds / speed
        self._free = max(self._free, time.monotonic() - LATE_SECONDS) + cost
        time.sleep(max(0.0, self._free - time.monotonic()))
        with (Path(self.claims) / f"{speed}.log").open("a") as log:
            log.write(f"{time.time()} {cost}\n")

    def _claimed(self) -> int:
        for speed in SPEEDS:
            with contextlib.suppress(FileExistsError):
                (Path(self.claims) / str(speed)).touch(exist_ok=False)
                self._speed = speed
                break
        return self._speed


def _log(path: Path) -> np.ndarray:
    """Return when calls ended and what they cost; a rank that came too late made none."""
    found: np.ndarray = np.loadtxt(path, ndmin=2) if path.exists() else np.empty((0, 2))
    return found


def main(words: list[str]) -> int:
    """Measure, print, and hold the bars."""
    options = options_of(words, items=500, seconds=40.0, room=0.5)
    pairs = options.items * (options.items - 1) // 2
    with tempfile.TemporaryDirectory(prefix="tartan-bench-") as claims:
        pair_seconds = options.seconds * sum(SPEEDS) / pairs
        app = Uneven(claims=claims, pair_seconds=pair_seconds, driver=os.getpid())
        found = real(app, options.items, round(options.room * options.items), options.seconds, len(SPEEDS), "sim")
        logs = [_log(Path(claims) / f"{speed}.log") for speed in SPEEDS]
    begin = min(float(log[0, 0]) for log in logs if len(log))
    ends = [float(log[-1, 0]) if len(log) else begin for log in logs]
    idle = (max(ends) - min(ends)) / (max(ends) - begin)
    rows = [
        [speed, f"{log[:, 1].sum() * speed / app.pair_seconds / pairs:.1%}", f"{end - begin:.2f}"]
        for speed, log, end in zip(SPEEDS, logs, ends, strict=True)
    ]
    print_table("four ranks of unlike speeds", rows, ["speed", "pairs of all", "ended after s"])
    ratio = found.seconds / options.seconds
    print(f"time over that of the sum of speeds: {ratio:.3f} (bar {MOST_TIME})")
    print(f"last rank idle: {idle:.1%} (bar {MOST_IDLE:.0%})")
    print(f"steals {found.steals}, R {found.loads:.2f}, F {found.fills:.2f}")
    missed = [f"time {ratio:.3f}"] if ratio > MOST_TIME else []
    return not_held(missed + ([f"idle {idle:.1%}"] if idle > MOST_IDLE else []))
