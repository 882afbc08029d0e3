"""Runs on several ranks in a deterministic simulation, and faults planted in the real code that it must find.

``python -m fuzz cluster --rounds 1 --seed N`` repeats what a seed here says; ``fuzz/cluster`` has the world.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fuzz.cluster.checks import Violation
from fuzz.cluster.world import LEAST_FAULTS, simulate
from tartan.base.files import FileWriter
from tartan.cluster import station
from tartan.cluster.rank import RankLink
from tartan.core.pairs.region import Region
from tartan.core.ranks.allotment import Allotment
from tartan.core.ranks.coordinator import ChunkOwners
from tartan.core.ranks.homes import Homes
from tartan.core.ranks.messages import GivenUp, Shed
from tartan.run.cluster_run import Tenure

ROOT = Path(__file__).resolve().parents[2]
SEARCHED = 1000
"""Seeds within which every planted fault must be found."""

Plant = Callable[[pytest.MonkeyPatch], None]


def lose_lease_check(patch: pytest.MonkeyPatch) -> None:
    """Let a rank claim chunks after it was frozen, without asking whether it was given up."""
    patch.setattr(RankLink, "before_step", lambda link, step: None)


def commit_without_fsync(patch: pytest.MonkeyPatch) -> None:
    """Say that all is on the disk, and force nothing."""
    patch.setattr(FileWriter, "sync", lambda writer: 0)


def accept_stale_epoch(patch: pytest.MonkeyPatch) -> None:
    """Take messages of members that were given up."""
    patch.setattr(station, "judge_sender", lambda envelope, view: None)


def go_on_after_takeover(patch: pytest.MonkeyPatch) -> None:
    """Let a driver go on although another one has taken the run over, with a higher epoch."""
    patch.setattr(Tenure, "require", lambda tenure: None)


def grant_twice(patch: pytest.MonkeyPatch) -> None:
    """Let work that a rank gives up stay with it."""
    real: Callable[[Allotment, Shed], GivenUp] = Allotment.give_back

    def give_back(allotment: Allotment, asked: Shed) -> GivenUp:
        given = real(allotment, asked)
        allotment.on_granted(given.regions)
        return given

    patch.setattr(Allotment, "give_back", give_back)


def drop_release(patch: pytest.MonkeyPatch) -> None:
    """Never release a kept slot from which items were sent."""
    patch.setattr(Homes, "on_sent", lambda homes, span, kept: [])


def lose_work_of_lost(patch: pytest.MonkeyPatch) -> None:
    """Do not give out again what a lost rank was granted."""
    real: Callable[..., list[Region]] = ChunkOwners.take_back

    def take_back(owners: ChunkOwners, rank: int, regions: Sequence[Region] | None = None) -> list[Region]:
        parts = real(owners, rank, regions)
        return [] if regions is None else parts

    patch.setattr(ChunkOwners, "take_back", take_back)


PLANTED: dict[Plant, tuple[int, str]] = {
    lose_lease_check: (10, "was given up while it was frozen"),
    commit_without_fsync: (0, "a power cut would lose"),
    accept_stale_epoch: (19, "which it has given up"),
    go_on_after_takeover: (179, "it was taken over"),
    grant_twice: (0, "granted to two ranks"),
    drop_release: (0, "pins on kept slots"),
    lose_work_of_lost: (8, "no end|nothing happens"),
}


def find(seeds: range) -> tuple[int, str]:
    """Return the first seed in which something does not hold, and what."""
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as error:
            return seed, str(error)
    raise AssertionError(f"nothing was found in {len(seeds)} seeds")


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, said = PLANTED[plant]
    plant(monkeypatch)
    with pytest.raises(Violation, match=said) as caught:
        simulate(seed)
    assert "faults: " in str(caught.value)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_searching(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """From other seeds than the one that is known to find it."""
    plant(monkeypatch)
    assert find(range(SEARCHED, 2 * SEARCHED))[1]


@pytest.mark.slow
def test_a_run_without_planted_faults_comes_to_its_end() -> None:
    outcome = simulate(1)
    assert (outcome.n_chunks >= 200, outcome.n_ranks >= 4, len(outcome.faults) >= LEAST_FAULTS) == (True, True, True)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_many_runs_come_to_their_end(first: int) -> None:
    for seed in range(first, first + 50):
        assert len(simulate(seed).faults) >= LEAST_FAULTS


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_seed_says_everything_in_every_process() -> None:
    """Sets and dictionaries are in another order where texts have other hashes."""
    command = [sys.executable, "-c", "from fuzz.cluster.world import simulate; print(simulate(2))"]
    found = set()
    for hashes in ("1", "2"):
        variables = os.environ | {"PYTHONHASHSEED": hashes}
        ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, env=variables)
        found.add(ran.stdout)
    assert len(found) == 1
    assert str(simulate(2)) + "\n" in found
