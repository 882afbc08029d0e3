"""The door to block tasks: a session opens ranks, makes spaces, and runs tasks on them."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.checks import check_one_of
from tartan.base.checks import number as any_number
from tartan.base.checks import whole as whole_number
from tartan.base.confined import ConfinedFolder
from tartan.base.format import show_value
from tartan.base.logs import logger_of
from tartan.base.signatures import takes_options
from tartan.base.trace import Tracer
from tartan.blocks.checkpoint import Checkpoint, SavedSpaces, note_code, remove_checkpoint, write_checkpoint
from tartan.blocks.cluster_crew import crew_of
from tartan.blocks.crew import BlockCrew
from tartan.blocks.directory import BlockDirectory
from tartan.blocks.execution import BlockExecution, make_lost_error
from tartan.blocks.jobs import RunTable
from tartan.blocks.report import RunReport
from tartan.blocks.schedule import schedule_subtasks
from tartan.blocks.sources import SpaceSource, source_of
from tartan.blocks.space import Space, block_shape, take_shape_of
from tartan.blocks.spill import remove_abandoned, spill_folder
from tartan.blocks.subtask_trace import SubtaskTrace
from tartan.blocks.task import Task, refuse_conflicts, require_devices
from tartan.blocks.work import AddSpace, BlockFunction, PartOrigin, RankGone
from tartan.blocks.zarr_output import array_task, whole_array
from tartan.core.affinity import STEALS, Steal
from tartan.core.blocks.assignment import AFFINITIES, Affinity
from tartan.core.blocks.pieces import PieceKey
from tartan.core.blocks.placement import PLACES, Place, place_blocks
from tartan.core.blocks.space import BlockGrid, Box, shape_of, within
from tartan.core.blocks.task_divider import TaskDivider
from tartan.devices import Device
from tartan.errors import ClusterError, ConfigError, TransportError
from tartan.workers import shipping

_log = logger_of(__name__)

# By judgement: an answer of a lost rank is tried again ten times a second, until the loss is known. No benchmark.
_POLL_SECONDS = 0.1
# By contract: twice RANK_TIMEOUT_SECONDS (15).
_LOSS_SECONDS = 30.0
"""Longest wait for the word that a rank is lost which does not answer."""


def _ignore(done: int, total: int) -> None:
    """Show no progress."""


class Session:
    """Ranks, and the spaces that tasks read and write on them. A context manager.

    Parameters
    ----------
    on : str, distributed.Client or ClusterCrew, optional
        Where the ranks are, as for ``tartan run --on``: ``local:4``; or ranks that were opened before. Default:
        one rank, this process.
    host_cache : int, optional
        Bytes that each rank has for arrays; what does not fit goes to a folder and comes back. Default: half of the
        free memory, shared by the ranks of this machine.
    workers : int, optional
        Subtasks at a time on each rank. Default: the cores, shared by the ranks of this machine.
    copies : int
        Ranks that keep each value that a task wrote, so that the loss of one loses nothing.
    affinity : {"auto", "marginal", "local", "transfers", "remote", "none"}
        How subtasks are given to ranks.
    steal : {"difference", "plain"} or bool
        How a rank that has nothing to do takes subtasks from another: those that cost it the least and save the other
        the most, or the last ones. True: "difference". False: not at all.
    evaluate : float
        Share of the subtasks that each rank looks at when they are given to ranks; the others go anywhere. 0 to 1.
    seed : int
        Of all that is random in placement and assignment.
    device : str, sequence of str, or Device
        Where functions run that have a form for GPUs, as for ``tartan run --device``: cpu, cuda, cuda:1 or sim. Each
        rank has one device; of several names, ranks take one after the other. An open device is closed with the
        session. Default: cpu.
    device_cache : int, optional
        Bytes in the memory of each device for the arrays of subtasks. Default: 70 % of what is free, shared by the
        ranks that have the device.
    folder : path, optional
        Where checkpoints go, and what does not fit into memory.
    trace : path, optional
        File that says when which rank computed which subtask, for Perfetto and chrome://tracing; written at the end.
    progress : callable
        Receives how many subtasks of a call of ``run`` are done, and how many there are.

    Attributes
    ----------
    total : RunReport
        What all calls of ``run`` did together.
    spaces : dict of int to Space
    notes : dict
        What the checkpoint that it resumes was given.

    Examples
    --------
    >>> import numpy as np
    >>> from tartan import blocks
    >>> with blocks.Session(workers=1) as session:
    ...     A = session.space(np.eye(4), block=2)
    ...     C = session.space(shape=(4, 4), block=2)
    ...     def product(a, c):
    ...         np.matmul(a, a.T, out=c)
    ...     def wants(i, j):
    ...         return A.read[A.block(i, j)], C.write[C.block(i, j)]
    ...     report = session.run(blocks.Task(product, C.grid, wants, releases_gil=True))
    ...     float(C.array().sum())
    4.0
    """

    @takes_options(defaults={})
    def __init__(
        self,
        on: Any = None,
        *,
        host_cache: int | None = None,
        workers: int | None = None,
        copies: int = 1,
        affinity: Affinity = "auto",
        steal: Steal | bool = True,
        evaluate: float = 1.0,
        seed: int = 0,
        device: str | Sequence[str] | Device | None = None,
        device_cache: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        trace: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int], None] = _ignore,
    ) -> None:
        self._closed = True
        self._progress = progress
        check_one_of("affinity", affinity, AFFINITIES)
        if workers is not None:
            whole_number("workers", workers, 1, option="--workers")
        if host_cache is not None:
            whole_number("host_cache", host_cache, 1, option="--host-cache")
        whole_number("copies", copies, 1)
        any_number("evaluate", evaluate, ("a share of the subtasks, from 0 to 1", lambda share: 0 <= share <= 1))
        if not isinstance(steal, bool):
            check_one_of("steal", steal, STEALS)
        self._steal: Steal | None = "difference" if steal is True else steal or None
        self._seed, self._copies = seed, copies
        self._divider = TaskDivider(affinity, evaluate, seed)
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._crew: BlockCrew = crew_of(on, host_cache, workers, self._folder, copies, device, device_cache)
        self._directory = BlockDirectory()
        self._history: dict[int, RunTable] = {}
        self._saved = SavedSpaces()
        self._n_tasks = 0
        self._codes: dict[str, str] = {}
        self._resumed_codes: frozenset[str] = frozenset()
        self.notes: dict[str, Any] = {}
        self._opened = contextlib.ExitStack()
        self._trace = None if trace is None else SubtaskTrace(Tracer())
        if self._trace is not None:
            self._opened.callback(self._trace.tracer.write, str(trace))
        self._scratch: Path | None = None
        self.total = RunReport(per_rank={})
        self._closed = False

    @property
    def spaces(self) -> dict[int, Space]:
        """All spaces by number."""
        return self._directory.spaces

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of the ranks that live."""
        return tuple(self._crew.ranks)

    @property
    def room_bytes(self) -> float:
        """Bytes that each rank has for arrays, or its device, where that has less; infinity where it is not known."""
        return min(self._crew.room_bytes, self._crew.device_bytes)

    def space(
        self,
        source: Any = None,
        *,
        shape: int | Sequence[int] | None = None,
        dtype: Any = None,
        like: Any = None,
        block: int | Sequence[int] = 1024,
        place: Place | Space = "source",
    ) -> Space:
        """Make a space.

        Parameters
        ----------
        source : array, path of a ``.npy`` file or of a Zarr array, optional
            Its first values; never written. An array must not be changed while the session is open.
        shape, dtype
            Of a space of zeros, in place of a source; float64 by default.
        like : as ``source``, or Space
            Take shape and dtype of it, and begin with zeros.
        block : int or sequence of int
            Elements of a block in each dimension; blocks at the far edges may be smaller.
        place : str or Space
            Where the blocks are at first. "source": each rank reads what it needs. "centralized": all on one rank; "row
            cyclic", "column cyclic": rows or columns of blocks in turn; "random"; "grid": cyclic in two dimensions; or
            where those of another space are.

        Raises
        ------
        ConfigError
            If the source cannot be read or holds no numbers, or the blocks do not fit it.
        """
        self._require_open()
        if like is not None:
            source, shape, dtype = take_shape_of(source, shape, dtype, like)
        found = self._make_readable_by_ranks(source_of(source, shape, dtype))
        grid = BlockGrid(found.shape, block_shape(block, found.shape))
        space = Space(len(self._directory.spaces), found, grid, self._load, self._save, self)
        self._directory.add(space, self._owners(space, place))
        for rank in self._crew.ranks:
            self._crew.send(rank, AddSpace(space.number, found))
        return space

    def run(self, *tasks: Task) -> RunReport:
        """Run a task, or several at the same time; what they write appears when all have ended.

        Raises
        ------
        ConfigError
            If tasks conflict, or belong to another session. Nothing ran.
        SubtaskError
            If a subtask failed twice; no space has changed.
        ClusterError
            If values were lost that cannot be had again.
        """
        self._require_open()
        self._require_own(tasks)
        refuse_conflicts(tasks)
        require_devices(tasks, on_cpu=self._crew.on_cpu, on_device=self._crew.on_device)
        note_code([task.function for task in tasks], self._codes, self._resumed_codes)
        report = self._run(tasks)
        self.total += report
        return report

    def _run(self, tasks: Sequence[Task]) -> RunReport:
        begin = time.perf_counter()
        for space in {space for task in tasks for space in task.table.spaces}:
            space.source.check_unchanged()
        self._catch_up()
        jobs = self._jobs(tasks)
        if not len(jobs):
            return RunReport(per_rank={})
        execution, bound = self._execute(jobs)
        self._finish(execution, jobs)
        report = execution.report(time.perf_counter() - begin, len(jobs), bound)
        about = report.subtasks, report.seconds, report.bytes_moved, report.steals, report.repeated, report.ranks_lost
        _log.info("%d subtasks in %.3f s, %d bytes moved, %d taken over, %d repeated, %d ranks lost", *about)
        return report

    def owners(self, space: Space) -> np.ndarray:
        """Return the rank that has each block, shape ``space.counts``: the one that wrote it, or where it was placed.

        -1 where no rank has it: it is read from the source.
        """
        self._require_open()
        self._require_mine(space)
        return self._directory.owners(space)

    def checkpoint(self, **notes: Any) -> Path:
        """Write what all spaces hold, so that ``tartan.blocks.resume`` can begin here; an older checkpoint goes.

        The one that the session resumed stays until it is closed, as its spaces begin with what lies there.

        Parameters
        ----------
        **notes
            What the program must know to continue, such as the number of a step; plain values. They are the attribute
            ``notes`` of the session that resumes.

        Raises
        ------
        ConfigError
            If the session has no folder.
        DiskFullError
            If there is no space; the older checkpoint stays.
        """
        self._require_open()
        if self._folder is None:
            raise ConfigError("the session has no folder for checkpoints; open it with Session(folder=...)")
        spaces = [self._directory.spaces[number] for number in sorted(self._directory.spaces)]
        file, saved, in_use = write_checkpoint(self._folder, spaces, self._codes, notes)
        _log.info("the spaces are saved in %s", file)
        for older in in_use:
            self._opened.callback(remove_checkpoint, older)
        if self._crew.travels:
            self._directory.save(self._saved.replace(saved))
            for number, source in self._saved.sources.items():
                for rank in self._crew.ranks:
                    self._crew.send(rank, AddSpace(number, source))
            self._history.clear()  # what is lost is read there, and nothing older is computed again
        return file

    def close(self) -> None:
        """End the ranks; spaces cannot be read any more."""
        if not self._closed:
            self._closed = True
            self._crew.close()
            self._opened.close()
            remove_abandoned(self._folder)

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def begin_with(self, found: Checkpoint) -> None:
        """Make the spaces of a checkpoint, in a session that has none yet."""
        for path, block in found.spaces:
            self.space(path, block=block)
        self.notes = found.notes
        self._codes = dict(found.codes)
        self._resumed_codes = frozenset(found.codes)

    # -- spaces ------------------------------------------------------------------------------------------------------

    def _make_readable_by_ranks(self, source: SpaceSource) -> SpaceSource:
        """Return a source that all ranks can read: an array becomes a file where they are other processes."""
        if source.array is None or not self._crew.travels:
            return source
        if self._scratch is None:
            self._scratch = self._opened.enter_context(spill_folder(self._folder))
        path = self._scratch / f"space-{len(self._directory.spaces)}.npy"
        with ConfinedFolder(self._scratch).new_file(path, 0o600) as file:
            np.save(file, source.array)
        return source_of(path, None, None)

    def _owners(self, space: Space, place: Place | Space) -> list[int] | None:
        if isinstance(place, Space):
            self._require_mine(place)
            if place.blocks != space.blocks:
                raise ConfigError("place: the other space has other blocks")
            found = self._directory.owners(place).ravel().tolist()
            return None if -1 in found else found
        check_one_of("place", place, PLACES)
        if space.source.kind == "zeros" or place == "source":
            return None
        ranks = list(self._crew.ranks)
        placed = place_blocks(space.blocks.counts, place, len(ranks), self._seed + space.number)
        return [ranks[k] for k in placed.tolist()]

    def _load(self, space: Space, box: Box) -> np.ndarray:
        """Return the values of a box."""
        self._require_open()
        deadline = time.monotonic() + _LOSS_SECONDS
        while True:
            self._catch_up()
            self._restore(part.key for part in self._directory.maps[space.number].parts(box))
            try:
                return self._gather(space, box)
            except TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _save(self, space: Space, path: str | Path, overwrite: bool) -> None:
        """Have the ranks write a space."""
        self._require_open()
        if overwrite:
            self.require_no_source(Path(path).resolve())
        with whole_array(path, overwrite=overwrite) as array:
            self._run([array_task(space, array, Path(path))])

    def _restore(self, keys: Iterable[PieceKey]) -> None:
        """Have pieces made again that were lost with their ranks."""
        missing = self._directory.find_missing(keys)
        if not missing:
            return
        producers = [*dict.fromkeys((key.task, key.subtask) for key in missing)]
        for number, _ in producers:
            self._recall(number)
        execution = self._new_execution(self._recall, copies=1)
        live = list(self._crew.ranks)
        if not live:
            raise ClusterError("no rank is left; the session cannot compute any more")
        execution.run(producers, [live[k % len(live)] for k in range(len(producers))])
        needed = {key for pieces in self._directory.maps.values() for key in pieces.keys()}  # noqa: SIM118
        execution.drop(execution.list_recomputed() - needed)

    def _recall(self, number: int) -> RunTable:
        """Return the subtasks of an earlier call of ``run``."""
        if number not in self._history:
            raise make_lost_error()
        return self._history[number]

    def _gather(self, space: Space, box: Box) -> np.ndarray:
        target = np.empty(shape_of(box), space.dtype)
        wanted: dict[int, list[PartOrigin]] = {}
        reader_of = cache(lambda number: self._saved.sources.get(number, space.source).open())
        for part in self._directory.maps[space.number].parts(box):
            origin = self._directory.origins([part], 0)[0]
            if origin.key.from_source:
                reader = reader_of(origin.key.subtask)
                reader.read(part.box, target[within(part.box, box)])
            else:
                wanted.setdefault(origin.rank, []).append(origin)
        for rank, origins in wanted.items():
            self._crew.fetch(rank, origins, [target[within(origin.box, box)] for origin in origins])
        return target

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _jobs(self, tasks: Sequence[Task]) -> RunTable:
        self._n_tasks += 1
        shipped = [(task.table, self._ship(task.function)) for task in tasks]
        return RunTable(self._n_tasks, shipped, self._directory.parts_of)

    def _ship(self, function: BlockFunction) -> BlockFunction:
        """Return a function that can reach its workers."""
        call, gpu = function.call, function.gpu
        if gpu is not None and not self._crew.on_cpu:
            call = None
        if gpu is not None and self._crew.travels:
            gpu = shipping.dump(gpu)
        if call is not None and (self._crew.travels or not function.releases_gil):
            call = shipping.dump(call)
        return replace(function, call=call, gpu=gpu)

    def _execute(self, jobs: RunTable) -> tuple[BlockExecution, int | None]:
        """Run jobs; return also the bytes that ranks had to move at least, where that is known."""
        ranks = list(self._crew.ranks)
        if not ranks:
            raise ClusterError("no rank is left; the session cannot compute any more")
        execution = self._new_execution(
            lambda number: jobs if number == jobs.number else self._recall(number),
            self._copies,
            lambda done: self._progress(done, len(jobs)),
        )
        found = schedule_subtasks(jobs, self._directory, self._divider, ranks, self._room(jobs))
        keys = [(jobs.number, subtask) for subtask in found.subtasks]
        execution.run(keys, found.ranks)
        return execution, found.bytes_bound

    def _room(self, jobs: RunTable) -> float:
        """Return the bytes that each rank has for arrays where jobs run."""
        on_device = any(function.gpu is not None for function in jobs.functions)
        return min(self._crew.room_bytes, self._crew.device_bytes if on_device else math.inf)

    def _new_execution(
        self,
        table_of: Callable[[int], RunTable],
        copies: int,
        progress: Callable[[int], None] = lambda done: None,
    ) -> BlockExecution:
        return BlockExecution(
            self._crew,
            self._directory,
            table_of,
            copies=copies,
            steal=self._steal,
            progress=progress,
            trace=self._trace,
        )

    def _finish(self, execution: BlockExecution, jobs: RunTable) -> None:
        """Make the next versions, all at once."""
        written: dict[int, list[tuple[PieceKey, Box]]] = {}
        for job in jobs:
            for piece, wanted in job.outputs():
                written.setdefault(wanted.space, []).append((piece, wanted.box))
        old = execution.list_recomputed() | self._directory.commit(jobs.number, written)
        needed = {key for pieces in self._directory.maps.values() for key in pieces.keys()}  # noqa: SIM118
        execution.drop(old - needed)
        if self._crew.travels:
            self._history[jobs.number] = jobs

    def _catch_up(self) -> None:
        """Take note of what happened to ranks since the last task."""
        while (event := self._crew.next_event(0)) is not None:
            if isinstance(event, RankGone):
                self._directory.lose(event.rank)
                self.total += RunReport(ranks_lost=1)

    # -- refusals ----------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigError("the session is closed; its spaces and tasks went with it", code="closed")

    def _require_mine(self, space: Space) -> None:
        if space.owner is not self:
            raise ConfigError(
                f"{space!r} belongs to another session; copy it into this one with session.space(space.array())",
                code="other-session",
            )

    def require_no_source(self, target: Path) -> None:
        for space in self._directory.spaces.values():
            source = Path(space.source.path)
            if space.source.path and (source.is_relative_to(target) or target.is_relative_to(source)):
                raise ConfigError(
                    f"{target} is, holds or lies in the source of a space, which is never written; choose another name"
                )

    def _require_own(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if not isinstance(task, Task):
                raise ConfigError(
                    f"{show_value(task)} is not a task; make one with blocks.Task(function, grid, subscribe)"
                )
            for space in task.table.spaces:
                self._require_mine(space)
