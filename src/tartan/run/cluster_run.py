"""An execution on several ranks, seen from the driver: what they are told, how far they are, what they leave."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tartan.base.checks import POSITIVE, check_one_of, number
from tartan.base.files import FileWriter
from tartan.base.format import format_duration, pluralize, printable
from tartan.base.lock import read_epoch
from tartan.base.logs import logger_of
from tartan.base.machine import tartan_version
from tartan.base.notices import RunNotice
from tartan.base.progress import Progress
from tartan.base.signals import cancel_on_signals
from tartan.base.trace import Tracer
from tartan.cluster.depot import Depot
from tartan.cluster.driver import PATIENCE_SECONDS, Driver, RankRecord, Summary, Watch
from tartan.cluster.engine import ClusterEngine
from tartan.cluster.launch import ClusterTarget, open_engine, parse_cluster
from tartan.cluster.rank import runs_of
from tartan.cluster.storage import JOIN_SECONDS, PARSE_AT, ParseAt
from tartan.core.pairs.bound import cluster_fills_bound, workload_bound
from tartan.core.pairs.device_time import TAIL
from tartan.core.pairs.ledger import NOT_COMPUTED
from tartan.core.pairs.region import Region
from tartan.core.pairs.verdict import FailureRules
from tartan.core.ranks.coordination import CoordinatorSetup, Run
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.placement import AUTO, PARSED, STORAGE_RANKS, StageNames, parse_stages
from tartan.errors import ClusterError, ConfigError, DiskFullError, RunCancelledError, StoreError, TartanError
from tartan.result.statistics import DEVICE_SECONDS, RANK, RANK_TIMES, STOPPED
from tartan.run.cluster_rank import ENTRY, STORAGE_RESOURCE, RankJob, identity_of
from tartan.run.oversight import RanksOversight
from tartan.run.plan import list_stages
from tartan.run.request import Request
from tartan.run.session import RunSession, folder_grid, log_state
from tartan.run.statistics import collect_statistics, why_stopped
from tartan.run.storage_rank import size_sample, travelling_parts
from tartan.runtime.remaining import Remaining
from tartan.store.claims import make_gone_error
from tartan.store.folder import RunFolder
from tartan.store.manifest import FILE_NAME as MANIFEST_NAME
from tartan.store.tables import merge_parts
from tartan.store.writers import RANKS_NAME
from tartan.workers.shipping import dump

if TYPE_CHECKING:
    from distributed import Client

_log = logger_of(__name__)

# Of the lease of a driver.
DRIVES, LEASE_SECONDS_NAME, ON = "drives", "lease_seconds", "on"

# By judgement: a rank ends its workers within GRACE_SECONDS and what it writes within a few seconds.
# bench cluster_kill holds that nothing is left.
ENDING_SECONDS = 10.0
"""Within which a rank ends that knows that it is no longer a member."""
# Measured: Dask's nanny starts a killed worker again within 0.6 to 2 s on an idle machine; five times that for a busy
# one. bench cluster_kill.
RETURN_SECONDS = 10.0
"""Within which a rank of this machine is started anew, where its Dask worker was killed with it."""
# By judgement: a rank takes some 300 bytes, so all of them are below 40 kB; a slow one is among those that wait least.
MOST_RANK_TIMES = 128
"""Ranks whose times a run keeps."""
# By judgement: not felt at the end of a run, and no load. No benchmark.
_POLL_SECONDS = 0.1
_START_STORAGE = 'start workers with --resources "storage=1" where the data are'


@dataclass(frozen=True)
class ClusterWays:
    """Where the ranks of an execution are, and when one counts as lost.

    Attributes
    ----------
    target : ClusterTarget or distributed.Client
    insecure : bool
        Accept connections beyond this machine that anyone may read and forge.
    rank_timeout_seconds : float
        A rank that is silent for longer is lost.
    patience_seconds : float
        How long a run without a rank waits for one.
    stages : str or None
        Which stages run beside the data, as of ``parse_stages``; None: "auto", where there are such ranks.
    parse_at : {"storage", "compute", "auto"} or None
        The same in older words: all stages beside the data, none, or "auto".
    storage_seconds : float
        How long the first load of a rank waits for a storage rank, where ``stages`` or ``parse_at`` expects one.
    """

    target: ClusterTarget | Client
    insecure: bool = False
    rank_timeout_seconds: float = 15.0
    patience_seconds: float = PATIENCE_SECONDS
    stages: str | None = None
    parse_at: ParseAt | None = None
    storage_seconds: float = JOIN_SECONDS

    @property
    def may_have_storage(self) -> bool:
        """Whether a rank beside the data can be among the ranks: those that are started here are all alike."""
        return not self.n_local

    def depth_among(self, names: StageNames) -> int | None:
        """Return how many stages run beside the data, or ``AUTO``; None where nobody said.

        Raises
        ------
        ConfigError
            If these stages cannot run there.
        """
        if self.stages is None:
            return None if self.parse_at is None else PARSE_AT[self.parse_at]
        wanted = parse_stages(self.stages)
        return AUTO if wanted is None else names.depth_of(wanted)

    def refuse_unfit(self, asked: Request) -> None:
        """Refuse stages beside the data that this request cannot have there, before anything is made.

        Raises
        ------
        ConfigError
            If the application lacks one of them, the items are no files, or no rank can be beside the data.
        """
        if self.stages is None or not parse_stages(self.stages):
            return
        self.depth_among(list_stages(asked.app))
        about = {"option": "--stages"}
        if asked.source.kind != "files":
            raise ConfigError(
                f"--stages {self.stages}: the items of this run are not files, and every rank reads them for itself; "
                "leave --stages out",
                context=about,
            )
        if not self.may_have_storage:
            raise ConfigError(
                f"--stages {self.stages}: the {pluralize(self.n_local, 'rank')} that --on local:{self.n_local} starts "
                "are alike, and none is beside the data; start workers of a Dask scheduler where the data are, with "
                '--resources "storage=1", and give its address with --on, or leave --stages out',
                context=about,
            )

    @property
    def n_local(self) -> int:
        """Ranks that are started on this machine; 0 where they run already."""
        return self.target.n_local if isinstance(self.target, ClusterTarget) else 0

    @property
    def n_expected(self) -> int:
        """Ranks that are waited for."""
        if isinstance(self.target, ClusterTarget):
            return self.target.n_local or 1
        workers = self.target.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, sum(not worker.get("resources", {}).get(STORAGE_RESOURCE) for worker in workers))

    @property
    def lease(self) -> dict[str, Any]:
        """What the lease of the driver says: what another process must know to go on in its place."""
        on = self.target.address if isinstance(self.target, ClusterTarget) else self.target.scheduler.address
        return {
            "what": "the driver of a run on several ranks",
            DRIVES: True,
            LEASE_SECONDS_NAME: self.rank_timeout_seconds,
            ON: f"local:{self.n_local}" if self.n_local else str(on),
        }

    @property
    def waited_for(self) -> str:
        """What a run without a rank waits for, in words."""
        if self.n_local:
            return f"{pluralize(self.n_local, 'rank')} that it has started on this machine"
        address = self.target.address if isinstance(self.target, ClusterTarget) else self.target.scheduler.address
        return f"a worker of the Dask scheduler at {address}, with Tartan {tartan_version()}"

    @property
    def unserved(self) -> str:
        """What is said where stages are to run beside the data and no rank is there; "" where they are not."""
        if not (self.stages and parse_stages(self.stages)):
            return ""
        return (
            f"no storage rank is there: what --stages {self.stages} names waits {self.storage_seconds:g} s for one, "
            f"then runs on the ranks that compute; {_START_STORAGE}"
        )

    def engine(self, run: str) -> contextlib.AbstractContextManager[ClusterEngine]:
        """Return the driver's engine, for as long as its context lasts."""
        patience = self.rank_timeout_seconds
        return open_engine(self.target, run, entry=ENTRY, insecure=self.insecure, patience_seconds=patience)

    def execute(self, session: RunSession, folder: RunFolder) -> None:
        """Compute what a run lacks.

        Parameters
        ----------
        session : RunSession
            Of the driver, which computes nothing itself.
        folder : RunFolder

        Raises
        ------
        TartanError
            As ``Node.run``, and ClusterError if no rank is left; the folder can then be resumed.
        """
        _execute(session, folder, self)


