"""Start the executor that an application asks for: worker processes, or threads of this process."""

from __future__ import annotations

from tartan.application import Application
from tartan.workers.executor import Executor
from tartan.workers.processes import ProcessExecutor
from tartan.workers.threads import ThreadExecutor


def open_executor(application: Application, n_workers: int, *, in_processes: bool | None = None) -> Executor:
    """Start the executor that an application asks for.

    Parameters
    ----------
    application : Application
        Goes to every worker.
    n_workers : int
        Number of threads or processes.
    in_processes : bool, optional
        Processes or threads; by default threads where the application declares ``releases_gil``.

    Raises
    ------
    ConfigError
        If the application cannot travel to processes.
    """
    if in_processes is None:
        in_processes = not application.releases_gil
    if in_processes:
        return ProcessExecutor(application, n_workers)
    return ThreadExecutor(application, n_workers)
