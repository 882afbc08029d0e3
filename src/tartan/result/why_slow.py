"""Why a run was slow: where the time of what compares went, by cause, and the largest cause first.

The figures are those that ``tartan.core.pairs.device_time`` sums up while a run is computed; all executions count. Time
that a slow rank took longer for its pairs than others counts as lost to the tail, with the time that others waited for
the last pairs. Before the first item is wanted, and where no pair was compared, nothing is known.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tartan.base.format import format_duration
from tartan.core.pairs.device_time import (
    CALLS,
    CAUSES,
    COMPARE,
    COPIES,
    PARSE,
    PREPROCESS,
    RANKS,
    RESULTS,
    START,
    STORAGE,
    TAIL,
)
from tartan.errors import ConfigError
from tartan.result.statistics import DEVICE_SECONDS, RANK_TIMES

# By judgement: ranks of one machine differ by a fifth from load alone; twice is a machine of another kind, or one that
# is ill. No benchmark.
SLOW_RANK = 1.5
"""A rank that takes so many times as long for a pair as the median of all is named."""

# By judgement: one rank of four that does next to nothing is a quarter of the time; less than a fifth is not why a run
# was slow. No benchmark.
AVOIDABLE = 0.2
"""Part of the time from which on a cause is named before comparing, which is the work itself."""

LINK = "link"
LOSSES = "losses"
SLOW_CAUSES = (COMPARE, STORAGE, PARSE, PREPROCESS, LINK, RESULTS, START, TAIL, LOSSES)
"""What a run can be slow by, in the order of the lines."""

_ADVICE = {
    COMPARE: "comparing itself; more workers or devices, or a compare that does a whole tile at once",
    STORAGE: "items were waited for that were being read; a faster disk, --disk-cache, or a larger --host-cache",
    PARSE: "items were waited for that were being parsed; more --workers, or a larger --host-cache",
    PREPROCESS: "items were waited for that were being preprocessed; --disk-cache, or a larger --host-cache",
    LINK: "items were on their way, between ranks or to and from devices; larger caches, or fewer ranks",
    RESULTS: "results were being written; a faster disk for the run folder",
    START: "what compares was getting ready, and between its calls; a longer run, or larger calls",
    TAIL: "no work was left while others still computed; a smaller --tile",
    LOSSES: "pairs were computed again after ranks or processes were lost",
}


@dataclass(frozen=True)
class SlowRank:
    """A rank that takes much longer for a pair than others.

    Attributes
    ----------
    name : str
    times : float
        How many times as long as the median of all.
    """

    name: str
    times: float


@dataclass(frozen=True)
class WhySlow:
    """Where the time of a run went.

    Attributes
    ----------
    cause : str
        The largest of ``seconds``, comparing only where no other is a fifth of them; one of ``SLOW_CAUSES``.
    device_seconds : float
        Time that there was: that of the executions, once for each part that can be compared at a time.
    seconds : dict of str to float
        Of it, by cause; they add up to it.
    slow_rank : SlowRank or None
        The slowest one, where one is much slower than others.
    facts : dict of str to str
        What else is known of a cause, in words.
    """

    cause: str
    device_seconds: float
    seconds: dict[str, float]
    slow_rank: SlowRank | None
    facts: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        slow = None if self.slow_rank is None else {"rank": self.slow_rank.name, "times": self.slow_rank.times}
        return {
            "cause": self.cause,
            "device_seconds": self.device_seconds,
            "seconds": self.seconds,
            "slow_rank": slow,
            "facts": self.facts,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return ten lines, each a name and what is said of it: the largest cause, and then all of them."""
        advice = _ADVICE[self.cause]
        if self.cause == TAIL and self.slow_rank is not None:
            advice = f"rank {self.slow_rank.name} took {self.slow_rank.times:.1f} times as long for a pair as others"
        head = f"{self.cause}, {self._share(self.cause)} of the time of what compares: {advice}"
        return [("slow by", head), *((cause, self._line(cause)) for cause in SLOW_CAUSES)]

    def _line(self, cause: str) -> str:
        amount = f"{self._share(cause):>6}  {format_duration(self.seconds[cause])}"
        return f"{amount}; {self.facts[cause]}" if self.facts.get(cause) else amount

    def _share(self, cause: str) -> str:
        return f"{self.seconds[cause] / max(self.device_seconds, 1e-12):.1%}"