def cluster_ways(
    on: Any,
    *,
    insecure: bool,
    rank_timeout: float | None,
    parse_at: str | None = None,
    stages: str | None = None,
    wait: float | None = None,
) -> ClusterWays:
    """Return where the ranks of a call are.

    Parameters
    ----------
    on : str, ClusterTarget or distributed.Client
        A text as of ``parse_cluster``.
    insecure : bool
    rank_timeout : float or None
        Seconds after which a silent rank counts as lost; default 15.
    parse_at : str or None
        "storage", "compute" or "auto".
    stages : str or None
        As of ``parse_stages``.
    wait : float or None
        Seconds in which a run without a rank waits for one; default 60.

    Raises
    ------
    ConfigError
        If one of them is not understood.
    """
    target = parse_cluster(on, insecure=insecure) if isinstance(on, str) else on
    if parse_at is not None:
        check_one_of("parse_at", parse_at, tuple(PARSE_AT))
    if stages is not None:
        if parse_at is not None:
            raise ConfigError("--stages and --parse-at say the same in two ways; leave --parse-at out")
        parse_stages(stages)
    ways = ClusterWays(target, insecure, stages=stages, parse_at=cast("ParseAt | None", parse_at))
    if wait is not None:
        ways = replace(ways, patience_seconds=number("wait", wait, POSITIVE, option="--wait"))
    if rank_timeout is not None:
        seconds = number("rank_timeout", rank_timeout, POSITIVE, option="--rank-timeout")
        ways = replace(ways, rank_timeout_seconds=seconds)
    return ways


