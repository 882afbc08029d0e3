"""Runs of triples: requested, executed and resumed as those of pairs are, by a ``TripleSession``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tartan.application import as_application, output_dtypes
from tartan.base.checks import path_of
from tartan.base.trace import Tracer
from tartan.core.grid import Grid, Tile
from tartan.core.shares import Chunk
from tartan.core.triples import LEAST_ITEMS, TripleGrid
from tartan.core.workload import AllPairs, Workload
from tartan.errors import ConfigError, InternalError
from tartan.options import RunOptions
from tartan.run.healing import failed_items
from tartan.run.inputs import open_items, require_items
from tartan.run.plan import host_slots, sizing_of
from tartan.run.probing import ask
from tartan.run.reopen import refuse_other
from tartan.run.request import Request, reduction
from tartan.run.session import Left, RunSession
from tartan.run.triple_result import TripleRun
from tartan.runtime.boxes import probe_triples
from tartan.runtime.committer import TripleCommitter
from tartan.runtime.execution import Execution
from tartan.runtime.node import Node
from tartan.runtime.tasks import ProbedCost
from tartan.runtime.triple_node import TripleNode
from tartan.sources.checked import checksums_of
from tartan.store.folder import RunFolder
from tartan.store.manifest import Manifest
from tartan.store.triple_keeper import TripleKeeper
from tartan.store.triples import TripleFolder
from tartan.workers.executor import Completed
from tartan.workers.shipping import Registry, describe_application

SLOW_TRIPLE_SECONDS = 1e-3
PROBE_SHARE = 0.01


def triple_request(
    app: Any,
    items: Any,
    options: RunOptions,
    keep: Any,
    *,
    described: dict[str, Any] | None = None,
    registry: Registry | None = None,
) -> Request:
    """Check what ``tartan.alltuples`` was given.

    Parameters
    ----------
    app, items, keep
        As in ``tartan.alltuples``.
    options : RunOptions
    described : dict, optional
        Where the application comes from; default: described from the object.
    registry : Registry, optional
        The built-in applications.

    Raises
    ------
    ConfigError
        If the application compares no triples, or an input, an option or what is to be kept is wrong.
    """
    application = as_application(app, 3)
    if not application.symmetric or application.directed:
        raise ConfigError(
            f"{type(application).__name__} says that scores depend on the order of items (symmetric, directed); of "
            "triples only i < j < k are compared"
        )
    _refuse_options(options)
    kept = _kept(keep, bool(application.similarity is not False), output_dtypes(application))
    source = open_items(application, items)
    require_items(application, source, items, LEAST_ITEMS)
    described = described or describe_application(application, registry)
    return Request(application, described, source, options, {"kind": "triples"}, reduce=kept)


def _refuse_options(options: RunOptions) -> None:
    """Refuse what runs of triples cannot do."""
    if options.order != "panel":
        raise ConfigError(
            f"--order {options.order} is for pairs; triples have one order", context={"option": "--order"}
        )
    if tuple(options.device) != ("cpu",):
        raise ConfigError(
            f"--device {','.join(options.device)}: triples are compared on the CPU; leave it out",
            context={"option": "--device"},
        )


def _kept(keep: Any, largest: bool, dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Check what a run of triples is to keep; large scores are the best unless the application has distances."""
    if keep is None:
        raise ConfigError(
            "keep: say which triples to keep, as tartan.top(10) (--top-k 10) or tartan.over(0.9) (--threshold 0.9); "
            "all scores would be too many",
            context={"option": "keep"},
        )
    return reduction(keep, dtypes, largest)


def refuse_of_pairs(given: Mapping[str, Any]) -> None:
    """Refuse options of the command line that are for pairs.

    Raises
    ------
    ConfigError
    """
    for option, value in given.items():
        if value is not None:
            raise ConfigError(f"{option} is for pairs; leave it out with --arity 3", context={"option": option})


def refuse_ranks(given: bool) -> None:
    """Refuse several processes.

    Raises
    ------
    ConfigError
    """
    if given:
        raise ConfigError(
            "--cluster is for pairs; triples are compared on one machine: leave it out", context={"option": "--cluster"}
        )


def holds_triples(path: str | Path) -> bool:
    """Whether a folder holds a run of triples.

    Raises
    ------
    RunNotFoundError
        If there is no run.
    """
    return Manifest.load(path_of("path", path)).arity == 3


