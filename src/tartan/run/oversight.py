"""What stands above the nodes of an execution: adds up their reports, shows progress, says when the run must stop."""

from __future__ import annotations

from collections.abc import Collection

from tartan.base.progress import Progress
from tartan.core.ledger import DONE
from tartan.core.verdict import FailureRules, NodeReport, RunTally
from tartan.store.folder import RunFolder


class Oversight:
    """Receives the reports of nodes.

    Parameters
    ----------
    folder : RunFolder
        Open for writing; gets the failed items. Failed pairs go with their chunk.
    rules : FailureRules
    progress : Progress
        Of the pairs that are computed here.
    share : collection of (I, J), optional
        Chunks that are computed here, where others compute the rest. Failures are judged by all pairs of the run.
    """

    def __init__(
        self,
        folder: RunFolder,
        rules: FailureRules,
        progress: Progress,
        share: Collection[tuple[int, int]] | None = None,
    ) -> None:
        counts = folder.counts()
        known = (failure.i for failure in folder.failures() if failure.j is None)
        self._folder = folder
        self._progress = progress
        self._n_items = folder.manifest.n_items
        self._n_elsewhere = 0 if share is None else int((counts - folder.counts(share))[DONE:].sum())
        self._tally = RunTally(
            rules, folder.pairs.n_pairs, n_good=int(counts[DONE]), n_ended=int(counts[DONE:].sum()), failed_items=known
        )

    def report(self, report: NodeReport) -> None:
        """Add a report.

        Raises
        ------
        RunFailedError
            If the run must stop.
        """
        tally = self._tally
        new = tally.add(report)
        if new:
            self._folder.add_failures(new)
        self._progress.update(tally.n_scores - self._n_elsewhere, tally.n_loads, self._n_items, tally.n_failed)
        tally.judge()