def _refuse_stages(session: RunSession, ways: ClusterWays) -> None:
    """Refuse stages beside the data of which a few items have shown that they cannot run there."""
    if ways.stages is None or not parse_stages(ways.stages):
        return
    facts = session.facts
    depth = ways.depth_among(list_stages(session.asked.app, facts, session.rank))
    item = facts.parsed_substitute if depth == PARSED else facts.substitute
    if travelling_parts(item):
        return
    name = "parse" if depth == PARSED else "preprocess"
    whole = ", or let preprocess run there, too (--stages storage:parse,preprocess)" if depth == PARSED else ""
    raise ConfigError(
        f"--stages {ways.stages}: what {name} makes ({type(item).__name__}) cannot be pickled, so it cannot go to "
        f"another rank; return arrays, or what pickle takes{whole}, or leave {name} with the ranks that compute "
        "(--stages compute)",
        context={"option": "--stages"},
    )


def _execute(session: RunSession, folder: RunFolder, ways: ClusterWays) -> None:
    _refuse_stages(session, ways)
    with folder.lock():
        tenure = Tenure(folder.path)
        collect_statistics(folder)
        before = folder.stats
        log_state(folder)
        remaining = Remaining(folder, folder_grid(folder))
        if folder.manifest.reduce is not None:
            folder.forget_result()
    setup = CoordinatorSetup(
        remaining.count_wanted(),
        folder.manifest.chunk,
        identity_of(folder),
        n_expected=ways.n_expected,
        rank_timeout_seconds=ways.rank_timeout_seconds,
        circle=session.strips_stream(folder, ways.n_expected),
    )
    session.release()
    coordinator = Coordinator(setup)
    summary = Summary()
    try:
        _drive(session, folder, ways, coordinator, summary, tenure)
        tenure.require()
    except BaseException as error:
        if isinstance(error, TartanError) and not (folder.path / MANIFEST_NAME).exists():
            raise make_gone_error(folder.path) from error  # each rank noticed it elsewhere
        tenure.require()  # whatever stopped this driver, nothing is written any more
        # A rank that does not end keeps the folder; what stopped the run is said all the same.
        with contextlib.suppress(StoreError):
            _collect(folder, coordinator, before, summary, ENDING_SECONDS, tenure)
            with folder.lock():
                tenure.require()
                folder.write_stats(folder.stats | {STOPPED: why_stopped(error)})
        raise
    _collect(folder, coordinator, before, summary, ways.rank_timeout_seconds + ENDING_SECONDS, tenure)
    _warn_of_stages(folder, ways)
    with folder.lock():
        tenure.require()
        if folder.counts()[NOT_COMPUTED]:
            raise ClusterError(f"{folder.path}: the ranks have ended, and the run is not complete; resume it")
        if folder.manifest.reduce is not None:
            merge_parts(folder)


def _warn_of_stages(folder: RunFolder, ways: ClusterWays) -> None:
    """Warn where stages were to run beside the data, and no rank was there."""
    if not (ways.stages and parse_stages(ways.stages)):
        return
    if (folder.stats.get("bytes_per_level") or {}).get(STORAGE_RANKS):
        return
    warnings.warn(
        f"no storage rank sent anything: what --stages {ways.stages} names ran on the ranks that compute; "
        f"{_START_STORAGE}",
        RunNotice,
        stacklevel=2,
    )