def explain_slowness(stats: Mapping[str, Any], n_done: int | None, path: str = "the run") -> WhySlow:
    """Return where the time of a run went.

    Parameters
    ----------
    stats : mapping
        As in the run folder.
    n_done : int or None
        Pairs that are done; None where pairs were left out later, and what was computed twice is not known.
    path : str
        For errors.

    Raises
    ------
    ConfigError
        If nothing is known: nothing was computed, or by an older version.
    """
    found = stats.get(DEVICE_SECONDS)
    times = {cause: _amount(found.get(cause)) for cause in CAUSES} if isinstance(found, Mapping) else {}
    total = sum(times.values())
    if not total:
        raise ConfigError(
            f"{path} keeps no times by cause: nothing was computed yet, or by an older version of Tartan; "
            "see seconds_per_stage of tartan info"
        )
    slow, excess = _find_slow_ranks(stats)
    again, n_computed = 0, int(_amount(stats.get("pairs_computed")))
    if n_done is not None:
        again = max(0, n_computed - n_done)
    compare = times[COMPARE]
    excess = min(excess, compare)
    lost = (compare - excess) * again / max(1, n_computed)
    seconds = {
        COMPARE: compare - excess - lost,
        STORAGE: times[STORAGE],
        PARSE: times[PARSE],
        PREPROCESS: times[PREPROCESS],
        LINK: times[COPIES] + times[RANKS],
        RESULTS: times[RESULTS],
        START: times[START] + times[CALLS],
        TAIL: times[TAIL] + excess,
        LOSSES: lost,
    }
    return WhySlow(_name_cause(seconds, total), total, seconds, slow, _tell_facts(stats, times, slow, excess, again))


def _name_cause(seconds: Mapping[str, float], total: float) -> str:
    largest = max(SLOW_CAUSES[1:], key=lambda one: seconds[one])
    return largest if seconds[largest] > min(seconds[COMPARE], AVOIDABLE * total) else COMPARE


def _amount(value: Any) -> float:
    """Return a figure of a file, 0 where it is none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else 0.0


def _table(value: Any) -> Mapping[str, Any]:
    """Return a table of a file, an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def _find_slow_ranks(stats: Mapping[str, Any]) -> tuple[SlowRank | None, float]:
    """Return the slowest rank, if it is much slower than others, and the seconds that all slow ones took longer."""
    ranks = stats.get(RANK_TIMES)
    costs = {
        str(name): (_amount(one.get(COMPARE)), _amount(one.get("pairs")))
        for name, one in _table(ranks).items()
        if isinstance(one, Mapping)
    }
    a_pair = {name: seconds / pairs for name, (seconds, pairs) in costs.items() if seconds and pairs}
    if len(a_pair) < 2:
        return None, 0.0
    usual = statistics.median_low(a_pair.values())
    slow = {name: cost / usual for name, cost in a_pair.items() if cost >= SLOW_RANK * usual}
    excess = sum(costs[name][0] * (1 - 1 / times) for name, times in slow.items())
    worst = max(slow, key=lambda name: slow[name], default=None)
    return (None if worst is None else SlowRank(worst, slow[worst])), excess


def _tell_facts(
    stats: Mapping[str, Any], times: Mapping[str, float], slow: SlowRank | None, excess: float, again: int
) -> dict[str, str]:
    """Return what else is known of each cause."""
    n_bytes, stages = _table(stats.get("bytes_per_level")), _table(stats.get("seconds_per_stage"))
    factor, bound = _amount(stats.get("load_factor")), _amount(stats.get("load_factor_bound"))
    read, moved = _amount(n_bytes.get("storage")), _amount(stats.get("bytes_between_ranks"))
    copied = _amount(n_bytes.get("upload")) + _amount(n_bytes.get("download"))
    tail = f"others waited {format_duration(times[TAIL])}" if slow else ""
    if slow is not None:
        tail += f", rank {slow.name} took {format_duration(excess)} longer than others for its pairs"
    n_lost, executions = int(_amount(stats.get("ranks_lost"))), int(_amount(stats.get("executions")))
    return {
        COMPARE: f"{int(_amount(stats.get('pairs_computed'))):,} computed",
        STORAGE: f"{_in_bytes(read)} read{_rate(read, _amount(stages.get('read')))}, "
        f"each item loaded {factor:.2f} times, with this memory at least {bound:.2f}",
        PARSE: f"{int(_amount(stats.get('parses'))):,} items parsed",
        LINK: f"to and from devices {format_duration(times[COPIES])} ({_in_bytes(copied)}), "
        f"other ranks {format_duration(times[RANKS])} ({_in_bytes(moved)})",
        RESULTS: f"{_in_bytes(_amount(n_bytes.get('result')))} written",
        START: f"getting ready {format_duration(times[START])}, between calls {format_duration(times[CALLS])}",
        TAIL: tail,
        LOSSES: f"{n_lost} ranks lost, {executions} executions, {again:,} computed again",
    }


def _in_bytes(amount: float) -> str:
    return f"{amount / 1e6:,.1f} MB"


def _rate(amount: float, seconds: float) -> str:
    return f" at {amount / 1e6 / seconds:,.1f} MB/s each" if amount and seconds else ""
