"""kill -9 in the middle of slow pairs: what is lost is what was under way, and what a minute had finished.

Time is scaled: where a pair stands for 5 minutes and takes 30 ms, the 45 seconds after which finished tiles are saved
are 4.5 ms. Sixteen workers sleep in their calls, so two cores are enough.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.core.pairs.ledger import DONE
from tartan.core.pairs.saves import OLDEST_SECONDS
from tartan.store.folder import RunFolder

N, N_WORKERS = 500, 16
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
import tartan
from tartan.core.pairs import saves

out, log, n, n_workers, seconds, scale = Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:])
saves.OLDEST_SECONDS *= scale
saves.MOST_OF_TIME = min(1.0, saves.MOST_OF_TIME / scale)  # what a save takes is not scaled
ended = open(log, "ab", buffering=0)

calls = []

class Slow(tartan.Application):
    releases_gil = True
    def compare(self, left, right, xp):
        time.sleep(seconds * len(left) * len(right))
        scores = np.abs(left - right.T)
        ended.write(f"{time.time()} {len(left) * len(right)}\\n".encode())
        calls.append(None)
        if len(calls) == 60:  # beyond those that learn what a pair costs
            print("under way", flush=True)
        return scores

items = np.arange(n)[:, None]
tartan.allpairs(Slow(), items, out=out, workers=int(n_workers), quiet=True)
"""

pytestmark = pytest.mark.exhaustive


def run_and_kill(out: Path, log: Path, pair_seconds: float, scale: float, after_seconds: float) -> float:
    """Run for a while, kill, and return when that was."""
    words = [str(out), str(log), *map(str, (N, N_WORKERS, pair_seconds, scale))]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        if running.stdout.readline():  # else it has ended
            time.sleep(after_seconds)
        killed = time.time()
        running.kill()
    return killed


@pytest.mark.parametrize(
    ("pair_seconds", "scale"),
    [(0.001, 1.0), (0.01, 0.01), (0.03, 0.0001)],
    ids=["1 ms", "1 s", "5 minutes"],
)
def test_a_kill_costs_a_minute_at_most(tmp_path: Path, pair_seconds: float, scale: float) -> None:
    """Twenty kills of one run after the other; what the ledger has grows by what was done, but for a minute of it."""
    out, log, drawn = tmp_path / "r", tmp_path / "log", random.Random(11)
    log.touch()
    for _ in range(20):
        begun_with = RunFolder.open(out).counts()[DONE] if (out / "manifest.json").exists() else 0
        n_before = len(log.read_bytes())
        killed = run_and_kill(out, log, pair_seconds, scale, drawn.uniform(0.0, 3.0))
        if not (out / "manifest.json").exists():
            continue
        now = log.read_bytes()[n_before:].decode()
        ends = [line.split() for line in now.splitlines() if line.count(" ") == 1]
        # Reading the clock, handing over and writing take a while beside the scaled minute: a second is allowed for it.
        minute = OLDEST_SECONDS * scale / 0.75 + 1.0
        safe = sum(int(pairs) for end, pairs in ends if float(end) <= killed - minute)
        probed = 64  # pairs that were tried to learn what they cost, and tried both ways
        there = int(RunFolder.open(out).counts()[DONE]) - int(begun_with)
        assert there >= safe - probed, (there, safe, len(ends))
    whole = tartan.open(out)
    done = whole.matrix()
    known = ~np.isnan(done)
    truth = np.abs(np.arange(N)[:, None] - np.arange(N)[None, :])
    np.testing.assert_array_equal(done[known], truth[known])
    assert known.sum() > 10 * N