class Tenure:
    """The time in which this driver may write to a run folder: until another one takes it over.

    Parameters
    ----------
    path : Path
        Of the folder, which the caller holds.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._epoch = path, read_epoch(path)

    @property
    def is_over(self) -> bool:
        """Whether the epoch of the folder is higher than it was; read anew each time."""
        return read_epoch(self._path) > self._epoch

    def require(self) -> None:
        """Refuse to write after that.

        Raises
        ------
        StoreError
            Code "taken-over", naming the folder and both epochs.
        """
        epoch = read_epoch(self._path)
        if epoch > self._epoch:
            raise StoreError(
                f"{self._path}: this driver was silent for too long, and another process has taken the run over (epoch "
                f"{epoch}, this driver had {self._epoch}); it writes nothing more, and `tartan attach "
                f"{shlex.quote(str(self._path))}` follows the run",
                code="taken-over",
                context={"path": str(self._path)},
            )


def _collect(
    folder: RunFolder,
    coordinator: Coordinator,
    before: dict[str, Any],
    summary: Summary,
    seconds: float,
    tenure: Tenure,
) -> None:
    """Add up what the ranks did, when the last of them has ended."""
    with _hold_alone(folder, seconds):
        tenure.require()
        ranks = [*folder.writers_stats().values()]
        collect_statistics(folder)
        _write_counts(folder, coordinator, before, summary)
        _write_times(folder, ranks)
        _write_bounds(folder, [before, *ranks])


@contextlib.contextmanager
def _hold_alone(folder: RunFolder, seconds: float) -> Iterator[None]:
    """Hold a folder alone; wait for ranks that were cut off or frozen, and end by themselves, for some seconds."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder.lock())
                break
            except StoreError as error:
                if error.code != "locked" or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
        yield


def _drive(
    session: RunSession,
    folder: RunFolder,
    ways: ClusterWays,
    coordinator: Coordinator,
    summary: Summary,
    tenure: Tenure,
) -> None:
    """Have the ranks compute what a folder lacks."""
    asked, run = session.asked, f"run-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.join(run, ways.lease))
        watch = _open_watch(stack, folder, session, coordinator, tenure)
        engine = stack.enter_context(ways.engine(run))
        depot = Depot(
            folder,
            asked.source,
            engine.credentials,
            engine.host,
            members=lambda: engine.view().members,
            failed=lambda error: driver.cancel(error),
            log=watch.lost,
        )
        stack.callback(depot.close)
        _log.info("what ranks do not see is served on %s; %d ranks are waited for", depot.address, ways.n_expected)
        driver = Driver(
            engine,
            coordinator,
            dump(_rank_job(session, folder, ways, run, depot.address)),
            watch,
            summary,
            patience_seconds=ways.patience_seconds,
            return_seconds=RETURN_SECONDS if ways.n_local else ways.patience_seconds,
            waited_for=ways.waited_for,
            unserved=ways.unserved,
        )

        def cancel(number: int) -> None:
            message = "the run was stopped before its end; run it again to resume"
            driver.cancel(RunCancelledError(message, context={"signal": number}))

        tracer = Tracer()
        try:
            with cancel_on_signals(cancel):
                driver.run()
        finally:
            counts = coordinator.counts
            about = format_duration(summary.seconds), coordinator.n_welcomed, counts.lost, counts.steals, counts.shed
            _log.info("the ranks have worked for %s: %d came, %d lost; steals: %d, %d of them of granted work", *about)
            if asked.options.trace and not tenure.is_over:
                _write_trace(folder, tracer, summary)


def _open_watch(
    stack: contextlib.ExitStack, folder: RunFolder, session: RunSession, coordinator: Coordinator, tenure: Tenure
) -> Watch:
    """Return what the driver tells of its ranks: reports to be judged, what was committed, what is shown."""
    options, total = session.asked.options, folder.wanted.n_scores
    line = Progress(
        total, total - folder.n_left, quiet=options.quiet, verbose=options.verbose, n_items=folder.manifest.n_items
    )
    progress = stack.enter_context(line)
    rules = FailureRules(options.on_error, options.max_failures)
    return Watch(
        RanksOversight(folder, rules, progress, session.look, coordinator, kept=session.watch(folder)).report_of_rank,
        partial(_find_committed, folder),
        stack.enter_context(_RanksFile(folder, tenure)).write,
        lambda text: progress.say(printable(f"tartan: {text}")),
        tenure.require,
    )


