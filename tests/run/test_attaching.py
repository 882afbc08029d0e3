"""Following a run in virtual time: a world of leases that changes while the follower pauses."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_world import Sums

import tartan
from tartan.base.lock import EPOCH_NAME, myself, read_epoch
from tartan.cli.attach import choose_ranks
from tartan.cli.main import main
from tartan.errors import ConfigError, StoreError
from tartan.run.attach import LEASE_SECONDS, POLL_SECONDS, Follower, read_lease_seconds
from tartan.run.cluster_run import Tenure


class World:
    """An unfinished run, and what happens to it at which virtual second."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.events: list[tuple[float, Callable[[], object]]] = []
        run = tartan.allpairs(Sums(), list(range(8)), path, tile=4, quiet=True)
        assert run.finished
        next((path / "status.zarr").rglob("c/0/1")).unlink()  # one chunk is missing

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000.0, "nothing comes of it"
        for at, act in [event for event in self.events if event[0] <= self.now]:
            act()
            self.events.remove((at, act))

    def lease(self, about: dict[str, Any], age_seconds: float = 0.0, name: str = "host.1.00000000") -> None:
        """Write the lease of a writer."""
        place = self.path / "writers" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "lease").write_text(json.dumps(myself() | about))
        then = time.time() - age_seconds
        os.utime(place / "lease", (then, then))

    def leave(self, name: str = "host.1.00000000") -> None:
        """Let a writer leave in order."""
        (self.path / "writers" / name / "lease").unlink()
        (self.path / "writers" / name).rmdir()

    def follow(self) -> Any:
        return Follower(self.path, clock=self.clock, pause=self.pause).await_turn()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "run")


DRIVER = {"drives": True, "on": "local:4", "lease_seconds": 15.0}


def test_a_run_that_nobody_computes_is_taken_at_once(world: World) -> None:
    assert world.follow() == (False, "", False)
    assert world.now == 0.0


@pytest.mark.slow
def test_a_driver_whose_process_is_gone_is_replaced_within_a_second(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.lease(DRIVER)
    world.events.append((100.0, lambda: world.lease(DRIVER | {"started": "1"})))  # its number is another process's
    assert world.follow() == (False, "local:4", False)
    assert 100.0 <= world.now <= 100.0 + POLL_SECONDS
    assert f"process {os.getpid()} on " in capsys.readouterr().err
    assert read_epoch(world.path) == 0  # nobody is left that could come back


def test_orphaned_ranks_are_waited_for(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.lease(DRIVER | {"started": "1"})
    world.lease({"what": "rank a"}, name="host.2.00000000")
    world.events.append((3.0, lambda: world.leave("host.2.00000000")))
    assert world.follow() == (False, "local:4", False)
    assert 3.0 <= world.now <= 3.0 + POLL_SECONDS
    assert "goes on when its ranks have ended" in capsys.readouterr().err


def test_a_silent_driver_elsewhere_is_replaced_after_its_lease_and_its_epoch_is_over(world: World) -> None:
    tenure = Tenure(world.path)
    world.lease(DRIVER | {"host": "elsewhere"}, 19.0)
    world.events.append((5.0, lambda: world.lease(DRIVER | {"host": "elsewhere"}, 20.0)))
    assert world.follow() == (False, "local:4", False)
    assert 5.0 <= world.now <= 5.0 + POLL_SECONDS
    assert read_epoch(world.path) == 1
    assert tenure.is_over
    with pytest.raises(StoreError, match="epoch 1, this driver had 0") as caught:
        tenure.require()
    assert caught.value.code == "taken-over"
    Tenure(world.path).require()  # of the one that goes on


def test_a_driver_that_leaves_in_order_is_not_replaced(world: World) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        world.lease(DRIVER | {"pid": process.pid, "started": started})

        def end() -> None:
            stats = world.path / "stats.json"
            stats.write_text(json.dumps(json.loads(stats.read_text()) | {"stopped": "by Ctrl-C"}))
            process.kill()
            process.wait()

        world.events += [(2.0, world.leave), (5.0, end)]
        assert world.follow() == (False, "local:4", True)
    assert world.now == 5.0


def test_a_driver_that_is_between_two_locks_is_waited_for(world: World) -> None:
    world.lease(DRIVER)
    world.events += [(2.0, world.leave), (9.0, lambda: world.lease(DRIVER))]
    world.events.append((20.0, lambda: world.lease(DRIVER | {"started": "1"})))
    assert world.follow() == (False, "local:4", False)
    assert 20.0 <= world.now <= 20.0 + POLL_SECONDS


def test_a_program_that_lives_on_without_its_run_is_not_waited_for_for_ever(world: World) -> None:
    world.lease(DRIVER)
    world.events.append((2.0, world.leave))
    assert world.follow() == (False, "local:4", False)
    assert 32.0 <= world.now <= 33.0


def test_what_a_dead_driver_left_of_a_finished_run_is_tidied_up(world: World) -> None:
    tartan.resume(world.path, quiet=True, app=Sums(), previous=list(range(8)))
    assert world.follow().finished
    world.lease(DRIVER | {"started": "1"})
    assert world.follow() == (False, "local:4", False)


@pytest.mark.parametrize("said", [None, "15", True, -1, 0, float("nan"), float("inf"), [], {}])
def test_a_lease_may_say_anything(said: object) -> None:
    assert read_lease_seconds({"lease_seconds": said}) == LEASE_SECONDS


def test_leases_of_nonsense_neither_raise_nor_last(world: World) -> None:
    world.lease({"host": 7, "pid": [], "drives": "yes", "on": {}}, 100.0)
    assert world.follow().on == ""
    assert read_epoch(world.path) == 1


def test_no_address_that_a_folder_names_is_connected_to_unasked() -> None:
    assert choose_ranks("r", {}, "local:4") == {"on": "local:4"}
    assert choose_ranks("r", {"on": "local:2"}, "tls://node7:1") == {}
    assert choose_ranks("r", {}, "") == {}
    with pytest.raises(ConfigError, match="--on tls://node7:1` goes on there"):
        choose_ranks("r", {}, "tls://node7:1")


def test_who_is_second_to_take_over_says_so_and_follows(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the look at the folder and its lock another process that followed may have been faster."""
    resume, tried = tartan.resume, []

    def lose_once(path: Any, **_: Any) -> Any:
        tried.append(path)
        if len(tried) == 1:
            raise StoreError("in use", code="locked")
        return resume(path, quiet=True, app=Sums(), previous=list(range(8)))

    monkeypatch.setattr(tartan, "resume", lose_once)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert main(["attach", str(world.path)]) == 0
    said = capsys.readouterr().err
    assert len(tried) == 2
    assert f"another process took over {world.path} first; this one follows it from now on" in said
    assert "in use" not in said


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Follower(tmp_path / "nothing").await_turn()
    assert not (tmp_path / "nothing" / EPOCH_NAME).exists()
