"""Ranks on the workers of a Dask cluster on this machine, for the conformance kit and for short tests."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

from tartan.cluster import wire
from tartan.cluster.certs import temporary_credentials
from tartan.cluster.dask_engine import DaskEngine, local_client, security_of
from tartan.cluster.engine import ClusterEngine


class DaskCrew:
    """A driver in this process; a rank is the child of a Dask worker, and both are harmed together."""

    own_processes = True

    def __init__(self, client: object, driver: DaskEngine) -> None:
        self.driver: ClusterEngine = driver
        self._engine = driver
        self._cluster = client.cluster  # type: ignore[attr-defined]
        self._n_ranks = len(self._cluster.workers)
        self.rank_pids: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def ports(self) -> list[int]:
        """Return those of the scheduler, of every worker, of its nanny and of the driver."""
        nannies = self._cluster.workers.values()
        workers = [address for nanny in nannies for address in (nanny.address, nanny.worker_address)]
        addresses = [self._cluster.scheduler_address, *workers, self._engine.address]
        return [int(address.rpartition(":")[2]) for address in addresses]

    def join(self) -> None:
        self._n_ranks += 1
        self._cluster.scale(self._n_ranks)

    def meet(self, name: str) -> None:
        pid = wire.decode(self.driver.request(name, "pid", timeout_seconds=20), int)
        self.rank_pids[name], self._ends[name] = pid, os.pidfd_open(pid)

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def wait_ended(self, name: str, timeout_seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._ends[name], select.POLLIN)
        return bool(poll.poll(timeout_seconds * 1000))

    def close(self) -> None:
        for descriptor in self._ends.values():
            os.close(descriptor)

    def worker_pid(self, name: str) -> int:
        return int(Path(f"/proc/{self.rank_pids[name]}/stat").read_text().rpartition(")")[2].split()[1])

    def _signal(self, name: str, number: int) -> None:
        worker = self.worker_pid(name)
        for pid in (self.rank_pids[name], worker):
            os.kill(pid, number)


@contextlib.contextmanager
def dask_crew(n_workers: int = 0) -> Iterator[DaskCrew]:
    """Yield a crew on a new cluster; nothing of it is left afterwards."""
    with local_client(n_workers, security_of(temporary_credentials())) as client:
        driver = DaskEngine(client, "kit", entry="tartan.testing.engine_kit:rank_main")
        crew = DaskCrew(client, driver)
        try:
            yield crew
        finally:
            driver.leave()
            crew.close()
