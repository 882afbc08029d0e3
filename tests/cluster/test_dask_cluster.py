"""Clusters as users start them: Dask's own commands with certificates, and unplanned ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.cluster.certs import write_certificates

pytestmark = pytest.mark.exhaustive

DRIVER = Path(__file__).with_name("driver_program.py")
DEADLINE_SECONDS = 90.0


class Program:
    """A process whose lines of output can be waited for; killed at the end if it is still there."""

    def __init__(self, *words: object, config: Path | None = None) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "DASK_CONFIG"}
        environment |= {"DASK_CONFIG": str(config)} if config else {}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment,
        )  # fmt: skip
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, start: str) -> str:
        """Return the rest of the first line that begins so."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(start)]

        with self._changed:
            assert self._changed.wait_for(found, DEADLINE_SECONDS), "\n".join(self.lines)
            return found()[0].removeprefix(start)

    def wait_for_text(self, text: str) -> None:
        """Wait for a line that has a text in it."""

        def found() -> bool:
            return any(text in line for line in self.lines)

        with self._changed:
            assert self._changed.wait_for(found, DEADLINE_SECONDS), "\n".join(self.lines)

    def end(self) -> None:
        """Kill it, and collect it."""
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[type[Program]]:
    """Start programs that end with the test."""
    with contextlib.ExitStack() as stack:

        class Started(Program):
            def __init__(self, *words: object, config: Path | None = None) -> None:
                super().__init__(*words, config=config)
                stack.callback(self.end)

        yield Started


