"""What stands above the nodes of an execution: adds up their reports, shows progress, says when the run must stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence

from tartan.base.format import printable
from tartan.base.logs import logger_of
from tartan.base.progress import Progress
from tartan.core.pairs.ledger import DONE
from tartan.core.pairs.verdict import FailureRules, Look, NodeReport, RunTally
from tartan.core.ranks.coordinator import Coordinator
from tartan.core.ranks.messages import Report
from tartan.errors import TartanError
from tartan.run.keeping import KeptWatch
from tartan.store.failures import of_live
from tartan.store.folder import RunFolder

_log = logger_of(__name__)

# By judgement: `tartan info` of a run in progress is no older; a small file every two seconds is not a load. No
# benchmark.
COUNTS_SECONDS = 2.0
"""Between two times that the driver writes what only it knows."""

# By judgement: more lines than a screen has say the same. No benchmark.
MOST_TOLD = 100
"""Calls of one execution that took too long and are named; the failures that follow are listed all the same."""


class Oversight:
    """Receives the reports of nodes.

    Parameters
    ----------
    folder : RunFolder
        Open for writing; gets the failed items. Failed pairs go with their chunk.
    rules : FailureRules
    progress : Progress
        Of the pairs that are computed here.
    look : callable
        Tries pairs from all over the run, when the first ones make one doubt that any succeeds.
    share : collection of (I, J), optional
        Chunks that are computed here, where others compute the rest. Failures are judged by all pairs of the run.
    kept : KeptWatch, optional
        Of a run that may keep too much.
    """

    def __init__(
        self,
        folder: RunFolder,
        rules: FailureRules,
        progress: Progress,
        look: Callable[[], Look],
        share: Collection[tuple[int, int]] | None = None,
        kept: KeptWatch | None = None,
    ) -> None:
        counts = folder.counts()
        known = (failure.i for failure in folder.failures() if failure.j is None)
        self._folder = folder
        self._progress = progress
        self._look = look
        self._n_told = 0
        self._kept = kept
        self._n_items = folder.manifest.n_items
        self._n_elsewhere = 0 if share is None else int((counts - folder.counts(share))[DONE:].sum())
        n_good, n_ended = int(counts[DONE]), int(counts[DONE:].sum())
        self._tally = RunTally(rules, folder.wanted.n_scores, n_good=n_good, n_ended=n_ended, failed_items=known)

    def report(
        self, report: NodeReport, storage_loads: int | None = None, fills: int | None = None, again: int = 0
    ) -> None:
        """Add a report.

        Parameters
        ----------
        report : NodeReport
        storage_loads, fills : int, optional
            Of all ranks so far, where there are several.
        again : int
            Pairs that were reported and lost with their rank: others report them again.

        Raises
        ------
        RunFailedError, ResourceError
            If the run must stop.
        """
        tally = self._tally
        report = report._replace(failures=of_live(report.failures, self._folder.live))
        self._tell(report.late)
        if report.death is not None:
            _log.info("a worker process has ended, and its pairs are tried in parts: %s", report.death.reason)
        new = tally.add(report)
        if new:
            self._folder.add_failures(new)
        if tally.wants_look:
            tally.see(self._look())
        tally.judge()
        if self._kept is not None:
            self._kept.add(report.pairs.good + report.pairs.without_item + report.pairs.failed)
        loads = tally.n_loads if storage_loads is None else storage_loads
        done_pairs = tally.n_scores - self._n_elsewhere - again
        self._progress.update(done_pairs, loads, self._n_items, tally.n_failed, fills)

    def _tell(self, late: Sequence[str]) -> None:
        """Name calls that took too long, some of very many."""
        for line in late:
            _log.info("%s", line)
        for line in late[: MOST_TOLD - self._n_told]:
            self._n_told += 1
            self._progress.say(printable(f"tartan: {line}"))
            if self._n_told == MOST_TOLD:
                self._progress.say("tartan: calls that are late from now on are not named")


class RanksOversight(Oversight):
    """Receives the reports of several ranks, and lets others see how far they are.

    Parameters
    ----------
    folder : RunFolder
        Joined as the writer of the driver.
    rules, progress, look, kept
        As for ``Oversight``.
    coordinator : Coordinator
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        folder: RunFolder,
        rules: FailureRules,
        progress: Progress,
        look: Callable[[], Look],
        coordinator: Coordinator,
        clock: Callable[[], float] = time.monotonic,
        kept: KeptWatch | None = None,
    ) -> None:
        super().__init__(folder, rules, progress, look, kept=kept)
        self._coordinator = coordinator
        self._clock = clock
        self._storage_loads = self._fills = 0
        self._written = -COUNTS_SECONDS

    def report_of_rank(self, report: Report) -> None:
        """Add what a rank did since its last report.

        Raises
        ------
        RunFailedError, ResourceError
            If the run must stop.
        """
        self._storage_loads += report.storage_loads
        self._fills += report.fills
        if self._clock() - self._written >= COUNTS_SECONDS:
            self._written = self._clock()
            self._write_counts()
        self.report(report.node, self._storage_loads, self._fills, self._coordinator.counts.again)

    def _write_counts(self) -> None:
        """Write what the statistics of no rank hold; a full disk stops no run."""
        counts = self._coordinator.counts
        found = {"n_ranks": self._coordinator.n_welcomed, "steals": counts.steals, "ranks_lost": counts.lost}
        with contextlib.suppress(TartanError):
            self._folder.write_stats(found)
