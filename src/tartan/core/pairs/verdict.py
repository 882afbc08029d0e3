"""When failures stop a run: what all nodes report, added up, and judged.

A node reports what happened since its last report. It does not know whether that is too much, because other nodes
report too; only the sum can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tartan.core.pairs.ledger import Failure
from tartan.errors import RunFailedError

# By judgement: by the first hundred a wrong argument or a missing model has shown; looking costs 20 s at most. No
# benchmark.
HOPELESS_PAIRS = 100
"""When so many pairs failed themselves and none succeeded, pairs from all over the run are tried before it continues.

Bad items often lie together, and at the front: the first pairs alone say nothing of the others.
"""

# By judgement: one or two deaths may be bad items, or the killer of a machine out of memory; each costs a worker's
# start. No benchmark.
HOPELESS_DEATHS = 4
"""So they are when the first compare calls all end their workers, and no single item explains it."""


class PairCounts(NamedTuple):
    """How pairs ended.

    Attributes
    ----------
    good : int
        Pairs with scores.
    without_item : int
        Pairs that lack an item, because it failed.
    failed : int
        Pairs that failed themselves.
    scores : int
        How many comparisons these are: two of a pair where (i, j) and (j, i) are both compared, one where i is j.
    scores_without_item : int
        Those of the pairs that lack an item.
    """

    good: int = 0
    without_item: int = 0
    failed: int = 0
    scores: int = 0
    scores_without_item: int = 0


class Death(NamedTuple):
    """A compare call that ended its worker.

    Attributes
    ----------
    pair : tuple of int or None
        Its items, where it had a single pair or triple to compare.
    reason, traceback : str
    """

    pair: tuple[int, ...] | None
    reason: str
    traceback: str = ""


class Look(NamedTuple):
    """How pairs from all over a run ended that were tried beside it.

    Attributes
    ----------
    n_tried, n_good : int
    """

    n_tried: int
    n_good: int


class NodeReport(NamedTuple):
    """What happened on a node since its last report.

    Attributes
    ----------
    n_loads : int
        Items that were loaded.
    pairs : PairCounts
        Pairs that ended.
    failures : sequence of Failure
        Items that failed, each as often as it was loaded; and pairs, of many only some.
    death : Death or None
    survived : bool
        Whether a worker outlived the comparison of a pair that was tried beside the others.
    late : sequence of str
        Of calls that took too long and are tried again, a line each.
    """

    n_loads: int = 0
    pairs: PairCounts = PairCounts()
    failures: Sequence[Failure] = ()
    death: Death | None = None
    survived: bool = False
    late: Sequence[str] = ()


@dataclass(frozen=True)
class FailureRules:
    """What the user tolerates.

    Attributes
    ----------
    on_error : {"skip", "raise"}
    max_failures : int or None
        More failed items and pairs than this stop the run.
    unit : {"pairs", "triples"}
        What is compared, for messages.
    """

    on_error: str = "skip"
    max_failures: int | None = None
    unit: str = "pairs"


class RunTally:
    """Adds up the reports of all nodes of one execution, and judges the sum.

    Parameters
    ----------
    rules : FailureRules
    n_pairs : int
        Pairs of the run.
    n_good, n_ended : int
        Scores that earlier executions left, and all that they ended, failed ones included.
    failed_items : iterable of int
        Items that are known to fail.
    """

    def __init__(
        self, rules: FailureRules, n_pairs: int, *, n_good: int = 0, n_ended: int = 0, failed_items: Iterable[int] = ()
    ) -> None:
        self._rules = rules
        self._n_pairs = n_pairs
        self._known_items = set(failed_items)
        self._new_items: set[int] = set()
        self._n_good = n_good
        self._n_ended = n_ended
        self._n_failed_pairs = 0
        self._first: Failure | None = None
        self._deaths: list[Death] = []
        self._survived = False
        self._look: Look | None = None
        self.n_loads = 0
        self.n_scores = n_ended

    @property
    def n_failed(self) -> int:
        """Failed items, of earlier executions too, and pairs that failed in this one."""
        return len(self._known_items) + self._n_failed_pairs

    def add(self, report: NodeReport) -> list[Failure]:
        """Add a report; return the failed items in it that were not known to fail."""
        self.n_loads += report.n_loads
        pairs = report.pairs
        self.n_scores += pairs.scores
        self._n_good += pairs.good
        self._n_ended += pairs.good + pairs.without_item + pairs.failed
        self._n_failed_pairs += pairs.failed
        self._survived = self._survived or report.survived
        if report.death is not None and self._may_be_hopeless:
            self._deaths.append(report.death)
        if not report.failures:
            return []
        self._first = self._first or report.failures[0]
        items = [failure for failure in report.failures if failure.j is None]
        new = [failure for failure in items if failure.i not in self._known_items]
        self._new_items.update(failure.i for failure in items)
        self._known_items |= self._new_items
        return new

    @property
    def wants_look(self) -> bool:
        """Whether pairs from all over the run shall be tried, and told by ``see``, before the run is judged.

        Never where the user says how many failures are tolerated.
        """
        doubtful = self._n_failed_pairs >= HOPELESS_PAIRS or self._kills_workers
        return doubtful and self._may_be_hopeless and self._look is None and self._rules.max_failures is None

    def see(self, look: Look) -> None:
        """Take in how pairs from all over the run ended."""
        self._look = look

    def judge(self) -> None:
        """Let the run continue, or stop it.

        Raises
        ------
        RunFailedError
            If it must stop.
        """
        rules = self._rules
        if rules.on_error == "raise" and self._first is not None:
            raise self._make_stop_error("something failed, and --on-error is raise")
        n_new = len(self._new_items) + self._n_failed_pairs
        if rules.max_failures is not None and n_new > rules.max_failures:
            failed = f"{n_new} items and {rules.unit} failed"
            raise self._make_stop_error(f"{failed}, more than --max-failures {rules.max_failures}")
        if self._n_good:
            return
        if self._n_failed_pairs and self._n_ended >= self._n_pairs and rules.max_failures is None:
            raise self._make_stop_error(f"all {self._n_ended} {rules.unit} failed")
        if self._look is not None and not self._look.n_good:
            raise self._make_stop_error(f"{self._doubt()}{self._describe_seen(self._look)}")

    def _doubt(self) -> str:
        if self._kills_workers:
            return f"compare ended its worker process {len(self._deaths)} times in a row"
        return f"the first {self._n_failed_pairs} {self._rules.unit} that were compared all failed"

    def _describe_seen(self, look: Look) -> str:
        return f", and so did {look.n_tried} from all over the run" if look.n_tried else ""

    @property
    def _kills_workers(self) -> bool:
        return len(self._deaths) >= HOPELESS_DEATHS and not self._has_common_item()

    @property
    def _may_be_hopeless(self) -> bool:
        return not self._n_good and not self._survived

    def _has_common_item(self) -> bool:
        """Whether one item takes part in every single pair that ended a worker."""
        pairs = [set(death.pair) for death in self._deaths if death.pair is not None]
        return not pairs or bool(set.intersection(*pairs))

    def _make_stop_error(self, why: str) -> RunFailedError:
        first = self._first or next(iter(self._deaths), None)
        reason, traceback = ("", "") if first is None else (first.reason, first.traceback)
        way_out = "What is done is kept; run it again to resume" if self._n_good else "Mend that, and run it again"
        happened = f"{why}; first: {reason}" if reason else why
        return RunFailedError(
            f"{happened}{'' if happened.endswith(('.', '?', '!')) else '.'} {way_out}",
            context={"traceback": traceback, "reason": reason},
        )