class RemainingTriples:
    """What is left of a run of triples: chunks without a part.

    Parameters
    ----------
    folder : TripleFolder
        Locked for writing: damaged parts lose their place in the ledger.
    """

    share = None

    def __init__(self, folder: TripleFolder) -> None:
        folder.drop_damaged()
        self.workload: Workload = AllPairs(folder.manifest.n_items)
        self._grid = folder.pairs.grid
        self._complete = set(folder.committed())

    def needs(self, tile: Tile) -> bool:
        """Whether a triple of a tile is to be computed."""
        return self._grid.count(tile) > 0 and self._grid.chunk_of(tile) not in self._complete

    def pairs(self, tile: Tile) -> None:
        """Return None: all triples of a tile are to be computed."""

    def wanted_pairs(self) -> np.ndarray:
        raise InternalError("triples are not divided among ranks")

    def committed(self, chunk: Chunk) -> None:
        """Note that a chunk needs nothing any more."""
        self._complete.add(chunk)


class TripleSession(RunSession):
    """A request for triples and what this process has to fulfil it."""

    unit = "triples"
    arity = 3
    compacts = False
    _created: Callable[..., RunFolder] = staticmethod(TripleFolder.create)

    @staticmethod
    def opened_folder(path: Path) -> TripleFolder:
        """Open a run folder for writing."""
        return _of_triples(TripleFolder.open(path, writable=True))

    @staticmethod
    def result(path: Path) -> TripleRun:
        """Open a run as its user sees it."""
        return TripleRun(path)

    @staticmethod
    def mend(folder: RunFolder, *, thorough: bool = True) -> None:
        """Take what is damaged out of a complete run; unless ``thorough``, only where its merged result is damaged."""
        triples = _of_triples(folder)
        whole = triples.result_is_whole
        if whole and not thorough:
            return
        with triples.lock():
            triples.drop_damaged()
            if not whole or triples.n_left:
                triples.forget_result()
            if not triples.n_left and not triples.has_result:
                triples.merge()

    @property
    def _n_probed(self) -> int | None:
        return None

    def _cut(self) -> TripleGrid:
        asked, options = self.asked, self._options
        n = asked.source.n_items
        host_slots(n, self.facts, options, self.rank.capacity)
        return sizing_of(self.facts, options, self.rank.capacity, asked.app).triple_grid(n, self._triple_seconds(n))

    def _triple_seconds(self, n_items: int) -> float:
        """Measure what a triple costs, where it costs much: the same input shall be cut the same way each time."""
        dtypes = {name: dtype.str for name, dtype in output_dtypes(self.asked.app).items()}
        most = max(1, int(n_items**3 * PROBE_SHARE / 6))
        args = (self.facts.substitute, self.facts.form is not None, dtypes, most)
        outcome = ask(self.rank.executor, probe_triples, *args, timeout=self._options.tile_timeout_seconds)
        found = outcome.value if isinstance(outcome, Completed) else None
        if not isinstance(found, ProbedCost) or found.seconds < SLOW_TRIPLE_SECONDS or found.n_compared < 2:
            return 0.0
        power = 10.0
        while power > found.seconds:
            power /= 10
        return power

    def _grid(self, folder: RunFolder) -> Grid:
        return _of_triples(folder).pairs.grid

    def _remaining(self, folder: RunFolder, grid: Grid, share: Sequence[Chunk] | None) -> Left:
        return RemainingTriples(_of_triples(folder))

    def _merge(self, folder: RunFolder) -> None:
        _of_triples(folder).merge()

    def _sink(
        self, folder: RunFolder, tracer: Tracer, flushed: Callable[[], None], prepare: Callable[[], None]
    ) -> TripleCommitter:
        return TripleCommitter(_of_triples(folder), tracer, flushed, prepare)

    def _node(self, folder: RunFolder, execution: Execution) -> Node:
        return TripleNode(execution, TripleKeeper(folder.manifest))

    def heal(self, folder: RunFolder) -> None:
        """Take all chunks with failures back: their triples are computed again, with the items as they are now."""
        with folder.lock():
            failed = failed_items(folder)
            refuse_other(folder, self.asked, mended=failed)
            _of_triples(folder).forget_failed(self.asked.items())
            items = np.array(failed, np.intp)
            folder.note_checksums(items, checksums_of(self.asked.source, items))


def _of_triples(folder: RunFolder) -> TripleFolder:
    assert isinstance(folder, TripleFolder)
    return folder