def wait_ended(pids: list[int]) -> None:
    """Wait until processes are gone."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(1000 * max(0.0, deadline - time.monotonic())), f"process {pid} is still there"
            os.close(descriptor)


def dask_cluster(start: type[Program], folder: Path, certificates: Path) -> tuple[Path, Program]:
    """Start a scheduler and two workers by Dask's commands; return the scheduler's file, and the scheduler."""
    file = folder / "scheduler.json"
    dash = ("--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1", "--scheduler-file", file)
    scheduler = start("-m", "dask", "scheduler", "--protocol", "tls", "--port", "0", *dash, config=certificates)
    workers = ("--nthreads", "1", "--memory-limit", "0", "--nworkers", "2", "--resources", "storage=1")
    start("-m", "dask", "worker", *workers, *dash, config=certificates)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
    return file, scheduler


def test_only_certificates_of_the_cluster_are_let_in(start: type[Program], tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        write_certificates(tmp_path / name)
    file, _ = dask_cluster(start, tmp_path, tmp_path / "ours")
    for config, message in ((tmp_path / "theirs", "TLS certificate does not match"), (None, "wants a certificate")):
        refused = start(DRIVER, file, config=config)
        refused.wait_for("refused ")
        assert message in refused.lines[-1]
    driver = start(DRIVER, file, config=tmp_path / "ours")
    driver.wait_for("ranks ")
    assert driver.wait_for("encrypted ") == "True"
    assert driver.wait_for("resources ") == "storage"
    driver.process.send_signal(signal.SIGTERM)
    assert driver.wait_for("left ") == "2"
    again = start(DRIVER, file, config=tmp_path / "ours")
    again.wait_for("ranks ")


def test_ranks_end_when_the_driver_of_a_cluster_is_killed(start: type[Program], tmp_path: Path) -> None:
    write_certificates(tmp_path / "certs")
    file, _ = dask_cluster(start, tmp_path, tmp_path / "certs")
    driver = start(DRIVER, file, config=tmp_path / "certs")
    pids = [int(word) for word in driver.wait_for("ranks ").split()]
    driver.process.kill()
    wait_ended(pids)


def test_the_driver_notices_the_loss_of_the_scheduler(start: type[Program], tmp_path: Path) -> None:
    write_certificates(tmp_path / "certs")
    file, scheduler = dask_cluster(start, tmp_path, tmp_path / "certs")
    driver = start(DRIVER, file, config=tmp_path / "certs")
    pids = [int(word) for word in driver.wait_for("ranks ").split()]
    scheduler.process.kill()
    assert "the Dask scheduler at tls://127.0.0.1:" in driver.wait_for("over ")
    wait_ended(pids)


def test_nothing_is_left_of_local_ranks_when_their_driver_is_killed(start: type[Program]) -> None:
    driver = start(DRIVER, "local:2")
    pids = [int(word) for word in driver.wait_for("ranks ").split()]
    parents = [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids]
    driver.process.kill()
    wait_ended(pids + parents)


def test_a_run_over_tls_with_a_rank_next_to_the_data(start: type[Program], tmp_path: Path) -> None:
    """As docs/howto-storage-ranks.md says: certificates, a scheduler, workers, one with the resource "storage"."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.faa").write_text(f">p{number}\n" + "MKVLAADTG" * (20 + number) + "\n")
    certificates, file = tmp_path / "certs", tmp_path / "scheduler.json"
    start("-m", "tartan", "cluster-certs", certificates, "--days", "1").process.wait(DEADLINE_SECONDS)
    dash = ("--scheduler-file", file, "--dashboard-address", "127.0.0.1:0")
    start(
        "-m", "dask", "scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", "0", *dash, config=certificates
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
    for more in ((), ("--resources", "storage=1")):
        words = ("--nthreads", "1", "--memory-limit", "0", *dash, *more)
        start("-m", "dask", "worker", *words, config=certificates)
    run = ("run", "phylogeny", folder / "*.faa", "--set", "k=3", "--workers", "1", "--quiet")
    several = start("-m", "tartan", *run, "-o", tmp_path / "several", "--scheduler-file", file, "--parse-at", "storage",
                    config=certificates)  # fmt: skip
    assert several.process.wait(DEADLINE_SECONDS) == 0, several.lines
    assert start("-m", "tartan", *run, "-o", tmp_path / "one").process.wait(DEADLINE_SECONDS) == 0
    found, alone = tartan.open(tmp_path / "several"), tartan.open(tmp_path / "one")
    np.testing.assert_array_equal(found.matrix(), alone.matrix())
    stats = found.stats
    assert (stats["n_ranks"], stats["storage_load_factor"]) == (2, 1)
    assert stats["bytes_per_level"]["storage"] == sum(path.stat().st_size for path in folder.iterdir())
    assert stats["bytes_between_ranks"] > 0


def lay_out_numbers(folder: Path) -> Path:
    """Write proteomes to a folder; return a pattern of them."""
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.faa").write_text(f">p{number}\n" + "MKVLAADTG" * (20 + number) + "\n")
    return folder / "*.faa"


def test_workers_that_do_not_fit_are_named_and_the_others_go_on(
    start: type[Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One good worker, one of another version, one without Tartan: ``sitecustomize`` hides it there."""
    other = tmp_path / "other" / "tartan" / "base"
    other.mkdir(parents=True)
    for place in (other.parent, other):
        (place / "__init__.py").write_text("")
    (other / "machine.py").write_text("def tartan_version():\n    return '0.0.7'\n")
    (tmp_path / "none").mkdir()
    hides = "import os, sys\nsys.path = [p for p in sys.path if not os.path.isdir(os.path.join(p, 'tartan'))]\n"
    (tmp_path / "none" / "sitecustomize.py").write_text(hides)
    file = tmp_path / "scheduler.json"
    dash = ("--dashboard-address", "127.0.0.1:0", "--scheduler-file", file, "--host", "127.0.0.1")
    start("-m", "dask", "scheduler", "--port", "0", *dash)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
    workers = []
    paths = os.environ.get("PYTHONPATH", "")
    for place in (None, tmp_path / "other", tmp_path / "none"):
        monkeypatch.setenv("PYTHONPATH", paths if place is None else str(place))
        monkeypatch.chdir(tmp_path)
        workers.append(start("-m", "dask", "worker", "--nthreads", "1", "--memory-limit", "0", "--no-nanny", *dash))
    monkeypatch.setenv("PYTHONPATH", paths)
    for worker in workers:
        worker.wait_for_text("Registered to:")
    pattern = lay_out_numbers(tmp_path / "in")
    words = ("run", "phylogeny", pattern, "--set", "k=3", "--workers", "1", "-o", tmp_path / "run")
    run = start("-m", "tartan", *words, "--scheduler-file", file)
    assert run.process.wait(DEADLINE_SECONDS) == 0, run.lines
    said = "\n".join(run.lines)
    assert "takes no part: it has version 0.0.7 of Tartan, the driver" in said
    assert "takes no part: Tartan is not installed there" in said
    assert "1 rank of 3 takes part" in said
    assert tartan.open(tmp_path / "run").finished
