"""``tartan attach``, with real processes: a driver that is killed or frozen is replaced, and no bit differs."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_program import DEADLINE_SECONDS, check_same, lay_out, send, several, tartan_command

import tartan


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


class Attached:
    """``tartan attach several`` in a process; its lines can be waited for."""

    def __init__(self, folder: Path, *more: str) -> None:
        words = [sys.executable, "-m", "tartan", "attach", "several", *more]
        self.process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        """Wait for a line that has a text in it."""
        with self._changed:
            seen = self._changed.wait_for(lambda: any(text in line for line in self.lines), DEADLINE_SECONDS)
        assert seen, "".join(self.lines)

    def end(self) -> tuple[int, str]:
        status = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return status, "".join(self.lines)


@pytest.fixture
def attach(inputs: Path) -> Iterator[type[Attached]]:
    """Start followers of the run, which end with the test."""
    started: list[Attached] = []

    class Started(Attached):
        def __init__(self, *more: str) -> None:
            super().__init__(inputs, *more)
            started.append(self)

    yield Started
    for one in started:
        one.process.kill()
        one.end()


def read_all(folder: Path) -> dict[str, str]:
    """Return the contents of all files of a folder, hashed."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.exhaustive
def test_a_killed_driver_is_replaced_by_one_of_those_who_follow(inputs: Path, attach: type[Attached]) -> None:
    with several(inputs, app="Slower") as run:
        run.both_compute()
        followers = [attach(), attach()]
        for one in followers:
            one.wait_for(" computes several")
        run.process.kill()
        ended = [one.end() for one in followers]
    assert [status for status, _ in ended] == [0, 0], ended
    assert any("taking over several on local:2" in said for _, said in ended), ended
    assert not (inputs / "several" / "run.epoch").exists()
    check_same_but(inputs, set())


@pytest.mark.exhaustive
def test_a_frozen_driver_is_replaced_after_its_lease_and_writes_nothing_when_it_wakes(
    inputs: Path, attach: type[Attached]
) -> None:
    with several(inputs, "--rank-timeout", "1", app="Slower") as run:
        run.both_compute()
        send(run.process.pid, signal.SIGSTOP)
        follower = attach("--on", "local:2")
        follower.wait_for("was silent for too long")
        status, said = follower.end()
        assert status == 0, said
        before = read_all(inputs / "several")
        send(run.process.pid, signal.SIGCONT)
        status, errors = run.end()
    assert read_all(inputs / "several") == before
    assert status == 1, errors
    assert "epoch 1, this driver had 0" in errors
    check_same_but(inputs, {"run.epoch"})


@pytest.mark.exhaustive
def test_who_follows_a_run_that_is_interrupted_does_not_go_on(inputs: Path, attach: type[Attached]) -> None:
    with several(inputs, app="Slower") as run:
        run.both_compute()
        follower = attach()
        follower.wait_for(" computes several")
        run.process.send_signal(signal.SIGINT)
        run.end()
        status, said = follower.end()
    assert status == 1, said
    assert "has ended before the run did" in said
    assert not tartan.open(inputs / "several").finished


@pytest.mark.exhaustive
def test_without_a_driver_attach_computes_the_run(inputs: Path) -> None:
    with several(inputs) as run:
        run.both_compute()
        run.process.kill()
    found = tartan_command(inputs, "attach", "several", "--on", "local:2", "--quiet")
    assert found.returncode == 0, found.stderr
    again = tartan_command(inputs, "attach", "several")
    assert again.returncode == 0, again.stderr
    assert "finished already" in again.stderr
    check_same_but(inputs, set())


def check_same_but(folder: Path, more: set[str]) -> None:
    """Check the run as ``check_same`` does, but for files that it may have left besides."""
    for name in more:
        (folder / "several" / name).unlink()
    check_same(folder)
