"""A checkpoint that some ranks wrote is resumed by another number of ranks, with the bits of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.comm_threads import ThreadWorld
from tartan.analytics import DAMDS, DAPWC, Monitor

POINTS = np.random.default_rng(8).standard_normal((40, 4)) + 5.0 * (np.arange(40) % 3)[:, None]
DISTANCES = np.sqrt(np.square(POINTS[:, None] - POINTS).sum(axis=2))


class _Kill(BaseException):
    """The end of a rank that no code under test handles."""


class _Writer(Monitor):
    """Writes every state, on one rank, and is killed right after one of them."""

    def __init__(self, path: Path, *, writes: bool, kill_after: int = 0) -> None:
        super().__init__(checkpoint=path, every_seconds=0.0, writes=writes)
        self._left = kill_after if writes else 0
        self.n_saved = 0
        self.resumed: dict[str, Any] | None = None

    def load(self) -> Any:
        self.resumed = super().load()
        return self.resumed

    def save(self, state: Any) -> None:
        super().save(state)
        self.n_saved += 1
        if self.n_saved == self._left:
            raise _Kill


def damds(monitor: Monitor, ranks: Any) -> np.ndarray:
    """Return a map."""
    model = DAMDS(2, random_state=1, max_temperatures=6)
    return model.fit(DISTANCES, monitor=monitor, communicator=ranks).embedding_


def dapwc(monitor: Monitor, ranks: Any) -> np.ndarray:
    """Return the shares of items in clusters."""
    model = DAPWC(3, random_state=1, cooling=0.8, final_cooling=0.7)
    return model.fit(DISTANCES, monitor=monitor, communicator=ranks).membership_


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3,), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("fit", [damds, dapwc])
def test_another_number_of_ranks_resumes_with_the_same_bits(
    fit: Callable[[Monitor, Any], np.ndarray], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    counting = _Writer(tmp_path / "whole.npz", writes=True)
    expected = fit(counting, None)
    assert counting.n_saved > 3
    path = tmp_path / "state.npz"

    def killed(ranks: Any) -> np.ndarray:
        return fit(_Writer(path, writes=ranks.rank == 0, kill_after=counting.n_saved // 2), ranks)

    with pytest.raises(_Kill):
        ThreadWorld((2,)).run(killed)
    assert path.exists()

    def resumed(ranks: Any) -> tuple[np.ndarray, bool, int]:
        monitor = _Writer(path, writes=ranks.rank == 0)
        return fit(monitor, ranks), monitor.resumed is not None, monitor.n_saved

    for found, did_resume, n_saved in ThreadWorld(sizes).run(resumed):
        assert did_resume
        assert n_saved < counting.n_saved
        assert found.tobytes() == expected.tobytes()
    assert not path.exists()
