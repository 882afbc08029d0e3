"""A call that is killed at any of its checkpoints goes on to what an uninterrupted one gives, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tartan.analytics import DAMDS, DAPWC, DAVS, LMMDS, Monitor

_RNG = np.random.default_rng(5)
_CENTRES = np.array([[0.0, 0, 0], [9, 0, 0], [0, 9, 0], [9, 9, 3]])
POINTS = np.concatenate([_RNG.normal(centre, 0.6, (15, 3)) for centre in _CENTRES])
D = np.linalg.norm(POINTS[:, None] - POINTS, axis=2)
HOLES = np.where(np.triu(_RNG.random(D.shape) < 0.1, 1), -1, np.triu(D / D.max() * 32767)).astype(np.int16)
HOLES = np.triu(HOLES, 1) + np.triu(HOLES, 1).T

FAST = {"cooling": (0.7, 0.9), "cooling_below": (0.8, 0.95)}
FITS: dict[str, tuple[Callable[[Monitor], Any], tuple[str, ...]]] = {
    "DAMDS": (lambda m: DAMDS(2, random_state=0, alpha=0.6).fit(D, monitor=m), ("embedding_", "stress_", "n_passes_")),
    "DAMDS with holes": (
        lambda m: DAMDS(2, random_state=0, max_temperatures=5, sammon=True).fit(HOLES, monitor=m),
        ("embedding_", "history_"),
    ),
    "SMACOF": (
        lambda m: DAMDS(2, random_state=0, annealing=False, accelerate="none", tol=1e-3).fit(D, monitor=m),
        ("embedding_", "history_"),
    ),
    "DAPWC": (
        lambda m: DAPWC(4, random_state=0, cooling=0.9, final_cooling=0.8).fit(HOLES, monitor=m),
        ("membership_", "temperatures_", "splits_"),
    ),
    "DAVS": (
        lambda m: DAVS(
            0.6, min_temperature=2, sponge="late", sponge_temperatures=(9, 3), **FAST
        ).fit(POINTS, monitor=m),
        ("cluster_centers_", "labels_", "n_iter_"),
    ),
    "DAVS of a sample": (
        lambda m: DAVS(0.6, min_temperature=2, sample=30, **FAST).fit(POINTS, monitor=m),
        ("cluster_centers_", "labels_", "n_iter_"),
    ),
    "LMMDS": (
        lambda m: LMMDS(2, random_state=0, n_init=2, max_iter=8).fit(HOLES, monitor=m),
        ("embedding_", "chisq_", "errors_"),
    ),
}  # fmt: skip


class _Kill(BaseException):
    """What no handler of the code under test hears of."""


class _Killed(Monitor):
    """Writes every state, and is killed right after one of them."""

    def __init__(self, path: Path, after: float) -> None:
        super().__init__(checkpoint=path, every_seconds=0.0)
        self.left, self.n_saved = after, 0

    def save(self, state: Any) -> None:
        super().save(state)
        self.n_saved += 1
        if self.n_saved == self.left:
            raise _Kill


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", FITS)
def test_killed_after_any_checkpoint(name: str, every: bool, tmp_path: Path) -> None:
    fit, attributes = FITS[name]
    counting = _Killed(tmp_path / "whole.npz", np.inf)
    whole = fit(counting)
    assert counting.n_saved > 6
    n_saved = counting.n_saved
    moments = {1, 2, 3, n_saved // 2, n_saved - 1, n_saved} if every else {2, n_saved}
    for after in sorted(moments):
        path = tmp_path / f"{after}.npz"
        with pytest.raises(_Kill):
            fit(_Killed(path, after))
        resumed = _Killed(path, np.inf)
        again = fit(resumed)
        assert resumed.n_saved <= counting.n_saved - after + 1  # it went on, and did not begin afresh
        for attribute in attributes:
            np.testing.assert_array_equal(getattr(again, attribute), getattr(whole, attribute))
        assert not path.exists()


class _Interrupted(Monitor):
    """Is interrupted by Ctrl-C after some states, none of which was written yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(checkpoint=path, every_seconds=1e9)
        self.left = 4

    def save(self, state: Any) -> None:
        super().save(state)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_an_interrupt_leaves_the_last_state(name: str, tmp_path: Path) -> None:
    fit, attributes = FITS[name]
    path = tmp_path / "c.npz"
    with pytest.raises(KeyboardInterrupt):
        fit(_Interrupted(path))
    assert path.exists()
    whole, again = fit(Monitor()), fit(Monitor(checkpoint=path))
    for attribute in attributes:
        np.testing.assert_array_equal(getattr(again, attribute), getattr(whole, attribute))


@pytest.mark.slow
def test_killed_twice_and_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    fit, attributes = FITS["DAVS"]
    whole, path = fit(Monitor()), tmp_path / "c.npz"
    for after in (5, 7):
        with pytest.raises(_Kill):
            fit(_Killed(path, after))
    (tmp_path / ".c.npz.unfinished").write_bytes(path.read_bytes()[:100])
    again = fit(Monitor(checkpoint=path))
    for attribute in attributes:
        np.testing.assert_array_equal(getattr(again, attribute), getattr(whole, attribute))
    assert list(tmp_path.iterdir()) == []
