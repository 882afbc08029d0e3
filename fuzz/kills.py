"""kill -9 at random moments, again and again, each time followed by the same command: in the end all is right."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import tartan

MOST_KILLS = 12
RUN = """
import sys, time
import numpy as np
import tartan

class Slow(tartan.Application):
    releases_gil = sys.argv[3] == "threads"
    ragged = False

    def compare(self, left, right, xp):
        end = time.perf_counter() + 0.003
        while time.perf_counter() < end:
            pass
        return np.abs(np.subtract.outer(np.ravel(left), np.ravel(right)))

tartan.allpairs(Slow(), np.load(sys.argv[1])[:, None], sys.argv[2], tile=12, workers=2, quiet=True)
"""


def attack(rng: random.Random, folder: Path) -> None:
    """Start a run, kill it, start it again."""
    numbers = np.array([float(rng.randrange(1000)) for _ in range(rng.randrange(20, 80))])
    np.save(folder / "numbers.npy", numbers)
    out, kind = folder / "run.tartan", rng.choice(["threads", "processes"])
    words = [sys.executable, "-c", RUN, str(folder / "numbers.npy"), str(out), kind]
    for _ in range(rng.randrange(1, MOST_KILLS)):
        with subprocess.Popen(words, start_new_session=True, env=dict(os.environ)) as process:
            try:
                status = process.wait(timeout=rng.uniform(0.1, 3.0))
                assert status == 0, f"the run ended with status {status}"
                break
            except subprocess.TimeoutExpired:
                _kill(process, rng.random() < 0.5)
    subprocess.run(words, check=True, timeout=200)
    run = tartan.open(out)
    expected = np.abs(np.subtract.outer(numbers, numbers))
    np.testing.assert_array_equal(run.matrix(diagonal=0.0), expected.astype(np.float32))
    assert not list((out / "tmp").glob("*")), "temporary files are left"


def _kill(process: subprocess.Popen[bytes], whole_group: bool) -> None:
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
