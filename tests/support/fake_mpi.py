"""An MPI for tests: processes of one job as objects of one Python process; stands in for the package ``mpi4py``."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

Mailbox = defaultdict[tuple[int, int, int], deque[bytes]]


class Aborted(BaseException):
    """A process has ended its job."""


class FakeJob:
    """The processes of an ``mpiexec``.

    Parameters
    ----------
    size : int
    vendor : str
        Of the library.

    Attributes
    ----------
    gathered : list, optional
        What ``allgather`` returns; default: what each process gives, as often as there are processes.
    finalized : list of int
        Which processes have ended MPI.
    """

    def __init__(self, size: int, vendor: str = "MPICH") -> None:
        self.size, self.vendor = size, vendor
        self.under_way: Mailbox = defaultdict(deque)
        self.gathered: list[Any] | None = None
        self.finalized: list[int] = []

    def become(self, rank: int, patch: pytest.MonkeyPatch) -> None:
        """Let the next import of ``mpi4py`` find the library as this process sees it."""
        package = cast(Any, ModuleType("mpi4py"))
        package.rc = SimpleNamespace(initialize=True, finalize=True)
        package.MPI = SimpleNamespace(
            THREAD_FUNNELED=1,
            BYTE="byte",
            COMM_WORLD=FakeWorld(self, rank),
            Init_thread=lambda level: level,
            Finalize=lambda: self.finalized.append(rank),
            get_vendor=lambda: (self.vendor, (1, 0, 0)),
            Get_library_version=lambda: f"{self.vendor} of a test\nmore\0",
        )
        patch.setitem(sys.modules, "mpi4py", package)


class FakeWorld:
    """The communicator of all, as one process sees it."""

    def __init__(self, job: FakeJob, rank: int) -> None:
        self._job, self._rank = job, rank

    def Get_rank(self) -> int:  # noqa: N802
        """Return the number of the process."""
        return self._rank

    def Get_size(self) -> int:  # noqa: N802
        """Return how many there are."""
        return self._job.size

    def allgather(self, mine: Any) -> list[Any]:
        """Return what all give; see ``FakeJob.gathered``."""
        return self._job.gathered or [mine] * self._job.size

    def Isend(self, buffer: Any, dest: int, tag: int) -> FakeRequest:  # noqa: N802
        """Send bytes; the request ends when they are received."""
        waiting = self._job.under_way[self._rank, dest, tag]
        waiting.append(bytes(buffer[0]))
        message = waiting[-1]
        return FakeRequest(lambda: not any(other is message for other in waiting))

    def Irecv(self, buffer: Any, source: int, tag: int) -> FakeRequest:  # noqa: N802
        """Receive bytes into a buffer, which may be longer."""
        waiting = self._job.under_way[source, self._rank, tag]

        def take() -> bool:
            if not waiting:
                return False
            message = waiting.popleft()
            memoryview(buffer[0])[: len(message)] = message
            return True

        return FakeRequest(take)

    def Abort(self, status: int) -> None:  # noqa: N802
        """End the job."""
        raise Aborted(status)


class FakeRequest:
    """A message that is under way."""

    def __init__(self, ends: Callable[[], bool]) -> None:
        self._ends = ends

    def Test(self) -> bool:  # noqa: N802
        """Whether it has ended, now."""
        return self._ends()
