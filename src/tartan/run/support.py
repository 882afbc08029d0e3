"""The tree of a run with the support of its branches: the run again and again, each time of resampled items."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tartan.base.format import format_duration
from tartan.base.progress import ProgressLine, Snapshot
from tartan.errors import ConfigError, RunFailedError
from tartan.options import RunOptions
from tartan.result.run import Run
from tartan.run.execute import start
from tartan.run.reopen import refuse_other, reopen_request
from tartan.workers.shipping import Registry, describe_application

if TYPE_CHECKING:
    from tartan.analytics import Tree
    from tartan.run.request import Request


@dataclass(frozen=True)
class Resampling:
    """Which trees support is counted in.

    Attributes
    ----------
    n : int
        How many times all items are resampled.
    seed : int
        Of the first; the others have the following ones.
    trust : bool
        As of ``tartan.run.reopen.reopen_request``.
    """

    n: int
    seed: int = 0
    trust: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"support: {self.n} resamplings show nothing; ask for 1 or more, such as 100")


def cost_of(run: Run, resampling: Resampling) -> str:
    """Return in words what the resamplings of a run cost; the first shows how long they take."""
    return f"support: {resampling.n} resamplings, each a run of {run.n_items:,} items and {run.n_pairs:,} pairs"


def time_of(n: int, first_seconds: float) -> str:
    """Return in words how long all resamplings take, by the first: the run itself read its items as they are."""
    each, whole = format_duration(first_seconds), format_duration(n * first_seconds)
    return f"support: the first of {n} resamplings took {each}, so all take about {whole}"


def supported_tree(
    run: Run,
    resampling: Resampling,
    options: RunOptions,
    registry: Registry,
    method: str,
    *,
    failed: str | None = None,
    **ways: Any,
) -> Tree:
    """Build the tree of a run and count how many trees of resampled items have each of its branches.

    Parameters
    ----------
    run : Run
        Finished, of an application that can resample its items.
    resampling : Resampling
    options : RunOptions
        Of the runs, whose results lie in temporary folders, one after the other.
    registry : Registry
        The built-in applications.
    method : str
    failed : {"drop", "error"}, optional
        Items that failed in the run may fail in resamplings, too.
    **ways
        As for ``tartan.Run.tree``.

    Raises
    ------
    ConfigError
        If the application cannot resample, or the run compares anything else than all pairs.
    RunFailedError
        If resampled items cannot be compared.
    """
    from tartan.analytics.trees import with_support

    if run.manifest.workload["kind"] != "all" or run.manifest.reduce is not None:
        raise ConfigError(f"{run.path} does not keep all pairs of one set of items, so there is no tree to support")
    tree = run.tree(method, failed=failed, **ways)
    asked = reopen_request(run.folder, options, registry, trust=resampling.trust)
    refuse_other(run.folder, asked)
    if asked.app.resampled(resampling.seed) is None:
        raise ConfigError(
            f"{run.manifest.application['name']} does not resample its items; support is for phylogeny, and for "
            "applications that define resampled(seed)"
        )
    spared = {failure.i for failure in run.failures if failure.kind == "item"}
    runs = _run_resampled(asked, resampling, registry, spared)
    trees = (made.tree(method, failed="drop", **ways) for made in runs)
    return with_support(tree, trees)


def _run_resampled(
    asked: Request, resampling: Resampling, registry: Registry, spared: Collection[int]
) -> Iterator[Run]:
    quiet = replace(asked.options, quiet=True)
    begun = time.monotonic()
    with ProgressLine(Snapshot(0, resampling.n), quiet=asked.options.quiet) as progress:
        for done in range(resampling.n):
            app = asked.app.resampled(resampling.seed + done)
            assert app is not None
            described = describe_application(app, registry)
            run = start(replace(asked, app=app, described=described, options=quiet), None)
            assert isinstance(run, Run)
            new = [failure for failure in run.failures if failure.kind != "item" or failure.i not in spared]
            if new:
                raise RunFailedError(f"resampling {done + 1}: {new[0].reason}")
            yield run
            if done == 0 and resampling.n > 1:
                progress.say(time_of(resampling.n, time.monotonic() - begun))
            progress.show(done + 1, resampling.n, _make_line)


def _make_line(state: Snapshot) -> str:
    return f"{state.done} of {state.total} resamplings  {state.time_left}".rstrip()
