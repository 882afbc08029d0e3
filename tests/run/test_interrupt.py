"""Ctrl-C in a program: KeyboardInterrupt, and a folder that resumes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.errors import RunCancelledError

SIGNALS = pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, RunCancelledError)]
)


class StopsItself(tartan.Application):
    """Sends this process a signal when it compares ``at``, as long as the marker file is there.

    Item 21 of 40 is none of those that are compared before the run, 20 is one.
    """

    releases_gil = True

    def __init__(self, marker: str, number: int, at: float = 21.0) -> None:
        self.marker, self.number, self.at = marker, number, at

    def compare_pair(self, a: float, b: float) -> float:
        if a == self.at and Path(self.marker).exists():
            Path(self.marker).unlink()
            os.kill(os.getpid(), self.number)
        return abs(a - b)


@SIGNALS
def test_a_signal_before_the_run_begins_leaves_no_run(
    tmp_path: Path, number: signal.Signals, expected: type[BaseException]
) -> None:
    """While a few pairs are compared both ways."""
    marker = tmp_path / "marker"
    marker.touch()
    app, items = StopsItself(str(marker), number, at=20.0), [float(k) for k in range(40)]
    with pytest.raises(expected, match="stopped before the run began"):
        tartan.allpairs(app, items, tmp_path / "run", workers=1, tile=4)
    assert not marker.exists()
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert tartan.allpairs(app, items, tmp_path / "run", workers=1, tile=4).finished


@SIGNALS
def test_a_signal_leaves_a_folder_that_resumes(
    tmp_path: Path, number: signal.Signals, expected: type[BaseException]
) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    app, items = StopsItself(str(marker), number), [float(k) for k in range(40)]
    with pytest.raises(expected, match="run it again to resume"):
        tartan.allpairs(app, items, tmp_path / "run", workers=1, tile=4)
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    left = tartan.open(tmp_path / "run").n_pairs_left
    assert left > 0
    run = tartan.allpairs(app, items, tmp_path / "run", workers=1, tile=4)
    np.testing.assert_array_equal(np.asarray(run)[3, 4:], np.arange(1, 37, dtype=np.float32))
    assert run.finished