def _rank_job(session: RunSession, folder: RunFolder, ways: ClusterWays, run: str, depot: str) -> RankJob:
    """Return what every rank is given."""
    asked = replace(session.asked, options=replace(session.asked.options, quiet=True))
    n_items = asked.source.n_items
    names = list_stages(asked.app)
    about: dict[str, Any] = {"pairs_an_item": folder.wanted.n_scores / max(1, n_items), "n_ranks": ways.n_expected}
    return RankJob(
        str(folder.path.resolve()),
        run,
        asked,
        max(1, ways.n_local),
        ways.n_expected,
        depot=depot,
        depth=ways.depth_among(names),
        storage_seconds=ways.storage_seconds,
        sizes=size_sample(asked.source, session.facts, **about, divides="preprocess" in names.names),
        lease_seconds=ways.rank_timeout_seconds,
    )


def _write_trace(folder: RunFolder, tracer: Tracer, summary: Summary) -> None:
    """Merge what the ranks recorded; a trace that is damaged, or a full disk, stops no run."""
    for rank, packed in sorted(summary.traces.items()):
        with contextlib.suppress(ValueError):
            tracer.absorb(rank, bytes(packed))
    with contextlib.suppress(OSError, TartanError):
        folder.write_trace(tracer.lines())


def _find_committed(folder: RunFolder, regions: Sequence[Region]) -> tuple[Run, ...]:
    """Return which chunks of regions need nothing any more."""
    chunks = {chunk for region in regions for chunk in region.chunks()}
    there = chunks & set(folder.committed())
    return tuple(runs_of(chunk for chunk in there if not folder.missing([chunk], verify=False)))


def _write_counts(folder: RunFolder, coordinator: Coordinator, before: dict[str, Any], summary: Summary) -> None:
    """Add what only the driver knows to what its ranks wrote: they were one execution, and worked at the same time."""
    stats, counts = {name: said for name, said in folder.stats.items() if name != STOPPED}, coordinator.counts
    wall_seconds = summary.seconds
    stats |= {
        "executions": before.get("executions", 0) + 1,
        "wall_seconds": before.get("wall_seconds", 0) + wall_seconds,
        "n_ranks": coordinator.n_welcomed,
        "storage_load_factor": stats.get("parses", 0) / folder.manifest.n_items,
        "steals": before.get("steals", 0) + counts.steals,
        "ranks_lost": before.get("ranks_lost", 0) + counts.lost,
        "rank_work": {"begun": summary.begun, **summary.work.as_dict()},
    }
    folder.write_stats(stats)


def _write_times(folder: RunFolder, ranks: Sequence[Mapping[str, Any]]) -> None:
    """Write where the time of each rank went, of so many at most as are read: those that waited least for work."""
    found = {
        str(rank[RANK]): {"pairs": rank.get("pairs_computed", 0), **(rank.get(DEVICE_SECONDS) or {})}
        for rank in ranks
        if rank.get(RANK) and rank.get("pairs_computed")
    }
    listed = sorted(found, key=lambda name: found[name].get(TAIL, 0.0))[:MOST_RANK_TIMES]
    folder.write_stats(folder.stats | {RANK_TIMES: {name: found[name] for name in listed}})


def _write_bounds(folder: RunFolder, ranks: Sequence[Mapping[str, Any]]) -> None:
    """Write the least loads and fills an item, from the slots of each rank and the pairs that it computed."""
    workload, stats = folder.pairs.workload, folder.stats
    computing = [rank for rank in ranks if rank.get("host_slots")]
    counted = [(int(rank.get("pairs_computed", 0)), max(2, rank["host_slots"])) for rank in computing]
    fewest_fills = cluster_fills_bound(workload.n_occurring, counted)
    stats |= {
        "storage_load_factor_bound": workload_bound(workload, max(2, sum(slots for _, slots in counted))),
        "load_factor_bound": fewest_fills / workload.n_items,
    }
    folder.write_stats(stats)


class _RanksFile:
    """``ranks.json`` in the run folder: who computes it at present; removed at the end, when nobody does."""

    def __init__(self, folder: RunFolder, tenure: Tenure) -> None:
        self._tenure = tenure
        self._path = folder.path / RANKS_NAME
        self._writer = FileWriter(folder.path)

    def write(self, ranks: Sequence[RankRecord]) -> None:
        """Name the live ranks; a full disk stops no run."""
        if self._tenure.is_over:
            return
        known = [(number, rank) for number, rank in enumerate(ranks) if rank.hello is not None]
        found = [{"rank": rank.name, "host": rank.hello.host, "pid": rank.hello.pid} for _, rank in known if rank.hello]
        with contextlib.suppress(StoreError, DiskFullError):
            self._writer.replace(self._path, [(json.dumps(found, indent=1) + "\n").encode()])

    def __enter__(self) -> _RanksFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tenure.is_over:
            return
        with contextlib.suppress(StoreError):
            self._writer.remove(self._path)
