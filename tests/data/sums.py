"""The application of the run folders in old_runs.tar.xz; its scores are whole numbers, the same on any machine."""

import os
import signal

import numpy as np

import tartan


class Sums(tartan.Application):
    """Adds the numbers of two items; with DIE_AT in the environment, the pair with that score ends the program."""

    releases_gil = True
    similarity = False

    def parse(self, key, data):
        return np.frombuffer(data, np.uint8).astype(np.float32)

    def compare(self, left, right, xp):
        scores = left.sum(axis=1)[:, None] + right.sum(axis=1)
        if float(os.environ.get("DIE_AT", -1)) in scores:
            os.kill(os.getpid(), signal.SIGKILL)
        return scores


class Distances(Sums):
    """Differences of two items: places on a line."""

    def compare(self, left, right, xp):
        return abs(left.sum(axis=1)[:, None] - right.sum(axis=1))
